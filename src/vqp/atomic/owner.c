#include "vqp/atomic/owner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/atomic/uid_wire.h"

#define OWNER_DEPTH   4u
#define OWNER_RESULTS 16
#define OWNER_ACCESS                                                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct owner {
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

static bool by_uid(const struct owner *owner)
{
	return owner->first->mr->mode == HF_ATOMIC_UID;
}

/* ---- the qp ---- */

static void drop_path(struct owner *owner)
{
	owner->failed = true; /* what completes now is the last: nothing more is posted on it */
	if (owner->path.qp != NULL)
		rail_cqs_drain(owner->path.cqs);
	list_remove(&owner->sink.link);
	path_destroy(owner->pd->node, &owner->path);
	(void)hf_mr_dereg(owner->mr);
	owner->mr = NULL;
	owner->failed = false;
}

static bool make_path(struct owner *owner)
{
	const struct hf_qp_init init = {.cap = {.max_send_wr = OWNER_DEPTH, .max_send_sge = 1}, .type = IBV_QPT_RC};
	struct hf_vpd *pd = owner->pd;
	unsigned rail = (unsigned)pd->home.rail;
	struct hf_error error = {0};
	int rc;

	if (owner->path.qp != NULL)
		return !owner->failed;
	if (pd->home.next >= 0 || !pd->node->rails[rail].up)
		return false;
	rc = path_make(pd, rail, &(struct path_need){.init = &init, .cqes = OWNER_DEPTH, .access = OWNER_ACCESS},
		&owner->sink, &owner->path);
	if (rc == 0)
		rc = path_connect_self(pd->node, &owner->path, OWNER_ACCESS);
	if (rc == 0)
		rc = hf_mr_reg(pd->pds[rail], owner->scratch, sizeof(*owner->scratch), (uintptr_t)owner->scratch,
			IBV_ACCESS_LOCAL_WRITE, &owner->mr, &error);
	if (rc == 0) {
		path_activate(&owner->path);
		return true;
	}
	drop_path(owner);
	return false;
}

/* ---- one atomic ---- */

/* What it has left in our slot is not to be taken for the next one's. */
static void leave_off(struct owner *owner)
{
	if (owner->begun && by_uid(owner))
		owner->sequence = owner->op.sequence;
	owner->begun = owner->posted = owner->confirming = owner->compares = false;
}

/* Not told yet: queues may be read just now, or the qp is about to go, and done() may destroy anything. */
static void finish(struct owner *owner, int rc, uint64_t original)
{
	struct hf_vmr_atomic *atomic = owner->first;

	ensure(owner->ended == NULL);
	leave_off(owner);
	owner->first = atomic->next;
	if (owner->first == NULL)
		owner->last = NULL;
	atomic->next = NULL;
	atomic->original = original;
	owner->ended = atomic;
	owner->ended_rc = rc;
	list_push_back(&vqps_of(owner->pd->node)->owner_ended, &owner->ended_link);
}

/* One that is sent again in doubt and finds its own value had executed (verdict.h). */
static void answer(struct owner *owner, uint64_t original)
{
	const struct hf_vmr_atomic *atomic = owner->first;
	bool had_executed = owner->compares && atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && original == atomic->swap;

	finish(owner, 0, had_executed ? atomic->compare_add : original);
}

/* Where the home moved to, the device may have had no room for them. */
static bool has_keys(const struct owner *owner)
{
	return region_of(owner->first->mr)->atomics != NULL &&
	       (!by_uid(owner) || region_of(owner->pd->uids->mr)->atomics != NULL);
}

static void begin(struct owner *owner)
{
	const struct hf_vmr_atomic *atomic = owner->first;
	const struct uid_arena *arena = owner->pd->uids;
	bool is_cas = atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	owner->begun = true;
	if (!by_uid(owner))
		return;
	owner->op = (struct uid_op){.kind = is_cas                               ? UID_CAS
					    : atomic->opcode == IBV_WR_RDMA_READ ? UID_READ
										 : UID_FAA,
		.slots = arena->count,
		.index = owner->slot,
		.sequence = owner->sequence,
		.target = (uintptr_t)atomic->at,
		.compare = atomic->compare_add,
		.argument = is_cas ? atomic->swap : atomic->compare_add};
	uid_begin(&owner->op, &owner->plan);
}

/* A load is an addition of nothing: the region may not be open to READs. */
static void compile_direct(const struct owner *owner, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct hf_vmr_atomic *atomic = owner->first;
	bool is_cas = atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	*sge = (struct ibv_sge){.addr = (uintptr_t)&owner->scratch->value, .length = 8, .lkey = owner->mr->lkey};
	*wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1};
	wr->opcode = is_cas ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr->wr.atomic.remote_addr = (uintptr_t)atomic->at;
	wr->wr.atomic.rkey = region_of(atomic->mr)->atomics->rkey;
	wr->wr.atomic.compare_add = atomic->opcode == IBV_WR_RDMA_READ ? 0 : atomic->compare_add;
	wr->wr.atomic.swap = atomic->swap;
}

