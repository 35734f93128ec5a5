/* service_metrics.h - the metrics of a service on a node: a row for each, whose values the service samples.
 *
 * Values are sampled when /metrics of the node is read, or by the service's own clock. Owned by the node's loop. */
#ifndef HOLDFAST_NODE_SERVICE_METRICS_H
#define HOLDFAST_NODE_SERVICE_METRICS_H

#include <holdfast/metrics.h>

#include "base/list.h"

#define SERVICE_METRICS_MAX 32u

struct service_metric {
	const char *name, *help; /* as of struct hf_metric_info */
	enum hf_metric_kind kind;
};

struct service_metrics {
	struct list node; /* of those that /metrics samples */
	const struct service_metric *rows;
	unsigned count; /* of rows; 0: not open */
	struct hf_metric *metrics[SERVICE_METRICS_MAX];
	uint64_t told[SERVICE_METRICS_MAX]; /* of counters: what was added so far */
	/* One value for each row; of a COUNTER its total, which may begin anew. */
	void (*sample)(const void *service, uint64_t *values);
	const void *service;
};

/* The rows are a constant. The label tells the series of this service from those of others in the process. */
void service_metrics_open(struct service_metrics *metrics, const struct service_metric *rows, unsigned count,
	struct hf_metric_label label, void (*sample)(const void *service, uint64_t *values), const void *service);
void service_metrics_close(struct service_metrics *metrics); /* what is not open is legal */
void service_metrics_sample(struct service_metrics *metrics);

/* How long operations take, in seconds; observe nanoseconds. */
struct hf_metric *service_metrics_latency(
	const char *name, const char *help, struct hf_metric_label label, struct hf_metric_label kind);

#endif
