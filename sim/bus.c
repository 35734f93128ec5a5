/* The posted queue. An entry is a piece of a write or a completion; the event stands at the first one's due time. */
#include "sim/bus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/device.h"

#define LINE_BYTES       64u
#define PIECES_MAX       4u
#define STALL_PPM        2000u /* of entries that everything behind them waits for */
#define STALL_NS_MAX     (60 * NS_US)
#define WRITES_BACK_PPM  500000u /* of NICs that are atomic with nobody else */
#define DIRECT_PPM       250000u /* of writes into an empty queue that are visible at once */
#define ATOMIC_NS_MAX    2000u
#define PROCESSOR_NS_MAX (500 * NS_US) /* the same by a processor that is taken away meanwhile */

struct posted {
	struct list node;
	uint64_t due_ns;
	void *host; /* of a write; NULL: a completion */
	size_t bytes;
	bool restores; /* it writes what a CAS found that failed: when it is lost, nothing is */
	void (*deliver)(void *cq, const struct ibv_wc *wc);
	void *cq;
	struct ibv_wc wc;
	uint8_t data[];
};

struct grant {
	struct list node;
	uint64_t addr, bytes;
};

static struct nic_bus *bus_of(struct soft_bus *bus)
{
	return (struct nic_bus *)(void *)bus;
}

/* ---- isolation ---- */

void bus_grant(struct nic_bus *bus, const void *addr, size_t bytes)
{
	struct grant *grant = malloc(sizeof(*grant));

	ensure(grant != NULL);
	*grant = (struct grant){.addr = (uintptr_t)addr, .bytes = bytes};
	list_push_back(&bus->granted, &grant->node);
}

void bus_revoke(struct nic_bus *bus, const void *addr, size_t bytes)
{
	list_for_each (at, &bus->granted) {
		struct grant *grant = container_of(at, struct grant, node);

		if (grant->addr != (uintptr_t)addr || grant->bytes != bytes)
			continue;
		list_remove(&grant->node);
		free(grant);
		return;
	}
	ensure(false);
}

static bool allowed(struct nic_bus *bus, const void *host, size_t bytes, const char *what)
{
	uint64_t addr = (uintptr_t)host;

	list_for_each (at, &bus->granted) {
		struct grant *grant = container_of(at, struct grant, node);

		if (addr >= grant->addr && addr - grant->addr + bytes <= grant->bytes)
			return true;
	}
	world_violate(bus->world, "isolation", "a NIC %s %zu bytes at %#" PRIx64 ", which is not registered on it",
		what, bytes, addr);
	return false;
}

/* ---- the queue ---- */

static void take_effect(struct nic_bus *bus, struct posted *entry)
{
	list_remove(&entry->node);
	if (entry->host == NULL)
		entry->deliver(entry->cq, &entry->wc);
	else if (allowed(bus, entry->host, entry->bytes, "made visible"))
		memcpy(entry->host, entry->data, entry->bytes);
	free(entry);
}

static void schedule_first(struct nic_bus *bus)
{
	if (list_empty(&bus->queue))
		world_cancel(bus->world, &bus->step);
	else
		world_schedule(bus->world, &bus->step, container_of(bus->queue.next, struct posted, node)->due_ns);
}

static void step(struct world_event *event)
{
	struct nic_bus *bus = container_of(event, struct nic_bus, step);

	bus->held = bus->nic != NULL && bus->nic->process->torn && !bus->nic->process->nics_go_on;
	if (bus->held)
		return;
	while (!list_empty(&bus->queue)) {
		struct posted *entry = container_of(bus->queue.next, struct posted, node);

		if (entry->due_ns > bus->world->now_ns)
			break;
		take_effect(bus, entry);
	}
	schedule_first(bus);
}

void bus_release(struct nic_bus *bus)
{
	if (bus->held)
		schedule_first(bus);
	bus->held = false;
}

static void enqueue(struct nic_bus *bus, struct posted *entry, uint64_t delay_ns)
{
	uint64_t due_ns = bus->world->now_ns + delay_ns;

	if (world_chance(bus->world, STALL_PPM))
		due_ns += world_range(bus->world, 0, STALL_NS_MAX);
	entry->due_ns = due_ns < bus->last_due_ns ? bus->last_due_ns : due_ns;
	bus->last_due_ns = entry->due_ns;
	list_push_back(&bus->queue, &entry->node);
	if (bus->step.slot == 0)
		schedule_first(bus);
}

