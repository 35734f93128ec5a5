/* compression.h - the records of a batch compressed, by the libraries of their formats.
 *
 * gzip (RFC 1952), lz4 (its frame, of independent blocks, which Java's client requires) and zstd have the formats of
 * their libraries. A Snappy block is alone, as from librdkafka, or in the frames of snappy-java, as from Java:
 * i8 0x82, "SNAPPY", i8 0, i32 version, i32 oldest version that can read it, then i32 bytes and a block, repeated,
 * big-endian. Both are read; the first is written, because all clients read it. Pure but for memory. */
#ifndef HOLDFAST_BROKER_COMPRESSION_H
#define HOLDFAST_BROKER_COMPRESSION_H

#include <stddef.h>
#include <stdint.h>

#include <holdfast/producer.h>

/* Bytes in `to`; 0: they do not fit into `room`, or no memory. */
size_t compression_pack(enum hf_codec codec, const uint8_t *from, size_t bytes, uint8_t *to, size_t room);

/* Grown as needed; zeroed: empty. */
struct compression_buffer {
	uint8_t *at;
	size_t bytes, room;
};
/* 0; -EBADMSG: it is not of this format, or ends early; -EMSGSIZE: more than `most`; -ENOMEM; -EPROTONOSUPPORT: there
 * is no such codec. */
int compression_unpack(unsigned codec, const uint8_t *from, size_t bytes, struct compression_buffer *to, size_t most);
void compression_free(struct compression_buffer *buffer);

#endif
