/* Joining a leader, and verifying what it writes. */
#include <errno.h>
#include <string.h>

#include "base/states.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/replication/replication.h"

#define PAGE_BYTES 4096u

static const struct state follow_states[FOLLOW_STATES] = {
	[FOLLOW_IDLE] = {"idle", BIT(FOLLOW_IDLE) | BIT(FOLLOW_JOINING)},
	[FOLLOW_JOINING] = {"joining", BIT(FOLLOW_IDLE) | BIT(FOLLOW_JOINING) | BIT(FOLLOW_PLACED)},
	[FOLLOW_PLACED] = {"placed", BIT(FOLLOW_IDLE) | BIT(FOLLOW_JOINING) | BIT(FOLLOW_PLACED) | BIT(FOLLOW_GRANTED)},
	[FOLLOW_GRANTED] = {"granted", BIT(FOLLOW_IDLE) | BIT(FOLLOW_JOINING) | BIT(FOLLOW_PLACED)},
};

static void follow_move(struct replica *replica, enum follow_state to)
{
	states_move("follow", follow_states, &replica->follow.state, to, "%s-%d", replica->topic,
		replica->partition->index);
}

static struct broker *broker_of(const struct replica *replica)
{
	return replica->replication->broker;
}

/* ---- the extent ---- */

/* It is not written into any more, and what had landed is taken. false: a peer stands still in the middle of a
 * write. */
static bool end_extent(struct replica *replica)
{
	struct follow *follow = &replica->follow;

	if (follow->mr == NULL)
		return true;
	if (hf_vmr_dereg(follow->mr) != 0)
		return false;
	follow->mr = NULL;
	follow->grant = 0;
	partition_log_verify_on(replica->partition->log, follow->to, replica->epoch, broker_now_ms(broker_of(replica)));
	segment_release(follow->segment);
	follow->segment = NULL;
	return true;
}

