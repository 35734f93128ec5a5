#include "vqp/atomic/uid_post.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "dev/qp_rules.h"
#include "vqp/data/wr_translation.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/atomic/uid_wire.h"

#define SLOTS_MAX      16u
#define SEQUENCE_SPARE (1ull << 32) /* a slot that has fewer left is not used any more */

enum slot_state { SLOT_IDLE, SLOT_BUSY, SLOT_OWING, SLOT_CONFIRMING };

struct lent_slot {
	enum slot_state state;
	uint32_t rkey;    /* of the target, as the application names it */
	struct uid_op op; /* OWING, CONFIRMING: whose UID is to be replaced */
	uint64_t sequence;
};

struct uid_client {
	enum { SLOTS_UNKNOWN, SLOTS_ASKED, SLOTS_KNOWN } slots_state;
	uint32_t arena_rkey, slots, first, lent_count;
	uint64_t arena_addr;
	struct lent_slot lent[SLOTS_MAX];
	struct hf_vmr *mr;
	struct uid_scratch *scratch;

	bool active; /* the wr at `position` has begun: that at log->next, unless some before it are sent again */
	uint64_t position;
	bool posted;   /* and waits for a completion */
	bool whole;    /* a READ: of the whole, before its words */
	uint64_t word; /* a READ: the offset of the word in question */
	unsigned mine; /* index into lent; of atomics */
	struct uid_op op;
	struct uid_plan plan;
};

/* wr_id: WR_UID, which of our slots is confirmed (0: none; from 1), the position in the log up to which all is done. */
#define CONFIRM_SHIFT 52u
#define CONFIRMED(id) ((unsigned)((id) >> CONFIRM_SHIFT) & 0x1fu)
_Static_assert(SLOTS_MAX < 0x1f && SLOTS_MAX <= UID_CONFIRMED_MAX, "a slot fits into a wr_id, and has its places");

/* ---- the wr ---- */

static uint32_t rkey_of(const struct ibv_send_wr *wr)
{
	return qp_rules_is_atomic(wr->opcode) ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
}

/* Also when its region has gone since. */
static bool has_begun(const struct hf_vqp *vqp, const struct request_log_wr *entry)
{
	const struct uid_client *uid = vqp->uid;

	return uid != NULL && uid->active && entry == request_log_at(&vqp->sends, uid->position);
}

bool uid_post_takes(const struct hf_vqp *vqp, const struct request_log_wr *entry)
{
	const struct remote_region *region;
	const struct ibv_send_wr *wr = &entry->wr;

	if (!vqp_peer_of(vqp->peer)->has_uids || entry->bytes == 0 || wr->opcode == IBV_WR_SEND ||
		wr->opcode == IBV_WR_SEND_WITH_IMM)
		return false;
	if (has_begun(vqp, entry))
		return true;
	region = region_remote(vqp->peer, rkey_of(wr));
	return region != NULL && region->mode == HF_ATOMIC_UID;
}

/* NULL: it can be done. */
static const char *why_refused(const struct hf_vqp *vqp, const struct request_log_wr *entry)
{
	const uint32_t needed = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const struct uid_client *uid = vqp->uid;

	if (qp_rules_is_atomic(entry->wr.opcode)) {
		if ((vqp->remote_access & needed) != needed)
			return "atomics by uid need REMOTE_READ, REMOTE_WRITE and REMOTE_ATOMIC on the peer's vqp";
		if (entry->wr.wr.atomic.remote_addr % 8 != 0)
			return "the address of an atomic is not aligned";
	} else if (entry->wr.opcode != IBV_WR_RDMA_READ) {
		return "a region in the uid mode of atomics takes no WRITE: it would erase a uid";
	} else if (entry->wr.wr.rdma.remote_addr % 8 != 0 || entry->bytes % 8 != 0) {
		return "of a region in the uid mode of atomics whole words are read";
	}
	if (uid != NULL && uid->slots_state == SLOTS_KNOWN && uid->lent_count == 0)
		return "the peer has no slots left for atomics by uid";
	return NULL;
}

/* In its turn, when all before it has completed, like a NIC would. */
static void refuse(struct hf_vqp *vqp, const char *why)
{
	if (!post_quiet(vqp)) {
		(void)post_probe(vqp);
		return;
	}
	log_error("vqp %u: %s", vqp->num, why);
	vqp_fail(vqp, IBV_WC_REM_INV_REQ_ERR, IBV_WC_WR_FLUSH_ERR, true);
}

