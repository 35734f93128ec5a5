/* mesh.h - one vqp to each other member of a list: connecting, reconnecting, messages with credits.
 *
 * Every member has the same list, in the same order. Of two members, the later one connects. A vqp that
 * fails is replaced after a while; its undelivered messages are lost, and the owner sends the necessary ones again.
 *
 * A message is a SEND or a WRITE_WITH_IMM. A SEND begins with, little-endian,
 *   0 u32 bytes that follow   4 u32 taken: the number of messages received from the other end so far
 * Credits are posted receives: a link never has more messages in flight than its peer has receives posted. The last
 * `reserve` of them are for SENDs that carry `taken`, so that two ends which wait for each other's credits make
 * progress.
 *
 * A mesh and its links belong to the owner, which embeds a mesh_link in its struct of a member; only the mesh writes
 * their fields. Everything runs on the node's loop; callbacks come from mesh_turn or from the node's turn.
 * Nothing blocks. A failure after mesh_open ends a link, which then reconnects. */
#ifndef HOLDFAST_MESH_MESH_H
#define HOLDFAST_MESH_MESH_H

#include <holdfast/vqp.h>

#include "base/list.h"
#include "base/log.h"

#define MESH_MEMBERS_MAX 16u
#define MESH_HELLO_BYTES 32u
#define MESH_HEAD_BYTES  8u

enum mesh_state {
	MESH_DOWN,       /* waits until it is time to connect, or for the peer to connect */
	MESH_CONNECTING, /* waits for the peer */
	MESH_UP,
	MESH_FAILED, /* the vqp is in error: waits for a turn */
	MESH_STATES,
};

struct mesh_link {
	/* By the owner, before mesh_open; they stay until mesh_close. */
	const char *name; /* of the member, in the log */
	const struct hf_addr *addresses;
	unsigned address_count;
	/* By the mesh. */
	struct mesh *mesh;
	unsigned place; /* in the list */
	enum mesh_state state;
	struct hf_vqp *vqp;
	uint64_t retry_at_ns, retry_ns; /* the pause grows with each attempt in vain */
	uint8_t *receives;
	uint8_t *sends;             /* send_bytes of registered memory (mesh.mr), the owner's to use */
	uint32_t sent, taken_there; /* messages, and those of them that the peer took */
	uint32_t taken, told;       /* messages received from the peer, and the number reported to it */
};

struct mesh_owner {
	/* The member that requests a vqp, a later one in the list; NULL: no such member, and the owner has logged it.
	 * */
	struct mesh_link *(*admit)(void *context, const struct hf_vqp_request *request);
	/* Whether the node at a member's address is that member; NULL: any is. */
	bool (*recognizes)(void *context, const struct mesh_link *link, struct hf_peer *peer);
	/* Both may be called without the other one before: a link may fail while it connects. */
	void (*up)(void *context, struct mesh_link *link);
	void (*down)(void *context, struct mesh_link *link);
	/* What a SEND brought, which is gone when this returns. False: it makes no sense, and the link ends. */
	bool (*heard)(void *context, struct mesh_link *link, const uint8_t *at, uint32_t bytes);
	/* A WRITE_WITH_IMM of this many bytes has landed; NULL: none is expected. */
	void (*wrote)(void *context, struct mesh_link *link, uint32_t imm, uint32_t bytes);
	/* What was posted with this number has completed. On a link that fails nothing more does; */
	void (*sent)(void *context, struct mesh_link *link, uint32_t number);
	/* after its `down`, and before it connects again, nothing posted is read any more. NULL is legal. */
	void (*ended)(void *context, struct mesh_link *link);
	void *context;
};

struct mesh_config {
	const char *layer;   /* in the log, and in errors */
	const char *service; /* hf_vqp_serve */
	unsigned self, count;
	uint32_t receives, sends, reserve; /* of a link, in messages */
	uint32_t message_bytes;            /* of a SEND with its head, at most */
	uint32_t send_bytes;
	int access; /* of vqps */
	/* The private data of a connecting member, for the peer's `admit`. */
	uint8_t hello[MESH_HELLO_BYTES];
	uint32_t hello_bytes;
};

struct mesh {
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr; /* NULL: the list has one member */
	uint8_t *memory;
	struct mesh_config config;
	struct mesh_owner owner;
	struct hf_vqp_service service;
	bool serving;
	struct mesh_link *links[MESH_MEMBERS_MAX]; /* by place; the own one is never up */
	struct mesh_dead {                         /* to be destroyed in the next turn */
		struct mesh_link *link;
		struct hf_vqp *vqp;
	} dead[4 * MESH_MEMBERS_MAX];
	unsigned dead_count;
	struct log_limit unconnected; /* members that no connection is begun to */
};

/* links: config->count of them. `sends` of a link is there when this returns. Whatever it returns, mesh_close is legal,
 * as it is on a mesh of zeros. */
int mesh_open(struct mesh *mesh, struct hf_node *node, const struct mesh_config *config,
	struct mesh_link *const links[], const struct mesh_owner *owner, struct hf_error *error);
/* `ended` comes for every link, and nothing else. */
void mesh_close(struct mesh *mesh);

/* Connects, polls, calls back. True: there was something to do. */
bool mesh_turn(struct mesh *mesh, uint64_t now_ns);
/* The next completion wakes the loop. */
void mesh_arm(struct mesh *mesh);
/* When the next attempt to connect is due; UINT64_MAX: none is. */
uint64_t mesh_wake_ns(const struct mesh *mesh);

static inline bool mesh_link_is_up(const struct mesh_link *link)
{
	return link->state == MESH_UP;
}

/* Whether a message may be posted. */
bool mesh_link_has_credit(const struct mesh_link *link);
/* Whether `taken` must be sent to the peer although there is no other message. */
bool mesh_link_owes(const struct mesh_link *link);
/* Posts a SEND of `bytes` bytes, which lie in `sends` behind MESH_HEAD_BYTES for the head, which begins at `at`. They
 * may be written again once `sent` comes with the number. The owner has no more than `sends` wrs posted. */
void mesh_link_send(struct mesh_link *link, uint8_t *at, uint32_t bytes, uint32_t number);
/* Posts a WRITE_WITH_IMM; sets its wr_id. */
void mesh_link_write(struct mesh_link *link, struct ibv_send_wr *wr, uint32_t number);
/* The link reconnects. */
void mesh_link_fail(struct mesh_link *link);

#endif
