/* Pushing what is appended to followers, and which of them are in sync. */
#include <stdlib.h>
#include <string.h>

#include "base/states.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/replication/replication.h"

#define ASK_NS 50000000ull /* between two proposals for one isr */

static const struct state push_states[PUSH_STATES] = {
	[PUSH_IDLE] = {"idle", BIT(PUSH_IDLE) | BIT(PUSH_PLACED)},
	[PUSH_PLACED] = {"placed", BIT(PUSH_IDLE) | BIT(PUSH_PLACED) | BIT(PUSH_READY)},
	[PUSH_READY] = {"ready", BIT(PUSH_IDLE) | BIT(PUSH_PLACED)},
};

static void push_move(struct push *push, enum push_state to)
{
	states_move_often("push", push_states, &push->state, to, "%s-%d to broker %d", push->replica->topic,
		push->replica->partition->index, push->link == NULL ? -1 : push->link->peer->id);
}

static struct broker *broker_of(const struct replica *replica)
{
	return replica->replication->broker;
}

static unsigned voters(const struct replica *replica)
{
	return replica->replication->links.count;
}

static int32_t id_of(const struct replica *replica, unsigned place)
{
	return replica->replication->links.links[place].peer->id;
}

static bool is_self(const struct replica *replica, unsigned place)
{
	return place == replica->replication->links.mesh.config.self;
}

static struct push *push_of(struct replica *replica, const struct replica_link *link)
{
	return &replica->pushes[link - replica->replication->links.links];
}

/* ---- the high watermark ---- */

/* Replicas in sync, and those about to be: all of them must have a record (R-B21). */
static bool counts(const struct replica *replica, unsigned place)
{
	int32_t id = id_of(replica, place);

	return controller_set_has(&replica->known.isr, id) ||
	       (replica->asking && controller_set_has(&replica->asked, id));
}

static void advance(struct replica *replica)
{
	int64_t hw = partition_log_sure_end(replica->partition->log);

	for (unsigned i = 0; i < voters(replica); i++)
		if (!is_self(replica, i) && counts(replica, i) && replica->pushes[i].acked < hw)
			hw = replica->pushes[i].acked;
	partition_set_hw(replica->partition, hw);
}

/* ---- the isr ---- */

static void answered(struct proposal *proposal, const struct controller_result *result)
{
	struct replica *replica = container_of(proposal, struct replica, proposal);

	(void)result; /* what became of it is what the controller says now */
	replica->asking = false;
	if (replica->partition->leads)
		advance(replica);
}

/* The isr is to be that one. */
static void propose(struct replica *replica, struct kafka_controller_command *command, enum controller_kind kind,
	const struct controller_set *isr)
{
	struct broker *broker = broker_of(replica);

	command->kind = (int8_t)kind;
	command->topic_id = replica->topic_id;
	command->partition = replica->partition->index;
	command->leader_epoch = replica->epoch;
	command->partition_epoch = replica->known.epoch;
	replica->asking = true;
	replica->asked = *isr;
	replica->asked_ns = hf_loop_now_ns(broker->loop);
	replica->proposal = (struct proposal){.done = answered};
	quorum_propose(&broker->quorum, command, &replica->proposal);
}

static void ask(struct replica *replica, const struct controller_set *isr)
{
	struct kafka_controller_command_command_member members[CONTROLLER_BROKERS_MAX];
	struct kafka_controller_command command;

	codec_default(kafka_controller_command_codec.root, &command);
	command.isr.at = members;
	for (unsigned i = 0; i < isr->count; i++) {
		struct replica_link *link = replication_link(replica->replication, isr->at[i]);
		bool is_member = controller_set_has(&replica->known.isr, isr->at[i]);

		members[command.isr.count++] = (struct kafka_controller_command_command_member){
			.broker = isr->at[i], .incarnation = is_member ? 0 : push_of(replica, link)->incarnation};
	}
	propose(replica, &command, CONTROLLER_SET_ISR, isr);
}

static bool may_ask(const struct replica *replica, uint64_t now_ns)
{
	return !replica->asking && now_ns >= replica->asked_ns + ASK_NS;
}

