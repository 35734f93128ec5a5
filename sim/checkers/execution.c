/* Effects are matched with wrs by address, then by what their bytes say. */
#include "sim/checkers/execution.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "dev/qp_rules.h"

struct watcher {
	struct bus_observer observer; /* first */
	struct execution *execution;
	struct list node;
};

/* ---- payloads: every 8 bytes say tag:16, number:24, index:24 ---- */

static uint64_t payload_word(const struct flow *flow, uint32_t number, uint32_t index)
{
	return (uint64_t)flow->tag << 48 | (uint64_t)(number & 0xffffff) << 24 | index;
}

/* What is left of the word in which `at` lies, and no more than `bytes`. */
static uint32_t part_of_word(uint32_t at, uint32_t bytes)
{
	return 8 - at % 8 < bytes ? 8 - at % 8 : bytes;
}

void flow_payload(const struct flow *flow, uint32_t number, uint32_t at, uint32_t bytes, uint8_t *out)
{
	while (bytes > 0) {
		uint8_t word[8];
		uint32_t n = part_of_word(at, bytes);

		put_le64(word, payload_word(flow, number, at / 8));
		if (n == 8)
			memcpy(out, word, 8);
		else
			memcpy(out, word + at % 8, n);
		at += n;
		out += n;
		bytes -= n;
	}
}

static bool payload_is(const struct flow *flow, uint32_t number, uint32_t at, uint32_t bytes, const uint8_t *data)
{
	while (bytes > 0) {
		uint8_t word[8];
		uint32_t n = part_of_word(at, bytes);

		put_le64(word, payload_word(flow, number, at / 8));
		if (n == 8 ? memcmp(word, data, 8) != 0 : memcmp(word + at % 8, data, n) != 0)
			return false;
		at += n;
		data += n;
		bytes -= n;
	}
	return true;
}

static bool has_effect(const struct op *op)
{
	return op->kind != OP_READ && (op->bytes > 0 || op_is_atomic(op));
}

static bool is_behind(const struct op *op)
{
	return op->executed || op->given_up || !has_effect(op);
}

/* The wr whose turn it is; NULL when all have had theirs. */
static struct op *front(struct flow *flow)
{
	while (flow->front < flow->count && is_behind(&flow->ops[flow->front]))
		flow->front++;
	return flow->front < flow->count ? &flow->ops[flow->front] : NULL;
}

static void violate(struct flow *flow, const char *claim, const char *what, const struct op *op)
{
	const struct op *next = front(flow);

	world_violate(flow->world, claim, "flow %u: %s (wr %d, next in order is %d%s of %u)", flow->tag, what,
		op == NULL ? -1 : (int)op->number, next == NULL ? -1 : (int)next->number,
		next != NULL && next->lost ? ", which a NIC died with," : "", flow->count);
}

/* ---- effects ---- */

static void data_took_effect(struct flow *flow, struct op *op, uint64_t base, const struct effect *effect)
{
	uint64_t at = effect->host - base;

	if (op != NULL && flow->restarts && at == 0)
		op->done_bytes = 0;
	if (op == NULL || op_is_atomic(op) || at != op->done_bytes || effect->bytes > op->bytes - op->done_bytes) {
		violate(flow, "once-in-order", "bytes took effect that are not the next ones", op);
		return;
	}
	if (!payload_is(flow, op->number, op->done_bytes, (uint32_t)effect->bytes, effect->data)) {
		violate(flow, "once-in-order", "the bytes are those of another wr, or damaged", op);
		return;
	}
	op->done_bytes += (uint32_t)effect->bytes;
	op->executed = op->done_bytes == op->bytes;
}

/* Of a vqp: nothing happens once the wr, or the receive that it would fill, was handed back. */
static void check_not_over(struct flow *flow, const struct op *op)
{
	if (!flow->exactly_once || op == NULL)
		return;
	if (op->completed)
		violate(flow, "after-completion", "a wr took effect that had completed", op);
	else if (op->kind == OP_SEND && flow->receives_closed)
		violate(flow, "after-completion", "a message went into a receive that had completed", op);
}

