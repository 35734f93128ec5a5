/* sessions.h - what the processes of this test share: a page, and how a node of it is made. */
#ifndef HOLDFAST_TESTS_STRESS_SESSIONS_H
#define HOLDFAST_TESTS_STRESS_SESSIONS_H

#include <stdatomic.h>

#include <holdfast/smr_client.h>

#define MEMBERS      3u
#define REQUESTS_MAX 1000000u
#define SUM          UINT32_MAX /* the last request: every member counts what it has applied */

struct member {
	_Atomic bool leads, in, summed;
	uint32_t once, more, crc;
};

struct shared {
	unsigned requests;
	int pid; /* of the test: its name and addresses */
	struct member members[MEMBERS];
	_Atomic uint64_t answered, sent, doubts;
	_Atomic bool plain_done;
};

/* The processes: 0 when all went well. Numbers are below shared->requests: the odd ones are those of the threads. */
int sessions_member(struct shared *shared, unsigned id);
int sessions_threads(struct shared *shared, unsigned id);
int sessions_plain(struct shared *shared, unsigned id);

/* The members' ids and addresses. */
void sessions_addresses(const struct shared *shared, struct hf_smr_member members[MEMBERS]);
int sessions_node(const struct shared *shared, unsigned id, struct hf_loop **loop_out, struct hf_node **node_out);

#endif
