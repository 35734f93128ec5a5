#include "vqp/atomic/uid.h"

#include "base/ensure.h"

#define INDEX_MASK ((1u << UID_INDEX_BITS) - 1)

uint64_t uid_make(uint32_t index, uint64_t sequence)
{
	return (uint64_t)UID_TAG << 56 | (uint64_t)index << UID_SEQUENCE_BITS | sequence;
}

uint64_t uid_word(uint64_t sequence, enum uid_state state)
{
	return sequence << UID_STATE_BITS | state;
}

bool uid_decode(uint64_t value, uint32_t slots, uint32_t *index_out, uint64_t *sequence_out)
{
	*index_out = (uint32_t)(value >> UID_SEQUENCE_BITS) & INDEX_MASK;
	*sequence_out = value & UID_SEQUENCE_MAX;
	return value >> 56 == UID_TAG && *index_out < slots && *sequence_out != 0;
}

bool uid_slot_matches(const struct uid_slot *slot, uint64_t uid, uint64_t target)
{
	return slot->word >> UID_STATE_BITS == (uid & UID_SEQUENCE_MAX) && slot->target == target;
}

/* ---- accesses ---- */

static struct uid_access *add(struct uid_plan *plan, enum uid_access_kind kind, uint32_t index, uint64_t target)
{
	struct uid_access *access = &plan->access[plan->count++];

	*access = (struct uid_access){.kind = kind, .index = index, .target = target};
	return access;
}

static void read_target(struct uid_op *op, enum uid_op_state next, struct uid_plan *plan)
{
	op->state = next;
	(void)add(plan, UID_READ_TARGET, 0, op->target);
}

static void read_slot(struct uid_op *op, uint32_t index, enum uid_op_state next, struct uid_plan *plan)
{
	op->state = next;
	(void)add(plan, UID_READ_SLOT, index, 0);
}

/* The state first, and then the UID (UID-2); both do nothing where another one was quicker. */
static void replace(uint64_t uid, uint64_t target, uint64_t swap, struct uid_plan *plan)
{
	uint32_t index = (uint32_t)(uid >> UID_SEQUENCE_BITS) & INDEX_MASK;
	struct uid_access *state = add(plan, UID_CAS_SLOT, index, 0), *value = add(plan, UID_CAS_TARGET, 0, target);

	state->compare = uid_word(uid & UID_SEQUENCE_MAX, UID_PENDING);
	state->swap = uid_word(uid & UID_SEQUENCE_MAX, UID_DONE);
	value->compare = uid;
	value->swap = swap;
}

/* ---- the operation ---- */

static void over(struct uid_op *op, uint64_t original, bool installed)
{
	op->state = UID_OP_OVER;
	op->original = original;
	op->installed = installed;
}

static bool is_direct(const struct uid_op *op)
{
	return op->kind == UID_DIRECT_CAS || op->kind == UID_DIRECT_FAA;
}

/* A sequence of its own for each try, so that whatever is left of an earlier one means nothing. */
static void next_uid(struct uid_op *op)
{
	do {
		op->sequence++;
	} while (uid_make(op->index, op->sequence) == op->swap);
	ensure(op->sequence <= UID_SEQUENCE_MAX);
}

static void try_it(struct uid_op *op, struct uid_plan *plan)
{
	struct uid_access *access;

	op->swap = op->kind == UID_FAA || op->kind == UID_DIRECT_FAA ? op->compare + op->argument : op->argument;
	op->state = UID_OP_TRY;
	if (is_direct(op)) {
		access = add(plan, UID_CAS_TARGET, 0, op->target);
		access->swap = op->swap;
	} else {
		next_uid(op);
		access = add(plan, UID_WRITE_SLOT, op->index, 0);
		access->slot = (struct uid_slot){
			.word = uid_word(op->sequence, UID_PENDING), .swap = op->swap, .target = op->target};
		access = add(plan, UID_CAS_TARGET, 0, op->target);
		access->swap = uid_make(op->index, op->sequence);
	}
	access->compare = op->compare;
}

void uid_begin(struct uid_op *op, struct uid_plan *plan)
{
	*plan = (struct uid_plan){0};
	op->installed = false;
	if (op->kind == UID_CAS || op->kind == UID_DIRECT_CAS)
		try_it(op, plan);
	else if (op->kind == UID_RESOLVE)
		read_slot(op, op->index, UID_OP_FIND, plan);
	else
		read_target(op, UID_OP_LOOK, plan);
}

