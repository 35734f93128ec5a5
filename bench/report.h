/* report.h - the reports of the sets of figures about vqps, as text and as JSON. */
#ifndef HOLDFAST_BENCH_REPORT_H
#define HOLDFAST_BENCH_REPORT_H

#include <jansson.h>

#include "bench/failover.h"
#include "bench/verbs.h"

void report_verbs(FILE *to, const struct verbs_table *tables, unsigned n);
json_t *report_verbs_json(const struct verbs_table *tables, unsigned n);

void report_failover(FILE *to, const struct failover_result *results, unsigned n);
void report_scale(FILE *to, const struct failover_scale *scales, unsigned n);
json_t *report_failover_json(
	const struct failover_result *results, unsigned n, const struct failover_scale *scales, unsigned scale_count);

#endif
