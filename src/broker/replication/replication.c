/* Replication: roles of partitions, messages, turns. */
#include "broker/replication/replication.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "broker/broker.h"

#define CHANNEL         "holdfast.replica"
#define MESSAGE_VERSION 0
#define MESSAGE_BYTES   65536u /* of memory */
#define SLOTS_MAX       65536u

/* ---- messages ---- */

struct replica_link *replication_link(struct replication *replication, int32_t broker)
{
	for (unsigned i = 0; i < replication->links.count; i++)
		if (replication->links.links[i].peer->id == broker)
			return &replication->links.links[i];
	return NULL;
}

static struct hf_peer *peer_of(const struct replication *replication, const struct replica_link *link)
{
	struct hf_peer *peer = NULL;

	for (unsigned i = 0; i < link->peer->address_count && peer == NULL; i++)
		peer = hf_peer_find(replication->broker->node, &link->peer->addresses[i]);
	return peer;
}

void replication_send(
	struct replica *replica, struct replica_link *link, struct kafka_replica_message *message, int kind)
{
	struct replication *replication = replica->replication;
	struct hf_peer *peer = peer_of(replication, link);
	struct codec_arena arena;
	uint8_t *data;
	size_t bytes;

	message->kind = (int8_t)kind;
	message->broker = replication->broker->config.node_id;
	message->incarnation = replication->broker->quorum.incarnation;
	message->topic_id = replica->topic_id;
	message->partition = replica->partition->index;
	message->leader_epoch = replica->epoch;
	codec_arena_init(&arena, MESSAGE_BYTES);
	bytes = codec_encode(&kafka_replica_message_codec, MESSAGE_VERSION, message, &arena, 0, &data, NULL);
	if (bytes == 0 || peer == NULL || hf_channel_send(replication->channel, peer, data, bytes) != 0)
		replica_link_fail(link);
	codec_arena_free(&arena);
}

static struct replica *find(const struct replication *replication, const struct kafka_replica_message *message)
{
	list_for_each (at, &replication->replicas) {
		struct replica *replica = container_of(at, struct replica, node);

		if (replica->partition->index == message->partition &&
			memcmp(&replica->topic_id, &message->topic_id, sizeof(message->topic_id)) == 0)
			return replica;
	}
	return NULL;
}

/* What is of another epoch than ours is not answered: the one that is behind hears of the controller soon. */
static void take(struct replication *replication, const struct kafka_replica_message *message)
{
	struct replica *replica = find(replication, message);
	struct replica_link *link = replication_link(replication, message->broker);

	if (replica == NULL || link == NULL || replica->epoch != message->leader_epoch)
		return;
	if (replica->partition->leads && message->kind == REPLICA_JOIN)
		leader_hear_join(replica, link, message);
	else if (replica->partition->leads && message->kind == REPLICA_GRANT)
		leader_hear_grant(replica, link, message);
	else if (!replica->partition->leads && (message->kind == REPLICA_TRUNCATE || message->kind == REPLICA_PLACE))
		follower_hear(replica, link, message);
}

static void heard(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct kafka_replica_message message;
	struct codec_arena arena;

	(void)channel, (void)peer;
	codec_arena_init(&arena, MESSAGE_BYTES);
	if (codec_decode(&kafka_replica_message_codec, MESSAGE_VERSION, data, bytes, &arena, &message, NULL) ==
		CODEC_OK)
		take(context, &message);
	codec_arena_free(&arena);
}

/* ---- links ---- */

static void link_up(void *context, struct replica_link *link)
{
	(void)context;
	log_info("broker: replicates with broker %d", link->peer->id); /* followers join at the next tick */
}

static void link_down(void *context, struct replica_link *link)
{
	struct replication *replication = context;

	list_for_each (at, &replication->replicas) {
		struct replica *replica = container_of(at, struct replica, node);

		leader_link_down(replica, link);
		follower_link_down(replica, link);
	}
}

static struct replica *slot_of(const struct replication *replication, uint32_t grant)
{
	unsigned slot = grant & (SLOTS_MAX - 1);

	return slot < replication->slot_count ? replication->slots[slot] : NULL;
}

