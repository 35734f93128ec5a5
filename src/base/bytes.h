/* bytes.h - integers in byte order of the wire (be) or of our own formats (le), at any alignment. */
#ifndef HOLDFAST_BASE_BYTES_H
#define HOLDFAST_BASE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define BYTES_ACCESSORS(bits, order, to_host, from_host)                                                               \
	static inline uint##bits##_t get_##order##bits(const void *at)                                                 \
	{                                                                                                              \
		uint##bits##_t value;                                                                                  \
		memcpy(&value, at, sizeof(value));                                                                     \
		return to_host(value);                                                                                 \
	}                                                                                                              \
	static inline void put_##order##bits(void *at, uint##bits##_t value)                                           \
	{                                                                                                              \
		value = from_host(value);                                                                              \
		memcpy(at, &value, sizeof(value));                                                                     \
	}

BYTES_ACCESSORS(16, be, be16toh, htobe16)
BYTES_ACCESSORS(32, be, be32toh, htobe32)
BYTES_ACCESSORS(64, be, be64toh, htobe64)
BYTES_ACCESSORS(16, le, le16toh, htole16)
BYTES_ACCESSORS(32, le, le32toh, htole32)
BYTES_ACCESSORS(64, le, le64toh, htole64)

static inline uint32_t get_be24(const void *at)
{
	const uint8_t *byte = at;

	return (uint32_t)byte[0] << 16 | (uint32_t)byte[1] << 8 | byte[2];
}

static inline void put_be24(void *at, uint32_t value)
{
	uint8_t *byte = at;

	byte[0] = (uint8_t)(value >> 16);
	byte[1] = (uint8_t)(value >> 8);
	byte[2] = (uint8_t)value;
}

#endif
