/* Reports of replicas about partitions without a leader (R-D11). */
#include <stdlib.h>
#include <string.h>

#include "base/sorted.h"
#include "broker/controller/controller.h"

static int compare(const void *element, const void *key)
{
	const struct controller_report *at = element, *report = key;
	int order = memcmp(&at->topic, &report->topic, sizeof(at->topic));

	if (order == 0)
		order = (at->partition > report->partition) - (at->partition < report->partition);
	return order != 0 ? order : (at->broker > report->broker) - (at->broker < report->broker);
}

static unsigned place_of(const struct controller *controller, const struct controller_report *report, bool *there_out)
{
	return sorted_place(controller->reports, controller->report_count, sizeof(*controller->reports), compare,
		report, there_out);
}

bool controller_report(struct controller *controller, const struct controller_report *report)
{
	bool there;
	unsigned place = place_of(controller, report, &there);
	struct controller_report *reports = controller->reports;

	if (!there) {
		reports =
			sorted_grow(reports, controller->report_count, &controller->report_capacity, sizeof(*reports));
		if (reports == NULL)
			return false;
		controller->reports = reports;
		memmove(reports + place + 1, reports + place, (controller->report_count++ - place) * sizeof(*reports));
	}
	reports[place] = *report;
	return true;
}

const struct controller_report *controller_reported(
	const struct controller *controller, const struct controller_topic *topic, int32_t partition, int32_t broker)
{
	const struct controller_report key = {.topic = topic->id, .partition = partition, .broker = broker};
	const struct controller_broker *known = controller_broker(controller, broker);
	bool there;
	unsigned place = place_of(controller, &key, &there);

	if (!there || known == NULL || !known->alive || topic->at[partition].leader >= 0 ||
		known->incarnation != controller->reports[place].incarnation ||
		topic->at[partition].leader_epoch != controller->reports[place].leader_epoch)
		return NULL;
	return &controller->reports[place];
}

void controller_forget_reports(struct controller *controller, struct codec_uuid topic)
{
	const struct controller_report first = {.topic = topic, .partition = INT32_MIN, .broker = INT32_MIN},
				       last = {.topic = topic, .partition = INT32_MAX, .broker = INT32_MAX};
	bool there;
	unsigned from = place_of(controller, &first, &there), to = place_of(controller, &last, &there);

	if (controller->report_count == 0)
		return;
	memmove(controller->reports + from, controller->reports + to,
		(controller->report_count - to) * sizeof(*controller->reports));
	controller->report_count -= to - from;
}

const struct controller_report *controller_choose(
	const struct controller *controller, const struct controller_topic *topic, int32_t partition)
{
	const struct controller_set *replicas = &topic->at[partition].replicas;
	const struct controller_report *best = NULL;

	for (unsigned i = 0; i < replicas->count; i++) {
		const struct controller_report *report =
			controller_reported(controller, topic, partition, replicas->at[i]);

		if (report != NULL && (best == NULL || report->last_epoch > best->last_epoch ||
					      (report->last_epoch == best->last_epoch && report->end > best->end)))
			best = report;
	}
	return best;
}

int64_t controller_known_hw(
	const struct controller *controller, const struct controller_topic *topic, int32_t partition)
{
	const struct controller_partition *at = &topic->at[partition];
	int64_t hw = 0;

	for (unsigned i = 0; i < at->replicas.count; i++) {
		const struct controller_report *report =
			controller_reported(controller, topic, partition, at->replicas.at[i]);

		if (report != NULL && report->hw_epoch >= at->recovered_epoch && report->hw > hw)
			hw = report->hw;
	}
	return hw;
}
