/* Making and destroying vqps. A vqp that fails: recovery/failing.c; its paths: path/paths.c. */
#include "vqp/path/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "vqp/atomic/uid_post.h"
#include "vqp/atomic/uid_slots.h"

#define NUM_MASK 0xffffffu

static int check_init(const struct hf_vpd *pd, const struct hf_vqp_init *init)
{
	bool logs = policy_logs(&pd->node->config);

	if (init->send_cq == NULL || init->cap.max_send_wr == 0 || init->cap.max_send_sge > VQP_SGE_MAX ||
		init->cap.max_recv_sge > VQP_SGE_MAX)
		return -EINVAL;
	if (init->hand_back &&
		(init->rail >= pd->node->rail_count || init->revocable || pd->node->config.policy != HF_POLICY_VARUNA))
		return -EINVAL;
	for (unsigned i = 0; i < pd->node->rail_count; i++) {
		const struct hf_dev_attr *attr = &pd->node->rails[i].dev->attr;

		if ((uint64_t)init->cap.max_send_wr * (logs ? 2 : 1) + 1 >= attr->max_qp_wr ||
			init->cap.max_recv_wr > attr->max_qp_wr || init->cap.max_send_sge > attr->max_sge ||
			init->cap.max_recv_sge > attr->max_sge || init->cap.max_inline_data > attr->max_inline)
			return -EINVAL;
	}
	return 0;
}

/* A wr may be posted on any of the rails: the one that takes the shortest message speaks for all. */
static struct hf_dev *strictest(const struct hf_node *node)
{
	struct hf_dev *dev = node->rails[0].dev;

	for (unsigned i = 1; i < node->rail_count; i++)
		if (node->rails[i].dev->attr.max_msg_bytes < dev->attr.max_msg_bytes)
			dev = node->rails[i].dev;
	return dev;
}

static uint32_t next_num(struct hf_node *node)
{
	do {
		vqps_of(node)->next_num = (vqps_of(node)->next_num + 1) & NUM_MASK;
	} while (vqps_of(node)->next_num == 0 || vqp_find(node, vqps_of(node)->next_num) != NULL);
	return vqps_of(node)->next_num;
}

int hf_vqp_create(struct hf_vpd *pd, const struct hf_vqp_init *init, struct hf_vqp **vqp_out)
{
	int rc = check_init(pd, init);
	struct hf_vqp *vqp = rc == 0 ? calloc(1, sizeof(*vqp)) : NULL;

	*vqp_out = NULL;
	if (rc != 0)
		return rc;
	if (vqp != NULL)
		vqp->num = next_num(pd->node);
	if (vqp == NULL || table_put(&vqps_of(pd->node)->nums, vqp->num, vqp) != 0 ||
		request_log_init(
			&vqp->sends, init->cap.max_send_wr, init->cap.max_send_sge, init->cap.max_inline_data) != 0 ||
		request_log_init(&vqp->recvs, init->cap.max_recv_wr, init->cap.max_recv_sge, 0) != 0) {
		if (vqp != NULL) {
			table_remove(&vqps_of(pd->node)->nums, vqp->num);
			request_log_free(&vqp->sends);
		}
		free(vqp);
		return -ENOMEM;
	}
	vqp->node = pd->node;
	vqp->pd = pd;
	vqp->ending.vqp = vqp->num;
	vqp->path = &vqp->own_path;
	vqp->home_rail = -1;
	vqp->rnr_retry = RNR_RETRY_FOR_EVER;
	vqp->homes_told = vqp->homes_theirs = HOMES_ALL;
	vqp->send_cq = init->send_cq;
	vqp->recv_cq = init->recv_cq != NULL ? init->recv_cq : init->send_cq;
	vqp->cap = init->cap;
	vqp->sq_sig_all = init->sq_sig_all;
	vqp->access = init->access;
	vqp->lane = init->hand_back ? (int)init->rail : -1;
	vqp->grants.revocable = init->revocable;
	vqp->grants.revoke_ns = init->revoke_ns;
	vqp->grants.ours = 1;
	vqp->context = init->context;
	vqp->changed = init->changed;
	vqp->shape.dev = strictest(pd->node);
	vqp->shape.cap = init->cap;
	pd->users++;
	vqp->send_cq->users++;
	vqp->recv_cq->users++;
	list_init(&vqp->fence_link);
	list_init(&vqp->resumed_link);
	list_init(&vqp->cold_link);
	list_init(&vqp->recovering_link);
	list_init(&vqp->pool_link);
	list_init(&vqp->pool_wait_link);
	list_init(&vqp->member_link);
	list_init(&vqp->mark_link);
	rebuild_init(vqp);
	list_init(&vqp->ready_send_link);
	list_init(&vqp->ready_recv_link);
	completions_init(vqp);
	list_push_back(&vqps_of(pd->node)->vqps, &vqp->node_link);
	vqps_of(pd->node)->vqp_count++;
	*vqp_out = vqp;
	return 0;
}