/* Others of the isr have all that was acknowledged, and disks that take more (B8). */
static void resign(struct replica *replica, uint64_t now_ns)
{
	struct kafka_controller_command command;

	bool alone = replica->known.isr.count < 2, damaged = partition_log_is_damaged(replica->partition->log);

	if (!may_ask(replica, now_ns) || (alone && !damaged))
		return;
	codec_default(kafka_controller_command_codec.root, &command);
	command.damaged = damaged;
	log_warn("broker: %s-%d %s, because its log here %s", replica->topic, replica->partition->index,
		alone ? "has no leader now" : "is given to another replica", damaged ? "is damaged" : "has failed");
	propose(replica, &command, CONTROLLER_RESIGN, &replica->known.isr);
}

/* A process that has ended is waited for no longer: a follower has no lease (R-G5). */
static bool has_died(const struct replica *replica, const struct push *push)
{
	return quorum_has_died(&broker_of(replica)->quorum, (unsigned)(push - replica->pushes));
}

/* A replica that has everything that was ever readable, and what there was when this leader began, may come in. */
static void consider(struct replica *replica, uint64_t now_ns)
{
	struct partition *partition = replica->partition;
	struct controller_set isr = replica->known.isr;
	bool wanted = false;

	if (!may_ask(replica, now_ns))
		return;
	for (unsigned i = 0; i < voters(replica); i++) {
		struct push *push = &replica->pushes[i];
		int32_t id = id_of(replica, i);

		if (is_self(replica, i))
			continue;
		if (!controller_set_has(&isr, id) && push->state == PUSH_READY && push->acked >= partition->hw &&
			push->acked >= partition->epoch_start && !has_died(replica, push)) {
			isr.at[isr.count++] = id;
			replica->replication->counters.isr_expands++;
			wanted = true;
		}
	}
	if (wanted)
		ask(replica, &isr);
}

static bool is_behind(const struct replica *replica, const struct push *push, uint64_t now_ns)
{
	return push->failed || has_died(replica, push) ||
	       now_ns - hf_loop_gaps_ns(broker_of(replica)->loop) >=
		       push->caught_up_ns + broker_of(replica)->config.lag_ns;
}

static void drop_laggards(struct replica *replica, uint64_t now_ns)
{
	struct controller_set isr = {0};

	if (!may_ask(replica, now_ns))
		return;
	for (unsigned i = 0; i < replica->known.isr.count; i++) {
		int32_t id = replica->known.isr.at[i];
		struct replica_link *link = replication_link(replica->replication, id);

		if (id == broker_of(replica)->config.node_id || link == NULL ||
			!is_behind(replica, push_of(replica, link), now_ns))
			isr.at[isr.count++] = id;
	}
	if (isr.count == replica->known.isr.count)
		return;
	log_warn("broker: %s-%d: %u replicas have failed, or are behind for longer than replica.lag.time.max.ms, and "
		 "leave the "
		 "isr",
		replica->topic, replica->partition->index, replica->known.isr.count - isr.count);
	replica->replication->counters.isr_shrinks++;
	ask(replica, &isr);
}

/* ---- a follower's place ---- */

/* What lies in the log is not what was committed: a holder has changed it within its extent, or the disk has. Others
 * have it right. */
static void give_up(struct replica *replica, const struct segment *segment, uint32_t place, int64_t offset)
{
	struct partition *partition = replica->partition;

	if (partition->log->failed)
		return;
	partition_log_found_damage(
		partition->log, segment, place, offset, "it was changed after it had been committed");
	partition_take_back(partition);
}

static void give_up_at_break(struct replica *replica, const struct segment *segment)
{
	uint32_t place;
	int64_t offset;

	segment_find_break(segment, &place, &offset);
	give_up(replica, segment, place, offset);
}

static void push_end(struct push *push)
{
	if (push->segment != NULL)
		segment_release(push->segment);
	push->segment = NULL;
	push->grant = 0;
	push_move(push, PUSH_IDLE);
}

