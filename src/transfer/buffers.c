#include "transfer/buffers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "env/fault.h"

int buffers_init(struct buffers *buffers, struct hf_env *env, struct hf_vpd *pd, unsigned most)
{
	*buffers = (struct buffers){.env = env, .pd = pd, .most = most};
	list_init(&buffers->list);
	buffers->by_addr = calloc(most, sizeof(struct buffer *));
	return buffers->by_addr == NULL ? -ENOMEM : 0;
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
	free(buffers->by_addr);
	buffers->by_addr = NULL;
}

/* How many buffers begin there or before. */
static unsigned before(const struct buffers *buffers, uint64_t addr)
{
	unsigned begin = 0, end = buffers->count;

	while (begin < end) {
		unsigned middle = (begin + end) / 2;

		if ((uintptr_t)buffers->by_addr[middle]->addr <= addr)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

/* The last one that begins there or before; NULL. */
static struct buffer *last_before(const struct buffers *buffers, uint64_t addr)
{
	unsigned n = before(buffers, addr);

	return n == 0 ? NULL : buffers->by_addr[n - 1];
}

/* No two overlap: the last that begins before the end is the one that could. */
static bool overlaps(const struct buffers *buffers, const uint8_t *addr, uint64_t bytes)
{
	const struct buffer *buffer = last_before(buffers, (uintptr_t)addr + bytes - 1);

	return buffer != NULL && (uintptr_t)addr < (uintptr_t)buffer->addr + buffer->bytes;
}

static int check(const struct buffers *buffers, const void *addr, uint64_t bytes, struct hf_error *error)
{
	if (addr == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)addr)
		return hf_error_set(error, -EINVAL, "a buffer of %llu bytes at %p: it has no bytes or wraps",
			(unsigned long long)bytes, addr);
	if (buffers->count == buffers->most)
		return hf_error_set(error, -ENOSPC,
			"%u buffers are registered already; register fewer and larger ones, or raise max_buffers (up "
			"to %u)",
			buffers->most, WIRE_BUFFERS_MAX);
	if (overlaps(buffers, addr, bytes))
		return hf_error_set(error, -EEXIST, "memory at %p is registered already", addr);
	return 0;
}

static int access_of(unsigned permission)
{
	return IBV_ACCESS_LOCAL_WRITE | (permission & HF_TRANSFER_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (permission & HF_TRANSFER_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
}

static void insert(struct buffers *buffers, struct buffer *buffer)
{
	struct buffer **place = &buffers->by_addr[before(buffers, (uintptr_t)buffer->addr)];

	memmove(place + 1, place, (size_t)(&buffers->by_addr[buffers->count] - place) * sizeof(struct buffer *));
	*place = buffer;
	list_push_back(&buffers->list, &buffer->link);
	buffers->count++;
	buffers->generation++;
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
	fault_catch(); /* memcpy.c */
	if (buffers->pd != NULL)
		rc = hf_vmr_reg(buffers->pd, addr, bytes, access_of(permission), &buffer->mr, error);
	if (rc != 0) {
		free(buffer);
		return rc;
	}
	insert(buffers, buffer);
	return 0;
}

struct buffer *buffers_at(const struct buffers *buffers, const void *addr)
{
	struct buffer *buffer = last_before(buffers, (uintptr_t)addr);

	return buffer == NULL || buffer->addr != addr ? NULL : buffer;
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
	struct buffer **place;

	if (rc == -EBUSY)
		return rc;
	if (rc != 0)
		log_warn("transfer: the %" PRIu64 " bytes at %p cannot be deregistered: %s", buffer->bytes,
			(void *)buffer->addr, strerror(-rc));
	place = &buffers->by_addr[before(buffers, (uintptr_t)buffer->addr) - 1];
	memmove(place, place + 1, (size_t)(&buffers->by_addr[--buffers->count] - place) * sizeof(struct buffer *));
	list_remove(&buffer->link);
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
	struct buffer *buffer = last_before(buffers, (uintptr_t)addr);

	return buffer == NULL || buffer->leaving || !holds(buffer, (uintptr_t)addr, bytes) ? NULL : buffer;
}

static const struct buffer *with_key(const struct buffers *buffers, uint64_t key)
{
	list_for_each (at, &buffers->list)
		if (container_of(at, struct buffer, link)->key == key)
			return container_of(at, struct buffer, link);
	return NULL;
}

enum tcp_nak buffers_find(const struct buffers *buffers, uint64_t key, enum hf_transfer_opcode opcode, uint64_t offset,
	uint32_t length, uint8_t **at_out)
{
	unsigned needed = opcode == HF_TRANSFER_WRITE ? HF_TRANSFER_REMOTE_WRITE : HF_TRANSFER_REMOTE_READ;

	const struct buffer *buffer = last_before(buffers, offset);

	if (buffer == NULL || buffer->key != key) /* gone, or it begins behind the offset */
		buffer = with_key(buffers, key);
	if (buffer == NULL)
		return TCP_NAK_KEY;
	if (!holds(buffer, offset, length))
		return TCP_NAK_BOUNDS;
	if ((buffer->permission & needed) == 0)
		return TCP_NAK_PERMISSION;
	*at_out = buffer->addr + (offset - (uintptr_t)buffer->addr);
	return TCP_NAK_NONE;
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
