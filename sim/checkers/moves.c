#include "sim/checkers/moves.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/device.h"

struct watch {
	struct bus_observer observer; /* first */
	struct list node;
	struct moves *moves;
};

static struct move_area *area_at(const struct moves *moves, const void *at)
{
	list_for_each (link, &moves->areas) {
		struct move_area *area = container_of(link, struct move_area, node);

		if ((const uint8_t *)at >= area->memory && (const uint8_t *)at < area->memory + area->bytes)
			return area;
	}
	return NULL;
}

/* ---- effects ---- */

/* The pending move that stores at this place, or whose source it is. */
static struct move *move_at(const struct moves *moves, const struct move_area *area, size_t offset, bool source)
{
	list_for_each (link, &moves->pending) {
		struct move *move = container_of(link, struct move, node);
		size_t begin = source ? move->from_offset : move->to_offset;

		if ((source ? move->from : move->to) == area &&
			(source ? move->from_generation : move->to_generation) == area->generation && offset >= begin &&
			offset < begin + move->bytes)
			return move;
	}
	return NULL;
}

/* A slice of a merged request lies in the ranges of several moves. */
static void stored(struct moves *moves, const void *at, const uint8_t *data, size_t bytes, const char *how)
{
	struct move_area *area = area_at(moves, at);
	size_t offset, end;

	if (area == NULL)
		return;
	offset = (size_t)((const uint8_t *)at - area->memory);
	for (end = offset + bytes; offset < end && moves->world->violations == 0;) {
		const struct move *move = area->registered ? move_at(moves, area, offset, false) : NULL;
		size_t n = end - offset, in_move;

		if (move == NULL) {
			world_violate(moves->world, "late",
				"%s stores %zu bytes at %zu of %s's memory (%p), which no pending request is for", how,
				n, offset, area->name, (const void *)area->memory);
			return;
		}
		in_move = offset - move->to_offset;
		n = n > move->bytes - in_move ? move->bytes - in_move : n;
		if (memcmp(data, move->data + in_move, n) != 0)
			world_violate(moves->world, "foreign",
				"%s stores other bytes than request %" PRIu32 " has at %zu", how, move->number,
				in_move);
		data += n;
		offset += n;
	}
}

static void taken(struct moves *moves, const void *at, size_t bytes, const char *how)
{
	struct move_area *area = area_at(moves, at);
	size_t offset, end;

	if (area == NULL || !area->own)
		return;
	offset = (size_t)((const uint8_t *)at - area->memory);
	for (end = offset + bytes; offset < end;) {
		const struct move *move = area->registered ? move_at(moves, area, offset, true) : NULL;

		if (move == NULL) {
			world_violate(moves->world, "late",
				"%s reads at %zu of %s's memory, which is no pending request's source", how, offset,
				area->name);
			return;
		}
		offset = move->from_offset + move->bytes;
	}
}

static void bus_effect(struct bus_observer *observer, const struct effect *effect)
{
	struct moves *moves = container_of(observer, struct watch, observer)->moves;
	const void *at = (const void *)(uintptr_t)effect->host;

	if (effect->kind == EFFECT_WRITE)
		stored(moves, at, effect->data, effect->bytes, "a NIC");
	else if (effect->kind == EFFECT_READ)
		taken(moves, at, effect->bytes, "a NIC");
}

static void bus_lost(struct bus_observer *observer, const struct nic *nic, uint64_t host, size_t bytes)
{
	struct move_area *area =
		area_at(container_of(observer, struct watch, observer)->moves, (const void *)(uintptr_t)host);

	(void)nic, (void)bytes;
	if (area != NULL)
		area->lossy = true;
}

static void stream_stored(struct stream_observer *observer, const void *at, size_t bytes)
{
	stored(container_of(observer, struct moves, streams), at, at, bytes, "a stream");
}

static void stream_taken(struct stream_observer *observer, const void *at, size_t bytes)
{
	taken(container_of(observer, struct moves, streams), at, bytes, "a stream");
}

/* ---- areas ---- */