static struct posted *enqueue_write(struct nic_bus *bus, void *host, const void *from, size_t bytes, uint64_t delay_ns)
{
	struct posted *entry = calloc(1, sizeof(*entry) + bytes);

	ensure(entry != NULL);
	entry->host = host;
	entry->bytes = bytes;
	memcpy(entry->data, from, bytes);
	enqueue(bus, entry, delay_ns);
	return entry;
}

/* Everything up to the last entry that overlaps takes effect: what a read of the same NIC pushes before it. */
static void push_overlapping(struct nic_bus *bus, const void *host, size_t bytes)
{
	const char *from = host, *to = from + bytes;
	struct list *last = NULL;

	list_for_each (at, &bus->queue) {
		struct posted *entry = container_of(at, struct posted, node);
		const char *start = entry->host;

		if (start != NULL && start < to && from < start + entry->bytes)
			last = at;
	}
	for (bool more = last != NULL; more;) {
		more = bus->queue.next != last;
		take_effect(bus, container_of(bus->queue.next, struct posted, node));
	}
	schedule_first(bus);
}

static void tell(struct nic_bus *bus, const struct effect *effect)
{
	list_for_each (at, &bus->observers) {
		struct bus_observer *observer = container_of(at, struct bus_observer, node);

		observer->effect(observer, effect);
	}
}

/* ---- what the NIC calls ---- */

static int bus_check(struct soft_bus *base, const void *host, size_t bytes, bool writes)
{
	(void)base;
	(void)host;
	(void)bytes;
	(void)writes;
	return 0; /* the memory of a simulated host stays */
}

static bool bus_read(struct soft_bus *base, void *to, const void *host, size_t bytes)
{
	struct nic_bus *bus = bus_of(base);

	if (bus->dead || !allowed(bus, host, bytes, "read")) {
		memset(to, 0, bytes);
		return true;
	}
	push_overlapping(bus, host, bytes);
	memcpy(to, host, bytes);
	tell(bus, &(struct effect){.kind = EFFECT_READ, .nic = bus->nic, .host = (uintptr_t)host, .bytes = bytes});
	return true;
}

/* The moment is not the one in which the packet was made: what is posted may become visible between. */
static const void *bus_view(struct soft_bus *base, const void *host, size_t bytes)
{
	(void)base;
	(void)host;
	(void)bytes;
	return NULL;
}

/* In up to PIECES_MAX pieces, cut at cache lines, each visible at its own time. */
static bool bus_write(struct soft_bus *base, void *host, const void *from, size_t bytes)
{
	struct nic_bus *bus = bus_of(base);
	struct effect effect = {
		.kind = EFFECT_WRITE, .nic = bus->nic, .host = (uintptr_t)host, .bytes = bytes, .data = from};

	if (bytes == 0 || bus->dead || !allowed(bus, host, bytes, "wrote"))
		return true;
	tell(bus, &effect);
	if (list_empty(&bus->queue) && world_chance(bus->world, DIRECT_PPM)) {
		memcpy(host, from, bytes);
		return true;
	}
	for (size_t at = 0, piece = 1; at < bytes; piece++) {
		size_t n = bytes - at;

		if (piece < PIECES_MAX && n > LINE_BYTES)
			n = world_range(bus->world, 1, n / LINE_BYTES) * LINE_BYTES -
			    (((uintptr_t)host + at) % LINE_BYTES);
		enqueue_write(
			bus, (char *)host + at, (const char *)from + at, n, world_range(bus->world, 0, bus->lag_ns));
		at += n;
	}
	return true;
}

static bool is_failed_cas(const struct effect *effect)
{
	return effect->kind == EFFECT_CAS && effect->original != effect->compare;
}

static uint64_t new_value(const struct effect *effect)
{
	if (effect->kind == EFFECT_FAA)
		return effect->original + effect->argument;
	return is_failed_cas(effect) ? effect->original : effect->argument;
}

static uint64_t atomic(struct nic_bus *bus, struct effect *effect)
{
	uint64_t *host = (uint64_t *)(uintptr_t)effect->host, result;

	if (bus->dead || !allowed(bus, host, sizeof(*host), "did an atomic of"))
		return 0;
	if (bus->global_atomics)
		bus_drain(bus); /* a request to the root complex does not pass posted writes */
	else
		push_overlapping(bus, host, sizeof(*host));
	effect->original = *host;
	tell(bus, effect);
	if (is_failed_cas(effect) && !bus->writes_back)
		return effect->original;
	result = new_value(effect);
	if (bus->global_atomics)
		*host = result;
	else
		enqueue_write(bus, host, &result, sizeof(result),
			world_range(bus->world, 0, bus->writes_back ? PROCESSOR_NS_MAX : ATOMIC_NS_MAX))
			->restores = is_failed_cas(effect);
	return effect->original;
}

