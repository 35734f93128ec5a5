/* service_metrics.h - the metrics of a service on a node: a row for each, whose values the service samples.
 *
 * Values are sampled when /metrics of the node is read, or by the service's own clock. Owned by the node's loop. */
#ifndef HOLDFAST_NODE_SERVICE_METRICS_H
#define HOLDFAST_NODE_SERVICE_METRICS_H

#include <stdbool.h>

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
	struct hf_metric *reads, *writes;   /* how long they take; NULL: that is not measured */
	/* One value for each row; of a COUNTER its total, which may begin anew. */
	void (*sample)(const void *service, uint64_t *values);
	const void *service;
};

/* The rows are a constant. The label tells the series of this service from those of others in the process. */
void service_metrics_open(struct service_metrics *metrics, const struct service_metric *rows, unsigned count,
	struct hf_metric_label label, void (*sample)(const void *service, uint64_t *values), const void *service);
void service_metrics_close(struct service_metrics *metrics); /* what is not open is legal */
void service_metrics_sample(struct service_metrics *metrics);

/* Of metrics that are open: two histograms of how long operations take, in seconds, with the label `kind`. */
void service_metrics_latency(
	struct service_metrics *metrics, const char *name, const char *help, struct hf_metric_label label);
/* For service_metrics_latency: an operation ended. Legal once they are closed, and does nothing then. */
void service_metrics_took(const struct service_metrics *metrics, bool writes, uint64_t ns);

#endif
