#include "bench/paired.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define EXACT_MAX     500u /* above, the binomial is as good as normal */
#define MEDIAN_AT_MAX 1024u

const char *const paired_verdict_names[] = {"met", "missed", "undecided"};

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static int sooner(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

void bench_sort_times(uint32_t *times, unsigned n)
{
	qsort(times, n, sizeof(*times), sooner);
}

double bench_median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), ascending);
	return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double bench_median_at(const void *list, unsigned n, size_t bytes, size_t member)
{
	double values[MEDIAN_AT_MAX];

	ensure(n <= MEDIAN_AT_MAX);
	for (unsigned i = 0; i < n; i++)
		memcpy(&values[i], (const char *)list + i * bytes + member, sizeof(double));
	return bench_median(values, n);
}

/* How many values lie outside the interval on each side: as many as fewer than which n tosses of a coin show with a
 * probability of at most `tail`. */
static unsigned outside(unsigned n, double tail, double quantile)
{
	double term = pow(0.5, n), sum = 0;
	unsigned k = 0;

	if (n > EXACT_MAX)
		return (unsigned)((n - quantile * sqrt(n)) / 2);
	for (; k <= n / 2 && sum + term <= tail; k++) {
		sum += term;
		term *= (double)(n - k) / (k + 1);
	}
	return k;
}

struct paired paired_of(double *values, unsigned n)
{
	struct paired paired = {
		.low = -INFINITY, .high = INFINITY, .sure_low = -INFINITY, .sure_high = INFINITY, .n = n};
	unsigned k = outside(n, 0.025, 1.960), sure = outside(n, 0.0005, 3.291);

	if (n == 0)
		return paired;
	paired.median = bench_median(values, n);
	if (k > 0) {
		paired.low = values[k - 1];
		paired.high = values[n - k];
	}
	if (sure > 0) {
		paired.sure_low = values[sure - 1];
		paired.sure_high = values[n - sure];
	}
	return paired;
}

static void invert(double low, double high, double *low_out, double *high_out)
{
	*low_out = isfinite(high) && high > 0 ? 1 / high : -INFINITY;
	*high_out = low > 0 ? 1 / low : INFINITY;
}

struct paired paired_inverse(const struct paired *paired)
{
	struct paired inverse = *paired;

	if (paired->median > 0)
		inverse.median = 1 / paired->median;
	invert(paired->low, paired->high, &inverse.low, &inverse.high);
	invert(paired->sure_low, paired->sure_high, &inverse.sure_low, &inverse.sure_high);
	return inverse;
}

static enum paired_verdict judge(unsigned n, double low, double high, double most)
{
	if (n == 0)
		return PAIRED_UNDECIDED;
	if (high <= most)
		return PAIRED_MET;
	return low > most ? PAIRED_MISSED : PAIRED_UNDECIDED;
}

enum paired_verdict paired_judge(const struct paired *paired, double most)
{
	return judge(paired->n, paired->sure_low, paired->sure_high, most);
}

enum paired_verdict paired_judge_once(const struct paired *paired, double most)
{
	return judge(paired->n, paired->low, paired->high, most);
}
