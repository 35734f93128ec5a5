#include "node/service_metrics.h"

#include "base/ensure.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NS_US        1000ull
#define NS_MS        1000000ull
#define NS_S         1000000000ull

void service_metrics_open(struct service_metrics *metrics, const struct service_metric *rows, unsigned count,
	struct hf_metric_label label, void (*sample)(const void *service, uint64_t *values), const void *service)
{
	ensure(count <= SERVICE_METRICS_MAX);
	*metrics = (struct service_metrics){.rows = rows, .count = count, .sample = sample, .service = service};
	list_init(&metrics->node);
	for (unsigned i = 0; i < count; i++)
		metrics->metrics[i] = hf_metric_register(&(struct hf_metric_info){
			.name = rows[i].name, .help = rows[i].help, .kind = rows[i].kind, .labels = {label}});
}

void service_metrics_close(struct service_metrics *metrics)
{
	if (metrics->count == 0)
		return;
	list_remove(&metrics->node);
	for (unsigned i = 0; i < metrics->count; i++)
		hf_metric_hide(metrics->metrics[i]);
	if (metrics->reads != NULL) {
		hf_metric_hide(metrics->reads);
		hf_metric_hide(metrics->writes);
	}
	*metrics = (struct service_metrics){0};
}

void service_metrics_sample(struct service_metrics *metrics)
{
	uint64_t values[SERVICE_METRICS_MAX] = {0};

	metrics->sample(metrics->service, values);
	for (unsigned i = 0; i < metrics->count; i++) {
		if (metrics->rows[i].kind == HF_METRIC_GAUGE)
			hf_metric_set(metrics->metrics[i], (int64_t)values[i]);
		else
			hf_metric_add(metrics->metrics[i],
				values[i] < metrics->told[i] ? values[i] : values[i] - metrics->told[i]);
		metrics->told[i] = values[i];
	}
}

static struct hf_metric *open_latency(
	const char *name, const char *help, struct hf_metric_label label, const char *kind)
{
	static const uint64_t bounds[] = {10 * NS_US, 25 * NS_US, 50 * NS_US, 100 * NS_US, 250 * NS_US, 500 * NS_US,
		NS_MS, 2500 * NS_US, 5 * NS_MS, 10 * NS_MS, 25 * NS_MS, 50 * NS_MS, 100 * NS_MS, 250 * NS_MS,
		500 * NS_MS, NS_S, 2500 * NS_MS, 10 * NS_S};

	return hf_metric_register(&(struct hf_metric_info){.name = name,
		.help = help,
		.kind = HF_METRIC_HISTOGRAM,
		.labels = {label, {"kind", kind}},
		.bounds = bounds,
		.bound_count = COUNT(bounds),
		.divisor = NS_S});
}

void service_metrics_latency(
	struct service_metrics *metrics, const char *name, const char *help, struct hf_metric_label label)
{
	metrics->reads = open_latency(name, help, label, "read");
	metrics->writes = open_latency(name, help, label, "write");
}

void service_metrics_took(const struct service_metrics *metrics, bool writes, uint64_t ns)
{
	struct hf_metric *metric = writes ? metrics->writes : metrics->reads;

	if (metric != NULL)
		hf_metric_observe(metric, ns);
}