static unsigned compile_by_uid(const struct owner *owner, struct ibv_send_wr *wrs, struct ibv_sge *sges)
{
	const struct region *target = region_of(owner->first->mr);
	const struct region *arena = region_of(owner->pd->uids->mr);
	unsigned rail = owner->path.rail;
	const struct uid_wire wire = {.scratch = owner->scratch,
		.arena_addr = (uintptr_t)owner->pd->uids->slots,
		.scratch_lkey = owner->mr->lkey,
		.arena_rkey = arena->mrs[rail]->rkey,
		.target_rkey = target->mrs[rail]->rkey,
		.arena_atomic = arena->atomics->rkey,
		.target_atomic = target->atomics->rkey};

	for (unsigned i = 0; i < owner->plan.count; i++)
		uid_wire_access(&wire, &owner->plan.access[i], &wrs[i], &sges[i]);
	return owner->plan.count;
}

/* Nothing can be posted for it any more. */
static void give_up(struct owner *owner)
{
	if (owner->confirming)
		finish(owner, 0, owner->op.original);
	else
		finish(owner, owner->begun && (by_uid(owner) || owner->compares) ? -EIO : -EACCES, 0);
}

static void pump(struct owner *owner)
{
	struct ibv_send_wr wrs[2], *bad;
	struct ibv_sge sges[2];
	unsigned n = 1;

	if (owner->first == NULL || owner->posted || owner->ended != NULL)
		return;
	if (!has_keys(owner)) {
		give_up(owner);
		return;
	}
	if (!make_path(owner))
		return;
	if (!owner->begun)
		begin(owner);
	if (by_uid(owner))
		n = compile_by_uid(owner, wrs, sges);
	else
		compile_direct(owner, &wrs[0], &sges[0]);
	if (n > 1)
		wrs[0].next = &wrs[1];
	wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	owner->first_psn = hf_qp_next_psn(owner->path.qp);
	owner->posted = hf_qp_post_send(owner->path.qp, wrs, &bad) == 0;
}

static void uid_answered(struct owner *owner)
{
	struct uid_result result = uid_wire_result(owner->scratch);

	if (owner->confirming) {
		finish(owner, 0, owner->op.original);
		return;
	}
	uid_step(&owner->op, &result, &owner->plan);
	if (owner->op.state != UID_OP_OVER)
		return;
	if (owner->op.installed) {
		owner->confirming = true;
		uid_confirm(&owner->op, &owner->plan);
	} else {
		finish(owner, 0, owner->op.original);
	}
}

static void on_wc(struct wc_sink *sink, const struct ibv_wc *wc)
{
	struct owner *owner = container_of(sink, struct owner, sink);

	if (owner->path.qp == NULL || wc->qp_num != owner->path.qp->qp_num || !owner->posted)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		owner->failed = true;
		node_tick_soon(owner->pd->node);
		return;
	}
	owner->posted = false;
	if (by_uid(owner))
		uid_answered(owner);
	else
		answer(owner, owner->scratch->value);
}

static void on_settled(struct wc_sink *sink)
{
	pump(container_of(sink, struct owner, sink));
}

static void on_fatal(struct wc_sink *sink)
{
	container_of(sink, struct owner, sink)->failed = true;
}

/* ---- losing the qp ---- */

/* What the NIC, as its own responder, says of the wr; it was fenced. */
static void settle_direct(struct owner *owner)
{
	struct hf_atomic_result results[OWNER_RESULTS];
	uint32_t executed;
	int n;

	if (hf_qp_executed_psn(owner->path.qp, &executed) == 0 && executed == owner->first_psn) {
		owner->posted = false; /* it did not: once more */
		return;
	}
	n = hf_qp_atomic_results(owner->path.qp, results, OWNER_RESULTS);
	for (int i = 0; i < n; i++)
		if (results[i].psn == owner->first_psn) {
			answer(owner, results[i].original);
			return;
		}
	owner->compares = owner->first->mr->mode == HF_ATOMIC_PLAIN;
	if (owner->compares)
		owner->posted = false; /* it may have: once more, as the mode promises that it is harmless */
	else
		finish(owner, -EIO, 0);
}

/* False: the fence is under way. */
static bool lose(struct owner *owner)
{
	int rc = hf_qp_fence(owner->path.qp);

	owner->failed = true;
	if (rc == -EINPROGRESS)
		return false;
	rail_cqs_drain(owner->path.cqs); /* it may have completed after all */
	if (owner->posted && by_uid(owner)) {
		if (!owner->confirming)
			uid_lost(&owner->op, &owner->plan);
		owner->posted = false;
	} else if (owner->posted && rc == 0) {
		settle_direct(owner);
	} else if (owner->posted) {
		finish(owner, -EIO, 0);
	}
	drop_path(owner);
	return true;
}