static uint64_t receive_at(const struct flow *flow, uint32_t message)
{
	return flow->receives + (uint64_t)(message % flow->slots) * flow->slot_bytes;
}

static void response_landed(struct flow *flow, const struct effect *effect)
{
	uint64_t slot = (effect->host - flow->landing) / flow->slot_bytes;
	uint32_t number = flow->count - 1 - (uint32_t)((flow->count - 1 - slot) % flow->slots);
	struct op *op = flow->count > slot ? &flow->ops[number] : NULL;
	uint32_t bytes = op == NULL ? 0 : op_is_atomic(op) ? 8 : op->bytes;

	if (flow->requester_fenced)
		violate(flow, "fenced", "a response landed", op);
	else if (op == NULL || op->completed || (op->kind != OP_READ && !op_is_atomic(op)))
		violate(flow, "landing", "a response landed for a wr that awaits none", op);
	else if (effect->host + effect->bytes > flow->landing + slot * flow->slot_bytes + bytes)
		violate(flow, "landing", "a response is longer than what was asked for", op);
}

/* A message that was not received counts for nothing: it is sent again, into the same receive (R8). */
static struct op *sent_again(struct flow *flow, struct op *turn, const struct effect *effect)
{
	for (uint32_t i = turn == NULL ? flow->count : turn->number + 1; flow->exactly_once && i-- > 0;) {
		struct op *op = &flow->ops[i];

		if (op->kind == OP_SEND && op->message >= flow->received &&
			receive_at(flow, op->message) == effect->host) {
			op->done_bytes = 0;
			op->executed = false;
			flow->front = op->number;
			return op;
		}
		if (op->executed && has_effect(op))
			break;
	}
	return turn;
}

static bool within(uint64_t addr, uint64_t bytes, uint64_t base, uint64_t length)
{
	return addr >= base && addr - base + bytes <= length;
}

/* Its turn again, from the byte `at` on, and then that of those behind it. */
static void turn_back(struct flow *flow, struct op *op, uint32_t at)
{
	for (uint32_t i = op->number; i < flow->count; i++) {
		struct op *behind = &flow->ops[i];

		behind->repeated = behind->repeated || behind->executed || behind->done_bytes > 0;
		behind->executed = behind->given_up = false;
		behind->done_bytes = 0;
	}
	op->done_bytes = at;
	flow->front = op->number;
}

/* An idempotent WRITE that comes again: so do all behind it, which may be repeated therefore as well. */
static bool comes_again(struct flow *flow, const struct effect *effect)
{
	const struct op *turn = front(flow);

	for (uint32_t i = turn == NULL ? flow->count : turn->number + 1; flow->exactly_once && i-- > 0;) {
		struct op *op = &flow->ops[i];
		bool began = op->executed || op->done_bytes > 0;
		bool missed = op->kind == OP_SEND && op->message >= flow->received;

		if (op->idempotent && !op->completed && began && effect->host >= op->target &&
			effect->host < op->target + op->done_bytes) {
			turn_back(flow, op, (uint32_t)(effect->host - op->target));
			return true;
		}
		if (began && has_effect(op) && !op->idempotent && !missed)
			return false;
	}
	return false;
}

/* A NIC acknowledged the wr and died with it, and no log entry shows the loss: then the requester goes on. A message
 * that nobody received is missed anyway. Whether the wr succeeded is seen at its completion. */
static void give_up_unseen(struct flow *flow, const struct effect *effect)
{
	for (struct op *op = front(flow); op != NULL && op->lost; op = front(flow)) {
		/* Words are used again, operands are not. */
		bool its_own = op_is_atomic(op) ? effect->kind != EFFECT_WRITE && op->argument == effect->argument
						: op->target + op->done_bytes == effect->host;

		if ((!flow->unlogged && !op->idempotent) || op->failed || its_own)
			return;
		if (op->kind != OP_WRITE && !op_is_atomic(op))
			return;
		op->given_up = true;
	}
}