static void wrote(void *context, struct replica_link *link, uint32_t grant, uint32_t bytes)
{
	struct replica *replica = slot_of(context, grant);

	(void)link;
	if (replica != NULL)
		follower_wrote(replica, grant, bytes);
}

/* Grants are numbered by the follower: an ACK names one of the peer's, HW and START one of our own. */
static void heard_record(void *context, struct replica_link *link, const struct replica_record *record)
{
	struct replication *replication = context;
	struct replica *replica = slot_of(replication, record->grant);

	if (record->kind == REPLICA_RECORD_HW && replica != NULL)
		follower_hear_hw(replica, record->grant, (int64_t)record->value);
	if (record->kind == REPLICA_RECORD_START && replica != NULL)
		follower_hear_start(replica, record->grant, (int64_t)record->value);
	if (record->kind != REPLICA_RECORD_ACK)
		return;
	list_for_each (at, &replication->replicas)
		leader_hear_ack(container_of(at, struct replica, node), link, record->grant, (int64_t)record->value);
}

/* ---- roles ---- */

/* Brings the role in line with the controller's word; again at the next tick if an extent cannot be fenced yet. What
 * the controller says of an earlier incarnation is not meant for this one (R-B22). */
static void settle(struct replica *replica)
{
	const struct broker *broker = replica->replication->broker;
	struct partition *partition = replica->partition;
	int32_t epoch = broker->quorum.registered ? replica->known.leader_epoch : -1;

	if (replica->epoch == epoch)
		return;
	if (partition->leads || replica->asking)
		leader_end(replica);
	else if (!follower_end(replica))
		return;
	replica->epoch = epoch;
	if (epoch < 0)
		return;
	partition->leader_epoch = epoch;
	if (replica->known.leader == broker->config.node_id) {
		leader_begin(replica);
		if (partition->leads)
			leader_know(replica);
	} else if (replica->known.leader >= 0)
		follower_begin(replica);
}

static void gone(struct partition *partition)
{
	struct replica *replica = partition->replication;

	if (partition->leads)
		leader_end(replica);
	else if (!follower_end(replica))
		log_error("broker: %s-%d is closed while its leader stands still in the middle of a write",
			replica->topic, partition->index);
	proposal_cancel(&replica->proposal);
	list_remove(&replica->node);
	replica->replication->slots[replica->slot] = NULL;
	partition->appended = partition->gone = NULL;
	partition->replication = NULL;
	free(replica);
}

/* A slot that is free; -1: no memory. */
static int find_slot(struct replication *replication)
{
	struct replica **slots;
	unsigned count;

	for (unsigned i = 0; i < replication->slot_count; i++)
		if (replication->slots[i] == NULL)
			return (int)i;
	count = replication->slot_count == 0 ? 16 : replication->slot_count * 2;
	slots = count > SLOTS_MAX ? NULL : realloc(replication->slots, count * sizeof(struct replica *));
	if (slots == NULL)
		return -1;
	for (unsigned i = replication->slot_count; i < count; i++)
		slots[i] = NULL;
	replication->slots = slots;
	replication->slot_count = count;
	return (int)(count / 2 < 16 ? 0 : count / 2);
}

static struct replica *make_replica(
	struct replication *replication, struct partition *partition, const struct controller_topic *topic)
{
	struct replica *replica = calloc(1, sizeof(*replica));
	int slot = replica == NULL ? -1 : find_slot(replication);

	if (slot < 0) {
		free(replica);
		return NULL;
	}
	replica->replication = replication;
	replica->partition = partition;
	replica->topic_id = topic->id;
	memcpy(replica->topic, topic->name, sizeof(replica->topic));
	replica->epoch = -1;
	replica->slot = (unsigned)slot;
	replication->slots[slot] = replica;
	for (unsigned i = 0; i < replication->links.count; i++)
		replica->pushes[i].replica = replica;
	list_push_back(&replication->replicas, &replica->node);
	partition->replication = replica;
	partition->appended = leader_appended;
	partition->gone = gone;
	/* What others have is not known yet. */
	partition->leads = false;
	partition->hw = partition->log->start_offset;
	return replica;
}

