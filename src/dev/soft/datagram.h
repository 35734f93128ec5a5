/* datagram.h - UD queue pairs of a soft NIC: RoCEv2 packets with a DETH (InfiniBand specification 9.6.3). They have no
 * state of a connection: what arrives finds a receive or is dropped, what is posted leaves at once. */
#ifndef HOLDFAST_DEV_SOFT_DATAGRAM_H
#define HOLDFAST_DEV_SOFT_DATAGRAM_H

#include "dev/soft/engine.h"

/* False: malformed, or not for this qp. */
bool datagram_receive(struct soft_qp *qp, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes,
	const struct packet *packet);
/* 0: posted; -EAGAIN: tx is full, send it and call again. */
int datagram_send(struct soft_qp *qp, const struct hf_ud_dest *dest, const struct ibv_send_wr *wr);

#endif
