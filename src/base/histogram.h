/* histogram.h - counts of values in log-linear buckets: 64 to a power of two, so a quantile is off by at most 1.6 %.
 *
 * Fixed size, no allocation, no lock; merge per-thread ones. (Debian ships no C library for this.) */
#ifndef HOLDFAST_BASE_HISTOGRAM_H
#define HOLDFAST_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 6
#define HISTOGRAM_BUCKETS  ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
	uint64_t count, min, max;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_reset(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value at or below which `quantile` (0..1) of the values lie; exact for least and greatest; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *histogram, double quantile);

#endif
