#include "kv/told.h"

#include "base/bytes.h"

void kv_told_note(struct told *told, uint64_t incarnation, uint64_t durable)
{
	if (told->incarnation != incarnation)
		*told = (struct told){.incarnation = incarnation};
	if (durable > told->durable)
		told->durable = durable;
}

bool kv_told_lacks(const struct told *kept, uint64_t incarnation)
{
	return kept->incarnation != incarnation || kept->durable == 0;
}

bool kv_told_is_behind(const struct told *kept, const struct told *told)
{
	return told->incarnation == kept->incarnation && told->durable > kept->durable;
}

void kv_told_write(const struct told *told, unsigned count, uint8_t *at)
{
	for (unsigned i = 0; i < count; i++, at += TOLD_BYTES) {
		put_le64(at, told[i].incarnation);
		put_le64(at + 8, told[i].durable);
	}
}

void kv_told_read(struct told *told_out, unsigned count, const uint8_t *at, size_t bytes)
{
	for (unsigned i = 0; i < count && bytes >= TOLD_BYTES; i++, at += TOLD_BYTES, bytes -= TOLD_BYTES)
		told_out[i] = (struct told){.incarnation = get_le64(at), .durable = get_le64(at + 8)};
}
