#include "transfer/segment.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES offsetof(struct wire_segment, buffers)

int segment_init(struct hf_segment *segment, struct peer *peer)
{
	*segment = (struct hf_segment){.peer = peer, .view = calloc(1, HEAD_BYTES)};
	return segment->view == NULL ? -ENOMEM : 0;
}

void segment_free(struct hf_segment *segment)
{
	free(segment->view);
	free(segment->by_addr);
	segment->view = NULL;
	segment->by_addr = NULL;
}

int segment_set(struct hf_segment *segment, const struct wire_segment *said)
{
	size_t bytes = HEAD_BYTES + said->count * sizeof(said->buffers[0]);
	struct wire_segment *view = malloc(bytes);
	uint16_t *by_addr = malloc((said->count + 1u) * sizeof(*by_addr));

	if (view == NULL || by_addr == NULL) {
		free(view);
		free(by_addr);
		return -ENOMEM;
	}
	memcpy(view, said, bytes);
	segment_free(segment);
	segment->view = view;
	segment->by_addr = by_addr;
	segment->sorted = false;
	return 0;
}

bool segment_has(const struct hf_segment *segment, uint64_t key)
{
	for (unsigned i = 0; i < segment->view->count; i++)
		if (segment->view->buffers[i].key == key)
			return true;
	return false;
}

static int by_address(const void *a, const void *b, void *view)
{
	uint64_t left = ((struct wire_segment *)view)->buffers[*(const uint16_t *)a].addr;
	uint64_t right = ((struct wire_segment *)view)->buffers[*(const uint16_t *)b].addr;

	return left < right ? -1 : left > right;
}

/* Where many buffers are registered in a row, nobody looks meanwhile. */
static void sort(struct hf_segment *segment)
{
	for (unsigned i = 0; i < segment->view->count; i++)
		segment->by_addr[i] = (uint16_t)i;
	qsort_r(segment->by_addr, segment->view->count, sizeof(segment->by_addr[0]), by_address, segment->view);
	segment->sorted = true;
}

int segment_buffer(struct hf_segment *segment, uint64_t offset, uint64_t length)
{
	unsigned begin = 0, end = segment->view->count;
	const struct wire_buffer *buffer;

	if (end == 0)
		return -1;
	if (!segment->sorted)
		sort(segment);
	while (begin < end) { /* those before `begin` begin at the offset or before it */
		unsigned middle = (begin + end) / 2;

		if (segment->view->buffers[segment->by_addr[middle]].addr <= offset)
			begin = middle + 1;
		else
			end = middle;
	}
	if (begin == 0)
		return -1;
	buffer = &segment->view->buffers[segment->by_addr[begin - 1]];
	if (length > buffer->bytes || offset - buffer->addr > buffer->bytes - length)
		return -1;
	return (int)segment->by_addr[begin - 1];
}