/* ---- slots and scratch ---- */

static bool make_client(struct hf_vqp *vqp)
{
	struct uid_client *uid = vqp->uid;
	struct hf_error error = {0};

	if (uid != NULL)
		return true;
	uid = calloc(1, sizeof(*uid));
	if (uid == NULL)
		return false;
	vqp->uid = uid;
	if (hf_mem_alloc(vqp->node->env, sizeof(*uid->scratch), (void **)&uid->scratch, &error) == 0 &&
		hf_vmr_reg_atomic(vqp->pd, uid->scratch, sizeof(*uid->scratch), IBV_ACCESS_LOCAL_WRITE, HF_ATOMIC_PLAIN,
			&uid->mr, &error) == 0)
		return true;
	log_error("vqp %u: no memory for atomics by UID: %s; they fail", vqp->num, error.text);
	uid_post_free(vqp);
	return false;
}

void uid_post_free(struct hf_vqp *vqp)
{
	struct uid_client *uid = vqp->uid;

	vqp->uid = NULL;
	if (uid == NULL)
		return;
	if (hf_vmr_dereg(uid->mr) == 0 && uid->scratch != NULL)
		hf_mem_free(vqp->node->env, uid->scratch);
	free(uid);
}

static bool slots_known(struct hf_vqp *vqp)
{
	if (vqp->uid->slots_state == SLOTS_UNKNOWN) {
		vqp->uid->slots_state = SLOTS_ASKED;
		uid_slots_ask(vqp);
	}
	return vqp->uid->slots_state == SLOTS_KNOWN;
}

void uid_post_slots(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct slots_message *message = (const void *)head;
	struct uid_client *uid = vqp->uid;

	if (uid == NULL || uid->slots_state != SLOTS_ASKED || message->lent_slots > SLOTS_MAX)
		return;
	uid->slots_state = SLOTS_KNOWN;
	uid->arena_rkey = message->rkey;
	uid->arena_addr = message->addr;
	uid->slots = message->slots;
	uid->first = message->first_slot;
	for (unsigned i = 0; i < message->lent_slots; i++)
		uid->lent[i].sequence = message->sequence;
	uid->lent_count = message->sequence > UID_SEQUENCE_MAX - SEQUENCE_SPARE ? 0 : message->lent_slots;
	post_pump(vqp);
}

static bool take_slot(struct uid_client *uid)
{
	for (unsigned k = 1; k <= uid->lent_count; k++) {
		unsigned i = (uid->mine + k) % uid->lent_count;

		if (uid->lent[i].state == SLOT_IDLE && uid->lent[i].sequence <= UID_SEQUENCE_MAX - SEQUENCE_SPARE) {
			uid->lent[i].state = SLOT_BUSY;
			uid->mine = i;
			return true;
		}
	}
	return false; /* a confirmation will free one */
}

/* ---- accesses become wrs ---- */

struct accesses {
	struct ibv_send_wr wrs[2];
	struct ibv_sge sges[2];
};

/* The keys that this access needs. False: they are not known yet, or the vqp is not where atomics are done. */
static bool find_rkeys(struct hf_vqp *vqp, const struct uid_access *access, uint32_t rkey, struct uid_wire *wire)
{
	uint32_t arena = vqp->uid->arena_rkey;
	unsigned rail = vqp->path->rail;

	if (uid_access_is_cas(access))
		return region_rkey_atomic(vqp, arena, rail, &wire->arena_atomic) != REGION_UNKNOWN &&
		       region_rkey_atomic(vqp, rkey, rail, &wire->target_atomic) != REGION_UNKNOWN;
	return region_rkey(vqp, arena, rail, &wire->arena_rkey) != REGION_UNKNOWN &&
	       region_rkey(vqp, rkey, rail, &wire->target_rkey) != REGION_UNKNOWN;
}

