#include "vqp/path/carrier.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "dev/qp_rules.h"
#include "vqp/path/dc_end.h"
#include "vqp/data/wr_translation.h"
#include "vqp/path/pool.h"

/* ---- its queues ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Of the completion queue: at the last time that it was empty no more than `depth` wrs were unfinished, and `depth`
 * have been posted since at most; so there are never more than twice as many completions in it. Of the qp's own queue:
 * what has not completed takes its place. A list that fits is taken whole, so no wr is posted without its log write. */
static uint32_t room(struct carrier *carrier)
{
	uint32_t depth = carrier->path.cqes / 2;
	uint32_t unfinished = (uint32_t)(carrier->posted - carrier->completed);

	if (carrier->path.cq == NULL)
		return 0;
	if (carrier->reads != carrier->path.cq->reads) {
		carrier->reads = carrier->path.cq->reads;
		carrier->posted_at_read = carrier->posted;
	}
	return least(depth - (uint32_t)(carrier->posted - carrier->posted_at_read), depth - least(unfinished, depth));
}

static void on_wc(struct wc_sink *sink, const struct ibv_wc *wc)
{
	struct carrier *carrier = container_of(sink, struct carrier, sink);
	const struct carrier_wr *wr = &carrier->wrs[wc->wr_id % (2 * CARRIER_DEPTH)];
	struct hf_vqp *vqp = vqp_find(carrier->pd->node, wr->num);
	struct ibv_wc own = *wc;

	own.wr_id = wr->wr_id;
	if (wc->status == IBV_WC_SUCCESS)
		carrier->completed = wc->wr_id + 1; /* and all before it */
	if (vqp != NULL && vqp->path->shared != NULL && vqp->path->shared->carrier == carrier) {
		if (list_empty(&vqp->sink.link))
			list_push_back(&carrier->told, &vqp->sink.link);
		vqp->sink.completed(&vqp->sink, &own);
	}
	/* The vqp at fault has its error; the others only lost their qp, and the rail is as good as before. */
	if (wc->status != IBV_WC_SUCCESS)
		carrier_break(carrier);
}

bool carrier_pump(struct carrier *carrier)
{
	struct list *last = carrier->waiting.prev, *at = NULL;
	bool pumped = false;

	while (at != last && !list_empty(&carrier->waiting) && room(carrier) >= TRANSLATION_WRS_EACH) {
		struct hf_vqp *vqp;

		at = list_pop_front(&carrier->waiting);
		vqp = container_of(at, struct hf_vqp, pool_wait_link);
		carrier->turn = vqp;
		vqp->sink.room(&vqp->sink);
		carrier->turn = NULL;
		pumped = true;
	}
	return pumped;
}

uint32_t carrier_room(const struct hf_vqp *vqp)
{
	struct carrier *carrier = vqp->path->shared->carrier;

	if (!list_empty(&carrier->waiting) && carrier->turn != vqp)
		return 0;
	return least(room(carrier), TRANSLATION_WRS);
}

static void on_settled(struct wc_sink *sink)
{
	struct carrier *carrier = container_of(sink, struct carrier, sink);
	struct list *at;

	while ((at = list_pop_front(&carrier->told)) != NULL)
		container_of(at, struct wc_sink, link)->settled(container_of(at, struct wc_sink, link));
	(void)carrier_pump(carrier);
}

static void on_fatal(struct wc_sink *sink)
{
	carrier_break(container_of(sink, struct carrier, sink));
}

static int hand_over(
	struct standby *standby, struct ibv_send_wr *wr, const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	struct hf_qp *qp = standby->carrier->path.qp;
	const struct hf_dc_dest *dest = standby->dc == NULL ? NULL : &standby->dc->dest;

	if (footers != NULL)
		return hf_qp_post_send_footed(qp, dest, wr, footers, bad_wr);
	return dest == NULL ? hf_qp_post_send(qp, wr, bad_wr) : hf_qp_post_send_dc(qp, dest, wr, bad_wr);
}

static bool is_worn(const struct carrier *carrier)
{
	return carrier->is_initiator &&
	       psn_diff(hf_qp_next_psn(carrier->path.qp), carrier->path.psn) >= (int32_t)CARRIER_PACKETS;
}

/* Notes whose each wr is. Returns how many there are. */
static uint32_t count(const struct ibv_send_wr *wr)
{
	uint32_t n = 0;

	for (; wr != NULL; wr = wr->next)
		n++;
	return n;
}

int carrier_post_send(
	struct hf_vqp *vqp, struct ibv_send_wr *wr, const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	struct standby *standby = vqp->path->shared;
	struct carrier *carrier = standby->carrier;
	uint64_t first = carrier->posted;
	int rc;

	*bad_wr = wr;
	if (!carrier->broken && is_worn(carrier))
		carrier_break(carrier);
	if (standby->state == STANDBY_BROKEN) /* nothing is posted behind its fence */
		return -ENOMEM;
	if (count(wr) > room(carrier)) {
		carrier_wait(vqp);
		return -ENOMEM;
	}
	for (struct ibv_send_wr *at = wr; at != NULL; at = at->next) {
		carrier->wrs[carrier->posted % (2 * CARRIER_DEPTH)] =
			(struct carrier_wr){.wr_id = at->wr_id, .num = vqp->num};
		at->wr_id = carrier->posted++;
	}
	rc = hand_over(standby, wr, footers, bad_wr);
	if (rc != 0)
		/* Numbers that were not used are given again: notes of wrs in flight would be overwritten otherwise. */
		for (carrier->posted = first; wr != *bad_wr; wr = wr->next)
			carrier->posted++;
	if (carrier->posted > first)
		standby->posted_end = carrier->posted;
	if (rc == -ENOMEM)
		carrier_wait(vqp);
	return rc;
}

