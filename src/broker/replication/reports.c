/* What this broker has of partitions without a leader, for the controller and an operator (R-D11). */
#include "broker/broker.h"
#include "broker/replication/replication.h"

#define REPORTS_AT_ONCE 64 /* of one command */

static bool is_due(const struct replica *replica)
{
	return replica->known.leader < 0 &&
	       (replica->reported_epoch != replica->known.leader_epoch ||
		       replica->reported_by != replica->replication->broker->quorum.incarnation);
}

static void fill(const struct replica *replica, struct kafka_controller_command_command_report *report)
{
	const struct partition_log *log = replica->partition->log;
	const struct log_mark *mark = log->mark;

	*report = (struct kafka_controller_command_command_report){.topic_id = replica->topic_id,
		.partition = replica->partition->index,
		.leader_epoch = replica->known.leader_epoch,
		.damaged = partition_log_is_damaged(log),
		.kept = mark != NULL && mark->before.known && (mark->before.closed || mark->before.same_boot),
		.last_epoch = log->epochs.count == 0 ? -1 : log->epochs.at[log->epochs.count - 1].epoch,
		.start = log->start_offset,
		.end = partition_log_end(log),
		.synced = mark == NULL ? -1 : mark->synced,
		.hw_epoch = mark == NULL ? -1 : mark->hw_epoch,
		.hw = mark == NULL ? 0 : mark->hw};
	if (report->synced > report->end)
		report->synced = report->end;
}

/* One that was refused is sent again once the partition, or this broker, is another one. */
static void decided(struct proposal *proposal, const struct controller_result *result)
{
	struct replication *replication = container_of(proposal, struct replication, reporting);

	replication->reports = false;
	if (result->error == KAFKA_NONE)
		return;
	list_for_each (at, &replication->replicas)
		container_of(at, struct replica, node)->reported_by = 0;
}

void reports_send(struct replication *replication)
{
	struct kafka_controller_command_command_report reports[REPORTS_AT_ONCE];
	struct broker *broker = replication->broker;
	struct kafka_controller_command command;

	if (replication->reports || !broker->quorum.registered)
		return;
	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_REPORT;
	command.reports.at = reports;
	list_for_each (at, &replication->replicas) {
		struct replica *replica = container_of(at, struct replica, node);

		if (!is_due(replica) || command.reports.count == REPORTS_AT_ONCE)
			continue;
		fill(replica, &reports[command.reports.count++]);
		replica->reported_by = broker->quorum.incarnation;
		replica->reported_epoch = replica->known.leader_epoch;
	}
	if (command.reports.count == 0)
		return;
	replication->reports = true;
	replication->reporting = (struct proposal){.done = decided};
	quorum_propose(&broker->quorum, &command, &replication->reporting);
}
