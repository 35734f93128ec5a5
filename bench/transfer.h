/* transfer.h - the interface between the parts of `holdfast bench transfer`.
 *
 * transfer.c reads the command line and reports. `sweep` (transfer_sweep.c) has the axes of TENT's tebench; `beside`
 * (transfer_beside.c, transfer_mooncake.c) compares with other engines and plain copies, in alternating rounds;
 * `rails` (transfer_rails.c) has two rails of the same rate, of which one is cut and slowed down; `cuts`
 * (transfer_cuts.c) repeatedly cuts all rails during a copy. transfer_sides.h has two engines to measure with. */
#ifndef HOLDFAST_BENCH_TRANSFER_H
#define HOLDFAST_BENCH_TRANSFER_H

#include <jansson.h>

#include "bench/transfer_sides.h"

struct transfer_options {
	const char *device;   /* only this one; NULL: all */
	const char *only;     /* a part of the names of `beside` */
	const char *mooncake; /* its transfer_engine_bench */
	bool quick;
	unsigned rounds, cuts;
	unsigned rail_rate; /* MB/s of each rail of `rails` */
	uint64_t copy_bytes, rate_bytes;
	FILE *log;
};

/* Each fills an object or array of JSON, which is the caller's, and prints a line for each figure to the log. 0; 1: a
 * figure was missed, or bytes were wrong; -errno with words. */
int transfer_sweep(const struct transfer_options *options, json_t *rows, struct hf_error *error);
int transfer_rails(const struct transfer_options *options, json_t *object, struct hf_error *error);
int transfer_cuts(const struct transfer_options *options, json_t *object, struct hf_error *error);
int transfer_beside(const struct transfer_options *options, json_t *rows, struct hf_error *error);

/* MB/s of WRITEs of so many bytes by Mooncake's transfer_engine_bench. -ENOENT: it is not installed. */
int transfer_mooncake(const char *program, uint64_t bytes, double *mb_s_out, struct hf_error *error);
/* MB/s of a bare stream over loopback, and of memcpy between two buffers. */
int transfer_bare_stream(double *mb_s_out, struct hf_error *error);
double transfer_memcpy(uint64_t bytes);

#endif
