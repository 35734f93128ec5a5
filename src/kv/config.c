/* The section "kv" of a configuration file. */
#include <holdfast/kv.h>
#include <holdfast/smr.h>

#include <stdio.h>
#include <string.h>

#define KV(member)     HF_CONFIG_INTO(struct hf_kv_config, member)
#define MEMBER(member) HF_CONFIG_INTO(struct hf_kv_member, member)

static const struct hf_config_key member_keys[] = {
	{"name", HF_CONFIG_NAME, MEMBER(name), .required = true, .unique = true},
	{"control", HF_CONFIG_ADDRESS, MEMBER(control), .required = true, .elements = HF_RAILS_MAX,
		.count_offset = offsetof(struct hf_kv_member, control_count)},
};

static const char *const recoveries[] = {"heal", "copy", "stop", NULL};
static const char *const cores[] = {[HF_CORES_OWNED] = "owned", [HF_CORES_SHARED] = "shared", NULL};
static const char *const media[] = {"file", "memory", NULL};

static const struct hf_config_key kv_keys[] = {
	{"cluster", HF_CONFIG_NAME, KV(cluster)},
	{"members", HF_CONFIG_OBJECT, KV(members), .of = member_keys,
		.of_count = sizeof(member_keys) / sizeof(*member_keys), .required = true, .elements = HF_KV_MEMBERS_MAX,
		.count_offset = offsetof(struct hf_kv_config, member_count)},
	{"listen", HF_CONFIG_ADDRESS, KV(listen)},
	{"clients", HF_CONFIG_NUMBER, KV(clients), .min = 1, .max = 1000000},
	{"clients_mb", HF_CONFIG_NUMBER, KV(clients_mb), .min = 32, .max = 1u << 20},
	{"log", HF_CONFIG_PATH, KV(log)},
	{"medium", HF_CONFIG_CHOICE, KV(medium), .choices = media},
	{"store_mb", HF_CONFIG_NUMBER, KV(store_mb), .min = 32, .max = 1u << 20},
	{"cores", HF_CONFIG_CHOICE, KV(cores), .choices = cores},
	{"lease_ms", HF_CONFIG_MILLISECONDS, KV(lease_ns)},
	{"suspect_ms", HF_CONFIG_MILLISECONDS, KV(suspect_ns)},
	{"cold_wait_ms", HF_CONFIG_MILLISECONDS, KV(cold_wait_ns)},
	{"min_members", HF_CONFIG_NUMBER, KV(min_members), .min = 1, .max = HF_KV_MEMBERS_MAX},
	{"missed_mb", HF_CONFIG_NUMBER, KV(missed_mb), .min = 1, .max = (1u << 14) - 1},
	{"copy_mbps", HF_CONFIG_NUMBER, KV(copy_mbps), .min = 10, .max = 1000000},
	{"unnoted", HF_CONFIG_BOOL, KV(unnoted)},
	{"ordered", HF_CONFIG_BOOL, KV(ordered)},
	{"recovery", HF_CONFIG_CHOICE, KV(recovery), .choices = recoveries},
	{"replay_ms", HF_CONFIG_MILLISECONDS, KV(replay_ns)},
	{"op_budget_ms", HF_CONFIG_MILLISECONDS, KV(budget_ns)},
};

static const char *check(const void *out)
{
	const struct hf_kv_config *config = out;

	return strlen(config->cluster) > HF_SMR_CLUSTER_MAX ? "the name of a cluster has at most 15 bytes" : NULL;
}

struct hf_config_section hf_kv_config_section(struct hf_kv_config *config_out)
{
	*config_out = (struct hf_kv_config){.cores = HF_CORES_SHARED};
	snprintf(config_out->cluster, sizeof(config_out->cluster), "kv");
	return (struct hf_config_section){.name = "kv",
		.keys = kv_keys,
		.key_count = sizeof(kv_keys) / sizeof(*kv_keys),
		.out = config_out,
		.required = true,
		.check = check};
}
