/* flow.h - the two directions between a queue pair and its peer. */
#ifndef HOLDFAST_DEV_SOFT_FLOW_H
#define HOLDFAST_DEV_SOFT_FLOW_H

#include "dev/soft/packet.h"
#include "dev/soft/tx.h"

#include <infiniband/verbs.h>

struct flow {
	struct hf_addr peer;
	struct packet_path out, in;
	uint32_t dest_qpn;
};

/* -EINVAL: not the gid of a RoCEv2 port of our address family. Peers listen on the port that we listen on. */
int flow_init(struct flow *flow, const struct hf_addr *local, const union ibv_gid *gid, uint32_t dest_qpn);
void flow_init_addr(struct flow *flow, const struct hf_addr *local, const struct hf_addr *peer, uint32_t dest_qpn);
bool flow_is_from(const struct flow *flow, const struct hf_addr *peer); /* host only: source ports are entropy */

/* A complete, sealed packet with a payload that stays in place until tx has been sent. False: tx is full. */
bool flow_refer(struct flow *flow, struct tx *tx, struct packet *packet, const void *payload);
/* Reserves a packet with its header; *payload_out is where payload_bytes go. NULL: tx is full. Then flow_seal or
 * flow_cancel. */
uint8_t *flow_packet(struct flow *flow, struct tx *tx, struct packet *packet, uint8_t **payload_out);
void flow_seal(struct flow *flow, uint8_t *at, const struct packet *packet);
void flow_cancel(struct tx *tx, const struct packet *packet);

#endif
