#include "sim/checkers/log_memory.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/ensure.h"

#define SLOTS_AT 4096u
#define HEADER   48u
#define AT_CRC   32u
#define CONFIG   3u
#define LAST     0x200u
#define FIRST    2u /* entry 1 founds the cluster and is in no log */

static uint64_t word_at(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, 8);
	return le64toh(word);
}

static uint32_t half_at(const uint8_t *at)
{
	uint32_t word;

	memcpy(&word, at, 4);
	return le32toh(word);
}

static size_t region_bytes(const struct log_memory *memory)
{
	return SLOTS_AT + memory->slots * (size_t)memory->slot_bytes;
}

void log_memory_init(struct log_memory *memory, struct world *world, unsigned count, uint32_t slots,
	uint32_t slot_bytes, const char *cluster)
{
	uint8_t name[16] = {0};

	memcpy(name, cluster, strlen(cluster));
	*memory = (struct log_memory){.world = world,
		.count = count,
		.slots = slots,
		.slot_bytes = slot_bytes,
		.seed = crc32c(0, name, sizeof(name)),
		.chosen_end = FIRST};
	memory->entries = calloc(LOG_MEMORY_ENTRIES, sizeof(*memory->entries));
	ensure(memory->entries != NULL);
	memory->before = calloc(1, region_bytes(memory));
	ensure(memory->before != NULL);
	for (unsigned i = 0; i < count; i++) {
		memory->copy[i] = calloc(1, region_bytes(memory));
		ensure(memory->copy[i] != NULL);
	}
}

void log_memory_free(struct log_memory *memory)
{
	for (unsigned i = 0; i < memory->count; i++)
		free(memory->copy[i]);
	free(memory->before);
	free(memory->entries);
	log_members_free(&memory->members);
}

void log_memory_start(struct log_memory *memory, unsigned member, const uint8_t *region, const uint64_t *incarnation)
{
	memory->region[member] = region;
	memory->incarnation[member] = incarnation;
	memory->told[member] = FIRST;
	memset(memory->copy[member], 0, region_bytes(memory));
}

static uint64_t bit_of(struct log_memory *memory, unsigned member)
{
	return log_members_bit(&memory->members, member, *memory->incarnation[member]);
}

/* All below the index is chosen. */
static void choose(struct log_memory *memory, uint64_t index)
{
	struct log_memory_entry *entry = &memory->entries[index];

	for (unsigned i = 0; i < entry->count; i++) {
		const struct log_memory_accept *accept = &entry->accepts[i];

		if ((entry->chosen_number == 0 || accept->number < entry->chosen_number) &&
			log_members_majority(&memory->members, index, accept->crc, accept->set)) {
			entry->chosen_number = accept->number;
			entry->chosen_crc = accept->crc;
		}
	}
	for (unsigned i = 0; entry->chosen_number != 0 && i < entry->count; i++)
		if (entry->accepts[i].number > entry->chosen_number && entry->accepts[i].crc != entry->chosen_crc)
			world_violate(memory->world, "paxos",
				"entry %" PRIu64 " has another value under number %" PRIu64
				" than a majority accepted under number %" PRIu64,
				index, entry->accepts[i].number, entry->chosen_number);
}

static void move_on(struct log_memory *memory)
{
	for (; memory->chosen_end < LOG_MEMORY_ENTRIES; memory->chosen_end++) {
		const struct log_memory_entry *entry = &memory->entries[memory->chosen_end];

		choose(memory, memory->chosen_end);
		if (entry->chosen_number == 0)
			break;
		log_members_chosen(&memory->members, memory->chosen_end, entry->chosen_crc);
	}
}

void log_memory_lost(struct log_memory *memory, unsigned member, uint64_t decided, uint64_t durable)
{
	uint64_t bit = memory->incarnation[member] == NULL ? 0 : bit_of(memory, member);

	for (uint64_t index = decided; index < LOG_MEMORY_ENTRIES; index++) {
		struct log_memory_entry *entry = &memory->entries[index];

		entry->chosen_number = 0;
		for (unsigned i = 0; index >= durable && i < entry->count; i++)
			entry->accepts[i].set &= ~bit;
	}
	memory->decided_end = decided;
	if (memory->chosen_end > decided) {
		memory->chosen_end = decided;
		log_members_back(&memory->members, decided);
	}
	move_on(memory);
}

static void accepted(struct log_memory *memory, unsigned member, uint64_t index, uint64_t number, uint32_t crc)
{
	struct log_memory_entry *entry = &memory->entries[index];
	struct log_memory_accept *at = NULL;

	for (unsigned i = 0; i < entry->count; i++)
		if (entry->accepts[i].number == number)
			at = &entry->accepts[i];
	if (at == NULL) {
		if (entry->count == LOG_MEMORY_NUMBERS)
			return;
		at = &entry->accepts[entry->count++];
		*at = (struct log_memory_accept){.number = number, .crc = crc};
	}
	if (at->crc != crc)
		world_violate(memory->world, "value", "entry %" PRIu64 " has two values under number %" PRIu64, index,
			number);
	at->set |= bit_of(memory, member);
	if (index < memory->chosen_end)
		choose(memory, index);
	else if (index == memory->chosen_end)
		move_on(memory);
}

