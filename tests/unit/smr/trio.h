/* trio.h - three members of a replicated log in one process, each with a node and two rails, driven by one loop. */
#ifndef HOLDFAST_TEST_SMR_TRIO_H
#define HOLDFAST_TEST_SMR_TRIO_H

#include <holdfast/smr.h>

#define TRIO_MEMBERS 3u
#define TRIO_LOG_MAX 20000u

struct trio_member {
	struct trio *trio;
	unsigned id;
	struct hf_node *node;
	struct hf_smr *smr;
	uint32_t log[TRIO_LOG_MAX]; /* what was applied: the first four bytes of each request */
	uint32_t applied;
	size_t restored;    /* bytes of the log, while a snapshot is taken */
	unsigned snapshots; /* that it began to give */
	unsigned open;      /* of them, not closed yet */
	uint64_t opened_ns;
	struct hf_smr_event last;
	unsigned events[HF_SMR_FAILED + 1];
};
struct trio {
	struct hf_loop *loop;
	struct hf_smr_config config;
	unsigned unwell;    /* id of a member that is told not to lead */
	bool busy;          /* its programs take nothing more that is read from disks */
	uint64_t slow_ns;   /* a snapshot is ready so long after it was opened */
	char directory[64]; /* each member has one below; empty: memory is the storage */
	struct hf_smr_member who[TRIO_MEMBERS];
	struct trio_member members[TRIO_MEMBERS];
};

extern const char *trio_kind; /* of the rails: "soft", "shm" */

void trio_open(struct trio *trio);
void trio_start(struct trio *trio, unsigned id);
/* Another process of that member, elsewhere. */
void trio_start_second(struct trio *trio, struct trio_member *second, unsigned id);
void trio_stop(struct trio *trio, unsigned id); /* its replica and its node */
void trio_stop_member(struct trio_member *member);
void trio_close(struct trio *trio);
void trio_start_all(struct trio *trio); /* until they follow one of them */
/* Turns the loop until done(trio), for at most 20 s; false: it did not happen. */
bool trio_until(struct trio *trio, bool (*done)(struct trio *trio));
struct trio_member *trio_leader(struct trio *trio); /* NULL: nobody leads */
bool trio_another_one_leads(struct trio *trio);     /* than the unwell one */
/* Proposes at the leader, and waits for the outcome. */
enum hf_smr_outcome trio_propose(struct trio *trio, uint32_t value, struct hf_smr_call *call_out);
void trio_propose_many(struct trio *trio, uint32_t count, uint32_t from); /* values from there on; each is decided */
bool trio_all_have_applied(struct trio *trio); /* those that run have what any of the three has */
bool trio_all_follow(struct trio *trio);       /* the leader has all that run confirmed */

#endif
