/* transfer-engine.json: what is accepted is within its ranges, what is refused says why and on which line. */
#include <stdint.h>
#include <string.h>

#include <holdfast/transfer.h>

#include "base/ensure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct hf_transfer_file file;
	struct hf_error error = {0};

	if (hf_transfer_config_parse((const char *)data, bytes, &file, &error) != 0) {
		ensure(strncmp(error.text, "line ", 5) == 0);
		return 0;
	}
	ensure(file.node_path[0] != '\0' && strnlen(file.node_path, HF_PATH_BYTES) < HF_PATH_BYTES);
	ensure(file.engine.max_failover_attempts != 0 && file.engine.max_failover_attempts <= 1000);
	ensure(file.engine.fallback <= HF_FALLBACK_REQUIRED && file.engine.streams <= 8);
	ensure(file.engine.block_bytes >= 4096 && file.engine.shm_block_bytes >= 4096);
	ensure(file.engine.rail_cooldown_ns <= 300000000000ull);
	return 0;
}
