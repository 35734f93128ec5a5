#include "broker/codec/compression.h"

#include <errno.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/bytes.h"

#define ROOM_LEAST        65536u
#define GZIP_WINDOW_BITS  (15 + 16) /* with gzip's header */
#define GZIP_MEMORY_LEVEL 8
#define XERIAL_BYTES      16u

static const uint8_t xerial_magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

/* ---- packing ---- */

static size_t pack_gzip(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
	z_stream stream = {0};
	bool whole;

	if (bytes > UINT32_MAX || room > UINT32_MAX ||
		deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS, GZIP_MEMORY_LEVEL,
			Z_DEFAULT_STRATEGY) != Z_OK)
		return 0;
	stream.next_in = (uint8_t *)(uintptr_t)from;
	stream.avail_in = (uInt)bytes;
	stream.next_out = to;
	stream.avail_out = (uInt)room;
	whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
	(void)deflateEnd(&stream);
	return whole ? room - stream.avail_out : 0;
}

static size_t pack_snappy(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
	size_t packed = snappy_max_compressed_length(bytes);
	char *whole;

	if (packed <= room) /* it fits in any case */
		return snappy_compress((const char *)from, bytes, (char *)to, &packed) == SNAPPY_OK ? packed : 0;
	whole = malloc(packed);
	if (whole == NULL || snappy_compress((const char *)from, bytes, whole, &packed) != SNAPPY_OK || packed > room)
		packed = 0;
	if (packed > 0)
		memcpy(to, whole, packed);
	free(whole);
	return packed;
}

static size_t pack_lz4(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
	const LZ4F_preferences_t preferences = {.frameInfo = {.blockMode = LZ4F_blockIndependent}};
	size_t most = LZ4F_compressFrameBound(bytes, &preferences), packed;
	uint8_t *whole = most <= room ? to : malloc(most);

	if (whole == NULL)
		return 0;
	packed = LZ4F_compressFrame(whole, most, from, bytes, &preferences);
	if (LZ4F_isError(packed) != 0 || packed > room)
		packed = 0;
	if (whole != to) {
		memcpy(to, whole, packed);
		free(whole);
	}
	return packed;
}

static size_t pack_zstd(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
	size_t packed = ZSTD_compress(to, room, from, bytes, ZSTD_CLEVEL_DEFAULT);

	return ZSTD_isError(packed) != 0 ? 0 : packed;
}

size_t compression_pack(enum hf_codec codec, const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
	switch (codec) {
	case HF_CODEC_GZIP:
		return pack_gzip(from, bytes, to, room);
	case HF_CODEC_SNAPPY:
		return pack_snappy(from, bytes, to, room);
	case HF_CODEC_LZ4:
		return pack_lz4(from, bytes, to, room);
	case HF_CODEC_ZSTD:
		return pack_zstd(from, bytes, to, room);
	case HF_CODEC_NONE:
	case HF_CODECS:
		break;
	}
	return 0;
}

/* ---- unpacking ---- */

/* Room for `more` bytes; 0, -EMSGSIZE, -ENOMEM. */
static int make_room(struct compression_buffer *to, size_t more, size_t most)
{
	size_t room = to->room < ROOM_LEAST ? ROOM_LEAST : to->room;
	uint8_t *at;

	if (more > most || to->bytes > most - more)
		return -EMSGSIZE;
	if (more <= to->room - to->bytes)
		return 0;
	while (room < to->bytes + more)
		room *= 2;
	room = room > most ? most : room;
	at = realloc(to->at, room);
	if (at == NULL)
		return -ENOMEM;
	to->at = at;
	to->room = room;
	return 0;
}

/* Room for the next piece of a stream of unknown length. */
static int make_some_room(struct compression_buffer *to, size_t most)
{
	if (to->bytes < to->room)
		return 0;
	if (to->bytes >= most)
		return -EMSGSIZE;
	return make_room(to, most - to->bytes < ROOM_LEAST ? most - to->bytes : ROOM_LEAST, most);
}