void replication_follow(struct replication *replication, struct partition *partition,
	const struct controller_topic *topic, int32_t index)
{
	struct replica *replica = partition->replication;

	if (replica == NULL)
		replica = make_replica(replication, partition, topic);
	if (replica == NULL) {
		log_error("broker: no memory to replicate %s-%d", topic->name, index);
		return;
	}
	replica->known = topic->at[index];
	partition->recovered_epoch = replica->known.recovered_epoch;
	settle(replica);
	if (partition->leads)
		leader_know(replica);
}

unsigned replication_under_replicated(const struct replication *replication)
{
	unsigned count = 0;

	list_for_each (at, &replication->replicas) {
		const struct replica *replica = container_of(at, struct replica, node);

		count += replica->partition->leads && replica->known.isr.count < replica->known.replicas.count;
	}
	return count;
}

/* ---- turns ---- */

static enum hf_poll replication_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct replication *replication = container_of(poller, struct replication, poller);
	bool busy = mesh_turn(&replication->links.mesh, now_ns);

	list_for_each (at, &replication->replicas) {
		struct replica *replica = container_of(at, struct replica, node);

		if (replica->partition->leads)
			leader_pump(replica);
		else
			follower_turn(replica);
	}
	replica_links_flush(&replication->links);
	return busy ? HF_BUSY : HF_IDLE;
}

static bool replication_arm(struct hf_poller *poller)
{
	struct replication *replication = container_of(poller, struct replication, poller);

	mesh_arm(&replication->links.mesh);
	return replication_poll(poller, hf_loop_now_ns(replication->broker->loop)) == HF_IDLE;
}

/* The controller wants it to lead, and its log is damaged. */
static bool is_declined(const struct replica *replica)
{
	return partition_log_is_damaged(replica->partition->log) && replica->epoch == replica->known.leader_epoch &&
	       replica->known.leader == replica->replication->broker->config.node_id;
}

static void tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct replication *replication = container_of(timer, struct replication, timer);

	list_for_each (at, &replication->replicas) {
		struct replica *replica = container_of(at, struct replica, node);

		settle(replica);
		if (replica->partition->leads || is_declined(replica))
			leader_tick(replica, now_ns);
		else
			follower_tick(replica, now_ns);
	}
	reports_send(replication);
	if (replication->starts_moved)
		topics_write_starts(&replication->broker->topics);
	replication->starts_moved = false;
	replication->roles_changed(replication->broker);
	hf_loop_set_timer(replication->broker->loop, timer, now_ns + REPLICATION_TICK_NS);
}

int replication_open(struct replication *replication, struct broker *broker,
	void (*roles_changed)(struct broker *broker), struct hf_error *error)
{
	static const struct hf_channel_events events = {.message = heard};
	struct replica_link_owner owner = {
		.up = link_up, .down = link_down, .wrote = wrote, .heard = heard_record, .context = replication};
	unsigned self = 0;
	int rc;

	*replication = (struct replication){.broker = broker,
		.roles_changed = roles_changed,
		.poller = {.poll = replication_poll, .arm = replication_arm},
		.timer = {.fire = tick, .quiet = true}};
	list_init(&replication->replicas);
	while (broker->config.voters.at[self].id != broker->config.node_id)
		self++;
	rc = hf_channel_register(broker->node, CHANNEL, &events, replication, &replication->channel, error);
	if (rc == 0)
		rc = replica_links_open(&replication->links, broker->node, &broker->config.voters, self, &owner, error);
	if (rc != 0)
		return rc;
	hf_loop_add_poller(broker->loop, &replication->poller);
	replication->attached = true;
	hf_loop_set_timer(broker->loop, &replication->timer, hf_loop_now_ns(broker->loop) + REPLICATION_TICK_NS);
	return 0;
}

void replication_close(struct replication *replication)
{
	if (replication->broker == NULL)
		return;
	ensure(list_empty(&replication->replicas));
	if (replication->attached)
		hf_loop_remove_poller(replication->broker->loop, &replication->poller);
	hf_loop_cancel_timer(replication->broker->loop, &replication->timer);
	proposal_cancel(&replication->reporting);
	hf_channel_close(replication->channel);
	replica_links_close(&replication->links);
	free(replication->slots);
	*replication = (struct replication){0};
}
