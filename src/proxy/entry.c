#include "proxy/entry.h"

#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"

enum { AT_KIND = 1, AT_SERVER = 2, AT_RECORDS = 4, AT_TIME = 8, VERSION = 1 };
enum { AT_REPLY = 4, AT_KEY = 8, AT_KEY_BYTES = 12 };

static size_t padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

void proxy_entry_begin(struct resp_out *out, enum entry_server server, enum entry_kind kind, uint64_t time_ms)
{
	uint8_t head[ENTRY_HEAD_BYTES] = {VERSION, (uint8_t)kind, (uint8_t)server};

	ensure(out->bytes == 0);
	put_le64(head + AT_TIME, time_ms);
	resp_out_raw(out, head, sizeof(head));
}

size_t proxy_entry_record(struct resp_out *out, enum entry_reply reply)
{
	uint8_t head[ENTRY_RECORD_BYTES] = {0};
	size_t at = out->bytes;

	head[AT_REPLY] = (uint8_t)reply;
	resp_out_raw(out, head, sizeof(head));
	return at;
}

void proxy_entry_key(struct resp_out *out, size_t record, size_t key_at, size_t key_bytes)
{
	if (out->failed)
		return;
	put_le32(out->data + record + AT_KEY, (uint32_t)(key_at - record - ENTRY_RECORD_BYTES));
	put_le32(out->data + record + AT_KEY_BYTES, (uint32_t)key_bytes);
}

void proxy_entry_record_end(struct resp_out *out, size_t record)
{
	static const uint8_t zeros[8];
	size_t bytes;

	if (out->failed)
		return;
	bytes = out->bytes - record - ENTRY_RECORD_BYTES;
	put_le32(out->data + record, (uint32_t)bytes);
	put_le32(out->data + AT_RECORDS, get_le32(out->data + AT_RECORDS) + 1);
	resp_out_raw(out, zeros, padded(bytes) - bytes);
}

bool proxy_entry_read(struct entry_reader *reader, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	if (bytes < ENTRY_HEAD_BYTES || at[0] != VERSION || at[AT_KIND] == 0 || at[AT_KIND] >= ENTRY_KINDS ||
		at[AT_SERVER] >= ENTRY_SERVERS)
		return false;
	*reader = (struct entry_reader){.at = at + ENTRY_HEAD_BYTES,
		.end = at + bytes,
		.left = get_le32(at + AT_RECORDS),
		.time_ms = get_le64(at + AT_TIME),
		.kind = (enum entry_kind)at[AT_KIND],
		.server = (enum entry_server)at[AT_SERVER]};
	return true;
}

bool proxy_entry_next(struct entry_reader *reader, struct entry_record *record_out)
{
	const uint8_t *at = reader->at;
	uint32_t bytes, key_at, key_bytes;

	if (reader->left == 0 || reader->end - at < (ptrdiff_t)ENTRY_RECORD_BYTES)
		return false;
	bytes = get_le32(at);
	key_at = get_le32(at + AT_KEY);
	key_bytes = get_le32(at + AT_KEY_BYTES);
	if ((size_t)(reader->end - at) - ENTRY_RECORD_BYTES < padded(bytes) || at[AT_REPLY] > ENTRY_TEXT ||
		(uint64_t)key_at + key_bytes > bytes)
		return false;
	*record_out = (struct entry_record){.reply = (enum entry_reply)at[AT_REPLY],
		.data = at + ENTRY_RECORD_BYTES,
		.bytes = bytes,
		.key = key_at == 0 ? NULL : at + ENTRY_RECORD_BYTES + key_at,
		.key_bytes = key_bytes};
	reader->at = at + ENTRY_RECORD_BYTES + padded(bytes);
	reader->left--;
	return true;
}