static bool flow_wrote(struct flow *flow, const struct effect *effect)
{
	uint64_t window = (uint64_t)flow->slots * flow->slot_bytes;
	bool is_write = within(effect->host, effect->bytes, flow->target->addr, flow->target->bytes);
	struct op *op;

	if (within(effect->host, effect->bytes, flow->landing, window)) {
		response_landed(flow, effect);
		return true;
	}
	if (!is_write && !within(effect->host, effect->bytes, flow->receives, window))
		return false;
	if (!is_write || !comes_again(flow, effect))
		give_up_unseen(flow, effect);
	op = front(flow);
	if (!is_write)
		op = sent_again(flow, op, effect);
	check_not_over(flow, op);
	if (op != NULL) {
		op->sequence = flow->execution->effects;
		op->nic = effect->nic;
	}
	if (flow->denied && is_write)
		violate(flow, "access", "a WRITE took effect that is not permitted", op);
	if (flow->responder_fenced)
		violate(flow, "fenced", "bytes took effect", op);
	else if (op != NULL && is_write != (op->kind == OP_WRITE || op->kind == OP_WRITE_IMM))
		violate(flow, "once-in-order", "a wr of another kind took effect", op);
	else
		data_took_effect(flow, op,
			op == NULL ? 0
			: is_write ? op->target
				   : receive_at(flow, op->message),
			effect);
	if (is_write)
		memcpy(flow->target->shadow + (effect->host - flow->target->addr), effect->data, effect->bytes);
	return true;
}

/* Operands are used once. */
static bool asked_for(const struct flow *flow, const struct effect *effect)
{
	for (uint32_t i = flow->front; i < flow->count; i++)
		if (op_is_atomic(&flow->ops[i]) && flow->ops[i].argument == effect->argument)
			return true;
	return false;
}

static struct op *newest_executed(struct flow *flow)
{
	for (uint32_t i = flow->count; i-- > 0;)
		if (flow->ops[i].executed && has_effect(&flow->ops[i]))
			return &flow->ops[i];
	return NULL;
}

/* It changed nothing, its answer is lost, and so is the log entry of the wr before it: it did not execute (V2). */
static void comes_again_in_vain(struct flow *flow, const struct effect *effect)
{
	struct op *op = newest_executed(flow);

	if (op == NULL || !op->vain || op->completed || op->argument != effect->argument)
		return;
	op->executed = op->vain = false;
	if (op->number < flow->front)
		flow->front = op->number;
}

static bool flow_did_atomic(struct flow *flow, const struct effect *effect)
{
	uint64_t *shadow = (uint64_t *)(void *)(flow->words->shadow + (effect->host - flow->words->addr));
	struct op *op;

	comes_again_in_vain(flow, effect);
	if (asked_for(flow, effect))
		give_up_unseen(flow, effect);
	op = front(flow);
	if (op == NULL || !op_is_atomic(op) || op->argument != effect->argument || op->target != effect->host)
		return false;
	check_not_over(flow, op);
	if (flow->denied)
		violate(flow, "access", "an atomic took effect that is not permitted", op);
	if (flow->responder_fenced)
		violate(flow, "fenced", "an atomic took effect", op);
	if (effect->original != *shadow && !flow->words->lossy)
		violate(flow, "memory", "an atomic found a value that the ones before it did not leave", op);
	op->original = effect->original;
	op->executed = true;
	op->sequence = flow->execution->effects;
	op->nic = effect->nic;
	if (effect->kind == EFFECT_FAA)
		*shadow = effect->original + effect->argument;
	else if (effect->original == effect->compare)
		*shadow = effect->argument;
	return true;
}

