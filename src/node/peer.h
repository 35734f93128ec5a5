/* peer.h - the state of another incarnation at a node: its rails and their causes (peer_rails.c), its ports, and
 * messages to it (peer.c). Reports of the program's own detectors are in detector.c. */
#ifndef HOLDFAST_NODE_PEER_H
#define HOLDFAST_NODE_PEER_H

#include <holdfast/node.h>

#include "base/list.h"
#include "net/control.h"
#include "rail/rail.h"
#include "node/lease.h"
#include "node/channels.h"
#include "node/outbox.h"

/* A rail of a peer, from its NODE message. */
struct remote_rail {
	char name[HF_NAME_BYTES], kind[HF_NAME_BYTES];
	uint8_t gid[16];
	uint8_t dc_mtu, dc_rd_atomic; /* dc_mtu: of standby qps over DC; 0: it cannot have such */
};

#define RAIL_UNTOLD ((enum hf_rail_cause)(HF_RAIL_PATH + 1))

struct hf_peer {
	struct list node_link;
	struct hf_node *node;
	struct control_peer *control; /* NULL: gone */
	void *context;
	bool introduced; /* our NODE message, the first of all, was sent */
	bool up;         /* its NODE message came */
	bool failed;     /* peer_fail */
	unsigned rail_count;
	struct remote_rail remote[HF_RAILS_MAX];
	int rail_map[HF_RAILS_MAX]; /* our rail -> theirs; -1: they have none of that name and kind */
	uint32_t remote_up;         /* bit per rail of theirs */
	uint32_t reported;          /* bit per rail of ours: excluded by the program */
	uint64_t reported_until_ns[HF_RAILS_MAX];
	bool control_lost[HF_RAILS_MAX]; /* our rail: its control path was up and is lost */
	struct rail rails[HF_RAILS_MAX]; /* by our rail */
	struct outbox outbox;
	struct peer_channels channels;
	struct lease lease;
	struct hf_lease *leases[HF_RAILS_MAX]; /* by our rail, of the device; NULL: it has none */
	bool lease_begun;                      /* they run; else they wait for contact */
	bool rails_changed;                    /* peer_refresh_rails is due at the next tick */
	enum hf_rail_cause told[HF_RAILS_MAX]; /* by peer_rail; RAIL_UNTOLD: nothing yet */
	uint64_t wish_ns;                      /* the shortest lease of its layers; 0: none */
	char refused[HF_NAME_BYTES];           /* the service that refused a vqp last, */
	uint64_t refused_ns;                   /* and when that was logged; 0: never */
};

struct hf_peer *peer_open(struct hf_node *node, struct control_peer *control);
void peer_free_memory(struct hf_peer *peer);
void peer_register(struct message_kinds *kinds); /* what nodes say to each other */
void peer_send(
	struct hf_peer *peer, const struct message_head *message); /* leaves at the end of the turn, or when full */
void peer_flush(struct hf_peer *peer);
/* Its messages are malformed: further ones are ignored, and it goes down. */
void peer_fail(struct hf_peer *peer, const char *why);
bool peer_comes_first(const struct hf_peer *peer); /* of the two sides ours is the one that picks rails */
extern const struct control_events peer_control_events;
void peer_tick(struct hf_peer *peer, uint64_t now_ns);

/* ---- peer_rails.c ---- */

/* Rails that both sides can use; bit per rail of ours. */
uint32_t peer_usable(const struct hf_peer *peer);
void peer_refresh_rails(struct hf_peer *peer);
void peer_rails_tell(struct hf_node *node); /* reports changes to the listeners */
void peer_rails_register(struct message_kinds *kinds);
int peer_our_rail(const struct hf_peer *peer, uint8_t theirs); /* -1: we have none that pairs with it */
void peer_say_ports(struct hf_peer *peer);                     /* which of our rails it may use */
void peer_ports(struct hf_peer *peer, uint32_t up);            /* theirs, as they say */
bool peer_ports_up(const struct hf_peer *peer, unsigned rail);
void peer_suspect(struct hf_peer *peer, unsigned rail); /* nothing is heard there, though the ports are up */
int peer_control_rail(const struct hf_peer *peer);      /* whose control path messages leave on; -1: none of a rail's */
void peer_rails_tick(struct hf_peer *peer, uint64_t now_ns);

/* ---- peer_lease.c ---- */

void peer_lease_register(struct message_kinds *kinds);
void peer_refresh_lease(struct hf_peer *peer); /* what layers here or there want has changed */
void peer_lease_begin(struct hf_peer *peer);
void peer_lease_end(struct hf_peer *peer);
uint64_t peer_lease_until_ns(const struct hf_peer *peer); /* it may execute here until then, by hf_env_boot_ns */
void peer_lease_tick(struct hf_peer *peer);
/* In `end` of a channel: what the layer here sent is not executed there from then on, by hf_env_boot_ns; 0: already. */
uint64_t peer_lease_over_ns(const struct hf_peer *peer);

/* ---- detector.c ---- */

uint32_t detector_up_mask(const struct hf_peer *peer); /* node_up_mask without what was reported bad */
void detector_tick(struct hf_peer *peer, uint64_t now_ns);

#endif