/* All or, when the qp is full, not yet: what part of it was posted does no harm when it is posted again. */
static bool post_plan(struct hf_vqp *vqp, const struct uid_plan *plan, uint32_t rkey, uint64_t wr_id)
{
	struct uid_wire wire = {.scratch = vqp->uid->scratch,
		.scratch_lkey = region_lkey(vqp->pd, vqp->uid->mr->lkey, vqp->path->rail),
		.arena_addr = vqp->uid->arena_addr,
		.ignored = CONFIRMED(wr_id) != 0};
	struct accesses accesses;
	struct ibv_send_wr *bad;

	for (unsigned i = 0; i < plan->count; i++) {
		if (!find_rkeys(vqp, &plan->access[i], rkey, &wire))
			return false;
		uid_wire_access(&wire, &plan->access[i], &accesses.wrs[i], &accesses.sges[i]);
		accesses.wrs[i].wr_id = wr_id;
		if (i > 0)
			accesses.wrs[i - 1].next = &accesses.wrs[i];
	}
	accesses.wrs[plan->count - 1].send_flags = IBV_SEND_SIGNALED;
	return path_post_send(vqp, vqp->path, accesses.wrs, NULL, &bad) == 0;
}

/* ---- confirming ---- */

static bool target_is_gone(const struct hf_vqp *vqp, uint32_t rkey)
{
	return region_remote(vqp->peer, rkey) == NULL;
}

void uid_post_confirm(struct hf_vqp *vqp)
{
	struct uid_client *uid = vqp->uid;

	if ((vqp->remote_access & IBV_ACCESS_REMOTE_ATOMIC) == 0)
		return; /* it was taken away, and may be given again */
	for (unsigned i = 0; uid != NULL && i < uid->lent_count; i++) {
		struct lent_slot *slot = &uid->lent[i];
		struct uid_plan plan;

		if (slot->state != SLOT_OWING)
			continue;
		if (target_is_gone(vqp, slot->rkey)) { /* the responder replaced it when it let the region go */
			slot->state = SLOT_IDLE;
			continue;
		}
		uid_confirm(&slot->op, &plan);
		if (!post_plan(vqp, &plan, slot->rkey, WR_UID | (uint64_t)(i + 1) << CONFIRM_SHIFT | vqp->sends.next))
			return;
		slot->state = SLOT_CONFIRMING;
	}
}

/* ---- the operation ---- */

static void begin_read(struct uid_client *uid, const struct request_log_wr *entry)
{
	uid->op = (struct uid_op){
		.kind = UID_READ,
		.slots = uid->slots,
		.target = entry->wr.wr.rdma.remote_addr + uid->word,
	};
	uid_begin(&uid->op, &uid->plan);
}

static bool begin(struct hf_vqp *vqp, const struct request_log_wr *entry)
{
	struct uid_client *uid = vqp->uid;
	const struct ibv_send_wr *wr = &entry->wr;
	bool is_cas = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	uid->whole = !qp_rules_is_atomic(wr->opcode);
	uid->word = 0;
	if (!uid->whole) {
		if (!take_slot(uid))
			return false;
		uid->op = (struct uid_op){.kind = is_cas ? UID_CAS : UID_FAA,
			.slots = uid->slots,
			.index = uid->first + uid->mine,
			.sequence = uid->lent[uid->mine].sequence,
			.target = wr->wr.atomic.remote_addr,
			.compare = wr->wr.atomic.compare_add,
			.argument = is_cas ? wr->wr.atomic.swap : wr->wr.atomic.compare_add};
		uid->lent[uid->mine].rkey = wr->wr.atomic.rkey;
		uid_begin(&uid->op, &uid->plan);
	}
	uid->active = true;
	uid->position = vqp->sends.next;
	return true;
}

/* A READ of the application's own sges. */
static bool post_whole(struct hf_vqp *vqp)
{
	struct ibv_send_wr *bad;
	struct wr_translation plan;

	wr_translation_init(&plan, vqp);
	if (!wr_translation_add(&plan, vqp, vqp->sends.next, true))
		return false;
	plan.wrs[0].wr_id |= WR_UID;
	return path_post_send(vqp, vqp->path, plan.wrs, NULL, &bad) == 0;
}

