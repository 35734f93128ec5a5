#include "vqp/atomic/own.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/atomic/uid_wire.h"

#define OWN_DEPTH   4u
#define OWN_RESULTS 16
#define OWN_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct own {
	struct hf_vpd *pd;
	struct wc_sink sink;
	struct path path; /* connected with itself */
	struct hf_mr *mr; /* of the scratch, on that rail */
	struct uid_scratch *scratch;
	struct hf_vmr_atomic *first, *last; /* first: under way */
	/* What has ended and was not told: the next one waits, so that there is one at most. */
	struct hf_vmr_atomic *ended;
	int ended_rc;
	struct list ended_link; /* of the node */
	bool begun, posted, failed, confirming, has_slot;
	bool compares; /* it was sent again in doubt */
	uint32_t slot, first_psn;
	uint64_t sequence;
	struct uid_op op;
	struct uid_plan plan;
};

static bool by_uid(const struct own *own)
{
	return own->first->mr->mode == HF_ATOMIC_UID;
}

/* ---- the qp ---- */

static void drop_path(struct own *own)
{
	own->failed = true; /* what completes now is the last: nothing more is posted on it */
	if (own->path.qp != NULL)
		rail_cqs_drain(own->path.cqs);
	list_remove(&own->sink.link);
	path_destroy(&own->path);
	(void)hf_mr_dereg(own->mr);
	own->mr = NULL;
	own->failed = false;
}

static bool make_path(struct own *own)
{
	const struct hf_qp_init init = {.cap = {.max_send_wr = OWN_DEPTH, .max_send_sge = 1}, .type = IBV_QPT_RC};
	struct hf_vpd *pd = own->pd;
	unsigned rail = (unsigned)pd->home.rail;
	struct hf_error error = {0};
	int rc;

	if (own->path.qp != NULL)
		return !own->failed;
	if (pd->home.next >= 0 || !pd->node->rails[rail].up)
		return false;
	rc = path_make(pd, rail, &(struct path_need){.init = &init, .cqes = OWN_DEPTH, .access = OWN_ACCESS},
		&own->sink, &own->path);
	if (rc == 0)
		rc = path_connect_self(pd->node, &own->path, OWN_ACCESS);
	if (rc == 0)
		rc = hf_mr_reg(pd->pds[rail], own->scratch, sizeof(*own->scratch), (uintptr_t)own->scratch,
			IBV_ACCESS_LOCAL_WRITE, &own->mr, &error);
	if (rc == 0) {
		path_carry(&own->path);
		return true;
	}
	drop_path(own);
	return false;
}

/* ---- one atomic ---- */

/* What it has left in our slot is not to be taken for the next one's. */
static void leave_off(struct own *own)
{
	if (own->begun && by_uid(own))
		own->sequence = own->op.sequence;
	own->begun = own->posted = own->confirming = own->compares = false;
}

/* Not told yet: queues may be read just now, or the qp is about to go, and done() may destroy anything. */
static void finish(struct own *own, int rc, uint64_t original)
{
	struct hf_vmr_atomic *atomic = own->first;

	ensure(own->ended == NULL);
	leave_off(own);
	own->first = atomic->next;
	if (own->first == NULL)
		own->last = NULL;
	atomic->next = NULL;
	atomic->original = original;
	own->ended = atomic;
	own->ended_rc = rc;
	list_push_back(&own->pd->node->own_ended, &own->ended_link);
}

/* One that is sent again in doubt and finds its own value had executed (verdict.h). */
static void answer(struct own *own, uint64_t original)
{
	const struct hf_vmr_atomic *atomic = own->first;
	bool had_executed = own->compares && atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && original == atomic->swap;

	finish(own, 0, had_executed ? atomic->compare_add : original);
}

/* Where the home moved to, the device may have had no room for them. */
static bool has_keys(const struct own *own)
{
	return region_of(own->first->mr)->atomics != NULL &&
	       (!by_uid(own) || region_of(own->pd->uids->mr)->atomics != NULL);
}

static void begin(struct own *own)
{
	const struct hf_vmr_atomic *atomic = own->first;
	const struct uid_arena *arena = own->pd->uids;
	bool is_cas = atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	own->begun = true;
	if (!by_uid(own))
		return;
	own->op = (struct uid_op){.kind = is_cas                               ? UID_CAS
					  : atomic->opcode == IBV_WR_RDMA_READ ? UID_READ
									       : UID_FAA,
		.slots = arena->count,
		.index = own->slot,
		.sequence = own->sequence,
		.target = (uintptr_t)atomic->at,
		.compare = atomic->compare_add,
		.argument = is_cas ? atomic->swap : atomic->compare_add};
	uid_begin(&own->op, &own->plan);
}

