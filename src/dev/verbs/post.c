/* The data path: the library's, and a count of the psns that were used. */
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "dev/qp_rules.h"
#include "dev/verbs/verbs.h"

/* Up to `end`, which was not posted. */
void verbs_qp_count_posted(struct verbs_qp *qp, const struct ibv_send_wr *wr, const struct ibv_send_wr *end)
{
	bool oversleeps = verbs_of(qp->base.dev)->port.model->oversleeps;

	for (; wr != end; wr = wr->next) {
		if (oversleeps && (wr->send_flags & IBV_SEND_FENCE) != 0)
			qp->ordered_ns = hf_env_now_ns(qp->base.dev->env);
		qp->posted += qp->base.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
		qp->next_psn = psn_add(qp->next_psn, qp_rules_psns(wr->opcode, qp_rules_wr_bytes(wr), qp->mtu_bytes));
	}
}

/* Drivers differ in what they check. */
bool verbs_qp_takes(const struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
	return qp->state >= IBV_QPS_RTS && qp_rules_check_send(&qp->base, wr) == 0;
}

/* Where nothing is posted *bad_wr stays as it is: the caller has set it to the first wr, or does not ask. */
static int post(struct verbs_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	const struct ibv_send_wr *end;
	int rc = verbs_answers_expect(qp, wr);

	if (rc != 0)
		return rc;
	rc = ibv_post_send(qp->qp, wr, bad_wr);
	end = rc == 0 ? NULL : *bad_wr;
	verbs_answers_unexpect(qp, end);
	verbs_qp_count_posted(qp, wr, end);
	return -rc;
}

/* One by one, as copies: a list ends where its last wr says so, and the caller's are his. */
static int post_up_to(
	struct verbs_qp *qp, struct ibv_send_wr *wr, const struct ibv_send_wr *end, struct ibv_send_wr **bad_wr)
{
	for (; wr != end; wr = wr->next) {
		struct ibv_send_wr one = *wr, *bad;
		int rc;

		one.next = NULL;
		rc = post(qp, &one, &bad);
		*bad_wr = wr;
		if (rc != 0)
			return rc;
	}
	*bad_wr = wr;
	return -EINVAL;
}

int verbs_qp_post_send(struct hf_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	const struct ibv_send_wr *bad = wr;

	*bad_wr = wr;
	if (qp->dc != NULL)
		return -EINVAL; /* an initiator is told where to */
	while (bad != NULL && verbs_qp_takes(qp, bad))
		bad = bad->next;
	return bad == NULL ? post(qp, wr, bad_wr) : post_up_to(qp, wr, bad, bad_wr);
}

/* Some NICs are not told that a receive was posted to a qp in ERR; they look when it is moved there once more. */
void verbs_qp_flush_receives(struct verbs_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	(void)verbs_of(qp->base.dev)->lib->modify_qp(qp->qp, &attr, IBV_QP_STATE);
}

int verbs_qp_post_recv(struct hf_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	int rc = -ibv_post_recv(qp->qp, wr, bad_wr);

	if (qp->error_ns != 0 || qp->failed_ns != 0)
		verbs_qp_flush_receives(qp);
	return rc;
}

uint32_t verbs_qp_next_psn(struct hf_qp *base)
{
	return ((struct verbs_qp *)base)->next_psn;
}

/* ---- the doorbell ---- */

/* What libibverbs rings after a post, of no wrs; of its own calls none does just that. */
static void ring(const struct verbs_qp *qp)
{
	struct ib_uverbs_post_send_resp answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send post;
	} command = {
		.header = {.command = IB_USER_VERBS_CMD_POST_SEND,
			.in_words = sizeof(command) / 4,
			.out_words = sizeof(answer) / 4},
		.post = {.response = (uintptr_t)&answer,
			.qp_handle = qp->qp->handle,
			.wqe_size = sizeof(struct ib_uverbs_send_wr)},
	};

	if (write(qp->qp->context->cmd_fd, &command, sizeof(command)) != (ssize_t)sizeof(command))
		log_debug("%s: qp %u: cannot ring the doorbell: %s", qp->base.dev->attr.name, qp->base.qp_num,
			strerror(errno));
}

void verbs_qps_ring(struct verbs_dev *dev, uint64_t now_ns)
{
	list_for_each (at, &dev->qps) {
		struct verbs_qp *qp = container_of(at, struct verbs_qp, link);

		if (qp->ordered_ns == 0)
			continue;
		if (qp->state == IBV_QPS_RTS)
			ring(qp);
		if (qp->state != IBV_QPS_RTS || verbs_passed(now_ns, qp->ordered_ns, qp->patience_ns))
			qp->ordered_ns = 0;
	}
}
