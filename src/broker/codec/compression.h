/* compression.h - the records of a batch compressed, by the libraries of their formats.
 *
 * gzip (RFC 1952), lz4 (its frame, of independent blocks, which Java's client requires) and zstd have the formats of
 * their libraries. A Snappy block is alone, as from librdkafka, or in the frames of snappy-java, as from Java:
 * i8 0x82, "SNAPPY", i8 0, i32 version, i32 oldest version that can read it, then i32 bytes and a block, repeated,
 * big-endian. Both are read; the first is written, because all clients read it. Pure but for memory. */
#ifndef HOLDFAST_BROKER_COMPRESSION_H
#define HOLDFAST_BROKER_COMPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <holdfast/producer.h>

/* Bytes in `to`; 0: they do not fit into `room`, or no memory. */
size_t compression_pack(enum hf_codec codec, const uint8_t *from, size_t bytes, uint8_t *to, size_t room);

/* Unpacks piece by piece; its memory does not grow with the bytes that come out, but for a Snappy block, which is
 * unpacked as a whole (to at most 22 times its bytes), and the window that a zstd frame declares (128 MiB at most). */
struct compression_reader {
	unsigned codec;
	const uint8_t *at, *end; /* what is still packed */
	size_t left;             /* bytes that may come out */
	void *stream;            /* of the library */
	bool over;               /* a stream, or a member of it, has ended */
	uint8_t *piece;
	size_t room;
};
/* At most `most` bytes are to come out. 0; -ENOMEM; -EPROTONOSUPPORT: there is no such codec. HF_CODEC_NONE has one
 * piece, the bytes themselves. */
int compression_reader_open(
	struct compression_reader *reader, unsigned codec, const uint8_t *from, size_t bytes, size_t most);
/* The next piece, which is good until the next call; without bytes: there is no more. 0; -EBADMSG: it is not of this
 * format, or ends early; -EMSGSIZE: more than `most`; -ENOMEM. */
int compression_reader_next(struct compression_reader *reader, const uint8_t **at_out, size_t *bytes_out);
/* Of one whose opening failed too. */
void compression_reader_close(struct compression_reader *reader);

/* Grown as needed; zeroed: empty. */
struct compression_buffer {
	uint8_t *at;
	size_t bytes, room;
};
/* All of it at once; errors as those of a reader. */
int compression_unpack(unsigned codec, const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most);
void compression_free(struct compression_buffer *buffer);

#endif