/* A load is an addition of nothing: the region may not be open to READs. */
static void compile_direct(const struct own *own, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct hf_vmr_atomic *atomic = own->first;
	bool is_cas = atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	*sge = (struct ibv_sge){.addr = (uintptr_t)&own->scratch->value, .length = 8, .lkey = own->mr->lkey};
	*wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1};
	wr->opcode = is_cas ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr->wr.atomic.remote_addr = (uintptr_t)atomic->at;
	wr->wr.atomic.rkey = region_of(atomic->mr)->atomics->rkey;
	wr->wr.atomic.compare_add = atomic->opcode == IBV_WR_RDMA_READ ? 0 : atomic->compare_add;
	wr->wr.atomic.swap = atomic->swap;
}

static unsigned compile_by_uid(const struct own *own, struct ibv_send_wr *wrs, struct ibv_sge *sges)
{
	const struct region *target = region_of(own->first->mr);
	const struct region *arena = region_of(own->pd->uids->mr);
	unsigned rail = own->path.rail;
	const struct uid_wire wire = {.scratch = own->scratch,
		.arena_addr = (uintptr_t)own->pd->uids->slots,
		.scratch_lkey = own->mr->lkey,
		.arena_rkey = arena->mrs[rail]->rkey,
		.target_rkey = target->mrs[rail]->rkey,
		.arena_atomic = arena->atomics->rkey,
		.target_atomic = target->atomics->rkey};

	for (unsigned i = 0; i < own->plan.count; i++)
		uid_wire_access(&wire, &own->plan.access[i], &wrs[i], &sges[i]);
	return own->plan.count;
}

/* Nothing can be posted for it any more. */
static void give_up(struct own *own)
{
	if (own->confirming)
		finish(own, 0, own->op.original);
	else
		finish(own, own->begun && (by_uid(own) || own->compares) ? -EIO : -EACCES, 0);
}

static void pump(struct own *own)
{
	struct ibv_send_wr wrs[2], *bad;
	struct ibv_sge sges[2];
	unsigned n = 1;

	if (own->first == NULL || own->posted || own->ended != NULL)
		return;
	if (!has_keys(own)) {
		give_up(own);
		return;
	}
	if (!make_path(own))
		return;
	if (!own->begun)
		begin(own);
	if (by_uid(own))
		n = compile_by_uid(own, wrs, sges);
	else
		compile_direct(own, &wrs[0], &sges[0]);
	if (n > 1)
		wrs[0].next = &wrs[1];
	wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	own->first_psn = hf_qp_next_psn(own->path.qp);
	own->posted = hf_qp_post_send(own->path.qp, wrs, &bad) == 0;
}

static void uid_answered(struct own *own)
{
	struct uid_result result = uid_wire_result(own->scratch);

	if (own->confirming) {
		finish(own, 0, own->op.original);
		return;
	}
	uid_step(&own->op, &result, &own->plan);
	if (own->op.state != UID_OP_OVER)
		return;
	if (own->op.installed) {
		own->confirming = true;
		uid_confirm(&own->op, &own->plan);
	} else {
		finish(own, 0, own->op.original);
	}
}

static void on_wc(struct wc_sink *sink, const struct ibv_wc *wc)
{
	struct own *own = container_of(sink, struct own, sink);

	if (own->path.qp == NULL || wc->qp_num != own->path.qp->qp_num || !own->posted)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		own->failed = true;
		node_tick_soon(own->pd->node);
		return;
	}
	own->posted = false;
	if (by_uid(own))
		uid_answered(own);
	else
		answer(own, own->scratch->value);
}

static void on_settled(struct wc_sink *sink)
{
	pump(container_of(sink, struct own, sink));
}

static void on_fatal(struct wc_sink *sink)
{
	container_of(sink, struct own, sink)->failed = true;
}

/* ---- losing the qp ---- */

/* What the NIC, as its own responder, says of the wr; it was fenced. */
static void settle_direct(struct own *own)
{
	struct hf_atomic_result results[OWN_RESULTS];
	uint32_t executed;
	int n;

	if (hf_qp_executed_psn(own->path.qp, &executed) == 0 && executed == own->first_psn) {
		own->posted = false; /* it did not: once more */
		return;
	}
	n = hf_qp_atomic_results(own->path.qp, results, OWN_RESULTS);
	for (int i = 0; i < n; i++)
		if (results[i].psn == own->first_psn) {
			answer(own, results[i].original);
			return;
		}
	own->compares = own->first->mr->mode == HF_ATOMIC_PLAIN;
	if (own->compares)
		own->posted = false; /* it may have: once more, as the mode promises that it is harmless */
	else
		finish(own, -EIO, 0);
}

/* False: the fence is under way. */
static bool lose(struct own *own)
{
	int rc = hf_qp_fence(own->path.qp);

	own->failed = true;
	if (rc == -EINPROGRESS)
		return false;
	rail_cqs_drain(own->path.cqs); /* it may have completed after all */
	if (own->posted && by_uid(own)) {
		if (!own->confirming)
			uid_lost(&own->op, &own->plan);
		own->posted = false;
	} else if (own->posted && rc == 0) {
		settle_direct(own);
	} else if (own->posted) {
		finish(own, -EIO, 0);
	}
	drop_path(own);
	return true;
}

bool own_left(struct hf_vpd *pd)
{
	struct own *own = pd->own;

	return own == NULL || own->path.qp == NULL || lose(own);
}

