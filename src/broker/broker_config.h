/* broker_config.h - the section `broker` of a configuration file: Kafka's names for its keys. */
#ifndef HOLDFAST_BROKER_BROKER_CONFIG_H
#define HOLDFAST_BROKER_BROKER_CONFIG_H

#include <holdfast/config.h>

#include "broker/controller/controller.h"

#define BROKER_LISTENERS_MAX  8u
#define BROKER_HOST_BYTES     128u
#define BROKER_LISTENER_BYTES 32u

/* Of "NAME://HOST:PORT". */
struct broker_endpoint {
	char name[BROKER_LISTENER_BYTES], host[BROKER_HOST_BYTES];
	uint16_t port;
};
struct broker_endpoints {
	struct broker_endpoint at[BROKER_LISTENERS_MAX];
	unsigned count;
};

/* Of "ID@HOST:PORT": the brokers of a cluster, and the control addresses of their nodes. */
#define BROKER_VOTER_ADDRESSES 4u
struct broker_voter {
	int32_t id;
	struct hf_addr addresses[BROKER_VOTER_ADDRESSES];
	unsigned address_count;
};
struct broker_voters {
	struct broker_voter at[CONTROLLER_BROKERS_MAX];
	unsigned count; /* 0: this broker is alone */
};

struct broker_config {
	int32_t node_id;
	struct broker_endpoints listeners, advertised;
	char log_dirs[256];
	bool auto_create_topics, delete_topics, unclean_election;
	int32_t num_partitions;
	struct broker_voters voters;
	enum hf_cores cores; /* decides the defaults of session_ns and heartbeat_ns */
	uint64_t session_ns, heartbeat_ns, lag_ns;
	int16_t replication_factor, offsets_replication_factor;
	int64_t min_insync_replicas;
	uint32_t replication_batch_bytes;
	uint32_t request_max_bytes, fetch_max_bytes, max_connections, max_connections_per_ip;
	int64_t queued_max_bytes; /* 0: the default; -1: no limit */
	uint64_t idle_ns, retention_check_ns, session_min_ns, session_max_ns;
	int64_t rebalance_delay_ms;
	uint32_t extent_bytes; /* what an RDMA producer is granted at a time */
	uint32_t group_max_size, offset_metadata_max_bytes;
	int64_t offsets_retention_minutes;
	/* Of topics that do not say otherwise. */
	uint32_t segment_bytes, index_interval_bytes, max_message_bytes;
	int64_t roll_ms, retention_ms, retention_bytes, timestamp_after_ms;
	int64_t flush_messages, flush_ms, flush_scheduler_ms; /* FLUSH_NEVER */
	enum { BROKER_CREATE_TIME, BROKER_LOG_APPEND_TIME } timestamp_type;
};

/* Kafka's defaults. */
void broker_config_default(struct broker_config *config);
/* The times that are 0 get their defaults. */
void broker_config_settle(struct broker_config *config);
/* To be read with others by hf_config_load, over defaults. */
struct hf_config_section broker_config_section(struct broker_config *config);
/* What the requests of all clients may take; UINT64_MAX: no limit. */
uint64_t broker_config_queued_bytes(const struct broker_config *config);
/* The interval of the check for flush.ms; the default is a second. */
uint64_t broker_config_flush_check_ns(const struct broker_config *config);
void broker_config_topic_defaults(const struct broker_config *config, struct topic_config *defaults_out);

#endif
