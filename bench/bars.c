#include "bench/bars.h"

#include <string.h>

#define PAGE 4096u

static bool small_batches(const struct verbs_point *point)
{
	return point->op == BENCH_WRITE && point->batch && point->bytes == 8;
}

static bool writes_from_4_kb(const struct verbs_point *point)
{
	return point->op == BENCH_WRITE && point->bytes >= PAGE;
}

static bool everywhere(const struct verbs_point *point)
{
	(void)point;
	return true;
}

/* What is logged; a log entry costs as much behind a long WRITE, where it drowns in what the WRITE takes. */
static bool logged_up_to_4_kb(const struct verbs_point *point)
{
	return point->op != BENCH_CAS_READS && point->bytes <= PAGE;
}

const struct verbs_bar verbs_bars[] = {
	{"soft, varuna: latency of batches of 64 WRITEs of 8 B, at most + 10 %", "soft", "varuna", false, 1.10,
		small_batches},
	{"soft, varuna: bandwidth of WRITEs of 4 KB and more, at most - 2.5 %", "soft", "varuna", false, 1 / 0.975,
		writes_from_4_kb},
	{"soft, varuna-psn: time of an operation, at most + 1 % anywhere", "soft", "varuna-psn", false, 1.01,
		everywhere},
	{"shm, varuna-psn: time of an operation, at most + 1 % anywhere", "shm", "varuna-psn", false, 1.01, everywhere},
	{"shm, varuna-log: at most 60 ns an operation up to 4 KB", "shm", "varuna-log", true, 60, logged_up_to_4_kb},
	{"shm, varuna: at most 60 ns an operation up to 4 KB", "shm", "varuna", true, 60, logged_up_to_4_kb},
};
const unsigned verbs_bar_count = sizeof(verbs_bars) / sizeof(verbs_bars[0]);

double verbs_bar_at(const char *kind, const char *mode, const struct verbs_point *point, bool by_cost)
{
	double most = 0;

	for (unsigned i = 0; i < verbs_bar_count; i++) {
		const struct verbs_bar *bar = &verbs_bars[i];

		if (strcmp(bar->kind, kind) == 0 && strcmp(bar->mode, mode) == 0 && bar->by_cost == by_cost &&
			bar->covers(point) && (most == 0 || bar->most < most))
			most = bar->most;
	}
	return most;
}

static void judge_point(const struct verbs_bar *bar, const struct verbs_point *point, const struct paired *paired,
	struct verbs_bar_result *result)
{
	enum paired_verdict verdict = paired_judge(paired, bar->most);

	result->met += verdict == PAIRED_MET;
	result->missed += verdict == PAIRED_MISSED;
	result->undecided += verdict == PAIRED_UNDECIDED;
	if (result->worst == NULL || paired->median > result->there.median) {
		result->worst = point;
		result->there = *paired;
	}
}

struct verbs_bar_result verbs_bar_judge(const struct verbs_bar *bar, const struct verbs_table *tables, unsigned n)
{
	struct verbs_bar_result result = {0};
	const struct verbs_point *points;
	unsigned count = verbs_points(&points);

	for (unsigned i = 0; i < n; i++) {
		if (strcmp(tables[i].kind, bar->kind) != 0 || strcmp(tables[i].mode->name, bar->mode) != 0)
			continue;
		for (unsigned p = 0; p < count; p++) {
			const struct verbs_result *at = &tables[i].results[p];

			if (at->time.n > 0 && bar->covers(&points[p]))
				judge_point(bar, &points[p], bar->by_cost ? &at->cost_ns : &at->time, &result);
		}
	}
	result.verdict = result.missed > 0                              ? PAIRED_MISSED
			 : result.undecided > 0 || result.worst == NULL ? PAIRED_UNDECIDED
									: PAIRED_MET;
	return result;
}
