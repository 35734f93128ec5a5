#include "transfer/wire.h"

#include <string.h>

#include "base/ensure.h"
#include "base/fields.h"

#define FAMILY_4 4u
#define FAMILY_6 6u

static const struct field buffer_fields[] = {
	FIELD_ANY(struct wire_buffer, addr),
	FIELD_RANGE(struct wire_buffer, bytes, 1, UINT64_MAX),
	FIELD_ANY(struct wire_buffer, key),
	FIELD_ANY(struct wire_buffer, rkey),
	FIELD_MAX(struct wire_buffer, permission, HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE),
};
static const struct fields buffer_layout = FIELDS(buffer_fields);

static const struct field segment_fields[] = {
	FIELD_RANGE(struct wire_segment, incarnation, 1, UINT64_MAX),
	FIELD_ANY(struct wire_segment, probe.addr),
	FIELD_MAX(struct wire_segment, probe.bytes, PROBE_BYTES_MAX),
	FIELD_ANY(struct wire_segment, probe.rkey),
	FIELD_ANY(struct wire_segment, generation),
	FIELD_RANGE(struct wire_segment, first_epoch, 1, UINT32_MAX),
	FIELD_MAX(struct wire_segment, tcp_family, FAMILY_6),
	FIELD_ANY(struct wire_segment, tcp_port),
	FIELD_BYTES(struct wire_segment, tcp_host),
	FIELD_MAX(struct wire_segment, count, WIRE_BUFFERS_MAX),
	FIELD_LIST(struct wire_segment, buffers, count, &buffer_layout),
};
static const struct field fence_fields[] = {
	FIELD_ANY(struct wire_fence, epoch),
	FIELD_ANY(struct wire_fence, answered),
};
static const struct field released_fields[] = {FIELD_ANY(struct wire_released, generation)};
static const struct fields layouts[] = {[WIRE_SEGMENT] = FIELDS(segment_fields),
	[WIRE_FENCE] = FIELDS(fence_fields),
	[WIRE_FENCED] = FIELDS(fence_fields),
	[WIRE_RELEASED] = FIELDS(released_fields)};

uint32_t wire_encode(enum wire_kind kind, const union wire_message *message, uint8_t *at)
{
	ensure(1 + fields_bytes_max(&layouts[kind]) <= WIRE_BYTES_MAX);
	at[0] = (uint8_t)kind;
	return 1 + fields_write(&layouts[kind], message, at + 1);
}

/* No buffer ends behind the last address. */
static bool segment_is_valid(const struct wire_segment *segment)
{
	for (unsigned i = 0; i < segment->count; i++)
		if (segment->buffers[i].bytes - 1 > UINT64_MAX - segment->buffers[i].addr)
			return false;
	return segment->tcp_family == 0 || segment->tcp_family == FAMILY_4 || segment->tcp_family == FAMILY_6;
}

bool wire_decode(const uint8_t *at, size_t bytes, enum wire_kind *kind_out, union wire_message *message_out)
{
	if (bytes < 1 || bytes > WIRE_BYTES_MAX || at[0] < WIRE_SEGMENT || at[0] > WIRE_RELEASED)
		return false;
	*kind_out = (enum wire_kind)at[0];
	if (!fields_read(&layouts[at[0]], at + 1, (uint32_t)bytes - 1, message_out))
		return false;
	return *kind_out != WIRE_SEGMENT || segment_is_valid(&message_out->segment);
}

void wire_set_tcp(struct wire_segment *segment, const struct hf_addr *addr)
{
	segment->tcp_port = hf_addr_port(addr);
	if (addr->sa.sa_family == AF_INET) {
		segment->tcp_family = FAMILY_4;
		memcpy(segment->tcp_host, &addr->in.sin_addr, sizeof(addr->in.sin_addr));
	} else {
		segment->tcp_family = FAMILY_6;
		memcpy(segment->tcp_host, &addr->in6.sin6_addr, sizeof(addr->in6.sin6_addr));
	}
}

bool wire_tcp(const struct wire_segment *segment, struct hf_addr *addr_out)
{
	*addr_out = (struct hf_addr){0};
	if (segment->tcp_family == 0)
		return false;
	if (segment->tcp_family == FAMILY_4) {
		addr_out->in.sin_family = AF_INET;
		memcpy(&addr_out->in.sin_addr, segment->tcp_host, sizeof(addr_out->in.sin_addr));
	} else {
		addr_out->in6.sin6_family = AF_INET6;
		memcpy(&addr_out->in6.sin6_addr, segment->tcp_host, sizeof(addr_out->in6.sin6_addr));
	}
	hf_addr_set_port(addr_out, segment->tcp_port);
	return true;
}