bool owner_left(struct hf_vpd *pd)
{
	struct owner *owner = pd->owner;

	return owner == NULL || owner->path.qp == NULL || lose(owner);
}

void owner_tick(struct hf_vpd *pd)
{
	struct owner *owner = pd->owner;

	if (owner == NULL)
		return;
	if (owner->path.qp != NULL && (owner->failed || !pd->node->rails[owner->path.rail].up) && !lose(owner))
		return;
	pump(owner);
}

/* ---- telling ---- */

/* done() comes last: it may deregister the region, and free the domain with it. */
static void tell(struct owner *owner)
{
	struct hf_vmr_atomic *atomic = owner->ended;
	int rc = owner->ended_rc;

	owner->ended = NULL;
	list_remove(&owner->ended_link);
	pump(owner);
	atomic->done(atomic, rc);
}

/* One at a time: after it nothing need be there any more. */
enum hf_poll owner_turn(struct hf_node *node)
{
	if (list_empty(&vqps_of(node)->owner_ended))
		return HF_IDLE;
	tell(container_of(vqps_of(node)->owner_ended.next, struct owner, ended_link));
	return HF_BUSY;
}

/* ---- making and ending ---- */

static int make(struct hf_vpd *pd)
{
	struct owner *owner = calloc(1, sizeof(*owner));
	struct hf_error error = {0};
	int rc;

	if (owner == NULL)
		return -ENOMEM;
	rc = hf_mem_alloc(pd->node->env, sizeof(*owner->scratch), (void **)&owner->scratch, &error);
	if (rc != 0) {
		free(owner);
		return rc;
	}
	owner->pd = pd;
	owner->sink = (struct wc_sink){.completed = on_wc, .settled = on_settled, .fatal = on_fatal};
	list_init(&owner->sink.link);
	list_init(&owner->ended_link);
	pd->owner = owner;
	return 0;
}

static int own_post(struct hf_vmr_atomic *atomic)
{
	const struct region *region = region_of(atomic->mr);
	struct hf_vpd *pd = atomic->mr->pd;
	struct owner *owner;
	int rc = pd->owner == NULL ? make(pd) : 0;

	if (rc != 0)
		return rc;
	if (region->leaving)
		return -ECANCELED;
	if (region->atomics == NULL)
		return -EACCES; /* it has no atomics */
	owner = pd->owner;
	if (atomic->mr->mode == HF_ATOMIC_UID && !owner->has_slot) {
		if (!uid_slots_owner(pd, &owner->slot, &owner->sequence))
			return -ENOSPC;
		owner->has_slot = true;
	}
	atomic->next = NULL;
	if (owner->last == NULL)
		owner->first = atomic;
	else
		owner->last->next = atomic;
	owner->last = atomic;
	pump(owner);
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
static struct hf_vmr_atomic *take_of(struct owner *owner, const struct hf_vmr *mr)
{
	struct hf_vmr_atomic *taken = NULL, **taken_end = &taken, **kept_end = &owner->first;

	owner->last = NULL;
	for (struct hf_vmr_atomic *atomic = owner->first, *next; atomic != NULL; atomic = next) {
		next = atomic->next;
		atomic->next = NULL;
		if (atomic->mr == mr) {
			*taken_end = atomic;
			taken_end = &atomic->next;
			continue;
		}
		*kept_end = owner->last = atomic;
		kept_end = &atomic->next;
	}
	*kept_end = NULL;
	return taken;
}

/* All of them are out of the queue before the first is told, whose done() may post elsewhere, or deregister that. */
void owner_leave_region(struct hf_vpd *pd, const struct hf_vmr *mr)
{
	struct owner *owner = pd->owner;
	struct hf_vmr_atomic *cancelled, *next;

	if (owner == NULL)
		return;
	if (owner->first != NULL && owner->first->mr == mr) {
		drop_path(owner); /* it may have completed after all */
		leave_off(owner);
	}
	cancelled = take_of(owner, mr);
	if (owner->ended != NULL && owner->ended->mr == mr)
		tell(owner);
	for (; cancelled != NULL; cancelled = next) {
		next = cancelled->next;
		cancelled->next = NULL;
		cancelled->done(cancelled, -ECANCELED);
	}
}

void owner_close(struct hf_vpd *pd)
{
	struct owner *owner = pd->owner;

	pd->owner = NULL;
	if (owner == NULL)
		return;
	drop_path(owner);
	list_remove(&owner->ended_link);
	hf_mem_free(pd->node->env, owner->scratch);
	free(owner);
}
