/* The page of `holdfast bench transfer`: throughput by block size, one submitter with a batch of 16, or of 1. */
#include <stdio.h>
#include <string.h>

#include "bench/transfer.h"
#include "cli/page.h"

#define POINTS_MAX 16u
#define DEVICES    3u
#define KIB        1024u

static const char *const devices[DEVICES] = {"shm", "soft", "tcp"};

struct curve_set {
	uint64_t blocks[POINTS_MAX];
	unsigned n;
	double values[DEVICES][POINTS_MAX];
};

static unsigned place_of(struct curve_set *set, uint64_t block)
{
	unsigned at = 0;

	while (at < set->n && set->blocks[at] != block)
		at++;
	if (at == set->n && set->n < POINTS_MAX)
		set->blocks[set->n++] = block;
	return at;
}

static void collect(const json_t *rows, const char *op, int batch, struct curve_set *set)
{
	size_t i;
	json_t *row;

	memset(set, 0, sizeof(*set));
	json_array_foreach(rows, i, row)
	{
		const char *device, *its_op;
		int its_batch, submitters;
		json_int_t block;
		double mb_s;
		unsigned at;

		if (json_unpack(row, "{s:s, s:s, s:i, s:i, s:I, s:f}", "device", &device, "op", &its_op, "batch",
			    &its_batch, "submitters", &submitters, "block", &block, "mb_s", &mb_s) != 0 ||
			strcmp(its_op, op) != 0 || its_batch != batch || submitters != 1)
			continue;
		at = place_of(set, (uint64_t)block);
		for (unsigned k = 0; k < DEVICES && at < POINTS_MAX; k++)
			if (strcmp(device, devices[k]) == 0)
				set->values[k][at] = mb_s;
	}
}

static const char *label(const struct page_chart *chart, unsigned at, char *text)
{
	const struct curve_set *set = chart->context;
	uint64_t kib = set->blocks[at] / KIB;

	if (kib >= KIB)
		snprintf(text, PAGE_LABEL_BYTES, "%llu MiB", (unsigned long long)(kib / KIB));
	else
		snprintf(text, PAGE_LABEL_BYTES, "%llu KiB", (unsigned long long)kib);
	return text;
}

static void put_chart(FILE *to, const json_t *rows, const char *op, int batch)
{
	static struct curve_set set;
	char title[64];
	struct page_chart chart = {.title = title, .unit = "MB/s", .label = label, .context = &set};

	collect(rows, op, batch, &set);
	if (set.n == 0)
		return;
	snprintf(title, sizeof(title), "%s, batches of %d, by block size", op, batch);
	chart.n = set.n;
	for (unsigned k = 0; k < DEVICES; k++) {
		chart.lines[k].name = devices[k];
		chart.lines[k].color = k;
		chart.lines[k].values = set.values[k];
	}
	chart.line_count = DEVICES;
	chart.log_scale = true;
	page_chart(to, &chart);
}

static void put_page(FILE *to, const void *rows)
{
	static const char *const ops[] = {"write", "read", "mix"};

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		put_chart(to, rows, ops[i], 16);
		put_chart(to, rows, ops[i], 1);
	}
}

int transfer_page(const char *path, const json_t *all)
{
	const json_t *sweep = json_object_get(all, "sweep");

	return sweep == NULL ? 0 : page_write(path, "Transfers between two processes of one host", put_page, sweep);
}