/* The slot at a place of a region; false: it holds no value. */
static bool read_slot(const struct log_memory *memory, const uint8_t *region, uint32_t place, uint64_t *index,
	uint64_t *number, uint32_t *crc)
{
	const uint8_t *slot = region + SLOTS_AT + place * (size_t)memory->slot_bytes;
	uint32_t bytes = half_at(slot + 16);

	*index = word_at(slot + 8);
	*number = word_at(slot) >> 24;
	*crc = half_at(slot + AT_CRC);
	return word_at(slot) != 0 && bytes <= memory->slot_bytes - HEADER && *index % memory->slots == place &&
	       *index < LOG_MEMORY_ENTRIES && (word_at(slot) & 0xffffff) == (*crc & 0xffffff) &&
	       crc32c(crc32c(memory->seed, slot + 8, AT_CRC - 8), slot + HEADER, bytes) == *crc;
}

/* An accept word alone is about a value that its owner may have stored itself, as a leader of before. */
static void adopt_own_store(struct log_memory *memory, unsigned member, uint32_t place)
{
	size_t at = SLOTS_AT + place * (size_t)memory->slot_bytes;
	uint64_t index, number;
	uint32_t crc;

	if (memory->region[member] == NULL || read_slot(memory, memory->copy[member], place, &index, &number, &crc))
		return;
	memcpy(memory->copy[member] + at + 8, memory->region[member] + at + 8, memory->slot_bytes - 8);
}

static void see_config(struct log_memory *memory, const uint8_t *region, uint32_t place)
{
	const uint8_t *slot = region + SLOTS_AT + place * (size_t)memory->slot_bytes;
	uint32_t kind = half_at(slot + 20) & 0xffff;

	if ((kind & 0xff) == CONFIG)
		log_members_saw(&memory->members, word_at(slot + 8), half_at(slot + AT_CRC), word_at(slot + 24),
			(kind & LAST) != 0, slot + HEADER, half_at(slot + 16));
}

static void look(struct log_memory *memory, const struct log_memory_owner *owner, uint32_t place)
{
	unsigned member = owner->member;
	int holder = owner->holder;
	uint64_t index, number, its_index, its_number;
	uint32_t crc, its_crc;
	unsigned leader;

	if (!read_slot(memory, memory->copy[member], place, &index, &number, &crc))
		return;
	memory->seen++;
	see_config(memory, memory->copy[member], place);
	leader = (unsigned)(number & 0xff);
	/* What is decided is written again as it was, under the number that it has. */
	if (index >= memory->chosen_end && (int)leader != holder)
		world_violate(memory->world, "holder",
			"member %u writes entry %" PRIu64 " into the log of member %u, which member %d holds", leader,
			index, member, holder);
	/* What a leader posts, it has stored: its own memory is no bus' business. */
	if (leader < memory->count && memory->region[leader] != NULL && leader != member &&
		read_slot(memory, memory->region[leader], place, &its_index, &its_number, &its_crc) &&
		its_index == index && its_number == number)
		accepted(memory, leader, index, number, its_crc);
	accepted(memory, member, index, number, crc);
}

static bool has_other(const struct log_memory *memory, const uint8_t *region, uint64_t index)
{
	uint64_t at, number;
	uint32_t crc;

	return read_slot(memory, region, (uint32_t)(index % memory->slots), &at, &number, &crc) && at == index &&
	       crc != memory->entries[index].chosen_crc;
}

static bool has_index(const struct log_memory *memory, const uint8_t *region, uint64_t index)
{
	return word_at(region + SLOTS_AT + index % memory->slots * (size_t)memory->slot_bytes + 8) == index;
}

/* What the bus showed is in memory or on its way; what its owner stored by itself is only in memory. */
static void check_told(struct log_memory *memory, const struct log_memory_owner *owner, uint64_t commit)
{
	unsigned member = owner->member;
	uint64_t from = memory->told[member] > owner->applied ? memory->told[member] : owner->applied;

	if (commit > memory->chosen_end)
		world_violate(memory->world, "commit",
			"member %u is told that all below %" PRIu64 " is decided, and %" PRIu64 " is not", member,
			commit, memory->chosen_end);
	if (commit > from + memory->slots)
		from = commit - memory->slots;
	if (memory->region[member] == NULL)
		return;
	for (uint64_t i = from; i < commit && i < memory->chosen_end; i++)
		if (has_other(memory, memory->region[member], i) &&
			(!has_index(memory, memory->copy[member], i) || has_other(memory, memory->copy[member], i)))
			world_violate(memory->world, "commit",
				"member %u is told that entry %" PRIu64 " is decided, and its log has another value",
				member, i);
	if (commit > memory->told[member])
		memory->told[member] = commit;
}

