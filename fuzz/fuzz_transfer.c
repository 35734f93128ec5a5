/* What another engine sends: messages of the channel and headers of tcp streams. What is accepted is within its bounds
 * and is written again as the same bytes. */
#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "transfer/tcp_header.h"
#include "transfer/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void message(const uint8_t *data, size_t bytes)
{
	static union wire_message decoded;
	static uint8_t again[WIRE_BYTES_MAX];
	enum wire_kind kind;

	if (!wire_decode(data, bytes, &kind, &decoded))
		return;
	ensure(kind != WIRE_SEGMENT || decoded.segment.count <= WIRE_BUFFERS_MAX);
	ensure(wire_encode(kind, &decoded, again) == bytes && memcmp(again, data, bytes) == 0);
}

static void header(const uint8_t *data)
{
	struct tcp_header decoded;
	uint8_t again[TCP_HEADER_BYTES];

	if (tcp_header_decode(data, &decoded) != NULL)
		return;
	ensure(decoded.length <= TCP_PAYLOAD_BYTES);
	tcp_header_encode(&decoded, again);
	ensure(memcmp(again, data, TCP_HEADER_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	message(data, bytes);
	if (bytes >= TCP_HEADER_BYTES)
		header(data);
	return 0;
}
