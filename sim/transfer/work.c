/* A node's requests: what is asked for, and what is looked at when each of them ends. */
#include "sim/transfer/transfer.h"

#include <inttypes.h>

#include "base/ensure.h"

#define REST_NS_MAX     (4 * NS_MS)
#define AGAIN_NS        (200 * NS_US) /* where nothing can be asked for now */
#define CANCEL_PPM      150000u       /* of batches */
#define DEADLINE_PPM    150000u
#define TCP_PPM         200000u /* of batches that want tcp first */
#define WHOLE_PPM       500000u /* of batches whose requests are next to each other, and are merged */
#define CANCEL_NS_MAX   (3 * NS_MS)
#define DEADLINE_NS_MAX (400 * NS_MS)
#define SETTLE_NS       (250 * NS_MS) /* from the end of a fault until a path carries again */
#define BOUND_NS        (3 * NS_S)    /* of R-T4, and until a peer that left counts as dead */
#define LONG_NS         (50 * NS_MS)  /* a deadline that nothing but trouble can miss */

static bool is_terminal(enum hf_transfer_status status)
{
	return status != HF_TRANSFER_INITIAL && status != HF_TRANSFER_PENDING;
}

/* ---- ends ---- */

static bool path_well(const struct tr_node *node, unsigned other, unsigned path, uint64_t since_ns)
{
	return tr_path_was_well(node->tr, node->index, other, path, since_ns);
}

/* Whether the request may fail: no transport that it may take has had a path all the time. */
static bool may_fail(const struct tr_node *node, unsigned other, const struct tr_slot *slot)
{
	const struct tr_side *side = &node->sides[other];
	uint64_t since_ns = slot->begun_ns > SETTLE_NS ? slot->begun_ns - SETTLE_NS : 0;
	bool rails = path_well(node, other, 0, since_ns) || path_well(node, other, 1, since_ns);
	bool tcp = path_well(node, other, TR_MANAGEMENT, since_ns);

	if (side->registered_ns != 0 && side->registered_ns >= since_ns)
		return true;
	return node->trips.attempts == 0 ? !rails || !tcp : !rails && !tcp;
}

static bool may_time_out(const struct tr_node *node, unsigned other, const struct tr_slot *slot)
{
	uint64_t since_ns = slot->begun_ns > SETTLE_NS ? slot->begun_ns - SETTLE_NS : 0;
	bool well = true;

	for (unsigned i = 0; i < TR_PATHS; i++)
		well = well && path_well(node, other, i, since_ns);
	return !well || slot->deadline_ns - slot->begun_ns < LONG_NS;
}

static void check_status(
	const struct tr_node *node, unsigned other, const struct tr_slot *slot, enum hf_transfer_status status)
{
	struct world *world = node->tr->world;
	uint32_t number = slot->move->number;

	if (status == HF_TRANSFER_INVALID)
		world_violate(world, "terminal", "request %" PRIu32 " is told to be invalid", number);
	if (status == HF_TRANSFER_CANCELED && !slot->cancelled)
		world_violate(world, "terminal", "request %" PRIu32 " is canceled, and nobody asked for that", number);
	if (status == HF_TRANSFER_TIMEOUT && (slot->deadline_ns == 0 || world->now_ns + NS_MS < slot->deadline_ns))
		world_violate(world, "terminal", "request %" PRIu32 " times out before its deadline", number);
	if (status == HF_TRANSFER_TIMEOUT && slot->deadline_ns != 0 && !may_time_out(node, other, slot))
		world_violate(world, "vacuous", "request %" PRIu32 " times out after %.3f ms on paths without a fault",
			number, (double)(world->now_ns - slot->begun_ns) / 1e6);
	if (status == HF_TRANSFER_FAILED && !may_fail(node, other, slot))
		world_violate(world, "vacuous",
			"request %" PRIu32 " of %s to %s fails although a path was there all "
			"the time",
			number, node->endpoint.host.name, node->tr->nodes[other].endpoint.host.name);
}