static bool is_owned(const struct execution *execution, const struct effect *effect)
{
	if (list_empty(&execution->owned))
		return true;
	list_for_each (at, &execution->owned) {
		const struct area *area = container_of(at, struct area, node);

		if (within(effect->host, effect->bytes, area->addr, area->bytes))
			return true;
	}
	return false;
}

/* It is found whose it is, if anybody's. */
static void atomic_out_of_turn(struct execution *execution, const struct effect *effect)
{
	list_for_each (at, &execution->flows) {
		struct flow *flow = container_of(at, struct flow, node);

		for (uint32_t i = 0; i < flow->count; i++) {
			const struct op *op = &flow->ops[i];

			if (!op_is_atomic(op) || op->argument != effect->argument)
				continue;
			violate(flow, "once-in-order", "an atomic took effect that is not the next wr", op);
			return;
		}
	}
	world_violate(execution->world, "once-in-order",
		"an atomic (operand %#" PRIx64 ") took effect that is no wr of any flow", effect->argument);
}

static void on_effect(struct bus_observer *observer, const struct effect *effect)
{
	struct execution *execution = ((struct watcher *)(void *)observer)->execution;

	execution->effects++;
	if (effect->kind == EFFECT_READ)
		return;
	list_for_each (at, &execution->flows) {
		struct flow *flow = container_of(at, struct flow, node);

		if (effect->kind == EFFECT_WRITE) {
			if (flow_wrote(flow, effect))
				return;
		} else if (within(effect->host, 8, flow->words->addr, flow->words->bytes) &&
			   flow_did_atomic(flow, effect)) {
			return;
		}
	}
	if (!is_owned(execution, effect))
		return;
	if (effect->kind == EFFECT_WRITE)
		world_violate(execution->world, "isolation",
			"%zu bytes were written to %#" PRIx64 ", where nobody asked for it", effect->bytes,
			effect->host);
	else
		atomic_out_of_turn(execution, effect);
}

static bool covers(const struct flow *flow, const struct op *op, uint64_t host, size_t bytes)
{
	uint64_t base = op->kind == OP_SEND ? receive_at(flow, op->message) : op->target;

	if (op_is_atomic(op))
		return op->executed && op->target == host && (op->kind == OP_FAA || op->original == op->compare);
	/* the pieces of one WRITE are lost one by one */
	return has_effect(op) && within(host, bytes, base, op->lost ? op->bytes : op->done_bytes);
}

/* The newest wr that this NIC executed there; the oldest of several losses finds the newest wr, but the last of them
 * has found them all. */
static struct op *newest_there(struct flow *flow, const struct nic *nic, uint64_t host, size_t bytes)
{
	for (uint32_t i = flow->count; i-- > 0;) {
		struct op *op = &flow->ops[i];

		if (op->nic == nic && covers(flow, op, host, bytes))
			return op;
	}
	return NULL;
}

/* It did not happen after all: the wr's turn has come again. */
static void undo(struct execution *execution, const struct nic *nic, uint64_t host, size_t bytes)
{
	struct flow *its = NULL;
	struct op *newest = NULL;

	list_for_each (at, &execution->flows) {
		struct flow *flow = container_of(at, struct flow, node);
		struct op *op = flow->exactly_once ? newest_there(flow, nic, host, bytes) : NULL;

		if (op != NULL && (newest == NULL || op->sequence > newest->sequence)) {
			newest = op;
			its = flow;
		}
	}
	if (newest == NULL)
		return;
	newest->executed = false;
	if (!newest->lost && !op_is_atomic(newest))
		newest->done_bytes = (uint32_t)(host - (newest->kind == OP_SEND ? receive_at(its, newest->message)
										: newest->target));
	newest->lost = true;
	if (newest->number < its->front)
		its->front = newest->number;
}

