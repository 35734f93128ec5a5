/* dc.h - dynamically connected transport of soft NICs (D6): one initiator sends to many targets, one after the other.
 *
 * Every request of an initiator carries its number and the target's key (DCETH). A target keeps one stream, that is, a
 * responder, for each initiator from which it received a packet; psns of a stream only grow, with gaps where the
 * initiator sent to others. An initiator changes its destination only when everything was acknowledged, and then
 * announces its next psn by a connect packet; it announces again whenever it retransmits, so the announcement needs no
 * reply. Its life distinguishes a recycled initiator from a late packet of the former one: a connect packet carries all
 * of it, every other request its lowest byte.
 *
 * A stream is also the evidence of executed operations (HF_DEV_DC_EVIDENCE). A fenced stream stays as a tombstone that
 * refuses late packets, until its initiator comes with a later life. */
#ifndef HOLDFAST_DEV_SOFT_DC_H
#define HOLDFAST_DEV_SOFT_DC_H

#include "dev/soft/engine.h"

struct dc_streams;

/* Of a target. */
int dc_streams_create(struct soft_qp *qp, struct dc_streams **streams_out);
void dc_streams_destroy(struct dc_streams *streams); /* NULL is legal */
void dc_streams_stop(struct dc_streams *streams);
void dc_streams_silence(struct dc_streams *streams);
void dc_streams_forget(struct dc_streams *streams);
/* A request; false: rejected. `data` is the received packet, for its ICRC. */
bool dc_receive(struct soft_qp *target, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes,
	const struct packet *packet);

int dc_fence(struct dc_streams *streams, const struct hf_dc_source *source);
/* After the fence. */
int dc_evidence(struct dc_streams *streams, const struct hf_dc_source *source, const struct responder **responder_out);

/* Of an initiator: may the packet at next, of this wr, leave? */
enum dc_ready { DC_READY, DC_WAIT, DC_TX_FULL };
enum dc_ready dc_connect(struct requester *requester, const struct send_slot *slot);

#endif