/* The memory gets another use: whatever comes late meets other bytes. */
static void reuse(struct moves *moves, struct move_area *area, uint32_t generation, size_t offset)
{
	if (area->generation != generation)
		return;
	moves_check(moves, area, offset, TR_SLOT_BYTES);
	moves_fill(moves, area, offset, TR_SLOT_BYTES);
}

static void end_request(struct tr_node *node, unsigned other, unsigned i, enum hf_transfer_status status)
{
	struct tr_side *side = &node->sides[other];
	struct tr_slot *slot = &side->slots[i];
	bool writes = slot->move->to == side->target;
	uint32_t target = writes ? slot->move->to_generation : slot->move->from_generation;
	uint32_t local = writes ? slot->move->from_generation : slot->move->to_generation;

	world_trace(node->tr->world, "  request %" PRIu32 " ends: status %d", slot->move->number, (int)status);
	if (node->tr->times == NULL) {
		check_status(node, other, slot, status);
	} else if (status == HF_TRANSFER_COMPLETED) {
		node->tr->times->sum_ns[other] += node->tr->world->now_ns - slot->begun_ns;
		node->tr->times->count[other]++;
	} else {
		node->tr->times->failed[other]++;
	}
	if (writes && node->tr->nodes[other].endpoint.process->running)
		tr_drain(&node->tr->nodes[other]);
	moves_end(&node->tr->moves, slot->move, status == HF_TRANSFER_COMPLETED);
	reuse(&node->tr->moves, side->target, target, (size_t)i * TR_SLOT_BYTES);
	reuse(&node->tr->moves, side->local, local, (size_t)i * TR_SLOT_BYTES);
	*slot = (struct tr_slot){0};
	node->tr->outcome->operations += status == HF_TRANSFER_COMPLETED;
	node->tr->outcome->failed += status == HF_TRANSFER_FAILED;
	side->completed += status == HF_TRANSFER_COMPLETED && node->tr->world->now_ns >= node->tr->quiet_ns;
}

static enum hf_transfer_status status_of(const struct tr_batch *batch, unsigned task)
{
	enum hf_transfer_status status;

	ensure(hf_transfer_task_status(batch->batch, task, &status, NULL) == 0);
	return status;
}

static bool take_batch(struct tr_node *node, struct tr_batch *batch)
{
	bool any = false;

	for (unsigned i = 0; i < batch->count; i++) {
		enum hf_transfer_status before = batch->tasks[i].status, status = status_of(batch, i);

		if (is_terminal(before) && before != status)
			world_violate(node->tr->world, "terminal", "a request ends as %d, and then as %d", (int)before,
				(int)status);
		if (is_terminal(before) || !is_terminal(status))
			continue;
		batch->tasks[i].status = status;
		batch->pending--;
		end_request(node, batch->tasks[i].other, batch->tasks[i].slot, status);
		any = true;
	}
	return any;
}

static void on_idle(struct hf_transfer_batch *ended, void *context)
{
	struct tr_node *node = context;

	for (unsigned i = 0; i < TR_BATCHES && !node->stopped; i++)
		if (node->batches[i].batch == ended)
			(void)take_batch(node, &node->batches[i]);
}

bool tr_take_ends(struct tr_node *node)
{
	bool any = false;

	for (unsigned i = 0; i < TR_BATCHES; i++) {
		struct tr_batch *batch = &node->batches[i];

		if (batch->batch == NULL)
			continue;
		any |= take_batch(node, batch);
		if (any || batch->pending > 0) /* in a later turn its statuses are looked at again */
			continue;
		if (hf_transfer_batch_free(batch->batch) != 0)
			world_violate(node->tr->world, "terminal", "a batch whose requests have ended is busy");
		*batch = (struct tr_batch){0};
	}
	return any;
}

/* ---- cancels and bounds ---- */

void tr_cancel_due(struct tr_node *node)
{
	for (unsigned other = 0; other < TR_NODES; other++)
		for (unsigned i = 0; i < TR_SLOTS; i++) {
			struct tr_slot *slot = &node->sides[other].slots[i];

			if (slot->move == NULL || slot->cancel_ns == 0 || slot->cancelled ||
				node->tr->world->now_ns < slot->cancel_ns)
				continue;
			slot->cancelled = true;
			ensure(hf_transfer_cancel(slot->batch->batch, slot->task) == 0);
		}
}

