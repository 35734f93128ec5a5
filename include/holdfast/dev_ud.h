/* dev_ud.h - unreliable datagrams: a qp of IBV_QPT_UD sends to any other whose port and number it names.
 *
 * Included by dev.h. A datagram is one packet of at most the port's MTU. It arrives once, or not at all; the network
 * may also repeat it. A receive holds the 40 bytes of a GRH and then the data: wc.byte_len counts both, wc.wc_flags has
 * IBV_WC_GRH, wc.src_qp is the sender. Of an IPv4 peer the last 20 of these bytes are the IPv4 header. A datagram
 * without a posted receive, or with another qkey than that of the qp, is dropped. */
#ifndef HOLDFAST_DEV_UD_H
#define HOLDFAST_DEV_UD_H

#include <infiniband/verbs.h>

struct hf_qp;

struct hf_ud_dest {
	union ibv_gid gid;
	uint32_t qp_num, qkey;
};
/* SEND and SEND_WITH_IMM. Each completes when it has left. -EOPNOTSUPP without HF_DEV_UD; -EINVAL also: longer than the
 * MTU, or a gid of another kind of network. */
int hf_qp_post_send_ud(
	struct hf_qp *qp, const struct hf_ud_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

#endif
