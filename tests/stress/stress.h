/* stress.h - exactly once, in real processes, under cut links: a server, up to 16 clients, and a parent who cuts.
 *
 * What the programs below do to the server's memory, they check by what it then holds, and by nothing the library
 * counts for itself:
 *   cells      words of one client each, changed by WRITE, CAS (some made to fail) and FAA with addends used once. The
 *              client knows at every post what the operation must return, so one that is lost, doubled, out of order or
 *              answered wrongly shows in its own answer or in the next one's.
 *   counter    one word that all clients add 1 to: no two may be answered alike, and every number up to the total
 *              must have been somebody's answer.
 *   chain      one word that all clients CAS from what they last saw to a value that names them and the attempt: the
 *              successes must form one chain without branches, from 0 to what is there in the end.
 *   journal    records that a client WRITEs in order; the server consumes them in order by setting them to zero. One
 *              that comes back, or is complete before an earlier one is, was executed twice or out of order.
 *   messages   numbered by client, sent or written with an immediate; the k-th message is in the k-th receive, or
 *              consumes it. The server answers every few of them.
 * Every completion must be a success, in order, one for each signaled wr; nothing may take too long.
 *
 * The parent, the server and the client processes share a `struct stress` that no product code knows of. */
#ifndef HOLDFAST_TEST_STRESS_H
#define HOLDFAST_TEST_STRESS_H

#include <holdfast/vqp.h>
#include <stdatomic.h>
#include <sys/types.h>

#define CLIENTS          16u /* at most; an emulated guest has fewer */
#define CLIENT_PROCESSES 4u
#define PER_PROCESS      (CLIENTS / CLIENT_PROCESSES)
#define PROCESSES        (1 + CLIENT_PROCESSES) /* 0: the server */
#define RAILS            2u
#define CELLS            4u
#define RECORDS          64u /* in a client's journal */
#define RECORD_BYTES     8192u
#define MESSAGE_BYTES    1024u
#define RECEIVES         64u
#define ANSWER_EVERY     8u
#define DEPTH            128u /* of a client's send queue */
#define COUNTER_MAX      (1u << 27)
#define ATTEMPTS_MAX     (1u << 17) /* of CAS on the chain, a client */
#define VIOLATIONS_SHOWN 8u
#define VIOLATION_BYTES  200u
#define SERVICE          "stress"
#define POLL_BATCH       32
#define POLLS_A_TURN     4u /* others are to be heard in between: heartbeats and messages of the exchange */

/* Counter and chain are native words, words of a region by uid, or left alone. Cells, which are written as well, have
 * native atomics or none. */
enum stress_atomics { ATOMICS_NATIVE, ATOMICS_UID, ATOMICS_NONE };
enum stress_phase { PHASE_RUN, PHASE_DRAIN, PHASE_CHECK, PHASE_END };

/* What the server's memory looks like; clients learn its address and key when they connect. */
struct remote {
	uint64_t counter, chain;
	uint8_t pad[48]; /* the words above may be a region of their own */
	struct remote_client {
		uint64_t cells[CELLS];
		uint64_t released; /* records that may be overwritten: below released + RECORDS */
		uint8_t pad[24];
		uint8_t records[RECORDS][RECORD_BYTES];
		uint8_t messages[RECEIVES][MESSAGE_BYTES]; /* that are sent, */
		uint8_t written[RECEIVES][MESSAGE_BYTES];  /* and those that are written with an immediate */
		uint8_t answer[MESSAGE_BYTES];
	} clients[CLIENTS];
};

struct stress_client {
	_Atomic uint64_t posted, completed, records, messages, additions;
	_Atomic uint64_t failovers, resent_wrs;
	_Atomic int rail;
	_Atomic bool drained;
	uint64_t cells[CELLS];        /* what the server's must hold once it has drained */
	uint64_t links[ATTEMPTS_MAX]; /* of the chain: what its n-th attempt replaced, plus 1; 0: it failed */
};

struct stress {
	const char *kind;
	enum hf_policy policy;
	enum stress_atomics atomics;
	bool blind; /* wrs may execute twice: only the counter and what is counted on it are looked at */
	uint64_t seed;
	unsigned processes, per_process, client_count; /* that there are; processes with the server's */
	_Atomic int phase;
	_Atomic unsigned ready; /* client processes with all their vqps up */
	_Atomic bool server_ready, server_done;
	_Atomic unsigned violations;
	char shown[VIOLATIONS_SHOWN][VIOLATION_BYTES];
	_Atomic uint64_t lived_ns[PROCESSES]; /* stress_turn */
	_Atomic uint64_t final_counter, final_chain, doubled;
	struct stress_client clients[CLIENTS];
	_Atomic uint8_t answered[COUNTER_MAX / 8]; /* a bit per number that somebody got from the counter */
};

void stress_violate(struct stress *stress, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline uint64_t mix(uint64_t a)
{
	a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9ull;
	a = (a ^ (a >> 27)) * 0x94d049bb133111ebull;
	return a ^ (a >> 31);
}

/* The k-th record of a client. */
static inline uint32_t record_words(unsigned client, uint64_t k)
{
	uint64_t r = mix(k * CLIENTS + client + 1);

	return r % 4 == 0 ? 1 + (uint32_t)(r >> 8) % (RECORD_BYTES / 8) : 1 + (uint32_t)(r >> 8) % 16;
}

static inline uint64_t record_word(unsigned client, uint64_t k, uint32_t i)
{
	return (uint64_t)(client + 1) << 56 | (k + 1) << 16 | i;
}

/* The k-th message of a client, and the k-th answer to it. */
static inline uint32_t message_words(unsigned client, uint64_t k)
{
	return 1 + (uint32_t)mix(k * CLIENTS + client + 77) % (MESSAGE_BYTES / 8);
}

/* It is written, with its number as immediate. */
static inline bool message_is_write(const struct stress *stress, unsigned client, uint64_t k)
{
	return !stress->blind && mix(k * CLIENTS + client + 33) % 3 == 0;
}

static inline uint64_t message_word(unsigned client, uint64_t k, uint32_t i)
{
	return (uint64_t)(client + 101) << 56 | (k + 1) << 16 | i;
}

/* node.c: what the programs need */
void stress_pause(uint64_t ns); /* the parent's */
struct stress_node {
	struct stress *stress;
	unsigned process;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	void *memory;
	struct hf_vmr *mr;
	uint64_t turned_ns;
};
void stress_node_open(struct stress_node *node, const struct hf_node_events *events, void *context, size_t bytes);
void stress_node_close(struct stress_node *node);
/* Turns its loop, and counts the time since the turn before as lived, but of a long one a moment only: on a machine
 * that is busy with others, or under a sanitizer, nobody is told to hang for time that he did not have. */
void stress_turn(struct stress_node *node, uint64_t max_sleep_ns);
void stress_size(struct stress *stress);          /* how many processes and clients there are */
bool stress_is_real(const struct stress *stress); /* it runs on NICs of scripts/rxe-guest.sh */
int stress_access(const struct stress *stress);   /* of regions and vqps for peers */
void stress_addresses(const struct stress *stress, unsigned process, struct hf_addr control[RAILS]);
const char *stress_node_name(unsigned process);
const char *stress_fabric(void);

int stress_server(struct stress *stress);
int stress_client(struct stress *stress, unsigned process);

/* cuts.c: cuts links, then lets them heal; false: it cannot go on */
struct stress_cuts {
	unsigned both, tx, rx;
};
bool stress_cuts(struct stress *stress, unsigned n, struct stress_cuts *made);

/* verdict.c, once all have ended */
void stress_verdict(struct stress *stress);

#endif
