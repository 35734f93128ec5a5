#include "cli/series.h"

#include "base/ensure.h"

#include <string.h>

#define NS_A_SECOND 1e9

void series_init(struct series *series, uint64_t step_ns)
{
	memset(series, 0, sizeof(*series));
	series->step_ns = step_ns;
}

static void halve(struct series *series)
{
	for (unsigned rail = 0; rail < SERIES_RAILS; rail++) {
		uint64_t *bytes = series->bytes[rail];

		for (unsigned i = 0; i < SERIES_STEPS / 2; i++)
			bytes[i] = bytes[2 * i] + bytes[2 * i + 1];
		memset(bytes + SERIES_STEPS / 2, 0, sizeof(*bytes) * (SERIES_STEPS - SERIES_STEPS / 2));
	}
	series->n = (series->n + 1) / 2;
	series->step_ns *= 2;
}

void series_add(struct series *series, uint64_t from_ns, uint64_t to_ns, unsigned rail, uint64_t bytes)
{
	uint64_t at_ns = from_ns;

	ensure(rail < SERIES_RAILS);
	if (to_ns <= from_ns)
		to_ns = from_ns + 1;
	while ((to_ns - 1) / series->step_ns >= SERIES_STEPS)
		halve(series);
	while (at_ns < to_ns) {
		uint64_t step = at_ns / series->step_ns, end_ns = (step + 1) * series->step_ns, part;

		if (end_ns > to_ns)
			end_ns = to_ns;
		part = (uint64_t)((double)bytes * ((double)(end_ns - at_ns) / (double)(to_ns - at_ns)));
		if (end_ns == to_ns)
			part = bytes; /* what rounding left over */
		series->bytes[rail][step] += part;
		bytes -= part;
		at_ns = end_ns;
		if (step >= series->n)
			series->n = (unsigned)step + 1;
	}
}

double series_rate(const struct series *series, unsigned step)
{
	uint64_t bytes = 0;

	for (unsigned rail = 0; rail < SERIES_RAILS; rail++)
		bytes += series->bytes[rail][step];
	return (double)bytes * NS_A_SECOND / (double)series->step_ns;
}

double series_peak(const struct series *series)
{
	double peak = 0;

	for (unsigned i = 0; i < series->n; i++)
		if (series_rate(series, i) > peak)
			peak = series_rate(series, i);
	return peak;
}