static void check_bound(const struct tr_node *node, const struct tr_slot *slot)
{
	uint64_t from_ns = slot->deadline_ns;
	uint64_t paused_ns = process_paused_ns(node->endpoint.process) - slot->paused_ns;

	if (from_ns == 0 || node->tr->world->now_ns <= from_ns + BOUND_NS + paused_ns)
		return;
	world_violate(node->tr->world, "bound", "request %" PRIu32 " is pending %.3f s after its deadline",
		slot->move->number, (double)(node->tr->world->now_ns - from_ns) / 1e9);
}

void tr_check_bounds(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++)
		for (unsigned other = 0; other < TR_NODES; other++)
			for (unsigned k = 0; k < TR_SLOTS; k++)
				if (tr->nodes[i].sides[other].slots[k].move != NULL)
					check_bound(&tr->nodes[i], &tr->nodes[i].sides[other].slots[k]);
}

unsigned tr_pending(const struct tr *tr)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TR_NODES; i++)
		for (unsigned other = 0; other < TR_NODES; other++)
			for (unsigned k = 0; k < TR_SLOTS; k++)
				n += tr->nodes[i].sides[other].slots[k].move != NULL;
	return n;
}

/* ---- new requests ---- */

/* The peer has said that it has registered this memory for us. */
static bool is_offered(const struct tr_node *node, const struct tr_side *side)
{
	uint64_t addr, bytes;

	if (side->segment == NULL || side->leaving || side->admitted != node->endpoint.process->incarnation ||
		!side->target->registered)
		return false;
	for (unsigned i = 0; hf_segment_buffer(side->segment, i, &addr, &bytes); i++)
		if (addr == (uintptr_t)side->target->memory)
			return true;
	return false;
}

static struct tr_batch *free_batch(struct tr_node *node)
{
	for (unsigned i = 0; i < TR_BATCHES; i++)
		if (node->batches[i].batch == NULL)
			return &node->batches[i];
	return NULL;
}

/* Some slots in a row that are free, from a place of chance. */
static unsigned pick_slots(struct world *world, const struct tr_side *side, unsigned *first_out)
{
	unsigned most = (unsigned)world_range(world, 1, TR_BATCH), n = 0;

	*first_out = (unsigned)world_range(world, 0, TR_SLOTS - 1);
	while (n < most && *first_out + n < TR_SLOTS && side->slots[*first_out + n].move == NULL)
		n++;
	return n;
}

static void add_request(struct tr_node *node, struct tr_batch *batch, unsigned other, unsigned i, bool writes,
	bool whole, struct hf_transfer_request *request)
{
	struct tr_side *side = &node->sides[other];
	struct world *world = node->tr->world;
	size_t begin = whole ? 0 : world_range(world, 0, TR_SLOT_BYTES - 1);
	size_t bytes = whole ? TR_SLOT_BYTES : world_range(world, 1, TR_SLOT_BYTES - begin);
	size_t offset = (size_t)i * TR_SLOT_BYTES + begin;
	const struct move move = {.from = writes ? side->local : side->target,
		.to = writes ? side->target : side->local,
		.from_offset = offset,
		.to_offset = offset,
		.bytes = bytes};

	*request = (struct hf_transfer_request){.opcode = writes ? HF_TRANSFER_WRITE : HF_TRANSFER_READ,
		.source = side->local->memory + offset,
		.segment = side->segment,
		.target_offset = (uintptr_t)side->target->memory + offset,
		.length = bytes};
	side->slots[i] = (struct tr_slot){.move = moves_begin(&node->tr->moves, &move),
		.batch = batch,
		.task = batch->count,
		.paused_ns = process_paused_ns(node->endpoint.process),
		.begun_ns = world->now_ns};
	world_trace(world, "  %s asks %s: request %" PRIu32 " %s %zu bytes at %zu", node->endpoint.host.name,
		node->tr->nodes[other].endpoint.host.name, side->slots[i].move->number, writes ? "WRITE" : "READ",
		bytes, offset);
	batch->tasks[batch->count].other = other;
	batch->tasks[batch->count].slot = i;
	batch->tasks[batch->count++].status = HF_TRANSFER_PENDING;
}

