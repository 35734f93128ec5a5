#include "vqp/vqp_metrics.h"

#define US 1000ull
#define MS 1000000ull
#define S  1000000000ull

static struct hf_metric *counter(const char *node, const char *name, const char *help)
{
	return hf_metric_register(&(struct hf_metric_info){
		.name = name, .help = help, .kind = HF_METRIC_COUNTER, .labels = {{"node", node}}});
}

void vqp_metrics_register(struct vqp_metrics *metrics, const char *node)
{
	static const uint64_t bounds[] = {100 * US, 200 * US, 500 * US, 1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS,
		50 * MS, 100 * MS, 200 * MS, 500 * MS, 1 * S, 2 * S, 5 * S, 10 * S};

	metrics->failovers =
		counter(node, "holdfast_vqp_failovers_total", "Vqps that moved to another path after theirs failed.");
	metrics->failbacks = counter(node, "holdfast_vqp_failbacks_total", "Vqps that returned to a better rail.");
	metrics->resent_wrs = counter(
		node, "holdfast_vqp_resent_wrs_total", "Work requests that were posted again after a failover.");
	metrics->resent_bytes =
		counter(node, "holdfast_vqp_resent_bytes_total", "What was left of their bytes, READs aside.");
	metrics->unknown = counter(node, "holdfast_vqp_unknown_wrs_total",
		"Work requests of which no evidence tells whether they executed.");
	metrics->failover_ns = hf_metric_register(&(struct hf_metric_info){.name = "holdfast_vqp_failover_seconds",
		.help = "From the detection of a failure to traffic on another path.",
		.kind = HF_METRIC_HISTOGRAM,
		.labels = {{"node", node}},
		.bounds = bounds,
		.bound_count = sizeof(bounds) / sizeof(*bounds),
		.divisor = S});
}
