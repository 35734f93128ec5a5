/* A configuration file: what is accepted is within its ranges, what is refused says why and on which line. */
#include <stdint.h>
#include <string.h>

#include <holdfast/node.h>

#include "base/ensure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct hf_node_config config;
	struct hf_error error = {0};

	if (hf_node_config_parse((const char *)data, bytes, &config, &error) == 0) {
		ensure(config.rail_count >= 1 && config.rail_count <= HF_RAILS_MAX);
		ensure(config.management_count <= HF_RAILS_MAX && config.name[0] != '\0');
	} else {
		ensure(strncmp(error.text, "line ", 5) == 0);
	}
	return 0;
}
