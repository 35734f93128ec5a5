/* A consumer in a group, as programs see it. */
#include <errno.h>

#include "broker/client/consumer.h"
#include "broker/client/membership.h"

#define SESSION_NS   10000000000ull
#define REBALANCE_NS 60000000000ull
#define HEARTBEAT_NS 3000000000ull
#define COMMIT_NS    5000000000ull

int hf_consumer_join(struct hf_consumer *consumer, const struct hf_group_config *config)
{
	struct hf_group_config full = *config;

	if (config->group == NULL || config->group[0] == '\0' || config->topic_count == 0)
		return -EINVAL;
	if (consumer->membership != NULL)
		return -EBUSY;
	full.session_ns = config->session_ns == 0 ? SESSION_NS : config->session_ns;
	full.rebalance_ns = config->rebalance_ns == 0 ? REBALANCE_NS : config->rebalance_ns;
	full.commit_ns = config->commit_ns == 0 ? COMMIT_NS : config->commit_ns;
	if (config->heartbeat_ns == 0)
		full.heartbeat_ns = full.session_ns / 3 < HEARTBEAT_NS ? full.session_ns / 3 : HEARTBEAT_NS;
	consumer->membership = membership_open(consumer, &full);
	return consumer->membership == NULL ? -ENOMEM : 0;
}

void hf_consumer_leave(struct hf_consumer *consumer)
{
	if (consumer->membership != NULL)
		consumer->membership->leave = true;
}

static bool is_member(const struct membership *membership)
{
	return membership != NULL && membership->state == MEMBERSHIP_STABLE && !membership->lost;
}

int hf_consumer_commit(struct hf_consumer *consumer, hf_committed *done, void *context)
{
	struct membership *membership = consumer->membership;

	if (membership == NULL)
		return -EINVAL;
	if (!is_member(membership))
		return -EAGAIN;
	if (membership->commit.waiting)
		return -EBUSY;
	membership->committed = done;
	membership->context = context;
	if (!membership_commit(membership)) {
		membership->committed = NULL;
		return -EAGAIN;
	}
	return 0;
}

void hf_consumer_group(const struct hf_consumer *consumer, struct hf_consumer_group *group_out)
{
	const struct membership *membership = consumer->membership;

	*group_out = (struct hf_consumer_group){.generation = -1};
	if (membership == NULL)
		return;
	group_out->is_over = membership->state == MEMBERSHIP_OVER;
	group_out->refusal = membership->refusal;
	if (is_member(membership) && !membership->rejoin) {
		group_out->generation = membership->generation;
		group_out->at_end = true;
	}
	for (const struct list *at = consumer->partitions.next; at != &consumer->partitions; at = at->next) {
		const struct consumer_partition *partition = container_of(at, struct consumer_partition, node);

		group_out->partitions += !partition->idle;
		if (!partition->idle && !consumer_at_end(partition))
			group_out->at_end = false;
	}
}
