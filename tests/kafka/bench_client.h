/* bench_client.h - what the clients of scripts/bench_broker.py share: an end in words, a clock, and times taken. */
#ifndef HOLDFAST_TESTS_KAFKA_BENCH_CLIENT_H
#define HOLDFAST_TESTS_KAFKA_BENCH_CLIENT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TIMES_MAX 1000000u

static double times[TIMES_MAX]; /* us */

static inline void fail(const char *words)
{
	fprintf(stderr, "bench client: %s\n", words);
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static inline void sort_times(size_t n)
{
	qsort(times, n, sizeof(*times), by_value);
}

#endif