/* Members may follow each other (RFC 1952, 2.2). */
static int unpack_gzip(const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	z_stream stream = {.next_in = (uint8_t *)(uintptr_t)from, .avail_in = (uInt)bytes};
	int rc = 0, end = Z_OK;

	if (bytes > INT32_MAX)
		return -EMSGSIZE;
	if (inflateInit2(&stream, GZIP_WINDOW_BITS) != Z_OK)
		return -ENOMEM;
	while (rc == 0 && (stream.avail_in > 0 || end != Z_STREAM_END)) {
		if (end == Z_STREAM_END)
			(void)inflateReset(&stream);
		rc = make_some_room(to, most);
		if (rc != 0)
			break;
		stream.next_out = to->at + to->bytes;
		stream.avail_out = (uInt)(to->room - to->bytes < INT32_MAX ? to->room - to->bytes : INT32_MAX);
		end = inflate(&stream, Z_NO_FLUSH);
		to->bytes = (size_t)(stream.next_out - to->at);
		if (end != Z_OK && end != Z_STREAM_END)
			rc = -EBADMSG; /* Z_BUF_ERROR: it ends early */
	}
	(void)inflateEnd(&stream);
	return rc;
}

static int unpack_block(const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	size_t length;
	int rc;

	if (snappy_uncompressed_length((const char *)from, bytes, &length) != SNAPPY_OK)
		return -EBADMSG;
	rc = make_room(to, length, most);
	if (rc != 0)
		return rc;
	if (snappy_uncompress((const char *)from, bytes, (char *)to->at + to->bytes, &length) != SNAPPY_OK)
		return -EBADMSG;
	to->bytes += length;
	return 0;
}

static int unpack_snappy(const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	size_t at = XERIAL_BYTES;
	int rc = 0;

	if (bytes < XERIAL_BYTES || memcmp(from, xerial_magic, sizeof(xerial_magic)) != 0)
		return unpack_block(from, bytes, to, most);
	while (rc == 0 && at < bytes) {
		uint32_t length = bytes - at < 4 ? UINT32_MAX : get_be32(from + at);

		if (length > bytes - at || bytes - at - length < 4)
			return -EBADMSG;
		rc = unpack_block(from + at + 4, length, to, most);
		at += 4 + (size_t)length;
	}
	return rc;
}

static int unpack_lz4(const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	LZ4F_dctx *context;
	size_t at = 0, left = 1;
	int rc = 0;

	if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0)
		return -ENOMEM;
	while (rc == 0 && left != 0) {
		size_t in = bytes - at, out;

		rc = make_some_room(to, most);
		if (rc != 0)
			break;
		out = to->room - to->bytes;
		left = LZ4F_decompress(context, to->at + to->bytes, &out, from + at, &in, NULL);
		at += in;
		to->bytes += out;
		if (LZ4F_isError(left) != 0 || (left != 0 && in == 0 && out == 0))
			rc = -EBADMSG;
	}
	(void)LZ4F_freeDecompressionContext(context);
	return rc == 0 && at < bytes ? -EBADMSG : rc;
}

static int unpack_zstd(const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	ZSTD_DStream *stream = ZSTD_createDStream();
	ZSTD_inBuffer in = {from, bytes, 0};
	size_t left = 1;
	int rc = stream == NULL ? -ENOMEM : 0;

	while (rc == 0 && (left != 0 || in.pos < in.size)) {
		ZSTD_outBuffer out;
		size_t before = in.pos;

		rc = make_some_room(to, most);
		if (rc != 0)
			break;
		out = (ZSTD_outBuffer){to->at, to->room, to->bytes};
		left = ZSTD_decompressStream(stream, &out, &in);
		if (ZSTD_isError(left) != 0 || (left != 0 && in.pos == before && out.pos == to->bytes))
			rc = -EBADMSG;
		to->bytes = out.pos;
	}
	(void)ZSTD_freeDStream(stream);
	return rc;
}

int compression_unpack(unsigned codec, const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	to->bytes = 0;
	switch (codec) {
	case HF_CODEC_GZIP:
		return unpack_gzip(from, bytes, to, most);
	case HF_CODEC_SNAPPY:
		return unpack_snappy(from, bytes, to, most);
	case HF_CODEC_LZ4:
		return unpack_lz4(from, bytes, to, most);
	case HF_CODEC_ZSTD:
		return unpack_zstd(from, bytes, to, most);
	default:
		return -EPROTONOSUPPORT;
	}
}

void compression_free(struct compression_buffer *buffer)
{
	free(buffer->at);
	*buffer = (struct compression_buffer){0};
}
