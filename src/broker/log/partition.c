/* A partition that this broker leads. */
#include "broker/log/partition.h"

void partition_init(struct partition *partition, int32_t index, struct partition_log *log)
{
	*partition = (struct partition){.index = index, .log = log, .hw = partition_log_end(log)};
	/* The one replica of its partitions leads them in the epoch in which it last wrote. */
	if (log->epochs.count > 0)
		partition->leader_epoch = log->epochs.at[log->epochs.count - 1].epoch;
	list_init(&partition->waits);
}

static void tell(struct partition *partition, uint32_t bytes)
{
	list_for_each_safe (at, &partition->waits) {
		struct partition_wait *wait = container_of(at, struct partition_wait, node);

		wait->grown(wait, bytes);
	}
}

void partition_end(struct partition *partition)
{
	tell(partition, UINT32_MAX);
	while (list_pop_front(&partition->waits) != NULL)
		continue;
}

enum kafka_error partition_append(
	struct partition *partition, const uint8_t *data, size_t bytes, int64_t now_ms, struct append_result *result)
{
	enum kafka_error error =
		partition_log_append(partition->log, data, bytes, partition->leader_epoch, now_ms, result);

	if (partition_log_end(partition->log) > partition->hw) {
		partition->hw = partition_log_end(partition->log);
		tell(partition, (uint32_t)bytes);
	}
	return error;
}

void partition_add_wait(struct partition *partition, struct partition_wait *wait)
{
	list_push_back(&partition->waits, &wait->node);
}

void partition_remove_wait(struct partition_wait *wait)
{
	list_remove(&wait->node);
}

enum kafka_error partition_check_epoch(const struct partition *partition, int32_t epoch)
{
	if (epoch < 0 || epoch == partition->leader_epoch)
		return KAFKA_NONE;
	return epoch < partition->leader_epoch ? KAFKA_FENCED_LEADER_EPOCH : KAFKA_UNKNOWN_LEADER_EPOCH;
}
