/* link.h - the stream of messages to one other member, over a link of a mesh (mesh.h): batching and admission.
 *
 * Messages of a turn are sent at its end, in SENDs that may end in the middle of a message. When a link ends, its
 * undelivered messages are dropped, and the owner sends the necessary ones again (R-K7). Owned by the kv's loop. */
#ifndef HOLDFAST_KV_LINK_H
#define HOLDFAST_KV_LINK_H

#include <holdfast/kv.h>

#include "mesh/mesh.h"

#define LINK_SENDS         16u
#define LINK_PRIVATE_BYTES 16u

/* What both ends must agree on (mesh_config.hello). */
#define LINK_VERSION_AT 0u  /* u32, of the messages */
#define LINK_MEMBERS_AT 4u  /* u32 CRC32C of the cluster's and the members' names */
#define LINK_COUNT_AT   8u  /* u8 members */
#define LINK_KEEPS_AT   9u  /* u8: what a log survives: 0 there is none, 1 the process, 2 the machine */
#define LINK_LEASE_AT   12u /* u32 us */

struct link_owner {
	/* The link is up, before any message. */
	void (*up)(void *context, unsigned peer);
	void (*down)(void *context, unsigned peer);
	/* Takes messages from the bytes; returns how many it used, or SIZE_MAX: they make no sense. */
	size_t (*hear)(void *context, unsigned peer, const uint8_t *at, size_t bytes);
	void *context;
};

struct link_pool; /* what the links of a store have in common: link.c */

struct link {
	struct mesh_link mesh;
	struct link_pool *pool;
	const struct hf_kv_member *member;
	uint8_t *out; /* written, not sent */
	size_t out_from, out_bytes, out_room;
	uint8_t *in; /* received, incomplete */
	size_t in_bytes, in_room;
	uint32_t free_sends[LINK_SENDS], free_count;
	bool connected;      /* it is or was up, and the owner was not told that it is down */
	const char *refusal; /* why the member was refused last, since the link was up */
};

struct link_pool {
	struct mesh mesh;
	struct link_owner owner;
	struct link links[HF_KV_MEMBERS_MAX];
	unsigned count;
	const char *refusal; /* why a node that is no member was refused last */
};

/* hello: of this store; a peer with another one is refused, with a line in the log. */
int kv_link_pool_open(struct link_pool *pool, struct hf_node *node, const struct hf_kv_config *config, unsigned self,
	const uint8_t hello[LINK_PRIVATE_BYTES], const struct link_owner *owner, struct hf_error *error);
void kv_link_pool_close(struct link_pool *pool);

/* What was written leaves, as far as there are credits. */
void kv_link_pool_flush(struct link_pool *pool);

/* Room for `bytes` of a message behind what was written; NULL: the link is not up, or there is no memory, which ends
 * the link. */
uint8_t *kv_link_reserve(struct link *link, size_t bytes);
/* Links that held back messages of an epoch that was not installed continue. */
void kv_link_pool_rehear(struct link_pool *pool);
static inline size_t kv_link_waiting(const struct link *link)
{
	return link->out_bytes - link->out_from;
}

#endif
