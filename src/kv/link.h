/* link.h - the stream of messages to one other member, over a vqp: connecting, credits, batches.
 *
 * The member with the higher place in the list connects. Each SEND is one of LINK_BUFFER_BYTES at most, and begins with
 *   0 u32 bytes that follow   4 u32 taken: how many SENDs of the other end this one has taken, in all
 * A link has never more SENDs on their way than its peer has receives posted; the last LINK_RESERVE of them are for
 * SENDs that tell of nothing but `taken`, so that two ends which wait for each other's credits go on.
 *
 * What is written during a turn leaves at its end. A vqp that fails is replaced; what it had not delivered is dropped,
 * and the owner says again what must be said (R-K7). Owned by the kv's loop. */
#ifndef HOLDFAST_KV_LINK_H
#define HOLDFAST_KV_LINK_H

#include <holdfast/kv.h>
#include <holdfast/vqp.h>

#include "base/list.h"

#define LINK_BUFFER_BYTES  (16u << 10)
#define LINK_HEAD_BYTES    8u
#define LINK_RECEIVES      32u
#define LINK_SENDS         16u
#define LINK_RESERVE       2u
#define LINK_PRIVATE_BYTES 16u

/* What both ends must agree on (link_pool.hello). */
#define LINK_VERSION_AT 0u  /* u32, of the messages */
#define LINK_MEMBERS_AT 4u  /* u32 CRC32C of the cluster's and the members' names */
#define LINK_COUNT_AT   8u  /* u8 members */
#define LINK_KEEPS_AT   9u  /* u8: what a log survives: 0 there is none, 1 the process, 2 the machine */
#define LINK_LEASE_AT   12u /* u32 us */

enum link_state {
	LINK_DOWN,       /* waits until it is time to connect, or for the peer to connect */
	LINK_CONNECTING, /* waits for the peer */
	LINK_UP,
	LINK_FAILED, /* the vqp is in error: waits to be destroyed in a turn */
	LINK_STATES,
};

struct link_owner {
	/* The link is up, with nothing said yet. */
	void (*up)(void *context, unsigned peer);
	void (*down)(void *context, unsigned peer);
	/* Takes messages from the bytes; returns how many it used, or SIZE_MAX: they make no sense. */
	size_t (*hear)(void *context, unsigned peer, const uint8_t *at, size_t bytes);
	void *context;
};

struct link_pool; /* what the links of a store have in common: link.c */

struct link {
	struct link_pool *pool;
	unsigned peer; /* its place in the list */
	enum link_state state;
	const struct hf_kv_member *member;
	bool connects;
	struct hf_vqp *vqp;
	uint64_t retry_at_ns;
	uint8_t *buffers; /* receives, then sends */
	uint8_t *out;     /* written, not sent */
	size_t out_from, out_bytes, out_room;
	uint8_t *in; /* heard, not whole */
	size_t in_bytes, in_room;
	uint32_t sent, taken_there; /* SENDs, and those of them that the peer took */
	uint32_t taken, told;       /* SENDs of the peer that were taken, and what it was told of */
	uint32_t free_sends[LINK_SENDS], free_count;
};

struct link_pool {
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint8_t *memory;
	struct hf_vqp_service service;
	struct link_owner owner;
	struct link links[HF_KV_MEMBERS_MAX];
	unsigned self, count;
	uint8_t hello[LINK_PRIVATE_BYTES];
	bool serving;
	struct hf_vqp *dead[4 * HF_KV_MEMBERS_MAX]; /* to be destroyed in the next turn */
	unsigned dead_count;
	uint64_t refusals;
};

/* hello: of this store; a peer with another one is refused, and told so in the log. */
int kv_link_pool_open(struct link_pool *pool, struct hf_node *node, const struct hf_kv_config *config, unsigned self,
	const uint8_t hello[LINK_PRIVATE_BYTES], const struct link_owner *owner, struct hf_error *error);
void kv_link_pool_close(struct link_pool *pool);

/* Polls, connects, hears. True: there was something to do. */
bool kv_link_pool_turn(struct link_pool *pool, uint64_t now_ns);
void kv_link_pool_flush(struct link_pool *pool);
/* When the next attempt to connect is due; UINT64_MAX: none is. */
uint64_t kv_link_pool_wake_ns(const struct link_pool *pool);

/* Room for `bytes` of a message behind what was written; NULL: the link is not up, or there is no memory, which ends
 * the link. */
uint8_t *kv_link_reserve(struct link *link, size_t bytes);
/* Those that hold back messages of an epoch that was not installed are heard again. */
void kv_link_pool_rehear(struct link_pool *pool);
static inline size_t kv_link_waiting(const struct link *link)
{
	return link->out_bytes - link->out_from;
}

#endif
