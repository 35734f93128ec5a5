/* page.h - the paper's figures, drawn again from our numbers. */
#ifndef HOLDFAST_BENCH_PAGE_H
#define HOLDFAST_BENCH_PAGE_H

#include <stdio.h>

#include "bench/failover.h"
#include "bench/verbs.h"

/* Figures 8 to 10. */
void bench_page_verbs(FILE *to, const struct verbs_table *tables, unsigned n);
/* Figures 11 and 12, and the table of memory. */
void bench_page_failover(FILE *to, const struct failover_result *results, unsigned n,
	const struct failover_scale *scales, unsigned scale_count);

#endif
