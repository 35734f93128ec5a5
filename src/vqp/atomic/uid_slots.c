#include "vqp/atomic/uid_slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "vqp/atomic/uid_post.h"

#define ARENA_SLOTS 16384u /* for 4,096 vqps: 512 KiB */
_Static_assert(ARENA_SLOTS <= 1u << UID_INDEX_BITS, "a UID names every slot");
_Static_assert(ARENA_SLOTS % UID_SLOTS_PER_VQP == 0, "slots are lent by the vqp");

#define STEPS_MAX 100000u /* of an operation here, against peers that change the word all the time */

#define SLOT_ACCESS                                                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* The CPU's atomics are atomic with those of every NIC. */
static bool cpu_may(const struct hf_node *node)
{
	for (unsigned i = 0; i < node->rail_count; i++)
		if ((node->rails[i].dev->attr.caps & HF_DEV_ATOMIC_GLOBAL) == 0)
			return false;
	return true;
}

int uid_arena_open(struct hf_vpd *pd, struct hf_error *error)
{
	struct hf_env *env = pd->node->env;
	struct uid_arena *arena;
	int rc;

	if (pd->uids != NULL)
		return 0;
	arena = calloc(1, sizeof(*arena));
	if (arena == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the slots of atomics");
	arena->count = ARENA_SLOTS;
	arena->loans = calloc(ARENA_SLOTS / UID_SLOTS_PER_VQP, sizeof(*arena->loans));
	rc = arena->loans == NULL ? -ENOMEM : 0;
	if (rc == 0)
		rc = hf_mem_alloc(env, ARENA_SLOTS * sizeof(struct uid_slot), (void **)&arena->slots, error);
	if (rc == 0) {
		memset(arena->slots, 0, ARENA_SLOTS * sizeof(struct uid_slot));
		rc = hf_vmr_reg_atomic(pd, arena->slots, ARENA_SLOTS * sizeof(struct uid_slot), SLOT_ACCESS,
			HF_ATOMIC_PLAIN, &arena->mr, error);
	}
	pd->uids = arena;
	if (rc != 0)
		uid_arena_close(pd);
	return rc;
}

void uid_arena_close(struct hf_vpd *pd)
{
	struct uid_arena *arena = pd->uids;

	pd->uids = NULL;
	if (arena == NULL)
		return;
	if (hf_vmr_dereg(arena->mr) == 0 && arena->slots != NULL)
		hf_mem_free(pd->node->env, arena->slots);
	free(arena->loans);
	free(arena);
}

/* ---- the responder's own part, by atomics of the CPU ----
 *
 * To resolve is right also where NICs' atomics are not atomic with the CPU's, as far as all others that touch a
 * word with a UID, or the state of its slot, change it to what is written here or not at all. A CAS that writes back
 * what it found does otherwise: see uid_slots.h. */

/* NULL: a slot is written by a peer, which may name any address. */
static uint64_t *target_in(const struct hf_vpd *pd, uint64_t target)
{
	list_for_each (at, &pd->regions) {
		const struct hf_vmr *mr = &container_of(at, struct region, pd_link)->mr;
		uint64_t offset = target - (uintptr_t)mr->addr;

		if (mr->mode == HF_ATOMIC_UID && target % 8 == 0 && target >= (uintptr_t)mr->addr &&
			offset < mr->bytes && mr->bytes - offset >= 8)
			return (uint64_t *)(uintptr_t)target;
	}
	return NULL;
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static uint64_t cas(uint64_t *at, uint64_t compare, uint64_t swap)
{
	(void)__atomic_compare_exchange_n(at, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare;
}

/* False: the target is in no region. */
static bool do_access(struct hf_vpd *pd, const struct uid_access *access, struct uid_result *result)
{
	struct uid_slot *slot = &pd->uids->slots[access->index];
	uint64_t *target = target_in(pd, access->target);

	ensure(access->index < pd->uids->count);
	switch (access->kind) {
	case UID_READ_SLOT:
		result->slot.word = load(&slot->word);
		result->slot.swap = load(&slot->swap);
		result->slot.target = load(&slot->target);
		return true;
	case UID_CAS_SLOT:
		result->value = cas(&slot->word, access->compare, access->swap);
		return true;
	case UID_READ_TARGET:
		result->value = target == NULL ? 0 : load(target);
		return target != NULL;
	case UID_CAS_TARGET:
		result->value = target == NULL ? 0 : cas(target, access->compare, access->swap);
		return target != NULL;
	case UID_WRITE_SLOT:
		break;
	}
	ensure(false); /* nothing that is done here owns a slot */
	return false;
}

static bool run(struct hf_vpd *pd, struct uid_op *op)
{
	struct uid_plan plan;
	uint32_t steps = 0;

	uid_begin(op, &plan);
	while (op->state != UID_OP_OVER) {
		struct uid_result result = {0};

		for (unsigned i = 0; i < plan.count; i++)
			if (!do_access(pd, &plan.access[i], &result))
				return false;
		uid_step(op, &result, &plan);
		if (++steps == STEPS_MAX)
			return false;
	}
	return true;
}

static void resolve(struct hf_vpd *pd, uint32_t index)
{
	struct uid_op op = {.kind = UID_RESOLVE, .slots = pd->uids->count, .index = index};

	(void)run(pd, &op);
}

static void resolve_group(struct hf_vpd *pd, uint32_t group)
{
	for (uint32_t i = 0; i < UID_SLOTS_PER_VQP; i++)
		resolve(pd, group * UID_SLOTS_PER_VQP + i);
}

/* ---- lending ---- */

static bool lent(const struct uid_arena *arena, uint32_t num, uint32_t *group_out)
{
	for (uint32_t group = 0; group < arena->count / UID_SLOTS_PER_VQP; group++)
		if (arena->loans[group].vqp == num && arena->loans[group].free_ns == 0) {
			*group_out = group;
			return true;
		}
	return false;
}

/* Of a slot, in which its borrower may have written anything. */
static uint64_t sequence_at(const struct uid_arena *arena, uint32_t index)
{
	return load(&arena->slots[index].word) >> UID_STATE_BITS & UID_SEQUENCE_MAX;
}

static const struct field slots_fields[] = {
	FIELD_ANY(struct slots_message, rkey),
	FIELD_ANY(struct slots_message, addr),
	FIELD_MAX(struct slots_message, sequence, UID_SEQUENCE_MAX),
	FIELD_MAX(struct slots_message, slots, 1u << UID_INDEX_BITS),
	FIELD_MAX(struct slots_message, first_slot, 1u << UID_INDEX_BITS),
	FIELD_ANY(struct slots_message, lent_slots),
};

static bool slots_valid(const struct message_head *head)
{
	const struct slots_message *message = (const void *)head;

	return message->first_slot + message->lent_slots <= message->slots;
}

static const struct vqp_kind slots_kind = {
	.kind = {.number = MESSAGE_SLOTS,
		.bytes = sizeof(struct slots_message),
		.name = "SLOTS",
		.fields = FIELDS(slots_fields),
		.valid = slots_valid,
		.take = kinds_to_vqp},
	.take = uid_post_slots,
};

/* The peer's vqp asks for slots. */
static void take_ask(struct hf_vqp *vqp, const struct message_head *ask)
{
	struct uid_arena *arena = vqp->pd->uids;
	struct slots_message message = {.head = kinds_head(vqp, &slots_kind)};
	uint32_t group;

	(void)ask;
	if (arena != NULL && (lent(arena, vqp->num, &group) || lent(arena, 0, &group))) {
		arena->loans[group].vqp = vqp->num;
		message.rkey = arena->mr->rkey;
		message.addr = (uintptr_t)arena->slots;
		message.slots = arena->count;
		message.first_slot = group * UID_SLOTS_PER_VQP;
		message.lent_slots = UID_SLOTS_PER_VQP;
		for (uint32_t i = 0; i < UID_SLOTS_PER_VQP; i++) {
			uint64_t sequence = sequence_at(arena, message.first_slot + i);

			if (message.sequence < sequence)
				message.sequence = sequence;
		}
	}
	peer_send(vqp->peer, &message.head);
}

static const struct vqp_kind ask_kind = VQP_KIND_BARE(MESSAGE_SLOTS_ASK, "SLOTS_ASK", struct message_head, take_ask);

void uid_slots_ask(struct hf_vqp *vqp)
{
	const struct message_head ask = kinds_head(vqp, &ask_kind);

	peer_send(vqp->peer, &ask);
}

void uid_slots_register(struct message_kinds *kinds)
{
	message_register(kinds, &slots_kind.kind);
	message_register(kinds, &ask_kind.kind);
}

void uid_slots_return(struct hf_vqp *vqp)
{
	struct uid_arena *arena = vqp->pd->uids;
	uint64_t until_ns = vqp_strays_until(vqp);
	uint32_t group;

	if (arena == NULL || !lent(arena, vqp->num, &group))
		return;
	resolve_group(vqp->pd, group);
	if (until_ns == 0 && !cpu_may(vqp->node))
		until_ns = hf_env_now_ns(vqp->node->env) + UID_LEFT_NS;
	arena->loans[group].free_ns = until_ns;
	if (until_ns == 0)
		arena->loans[group].vqp = 0;
}

bool uid_slots_owner(struct hf_vpd *pd, uint32_t *index_out, uint64_t *sequence_out)
{
	uint32_t group;

	if (!lent(pd->uids, UID_OWNER, &group) && !lent(pd->uids, 0, &group))
		return false;
	pd->uids->loans[group].vqp = UID_OWNER;
	*index_out = group * UID_SLOTS_PER_VQP;
	*sequence_out = sequence_at(pd->uids, *index_out);
	return true;
}

static void resolve_lent(struct hf_vpd *pd)
{
	for (uint32_t group = 0; group < pd->uids->count / UID_SLOTS_PER_VQP; group++)
		if (pd->uids->loans[group].vqp != 0)
			resolve_group(pd, group);
}

static void resolve_left(struct hf_vpd *pd, uint64_t now_ns)
{
	for (uint32_t group = 0; group < pd->uids->count / UID_SLOTS_PER_VQP; group++) {
		struct uid_loan *loan = &pd->uids->loans[group];

		if (loan->free_ns == 0)
			continue;
		resolve_group(pd, group);
		if (now_ns >= loan->free_ns)
			*loan = (struct uid_loan){0};
	}
}

void uid_slots_leave_region(struct hf_vpd *pd, const struct hf_vmr *mr)
{
	if (mr->mode == HF_ATOMIC_UID && pd->uids != NULL)
		resolve_lent(pd);
}

void uid_slots_tick(struct hf_node *node, uint64_t now_ns)
{
	list_for_each (at, &vqps_of(node)->vpds) {
		struct hf_vpd *pd = container_of(at, struct hf_vpd, node_link);

		if (pd->uids == NULL)
			continue;
		if (cpu_may(node))
			resolve_lent(pd);
		resolve_left(pd, now_ns);
	}
}

/* ---- the application's own atomics ---- */

static int by_cpu(struct hf_vmr *mr, struct uid_op *op, uint64_t *original_out)
{
	*original_out = 0;
	if (op->target % 8 != 0 || op->target < (uintptr_t)mr->addr || mr->bytes < 8 ||
		op->target - (uintptr_t)mr->addr > mr->bytes - 8)
		return -EINVAL;
	if (!cpu_may(mr->pd->node))
		return -EOPNOTSUPP;
	if (mr->mode != HF_ATOMIC_UID) {
		uint64_t *at = (uint64_t *)(uintptr_t)op->target;

		*original_out = op->kind == UID_DIRECT_CAS   ? cas(at, op->compare, op->argument)
				: op->kind == UID_DIRECT_FAA ? __atomic_fetch_add(at, op->argument, __ATOMIC_SEQ_CST)
							     : load(at);
		return 0;
	}
	op->slots = mr->pd->uids->count;
	if (!run(mr->pd, op))
		return -EAGAIN;
	*original_out = op->original;
	return 0;
}

int hf_vmr_atomic_cas(struct hf_vmr *mr, uint64_t *at, uint64_t compare, uint64_t swap, uint64_t *original_out)
{
	struct uid_op op = {.kind = UID_DIRECT_CAS, .target = (uintptr_t)at, .compare = compare, .argument = swap};

	return by_cpu(mr, &op, original_out);
}

int hf_vmr_atomic_faa(struct hf_vmr *mr, uint64_t *at, uint64_t add, uint64_t *original_out)
{
	struct uid_op op = {.kind = UID_DIRECT_FAA, .target = (uintptr_t)at, .argument = add};

	return by_cpu(mr, &op, original_out);
}

int hf_vmr_atomic_load(struct hf_vmr *mr, const uint64_t *at, uint64_t *value_out)
{
	struct uid_op op = {.kind = UID_READ, .target = (uintptr_t)at};

	return by_cpu(mr, &op, value_out);
}
