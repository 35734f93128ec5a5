/* Control frames, little-endian:
 *
 *    0 u32 magic "HFC1"      4 u16 version (2)        6 u16 type
 *    8 u32 body_bytes       12 u32 crc32c of header (with 0 here) and body
 *   16 u64 sequence         24 u64 ack               32 body
 *
 * Body of a HELLO:
 *    0 u64 incarnation       8 name[32]   40 label[32]   72 u8 endpoint_count   73 u8 has_secret (0, 1)
 *   74 zero[6]              80 nonce[32] 112 proof[32]  144 endpoint[]
 *   endpoint: 0 label[32]   32 u8 family (4, 6)   33 u8 zero   34 u16 port   36 u8 address[16], 4 used with family 4
 *
 * In HELLO and READY `sequence` is the last message that the sender has queued for the other side, and `ack` the last
 * that it has from there: 0 where it has no peer of that name and incarnation.
 *
 * Body of READY: 0 proof[32]. Body of REFUSED: 0 u32 why (refusal.h). HEARTBEAT and BYE have none.
 *
 * Names are NUL terminated and NUL padded, of printable ASCII without spaces.
 * What is zero is checked to be, so that it can mean something in a later version. */
#include "net/frame.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"

#define FRAME_MAGIC    0x31434648u
#define FRAME_VERSION  2u
#define CRC_OFFSET     12u
#define HELLO_BYTES    144u
#define ENDPOINT_BYTES 52u
#define TLS_ALERT      21u /* the first byte of a record */
#define TLS_HANDSHAKE  22u
#define FAMILY_4       4u
#define FAMILY_6       6u

_Static_assert(HELLO_BYTES + FRAME_ENDPOINTS_MAX * ENDPOINT_BYTES <= FRAME_BODY_MAX, "a HELLO fits a frame");

static uint32_t frame_crc(const uint8_t *at, uint32_t body_bytes)
{
	static const uint8_t zero[4];
	uint32_t crc = crc32c(0, at, CRC_OFFSET);

	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, at + CRC_OFFSET + 4, FRAME_HEADER_BYTES - CRC_OFFSET - 4 + body_bytes);
}

uint32_t frame_encode(const struct frame *frame, uint8_t *at)
{
	ensure(frame->body_bytes <= FRAME_BODY_MAX);
	put_le32(at, FRAME_MAGIC);
	put_le16(at + 4, FRAME_VERSION);
	put_le16(at + 6, (uint16_t)frame->type);
	put_le32(at + 8, frame->body_bytes);
	put_le64(at + 16, frame->sequence);
	put_le64(at + 24, frame->ack);
	if (frame->body_bytes > 0)
		memcpy(at + FRAME_HEADER_BYTES, frame->body, frame->body_bytes);
	put_le32(at + CRC_OFFSET, frame_crc(at, frame->body_bytes));
	return FRAME_HEADER_BYTES + frame->body_bytes;
}

static enum frame_outcome bad(const char **reason_out, const char *reason)
{
	*reason_out = reason;
	return FRAME_BAD;
}

/* What must hold for each type besides the checksum. */
static const char *header_fault(unsigned type, uint32_t body_bytes, uint64_t sequence)
{
	if (type == 0 || type >= FRAME_TYPES)
		return "unknown frame type";
	if (type == FRAME_MESSAGE && sequence == 0)
		return "messages are numbered from 1";
	if ((type == FRAME_HEARTBEAT || type == FRAME_BYE || type == FRAME_REFUSED) && sequence != 0)
		return "heartbeats, BYE and REFUSED are not numbered";
	if ((type == FRAME_HEARTBEAT || type == FRAME_BYE) != (body_bytes == 0))
		return "heartbeats and BYE have no body, other frames have one";
	if (type == FRAME_READY && body_bytes != FRAME_PROOF_BYTES)
		return "READY without a proof";
	if (type == FRAME_REFUSED && body_bytes != FRAME_REFUSED_BYTES)
		return "REFUSED without a reason";
	return NULL;
}

bool frame_is_tls(const uint8_t *at, size_t bytes)
{
	return bytes > 0 && (at[0] == TLS_ALERT || at[0] == TLS_HANDSHAKE);
}

/* As much of the fixed fields as has arrived is checked at once, so that garbage is not waited for. */
static const char *prefix_fault(const uint8_t *at, size_t bytes)
{
	uint8_t magic[4];

	if (frame_is_tls(at, bytes))
		return "that node uses TLS and this node does not; give both nodes \"tls\", or none";
	put_le32(magic, FRAME_MAGIC);
	if (memcmp(at, magic, bytes < sizeof(magic) ? bytes : sizeof(magic)) != 0)
		return "this is not a control stream (bad magic)";
	if (bytes >= 6 && get_le16(at + 4) != FRAME_VERSION)
		return "another version of the control protocol";
	if (bytes >= 12 && get_le32(at + 8) > FRAME_BODY_MAX)
		return "frame too long";
	return NULL;
}

