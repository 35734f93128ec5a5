/* A device's qp for a vqp: making, connecting and unmaking it. */
#include "vqp/path/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#include "node/rail_describe.h"

#define PATH_SLACK    2u /* besides what the application may have in flight: a probe, an atomic's log write */
#define MIN_RNR_TIMER 8

/* Three bytes of entropy: a psn. */
static uint32_t first_psn(struct hf_env *env)
{
	uint8_t psn[4] = {0};

	hf_env_entropy(env, psn, 3);
	return get_le32(psn);
}

int path_make(struct hf_vpd *pd, unsigned rail, const struct path_need *need, struct wc_sink *sink, struct path *path)
{
	struct rail_cqs *cqs = &pd->node->rails[rail].cqs;
	struct hf_qp_init init = *need->init;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)need->access};
	int rc;

	*path = (struct path){.rail = rail, .cqs = cqs, .cqes = need->cqes};
	rc = rail_cq_reserve(cqs, path->cqes, need->spare, &path->cq);
	if (rc != 0) {
		*path = (struct path){0};
		return rc;
	}
	path->completes = path->cq;
	init.send_cq = init.recv_cq = path->cq->cq;
	rc = hf_qp_create(pd->pds[rail], &init, &path->qp);
	if (rc == 0)
		rc = table_put(&cqs->sinks, path->qp->qp_num, sink);
	if (rc == 0)
		rc = hf_qp_modify(
			path->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc != 0) {
		path_destroy(pd->node, path);
		return rc;
	}
	path->psn = first_psn(pd->node->env);
	path->our_key = path->qp->qp_num;
	return 0;
}

bool path_has_footers(const struct hf_node *node, unsigned rail)
{
	return (node->rails[rail].dev->attr.caps & HF_DEV_FOOTER) != 0;
}

static const struct field path_offer_fields[] = {
	FIELD_MAX(struct path_offer, rail, HF_RAILS_MAX - 1),
	FIELD_MAX(struct path_offer, cached, PATH_SOURCES - 1),
	FIELD_ANY(struct path_offer, rd_atomic),
	FIELD_RANGE(struct path_offer, mtu, IBV_MTU_256, IBV_MTU_4096),
	FIELD_MAX(struct path_offer, footers, 1),
	FIELD_MAX(struct path_offer, qp_num, NUM_MASK),
	FIELD_MAX(struct path_offer, psn, NUM_MASK),
};
const struct fields path_offer_layout = FIELDS(path_offer_fields);

/* Writes into the completion log take a place of their own in the queue, unless they are footers. */
int path_create(struct hf_vqp *vqp, struct path *path, unsigned rail)
{
	struct hf_qp_init init = {.cap = vqp->cap,
		.type = IBV_QPT_RC,
		.lease = vqp->peer->leases[rail],
		.revoke_ns = vqp->grants.revoke_ns};
	struct ibv_qp_cap *cap = &init.cap;

	if (vqp->log.entries > 0 && (vqp->log_footers & 1u << rail) == 0)
		cap->max_send_wr *= 2;
	if (cap->max_inline_data < LOG_ENTRY_BYTES)
		cap->max_inline_data = LOG_ENTRY_BYTES;
	cap->max_send_wr += PATH_SLACK;
	return path_make(vqp->pd, rail,
		&(struct path_need){.init = &init, .cqes = cap->max_send_wr + cap->max_recv_wr, .access = vqp->access},
		&vqp->sink, path);
}

struct path_offer path_attributes(const struct hf_node *node, const struct path *path)
{
	struct hf_dev *dev = node->rails[path->rail].dev;

	return (struct path_offer){.rail = (uint8_t)path->rail,
		.rd_atomic = rail_describe_rd_atomic(dev),
		.mtu = (uint8_t)rail_describe_mtu(dev),
		.footers = path_has_footers(node, path->rail),
		.qp_num = path->qp->qp_num,
		.psn = path->psn};
}

