#include "sim/checkers/streams.h"

#include <string.h>

/* Message k of a stream: u32 stream, u32 k, u64 bytes, then bytes that follow from these. */
struct header {
	uint32_t stream, number;
	uint64_t bytes;
};
_Static_assert(sizeof(struct header) == STREAM_BYTES_LEAST, "every message has a header");

/* The bytes of a message, RUN at a time: within a run each is one more than the one before. */
#define RUN 256u

static size_t run_at(const struct header *header, size_t at, size_t bytes, const uint8_t **run_out)
{
	static uint8_t counting[2 * RUN];
	uint8_t first = (uint8_t)(header->stream * 37 + header->number * 11 + at + at / RUN * 3);
	size_t left = RUN - at % RUN;

	if (counting[1] == 0)
		for (size_t i = 0; i < sizeof(counting); i++)
			counting[i] = (uint8_t)i;
	*run_out = counting + first;
	return left < bytes - at ? left : bytes - at;
}

uint32_t streams_begin(struct streams *streams, unsigned sender, unsigned receiver)
{
	if (streams->count + 1 >= STREAMS_MAX)
		return 0;
	streams->at[++streams->count] = (struct stream_sent){.sender = sender, .receiver = receiver};
	return streams->count;
}

void streams_fill(const struct streams *streams, uint32_t stream, uint8_t *at, size_t bytes)
{
	const struct header header = {.stream = stream, .number = streams->at[stream].sent, .bytes = bytes};
	const uint8_t *run;

	memcpy(at, &header, sizeof(header));
	for (size_t i = sizeof(header), n; i < bytes; i += n) {
		n = run_at(&header, i, bytes, &run);
		memcpy(at + i, run, n);
	}
}

void streams_sent(struct streams *streams, uint32_t stream)
{
	streams->at[stream].sent++;
}

static const char *check_bytes(const struct header *header, const uint8_t *data, size_t bytes)
{
	const uint8_t *run;

	if (header->bytes != bytes)
		return "a message arrived in another length";
	for (size_t i = sizeof(*header), n; i < bytes; i += n) {
		n = run_at(header, i, bytes, &run);
		if (memcmp(data + i, run, n) != 0)
			return "a message arrived with other bytes";
	}
	return NULL;
}

const char *streams_hear(struct streams *streams, struct stream_end *end, unsigned sender, unsigned receiver,
	const uint8_t *data, size_t bytes)
{
	struct stream_sent *stream;
	struct header header;

	if (!end->open)
		return "a message arrived at an end that is not open";
	if (bytes < sizeof(header))
		return "a message arrived that nobody sent";
	memcpy(&header, data, sizeof(header));
	if (header.stream == 0 || header.stream > streams->count)
		return "a message arrived that nobody sent";
	stream = &streams->at[header.stream];
	if (stream->sender != sender || stream->receiver != receiver)
		return "a message arrived that was for another end";
	if (end->stream != header.stream && (end->stream != 0 || stream->received != 0))
		return "an end hears two streams, or two ends hear one";
	if (header.number != stream->received)
		return header.number < stream->received ? "a message arrived twice" : "a message is missing";
	end->stream = header.stream;
	stream->received++;
	return check_bytes(&header, data, bytes);
}

bool streams_complete(const struct streams *streams, uint32_t stream, const struct stream_end *end)
{
	return end->open && streams->at[stream].received == streams->at[stream].sent &&
	       (end->stream == stream || (end->stream == 0 && streams->at[stream].sent == 0));
}
