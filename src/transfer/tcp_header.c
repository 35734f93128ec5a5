/* A header, little-endian:
 *
 *     0 u32 magic     4 u8 type     5 u8 reason     6 u16 zero
 *     8 u32 epoch    12 u32 length
 *    16 u64 id       24 u64 key    32 u64 offset
 *    40 u32 zero     44 u32 crc32c of bytes 0 to 43 */
#include "transfer/tcp_header.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

#define MAGIC     0x54464148u /* "HAFT" */
#define CRC_BEGIN 44u

_Static_assert(CRC_BEGIN + sizeof(uint32_t) == TCP_HEADER_BYTES, "the checksum ends the header");

void tcp_header_encode(const struct tcp_header *header, uint8_t *at)
{
	memset(at, 0, TCP_HEADER_BYTES);
	put_le32(&at[0], MAGIC);
	at[4] = (uint8_t)header->type;
	at[5] = (uint8_t)header->reason;
	put_le32(&at[8], header->epoch);
	put_le32(&at[12], header->length);
	put_le64(&at[16], header->id);
	put_le64(&at[24], header->key);
	put_le64(&at[32], header->offset);
	put_le32(&at[CRC_BEGIN], crc32c(0, at, CRC_BEGIN));
}

static const char *check(const uint8_t *at, const struct tcp_header *header)
{
	if (header->type == 0 || header->type >= TCP_HEADER_TYPES)
		return "the type is unknown";
	if (header->reason >= TCP_NAKS || (header->type == TCP_NAK) != (header->reason != TCP_NAK_NONE))
		return "the reason does not go with the type";
	if (get_le16(&at[6]) != 0 || get_le32(&at[40]) != 0)
		return "reserved bytes are not zero";
	if (header->length > TCP_PAYLOAD_BYTES)
		return "the payload is too long";
	return NULL;
}

const char *tcp_header_decode(const uint8_t *at, struct tcp_header *header_out)
{
	if (get_le32(&at[0]) != MAGIC)
		return "this is no transfer stream";
	if (get_le32(&at[CRC_BEGIN]) != crc32c(0, at, CRC_BEGIN))
		return "the checksum is wrong";
	*header_out = (struct tcp_header){.type = (enum tcp_header_type)at[4],
		.reason = (enum tcp_nak)at[5],
		.epoch = get_le32(&at[8]),
		.length = get_le32(&at[12]),
		.id = get_le64(&at[16]),
		.key = get_le64(&at[24]),
		.offset = get_le64(&at[32])};
	return check(at, header_out);
}

bool tcp_header_has_payload(const struct tcp_header *header)
{
	return header->type == TCP_WRITE || header->type == TCP_DATA;
}