static void on_lost(struct bus_observer *observer, const struct nic *nic, uint64_t host, size_t bytes)
{
	struct execution *execution = ((struct watcher *)(void *)observer)->execution;

	undo(execution, nic, host, bytes);
	list_for_each (at, &execution->flows) {
		struct flow *flow = container_of(at, struct flow, node);
		struct op *op = flow->exactly_once ? newest_executed(flow) : NULL;

		if (op != NULL && op->kind == OP_CAS && op->nic == nic && op->original != op->compare)
			op->vain = true;
	}
	list_for_each (at, &execution->areas) {
		struct area *area = container_of(at, struct area, node);

		if (within(host, bytes, area->addr, area->bytes))
			area->lossy = true;
	}
}

/* ---- what the requester and the receiver saw ---- */

struct op *flow_post(struct flow *flow, const struct op *op)
{
	struct op *posted;

	if (flow->count == flow->capacity) {
		flow->capacity = flow->capacity == 0 ? 64 : flow->capacity * 2;
		flow->ops = realloc(flow->ops, flow->capacity * sizeof(*flow->ops));
		ensure(flow->ops != NULL);
	}
	posted = &flow->ops[flow->count];
	*posted = *op;
	posted->number = flow->count++;
	posted->posted_ns = flow->world->now_ns;
	if (op->kind == OP_SEND || op->kind == OP_WRITE_IMM)
		posted->message = flow->messages++;
	return posted;
}

/* The first wr behind a READ that must not take effect before it has returned. */
static uint32_t first_fenced_behind(const struct flow *flow, const struct op *op)
{
	for (uint32_t i = op->number + 1; i < flow->count; i++)
		if (flow->ops[i].fenced)
			return i;
	return UINT32_MAX;
}

/* A WRITE behind the READ ends within that word: half of it says another number than the other half. */
static bool is_torn(const struct flow *flow, const struct op *op, uint32_t at)
{
	for (uint32_t i = op->number + 1; i < flow->count; i++) {
		const struct op *later = &flow->ops[i];

		if ((later->kind == OP_WRITE || later->kind == OP_WRITE_IMM) && later->target == op->target &&
			later->bytes > at && later->bytes < at + 8)
			return true;
	}
	return false;
}

/* A READ behind a WRITE of its flow returns it, or a later one (a READ may be executed again), but none behind a fence
 * that came after it. */
static void check_read(struct flow *flow, const struct op *op)
{
	const uint8_t *data =
		(const uint8_t *)(uintptr_t)(flow->landing + (op->number % flow->slots) * flow->slot_bytes);
	uint32_t fenced = first_fenced_behind(flow, op);
	const struct op *last = NULL;

	for (uint32_t i = op->number; i > 0 && last == NULL; i--)
		if ((flow->ops[i - 1].kind == OP_WRITE || flow->ops[i - 1].kind == OP_WRITE_IMM) &&
			flow->ops[i - 1].target == op->target)
			last = &flow->ops[i - 1];
	for (uint32_t at = 0; last != NULL && at + 8 <= op->bytes && at + 8 <= last->bytes; at += 8) {
		uint64_t word = get_le64(data + at);
		uint32_t number = (uint32_t)(word >> 24) & 0xffffff;

		if (word >> 48 == flow->tag && number >= last->number && number < fenced && (word & 0xffffff) == at / 8)
			continue;
		if (is_torn(flow, op, at))
			continue;
		violate(flow, "completed",
			number >= fenced ? "a READ returned what was written behind a fence after it"
					 : "a READ returned something older than the WRITE before it",
			op);
		return;
	}
}

static void check_success(struct flow *flow, const struct op *op)
{
	const uint8_t *landed =
		(const uint8_t *)(uintptr_t)(flow->landing + (op->number % flow->slots) * flow->slot_bytes);
	const struct op *next = front(flow);

	if (next != NULL && next->number <= op->number && next->lost)
		return; /* acknowledged all the same; now nothing of this flow can take effect without a violation */
	if (next != NULL && next->number <= op->number)
		violate(flow, "completed", "success before it and all before it took effect", op);
	else if (op_is_atomic(op) && get_le64(landed) != op->original)
		violate(flow, "completed", "an atomic's value is not that of its execution", op);
	else if (op->kind == OP_READ && !flow->target->lossy)
		check_read(flow, op);
}

