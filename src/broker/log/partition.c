/* A partition that this broker leads. */
#include "broker/log/partition.h"

#include "base/ensure.h"

static void flushed(struct partition_log *log, void *owner);

void partition_init(struct partition *partition, int32_t index, struct partition_log *log)
{
	*partition = (struct partition){.index = index,
		.log = log,
		.hw = partition_log_sure_end(log),
		.leads = !partition_log_is_damaged(log),
		.in_sync = 1,
		.replicas = 1};
	/* The one replica of its partitions leads them in the epoch in which it last wrote. */
	if (log->epochs.count > 0)
		partition->leader_epoch = log->epochs.at[log->epochs.count - 1].epoch;
	list_init(&partition->waits);
	log->flush.told = flushed;
	log->flush.owner = partition;
}

static void tell(struct partition *partition, uint32_t bytes)
{
	list_for_each_safe (at, &partition->waits) {
		struct partition_wait *wait = container_of(at, struct partition_wait, node);

		wait->grown(wait, bytes);
	}
}

void partition_take_back(struct partition *partition)
{
	if (partition->holder != NULL)
		partition->holder->take_back(partition->holder);
	ensure(partition->holder == NULL);
}

void partition_end(struct partition *partition)
{
	partition_take_back(partition);
	tell(partition, UINT32_MAX);
	while (list_pop_front(&partition->waits) != NULL)
		continue;
}

void partition_set_hw(struct partition *partition, int64_t hw)
{
	int64_t from = partition->hw;

	if (hw <= from)
		return;
	partition->hw = hw;
	if (!list_empty(&partition->waits))
		tell(partition, partition_log_bytes_between(partition->log, from, hw));
}

static void raise_hw(struct partition *partition)
{
	if (partition->appended != NULL)
		partition->appended(partition);
	else
		partition_set_hw(partition, partition_log_sure_end(partition->log));
}

/* What is in the log beyond `end` was appended just now. */
static void advance(struct partition *partition, int64_t end)
{
	if (partition_log_end(partition->log) != end)
		raise_hw(partition);
}

/* Waits for its disk are over; or there is none. */
static void flushed(struct partition_log *log, void *owner)
{
	struct partition *partition = owner;

	if (log->failed) {
		/* One of several replicas ends its role at the next tick. */
		partition->leads &= partition->replication != NULL || !partition_log_is_damaged(log);
		partition_take_back(partition);
		tell(partition, UINT32_MAX);
		return;
	}
	if (partition->leads)
		raise_hw(partition);
	tell(partition, 0);
}

bool partition_has_settled(const struct partition *partition, int64_t end, bool all)
{
	return (all ? partition->hw : partition_log_sure_end(partition->log)) >= end;
}

enum kafka_error partition_append_inspected(struct partition *partition, const uint8_t *data, size_t bytes,
	int64_t now_ms, const struct batch_contents *contents, struct append_result *result)
{
	enum kafka_error error;
	int64_t end;

	partition_take_back(partition);
	end = partition_log_end(partition->log);
	error = partition_log_append_inspected(
		partition->log, data, bytes, partition->leader_epoch, now_ms, contents, result);
	advance(partition, end);
	return error;
}

enum kafka_error partition_commit(struct partition *partition, const struct log_extent *extent, uint32_t bytes,
	int64_t now_ms, const struct batch_contents *contents, struct append_result *result)
{
	int64_t end = partition_log_end(partition->log);
	enum kafka_error error =
		partition_log_commit(partition->log, extent, bytes, partition->leader_epoch, now_ms, contents, result);

	advance(partition, end);
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

bool partition_has_enough(const struct partition *partition)
{
	int64_t least = partition->log->config.min_insync_replicas;

	return partition->in_sync >= (least < partition->replicas ? least : partition->replicas);
}

enum kafka_error partition_check_epoch(const struct partition *partition, int32_t epoch)
{
	if (epoch < 0 || epoch == partition->leader_epoch)
		return KAFKA_NONE;
	return epoch < partition->leader_epoch ? KAFKA_FENCED_LEADER_EPOCH : KAFKA_UNKNOWN_LEADER_EPOCH;
}
