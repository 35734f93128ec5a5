/* kv_store.h - a replicated key-value store whose clients WRITE requests into the leader's memory and are answered by
 * WRITE. No message is sent, and no CPU but the leader's is woken for a request.
 *
 *   kv-store member ID FABRIC ADDRESS...               runs member ID; there are as many members as addresses
 *   kv-store client FABRIC OWN ADDRESS... -- set KEY VALUE | get KEY | add KEY NUMBER
 *   kv-store client FABRIC OWN ADDRESS... -- measure N  N times add, one after the other: ns, as median and p99
 *
 *   client                                    leader (polls the slots of its clients)
 *     WRITE request ----------------------->  its slot: proposed with hf_smr, session and sequence of the client
 *     polls its answer <--------------------  WRITE answer, once it is decided
 *
 * A slot is checked before it is believed: a WRITE may be seen in part. A client that gets no answer asks the next
 * member, with the same session and sequence: its request takes effect once. */
#ifndef EXAMPLE_KV_STORE_H
#define EXAMPLE_KV_STORE_H

#include <holdfast/smr.h>
#include <holdfast/vqp.h>

#define KV_MEMBERS_MAX 5u
#define KV_KEY_BYTES   56u
#define KV_VALUE_BYTES 128u
#define KV_SERVICE     "kv-store"

enum kv_op { KV_OPEN, KV_SET, KV_GET, KV_ADD };
enum kv_status { KV_DONE, KV_NONE, KV_NOT_LEADER, KV_UNKNOWN, KV_SESSION_OVER };

/* What is proposed. Strings end with a zero. */
struct kv_command {
	uint32_t op;
	char key[KV_KEY_BYTES];
	char value[KV_VALUE_BYTES];
};

/* In the leader's memory, written by one client, with one request at a time. */
struct kv_request {
	uint64_t stamp; /* grows with every WRITE of the client */
	uint64_t session;
	uint32_t sequence;
	struct kv_command command;
	uint64_t check; /* of all that stands before */
};

/* In the client's memory. */
struct kv_answer {
	uint64_t stamp; /* of the request */
	uint32_t status;
	int32_t leader; /* NOT_LEADER: -1: not known */
	uint64_t session;
	char value[KV_VALUE_BYTES];
	uint64_t check;
};

/* Where the other end's slot is: private data of the connection. */
struct kv_place {
	uint64_t addr;
	uint32_t rkey;
};

struct kv_node {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	void *memory;
};

uint64_t kv_check(const void *data, size_t bytes);
/* Ends the program when rc is not 0. */
void kv_must(int rc, const char *what);
/* A node at this address, with registered memory. */
void kv_node_open(struct kv_node *it, const char *name, const char *fabric, const char *address, size_t bytes,
	const struct hf_node_events *events, void *context);
struct hf_vqp *kv_vqp(struct kv_node *it, void *context);
/* WRITEs `bytes` of our memory there, and takes completions of earlier ones. False: the vqp is over. */
bool kv_write(struct kv_node *it, struct hf_vqp *vqp, const void *from, size_t bytes, const struct kv_place *to);

int kv_member(unsigned id, const char *fabric, const struct hf_smr_member *members, unsigned count);
int kv_client(const char *fabric, const char *own, const struct hf_smr_member *members, unsigned count,
	const char *const *words, unsigned word_count);

extern struct hf_error kv_error;
extern const char *const *kv_addresses; /* of the members, as they were given */

#endif
