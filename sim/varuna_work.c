/* What the ends of a link post, and what they make of completions. */
#include "sim/varuna.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "dev/qp_rules.h"
#include "vqp/objects.h"

#define LIST_MAX          4u
#define SGES_MAX          3u
#define INLINE_MAX        64u
#define REST_NS_MAX       (1 * NS_MS)
#define RECEIVE_BIT       (1ull << 32)
#define SAME_ID           0x5a5au
#define BUDGET_SLACK_NS   (1 * NS_S) /* for the error to be found, and for pauses */
#define CULPRIT_PPM       400u       /* of wrs, which name a wrong key */
#define SHARED_PPM        100000u    /* and of those on a standby qp, where others could suffer */
#define CULPRIT_FAILOVERS 20u        /* of its vqp until it is told, where faults come together with it */
#define NO_CULPRIT        UINT32_MAX

struct posting {
	struct ibv_send_wr wr;
	struct ibv_sge sges[SGES_MAX];
};

uint32_t vr_in_flight(const struct vr_end *end)
{
	return !end->accepted ? 0 : end->flow->count - end->flow->next_completed;
}

/* ---- flows ---- */

static unsigned word_of(const struct vr_end *end, const struct op *op)
{
	return (unsigned)((op->target - (uintptr_t)end->words->at) / 8);
}

/* What became of atomics of which nobody was told, the buses have shown. */
static void settle_atomics(struct vr_end *end)
{
	struct flow *flow = end->flow;

	for (uint32_t i = flow->count > VR_SLOTS ? flow->count - VR_SLOTS : 0; i < flow->count; i++) {
		const struct op *op = &flow->ops[i];
		size_t index = end->history[i % VR_SLOTS];

		if (!op_is_atomic(op) || (op->completed && !op->failed))
			continue;
		if (op->executed)
			linear_complete(&end->words->history[word_of(end, op)], index, op->original, UINT64_MAX);
		else
			linear_withdraw(&end->words->history[word_of(end, op)], index);
	}
}

void vr_end_flows(struct vr_link *link)
{
	for (unsigned i = 0; i < 2; i++) {
		if (link->ends[i].flow != NULL)
			settle_atomics(&link->ends[i]);
		execution_drop_flow(&link->vr->execution, link->ends[i].flow);
		link->ends[i].flow = NULL;
	}
}

void vr_begin_flows(struct vr_link *link)
{
	struct vr *vr = link->vr;

	vr_end_flows(link);
	link->quit = false;
	for (unsigned i = 0; i < 2; i++) {
		struct vr_end *end = &link->ends[i], *other = &link->ends[1 - i];

		end->words = other->node->words;
		memset(end->seen, 0, sizeof(end->seen));
		end->flow =
			execution_add_flow(&vr->execution, other->target, end->words->area, other->memory + VR_WINDOW,
				end->memory + 3 * VR_WINDOW, VR_SLOTS, VR_SLOT_BYTES, 128u << vr->config.rails[0].mtu);
		end->accepted = true;
		end->flow->exactly_once = true;
		end->flow->unlogged = vr->config.evidence == HF_EVIDENCE_PSN;
		end->hot = world_chance(vr->world, 200000);
		end->same_id = world_chance(vr->world, 200000);
		end->atomics = world_chance(vr->world, 60000);
		end->culprit = NO_CULPRIT;
		end->unknown_writes = 0;
		end->failed = end->may_fail = false;
		end->next_post_ns = 0;
	}
}

/* ---- making wrs ---- */

static uint32_t pick_bytes(struct world *world)
{
	if (world_chance(world, 400000))
		return (uint32_t)world_range(world, 1, INLINE_MAX);
	if (world_chance(world, 300000))
		return VR_SLOT_BYTES;
	return (uint32_t)world_range(world, 8, VR_SLOT_BYTES);
}

static enum op_kind pick_kind(struct world *world, bool atomics, bool messages)
{
	static const enum op_kind no_messages[] = {
		OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_READ, OP_READ, OP_CAS, OP_FAA};
	static const enum op_kind mix[] = {OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE_IMM, OP_WRITE_IMM, OP_SEND,
		OP_SEND, OP_READ, OP_READ, OP_CAS, OP_CAS, OP_FAA, OP_FAA};