void path_say(struct hf_vqp *vqp, const struct vqp_kind *kind, const struct path *path, enum path_source cached)
{
	struct path_message message = {
		.head = kinds_head(vqp, kind), .offer = path_attributes(vqp->node, path), .about_qp = path->their_key};

	message.head.epoch = vqp->recovery.epoch;
	message.offer.cached = (uint8_t)cached;
	if (cached == PATH_POOL)
		message.offer.qp_num = path->our_key;
	peer_send(vqp->peer, &message.head);
}

static int connect_to(const struct hf_node *node, struct path *path, const uint8_t *gid, unsigned access,
	uint8_t rnr_retry, const struct path_offer *theirs)
{
	struct hf_dev *dev = node->rails[path->rail].dev;
	enum ibv_mtu mtu = rail_describe_mtu(dev);
	uint8_t ours = rail_describe_rd_atomic(dev);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = theirs->mtu < mtu ? (enum ibv_mtu)theirs->mtu : mtu,
		.dest_qp_num = theirs->qp_num,
		.qp_access_flags = access, /* it may have changed since INIT */
		.rq_psn = theirs->psn,
		.max_dest_rd_atomic = ours,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = {.is_global = 1, .port_num = 1},
	};
	int rc;

	memcpy(attr.ah_attr.grh.dgid.raw, gid, 16);
	rc = hf_qp_modify(path->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS);
	if (rc != 0)
		return rc;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = path->psn,
		.timeout = node->rails[path->rail].timeout,
		.retry_cnt = node->rails[path->rail].retry_cnt,
		.rnr_retry = rnr_retry,
		.max_rd_atomic = theirs->rd_atomic < ours ? theirs->rd_atomic : ours,
	};
	path->footers = theirs->footers && path_has_footers(node, path->rail);
	path->their_key = theirs->qp_num;
	path->mtu_bytes = 128u << (theirs->mtu < mtu ? theirs->mtu : mtu);
	return hf_qp_modify(path->qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

int path_connect(struct hf_vqp *vqp, struct path *path, const struct path_offer *theirs)
{
	const uint8_t *gid = vqp->peer->remote[vqp->peer->rail_map[path->rail]].gid;

	return connect_to(vqp->node, path, gid, access_at_rtr(vqp, path), vqp->rnr_retry, theirs);
}

int path_connect_self(const struct hf_node *node, struct path *path, int access)
{
	union ibv_gid gid = hf_dev_gid(node->rails[path->rail].dev);
	struct path_offer offer = path_attributes(node, path);

	return connect_to(node, path, gid.raw, (unsigned)access, RNR_RETRY_FOR_EVER, &offer);
}

/* Those that no message has taken, in order: the k-th message goes into the k-th receive on every path. */
int path_post_recvs(struct hf_vqp *vqp, struct path *path)
{
	struct request_log *log = &vqp->recvs;
	struct ibv_sge sges[VQP_SGE_MAX];
	int rc = 0;

	if (path->shared != NULL) /* R7: messages wait for a dedicated qp */
		return 0;
	for (; rc == 0 && log->next < log->tail; log->next++) {
		struct request_log_wr *entry = request_log_at(log, log->next);
		struct ibv_recv_wr wr = {.wr_id = WR_RECV | log->next, .sg_list = sges, .num_sge = entry->wr.num_sge};
		struct ibv_recv_wr *bad;

		for (int i = 0; i < wr.num_sge; i++) {
			sges[i] = entry->wr.sg_list[i];
			sges[i].lkey = region_lkey(vqp->pd, sges[i].lkey, path->rail);
		}
		rc = hf_qp_post_recv(path->qp, &wr, &bad);
		if (rc != 0)
			break;
	}
	return rc;
}

void path_join(struct hf_vqp *vqp, struct path *path, bool broken)
{
	vqp->path = path;
	vqp->path_broken = broken;
	vqp->path_cut = false;
}

void path_activate(struct path *path)
{
	if (!path->active)
		path->completes->active++;
	path->active = true;
}

int path_post_send(struct hf_vqp *vqp, struct path *path, struct ibv_send_wr *wr, const struct hf_footer *footers,
	struct ibv_send_wr **bad_wr)
{
	if (path->shared != NULL)
		return carrier_post_send(vqp, wr, footers, bad_wr);
	return footers == NULL ? hf_qp_post_send(path->qp, wr, bad_wr)
			       : hf_qp_post_send_footed(path->qp, NULL, wr, footers, bad_wr);
}

void path_deactivate(struct path *path)
{
	if (path->active)
		path->completes->active--;
	path->active = false;
}

void path_count(struct path *path, uint32_t *packets, int64_t more)
{
	*packets += (uint32_t)more;
	if (path->shared != NULL)
		path->shared->carrier->packets += (uint32_t)more;
}

int path_end_qp(struct path *path)
{
	uint32_t num = path->qp->qp_num;
	int rc = hf_qp_destroy(path->qp);

	if (rc != 0)
		return rc;
	table_remove(&path->cqs->sinks, num);
	rail_cq_release(path->cq, path->cqes, true);
	path->qp = NULL;
	path->cq = NULL;
	return 0;
}

struct grave {
	struct list link;
	struct path path;
};

/* Without a grave it stays with the device, until that is closed. */
static void path_lay_down(struct hf_node *node, struct path *path, struct grave *grave)
{
	table_remove(&path->cqs->sinks, path->qp->qp_num);
	path_deactivate(path);
	if (grave != NULL) {
		grave->path = *path;
		list_push_back(&vqps_of(node)->graves, &grave->link);
	}
	*path = (struct path){0};
}

bool path_destroy(struct hf_node *node, struct path *path)
{
	if (path->qp != NULL && path_end_qp(path) != 0) {
		path_lay_down(node, path, malloc(sizeof(struct grave)));
		return false;
	}
	if (path->cq != NULL)
		rail_cq_release(path->cq, path->cqes, false);
	path_deactivate(path);
	*path = (struct path){0};
	return true;
}

void path_bury(struct hf_node *node, struct path *path)
{
	struct grave *grave = path->qp == NULL ? NULL : malloc(sizeof(*grave));

	if (grave == NULL)
		path_destroy(node, path);
	else
		path_lay_down(node, path, grave);
}

bool path_dig(struct hf_node *node, unsigned most)
{
	struct list *graves = &vqps_of(node)->graves, *last = graves->prev, *at = NULL;
	bool dug = false;

	for (; most > 0 && at != last && !list_empty(graves); most--) {
		struct grave *grave;

		at = list_pop_front(graves);
		grave = container_of(at, struct grave, link);
		if (path_end_qp(&grave->path) != 0) {
			list_push_back(graves, at); /* its peer is stopped in an operation */
			continue;
		}
		path_destroy(node, &grave->path);
		free(grave);
		dug = true;
	}
	return dug;
}

void path_forget_graves(struct hf_node *node)
{
	struct list *at;

	while ((at = list_pop_front(&vqps_of(node)->graves)) != NULL)
		free(container_of(at, struct grave, link));
}

/* ---- a qp of the vqp's own ---- */

static uint64_t own_fence_retry_ns(const struct path *path)
{
	return path->fence_retry_ns;
}

static bool own_is_ended(const struct path *path)
{
	return path->qp == NULL;
}

static bool own_tells(const struct path *path)
{
	return path->qp != NULL;
}

static int own_executed_psn(const struct path *path, uint32_t *psn_out)
{
	return hf_qp_executed_psn(path->qp, psn_out);
}

static int own_refusal(const struct path *path, struct hf_refusal *refusal_out)
{
	return hf_qp_refusal(path->qp, refusal_out);
}

static int own_atomic_results(const struct path *path, struct hf_atomic_result *results_out, unsigned n)
{
	return hf_qp_atomic_results(path->qp, results_out, n);
}

/* The qp is destroyed with the path. */
static void own_stop(struct hf_vqp *vqp)
{
	(void)vqp;
}

static void own_leave(struct hf_vqp *vqp)
{
	path_bury(vqp->node, &vqp->own_path);
	path_join(vqp, &vqp->own_path, false);
}

const struct path_ops path_own_ops = {.fence = fence_own,
	.fence_retry_ns = own_fence_retry_ns,
	.end = path_end_qp,
	.sender_ended = own_is_ended,
	.tells = own_tells,
	.executed_psn = own_executed_psn,
	.refusal = own_refusal,
	.atomic_results = own_atomic_results,
	.stop = own_stop,
	.leave = own_leave};
