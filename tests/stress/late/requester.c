/* The requester: requests, what becomes of them, and another use of their buffers. */
#include "late.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MS              1000000ull
#define REST_NS_MAX     (5 * MS)
#define LONG_REST_NS    (1200 * MS) /* longer than a target is stopped */
#define DEADLINE_NS_MAX (1500 * MS)
#define CANCEL_NS_MAX   (10 * MS)

struct slot {
	struct hf_transfer_batch *batch; /* NULL: the slot rests */
	bool writes;
	uint64_t offset, length;                               /* in the slot */
	uint64_t rests_until_ns, cancel_ns;                    /* 0: it is not cancelled */
	uint8_t here[LATE_SLOT_BYTES], there[LATE_SLOT_BYTES]; /* what the buffers held before the request */
};

static struct requester {
	struct late_node base;
	struct hf_peer *peer;
	struct hf_segment *segment;
	uint64_t random;
	struct slot slots[LATE_SLOTS];
	uint8_t seen[LATE_SLOT_BYTES];
} requester;

static uint64_t draw(uint64_t n)
{
	uint64_t a = requester.random += 0x9e3779b97f4a7c15ull;

	a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9ull;
	a = (a ^ (a >> 27)) * 0x94d049bb133111ebull;
	return (a ^ (a >> 31)) % n;
}

/* ---- memory of the target ---- */

static void reach(unsigned slot, uint8_t *bytes, bool store)
{
	struct late *late = requester.base.late;
	struct iovec here = {.iov_base = bytes, .iov_len = LATE_SLOT_BYTES};
	struct iovec there = {.iov_base = (void *)(atomic_load(&late->target_memory) + (size_t)slot * LATE_SLOT_BYTES),
		.iov_len = LATE_SLOT_BYTES};
	pid_t pid = atomic_load(&late->target_pid);
	ssize_t n =
		store ? process_vm_writev(pid, &here, 1, &there, 1, 0) : process_vm_readv(pid, &here, 1, &there, 1, 0);

	if (n == (ssize_t)LATE_SLOT_BYTES)
		return;
	fprintf(stderr, "late: the target's memory cannot be looked at: %s\n", strerror(errno));
	_exit(errno == EPERM ? 77 : 2);
}

static uint8_t *local(unsigned slot)
{
	return requester.base.memory + (size_t)slot * LATE_SLOT_BYTES;
}

/* Neither buffer has changed since they got another use. */
static void check_rest(unsigned i)
{
	struct slot *slot = &requester.slots[i];

	if (memcmp(local(i), slot->here, LATE_SLOT_BYTES) != 0)
		late_violate(requester.base.late, "slot %u: a foreign byte in the requester's buffer", i);
	reach(i, requester.seen, false);
	if (memcmp(requester.seen, slot->there, LATE_SLOT_BYTES) != 0)
		late_violate(requester.base.late, "slot %u: a foreign byte in the target's buffer", i);
}

static void fill(uint8_t *bytes)
{
	uint64_t word = draw(UINT64_MAX);

	for (size_t i = 0; i < LATE_SLOT_BYTES; i += sizeof(word)) {
		word ^= word << 13;
		word ^= word >> 7;
		word ^= word << 17;
		memcpy(bytes + i, &word, sizeof(word));
	}
}

static void use_otherwise(unsigned i)
{
	struct slot *slot = &requester.slots[i];

	fill(slot->here);
	fill(slot->there);
	memcpy(local(i), slot->here, LATE_SLOT_BYTES);
	reach(i, slot->there, true);
}

/* ---- ends ---- */

static void check_end(unsigned i, enum hf_transfer_status status)
{
	struct slot *slot = &requester.slots[i];
	const uint8_t *sent = slot->writes ? slot->here : slot->there,
		      *before = slot->writes ? slot->there : slot->here;
	const uint8_t *source = slot->writes ? local(i) : requester.seen,
		      *to = slot->writes ? requester.seen : local(i);

	reach(i, requester.seen, false);
	if (memcmp(source, sent, LATE_SLOT_BYTES) != 0)
		late_violate(requester.base.late, "slot %u: a foreign byte in the source", i);
	for (uint64_t at = 0; at < LATE_SLOT_BYTES; at++) {
		bool within = at >= slot->offset && at < slot->offset + slot->length;
		bool fine = within && to[at] == sent[at];

		fine |= (!within || status != HF_TRANSFER_COMPLETED) && to[at] == before[at];
		if (fine)
			continue;
		late_violate(requester.base.late, "slot %u: byte %" PRIu64 " after status %d is neither old nor new", i,
			at, (int)status);
		return;
	}
}

