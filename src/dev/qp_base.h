/* qp_base.h - the public part of a qp, which every device makes the same way. */
#ifndef HOLDFAST_DEV_QP_BASE_H
#define HOLDFAST_DEV_QP_BASE_H

#include <holdfast/dev.h>

/* Its number comes from the device, which may round up the capacities. */
static inline struct hf_qp qp_from_init(struct hf_pd *pd, const struct hf_qp_init *init)
{
	return (struct hf_qp){
		.dev = pd->dev,
		.pd = pd,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.type = init->type,
		.sq_sig_all = init->sq_sig_all,
		.revoke_ns = init->revoke_ns,
		.context = init->context,
	};
}

#endif