enum frame_outcome frame_decode(
	const uint8_t *at, size_t bytes, struct frame *frame_out, uint32_t *bytes_out, const char **reason_out)
{
	const char *fault = prefix_fault(at, bytes);
	uint32_t body_bytes;
	unsigned type;

	if (fault != NULL)
		return bad(reason_out, fault);
	if (bytes < FRAME_HEADER_BYTES)
		return FRAME_MORE;
	body_bytes = get_le32(at + 8);
	if (bytes < FRAME_HEADER_BYTES + body_bytes)
		return FRAME_MORE;
	if (get_le32(at + CRC_OFFSET) != frame_crc(at, body_bytes))
		return bad(reason_out, "checksum does not match");
	type = get_le16(at + 6);
	fault = header_fault(type, body_bytes, get_le64(at + 16));
	if (fault != NULL)
		return bad(reason_out, fault);
	*frame_out = (struct frame){.type = (enum frame_type)type,
		.sequence = get_le64(at + 16),
		.ack = get_le64(at + 24),
		.body = at + FRAME_HEADER_BYTES,
		.body_bytes = body_bytes};
	*bytes_out = FRAME_HEADER_BYTES + body_bytes;
	return FRAME_OK;
}

static void put_name(uint8_t *at, const char *name)
{
	memset(at, 0, FRAME_NAME_BYTES);
	memcpy(at, name, strnlen(name, FRAME_NAME_BYTES - 1));
}

static bool get_name(const uint8_t *at, char *name_out)
{
	size_t length = strnlen((const char *)at, FRAME_NAME_BYTES);

	if (length == 0 || length == FRAME_NAME_BYTES)
		return false;
	for (size_t i = 0; i < FRAME_NAME_BYTES; i++)
		if (i < length ? at[i] <= ' ' || at[i] > '~' : at[i] != 0)
			return false;
	memcpy(name_out, at, FRAME_NAME_BYTES);
	return true;
}

static void put_endpoint(uint8_t *at, const struct frame_endpoint *endpoint)
{
	memset(at, 0, ENDPOINT_BYTES);
	put_name(at, endpoint->label);
	put_le16(at + 34, hf_addr_port(&endpoint->addr));
	if (endpoint->addr.sa.sa_family == AF_INET6) {
		at[32] = FAMILY_6;
		memcpy(at + 36, &endpoint->addr.in6.sin6_addr, 16);
	} else {
		at[32] = FAMILY_4;
		memcpy(at + 36, &endpoint->addr.in.sin_addr, 4);
	}
}

static bool get_endpoint(const uint8_t *at, struct frame_endpoint *out)
{
	static const uint8_t zero[12];

	*out = (struct frame_endpoint){0};
	if (!get_name(at, out->label) || at[33] != 0)
		return false;
	if (at[32] == FAMILY_6) {
		out->addr.in6.sin6_family = AF_INET6;
		memcpy(&out->addr.in6.sin6_addr, at + 36, 16);
	} else if (at[32] == FAMILY_4 && memcmp(at + 40, zero, sizeof(zero)) == 0) {
		out->addr.in.sin_family = AF_INET;
		memcpy(&out->addr.in.sin_addr, at + 36, 4);
	} else {
		return false;
	}
	hf_addr_set_port(&out->addr, get_le16(at + 34));
	return true;
}

uint32_t frame_hello_encode(const struct frame_hello *hello, uint8_t *at)
{
	ensure(hello->endpoint_count <= FRAME_ENDPOINTS_MAX);
	memset(at, 0, HELLO_BYTES);
	put_le64(at, hello->incarnation);
	put_name(at + 8, hello->name);
	put_name(at + 40, hello->label);
	at[72] = (uint8_t)hello->endpoint_count;
	at[73] = hello->has_secret;
	memcpy(at + 80, hello->nonce, FRAME_NONCE_BYTES);
	memcpy(at + 112, hello->proof, FRAME_PROOF_BYTES);
	for (unsigned i = 0; i < hello->endpoint_count; i++)
		put_endpoint(at + HELLO_BYTES + i * ENDPOINT_BYTES, &hello->endpoints[i]);
	return HELLO_BYTES + hello->endpoint_count * ENDPOINT_BYTES;
}

enum frame_outcome frame_hello_decode(
	const uint8_t *at, size_t bytes, struct frame_hello *hello_out, const char **reason_out)
{
	static const uint8_t zero[6];

	*hello_out = (struct frame_hello){0};
	if (bytes < HELLO_BYTES)
		return bad(reason_out, "HELLO too short");
	hello_out->incarnation = get_le64(at);
	hello_out->endpoint_count = at[72];
	hello_out->has_secret = at[73] == 1;
	memcpy(hello_out->nonce, at + 80, FRAME_NONCE_BYTES);
	memcpy(hello_out->proof, at + 112, FRAME_PROOF_BYTES);
	if (hello_out->incarnation == 0 || !get_name(at + 8, hello_out->name) || !get_name(at + 40, hello_out->label) ||
		at[73] > 1 || memcmp(at + 74, zero, sizeof(zero)) != 0)
		return bad(reason_out, "HELLO with a bad name or incarnation");
	if (hello_out->endpoint_count > FRAME_ENDPOINTS_MAX ||
		bytes != HELLO_BYTES + hello_out->endpoint_count * ENDPOINT_BYTES)
		return bad(reason_out, "HELLO whose length does not match its list of addresses");
	for (unsigned i = 0; i < hello_out->endpoint_count; i++)
		if (!get_endpoint(at + HELLO_BYTES + i * ENDPOINT_BYTES, &hello_out->endpoints[i]))
			return bad(reason_out, "HELLO with a bad address");
	return FRAME_OK;
}
