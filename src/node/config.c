/* The section of a node in a configuration file (docs/configuration.md): its keys stand at the top. */
#include <holdfast/node.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Drivers and administrators name NICs; the port behind the slash is a number. */
static bool parse_nic_name(const char *text, char *out)
{
	size_t length = strcspn(text, "/"), bytes = strlen(text);
	const char *port = text + length;
	bool good = length > 0 && length < HF_NAME_BYTES && bytes < HF_NIC_BYTES;

	for (size_t i = 0; i < length && good; i++)
		good = isalnum((unsigned char)text[i]) || strchr("._-", text[i]) != NULL;
	if (port[0] == '/')
		good = good && port[1] != '\0' && port[1] != '0' && strspn(port + 1, "0123456789") == strlen(port + 1);
	if (good)
		memcpy(out, text, bytes + 1);
	return good;
}

static bool parse_nic(const char *text, int64_t number, void *out)
{
	(void)number;
	return text != NULL && parse_nic_name(text, out);
}

static bool parse_mtu(const char *text, int64_t number, void *out)
{
	for (unsigned i = 0; i <= IBV_MTU_4096 - IBV_MTU_256; i++)
		if (text == NULL && number == 256 << i) {
			*(enum ibv_mtu *)out = (enum ibv_mtu)(IBV_MTU_256 + i);
			return true;
		}
	return false;
}

static bool parse_kind(const char *text, int64_t number, void *out)
{
	(void)number;
	for (const struct hf_dev_kind *kind = hf_dev_kinds(); text != NULL && kind->name != NULL; kind++)
		if (strcmp(text, kind->name) == 0) {
			snprintf(out, HF_NAME_BYTES, "%s", text);
			return true;
		}
	return false;
}

#define RAIL(member) HF_CONFIG_INTO(struct hf_rail_config, member)
#define NODE(member) HF_CONFIG_INTO(struct hf_node_config, member)

static const struct hf_config_key rail_keys[] = {
	{"name", HF_CONFIG_NAME, RAIL(name), .required = true, .unique = true},
	{"kind", HF_CONFIG_PARSED, RAIL(kind), .parse = parse_kind, .required = true,
		.expected = "expected a kind of device that holdfast devices lists: shm, soft or verbs"},
	{"nic", HF_CONFIG_PARSED, RAIL(nic), .parse = parse_nic,
		.expected = "expected an RDMA NIC such as \"mlx5_0\", or \"mlx5_0/2\" for its second port"},
	{"address", HF_CONFIG_ADDRESS, RAIL(address)},
	{"control", HF_CONFIG_ADDRESS, RAIL(control)},
	{"mtu", HF_CONFIG_PARSED, RAIL(mtu), .parse = parse_mtu, .expected = "expected 256, 512, 1024, 2048 or 4096"},
};

static const struct hf_config_key tls_keys[] = {
	{"cert", HF_CONFIG_PATH, HF_CONFIG_INTO(struct hf_tls_files, cert), .required = true},
	{"key", HF_CONFIG_PATH, HF_CONFIG_INTO(struct hf_tls_files, key), .required = true},
	{"ca", HF_CONFIG_PATH, HF_CONFIG_INTO(struct hf_tls_files, ca), .required = true},
};

static const char *const policies[] = {"none", "resend", "resend-cache", "varuna", NULL};
static const char *const evidences[] = {"both", "psn", "log", NULL};

static const struct hf_config_key node_keys[] = {
	{"name", HF_CONFIG_NAME, NODE(name), .required = true},
	{"fabric", HF_CONFIG_NAME, NODE(fabric)},
	{"rails", HF_CONFIG_OBJECT, NODE(rails), .of = rail_keys, .of_count = sizeof(rail_keys) / sizeof(*rail_keys),
		.elements = HF_RAILS_MAX, .count_offset = offsetof(struct hf_node_config, rail_count)},
	{"management", HF_CONFIG_ADDRESS, NODE(management), .elements = HF_RAILS_MAX,
		.count_offset = offsetof(struct hf_node_config, management_count)},
	{"secret_file", HF_CONFIG_PATH, NODE(secret_file)},
	{"tls", HF_CONFIG_OBJECT, NODE(tls), .of = tls_keys, .of_count = sizeof(tls_keys) / sizeof(*tls_keys)},
	{"http", HF_CONFIG_ADDRESS, NODE(http)},
	{"policy", HF_CONFIG_CHOICE, NODE(policy), .choices = policies},
	{"evidence", HF_CONFIG_CHOICE, NODE(evidence), .choices = evidences},
	{"heartbeat_ms", HF_CONFIG_MILLISECONDS, NODE(heartbeat_ns)},
	{"heartbeat_misses", HF_CONFIG_NUMBER, NODE(heartbeat_misses), .min = 1, .max = 1000},
	{"failback_ms", HF_CONFIG_MILLISECONDS, NODE(failback_ns)},
	{"budget_ms", HF_CONFIG_MILLISECONDS, NODE(budget_ns)},
	{"lease_ms", HF_CONFIG_MILLISECONDS, NODE(lease_ns)},
	{"pool_size", HF_CONFIG_NUMBER, NODE(pool_size), .min = 1, .max = 64},
	{"pool_vqps", HF_CONFIG_NUMBER, NODE(pool_vqps), .min = 1, .max = 1000000},
	{"timeout", HF_CONFIG_NUMBER, NODE(timeout), .min = 1, .max = 31},
	{"retry_cnt", HF_CONFIG_NUMBER, NODE(retry_cnt), .min = 1, .max = 7},
};

struct hf_config_section hf_node_config_section(struct hf_node_config *config_out)
{
	*config_out = (struct hf_node_config){.policy = HF_POLICY_VARUNA};
	return (struct hf_config_section){
		.keys = node_keys, .key_count = sizeof(node_keys) / sizeof(*node_keys), .out = config_out};
}

int hf_node_config_parse(const char *text, size_t bytes, struct hf_node_config *config_out, struct hf_error *error)
{
	struct hf_config_section section = hf_node_config_section(config_out);

	return hf_config_parse(text, bytes, &section, 1, error);
}

int hf_node_config_load(struct hf_env *env, const char *path, struct hf_node_config *config_out, struct hf_error *error)
{
	struct hf_config_section section = hf_node_config_section(config_out);

	return hf_config_load(env, path, &section, 1, error);
}
