/* What another store sends. What is accepted is within its bounds and is written again as the same bytes. */
#include <holdfast/kv.h>

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "kv/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct wire_message message;
	size_t used;

	while (kv_wire_read(data, bytes, &message, &used) == WIRE_WHOLE) {
		uint8_t *again = malloc(used);

		ensure(again != NULL && used <= bytes && used == kv_wire_bytes(&message));
		ensure(message.key_bytes <= HF_KV_KEY_BYTES_MAX && message.value_bytes <= HF_KV_VALUE_BYTES_MAX);
		kv_wire_write(&message, again);
		ensure(memcmp(again, data, used) == 0);
		free(again);
		data += used;
		bytes -= used;
	}
	return 0;
}