/* The follower goes on here, with room for `need` bytes. */
static void send_place(struct push *push, struct segment *segment, uint32_t place, int64_t offset, uint32_t need)
{
	struct partition *partition = push->replica->partition;
	bool is_head = segment == partition_log_head(partition->log);
	struct kafka_replica_message message = {.attempt = push->attempt,
		.offset = offset,
		.base = segment->base_offset,
		.place = place,
		.capacity = is_head ? segment->capacity : segment->bytes,
		.need = need,
		.start_offset = partition->log->start_offset,
		.hw = partition->hw};

	segment_hold(segment);
	if (push->segment != NULL)
		segment_release(push->segment);
	push->segment = segment;
	push->place = place;
	push->placed = offset;
	push->start_told = partition->log->start_offset;
	push_move(push, PUSH_PLACED);
	replication_send(push->replica, push->link, &message, REPLICA_PLACE);
}

static void send_truncate(struct push *push, int32_t epoch, int64_t offset)
{
	struct kafka_replica_message message = {.attempt = push->attempt, .epoch = epoch, .offset = offset};

	replication_send(push->replica, push->link, &message, REPLICA_TRUNCATE);
}

/* Whether the histories agree up to the follower's end; if not, it is told where the common part ends at most. */
static bool agrees(struct push *push, const struct kafka_replica_message *join)
{
	const struct partition_log *log = push->replica->partition->log;
	int64_t leo = partition_log_end(log), end;
	int32_t epoch;

	if (join->epoch < 0)
		return true; /* it has nothing */
	if (leader_epochs_end(&log->epochs, join->epoch, leo, &epoch, &end)) {
		if (epoch == join->epoch && join->offset <= end)
			return true;
		send_truncate(push, epoch, end);
		return false;
	}
	end = log->epochs.count > 0 ? log->epochs.at[0].start_offset : leo;
	if (join->offset <= end)
		return true; /* all that it has is older than what is here */
	send_truncate(push, -1, end);
	return false;
}

/* The CRC covers neither the offset, by which it was found, nor the epoch. */
static bool is_as_committed(
	const struct partition_log *log, const struct segment *segment, uint32_t place, int64_t offset)
{
	struct batch batch;

	return segment_at(segment, place, &batch) && batch_check(segment->map + place, &batch) == BATCH_RIGHT &&
	       batch.leader_epoch == leader_epochs_at(&log->epochs, offset);
}

static void place_at(struct push *push, int64_t offset)
{
	struct partition_log *log = push->replica->partition->log;
	struct segment *segment;
	uint32_t place;

	if (partition_log_locate(log, offset, &segment, &place)) {
		/* A follower that has refused it joins where it lies. */
		if (place < segment->bytes && !is_as_committed(log, segment, place, offset)) {
			give_up(push->replica, segment, place, offset);
			return;
		}
		if (place == segment->bytes && segment != partition_log_head(log)) {
			segment = container_of(segment->node.next, struct segment, node);
			place = 0;
		}
		send_place(push, segment, place, offset, 0);
		return;
	}
	if (place == segment->bytes && offset >= segment->base_offset && offset < segment->next_offset) {
		give_up_at_break(push->replica, segment); /* what lies before it leads elsewhere */
		return;
	}
	if (offset >= segment->base_offset) { /* within a batch: it goes back to the beginning of the segment */
		send_truncate(push, -1, segment->base_offset);
		return;
	}
	/* What it lacks is gone: it begins with the oldest segment. */
	send_place(push, segment, 0, segment->base_offset, 0);
}

void leader_hear_join(struct replica *replica, struct replica_link *link, const struct kafka_replica_message *message)
{
	struct push *push = push_of(replica, link);

	if (!controller_set_has(&replica->known.replicas, link->peer->id))
		return;
	push_end(push);
	push->link = link;
	push->attempt = message->attempt;
	push->incarnation = message->incarnation;
	push->acked = -1;
	push->hw_told = -1;
	push->failed = message->failed;
	if (!push->failed && agrees(push, message))
		place_at(push, message->offset);
}

