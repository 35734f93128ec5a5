/* Commits in flight. */
#include "broker/groups/flights.h"

#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/groups/groups_log.h"

static struct flight *flight_of(struct list *node)
{
	return container_of(node, struct flight, node);
}

/* ---- making ---- */

static size_t text_bytes(struct codec_string text)
{
	return text.bytes < 0 ? 0 : (size_t)text.bytes;
}

static struct codec_string keep(char **to, struct codec_string text)
{
	struct codec_string kept = {*to, text.bytes};

	if (text.bytes < 0)
		return text;
	memcpy(*to, text.at, (size_t)text.bytes);
	*to += text.bytes;
	return kept;
}

struct flight *flights_make(
	struct groups *groups, struct codec_string group, const struct groups_commit *commits, int32_t count)
{
	size_t bytes = sizeof(struct flight) + (size_t)count * sizeof(*commits) + text_bytes(group);
	struct flight *flight;
	char *to;

	for (int32_t i = 0; i < count; i++)
		bytes += text_bytes(commits[i].topic) + text_bytes(commits[i].metadata);
	flight = bytes > FLIGHTS_BYTES_MAX - groups->flights.bytes ? NULL : malloc(bytes);
	if (flight == NULL)
		return NULL;
	groups->flights.bytes += bytes;
	*flight = (struct flight){
		.commits = (struct groups_commit *)(void *)(flight + 1), .count = count, .bytes = bytes};
	list_init(&flight->node);
	to = (char *)(flight->commits + count);
	flight->group = keep(&to, group);
	for (int32_t i = 0; i < count; i++) {
		flight->commits[i] = commits[i];
		flight->commits[i].topic = keep(&to, commits[i].topic);
		flight->commits[i].metadata = keep(&to, commits[i].metadata);
	}
	return flight;
}

void flights_free(struct groups *groups, struct flight *flight)
{
	groups->flights.bytes -= flight->bytes;
	list_remove(&flight->node);
	free(flight);
}

/* ---- waiting ---- */

static void due(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	flights_settle(container_of(timer, struct groups, flights.timer));
}

static void grown(struct partition_wait *wait, uint32_t bytes)
{
	struct groups *groups = container_of(wait, struct groups, flights.wait);

	if (bytes == UINT32_MAX) {
		partition_remove_wait(wait);
		list_for_each (at, &groups->flights.all)
			flight_of(at)->lost = true;
	} else if (!flights_wait_below(&groups->flights, groups_log_partition(groups)->hw)) {
		return;
	}
	hf_loop_set_timer(groups->broker->loop, &groups->flights.timer, hf_loop_now_ns(groups->broker->loop));
}

void flights_init(struct flights *flights)
{
	*flights = (struct flights){.wait = {.grown = grown}, .timer = {.fire = due}};
	list_init(&flights->all);
	list_init(&flights->wait.node);
}

void flights_add(struct groups *groups, struct flight *flight, int64_t end)
{
	flight->end = end;
	list_push_back(&groups->flights.all, &flight->node);
}

/* ---- the end ---- */

static enum kafka_error take(struct groups *groups, const struct flight *flight)
{
	struct groups_entry *entry = flight->count == 0 ? NULL : groups_find_or_make(groups, flight->group);
	const struct groups_commit *commits = flight->commits;
	int64_t now_ms = broker_now_ms(groups->broker);

	for (int32_t i = 0; i < flight->count; i++)
		if (entry == NULL)
			return KAFKA_COORDINATOR_NOT_AVAILABLE;
		else if (offsets_set(&entry->offsets, commits[i].topic, commits[i].partition, commits[i].offset,
				 commits[i].leader_epoch, commits[i].metadata, now_ms) != 0)
			return KAFKA_COORDINATOR_NOT_AVAILABLE;
	return KAFKA_NONE;
}

static void finish(struct groups *groups, struct flight *flight, enum kafka_error error)
{
	if (flight->told != NULL)
		flight->told(flight->context, error);
	flights_free(groups, flight);
}

void flights_settle(struct groups *groups)
{
	struct flights *flights = &groups->flights;
	struct partition *partition = groups_log_partition(groups);
	bool taken = false;

	while (!list_empty(&flights->all)) {
		struct flight *first = flight_of(flights->all.next);

		if (!first->lost && (partition == NULL || partition->hw < first->end))
			break;
		list_remove(&first->node);
		taken = taken || !first->lost;
		finish(groups, first, first->lost ? KAFKA_NOT_COORDINATOR : take(groups, first));
	}
	partition_remove_wait(&flights->wait);
	if (!list_empty(&flights->all) && partition != NULL)
		partition_add_wait(partition, &flights->wait);
	if (taken)
		groups_log_snapshot(groups);
}

void flights_stop(struct groups *groups)
{
	struct list *node;

	hf_loop_cancel_timer(groups->broker->loop, &groups->flights.timer);
	partition_remove_wait(&groups->flights.wait);
	while ((node = list_pop_front(&groups->flights.all)) != NULL)
		finish(groups, flight_of(node), KAFKA_NOT_COORDINATOR);
}

/* ---- looking ---- */

static bool is_same(struct codec_string a, struct codec_string b)
{
	return a.bytes == b.bytes && (a.bytes <= 0 || memcmp(a.at, b.at, (size_t)a.bytes) == 0);
}

int64_t flights_newest(const struct flights *flights)
{
	return list_empty(&flights->all) ? 0 : flight_of(flights->all.prev)->end;
}

bool flights_wait_below(const struct flights *flights, int64_t end)
{
	return !list_empty(&flights->all) && flight_of(flights->all.next)->end <= end;
}

bool flights_have(
	const struct flights *flights, struct codec_string group, struct codec_string topic, int32_t partition)
{
	list_for_each (at, &flights->all) {
		const struct flight *flight = flight_of(at);

		if (!is_same(flight->group, group))
			continue;
		for (int32_t i = 0; i < flight->count; i++)
			if (flight->commits[i].partition == partition && is_same(flight->commits[i].topic, topic))
				return true;
	}
	return false;
}