struct move_area *moves_add_area(struct moves *moves, const char *name, uint8_t *memory, size_t bytes, bool own)
{
	struct move_area *area = calloc(1, sizeof(*area));

	ensure(area != NULL);
	*area = (struct move_area){.name = name, .memory = memory, .bytes = bytes, .own = own, .holds = malloc(bytes)};
	ensure(area->holds != NULL);
	list_push_back(&moves->areas, &area->node);
	return area;
}

void move_area_begin(struct move_area *area)
{
	area->registered = true;
	area->lossy = false;
	area->generation++;
	memcpy(area->holds, area->memory, area->bytes);
}

void moves_fill(struct moves *moves, struct move_area *area, size_t offset, size_t bytes)
{
	rng_fill(&moves->world->rng, area->memory + offset, bytes);
	memcpy(area->holds + offset, area->memory + offset, bytes);
}

void moves_check(struct moves *moves, const struct move_area *area, size_t offset, size_t bytes)
{
	if (memcmp(area->memory + offset, area->holds + offset, bytes) == 0)
		return;
	for (size_t i = offset; i < offset + bytes && !area->lossy; i++)
		if (area->memory[i] != area->holds[i]) {
			world_violate(moves->world, "memory", "%s's memory at %zu (%p) was changed by nobody",
				area->name, i, (const void *)area->memory);
			return;
		}
}

/* ---- moves ---- */

struct move *moves_begin(struct moves *moves, const struct move *asked)
{
	struct move *move = malloc(sizeof(*move));

	ensure(move != NULL);
	*move = *asked;
	move->number = moves->count++;
	move->from_generation = move->from->generation;
	move->to_generation = move->to->generation;
	move->data = malloc(move->bytes);
	ensure(move->data != NULL);
	memcpy(move->data, move->from->memory + move->from_offset, move->bytes);
	list_push_back(&moves->pending, &move->node);
	return move;
}

static void move_free(struct move *move)
{
	list_remove(&move->node);
	free(move->data);
	free(move);
}

void moves_end(struct moves *moves, struct move *move, bool completed)
{
	struct move_area *area = move->to;
	bool known = area->generation == move->to_generation && !area->lossy;
	size_t i = 0;

	if (known && memcmp(area->memory + move->to_offset, move->data, move->bytes) == 0) {
		memcpy(area->holds + move->to_offset, move->data, move->bytes);
		i = move->bytes;
	}
	for (; i < move->bytes && known; i++) {
		size_t at = move->to_offset + i;
		uint8_t is = area->memory[at];

		if (completed && is != move->data[i]) {
			world_violate(moves->world, "completed",
				"request %" PRIu32 " is told to be completed, byte %zu "
				"of %zu is not there",
				move->number, i, move->bytes);
			break;
		}
		if (is != move->data[i] && is != area->holds[at]) {
			world_violate(moves->world, "memory", "byte %zu of request %" PRIu32 " is neither old nor new",
				i, move->number);
			break;
		}
		area->holds[at] = is;
	}
	move_free(move);
}

/* ---- watching ---- */

void moves_init(struct moves *moves, struct world *world, struct network *network)
{
	*moves = (struct moves){.world = world, .streams = {.stored = stream_stored, .taken = stream_taken}};
	list_init(&moves->areas);
	list_init(&moves->pending);
	list_init(&moves->watches);
	network->streams = &moves->streams;
}

void moves_watch(struct moves *moves, struct nic_bus *bus)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	ensure(watch != NULL);
	watch->observer = (struct bus_observer){.effect = bus_effect, .lost = bus_lost};
	watch->moves = moves;
	list_push_back(&moves->watches, &watch->node);
	bus_observe(bus, &watch->observer);
}

void moves_free(struct moves *moves)
{
	while (!list_empty(&moves->pending))
		move_free(container_of(moves->pending.next, struct move, node));
	while (!list_empty(&moves->watches))
		free(container_of(list_pop_front(&moves->watches), struct watch, node));
	while (!list_empty(&moves->areas)) {
		struct move_area *area = container_of(list_pop_front(&moves->areas), struct move_area, node);

		free(area->holds);
		free(area);
	}
}