	if (atomics)
		return world_chance(world, 500000) ? OP_CAS : OP_FAA;
	if (!messages)
		return no_messages[world_range(world, 0, sizeof(no_messages) / sizeof(no_messages[0]) - 1)];
	return mix[world_range(world, 0, sizeof(mix) / sizeof(mix[0]) - 1)];
}

static void make_atomic(struct vr_end *end, struct op *op)
{
	struct world *world = end->link->vr->world;
	unsigned word = (unsigned)world_range(world, 0, VR_WORDS - 1);

	op->bytes = 8;
	op->target = (uintptr_t)&end->words->at[word];
	op->argument = rng_next(&world->rng);
	op->compare = op->kind == OP_CAS ? end->seen[word] : 0;
	end->history[end->flow->count % VR_SLOTS] =
		linear_post(&end->words->history[word], op->kind == OP_CAS, op->argument, op->compare, world->now_ns);
}

static struct op *make_op(struct vr_end *end, bool signaled)
{
	struct world *world = end->link->vr->world;
	struct op op = {.kind = pick_kind(world, end->atomics, !end->link->vr->lingers),
		.bytes = pick_bytes(world),
		.unsignaled = !signaled};
	uint64_t target = (uintptr_t)vr_other(end)->memory;

	op.imm = (uint32_t)rng_next(&world->rng);
	op.fenced = world_chance(world, 70000);
	op.idempotent = op.kind == OP_WRITE && end->link->vr->repeats && end->flow->count % 3 != 0;
	op.target = target + (end->flow->count % VR_SLOTS) * VR_SLOT_BYTES;
	if (op.kind == OP_READ) /* of what one of the last wrs may have written */
		op.target = target + world_range(world, 0, VR_SLOTS - 1) * VR_SLOT_BYTES;
	if (op_is_atomic(&op))
		make_atomic(end, &op);
	return flow_post(end->flow, &op);
}

static bool goes_out(const struct op *op)
{
	return op->kind == OP_WRITE || op->kind == OP_WRITE_IMM || op->kind == OP_SEND;
}

static void fill_local(struct vr_end *end, const struct op *op, struct posting *posting)
{
	struct world *world = end->link->vr->world;
	uint8_t *local =
		end->memory + (goes_out(op) ? 2 : 3) * VR_WINDOW + (op->number % VR_SLOTS) * (size_t)VR_SLOT_BYTES;
	uint32_t left = op->bytes;

	if (goes_out(op))
		flow_payload(end->flow, op->number, 0, op->bytes, local);
	posting->wr.sg_list = posting->sges;
	if (goes_out(op) && op->bytes <= INLINE_MAX && world_chance(world, 500000))
		posting->wr.send_flags |= IBV_SEND_INLINE;
	while (left > 0) {
		bool split = op->kind != OP_CAS && op->kind != OP_FAA && posting->wr.num_sge + 1 < (int)SGES_MAX &&
			     left > 8 && world_chance(world, 200000);
		uint32_t n = split ? 8 * (uint32_t)world_range(world, 1, left / 8) : left;

		posting->sges[posting->wr.num_sge++] =
			(struct ibv_sge){.addr = (uintptr_t)local, .length = n, .lkey = end->node->endpoint.mr->lkey};
		local += n;
		left -= n;
	}
}

static uint64_t failovers_of(const struct vr_end *end)
{
	struct hf_vqp_counters counters;

	hf_vqp_counters(end->vqp, &counters);
	return counters.failovers;
}