void hf_vqp_destroy(struct hf_vqp *vqp)
{
	uint32_t standby;

	if (vqp == NULL)
		return;
	standby = exchange_standby(vqp);
	vqp_end_paths(vqp, false);
	uid_slots_return(vqp);
	uid_post_free(vqp);
	if (vqp->state != HF_VQP_ERROR || vqp_is_ending(vqp))
		exchange_say_closed(vqp, standby);
	region_leave(vqp);
	list_remove(&vqp->node_link);
	list_remove(&vqp->fence_link);
	list_remove(&vqp->resumed_link);
	list_remove(&vqp->cold_link);
	list_remove(&vqp->recovering_link);
	list_remove(&vqp->mark_link);
	list_remove(&vqp->ready_send_link);
	list_remove(&vqp->ready_recv_link);
	list_remove(&vqp->sink.link);
	table_remove(&vqps_of(vqp->node)->nums, vqp->num);
	vqps_of(vqp->node)->vqp_count--;
	vqp->pd->users--;
	vcq_left(vqp, vqp->sends.tail - vqp->sends.head);
	vqp->send_cq->users--;
	vqp->recv_cq->users--;
	request_log_free(&vqp->sends);
	request_log_free(&vqp->recvs);
	free(vqp->private_data);
	free(vqp->reason);
	imm_lengths_free(&vqp->lengths);
	log_slab_give(&vqp->log_ring, vqp_strays_until(vqp));
	free(vqp);
}

bool vqp_forsake(struct hf_vqp *vqp)
{
	if (vqp->wanted_num == 0 || vqp->state != HF_VQP_UP || vqp->held || vqp->path_broken ||
		vqp->sends.next < vqp->sends.tail)
		return false;
	vqp->forsaken = true;
	rebuild_end(vqp, false, 0); /* it has no other end */
	pool_forget(vqp);           /* nor hears what is said of standby qps through it */
	return true;
}

void hf_vqp_abort(struct hf_vqp *vqp)
{
	end_for(vqp, HF_VQP_END_ASKED);
	vqp_abort(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
}

/* A qp that is not in RTS yet refuses, and is connected with the number. */
static void set_rnr_retry(struct path *path, uint8_t retries)
{
	struct ibv_qp_attr attr = {.rnr_retry = retries};

	if (path->qp != NULL)
		(void)hf_qp_modify(path->qp, &attr, IBV_QP_RNR_RETRY);
}

void hf_vqp_set_rnr_retry(struct hf_vqp *vqp, uint8_t retries)
{
	vqp->rnr_retry = retries;
	set_rnr_retry(&vqp->own_path, retries);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		set_rnr_retry(&vqp->backup[i], retries);
}

/* No peer knows of it, and it never had a path: what it has is in the logs, and in what vqp_fail has begun. */
int hf_vqp_reset(struct hf_vqp *vqp)
{
	if (vqp->begun)
		return -EISCONN;
	list_remove(&vqp->fence_link);
	list_remove(&vqp->ready_send_link);
	list_remove(&vqp->ready_recv_link);
	vcq_left(vqp, vqp->sends.tail - vqp->sends.head);
	request_log_empty(&vqp->sends);
	request_log_empty(&vqp->recvs);
	vqp->messages = 0;
	if (vqp->state == HF_VQP_INIT)
		return 0;
	ending_reset(&vqp->ending);
	vqp->ended_for = HF_VQP_END_NONE;
	vqp->path_broken = false;
	vqp_move(vqp, HF_VQP_INIT);
	access_check(vqp);
	return 0;
}

enum hf_vqp_state hf_vqp_state(const struct hf_vqp *vqp)
{
	return vqp->state;
}

int hf_vqp_rail(const struct hf_vqp *vqp)
{
	return vqp->state == HF_VQP_UP && vqp->path->qp != NULL ? (int)vqp->path->rail : -1;
}

bool hf_vqp_is_dedicated(const struct hf_vqp *vqp)
{
	return vqp->path->qp != NULL && vqp->path->shared == NULL;
}

const char *hf_vqp_reason(const struct hf_vqp *vqp)
{
	return vqp->reason == NULL ? "" : vqp->reason->text;
}

uint32_t hf_vqp_num(const struct hf_vqp *vqp)
{
	return vqp->num;
}

void *hf_vqp_context(const struct hf_vqp *vqp)
{
	return vqp->context;
}

const void *hf_vqp_reply(const struct hf_vqp *vqp, size_t *bytes_out)
{
	bool answered = vqp->remote_num != 0 && vqp->private_data != NULL;

	*bytes_out = answered ? vqp->private_bytes : 0;
	return answered ? (const void *)vqp->private_data : "";
}

void hf_vqp_counters(const struct hf_vqp *vqp, struct hf_vqp_counters *counters_out)
{
	*counters_out = vqp->counters;
}

void hf_vqp_memory(const struct hf_vqp *vqp, struct hf_vqp_memory *memory_out)
{
	*memory_out = (struct hf_vqp_memory){.request_log_bytes = request_log_bytes(&vqp->sends),
		.receive_log_bytes = request_log_bytes(&vqp->recvs),
		.completion_log_bytes = log_slab_bytes(&vqp->log_ring)};
}