void flow_disclaimed(struct flow *flow, uint32_t number)
{
	const struct op *op = &flow->ops[number];

	if (op->kind == OP_CAS && op->original != op->compare)
		return; /* it found another value and changed nothing */
	/* a message that nobody received leaves bytes in a receive that is not completed */
	if (has_effect(op) && op->kind != OP_SEND && (op->executed || op->done_bytes > 0 || op->repeated))
		violate(flow, "outcome", "a wr was reported as not executed and has executed, at least in part", op);
}

void flow_completed(struct flow *flow, const struct ibv_wc *wc)
{
	struct op *op = wc->wr_id < flow->count ? &flow->ops[wc->wr_id] : NULL;

	if (op == NULL || op->completed || op->number < flow->next_completed) {
		violate(flow, "completed", "a completion that belongs to no wr in flight", op);
		return;
	}
	for (uint32_t i = flow->next_completed; i < op->number; i++) {
		const struct op *silent = &flow->ops[i];

		/* an unsignaled success says nothing, a failure always speaks */
		if (!silent->unsignaled || (has_effect(silent) && !silent->executed && !silent->lost))
			violate(flow, "completed", "a completion was left out", silent);
		flow->ops[i].completed = true;
	}
	op->completed = true;
	op->failed = wc->status != IBV_WC_SUCCESS;
	if (op->failed && op->given_up)
		violate(flow, "once-in-order", "something behind it took effect, and then a wr failed", op);
	flow->next_completed = op->number + 1;
	if (wc->status == IBV_WC_SUCCESS)
		check_success(flow, op);
}

void flow_received(struct flow *flow, const struct ibv_wc *wc)
{
	const struct op *op = NULL;

	flow->receives_closed |= wc->status != IBV_WC_SUCCESS;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	for (; flow->received_from < flow->count && op == NULL; flow->received_from++) {
		const struct op *next = &flow->ops[flow->received_from];

		if ((next->kind == OP_SEND || next->kind == OP_WRITE_IMM) && next->message == flow->received)
			op = next;
	}
	if (op == NULL || wc->wr_id != flow->received++)
		violate(flow, "receives", "a message came that was not sent, or into another receive than its own", op);
	else if (wc->byte_len != op->bytes || (op->bytes > 0 && !op->executed))
		violate(flow, "receives", "a receive completed with another length than was sent", op);
	else if (op->kind == OP_WRITE_IMM && (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->imm_data != htobe32(op->imm) ||
						     wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM))
		violate(flow, "receives", "a receive completed with another immediate than was sent", op);
	else if (op->kind == OP_SEND &&
		 !payload_is(flow, op->number, 0, op->bytes, (const uint8_t *)(uintptr_t)receive_at(flow, op->message)))
		violate(flow, "receives", "a receive completed before its bytes were there", op);
}

/* ---- what the device says after a fence ---- */

void flow_check_psn(struct flow *flow, uint32_t executed_psn)
{
	for (uint32_t i = 0; i < flow->count; i++) {
		const struct op *op = &flow->ops[i];
		uint32_t done = op_is_atomic(op) || !has_effect(op) ? op->executed : op->done_bytes / flow->mtu_bytes;

		if (!has_effect(op))
			continue;
		if (op->executed)
			done = op->psns;
		if (done > 0 && psn_diff(psn_add(op->psn, done - 1), executed_psn) >= 0)
			violate(flow, "executed-psn", "a packet took effect that the device says did not", op);
		if (done < op->psns && psn_diff(psn_add(op->psn, done), executed_psn) < 0)
			violate(flow, "executed-psn", "a packet did not take effect that the device says did", op);
	}
}