static void book_ack(struct push *push, int64_t offset)
{
	struct replica *replica = push->replica;
	int64_t leo = partition_log_end(replica->partition->log);
	uint64_t attended_ns = hf_loop_attended_ns(broker_of(replica)->loop);

	if (offset > push->acked)
		push->acked = offset;
	if (push->acked >= push->mark) {
		push->caught_up_ns = push->acked >= leo ? attended_ns : push->mark_ns;
		push->mark = leo;
		push->mark_ns = attended_ns;
	}
	advance(replica);
	consider(replica, hf_loop_now_ns(broker_of(replica)->loop));
}

void leader_hear_grant(struct replica *replica, struct replica_link *link, const struct kafka_replica_message *message)
{
	struct push *push = push_of(replica, link);

	if (push->state != PUSH_PLACED || push->attempt != message->attempt)
		return;
	push->grant = message->grant;
	push->from = message->from;
	push->to = message->to;
	push->address = (uint64_t)message->address;
	push->key = message->key;
	push->hw_told = -1; /* what names the grant of before is not heard */
	push_move(push, PUSH_READY);
	replica->replication->counters.grants++;
	book_ack(push, push->placed);
	leader_pump(replica);
}

void leader_hear_ack(struct replica *replica, struct replica_link *link, uint32_t grant, int64_t offset)
{
	struct push *push = push_of(replica, link);

	if (replica->partition->leads && push->state != PUSH_IDLE && push->grant == grant && grant != 0)
		book_ack(push, offset);
}

/* ---- pushing ---- */

/* Whole batches from the place on: several up to replication.batch.bytes, one at least; 0: there is none. */
static uint32_t gather(const struct push *push, uint32_t most, uint32_t *first_out)
{
	const struct segment *segment = push->segment;
	uint32_t total = 0;
	struct batch batch;

	*first_out = 0;
	while (segment_at(segment, push->place + total, &batch)) {
		uint32_t bytes = (uint32_t)batch.length;

		if (total == 0)
			*first_out = bytes;
		if ((total > 0 && total + bytes > most) || push->place + total + bytes > push->to)
			break;
		total += bytes;
	}
	return total;
}

static void next_segment(struct push *push)
{
	struct partition_log *log = push->replica->partition->log;
	int64_t offset = push->segment->next_offset;

	if (partition_log_head(log) != push->segment)
		place_at(push, offset);
}

/* false: nothing more can be written now. */
static bool push_one(struct push *push)
{
	struct replica *replica = push->replica;
	uint32_t first, bytes;

	if (push->state != PUSH_READY || !mesh_link_is_up(&push->link->mesh))
		return false;
	if (push->place == push->segment->bytes) {
		next_segment(push);
		return false;
	}
	bytes = gather(push, broker_of(replica)->config.replication_batch_bytes, &first);
	if (bytes == 0) { /* the extent ends, or what was committed is no batch any more */
		struct batch batch;

		if (first > 0 && segment_at(push->segment, push->place, &batch)) {
			send_place(push, push->segment, push->place, batch.base_offset, first);
		} else {
			give_up_at_break(replica, push->segment);
			push_end(push);
		}
		return false;
	}
	if (!replica_link_has_room(push->link, bytes))
		return false;
	replica_link_write(push->link, push->segment->map + push->place, bytes, push->address + push->place, push->key,
		push->grant);
	push->place += bytes;
	replica->replication->counters.pushed_bytes += bytes;
	return true;
}

void leader_pump(struct replica *replica)
{
	for (unsigned i = 0; i < voters(replica); i++)
		while (push_one(&replica->pushes[i]))
			continue;
}

void leader_appended(struct partition *partition)
{
	advance(partition->replication); /* the isr may be this broker alone; the turn pushes */
}

/* ---- roles ---- */

/* What a loss of power, or a damaged disk, left of an epoch may be larger than that of any leader. */
static void cut_epochs(struct replica *replica)
{
	struct partition_log *log = replica->partition->log;
	int64_t now_ms = broker_now_ms(broker_of(replica));
	struct hf_error error;

	if (partition_log_cut_epochs(log, replica->epoch, now_ms, &error) == 0 || partition_log_is_damaged(log))
		return;
	log->failed = true;
	log_error("broker: %s-%d takes no more records: %s; start the broker again", replica->topic,
		replica->partition->index, error.text);
}

