/* replica_link.h - a link of a mesh (mesh.h) to one other broker: batches by WRITE_WITH_IMM, messages about them by
 * SEND.
 *
 * A SEND has records of 16 bytes: {u8 kind, 3 bytes 0, u32 grant, u64 value}, little-endian. The immediate of a WRITE
 * is the id of its grant. Credits are those of R-B23.
 *
 * Batches are sent from a ring of registered memory: the log may change its segments while they are in flight. When a
 * link fails, undelivered batches are lost, and followers join again.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_REPLICA_LINK_H
#define HOLDFAST_BROKER_REPLICA_LINK_H

#include "broker/broker_config.h"
#include "mesh/mesh.h"

#define REPLICA_LINK_SENDS        128u
#define REPLICA_LINK_RECORD_BYTES 16u
#define REPLICA_LINK_RECORDS      63u
#define REPLICA_LINK_RING_BYTES   (4u << 20)

enum replica_record_kind {
	REPLICA_RECORD_ACK,   /* follower: the log is verified up to this offset */
	REPLICA_RECORD_HW,    /* leader: the high watermark (R-B20) */
	REPLICA_RECORD_START, /* leader: records below this offset are deleted */
};

struct replica_record {
	uint8_t kind;
	uint32_t grant;
	uint64_t value;
};

struct replica_link_posted { /* a wr on its way */
	uint32_t ring_bytes;
	void *large; /* memory of its own, for what the ring has no room for */
	struct hf_vmr *large_mr;
};

struct replica_link {
	struct mesh_link mesh; /* its `sends` is the ring */
	const struct broker_voter *peer;
	char name[24];
	uint32_t ring_at, ring_used; /* the next byte; those in use before it */
	struct replica_link_posted posted[REPLICA_LINK_SENDS];
	uint32_t posted_first, posted_count;
	struct replica_record said[REPLICA_LINK_RECORDS]; /* not sent */
	unsigned said_count;
};

struct replica_link_owner {
	void (*up)(void *context, struct replica_link *link);
	void (*down)(void *context, struct replica_link *link);
	/* A WRITE of this many bytes has landed under this grant. */
	void (*wrote)(void *context, struct replica_link *link, uint32_t grant, uint32_t bytes);
	void (*heard)(void *context, struct replica_link *link, const struct replica_record *record);
	void *context;
};

struct replica_links {
	struct mesh mesh;
	struct replica_link_owner owner;
	struct replica_link links[CONTROLLER_BROKERS_MAX]; /* by the place of the voter */
	unsigned count;
	uint64_t refusals;
};

int replica_links_open(struct replica_links *links, struct hf_node *node, const struct broker_voters *voters,
	unsigned self, const struct replica_link_owner *owner, struct hf_error *error);
void replica_links_close(struct replica_links *links);

/* Sends the queued messages. */
void replica_links_flush(struct replica_links *links);

/* Whether a WRITE of `bytes` bytes can be posted now. */
bool replica_link_has_room(const struct replica_link *link, uint32_t bytes);
/* Copies the bytes and writes them to `address` of the region `key`; the immediate is `grant`. There is room. */
void replica_link_write(
	struct replica_link *link, const void *data, uint32_t bytes, uint64_t address, uint32_t key, uint32_t grant);
/* A record goes with the next flush; a newer one of the same kind and grant takes its place. */
void replica_link_say(struct replica_link *link, const struct replica_record *record);
/* The link reconnects. */
void replica_link_fail(struct replica_link *link);

#endif