/* The slots that are about to be written. */
static void keep(struct log_memory *memory, unsigned member, size_t offset, size_t bytes)
{
	size_t from = offset < SLOTS_AT ? offset : offset - (offset - SLOTS_AT) % memory->slot_bytes;
	size_t end = offset < SLOTS_AT ? from : offset + bytes + memory->slot_bytes;

	if (end > region_bytes(memory))
		end = region_bytes(memory);
	memcpy(memory->before + from, memory->copy[member] + from, end - from);
}

/* It is one of the majority that accepted what is decided. */
static bool has_decided(struct log_memory *memory, unsigned member, uint64_t index)
{
	const struct log_memory_entry *entry = index < LOG_MEMORY_ENTRIES ? &memory->entries[index] : NULL;

	for (unsigned i = 0; entry != NULL && entry->chosen_number != 0 && i < entry->count; i++)
		if (entry->accepts[i].number == entry->chosen_number &&
			(entry->accepts[i].set & bit_of(memory, member)) != 0)
			return true;
	return false;
}

/* What the bus shows may not be in memory yet, and what its owner has stored since is only there. */
static void check_rewritten(struct log_memory *memory, unsigned member, uint32_t place)
{
	uint64_t index = word_at(memory->copy[member] + SLOTS_AT + place * (size_t)memory->slot_bytes + 8);
	uint64_t before, number, owned, own_number, now, new_number;
	uint32_t crc, own_crc, new_crc;

	if (memory->region[member] == NULL || !has_index(memory, memory->before, index) ||
		!has_decided(memory, member, index) ||
		!read_slot(memory, memory->before, place, &before, &number, &crc) ||
		!read_slot(memory, memory->region[member], place, &owned, &own_number, &own_crc) ||
		!read_slot(memory, memory->copy[member], place, &now, &new_number, &new_crc))
		return;
	if (owned == now && crc == new_crc && own_crc == crc && number != new_number)
		world_violate(memory->world, "rewrite",
			"entry %" PRIu64
			" is decided, and written again into the log of member %u, which has it under number "
			"%" PRIu64 ", under number %" PRIu64,
			index, member, number, new_number);
}

static void look_at_slots(struct log_memory *memory, const struct log_memory_owner *owner, size_t offset, size_t bytes)
{
	unsigned member = owner->member;
	uint32_t first = (uint32_t)((offset - SLOTS_AT) / memory->slot_bytes);
	uint32_t last = (uint32_t)((offset + bytes - 1 - SLOTS_AT) / memory->slot_bytes);

	if (bytes == 8 && (offset - SLOTS_AT) % memory->slot_bytes == 0)
		adopt_own_store(memory, member, first);
	for (uint32_t place = first; place <= last; place++) {
		if (bytes > 8)
			check_rewritten(memory, member, place);
		look(memory, owner, place);
	}
}

static void check_promise(struct log_memory *memory, unsigned member, int holder, uint64_t number)
{
	uint64_t before = word_at(memory->before) >> 16;

	if ((number & 0xff) != (uint64_t)holder)
		world_violate(memory->world, "holder",
			"member %u promises in the log of member %u, which member %d holds", (unsigned)(number & 0xff),
			member, holder);
	if (number < before)
		world_violate(memory->world, "promise",
			"number %" PRIu64 " is promised in the log of member %u, which had promised %" PRIu64, number,
			member, before);
	if (number > memory->promised[member])
		memory->promised[member] = number;
}

bool log_memory_has(const struct log_memory *memory, unsigned member, uint64_t index)
{
	const uint8_t *slot = memory->copy[member] + SLOTS_AT + index % memory->slots * (size_t)memory->slot_bytes;

	return word_at(slot) != 0 && word_at(slot + 8) >= index;
}

void log_memory_write(struct log_memory *memory, const struct log_memory_owner *owner, size_t offset,
	const uint8_t *data, size_t bytes)
{
	unsigned member = owner->member;
	int holder = owner->holder;

	memory->writes++;
	if (holder < 0 || holder == (int)member)
		world_violate(memory->world, "holder",
			"%zu bytes at %zu are written into the log of member %u, which %s holds", bytes, offset, member,
			holder < 0 ? "nobody" : "the member itself");
	keep(memory, member, offset, bytes);
	memcpy(memory->copy[member] + offset, data, bytes);
	if (offset == 0 && bytes == 8)
		check_promise(memory, member, holder, word_at(data) >> 16);
	if (offset == 8 && bytes == 8)
		check_told(memory, owner, word_at(data) >> 16);
	if (offset >= SLOTS_AT)
		look_at_slots(memory, owner, offset, bytes);
}