void carrier_wait(struct hf_vqp *vqp)
{
	vqps_of(vqp->node)->standby_waits = true;
	if (list_empty(&vqp->pool_wait_link))
		list_push_back(&vqp->path->shared->carrier->waiting, &vqp->pool_wait_link);
}

/* ---- its life ---- */

/* Enough for every vqp that the device can have, whatever its own queues hold: both ends put the same vqps on a standby
 * qp, and each knows only the caps of its own. */
static struct ibv_qp_cap caps_of(const struct hf_dev_attr *attr)
{
	return (struct ibv_qp_cap){.max_send_wr = least(CARRIER_DEPTH, attr->max_qp_wr),
		.max_send_sge = least(VQP_SGE_MAX, attr->max_sge),
		.max_inline_data = attr->max_inline,
		.max_recv_wr = 1,
		.max_recv_sge = 1};
}

static struct carrier *make(struct hf_vpd *pd, unsigned rail, struct hf_qp_init *init, int access)
{
	struct carrier *carrier = calloc(1, sizeof(*carrier));

	if (carrier == NULL)
		return NULL;
	carrier->pd = pd;
	carrier->sink = (struct wc_sink){.completed = on_wc, .settled = on_settled, .fatal = on_fatal};
	list_init(&carrier->node_link);
	list_init(&carrier->sink.link);
	list_init(&carrier->standbys);
	list_init(&carrier->told);
	list_init(&carrier->waiting);
	if (path_make(pd, rail,
		    &(struct path_need){
			    .init = init, .cqes = 2 * init->cap.max_send_wr, .access = access, .spare = true},
		    &carrier->sink, &carrier->path) == 0)
		return carrier;
	free(carrier);
	return NULL;
}

static void unmake(struct carrier *carrier)
{
	list_remove(&carrier->node_link);
	list_remove(&carrier->sink.link);
	path_destroy(carrier->pd->node, &carrier->path);
	free(carrier);
}

struct carrier *carrier_make(struct hf_vpd *pd, unsigned rail, int access, struct hf_lease *lease)
{
	struct hf_qp_init init = {.lease = lease, .cap = caps_of(&pd->node->rails[rail].dev->attr), .type = IBV_QPT_RC};

	return make(pd, rail, &init, access);
}

static bool suits(const struct carrier *carrier, const struct hf_vpd *pd, unsigned rail)
{
	return carrier->pd == pd && carrier->path.rail == rail && !carrier->broken && carrier->path.qp != NULL;
}

static struct carrier *make_initiator(struct hf_vpd *pd, unsigned rail)
{
	struct hf_qp_init init = {
		.cap = caps_of(&pd->node->rails[rail].dev->attr), .type = IBV_QPT_DRIVER, .dc = HF_DC_INITIATOR};
	struct carrier *carrier;

	init.cap.max_recv_wr = 0;
	carrier = make(pd, rail, &init, 0);
	if (carrier == NULL)
		return NULL;
	carrier->is_initiator = true;
	if (dc_end_start(pd->node, &carrier->path, true) != 0) {
		unmake(carrier);
		return NULL;
	}
	list_push_back(&vqps_of(pd->node)->initiators, &carrier->node_link);
	return carrier;
}

struct carrier *carrier_share(struct hf_vpd *pd, unsigned rail, unsigned most)
{
	struct carrier *idlest = NULL, *made;
	unsigned have = 0;

	list_for_each (at, &vqps_of(pd->node)->initiators) {
		struct carrier *carrier = container_of(at, struct carrier, node_link);

		if (!suits(carrier, pd, rail))
			continue;
		have++;
		if (idlest == NULL || carrier->users < idlest->users)
			idlest = carrier;
	}
	made = have < most ? make_initiator(pd, rail) : NULL;
	return made != NULL ? made : idlest;
}

void carrier_add(struct carrier *carrier, struct list *standby_link)
{
	list_push_back(&carrier->standbys, standby_link);
	carrier->users++;
}

void carrier_drop(struct carrier *carrier, struct list *standby_link)
{
	ensure(carrier->users > 0);
	list_remove(standby_link);
	if (--carrier->users == 0)
		unmake(carrier);
}

void carrier_break(struct carrier *carrier)
{
	if (carrier->broken)
		return;
	carrier->broken = true;
	list_for_each_safe (at, &carrier->standbys)
		standby_break(container_of(at, struct standby, carrier_link));
}

int carrier_end(struct carrier *carrier)
{
	int rc = carrier->path.qp == NULL ? 0 : path_end_qp(&carrier->path);

	if (rc != 0)
		return rc;
	carrier_break(carrier);
	carrier->fenced = true;
	list_for_each (at, &carrier->standbys)
		container_of(at, struct standby, carrier_link)->path.qp = NULL;
	return 0;
}

int carrier_fence(struct carrier *carrier)
{
	int rc = carrier->fenced ? 0 : hf_qp_fence(carrier->path.qp);

	carrier->fenced = rc == 0;
	return rc;
}

static int ask_fence(void *carrier)
{
	return carrier_fence(carrier);
}

void carrier_stop(struct carrier *carrier)
{
	const struct hf_qp *qp = carrier->path.qp;

	carrier_break(carrier);
	if (!carrier->fenced && (qp == NULL || fence_insist(qp->dev, ask_fence, carrier) != 0))
		(void)carrier_end(carrier);
}