static bool bus_cas(struct soft_bus *base, uint64_t *host, uint64_t compare, uint64_t swap, uint64_t *original_out)
{
	struct nic_bus *bus = bus_of(base);
	struct effect effect = {.kind = EFFECT_CAS,
		.nic = bus->nic,
		.host = (uintptr_t)host,
		.bytes = sizeof(*host),
		.compare = compare,
		.argument = swap};

	*original_out = atomic(bus, &effect);
	return true;
}

static bool bus_faa(struct soft_bus *base, uint64_t *host, uint64_t add, uint64_t *original_out)
{
	struct nic_bus *bus = bus_of(base);
	struct effect effect = {
		.kind = EFFECT_FAA, .nic = bus->nic, .host = (uintptr_t)host, .bytes = sizeof(*host), .argument = add};

	*original_out = atomic(bus, &effect);
	return true;
}

static void bus_complete(
	struct soft_bus *base, void (*deliver)(void *cq, const struct ibv_wc *wc), void *cq, const struct ibv_wc *wc)
{
	struct nic_bus *bus = bus_of(base);
	struct posted *entry;

	if (bus->dead)
		return;
	entry = calloc(1, sizeof(*entry));
	ensure(entry != NULL);
	entry->deliver = deliver;
	entry->cq = cq;
	entry->wc = *wc;
	enqueue(bus, entry, world_range(bus->world, 0, bus->lag_ns));
}

bool bus_is_before_entry(const struct nic_bus *bus)
{
	const struct posted *first = container_of(bus->queue.next, struct posted, node);

	return !list_empty(&bus->queue) && first->host != NULL && first->bytes == sizeof(uint64_t);
}

void bus_drain(struct nic_bus *bus)
{
	while (!list_empty(&bus->queue))
		take_effect(bus, container_of(bus->queue.next, struct posted, node));
	schedule_first(bus);
}

static void drain(struct soft_bus *base)
{
	if (!bus_of(base)->stuck)
		bus_drain(bus_of(base));
}

static const struct soft_bus_ops sim_bus_ops = {
	.check = bus_check,
	.read = bus_read,
	.view = bus_view,
	.write = bus_write,
	.cas = bus_cas,
	.faa = bus_faa,
	.complete = bus_complete,
	.drain = drain,
};

void bus_init(struct nic_bus *bus, struct nic *nic, struct world *world, bool global_atomics)
{
	*bus = (struct nic_bus){.base.ops = &sim_bus_ops, .nic = nic, .world = world};
	bus->global_atomics = global_atomics;
	bus->writes_back = !global_atomics && world_chance(world, WRITES_BACK_PPM);
	bus->lag_ns = world_range(world, 0, 3) == 0 ? 20 * NS_US : world_range(world, 1, 3000);
	bus->step.what = "bus";
	bus->step.fire = step;
	list_init(&bus->queue);
	list_init(&bus->granted);
	list_init(&bus->observers);
}

void bus_free(struct nic_bus *bus)
{
	bus_kill(bus);
	while (!list_empty(&bus->granted))
		free(container_of(list_pop_front(&bus->granted), struct grant, node));
	while (!list_empty(&bus->observers)) /* they are the checkers' own */
		list_pop_front(&bus->observers);
}

void bus_observe(struct nic_bus *bus, struct bus_observer *observer)
{
	list_push_back(&bus->observers, &observer->node);
}

void bus_forget(struct nic_bus *bus, const void *cq)
{
	list_for_each_safe (at, &bus->queue) {
		struct posted *entry = container_of(at, struct posted, node);

		if (entry->host != NULL || entry->cq != cq)
			continue;
		list_remove(&entry->node);
		free(entry);
	}
	schedule_first(bus);
}

void bus_kill(struct nic_bus *bus)
{
	bus->dead = true;
	while (!list_empty(&bus->queue)) {
		struct posted *entry = container_of(list_pop_front(&bus->queue), struct posted, node);

		list_for_each (at, &bus->observers) {
			struct bus_observer *observer = container_of(at, struct bus_observer, node);

			if (entry->host != NULL && !entry->restores && observer->lost != NULL)
				observer->lost(observer, bus->nic, (uintptr_t)entry->host, entry->bytes);
		}
		free(entry);
	}
	schedule_first(bus);
}
