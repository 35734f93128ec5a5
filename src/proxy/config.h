/* config.h - the section "smr-proxy" of a configuration file. */
#ifndef HOLDFAST_PROXY_CONFIG_H
#define HOLDFAST_PROXY_CONFIG_H

#include <holdfast/config.h>
#include <holdfast/smr.h>

struct proxy_settings {
	char cluster[HF_NAME_BYTES];
	struct hf_smr_member members[HF_SMR_MEMBERS_MAX]; /* this node is the one of its name */
	unsigned member_count;
	enum hf_smr_preset preset;
	enum hf_cores cores;
	uint32_t slots, slot_bytes;                          /* 0: not given */
	struct hf_addr listen;                               /* for clients */
	char redis[HF_PATH_BYTES], memcached[HF_PATH_BYTES]; /* the server; empty: not given */
	char directory[HF_PATH_BYTES];                       /* of the log's files; empty: memory is the storage */
	uint32_t clients, clients_mb;                        /* 0: the defaults of struct proxy_config */
	bool scripts;
	uint64_t silence_ns;
	/* Of the log, as in struct hf_smr_config; 0: the preset's. */
	uint64_t silent_ns, stuck_ns, patience_ns, idle_ns;
	uint32_t pulse_us, window, wal_mib, tail_mib;
};

struct hf_config_section proxy_config_section(struct proxy_settings *settings_out);

/* The configuration of the log of the member with this name; -ENOENT with a text: there is none. `settings` outlives
 * it. Keys that are not given have the defaults of the kind of server. */
int proxy_config_smr(const struct proxy_settings *settings, const char *name, bool memcached,
	struct hf_smr_config *config_out, struct hf_error *error);

#endif