void own_tick(struct hf_vpd *pd)
{
	struct own *own = pd->own;

	if (own == NULL)
		return;
	if (own->path.qp != NULL && (own->failed || !pd->node->rails[own->path.rail].up) && !lose(own))
		return;
	pump(own);
}

/* ---- telling ---- */

/* done() comes last: it may deregister the region, and free the domain with it. */
static void tell(struct own *own)
{
	struct hf_vmr_atomic *atomic = own->ended;
	int rc = own->ended_rc;

	own->ended = NULL;
	list_remove(&own->ended_link);
	pump(own);
	atomic->done(atomic, rc);
}

/* One at a time: after it nothing need be there any more. */
enum hf_poll own_turn(struct hf_node *node)
{
	if (list_empty(&node->own_ended))
		return HF_IDLE;
	tell(container_of(node->own_ended.next, struct own, ended_link));
	return HF_BUSY;
}

/* ---- making and ending ---- */

static int make(struct hf_vpd *pd)
{
	struct own *own = calloc(1, sizeof(*own));
	struct hf_error error = {0};
	int rc;

	if (own == NULL)
		return -ENOMEM;
	rc = hf_mem_alloc(pd->node->env, sizeof(*own->scratch), (void **)&own->scratch, &error);
	if (rc != 0) {
		free(own);
		return rc;
	}
	own->pd = pd;
	own->sink = (struct wc_sink){.completed = on_wc, .settled = on_settled, .fatal = on_fatal};
	list_init(&own->sink.link);
	list_init(&own->ended_link);
	pd->own = own;
	return 0;
}

static int own_post(struct hf_vmr_atomic *atomic)
{
	const struct region *region = region_of(atomic->mr);
	struct hf_vpd *pd = atomic->mr->pd;
	struct own *own;
	int rc = pd->own == NULL ? make(pd) : 0;

	if (rc != 0)
		return rc;
	if (region->leaving)
		return -ECANCELED;
	if (region->atomics == NULL)
		return -EACCES; /* nobody does atomics on it */
	own = pd->own;
	if (atomic->mr->mode == HF_ATOMIC_UID && !own->has_slot) {
		if (!uid_slots_own(pd, &own->slot, &own->sequence))
			return -ENOSPC;
		own->has_slot = true;
	}
	atomic->next = NULL;
	if (own->last == NULL)
		own->first = atomic;
	else
		own->last->next = atomic;
	own->last = atomic;
	pump(own);
	return 0;
}

int hf_vmr_atomic_post(struct hf_vmr_atomic *atomic)
{
	int rc = -EINVAL;

	atomic->original = 0;
	if (atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		rc = hf_vmr_atomic_cas(atomic->mr, atomic->at, atomic->compare_add, atomic->swap, &atomic->original);
	else if (atomic->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		rc = hf_vmr_atomic_faa(atomic->mr, atomic->at, atomic->compare_add, &atomic->original);
	else if (atomic->opcode == IBV_WR_RDMA_READ)
		rc = hf_vmr_atomic_load(atomic->mr, atomic->at, &atomic->original);
	if (rc == -EOPNOTSUPP)
		return own_post(atomic);
	if (rc == -EINVAL)
		return rc;
	atomic->done(atomic, rc);
	return 0;
}

/* Takes those of the region out of the queue. */
static struct hf_vmr_atomic *take_of(struct own *own, const struct hf_vmr *mr)
{
	struct hf_vmr_atomic *taken = NULL, **taken_end = &taken, **kept_end = &own->first;

	own->last = NULL;
	for (struct hf_vmr_atomic *atomic = own->first, *next; atomic != NULL; atomic = next) {
		next = atomic->next;
		atomic->next = NULL;
		if (atomic->mr == mr) {
			*taken_end = atomic;
			taken_end = &atomic->next;
			continue;
		}
		*kept_end = own->last = atomic;
		kept_end = &atomic->next;
	}
	*kept_end = NULL;
	return taken;
}

/* All of them are out of the queue before the first is told, whose done() may post elsewhere, or deregister that. */
void own_leave_region(struct hf_vpd *pd, const struct hf_vmr *mr)
{
	struct own *own = pd->own;
	struct hf_vmr_atomic *cancelled, *next;

	if (own == NULL)
		return;
	if (own->first != NULL && own->first->mr == mr) {
		drop_path(own); /* it may have completed after all */
		leave_off(own);
	}
	cancelled = take_of(own, mr);
	if (own->ended != NULL && own->ended->mr == mr)
		tell(own);
	for (; cancelled != NULL; cancelled = next) {
		next = cancelled->next;
		cancelled->next = NULL;
		cancelled->done(cancelled, -ECANCELED);
	}
}

void own_close(struct hf_vpd *pd)
{
	struct own *own = pd->own;

	pd->own = NULL;
	if (own == NULL)
		return;
	drop_path(own);
	list_remove(&own->ended_link);
	hf_mem_free(pd->node->env, own->scratch);
	free(own);
}