void uid_post_pump(struct hf_vqp *vqp)
{
	struct request_log_wr *entry = request_log_at(&vqp->sends, vqp->sends.next);
	struct uid_client *uid;
	const char *why;

	if (!make_client(vqp)) {
		vqp_abort(vqp, IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	uid = vqp->uid;
	why = uid->active ? NULL : why_refused(vqp, entry);
	if (why != NULL) {
		refuse(vqp, why);
		return;
	}
	if (!slots_known(vqp) || (!uid->active && !begin(vqp, entry)) || uid->posted)
		return;
	uid->posted = uid->whole ? post_whole(vqp)
				 : post_plan(vqp, &uid->plan, rkey_of(&entry->wr), WR_UID | vqp->sends.next);
	if (uid->posted && !uid->whole && uid->op.state == UID_OP_TRY)
		entry->qp_num = vqp->path->our_key; /* it may have executed, until the answer or a look says no */
}

static void over(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	struct uid_client *uid = vqp->uid;

	uid->active = false;
	entry->done = true;
	entry->status = IBV_WC_SUCCESS;
	vqp->sends.next++;
}

/* Until it is confirmed, should its UID be installed. */
static void leave_slot(struct uid_client *uid, bool may_be_installed)
{
	struct lent_slot *slot = &uid->lent[uid->mine];

	slot->sequence = uid->op.sequence;
	slot->state = may_be_installed ? SLOT_OWING : SLOT_IDLE;
	slot->op = uid->op;
}

static void atomic_over(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	struct uid_client *uid = vqp->uid;

	leave_slot(uid, uid->op.installed);
	request_log_put_word(entry, 0, uid->op.original);
	over(vqp, entry);
}

/* From uid->word on: the first word that may be a UID is looked into. */
static void check_words(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	struct uid_client *uid = vqp->uid;
	uint32_t index;
	uint64_t sequence;

	for (; uid->word < entry->bytes; uid->word += 8)
		if (uid_decode(request_log_word(entry, uid->word), uid->slots, &index, &sequence)) {
			begin_read(uid, entry);
			return;
		}
	over(vqp, entry);
}

static void op_completed(struct hf_vqp *vqp)
{
	struct uid_client *uid = vqp->uid;
	struct request_log_wr *entry = request_log_at(&vqp->sends, vqp->sends.next);
	struct uid_result result = uid_wire_result(uid->scratch);

	uid->posted = false;
	if (uid->whole) {
		uid->whole = false;
		check_words(vqp, entry);
		return;
	}
	uid_step(&uid->op, &result, &uid->plan);
	if (uid->op.state != UID_OP_CHECK_SLOT) {
		entry->qp_num = 0;
		entry->doubted = false;
	}
	if (uid->op.state != UID_OP_OVER)
		return;
	if (qp_rules_is_atomic(entry->wr.opcode)) {
		atomic_over(vqp, entry);
		return;
	}
	request_log_put_word(entry, uid->word, uid->op.original);
	uid->word += 8;
	check_words(vqp, entry);
}

bool uid_post_confirms(uint64_t wr_id)
{
	return (wr_id & WR_UID) != 0 && CONFIRMED(wr_id) != 0;
}

void uid_post_completed(struct hf_vqp *vqp, const struct ibv_wc *wc)
{
	struct uid_client *uid = vqp->uid;
	unsigned confirmed = CONFIRMED(wc->wr_id);

	if (uid == NULL)
		return;
	if (confirmed > 0 && uid->lent[confirmed - 1].state == SLOT_CONFIRMING)
		uid->lent[confirmed - 1].state = SLOT_IDLE;
	else if (confirmed == 0 && uid->active && uid->posted)
		op_completed(vqp);
}

void uid_post_lost(struct hf_vqp *vqp)
{
	struct uid_client *uid = vqp->uid;

	if (uid == NULL)
		return;
	for (unsigned i = 0; i < uid->lent_count; i++)
		if (uid->lent[i].state == SLOT_CONFIRMING)
			uid->lent[i].state = SLOT_OWING;
	if (uid->active && uid->posted && !uid->whole) {
		uid_lost(&uid->op, &uid->plan);
		/* also when its outcome is not found, because the region has gone */
		request_log_at(&vqp->sends, uid->position)->doubted = uid_in_doubt(&uid->op);
	}
	uid->posted = false;
}

void uid_post_abandon(struct hf_vqp *vqp)
{
	struct uid_client *uid = vqp->uid;

	if (uid == NULL || !uid->active)
		return;
	if (uid->lent[uid->mine].state == SLOT_BUSY) /* not of a READ */
		leave_slot(uid, uid_in_doubt(&uid->op));
	uid->active = uid->posted = false;
}

bool uid_post_quiet(const struct hf_vqp *vqp)
{
	const struct uid_client *uid = vqp->uid;

	if (uid == NULL)
		return true;
	for (unsigned i = 0; i < uid->lent_count; i++)
		if (uid->lent[i].state == SLOT_CONFIRMING)
			return false;
	return !uid->posted;
}
