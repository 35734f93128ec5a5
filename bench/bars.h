/* bars.h - limits for the cost of a vqp while nothing fails, and their verdicts.
 *
 * Each bar is for one mode and some of the points, and is judged by the 99.9 % intervals of the paired slices: met at
 * a point when the interval is below it, missed when it is above, undecided when it contains the bar. A bar is met
 * when it is met at all of its points, and missed when it is missed at one. */
#ifndef HOLDFAST_BENCH_BARS_H
#define HOLDFAST_BENCH_BARS_H

#include "bench/verbs.h"

struct verbs_bar {
	const char *words;
	const char *kind, *mode;
	bool by_cost; /* ns an operation; else the time an operation takes, as a ratio */
	double most;
	bool (*covers)(const struct verbs_point *point);
};
extern const struct verbs_bar verbs_bars[];
extern const unsigned verbs_bar_count;

/* The strictest that a mode has at a point, by its kind of value; 0: none. */
double verbs_bar_at(const char *kind, const char *mode, const struct verbs_point *point, bool by_cost);

struct verbs_bar_result {
	unsigned met, missed, undecided; /* points */
	const struct verbs_point *worst; /* NULL: not measured */
	struct paired there;
	enum paired_verdict verdict;
};
struct verbs_bar_result verbs_bar_judge(const struct verbs_bar *bar, const struct verbs_table *tables, unsigned n);

#endif
