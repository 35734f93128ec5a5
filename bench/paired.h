/* paired.h - comparison of two things by many pairs of short measurements, with a confidence interval.
 *
 * On a shared machine the duration of the same work varies by a factor of two for external reasons. Two measurements
 * within a few milliseconds had the same conditions, so each pair gives a value (a ratio, a
 * difference), and the result is their median. The interval is the sign test's: it contains the median with 95 %
 * confidence for any distribution of the values, if the pairs are independent. */
#ifndef HOLDFAST_BENCH_PAIRED_H
#define HOLDFAST_BENCH_PAIRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct paired {
	double median, low, high; /* low and high are infinite when there are too few pairs to say */
	/* The interval with 99.9 %: for a judgement of dozens of points that is repeated until it is decided. */
	double sure_low, sure_high;
	unsigned n;
};
/* Sorts the values. */
struct paired paired_of(double *values, unsigned n);
/* Of 1 / value. */
struct paired paired_inverse(const struct paired *paired);

/* A bar that something is at most: met or missed when an interval lies on one side of it. paired_judge takes the sure
 * one; paired_judge_once the other, for what is looked at once. */
enum paired_verdict { PAIRED_MET, PAIRED_MISSED, PAIRED_UNDECIDED };
enum paired_verdict paired_judge(const struct paired *paired, double most);
enum paired_verdict paired_judge_once(const struct paired *paired, double most);
extern const char *const paired_verdict_names[];

double bench_median(double *values, unsigned n); /* sorts them; n > 0 */
/* Of a double in each of `n` structs of `bytes`; n at most 1,024. */
double bench_median_at(const void *list, unsigned n, size_t bytes, size_t member);
void bench_sort_times(uint32_t *times, unsigned n);

#endif
