#include "proxy/stream.h"

#include "base/bytes.h"

#define MAGIC      0x31534648u
#define END        0xffffffffu
#define HEAD_BYTES 16u
#define END_BYTES  8u
#define MOST       (1024u << 20) /* bytes of a key, or of its value */

void proxy_stream_begin(struct resp_out *out, enum entry_server server)
{
	uint8_t magic[4];

	put_le32(magic, MAGIC + (uint32_t)server);
	resp_out_raw(out, magic, sizeof(magic));
}

void proxy_stream_put(struct resp_out *out, const struct stream_key *key)
{
	uint8_t head[HEAD_BYTES];

	put_le32(head, key->key_bytes);
	put_le32(head + 4, key->value_bytes);
	put_le64(head + 8, (uint64_t)key->deadline_ms);
	resp_out_raw(out, head, sizeof(head));
	resp_out_raw(out, key->key, key->key_bytes);
	resp_out_raw(out, key->value, key->value_bytes);
}

void proxy_stream_end(struct resp_out *out, uint32_t keys)
{
	uint8_t end[END_BYTES];

	put_le32(end, END);
	put_le32(end + 4, keys);
	resp_out_raw(out, end, sizeof(end));
}

static enum stream_outcome read_key(
	struct stream_reader *reader, const uint8_t *data, size_t bytes, struct stream_key *key, size_t *used_out)
{
	if (bytes < HEAD_BYTES)
		return STREAM_MORE;
	*key = (struct stream_key){.key_bytes = get_le32(data),
		.value_bytes = get_le32(data + 4),
		.deadline_ms = (int64_t)get_le64(data + 8),
		.key = data + HEAD_BYTES};
	if (key->key_bytes > MOST || key->value_bytes > MOST || key->deadline_ms < STREAM_ENTRY)
		return STREAM_DAMAGED;
	if (bytes - HEAD_BYTES < (size_t)key->key_bytes + key->value_bytes)
		return STREAM_MORE;
	key->value = key->key + key->key_bytes;
	reader->keys++;
	*used_out += HEAD_BYTES + (size_t)key->key_bytes + key->value_bytes;
	return STREAM_KEY;
}

enum stream_outcome proxy_stream_read(
	struct stream_reader *reader, const uint8_t *data, size_t bytes, struct stream_key *key_out, size_t *used_out)
{
	*used_out = 0;
	if (reader->ended)
		return bytes == 0 ? STREAM_END : STREAM_DAMAGED;
	if (!reader->begun) {
		if (bytes < 4)
			return STREAM_MORE;
		if (get_le32(data) - MAGIC >= ENTRY_SERVERS)
			return STREAM_DAMAGED;
		reader->begun = true;
		reader->server = (enum entry_server)(get_le32(data) - MAGIC);
		*used_out = 4;
	}
	data += *used_out;
	bytes -= *used_out;
	if (bytes < END_BYTES || get_le32(data) != END)
		return bytes < END_BYTES ? STREAM_MORE : read_key(reader, data, bytes, key_out, used_out);
	if (get_le32(data + 4) != reader->keys || bytes > END_BYTES)
		return STREAM_DAMAGED;
	reader->ended = true;
	*used_out += END_BYTES;
	return STREAM_END;
}