void flow_check_atomics(struct flow *flow, const struct hf_atomic_result *results, unsigned n, unsigned kept)
{
	unsigned found = 0;

	for (uint32_t i = flow->count; i-- > 0 && found < kept;) {
		const struct op *op = &flow->ops[i];

		if (!op_is_atomic(op) || !op->executed)
			continue;
		if (found >= n || results[found].psn != op->psn || results[found].original != op->original) {
			violate(flow, "executed-psn", "an atomic's result was forgotten or is another one", op);
			return;
		}
		found++;
	}
}

/* ---- life cycle ---- */

void area_check(struct execution *execution, const struct area *area)
{
	const uint8_t *memory = (const uint8_t *)(uintptr_t)area->addr;

	if (area->lossy || memcmp(memory, area->shadow, area->bytes) == 0)
		return;
	for (uint64_t i = 0; i < area->bytes; i++)
		if (memory[i] != area->shadow[i]) {
			world_violate(execution->world, "memory",
				"byte %" PRIu64 " of the area at %#" PRIx64 " is not what its effects left", i,
				area->addr);
			return;
		}
}

void execution_init(struct execution *execution, struct world *world)
{
	*execution = (struct execution){.world = world};
	list_init(&execution->flows);
	list_init(&execution->areas);
	list_init(&execution->observers);
	list_init(&execution->owned);
}

void execution_own(struct execution *execution, const void *addr, size_t bytes)
{
	struct area *area = calloc(1, sizeof(*area));

	ensure(area != NULL);
	area->addr = (uintptr_t)addr;
	area->bytes = bytes;
	list_push_back(&execution->owned, &area->node);
}

void execution_watch(struct execution *execution, struct nic_bus *bus)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));

	ensure(watcher != NULL);
	watcher->observer.effect = on_effect;
	watcher->observer.lost = on_lost;
	watcher->execution = execution;
	list_push_back(&execution->observers, &watcher->node);
	bus_observe(bus, &watcher->observer);
}

struct area *execution_add_area(struct execution *execution, void *addr, size_t bytes)
{
	struct area *area = calloc(1, sizeof(*area));

	ensure(area != NULL);
	area->addr = (uintptr_t)addr;
	area->bytes = bytes;
	area->shadow = malloc(bytes);
	ensure(area->shadow != NULL);
	memcpy(area->shadow, addr, bytes);
	list_push_back(&execution->areas, &area->node);
	return area;
}

void execution_drop_area(struct execution *execution, struct area *area)
{
	(void)execution;
	if (area == NULL)
		return;
	list_remove(&area->node);
	free(area->shadow);
	free(area);
}

struct flow *execution_add_flow(struct execution *execution, struct area *target, struct area *words, void *receives,
	void *landing, uint32_t slots, uint32_t slot_bytes, uint32_t mtu_bytes)
{
	struct flow *flow = calloc(1, sizeof(*flow));

	ensure(flow != NULL);
	flow->world = execution->world;
	flow->execution = execution;
	flow->target = target;
	flow->words = words;
	flow->receives = (uintptr_t)receives;
	flow->landing = (uintptr_t)landing;
	flow->slots = slots;
	flow->slot_bytes = slot_bytes;
	flow->mtu_bytes = mtu_bytes;
	flow->tag = ++execution->last_tag;
	list_push_back(&execution->flows, &flow->node);
	return flow;
}

void execution_drop_flow(struct execution *execution, struct flow *flow)
{
	(void)execution;
	if (flow == NULL)
		return;
	list_remove(&flow->node);
	free(flow->ops);
	free(flow);
}

void execution_free(struct execution *execution)
{
	list_for_each_safe (at, &execution->flows)
		execution_drop_flow(execution, container_of(at, struct flow, node));
	list_for_each_safe (at, &execution->owned)
		execution_drop_area(execution, container_of(at, struct area, node));
	list_for_each_safe (at, &execution->areas)
		execution_drop_area(execution, container_of(at, struct area, node));
	while (!list_empty(&execution->observers))
		free(container_of(list_pop_front(&execution->observers), struct watcher, node));
}
