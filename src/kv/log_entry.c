#include "kv/log_entry.h"

#include <holdfast/kv.h>

#include <ctype.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

#define MAGIC     0x32474f4c564b4648ull /* HFKVLOG2 */
#define FLAGS     (RECORD_TOMBSTONE | RECORD_RMW)
#define CRC_BYTES 4u

_Static_assert(HF_NAME_BYTES <= sizeof(((struct log_head *)NULL)->cluster), "a name fits");

uint32_t kv_log_entry_bytes(const struct log_entry *entry)
{
	uint32_t bytes = LOG_ENTRY_BYTES + entry->key_bytes + entry->value_bytes;

	return (bytes + LOG_UNIT - 1) / LOG_UNIT * LOG_UNIT;
}

void kv_log_entry_write(const struct log_entry *entry, uint8_t *at)
{
	uint32_t bytes = kv_log_entry_bytes(entry), used = LOG_ENTRY_BYTES + entry->key_bytes + entry->value_bytes;

	put_le32(at + 4, bytes);
	put_le64(at + 8, entry->sequence);
	put_le32(at + 16, entry->life);
	at[20] = (uint8_t)entry->kind;
	at[21] = entry->flags;
	put_le16(at + 22, entry->ts.node);
	put_le64(at + 24, entry->ts.version);
	put_le32(at + 32, entry->ts.join);
	put_le32(at + 36, entry->key_bytes);
	put_le32(at + 40, entry->value_bytes);
	put_le32(at + 44, entry->flush);
	if (entry->key_bytes > 0)
		memcpy(at + LOG_ENTRY_BYTES, entry->key, entry->key_bytes);
	if (entry->value_bytes > 0)
		memcpy(at + LOG_ENTRY_BYTES + entry->key_bytes, entry->value, entry->value_bytes);
	memset(at + used, 0, bytes - used);
	put_le32(at, crc32c(0, at + CRC_BYTES, bytes - CRC_BYTES));
}

bool kv_log_entry_read(const uint8_t *at, size_t bytes, struct log_entry *entry_out)
{
	uint32_t length = bytes < LOG_UNIT ? 0 : get_le32(at + 4);

	if (length < LOG_UNIT || length > bytes)
		return false;
	*entry_out = (struct log_entry){.kind = (enum log_kind)at[20],
		.flags = at[21],
		.sequence = get_le64(at + 8),
		.life = get_le32(at + 16),
		.ts = {.version = get_le64(at + 24), .join = get_le32(at + 32), .node = get_le16(at + 22)},
		.key_bytes = get_le32(at + 36),
		.value_bytes = get_le32(at + 40),
		.flush = get_le32(at + 44),
		.key = at + LOG_ENTRY_BYTES};
	entry_out->value = entry_out->key + entry_out->key_bytes;
	return at[20] < LOG_KINDS && (entry_out->flags & ~FLAGS) == 0 && entry_out->key_bytes <= HF_KV_KEY_BYTES_MAX &&
	       entry_out->value_bytes <= HF_KV_VALUE_BYTES_MAX && length == kv_log_entry_bytes(entry_out) &&
	       crc32c(0, at + CRC_BYTES, length - CRC_BYTES) == get_le32(at);
}

bool kv_log_entry_follows(const struct log_entry *entry, uint64_t sequence, uint32_t life)
{
	return entry->sequence == sequence && (entry->life == life || (entry->kind == LOG_LIFE && entry->life > life));
}

/* ---- heads ---- */

void kv_log_head_write(const struct log_head *head, uint8_t at[LOG_HEAD_BYTES])
{
	memset(at, 0, LOG_HEAD_BYTES);
	put_le64(at, MAGIC);
	put_le32(at + 12, head->marked);
	put_le64(at + 16, head->position);
	put_le64(at + 24, head->sequence);
	put_le32(at + 32, head->life);
	put_le64(at + 40, head->incarnation);
	memcpy(at + 64, head->cluster, sizeof(head->cluster));
	memcpy(at + 128, head->member, sizeof(head->member));
	put_le32(at + 8, crc32c(0, at + 12, LOG_HEAD_BYTES - 12));
}

bool kv_log_head_is_foreign(const uint8_t *at, size_t bytes)
{
	return bytes >= 8 && memcmp(at, "HFKVLOG", 7) == 0 && get_le64(at) != MAGIC && isdigit(at[7]);
}

bool kv_log_head_read(const uint8_t *at, size_t bytes, struct log_head *head_out)
{
	if (bytes < LOG_HEAD_BYTES || get_le64(at) != MAGIC ||
		crc32c(0, at + 12, LOG_HEAD_BYTES - 12) != get_le32(at + 8))
		return false;
	*head_out = (struct log_head){.position = get_le64(at + 16),
		.sequence = get_le64(at + 24),
		.life = get_le32(at + 32),
		.marked = get_le32(at + 12) != 0,
		.incarnation = get_le64(at + 40)};
	memcpy(head_out->cluster, at + 64, sizeof(head_out->cluster));
	memcpy(head_out->member, at + 128, sizeof(head_out->member));
	return head_out->cluster[sizeof(head_out->cluster) - 1] == '\0' &&
	       head_out->member[sizeof(head_out->member) - 1] == '\0';
}