static void fill_remote(struct vr_end *end, const struct op *op, struct ibv_send_wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_SEND] = IBV_WR_SEND_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ,
		[OP_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[OP_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	uint32_t rkey = vr_other(end)->node->endpoint.mr->rkey;

	wr->opcode = opcodes[op->kind];
	wr->imm_data = htobe32(op->imm);
	if (op->kind == OP_WRITE && end->culprit == NO_CULPRIT &&
		world_chance(end->link->vr->world, end->vqp->path->shared != NULL ? SHARED_PPM : CULPRIT_PPM)) {
		end->culprit = op->number;
		end->link->culprits++;
		end->failovers_before = failovers_of(end);
		end->culprit_ns = end->link->vr->world->now_ns;
		rkey ^= 1u << 31;
	}
	if (op_is_atomic(op)) {
		wr->wr.atomic.remote_addr = op->target;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = op->kind == OP_CAS ? op->compare : op->argument;
		wr->wr.atomic.swap = op->argument;
	} else {
		wr->wr.rdma.remote_addr = op->target;
		wr->wr.rdma.rkey = rkey;
	}
}

/* What the caller may do to its own memory as soon as the post has returned. */
static void reuse(struct posting *postings, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (postings[i].wr.send_flags & IBV_SEND_INLINE)
			for (int s = 0; s < postings[i].wr.num_sge; s++)
				memset((void *)(uintptr_t)postings[i].sges[s].addr, 0xee, postings[i].sges[s].length);
	memset(postings, 0xee, n * sizeof(*postings));
}

static void post_list(struct vr_end *end, unsigned n)
{
	struct posting postings[LIST_MAX] = {0}, copies[LIST_MAX];
	struct world *world = end->link->vr->world;
	struct ibv_send_wr *bad;
	uint32_t first = end->flow->count;
	int rc;

	for (unsigned i = 0; i < n; i++) {
		struct posting *posting = &postings[i];
		bool signaled = end->same_id || i + 1 == n || world_chance(world, 600000);
		const struct op *op = make_op(end, signaled);

		posting->wr.wr_id = end->same_id ? SAME_ID : op->number;
		posting->wr.next = i + 1 < n ? &postings[i + 1].wr : NULL;
		posting->wr.send_flags = (signaled ? IBV_SEND_SIGNALED : 0) | (op->fenced ? IBV_SEND_FENCE : 0) |
					 (op->idempotent ? HF_SEND_IDEMPOTENT : 0);
		fill_local(end, op, posting);
		fill_remote(end, op, &posting->wr);
	}
	memcpy(copies, postings, sizeof(postings));
	rc = hf_vqp_post_send(end->vqp, &postings[0].wr, &bad);
	if (rc != 0)
		world_violate(world, "posting", "well-formed wrs from %u on were refused: %s", first, strerror(-rc));
	if (memcmp(copies, postings, sizeof(postings)) != 0)
		world_violate(world, "wr", "the caller's wrs from %u on were written to", first);
	reuse(postings, n);
}

bool vr_post(struct vr_end *end, uint64_t now_ns)
{
	struct vr *vr = end->link->vr;
	unsigned n = (unsigned)world_range(vr->world, 1, LIST_MAX);
	uint64_t wait_ns;

	if (end->vqp == NULL || !end->accepted || vr_other(end)->memory == NULL || now_ns < end->next_post_ns ||
		vr->stopping || hf_vqp_state(end->vqp) == HF_VQP_ERROR || vr_in_flight(end) + n > VR_DEPTH)
		return false;
	wait_ns = faults_wait_ns(&vr->faults, end->flow->count, VR_OPS_MAX);
	if (wait_ns > 0) {
		end->next_post_ns = now_ns + wait_ns;
		return false;
	}
	post_list(end, n);
	end->next_post_ns =
		now_ns + (end->hot || world_chance(vr->world, 300000) ? world_range(vr->world, 0, REST_NS_MAX / 50)
								      : world_range(vr->world, 0, REST_NS_MAX));
	return true;
}

void vr_post_receives(struct vr_end *end)
{
	uint32_t received = !end->accepted ? 0 : vr_other(end)->flow->received;

	while (end->receives_posted < received + VR_SLOTS) {
		uint32_t slot = end->receives_posted % VR_SLOTS;
		uint64_t at = (uintptr_t)end->memory + VR_WINDOW + (uint64_t)slot * VR_SLOT_BYTES;
		struct ibv_sge sges[2] = {{.addr = at, .length = VR_SLOT_BYTES, .lkey = end->node->endpoint.mr->lkey}};
		struct ibv_recv_wr wr = {.wr_id = RECEIVE_BIT | end->receives_posted, .sg_list = sges, .num_sge = 1};
		struct ibv_recv_wr *bad;

		if (slot % 2 == 1) {
			sges[0].length = 512;
			sges[1] = sges[0];
			sges[1].addr += 512;
			sges[1].length = VR_SLOT_BYTES - 512;
			wr.num_sge = 2;
		}
		if (hf_vqp_post_recv(end->vqp, &wr, &bad) != 0)
			return;
		end->receives_posted++;
	}
}

/* ---- completions ---- */

static void check_wc(struct vr_end *end, const struct op *op, const struct ibv_wc *wc)
{
	static const enum ibv_wc_opcode opcodes[] = {
		[OP_WRITE] = IBV_WC_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WC_RDMA_WRITE,
		[OP_SEND] = IBV_WC_SEND,
		[OP_READ] = IBV_WC_RDMA_READ,
		[OP_CAS] = IBV_WC_COMP_SWAP,
		[OP_FAA] = IBV_WC_FETCH_ADD,
	};
	bool has_length = op->kind == OP_READ || op_is_atomic(op);

	if (wc->opcode != opcodes[op->kind] || (has_length && wc->byte_len != op->bytes))
		world_violate(end->link->vr->world, "completed", "wr %u: its wc has opcode %d and %u bytes", op->number,
			(int)wc->opcode, wc->byte_len);
}

/* Also of one without a signal, once one behind it has completed. */
static void take_atomic(struct vr_end *end, const struct op *op)
{
	unsigned word;
	uint64_t original;

	if (!op_is_atomic(op))
		return;
	word = word_of(end, op);
	original = get_le64(end->memory + 3 * VR_WINDOW + (op->number % VR_SLOTS) * (size_t)VR_SLOT_BYTES);
	linear_complete(&end->words->history[word], end->history[op->number % VR_SLOTS], original,
		end->link->vr->world->now_ns);
	if (op->kind == OP_FAA)
		end->seen[word] = original + op->argument;
	else
		end->seen[word] = original == op->compare ? op->argument : original;
}

/* The NAK may be lost with the qp, when others are quicker to fence it; the exchange tells then, once all before it is
 * done. Where rails lose data, or the responses of what is before it, each failover is one more try, and rightly; but
 * it comes when retries are spent, or half of them together with others (peer_rails.c). */
static void check_culprit(const struct vr_end *end)
{
	const struct vr *vr = end->link->vr;
	uint64_t retries_ns = qp_rules_budget_ns(vr->config.timeout, vr->config.retry_cnt);
	uint64_t spent = 2 * (vr->world->now_ns - end->culprit_ns) / retries_ns;
	uint64_t failovers = failovers_of(end) - end->failovers_before;

	if (failovers > CULPRIT_FAILOVERS + spent)
		world_violate(
			vr->world, "one-culprit", "a wrong key was tried again in %" PRIu64 " failovers", failovers);
}

/* What is behind it has executed, so it is not issued again (verdict.h). */
static bool is_unsure(const struct vr_end *end, const struct op *op, const struct ibv_wc *wc)
{
	if (op->kind == OP_READ && wc->vendor_err == HF_WC_UNKNOWN)
		for (uint32_t i = op->number + 1; i < end->flow->count; i++)
			if (end->flow->ops[i].fenced)
				return true;
	return false;
}

/* By the first of its wrs that fails: the other end's vqp took it along, or it ends with a READ whose answer nobody
 * knows to have landed. */
static bool may_fail(const struct vr_end *end, const struct op *op, const struct ibv_wc *wc)
{
	const struct vr *vr = end->link->vr;
	bool fences = (vr->caps_masked & HF_DEV_SEND_FENCE) == 0, flushed = wc->status == IBV_WC_WR_FLUSH_ERR;

	return (flushed && (vr->weak || !fences)) || (!fences && is_unsure(end, op, wc));
}

/* What is behind the first one that nobody can say of did not execute. Of atomics the value may be lost besides. */
static bool is_beyond_evidence(struct vr_end *end, const struct op *op, const struct ibv_wc *wc)
{
	const struct vr *vr = end->link->vr;

	end->may_fail |= !end->failed && may_fail(end, op, wc);
	end->failed = true;
	if (wc->vendor_err == HF_WC_UNKNOWN && !op->idempotent && (op->kind == OP_WRITE || op->kind == OP_WRITE_IMM))
		end->unknown_writes++;
	return end->may_fail || (vr->weak && (end->unknown_writes <= 1 || vr->config.evidence == HF_EVIDENCE_PSN));
}

static void take_failure(struct vr_end *end, const struct op *op, const struct ibv_wc *wc)
{
	struct vr *vr = end->link->vr;

	if (op->number == end->culprit)
		check_culprit(end);
	if (op->number == end->culprit && wc->status == IBV_WC_REM_ACCESS_ERR)
		vr->outcome->refused++;
	else if (!is_beyond_evidence(end, op, wc) && !vr_excused(end->link))
		world_violate(vr->world, "lost",
			"link %u: wr %u, of kind %d, failed with status %d, outcome %u, although evidence was to be "
			"had",
			end->link->index, op->number, (int)op->kind, (int)wc->status, wc->vendor_err);
	vr->outcome->failed++;
	vr->outcome->unknown += wc->vendor_err == HF_WC_UNKNOWN;
}

/* By when a wr has completed. An end whose budget is over asks the other one to fence. While control streams are held,
 * or the other one stands still, there is no answer; and where both give up rails that carry nothing, the other one may
 * not have heard of the standby qp. Then it waits for the lease, which is half the budget, and its margins (R5, V4). So
 * does a wr that waits for a key from one that stands still while its NICs answer, before the budget begins. */
static uint64_t allowed_ns(struct vr_end *end)
{
	const struct vr *vr = end->link->vr;
	uint64_t lease_ns = vr->config.budget_ns / 2;
	bool waits = vr->world->faults[FAULT_CONTROL_HELD] > 0 || vr->world->faults[FAULT_DATA_LOST] > 0 ||
		     faults_stalls(&vr->faults, vr_other(end)->node->endpoint.process, lease_ns) > 0;

	return vr->config.budget_ns + BUDGET_SLACK_NS + process_paused_ns(end->node->endpoint.process) +
	       host_suspended_ns(&end->node->endpoint.host) + (waits ? lease_ns + lease_ns / 8 : 0);
}

static void take_send(struct vr_end *end, struct ibv_wc *wc)
{
	struct vr *vr = end->link->vr;
	const struct op *op;
	uint32_t first;

	if (end->same_id && wc->wr_id == SAME_ID)
		wc->wr_id = end->flow->next_completed;
	op = wc->wr_id < end->flow->count ? &end->flow->ops[wc->wr_id] : NULL;
	world_note(vr->world, "wc", wc->wr_id << 8 | wc->status);
	first = end->flow->next_completed;
	if (op != NULL && wc->status != IBV_WC_SUCCESS && wc->vendor_err == HF_WC_NOT_EXECUTED)
		flow_disclaimed(end->flow, op->number);
	flow_completed(end->flow, wc);
	if (op == NULL)
		return;
	for (uint32_t i = first; i < op->number; i++)
		take_atomic(end, &end->flow->ops[i]);
	if (vr->world->now_ns - op->posted_ns > allowed_ns(end))
		world_violate(vr->world, "budget", "wr %u took %.3f s", op->number,
			(double)(vr->world->now_ns - op->posted_ns) / 1e9);
	if (wc->status != IBV_WC_SUCCESS) {
		take_failure(end, op, wc);
		return;
	}
	check_wc(end, op, wc);
	vr->outcome->operations++;
	if (vr->world->now_ns >= vr->faults.quiet_ns)
		end->link->completed_since_quiet++;
	take_atomic(end, op);
}

void vr_take(struct vr_end *end, struct ibv_wc *wc)
{
	if (!end->accepted)
		return; /* receives that nobody will use */
	if ((wc->wr_id & RECEIVE_BIT) == 0) {
		take_send(end, wc);
		return;
	}
	wc->wr_id &= ~RECEIVE_BIT;
	flow_received(vr_other(end)->flow, wc);
	if (wc->status == IBV_WC_SUCCESS)
		vr_post_receives(end);
}