/* The target stands for `value`. */
static void known(struct uid_op *op, uint64_t value, struct uid_plan *plan)
{
	switch (op->kind) {
	case UID_CAS:
	case UID_DIRECT_CAS:
		if (value == op->compare)
			try_it(op, plan);
		else
			over(op, value, false);
		break;
	case UID_FAA:
	case UID_DIRECT_FAA:
		op->compare = value;
		try_it(op, plan);
		break;
	case UID_READ:
	case UID_RESOLVE:
		over(op, value, false);
		break;
	}
}

/* The target holds `value`. */
static void found(struct uid_op *op, uint64_t value, struct uid_plan *plan)
{
	uint32_t index;
	uint64_t sequence;

	if (!uid_decode(value, op->slots, &index, &sequence)) {
		known(op, value, plan);
		return;
	}
	op->seen = value;
	read_slot(op, index, UID_OP_SLOT, plan);
}

static void slot_read(struct uid_op *op, const struct uid_slot *slot, struct uid_plan *plan)
{
	bool matches = uid_slot_matches(slot, op->seen, op->target);

	op->meant = matches ? slot->swap : op->seen;
	if (matches && op->kind != UID_READ) {
		op->state = UID_OP_HELP;
		replace(op->seen, op->target, op->meant, plan);
	} else {
		read_target(op, UID_OP_AGAIN, plan);
	}
}

static void tried(struct uid_op *op, uint64_t original, struct uid_plan *plan)
{
	if (original == op->compare)
		over(op, original, !is_direct(op));
	else
		found(op, original, plan);
}

static void slot_checked(struct uid_op *op, const struct uid_slot *slot, struct uid_plan *plan)
{
	if (slot->word == uid_word(op->sequence, UID_DONE))
		over(op, op->compare, true);
	else
		uid_begin(op, plan); /* it did not succeed: only the removal of its UID leaves `pending` */
}

static void slot_found(struct uid_op *op, const struct uid_slot *slot, struct uid_plan *plan)
{
	op->sequence = slot->word >> UID_STATE_BITS & UID_SEQUENCE_MAX;
	op->target = slot->target;
	if ((slot->word & ((1u << UID_STATE_BITS) - 1)) == UID_FREE)
		over(op, 0, false);
	else
		read_target(op, UID_OP_LOOK, plan);
}

static void looked(struct uid_op *op, uint64_t value, struct uid_plan *plan)
{
	if (op->kind == UID_RESOLVE && value != uid_make(op->index, op->sequence))
		over(op, value, false);
	else
		found(op, value, plan);
}

void uid_step(struct uid_op *op, const struct uid_result *result, struct uid_plan *plan)
{
	*plan = (struct uid_plan){0};
	switch (op->state) {
	case UID_OP_LOOK:
		looked(op, result->value, plan);
		break;
	case UID_OP_TRY:
		tried(op, result->value, plan);
		break;
	case UID_OP_SLOT:
		slot_read(op, &result->slot, plan);
		break;
	case UID_OP_HELP:
	case UID_OP_AGAIN:
		if (result->value == op->seen)
			known(op, op->meant, plan);
		else
			looked(op, result->value, plan);
		break;
	case UID_OP_CHECK_TARGET:
		if (result->value == uid_make(op->index, op->sequence))
			over(op, op->compare, true);
		else
			read_slot(op, op->index, UID_OP_CHECK_SLOT, plan);
		break;
	case UID_OP_CHECK_SLOT:
		slot_checked(op, &result->slot, plan);
		break;
	case UID_OP_FIND:
		slot_found(op, &result->slot, plan);
		break;
	case UID_OP_OVER:
	case UID_OP_STATES:
		ensure(false);
	}
}

bool uid_in_doubt(const struct uid_op *op)
{
	return op->state == UID_OP_TRY || op->state == UID_OP_CHECK_TARGET || op->state == UID_OP_CHECK_SLOT;
}

void uid_lost(struct uid_op *op, struct uid_plan *plan)
{
	*plan = (struct uid_plan){0};
	if (uid_in_doubt(op))
		read_target(op, UID_OP_CHECK_TARGET, plan);
	else if (op->state != UID_OP_OVER)
		uid_begin(op, plan);
}

void uid_confirm(const struct uid_op *op, struct uid_plan *plan)
{
	*plan = (struct uid_plan){0};
	replace(uid_make(op->index, op->sequence), op->target, op->swap, plan);
}