/* Cancels and deadlines of a whole batch or of some of its requests. */
static void set_ends(struct tr_node *node, const struct tr_batch *batch, struct hf_transfer_request *requests)
{
	struct world *world = node->tr->world;
	uint64_t hf_now_ns = hf_loop_now_ns(node->endpoint.loop);
	uint64_t cancel_ns = world_chance(world, CANCEL_PPM) ? world->now_ns + world_range(world, 0, CANCEL_NS_MAX) : 0;
	uint64_t deadline_ns = world_chance(world, DEADLINE_PPM)
				       ? world_range(world, NS_US, DEADLINE_NS_MAX) >> world_range(world, 0, 10)
				       : 0;
	bool all = world_chance(world, 500000);

	for (unsigned i = 0; i < batch->count; i++) {
		struct tr_slot *slot = &node->sides[batch->tasks[i].other].slots[batch->tasks[i].slot];

		if (cancel_ns != 0 && (all || world_chance(world, 500000)))
			slot->cancel_ns = cancel_ns;
		if (deadline_ns == 0)
			continue;
		slot->deadline_ns = world->now_ns + deadline_ns;
		requests[i].deadline_ns = hf_now_ns + deadline_ns;
	}
}

static void submit_batch(struct tr_node *node, struct tr_batch *batch, unsigned other, unsigned first, unsigned n)
{
	struct world *world = node->tr->world;
	struct hf_transfer_request requests[TR_BATCH];
	bool whole = node->tr->times != NULL || world_chance(world, WHOLE_PPM), writes = world_chance(world, 500000);
	bool calm = node->tr->times != NULL, tcp = !calm && world_chance(world, TCP_PPM);
	struct hf_error error = {0};
	unsigned task;

	ensure(hf_transfer_batch_alloc(node->engine, TR_BATCH, on_idle, node, &batch->batch) == 0);
	for (unsigned i = 0; i < n; i++) {
		add_request(node, batch, other, first + i, whole ? writes : world_chance(world, 500000), whole,
			&requests[i]);
		requests[i].hinted = tcp;
		requests[i].hint = HF_TRANSPORT_TCP;
	}
	if (!calm)
		set_ends(node, batch, requests);
	batch->pending = n;
	node->posted += n;
	if (hf_transfer_submit(batch->batch, requests, n, &task, &error) != 0)
		world_violate(world, "submit", "%s", error.text);
}

void tr_submit(struct tr_node *node, uint64_t now_ns)
{
	struct tr *tr = node->tr;
	struct world *world = tr->world;
	unsigned other = (node->index + (unsigned)world_range(world, 1, TR_NODES - 1)) % TR_NODES, first, n;
	struct tr_batch *batch = free_batch(node);
	uint64_t rest_ns =
		world_range(world, 0, REST_NS_MAX) >> world_range(world, 0, world->now_ns < tr->quiet_ns ? 6 : 2);
	uint64_t wait_ns = faults_wait_ns(&tr->faults, node->posted, TR_TASKS_MAX);

	node->next_ns = now_ns + AGAIN_NS;
	if (batch == NULL || !is_offered(node, &node->sides[other]))
		return;
	n = pick_slots(world, &node->sides[other], &first);
	if (n == 0)
		return;
	submit_batch(node, batch, other, first, n);
	node->next_ns = now_ns + (rest_ns > wait_ns ? rest_ns : wait_ns);
}

void tr_submit_all(struct tr_node *node, unsigned other)
{
	struct tr_side *side = &node->sides[other];

	if (!is_offered(node, side))
		return;
	for (unsigned first = 0; first < TR_SLOTS; first += TR_BATCH) {
		struct tr_batch *batch = free_batch(node);
		bool free = batch != NULL;

		for (unsigned i = 0; i < TR_BATCH && free; i++)
			free = side->slots[first + i].move == NULL;
		if (free)
			submit_batch(node, batch, other, first, TR_BATCH);
	}
}
