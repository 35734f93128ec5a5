/* series.h - bytes moved over time, by rail, in a bounded number of equal steps.
 *
 * When the steps are used up, neighbours are added together and the step doubles: any length of run fits. */
#ifndef HOLDFAST_CLI_SERIES_H
#define HOLDFAST_CLI_SERIES_H

#include <stdint.h>

#define SERIES_STEPS 512
#define SERIES_RAILS 2

struct series {
	uint64_t step_ns;
	unsigned n; /* steps in use */
	uint64_t bytes[SERIES_RAILS][SERIES_STEPS];
};

void series_init(struct series *series, uint64_t step_ns);
/* Bytes that were moved between from_ns and to_ns (from the start of the run) are spread evenly over the steps. */
void series_add(struct series *series, uint64_t from_ns, uint64_t to_ns, unsigned rail, uint64_t bytes);
/* Bytes a second of one step, both rails together. */
double series_rate(const struct series *series, unsigned step);
double series_peak(const struct series *series);

#endif
