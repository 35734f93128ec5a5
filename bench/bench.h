/* bench.h - the interface between the parts of holdfast-bench, the program behind `holdfast bench`.
 *
 * bench.c dispatches to the set of figures. `ground`: ground.c runs rounds and reports, measure.c measures our
 * devices between two processes, peer.c reads the output of UCX's own benchmark. `verbs`, `failover`: vqp.c runs,
 * report.h reports, nodes.h has two nodes with vqps to measure with, fleet.h those of all modes at once.
 * `transfer`: transfer.h. `kv`: kv_bed.h has the processes, kv_load.h the clients. bed.h is the test bed of all
 * that have nodes. process.c starts processes, pins them and synchronizes them in shared memory. */
#ifndef HOLDFAST_BENCH_H
#define HOLDFAST_BENCH_H

#include <holdfast/dev.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/paired.h"

void bench_help(void);                   /* prints it */
int bench_ground(int argc, char **argv); /* argv as the command got it */
int bench_verbs(int argc, char **argv);
int bench_failover(int argc, char **argv);
int bench_smr(int argc, char **argv);
int bench_transfer(int argc, char **argv);
int bench_broker(int argc, char **argv);
int bench_kv(int argc, char **argv);
/* Complains and returns the exit status of wrong input. */
int bench_refuse(const char *words, const char *argument);

enum bench_shape {
	BENCH_WRITE_LATENCY, /* ns, half a round trip of WRITEs into each other's polled memory, median */
	BENCH_CAS_LATENCY,   /* ns, from post to completion, median */
	BENCH_BANDWIDTH,     /* MB/s of WRITEs */
};

struct bench_figure {
	const char *name, *unit;
	const char *kind; /* of the device */
	enum bench_shape shape;
	uint32_t bytes;
	const char *peer;      /* in words */
	const char *peer_test; /* of ucx_perftest */
	const char *peer_tls, *peer_iterations;
	double target; /* of the ratio: at most for a latency, at least for a bandwidth */
};

/* Two processes that meet in shared memory. */
#define BENCH_CORES 2
struct bench_meeting;

/* Runs far(meeting, context) in another process on the second core and near() in this one on the first; -errno of the
 * one that failed, -ETIMEDOUT when the other did not come. */
int bench_together(int (*near)(struct bench_meeting *meeting, void *context),
	int (*far)(struct bench_meeting *meeting, void *context), void *context);
/* In near(): another far process, once the one before was killed; both swap anew. */
int bench_replace_far(
	struct bench_meeting *meeting, int (*far)(struct bench_meeting *meeting, void *context), void *context);
/* Runs work(context) in a process of its own, which starts with the memory of this one and leaves none behind; what it
 * writes into the context's bytes comes back. -errno of it, or of the process. */
int bench_apart(int (*work)(void *context), void *context, size_t bytes);
/* Zeroed memory that this process shares with those that it forks from now on; NULL: there is none. */
void *bench_share(size_t bytes);
void bench_unshare(void *memory, size_t bytes);
/* Runs run(context, id) in a process of its own, on any core; it ends when this one does. -errno. */
int bench_fork(int (*run)(void *context, unsigned id), void *context, unsigned id, int *pid_out);
/* True: it has ended, with *rc_out: -errno of run(), or of the process. *pid is 0 then; of 0 it says false. */
bool bench_ended(int *pid, int *rc_out);
void bench_pin(unsigned core); /* this process */
void bench_kill(int *pid);     /* and waits for its end; of 0: harmless */
/* Gives mine to the other and takes what it gave; false when it ended or does not answer. */
bool bench_swap(struct bench_meeting *meeting, bool near, const void *mine, void *theirs, size_t bytes);
/* The other one waits in bench_swap(). */
bool bench_asked(const struct bench_meeting *meeting, bool near);
bool bench_other_left(struct bench_meeting *meeting, bool near);
void bench_leave(struct bench_meeting *meeting, bool near);
/* What both processes have used of their cores, in ns; the near one asks. */
uint64_t bench_cpu_ns(const struct bench_meeting *meeting);
/* The near one stops the far one, or kills it. */
void bench_stop_far(const struct bench_meeting *meeting, bool for_good);
void bench_continue_far(const struct bench_meeting *meeting);
/* The fabric of the two processes. */
void bench_fabric_name(char name[HF_NAME_BYTES], int near_pid);

/* Runs a program pinned to a core with one more environment word "NAME=value", reading what it prints. */
struct bench_program {
	int pid, out_fd;
};
int bench_program_start(char *const argv[], unsigned core, const char *const *words, struct bench_program *out);
/* Reads what it prints until that has the words in it. -ETIMEDOUT; -EPIPE: it ended, or `bytes` are full. */
int bench_program_read_until(
	const struct bench_program *program, const char *words, unsigned timeout_ms, char *text, size_t bytes);
/* Waits for its end; -ETIMEDOUT after timeout_ms, when it is killed. Text is what it printed, cut at `bytes`. */
int bench_program_end(struct bench_program *program, unsigned timeout_ms, char *text, size_t bytes);
void bench_pause_ms(unsigned ms);
int bench_own_pid(void);

/* Half a round trip of a cache line between the two cores, in ns; which tells near cores from far ones. */
int bench_cache_line_ns(double *ns_out);
/* The machine's jitter: bursts of eight such round trips, p99 divided by the median. */
int bench_jitter(double *ratio_out);
int bench_measure(const struct bench_figure *figure, double *value_out, struct hf_error *error);
/* -ENOENT: ucx_perftest is not installed. */
int bench_peer_measure(const struct bench_figure *figure, double *value_out, struct hf_error *error);

#endif
