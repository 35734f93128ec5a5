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

#define SNAPPY_RATIO 22u /* 64 bytes of 3, at most: a copy */

int compression_reader_open(
	struct compression_reader *reader, unsigned codec, const uint8_t *from, size_t bytes, size_t most)
{
	int rc = 0;

	*reader = (struct compression_reader){.codec = codec, .at = from, .end = from + bytes, .left = most};
	switch (codec) {
	case HF_CODEC_GZIP:
		reader->stream = calloc(1, sizeof(z_stream));
		if (reader->stream != NULL && inflateInit2((z_stream *)reader->stream, GZIP_WINDOW_BITS) != Z_OK) {
			free(reader->stream);
			reader->stream = NULL;
		}
		rc = reader->stream == NULL ? -ENOMEM : 0;
		break;
	case HF_CODEC_LZ4:
		if (LZ4F_isError(LZ4F_createDecompressionContext((LZ4F_dctx **)&reader->stream, LZ4F_VERSION)) != 0)
			rc = -ENOMEM;
		break;
	case HF_CODEC_ZSTD:
		reader->stream = ZSTD_createDStream();
		rc = reader->stream == NULL ? -ENOMEM : 0;
		break;
	case HF_CODEC_SNAPPY:
		if (bytes >= XERIAL_BYTES && memcmp(from, xerial_magic, sizeof(xerial_magic)) == 0) {
			reader->over = true; /* it has frames, and none is begun */
			reader->at += XERIAL_BYTES;
		}
		return 0;
	case HF_CODEC_NONE:
		return 0;
	default:
		return -EPROTONOSUPPORT;
	}
	if (rc == 0) {
		reader->piece = malloc(ROOM_LEAST);
		reader->room = ROOM_LEAST;
		rc = reader->piece == NULL ? -ENOMEM : 0;
	}
	return rc;
}

void compression_reader_close(struct compression_reader *reader)
{
	if (reader->stream != NULL && reader->codec == HF_CODEC_GZIP) {
		(void)inflateEnd((z_stream *)reader->stream);
		free(reader->stream);
	} else if (reader->stream != NULL && reader->codec == HF_CODEC_LZ4) {
		(void)LZ4F_freeDecompressionContext(reader->stream);
	} else if (reader->stream != NULL) {
		(void)ZSTD_freeDStream(reader->stream);
	}
	free(reader->piece);
	*reader = (struct compression_reader){0};
}

/* Members may follow each other (RFC 1952, 2.2). */
static int next_gzip(struct compression_reader *reader, size_t room, size_t *bytes_out)
{
	z_stream *stream = reader->stream;
	size_t in = (size_t)(reader->end - reader->at);
	int rc;

	if (reader->over && in > 0)
		(void)inflateReset(stream);
	stream->next_in = (uint8_t *)(uintptr_t)reader->at;
	stream->avail_in = (uInt)(in < INT32_MAX ? in : INT32_MAX);
	stream->next_out = reader->piece;
	stream->avail_out = (uInt)room;
	rc = inflate(stream, Z_NO_FLUSH);
	reader->at = stream->next_in;
	reader->over = rc == Z_STREAM_END;
	*bytes_out = room - stream->avail_out;
	return rc == Z_OK || rc == Z_STREAM_END ? 0 : rc == Z_MEM_ERROR ? -ENOMEM : -EBADMSG; /* or it ends early */
}

static int next_lz4(struct compression_reader *reader, size_t room, size_t *bytes_out)
{
	size_t in = (size_t)(reader->end - reader->at), left;

	if (reader->over)
		return -EBADMSG; /* there are bytes behind the frame */
	*bytes_out = room;
	left = LZ4F_decompress(reader->stream, reader->piece, bytes_out, reader->at, &in, NULL);
	reader->at += in;
	reader->over = left == 0;
	return LZ4F_isError(left) != 0 || (left != 0 && in == 0 && *bytes_out == 0) ? -EBADMSG : 0;
}

static int next_zstd(struct compression_reader *reader, size_t room, size_t *bytes_out)
{
	ZSTD_inBuffer in = {reader->at, (size_t)(reader->end - reader->at), 0};
	ZSTD_outBuffer out = {reader->piece, room, 0};
	size_t left = ZSTD_decompressStream(reader->stream, &out, &in);

	reader->at += in.pos;
	reader->over = left == 0;
	*bytes_out = out.pos;
	return ZSTD_isError(left) != 0 || (left != 0 && in.pos == 0 && out.pos == 0) ? -EBADMSG : 0;
}

