/* pair.h - two nodes of one process with two rails, soft over loopback or shm, driven by one loop, for tests. */
#ifndef HOLDFAST_TEST_VQP_PAIR_H
#define HOLDFAST_TEST_VQP_PAIR_H

#include <holdfast/vqp.h>

#define PAIR_BYTES   (1u << 20)
#define PAIR_DEPTH   64u
#define PAIR_RESULTS 64u

extern const char *pair_kind;     /* of both rails */
extern uint32_t pair_caps_masked; /* enum hf_dev_cap that they have not */
extern bool pair_http;            /* nodes serve their status on a port of 127.0.0.1 */
extern bool pair_management;      /* control runs over a network that is no rail as well */

struct end {
	struct hf_node *node;
	struct hf_peer *peer;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vqp *vqp;
	struct hf_vmr *mr;
	uint8_t *memory;
	unsigned peers_up, peers_down;
	const char *name;
};

struct pair {
	struct hf_loop *loop;
	struct end a, b;
	struct hf_addr control[2][2]; /* of a, b by rail */
	struct hf_vqp_service service;
	int access;
	bool revocable;
	uint64_t revoke_ns;
	bool hand_back; /* vqps are lanes on `rail` */
	unsigned rail;
};

void pair_open(struct pair *pair, enum hf_policy policy);
void pair_open_apart(struct pair *pair, enum hf_policy policy_a, enum hf_policy policy_b);
void pair_make_vqp(struct pair *pair, struct end *end);
void pair_ask(struct pair *pair);     /* a asks b for a vqp */
void pair_connect(struct pair *pair); /* until both vqps are up */
void pair_close(struct pair *pair);
void pair_open_end(struct pair *pair, struct end *end, const char *name, enum hf_policy policy);
void pair_close_end(struct pair *pair, struct end *end);
void pair_config(struct pair *pair, const struct end *end, enum hf_policy policy, struct hf_node_config *config);
/* Turns the loop until done(pair), for at most 20 s; false: it did not happen. */
bool pair_until(struct pair *pair, bool (*done)(struct pair *pair));
bool pair_has_backups(struct pair *pair); /* for pair_until: both ends, on rail 1 */
void pair_turn_for(struct pair *pair, uint64_t ns);
void pair_turn(struct pair *pair, unsigned turns, uint64_t wait_ns); /* wait_ns: at most, in each of them */
void pair_cut(struct pair *pair, unsigned rail, bool up);            /* a's link of that rail */

/* Polls end's cq until n completions came; fails the test when they do not. */
void pair_collect(struct pair *pair, struct end *end, unsigned n, struct ibv_wc *wc);
int pair_write(struct pair *pair, uint64_t wr_id, uint32_t offset, uint32_t bytes, bool signaled);
/* Adds to the word at b's offset; what it found comes to a's. */
int pair_add(struct pair *pair, uint64_t wr_id, uint32_t local, uint32_t remote, uint64_t operand);
/* The rail that a is on loses its answers, then b's first word gets n additions of 1, whose results are to be at
 * PAIR_RESULTS + 8 i of a's memory; until some have executed. */
void pair_add_unanswered(struct pair *pair, unsigned n);
uint64_t pair_word(const uint8_t *memory);
int pair_send(struct pair *pair, uint64_t wr_id, uint32_t offset, uint32_t bytes);
int pair_recv(struct end *end, uint64_t wr_id, uint32_t offset, uint32_t bytes);

#endif
