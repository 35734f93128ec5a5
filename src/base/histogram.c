#include "base/histogram.h"

#include <string.h>

#define SUB (1u << HISTOGRAM_SUB_BITS)

/* Values below SUB have a bucket each; above, the top HISTOGRAM_SUB_BITS + 1 bits name the bucket. */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < SUB)
		return (unsigned)value;
	shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
	return (shift << HISTOGRAM_SUB_BITS) + (unsigned)(value >> shift);
}

static uint64_t bucket_top(unsigned bucket)
{
	unsigned shift;

	if (bucket < SUB)
		return bucket;
	shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
	return (((uint64_t)(bucket - (shift << HISTOGRAM_SUB_BITS)) + 1) << shift) - 1;
}

void histogram_reset(struct histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
	if (histogram->count == 0 || value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
	histogram->count++;
	histogram->bucket[bucket_of(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	if (from->count == 0)
		return;
	if (into->count == 0 || from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	into->count += from->count;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
}

uint64_t histogram_quantile(const struct histogram *histogram, double quantile)
{
	uint64_t rank = (uint64_t)(quantile * (double)histogram->count + 0.5), seen = 0;

	if (histogram->count == 0)
		return 0;
	if (rank <= 1)
		return histogram->min;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->bucket[i];
		if (seen >= rank)
			return bucket_top(i) < histogram->max ? bucket_top(i) : histogram->max;
	}
	return histogram->max;
}
