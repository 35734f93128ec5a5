#include "proxy/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CLUSTER_DEFAULT    "redis"
#define REDIS_SLOTS        16384u /* of 1 KiB: 16 MiB of log, and 64 KiB for a command */
#define REDIS_BYTES        1024u
#define MEMCACHED_SLOTS    2048u /* of 16 KiB: 32 MiB of log; clients count on items of nearly 1 MiB */
#define MEMCACHED_BYTES    16384u
#define SILENCE_DEFAULT_NS 10000000000ull

#define OURS(member)   HF_CONFIG_INTO(struct proxy_settings, member)
#define MEMBER(member) HF_CONFIG_INTO(struct hf_smr_member, member)

static const char *const cores[] = {[HF_CORES_OWNED] = "owned", [HF_CORES_SHARED] = "shared", NULL};
static const char *const presets[] = {[HF_SMR_CALM] = "calm", [HF_SMR_FAST] = "fast", NULL};

static const struct hf_config_key member_keys[] = {
	{"id", HF_CONFIG_NUMBER, MEMBER(id), .required = true, .unique = true, .max = HF_SMR_MEMBERS_MAX - 1},
	{"name", HF_CONFIG_NAME, MEMBER(name), .required = true, .unique = true},
	{"control", HF_CONFIG_ADDRESS, MEMBER(addresses), .required = true, .elements = HF_SMR_ADDRESSES_MAX,
		.count_offset = offsetof(struct hf_smr_member, address_count)},
};

static const struct hf_config_key keys[] = {
	{"cluster", HF_CONFIG_NAME, OURS(cluster)},
	{"members", HF_CONFIG_OBJECT, OURS(members), .of = member_keys,
		.of_count = sizeof(member_keys) / sizeof(*member_keys), .required = true,
		.elements = HF_SMR_MEMBERS_MAX, .count_offset = offsetof(struct proxy_settings, member_count)},
	{"preset", HF_CONFIG_CHOICE, OURS(preset), .choices = presets},
	{"cores", HF_CONFIG_CHOICE, OURS(cores), .choices = cores},
	{"pulse_us", HF_CONFIG_NUMBER, OURS(pulse_us), .min = 10, .max = 1000000},
	{"silent_ms", HF_CONFIG_MILLISECONDS, OURS(silent_ns)},
	{"stuck_ms", HF_CONFIG_MILLISECONDS, OURS(stuck_ns)},
	{"patience_ms", HF_CONFIG_MILLISECONDS, OURS(patience_ns)},
	{"idle_ms", HF_CONFIG_MILLISECONDS, OURS(idle_ns)},
	{"window", HF_CONFIG_NUMBER, OURS(window), .min = 1, .max = HF_SMR_WINDOW_MAX},
	{"wal_mib", HF_CONFIG_NUMBER, OURS(wal_mib), .min = 1, .max = 1u << 20},
	{"tail_mib", HF_CONFIG_NUMBER, OURS(tail_mib), .min = 1, .max = 1u << 20},
	{"slots", HF_CONFIG_NUMBER, OURS(slots), .min = 16, .max = 1u << 20},
	{"slot_bytes", HF_CONFIG_NUMBER, OURS(slot_bytes), .min = 128, .max = 65536},
	{"listen", HF_CONFIG_ADDRESS, OURS(listen), .required = true},
	{"clients", HF_CONFIG_NUMBER, OURS(clients), .min = 1, .max = 1000000},
	{"clients_mb", HF_CONFIG_NUMBER, OURS(clients_mb), .min = 32, .max = 1u << 20},
	{"redis", HF_CONFIG_PATH, OURS(redis)},
	{"memcached", HF_CONFIG_PATH, OURS(memcached)},
	{"directory", HF_CONFIG_PATH, OURS(directory)},
	{"scripts", HF_CONFIG_BOOL, OURS(scripts)},
	{"server_silence_ms", HF_CONFIG_MILLISECONDS, OURS(silence_ns)},
};

static const char *check(const void *out)
{
	const struct proxy_settings *settings = out;

	if ((settings->slots & (settings->slots - 1)) != 0 || (settings->slot_bytes & (settings->slot_bytes - 1)) != 0)
		return "slots and slot_bytes are powers of two";
	if (settings->redis[0] != '\0' && settings->memcached[0] != '\0')
		return "the proxy stands before one server: say redis or memcached";
	return strlen(settings->cluster) > HF_SMR_CLUSTER_MAX ? "the name of a cluster has at most 15 bytes" : NULL;
}

struct hf_config_section proxy_config_section(struct proxy_settings *settings_out)
{
	*settings_out = (struct proxy_settings){.cores = HF_CORES_SHARED, .silence_ns = SILENCE_DEFAULT_NS};
	(void)snprintf(settings_out->cluster, sizeof(settings_out->cluster), CLUSTER_DEFAULT);
	return (struct hf_config_section){.name = "smr-proxy",
		.keys = keys,
		.key_count = sizeof(keys) / sizeof(*keys),
		.out = settings_out,
		.required = true,
		.check = check};
}

int proxy_config_smr(const struct proxy_settings *settings, const char *name, bool memcached,
	struct hf_smr_config *config_out, struct hf_error *error)
{
	for (unsigned i = 0; i < settings->member_count; i++) {
		if (strcmp(settings->members[i].name, name) != 0)
			continue;
		*config_out = (struct hf_smr_config){.cluster = settings->cluster,
			.id = settings->members[i].id,
			.members = settings->members,
			.member_count = settings->member_count,
			.preset = settings->preset,
			.cores = settings->cores,
			.pulse_ns = settings->pulse_us * 1000ull,
			.silent_ns = settings->silent_ns,
			.stuck_ns = settings->stuck_ns,
			.patience_ns = settings->patience_ns,
			.idle_ns = settings->idle_ns,
			.window = settings->window,
			.wal_bytes = (uint64_t)settings->wal_mib << 20,
			.tail_bytes = (uint64_t)settings->tail_mib << 20,
			.directory = settings->directory[0] == '\0' ? NULL : settings->directory,
			.slots = settings->slots != 0 ? settings->slots
				 : memcached          ? MEMCACHED_SLOTS
						      : REDIS_SLOTS,
			.slot_bytes = settings->slot_bytes != 0 ? settings->slot_bytes
				      : memcached               ? MEMCACHED_BYTES
								: REDIS_BYTES};
		return 0;
	}
	return hf_error_set(error, -ENOENT,
		"no member of \"smr-proxy\" has the name of this node, %s; list it among \"members\" at every member",
		name);
}
