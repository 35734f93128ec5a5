/* vqp_metrics.h - common counters of the vqps of a node, which outlive them. */
#ifndef HOLDFAST_VQP_VQP_METRICS_H
#define HOLDFAST_VQP_VQP_METRICS_H

#include <holdfast/metrics.h>

struct vqp_metrics {
	struct hf_metric *failovers, *failbacks;
	struct hf_metric *resent_wrs, *resent_bytes;
	struct hf_metric *unknown;
	struct hf_metric *failover_ns; /* a histogram */
};

void vqp_metrics_register(struct vqp_metrics *metrics, const char *node);

#endif