static void take_end(unsigned i, uint64_t now_ns)
{
	struct slot *slot = &requester.slots[i];
	enum hf_transfer_status status = hf_transfer_batch_status(slot->batch);

	if (slot->cancel_ns != 0 && now_ns >= slot->cancel_ns) {
		slot->cancel_ns = 0;
		(void)hf_transfer_cancel(slot->batch, 0);
	}
	if (status == HF_TRANSFER_PENDING)
		return;
	check_end(i, status);
	use_otherwise(i);
	atomic_fetch_add(&requester.base.late->ended[status], 1);
	atomic_fetch_sub(&requester.base.late->pending, 1);
	if (hf_transfer_batch_free(slot->batch) != 0)
		late_violate(requester.base.late, "slot %u: a batch that has ended is busy", i);
	slot->batch = NULL;
	slot->rests_until_ns = now_ns + (draw(16) == 0 ? draw(LONG_REST_NS) : draw(REST_NS_MAX));
}

/* ---- requests ---- */

static void ask(unsigned i, uint64_t now_ns)
{
	struct slot *slot = &requester.slots[i];
	struct late *late = requester.base.late;
	struct hf_transfer_request request = {.segment = requester.segment};
	struct hf_error error = {0};
	unsigned first;

	slot->writes = draw(2) == 0;
	slot->offset = draw(2) == 0 ? 0 : draw(LATE_SLOT_BYTES);
	slot->length = slot->offset == 0 ? LATE_SLOT_BYTES : 1 + draw(LATE_SLOT_BYTES - slot->offset);
	slot->cancel_ns = draw(8) == 0 ? now_ns + draw(CANCEL_NS_MAX) : 0;
	request.opcode = slot->writes ? HF_TRANSFER_WRITE : HF_TRANSFER_READ;
	request.source = local(i) + slot->offset;
	request.target_offset = atomic_load(&late->target_memory) + (size_t)i * LATE_SLOT_BYTES + slot->offset;
	request.length = slot->length;
	request.deadline_ns = draw(3) == 0 ? now_ns + (draw(DEADLINE_NS_MAX) >> draw(10)) : 0;
	if (hf_transfer_batch_alloc(requester.base.engine, 1, NULL, NULL, &slot->batch) != 0)
		abort();
	atomic_fetch_add(&late->pending, 1);
	if (hf_transfer_submit(slot->batch, &request, 1, &first, &error) == 0)
		return;
	atomic_fetch_sub(&late->pending, 1); /* nothing is registered there now, as the peer says */
	(void)hf_transfer_batch_free(slot->batch);
	slot->batch = NULL;
}

static void on_segment(struct hf_transfer *engine, struct hf_peer *peer, void *context)
{
	(void)context;
	requester.segment = hf_transfer_segment(engine, peer);
}

static void peer_down(struct hf_peer *peer, void *context)
{
	(void)peer, (void)context;
	requester.peer = NULL;
	requester.segment = NULL;
}

static void turn(void)
{
	struct hf_addr target = late_control(requester.base.late, true);
	uint64_t now_ns;

	hf_loop_turn(requester.base.loop, MS);
	atomic_fetch_add(&requester.base.late->turns, 1);
	if (requester.peer == NULL)
		(void)hf_peer_connect(requester.base.node, &target, 1, &requester.peer, NULL);
	now_ns = hf_env_now_ns(hf_env_host());
	for (unsigned i = 0; i < LATE_SLOTS; i++) {
		if (requester.slots[i].batch != NULL) {
			take_end(i, now_ns);
		} else if (now_ns >= requester.slots[i].rests_until_ns && requester.segment != NULL &&
			   atomic_load(&requester.base.late->ending) == 0) {
			check_rest(i);
			ask(i, now_ns);
		}
	}
}

static void count_bytes(struct late *late)
{
	struct hf_transfer_counters counters;

	hf_transfer_counters(requester.base.engine, &counters);
	atomic_store(&late->tcp_bytes, counters.tcp_bytes);
	atomic_store(&late->rail_bytes, counters.rail_bytes[0] + counters.rail_bytes[1]);
}

int late_requester(struct late *late)
{
	static const struct hf_node_events events = {.peer_down = peer_down};
	static const struct hf_transfer_events transfer_events = {.segment = on_segment};

	requester.random = late->seed;
	late_node_open(&requester.base, late, false, &events, &transfer_events, NULL);
	for (unsigned i = 0; i < LATE_SLOTS; i++)
		use_otherwise(i);
	while (atomic_load(&late->ending) == 0 || atomic_load(&late->pending) > 0) {
		turn();
		count_bytes(late);
	}
	for (unsigned i = 0; i < LATE_SLOTS; i++)
		check_rest(i);
	return 0;
}
