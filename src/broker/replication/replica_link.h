/* replica_link.h - the vqp to one other broker: batches go by WRITE_WITH_IMM, what is said about them by SEND.
 *
 * The broker that stands later among the voters connects. A SEND is {u32 taken, u32 n, n records of 16 bytes}: taken is
 * how many messages of the other end this one has received, in all; a record is {u8 kind, 3 bytes 0, u32 grant, u64
 * value}, little-endian. The immediate of a WRITE is the id of its grant.
 *
 * Credits are posted receives (R-B23): a link never has more messages on their way than its peer has receives; the last
 * REPLICA_LINK_RESERVE are for SENDs that tell of `taken`. Batches leave from a ring of registered memory: the log may
 * change its segments while they are on their way. A vqp that fails is replaced; what it had not delivered is lost, and
 * followers join again.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_REPLICA_LINK_H
#define HOLDFAST_BROKER_REPLICA_LINK_H

#include <holdfast/vqp.h>

#include "base/list.h"
#include "broker/broker_config.h"

#define REPLICA_LINK_RECEIVES      256u
#define REPLICA_LINK_SENDS         128u
#define REPLICA_LINK_RESERVE       4u
#define REPLICA_LINK_MESSAGE_BYTES 1024u
#define REPLICA_LINK_HEAD_BYTES    8u
#define REPLICA_LINK_RECORD_BYTES  16u
#define REPLICA_LINK_RECORDS       63u
#define REPLICA_LINK_RING_BYTES    (4u << 20)

enum replica_link_state {
	REPLICA_LINK_DOWN,       /* waits until it is time to connect, or for the peer to connect */
	REPLICA_LINK_CONNECTING, /* waits for the peer */
	REPLICA_LINK_UP,
	REPLICA_LINK_FAILED, /* the vqp is in error: waits to be destroyed in a turn */
	REPLICA_LINK_STATES,
};

enum replica_record_kind {
	REPLICA_RECORD_ACK, /* follower: the log is verified up to this offset */
	REPLICA_RECORD_HW,  /* leader: the high watermark (R-B20) */
};

struct replica_record {
	uint8_t kind;
	uint32_t grant;
	uint64_t value;
};

struct replica_links;

struct replica_link_posted { /* a wr on its way */
	uint32_t ring_bytes;
	void *large; /* memory of its own, for what the ring has no room for */
	struct hf_vmr *large_mr;
};

struct replica_link {
	struct replica_links *all;
	const struct broker_voter *peer;
	bool connects;
	enum replica_link_state state;
	struct hf_vqp *vqp;
	uint64_t retry_at_ns;
	uint8_t *receives, *ring;
	uint32_t ring_at, ring_used; /* the next byte; those in use before it */
	struct replica_link_posted posted[REPLICA_LINK_SENDS];
	uint32_t posted_first, posted_count;
	uint32_t sent, taken_there;                       /* messages, and those of them that the peer took */
	uint32_t taken, told;                             /* messages of the peer, and what it was told of */
	struct replica_record said[REPLICA_LINK_RECORDS]; /* not sent */
	unsigned said_count;
};

struct replica_link_owner {
	void (*up)(void *context, struct replica_link *link);
	void (*down)(void *context, struct replica_link *link);
	/* A WRITE of so many bytes has landed under this grant. */
	void (*wrote)(void *context, struct replica_link *link, uint32_t grant, uint32_t bytes);
	void (*heard)(void *context, struct replica_link *link, const struct replica_record *record);
	void *context;
};

struct replica_links {
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint8_t *memory;
	struct hf_vqp_service service;
	struct replica_link_owner owner;
	struct replica_link links[CONTROLLER_BROKERS_MAX]; /* by the place of the voter; the own one is never up */
	unsigned self, count;
	bool serving;
	struct hf_vqp *dead[4 * CONTROLLER_BROKERS_MAX]; /* to be destroyed in the next turn */
	unsigned dead_count;
	uint64_t refusals;
};

int replica_links_open(struct replica_links *links, struct hf_node *node, const struct broker_voters *voters,
	unsigned self, const struct replica_link_owner *owner, struct hf_error *error);
void replica_links_close(struct replica_links *links);

/* Polls, connects, hears. True: there was something to do. */
bool replica_links_turn(struct replica_links *links, uint64_t now_ns);
/* What was said leaves. */
void replica_links_flush(struct replica_links *links);

/* Whether a WRITE of `bytes` bytes can be posted now. */
bool replica_link_has_room(const struct replica_link *link, uint32_t bytes);
/* Copies the bytes and writes them to `address` of the region `key`; the peer is told `grant`. There is room. */
void replica_link_write(
	struct replica_link *link, const void *data, uint32_t bytes, uint64_t address, uint32_t key, uint32_t grant);
/* A record goes with the next flush; a newer one of the same kind and grant takes its place. */
void replica_link_say(struct replica_link *link, const struct replica_record *record);
/* The link begins anew. */
void replica_link_fail(struct replica_link *link);

#endif
