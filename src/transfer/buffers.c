#include "transfer/buffers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

void buffers_init(struct buffers *buffers, struct hf_env *env, struct hf_vpd *pd)
{
	*buffers = (struct buffers){.env = env, .pd = pd};
	list_init(&buffers->list);
}

void buffers_free(struct buffers *buffers)
{
	list_for_each_safe (at, &buffers->list) {
		struct buffer *buffer = container_of(at, struct buffer, link);

		if (buffers_remove(buffers, buffer) == -EBUSY)
			log_error("transfer: a process of this host stands still within an operation on the %" PRIu64
				  " bytes at %p; keep them until it has ended",
				buffer->bytes, (void *)buffer->addr);
	}
}

static bool overlaps(const struct buffer *buffer, const uint8_t *addr, uint64_t bytes)
{
	return (uintptr_t)addr < (uintptr_t)buffer->addr + buffer->bytes &&
	       (uintptr_t)buffer->addr < (uintptr_t)addr + bytes;
}

static int check(const struct buffers *buffers, const void *addr, uint64_t bytes, struct hf_error *error)
{
	if (addr == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)addr)
		return hf_error_set(error, -EINVAL, "a buffer of %llu bytes at %p: it has no bytes or wraps",
			(unsigned long long)bytes, addr);
	if (buffers->count == WIRE_BUFFERS_MAX)
		return hf_error_set(error, -ENOSPC, "%u buffers are registered already; register fewer and larger ones",
			WIRE_BUFFERS_MAX);
	list_for_each (at, &buffers->list)
		if (overlaps(container_of(at, struct buffer, link), addr, bytes))
			return hf_error_set(error, -EEXIST, "memory at %p is registered already", addr);
	return 0;
}

static int access_of(unsigned permission)
{
	return IBV_ACCESS_LOCAL_WRITE | (permission & HF_TRANSFER_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (permission & HF_TRANSFER_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
}

int buffers_add(struct buffers *buffers, void *addr, uint64_t bytes, unsigned permission, struct hf_error *error)
{
	struct buffer *buffer;
	int rc = check(buffers, addr, bytes, error);

	if (rc != 0)
		return rc;
	buffer = calloc(1, sizeof(*buffer));
	if (buffer == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for another buffer");
	*buffer = (struct buffer){.addr = addr, .bytes = bytes, .permission = (uint8_t)permission};
	hf_env_entropy(buffers->env, &buffer->key, sizeof(buffer->key));
	if (buffers->pd != NULL)
		rc = hf_vmr_reg(buffers->pd, addr, bytes, access_of(permission), &buffer->mr, error);
	if (rc != 0) {
		free(buffer);
		return rc;
	}
	list_push_back(&buffers->list, &buffer->link);
	buffers->count++;
	buffers->generation++;
	return 0;
}

struct buffer *buffers_at(const struct buffers *buffers, const void *addr)
{
	list_for_each (at, &buffers->list) {
		struct buffer *buffer = container_of(at, struct buffer, link);

		if (buffer->addr == addr)
			return buffer;
	}
	return NULL;
}

void buffers_leave(struct buffers *buffers, struct buffer *buffer, uint64_t now_ns)
{
	buffer->leaving = true;
	buffer->left = ++buffers->generation;
	buffer->left_ns = now_ns;
}

int buffers_remove(struct buffers *buffers, struct buffer *buffer)
{
	int rc = hf_vmr_dereg(buffer->mr);

	if (rc == -EBUSY)
		return rc;
	if (rc != 0)
		log_warn("transfer: the %" PRIu64 " bytes at %p cannot be deregistered: %s", buffer->bytes,
			(void *)buffer->addr, strerror(-rc));
	list_remove(&buffer->link);
	buffers->count--;
	free(buffer);
	return 0;
}

static bool holds(const struct buffer *buffer, uint64_t addr, uint64_t bytes)
{
	return addr >= (uintptr_t)buffer->addr && bytes <= buffer->bytes &&
	       addr - (uintptr_t)buffer->addr <= buffer->bytes - bytes;
}

struct buffer *buffers_holding(const struct buffers *buffers, const void *addr, uint64_t bytes)
{
	list_for_each (at, &buffers->list) {
		struct buffer *buffer = container_of(at, struct buffer, link);

		if (!buffer->leaving && holds(buffer, (uintptr_t)addr, bytes))
			return buffer;
	}
	return NULL;
}

enum tcp_nak buffers_find(const struct buffers *buffers, uint64_t key, enum hf_transfer_opcode opcode, uint64_t offset,
	uint32_t length, uint8_t **at_out)
{
	unsigned needed = opcode == HF_TRANSFER_WRITE ? HF_TRANSFER_REMOTE_WRITE : HF_TRANSFER_REMOTE_READ;

	list_for_each (at, &buffers->list) {
		const struct buffer *buffer = container_of(at, struct buffer, link);

		if (buffer->key != key)
			continue;
		if (!holds(buffer, offset, length))
			return TCP_NAK_BOUNDS;
		if ((buffer->permission & needed) == 0)
			return TCP_NAK_PERMISSION;
		*at_out = buffer->addr + (offset - (uintptr_t)buffer->addr);
		return TCP_NAK_NONE;
	}
	return TCP_NAK_KEY;
}

void buffers_describe(const struct buffers *buffers, struct wire_segment *segment_out)
{
	segment_out->generation = buffers->generation;
	segment_out->count = 0;
	list_for_each (at, &buffers->list) {
		const struct buffer *buffer = container_of(at, struct buffer, link);

		if (buffer->leaving)
			continue;
		segment_out->buffers[segment_out->count++] = (struct wire_buffer){.addr = (uintptr_t)buffer->addr,
			.bytes = buffer->bytes,
			.key = buffer->key,
			.rkey = buffer->mr == NULL ? 0 : buffer->mr->rkey,
			.permission = buffer->permission};
	}
}
