/* Which keys are served, in which versions: all that name topics by their names. */
#include "broker/requests/handlers.h"

const struct handler handlers[] = {
	/* Announced from 0 though refused below 3: else librdkafka does not compress. */
	{KAFKA_PRODUCE, 3, 12, 0, produce_handle},
	{KAFKA_FETCH, 4, 12, 4, fetch_handle},
	{KAFKA_LIST_OFFSETS, 1, 7, 1, list_offsets_handle},
	{KAFKA_METADATA, 0, 9, 0, metadata_handle},
	{KAFKA_OFFSET_COMMIT, 2, 9, 2, offset_commit_handle},
	{KAFKA_OFFSET_FETCH, 1, 9, 1, offset_fetch_handle},
	{KAFKA_FIND_COORDINATOR, 0, 6, 0, find_coordinator_handle},
	{KAFKA_JOIN_GROUP, 0, 9, 0, join_group_handle},
	{KAFKA_HEARTBEAT, 0, 4, 0, heartbeat_handle},
	{KAFKA_LEAVE_GROUP, 0, 5, 0, leave_group_handle},
	{KAFKA_SYNC_GROUP, 0, 5, 0, sync_group_handle},
	{KAFKA_DESCRIBE_GROUPS, 0, 5, 0, describe_groups_handle},
	{KAFKA_LIST_GROUPS, 0, 4, 0, list_groups_handle},
	{KAFKA_API_VERSIONS, 0, 3, 0, api_versions_handle},
	{KAFKA_CREATE_TOPICS, 2, 6, 2, create_topics_handle},
	{KAFKA_DELETE_TOPICS, 1, 5, 1, delete_topics_handle},
	{KAFKA_DELETE_RECORDS, 0, 2, 0, delete_records_handle},
	{KAFKA_INIT_PRODUCER_ID, 0, 4, 0, producer_id_handle},
	{KAFKA_OFFSET_FOR_LEADER_EPOCH, 2, 4, 2, leader_epoch_handle},
	{KAFKA_DESCRIBE_CONFIGS, 1, 4, 1, describe_configs_handle},
	{KAFKA_CREATE_PARTITIONS, 0, 3, 0, create_partitions_handle},
	{KAFKA_DELETE_GROUPS, 0, 2, 0, delete_groups_handle},
	{KAFKA_INCREMENTAL_ALTER_CONFIGS, 0, 1, 0, alter_configs_handle},
	{KAFKA_DESCRIBE_CLUSTER, 0, 1, 0, describe_cluster_handle},
	{KAFKA_ACCESS, 0, 0, 0, access_handle},
	{KAFKA_RECOVER, 0, 0, 0, recover_handle},
};
const unsigned handler_count = sizeof(handlers) / sizeof(*handlers);

const struct handler *handlers_find(int16_t key)
{
	for (unsigned i = 0; i < handler_count; i++)
		if (handlers[i].key == key)
			return &handlers[i];
	return NULL;
}

const char *request_guard_own(struct codec_string topic, enum kafka_error *error_out)
{
	bool own = codec_compare(GROUPS_TOPIC, topic) == 0;

	*error_out = own ? KAFKA_INVALID_TOPIC : KAFKA_NONE;
	return own ? "this topic is the broker's own" : NULL;
}
