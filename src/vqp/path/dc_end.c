#include "vqp/path/dc_end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/rail_describe.h"

#define MIN_RNR_TIMER 8

bool dc_end_suits(const struct hf_peer *peer, unsigned rail)
{
	const struct remote_rail *theirs;
	struct remote_rail ours = {0};

	if (peer->rail_map[rail] < 0)
		return false;
	theirs = &peer->remote[peer->rail_map[rail]];
	rail_describe(peer->node->rails[rail].dev, &ours);
	return ours.dc_mtu != 0 && ours.dc_mtu == theirs->dc_mtu && ours.dc_rd_atomic == theirs->dc_rd_atomic;
}

int dc_end_start(const struct hf_node *node, struct path *path, bool is_initiator)
{
	struct hf_dev *dev = node->rails[path->rail].dev;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = rail_describe_mtu(dev),
		.min_rnr_timer = MIN_RNR_TIMER,
		.max_dest_rd_atomic = rail_describe_rd_atomic(dev),
	};
	int rc = hf_qp_modify(
		path->qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC);

	path->mtu_bytes = 128u << rail_describe_mtu(dev);
	if (rc != 0 || !is_initiator)
		return rc;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = path->psn,
		.timeout = node->rails[path->rail].timeout,
		.retry_cnt = node->rails[path->rail].retry_cnt,
		.rnr_retry = RNR_RETRY_FOR_EVER,
		.max_rd_atomic = rail_describe_rd_atomic(dev),
	};
	return hf_qp_modify(path->qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

struct dc_end *dc_end_make(struct hf_vpd *pd, unsigned rail, int access, struct hf_lease *lease, struct wc_sink *sink)
{
	struct hf_qp_init init = {.lease = lease,
		.cap = {.max_send_sge = 1, .max_recv_sge = 1},
		.type = IBV_QPT_DRIVER,
		.dc = HF_DC_TARGET};
	struct dc_end *end = calloc(1, sizeof(*end));

	if (end == NULL)
		return NULL;
	hf_env_entropy(pd->node->env, &end->key, sizeof(end->key));
	init.dc_key = end->key;
	if (path_make(pd, rail, &(struct path_need){.init = &init, .cqes = 1, .access = access, .spare = true}, sink,
		    &end->path) == 0 &&
		dc_end_start(pd->node, &end->path, false) == 0)
		return end;
	dc_end_free(pd->node, end);
	return NULL;
}

void dc_end_free(struct hf_node *node, struct dc_end *end)
{
	if (end == NULL)
		return;
	path_destroy(node, &end->path);
	free(end);
}

static const struct field dc_told_fields[] = {
	FIELD_MAX(struct dc_told, used, 1),
	FIELD_MAX(struct dc_told, dct_num, NUM_MASK),
	FIELD_ANY(struct dc_told, key),
	FIELD_ANY(struct dc_told, use),
};
const struct fields dc_told_layout = FIELDS(dc_told_fields);

struct dc_told dc_end_say(const struct dc_end *end, struct hf_qp *initiator)
{
	struct hf_dc_source source = {0};

	(void)hf_qp_dc_source(initiator, &source);
	return (struct dc_told){.used = 1, .dct_num = end->path.qp->qp_num, .key = end->key, .use = source.use};
}

void dc_end_hear(struct dc_end *end, const uint8_t *gid, const struct path_offer *offer, const struct dc_told *told)
{
	end->dest = (struct hf_dc_dest){.dct_num = told->dct_num, .dc_key = told->key};
	end->source = (struct hf_dc_source){.qp_num = offer->qp_num, .use = told->use};
	memcpy(end->dest.gid.raw, gid, sizeof(end->dest.gid.raw));
	memcpy(end->source.gid.raw, gid, sizeof(end->source.gid.raw));
	end->source_psn = offer->psn;
}

int dc_end_fence(struct dc_end *end)
{
	int rc = end->fenced ? 0 : hf_qp_fence_dc(end->path.qp, &end->source);

	end->fenced = rc == 0;
	return rc;
}

static int ask_fence(void *end)
{
	return dc_end_fence(end);
}

void dc_end_stop(struct dc_end *end)
{
	if (!end->fenced && fence_insist(end->path.qp->dev, ask_fence, end) != 0)
		(void)dc_end_end(end);
}

int dc_end_end(struct dc_end *end)
{
	int rc = end->path.qp == NULL ? 0 : path_end_qp(&end->path);

	end->fenced |= rc == 0;
	return rc;
}

int dc_end_executed_psn(const struct dc_end *end, uint32_t *psn_out)
{
	int rc = hf_qp_executed_psn_dc(end->path.qp, &end->source, psn_out);

	if (rc == -ENOENT) { /* it never came here, and so none of its psns executed here */
		*psn_out = end->source_psn;
		return 0;
	}
	return rc == -ENODATA ? -ESTALE : rc; /* nothing was filled, as hf_qp_executed_psn does */
}

int dc_end_atomic_results(const struct dc_end *end, struct hf_atomic_result *results_out, unsigned n)
{
	return hf_qp_atomic_results_dc(end->path.qp, &end->source, results_out, n);
}

int dc_end_refusal(const struct dc_end *end, struct hf_refusal *refusal_out)
{
	return hf_qp_refusal_dc(end->path.qp, &end->source, refusal_out);
}