/* A damaged log does not lead (R-D7), unless the topic takes what is there. */
static bool is_whole(struct replica *replica)
{
	const struct broker *broker = broker_of(replica);
	const struct controller_topic *topic = controller_find_id(&broker->controller, replica->topic_id);
	struct partition_log *log = replica->partition->log;
	struct hf_error error;

	if (!partition_log_is_damaged(log))
		cut_epochs(replica);
	if (partition_log_is_damaged(log) && topic != NULL &&
		(topic_config_unclean_election(&topic->config, broker->controller.unclean_election) ||
			replica->known.recovered_epoch == replica->epoch) &&
		partition_log_cut_damage(log, broker_now_ms(broker), &error) != 0)
		log_error("broker: %s-%d: %s", replica->topic, replica->partition->index, error.text);
	return !partition_log_is_damaged(log);
}

void leader_begin(struct replica *replica)
{
	struct partition *partition = replica->partition;
	uint64_t now_ns = hf_loop_attended_ns(broker_of(replica)->loop);

	if (!is_whole(replica))
		return;
	partition->leads = true;
	partition->epoch_start = partition_log_end(partition->log);
	for (unsigned i = 0; i < voters(replica); i++)
		replica->pushes[i] = (struct push){
			.replica = replica, .acked = -1, .hw_told = -1, .caught_up_ns = now_ns, .mark_ns = now_ns};
	replica->replication->counters.led++;
	log_info("broker: leads %s-%d in epoch %d from offset %lld", replica->topic, partition->index, replica->epoch,
		(long long)partition->epoch_start);
}

void leader_end(struct replica *replica)
{
	replica->partition->leads = false;
	for (unsigned i = 0; i < voters(replica); i++)
		push_end(&replica->pushes[i]);
	proposal_cancel(&replica->proposal);
	replica->asking = false;
	partition_end(replica->partition);
}

void leader_know(struct replica *replica)
{
	replica->partition->in_sync = replica->known.isr.count;
	replica->partition->replicas = replica->known.replicas.count;
	advance(replica);
}

void leader_link_down(struct replica *replica, struct replica_link *link)
{
	if (replica->partition->leads)
		push_end(push_of(replica, link));
}

/* A follower deletes the same records as soon as it has all of those before them. */
static void tell_progress(struct push *push)
{
	const struct partition *partition = push->replica->partition;
	int64_t start = partition->log->start_offset;
	struct replica_record hw = {.kind = REPLICA_RECORD_HW, .grant = push->grant, .value = (uint64_t)partition->hw};
	struct replica_record deleted = {.kind = REPLICA_RECORD_START, .grant = push->grant, .value = (uint64_t)start};

	if (push->hw_told != partition->hw) {
		push->hw_told = partition->hw;
		replica_link_say(push->link, &hw);
	}
	if (push->start_told != start && push->acked >= start) {
		push->start_told = start;
		replica_link_say(push->link, &deleted);
	}
}

void leader_tick(struct replica *replica, uint64_t now_ns)
{
	int64_t leo = partition_log_end(replica->partition->log);

	if (partition_log_is_damaged(replica->partition->log)) {
		if (replica->partition->leads)
			leader_end(replica);
		resign(replica, now_ns);
		return;
	}

	for (unsigned i = 0; i < voters(replica); i++) {
		struct push *push = &replica->pushes[i];

		if (push->state == PUSH_IDLE)
			continue;
		if (push->acked >= leo)
			push->caught_up_ns = hf_loop_attended_ns(broker_of(replica)->loop);
		if (push->state == PUSH_READY)
			tell_progress(push);
	}
	if (replica->partition->log->failed)
		resign(replica, now_ns);
	consider(replica, now_ns);
	if (!replica->partition->log->failed) /* followers can be behind because of what lies here */
		drop_laggards(replica, now_ns);
}
