#include "vqp/data/completion_log.h"

#include <stdatomic.h>

#include "base/bytes.h"

uint32_t completion_log_entries_for(uint32_t wrs)
{
	uint32_t entries = 1;

	while (entries < wrs)
		entries *= 2;
	return entries;
}

uint32_t completion_log_take(struct log_writer *writer, const void *pointer, uint64_t *entry_out)
{
	uint64_t address = (uintptr_t)pointer & ((1ull << LOG_POINTER_BITS) - 1);
	uint64_t stamp = writer->turn >> __builtin_ctz(writer->entries) & LOG_STAMP_MASK;
	uint32_t number = (uint32_t)(writer->turn++ & (writer->entries - 1));

	*entry_out = LOG_FINISHED | stamp << LOG_POINTER_BITS | address;
	return number;
}

/* Stamps wrap, and differ by far less than half of their range. */
static bool is_newer(uint64_t entry, uint64_t than)
{
	uint64_t ahead = ((entry >> LOG_POINTER_BITS) - (than >> LOG_POINTER_BITS)) & LOG_STAMP_MASK;

	return ahead < 1u << (LOG_STAMP_BITS - 1);
}

bool completion_log_newest(const uint64_t *ring, uint32_t entries, uint32_t *number_out, uint64_t *entry_out)
{
	bool found = false;

	for (uint32_t i = 0; i < entries; i++) {
		uint64_t entry =
			le64toh(atomic_load_explicit((const _Atomic uint64_t *)&ring[i], memory_order_relaxed));

		if ((entry & LOG_FINISHED) == 0 || (found && !is_newer(entry, *entry_out)))
			continue;
		found = true;
		*number_out = i;
		*entry_out = entry;
	}
	return found;
}