/* A block: all there is, or that of the next frame. */
static int next_snappy(struct compression_reader *reader, size_t *bytes_out)
{
	size_t bytes = (size_t)(reader->end - reader->at), length;

	if (reader->over) {
		uint32_t framed = bytes < 4 ? UINT32_MAX : get_be32(reader->at);

		if (framed > bytes || bytes - framed < 4)
			return -EBADMSG;
		reader->at += 4;
		bytes = framed;
	}
	if (snappy_uncompressed_length((const char *)reader->at, bytes, &length) != SNAPPY_OK ||
		length > bytes * SNAPPY_RATIO)
		return -EBADMSG;
	if (length > reader->left)
		return -EMSGSIZE;
	if (length > reader->room) {
		free(reader->piece);
		reader->piece = malloc(length);
		reader->room = reader->piece == NULL ? 0 : length;
	}
	if (length > reader->room)
		return -ENOMEM;
	if (snappy_uncompress((const char *)reader->at, bytes, (char *)reader->piece, &length) != SNAPPY_OK)
		return -EBADMSG;
	reader->at += bytes;
	*bytes_out = length;
	return 0;
}

static bool is_at_end(const struct compression_reader *reader)
{
	/* Of a block without frames: once it was read. */
	bool ends = reader->over || (reader->codec == HF_CODEC_SNAPPY && reader->piece != NULL);

	return ends && reader->at == reader->end;
}

static int next_piece(struct compression_reader *reader, size_t *bytes_out)
{
	/* One byte more than may come out, so that more than that is noticed. */
	size_t room = reader->left < reader->room ? reader->left + 1 : reader->room;

	switch (reader->codec) {
	case HF_CODEC_GZIP:
		return next_gzip(reader, room, bytes_out);
	case HF_CODEC_LZ4:
		return next_lz4(reader, room, bytes_out);
	case HF_CODEC_ZSTD:
		return next_zstd(reader, room, bytes_out);
	default:
		return next_snappy(reader, bytes_out);
	}
}

int compression_reader_next(struct compression_reader *reader, const uint8_t **at_out, size_t *bytes_out)
{
	int rc = 0;

	*bytes_out = 0;
	if (reader->codec == HF_CODEC_NONE) {
		*at_out = reader->at;
		*bytes_out = (size_t)(reader->end - reader->at);
		reader->at = reader->end;
	} else {
		while (rc == 0 && *bytes_out == 0 && !is_at_end(reader))
			rc = next_piece(reader, bytes_out);
		*at_out = reader->piece;
	}
	if (rc == 0 && *bytes_out > reader->left)
		rc = -EMSGSIZE;
	if (rc == 0)
		reader->left -= *bytes_out;
	return rc;
}

static int append(struct compression_buffer *to, const uint8_t *piece, size_t bytes, size_t most)
{
	size_t room = to->room < ROOM_LEAST ? ROOM_LEAST : to->room;
	uint8_t *at;

	if (bytes > to->room - to->bytes) {
		while (room < to->bytes + bytes)
			room *= 2;
		room = room > most ? most : room;
		at = realloc(to->at, room);
		if (at == NULL)
			return -ENOMEM;
		to->at = at;
		to->room = room;
	}
	memcpy(to->at + to->bytes, piece, bytes);
	to->bytes += bytes;
	return 0;
}

int compression_unpack(unsigned codec, const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most)
{
	struct compression_reader reader;
	const uint8_t *piece;
	size_t n = 1;
	int rc = codec == HF_CODEC_NONE ? -EPROTONOSUPPORT : compression_reader_open(&reader, codec, from, bytes, most);

	to->bytes = 0;
	if (codec == HF_CODEC_NONE)
		return rc;
	while (rc == 0 && n > 0) {
		rc = compression_reader_next(&reader, &piece, &n);
		if (rc == 0 && n > 0)
			rc = append(to, piece, n, most);
	}
	compression_reader_close(&reader);
	return rc;
}

void compression_free(struct compression_buffer *buffer)
{
	free(buffer->at);
	*buffer = (struct compression_buffer){0};
}