static int begin_extent(struct replica *replica, struct kafka_replica_message *grant, struct hf_error *error)
{
	struct replication *replication = replica->replication;
	struct follow *follow = &replica->follow;
	struct segment *head = partition_log_head(replica->partition->log);
	uint64_t need = follow->place.need > REPLICATION_EXTENT_BYTES ? follow->place.need : REPLICATION_EXTENT_BYTES;
	uint64_t to = (head->bytes + need + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	uint32_t from = head->bytes / PAGE_BYTES * PAGE_BYTES;
	int rc;

	if (to > head->capacity)
		to = head->capacity;
	if (from == to) /* the head is full, and the leader has not rolled yet: an extent without room */
		from -= PAGE_BYTES;
	rc = segment_prepare(head, (uint32_t)to - head->bytes);
	if (rc != 0)
		return hf_error_set(error, rc, "the disk is full");
	rc = hf_vmr_reg(replication->links.mesh.pd, head->map + from, to - from,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &follow->mr, error);
	if (rc != 0)
		return rc;
	segment_hold(head);
	follow->segment = head;
	follow->to = (uint32_t)to;
	follow->told = -1;
	if ((++replication->turns & 0xffff) == 0)
		++replication->turns; /* 0 is no grant */
	follow->grant = replication->turns << 16 | replica->slot;
	*grant = (struct kafka_replica_message){.attempt = follow->attempt,
		.grant = follow->grant,
		.from = from,
		.to = follow->to,
		.address = (int64_t)(uintptr_t)head->map,
		.key = follow->mr->rkey};
	return 0;
}

/* ---- joining ---- */

static int32_t last_epoch(const struct partition_log *log)
{
	return log->epochs.count == 0 ? -1 : log->epochs.at[log->epochs.count - 1].epoch;
}

/* Another replica leads, which a majority of the controller has elected: what is damaged here is fetched from it
 * (R-D7). false: not yet. */
static bool mend(struct replica *replica)
{
	struct partition_log *log = replica->partition->log;
	struct hf_error error;
	uint64_t more;
	int rc = partition_log_is_damaged(log)
			 ? partition_log_cut_damage(log, broker_now_ms(broker_of(replica)), &error)
			 : 0;

	if (rc == -EBUSY)
		return false;
	if (rc != 0 && log_limit_allows(&replica->follow.refusals, hf_loop_now_ns(broker_of(replica)->loop), &more))
		log_error("broker: %s-%d stays damaged: %s", replica->topic, replica->partition->index, error.text);
	return true;
}

static void join(struct replica *replica)
{
	struct follow *follow = &replica->follow;
	struct partition_log *log = replica->partition->log;
	struct kafka_replica_message message;

	follow_move(replica, FOLLOW_JOINING);
	follow->attempt++; /* replies to an earlier one may still come */
	if (follow->link == NULL || !mesh_link_is_up(&follow->link->mesh) || !end_extent(replica))
		return; /* at a later tick */
	if (!mend(replica))
		return;
	follow->asked_ns = hf_loop_now_ns(broker_of(replica)->loop);
	follow->incarnation = broker_of(replica)->quorum.incarnation;
	message = (struct kafka_replica_message){.attempt = follow->attempt,
		.offset = partition_log_end(log),
		.epoch = last_epoch(log),
		.failed = log->failed};
	replication_send(replica, follow->link, &message, REPLICA_JOIN);
}

static void fail_log(struct replica *replica, const struct hf_error *error)
{
	replica->partition->log->failed = true;
	follow_move(replica, FOLLOW_JOINING);
	log_error("broker: %s-%d stops following: %s; make room and restart the broker", replica->topic,
		replica->partition->index, error->text);
}

/* The log is cut, and what others may have read must not be. */
static void note_cut(struct replica *replica, int64_t offset)
{
	struct partition *partition = replica->partition;

	replica->replication->counters.truncations++;
	if (offset >= partition->hw)
		return;
	log_error("broker: %s-%d is truncated at offset %lld, below the committed offset %lld", replica->topic,
		partition->index, (long long)offset, (long long)partition->hw);
	replica->replication->counters.lost_hw++;
	partition->hw = offset;
}

static void restart(struct replica *replica, int64_t offset)
{
	struct hf_error error;

	note_cut(replica, offset > replica->partition->hw ? replica->partition->hw : offset);
	replica->replication->counters.restarts++;
	if (partition_log_restart(replica->partition->log, offset, &error) != 0)
		fail_log(replica, &error);
}

/* Where our own log leaves the common history at the latest, by what the leader says of its own. */
static int64_t common_end(const struct partition_log *log, const struct kafka_replica_message *message)
{
	int64_t leo = partition_log_end(log), end = message->offset, own;
	int32_t epoch;

	if (message->epoch >= 0 && leader_epochs_end(&log->epochs, message->epoch, leo, &epoch, &own) && own < end)
		end = own;
	/* Something must go, or both would say the same again. */
	if (end >= leo && log->epochs.count > 0)
		end = log->epochs.at[log->epochs.count - 1].start_offset;
	return end;
}

static void truncate_log(struct replica *replica, const struct kafka_replica_message *message)
{
	struct partition_log *log = replica->partition->log;
	int64_t end = common_end(log, message), before = partition_log_end(log);
	struct hf_error error;
	int rc = partition_log_truncate(log, end, broker_now_ms(broker_of(replica)), &error);

	if (rc == -EBUSY)
		return; /* readers give it back within a second; the next answer to JOIN says the same */
	if (rc != 0) {
		fail_log(replica, &error);
		return;
	}
	if (end < before) {
		log_info("broker: %s-%d is truncated at offset %lld of %lld, where the history of the leader of epoch "
			 "%d differs",
			replica->topic, replica->partition->index, (long long)end, (long long)before, replica->epoch);
		note_cut(replica, end);
	}
	join(replica);
}

/* PLACED: goes on at the leader's place, once the log has come there. */
static void proceed(struct replica *replica)
{
	struct follow *follow = &replica->follow;
	struct partition_log *log = replica->partition->log;
	const struct kafka_replica_message *place = &follow->place;
	struct kafka_replica_message grant;
	struct hf_error error = {0};
	int rc;

	if (place->start_offset <= partition_log_end(log) && partition_log_end(log) < place->offset)
		return;
	if (!end_extent(replica))
		return;
	if (place->start_offset > partition_log_end(log)) /* the leader has given up all that is here */
		restart(replica, place->base);
	if (log->failed)
		return;
	if (partition_log_end(log) != place->offset) {
		join(replica);
		return;
	}
	if (partition_log_sure_end(log) < place->offset)
		return; /* with its grant the leader counts all that is here */
	rc = partition_log_arrange(log, place->base, place->place, place->capacity, &error);
	if (rc == -EBUSY)
		return; /* until readers of an earlier epoch have given the segment back */
	if (rc == -EXDEV) {
		log_warn("broker: %s; the log is copied anew", error.text);
		restart(replica, place->start_offset);
		join(replica);
		return;
	}
	if (rc == 0)
		partition_log_advance_start(log, place->start_offset);
	if (rc != 0 || begin_extent(replica, &grant, &error) != 0) {
		fail_log(replica, &error);
		return;
	}
	follow_move(replica, FOLLOW_GRANTED);
	replication_send(replica, follow->link, &grant, REPLICA_GRANT);
}

void follower_hear(struct replica *replica, struct replica_link *link, const struct kafka_replica_message *message)
{
	struct follow *follow = &replica->follow;

	if (follow->state == FOLLOW_IDLE || link != follow->link || message->attempt != follow->attempt)
		return;
	if (message->kind == REPLICA_TRUNCATE) {
		if (follow->state == FOLLOW_JOINING)
			truncate_log(replica, message);
		return;
	}
	follow->place = *message;
	follow_move(replica, FOLLOW_PLACED);
	proceed(replica);
}

/* ---- verifying ---- */

static void say_refused(struct replica *replica, const char *wrong)
{
	uint64_t more;

	replica->replication->counters.wrong_batches++;
	if (!log_limit_allows(&replica->follow.refusals, hf_loop_now_ns(broker_of(replica)->loop), &more))
		return;
	log_error("broker: %s-%d: what the leader wrote behind offset %lld is refused: %s (%llu more times)",
		replica->topic, replica->partition->index, (long long)partition_log_end(replica->partition->log), wrong,
		(unsigned long long)more);
}

void follower_wrote(struct replica *replica, uint32_t grant, uint32_t bytes)
{
	struct follow *follow = &replica->follow;
	const char *wrong;

	if (follow->mr == NULL || follow->grant != grant || follow->state == FOLLOW_JOINING)
		return;
	wrong = partition_log_accept(replica->partition->log, bytes, replica->epoch, broker_now_ms(broker_of(replica)));
	if (wrong != NULL) {
		say_refused(replica, wrong);
		join(replica);
		return;
	}
	follow->ack_due = true;
	if (follow->state == FOLLOW_PLACED)
		proceed(replica);
}

void follower_hear_hw(struct replica *replica, uint32_t grant, int64_t hw)
{
	int64_t leo = partition_log_end(replica->partition->log);

	if (replica->follow.mr != NULL && replica->follow.grant == grant)
		partition_set_hw(replica->partition, hw < leo ? hw : leo);
}

void follower_hear_start(struct replica *replica, uint32_t grant, int64_t offset)
{
	struct partition_log *log = replica->partition->log;

	if (replica->follow.mr == NULL || replica->follow.grant != grant || offset <= log->start_offset ||
		offset > partition_log_end(log))
		return;
	partition_log_advance_start(log, offset);
	replica->replication->starts_moved = true;
}

void follower_turn(struct replica *replica)
{
	struct follow *follow = &replica->follow;
	const struct partition_log *log = replica->partition->log;
	int64_t end = partition_log_sure_end(log);
	struct replica_record record = {.kind = REPLICA_RECORD_ACK, .grant = follow->grant, .value = (uint64_t)end};

	if (!follow->ack_due || end <= follow->told)
		return;
	follow->ack_due = end < partition_log_end(log);
	follow->told = end;
	if (follow->mr != NULL)
		replica_link_say(follow->link, &record);
}

/* ---- roles ---- */

void follower_begin(struct replica *replica)
{
	replica->follow.link = replication_link(replica->replication, replica->known.leader);
	replica->follow.ack_due = false;
	join(replica);
}

bool follower_end(struct replica *replica)
{
	if (!end_extent(replica))
		return false;
	follow_move(replica, FOLLOW_IDLE);
	return true;
}

void follower_link_down(struct replica *replica, struct replica_link *link)
{
	struct follow *follow = &replica->follow;

	if (follow->link != link || follow->state == FOLLOW_IDLE)
		return;
	follow_move(replica, FOLLOW_JOINING);
	follow->attempt++;
	follow->asked_ns = 0;
}

void follower_tick(struct replica *replica, uint64_t now_ns)
{
	struct follow *follow = &replica->follow;

	if (follow->state == FOLLOW_PLACED)
		proceed(replica);
	if (follow->state == FOLLOW_JOINING && now_ns >= follow->asked_ns + REPLICATION_RETRY_NS)
		join(replica);
	/* The leader may count this broker in sync by its present incarnation only, and while its log goes on. */
	if ((follow->state == FOLLOW_PLACED || follow->state == FOLLOW_GRANTED) &&
		(follow->incarnation != broker_of(replica)->quorum.incarnation || replica->partition->log->failed))
		join(replica);
}
