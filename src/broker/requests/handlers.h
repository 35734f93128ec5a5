/* handlers.h - one handler for each supported key; each is in the file of its name. */
#ifndef HOLDFAST_BROKER_HANDLERS_H
#define HOLDFAST_BROKER_HANDLERS_H

#include "broker/broker.h"
#include "broker/connection.h"
#include "broker/request.h"

/* Changes of the broker's own topic are refused: NULL and KAFKA_NONE, or why. */
const char *request_guard_own(struct codec_string topic, enum kafka_error *error_out);

typedef void request_handler(struct request *request);

struct handler {
	int16_t key, from, to; /* the versions that are served */
	int16_t announced;     /* the first version in ApiVersions */
	request_handler *handle;
};

/* All of them, by key. */
extern const struct handler handlers[];
extern const unsigned handler_count;
const struct handler *handlers_find(int16_t key);

request_handler api_versions_handle, metadata_handle, produce_handle, fetch_handle, list_offsets_handle,
	leader_epoch_handle, create_topics_handle, delete_topics_handle, create_partitions_handle,
	delete_records_handle, describe_configs_handle, alter_configs_handle, describe_cluster_handle,
	producer_id_handle, find_coordinator_handle, join_group_handle, sync_group_handle, heartbeat_handle,
	leave_group_handle, offset_commit_handle, offset_fetch_handle, describe_groups_handle, list_groups_handle,
	delete_groups_handle, access_handle, recover_handle;

#endif
