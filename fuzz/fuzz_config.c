/* A configuration file: what is accepted is within its ranges, what is refused says why and on which line. The node's
 * section stands beside one of a service that has a key of every type. */
#include <stdint.h>
#include <string.h>

#include <holdfast/node.h>

#include "base/ensure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct shard {
	char name[8];
};
struct service {
	char title[16], directory[32];
	bool sync;
	uint16_t shard_max;
	uint64_t wait_ns;
	enum { RED, GREEN } colour;
	struct shard first, shards[3];
	unsigned shard_count;
	uint8_t weights[4];
	unsigned weight_count;
};

static const char *const colours[] = {"red", "green", NULL};
static const struct hf_config_key shard_keys[] = {
	{"name", HF_CONFIG_NAME, HF_CONFIG_INTO(struct shard, name), .required = true, .unique = true},
};
#define SERVICE(member) HF_CONFIG_INTO(struct service, member)
static const struct hf_config_key service_keys[] = {
	{"title", HF_CONFIG_TEXT, SERVICE(title), .required = true},
	{"directory", HF_CONFIG_PATH, SERVICE(directory)},
	{"sync", HF_CONFIG_BOOL, SERVICE(sync)},
	{"shard_max", HF_CONFIG_NUMBER, SERVICE(shard_max), .min = 1, .max = 1000},
	{"wait_ms", HF_CONFIG_MILLISECONDS, SERVICE(wait_ns)},
	{"colour", HF_CONFIG_CHOICE, SERVICE(colour), .choices = colours},
	{"first", HF_CONFIG_OBJECT, SERVICE(first), .of = shard_keys, .of_count = 1},
	{"shards", HF_CONFIG_OBJECT, SERVICE(shards), .of = shard_keys, .of_count = 1, .elements = 3,
		.count_offset = offsetof(struct service, shard_count)},
	{"weights", HF_CONFIG_NUMBER, SERVICE(weights), .min = 3, .max = 200, .elements = 4,
		.count_offset = offsetof(struct service, weight_count)},
};

static void expect_in_range(const struct service *service)
{
	ensure(service->title[0] != '\0' && strnlen(service->title, 16) < 16 && strnlen(service->directory, 32) < 32);
	ensure(service->shard_max <= 1000 && service->colour <= GREEN && service->wait_ns <= 3600000000000ull);
	ensure(service->shard_count <= 3 && service->weight_count <= 4);
	for (unsigned i = 0; i < service->shard_count; i++)
		ensure(service->shards[i].name[0] != '\0' &&
			(i == 0 || strcmp(service->shards[i].name, service->shards[0].name) != 0));
	for (unsigned i = 0; i < service->weight_count; i++)
		ensure(service->weights[i] >= 3 && service->weights[i] <= 200);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct hf_node_config config;
	struct service service = {.shard_max = 1};
	struct hf_config_section sections[] = {
		hf_node_config_section(&config), {.name = "service",
							 .keys = service_keys,
							 .key_count = sizeof(service_keys) / sizeof(*service_keys),
							 .out = &service}};
	struct hf_error error = {0};

	if (hf_config_parse((const char *)data, bytes, sections, 2, &error) == 0) {
		/* A node that has neither is refused when it is opened. */
		ensure(config.rail_count <= HF_RAILS_MAX);
		ensure(config.management_count <= HF_RAILS_MAX && config.name[0] != '\0');
		if (sections[1].present)
			expect_in_range(&service);
	} else {
		ensure(strncmp(error.text, "line ", 5) == 0);
	}
	return 0;
}
