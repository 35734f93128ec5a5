#include "transfer/metrics.h"

#define NS_PER_US    1000u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const uint64_t latency_bounds[] = {100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000};
static const uint64_t size_bounds[] = {
	1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456, 1073741824};

/* As Mooncake writes them. */
static const char *label(enum hf_transport transport)
{
	static const char *const labels[HF_TRANSPORTS + 1] = {[HF_TRANSPORT_MEMCPY] = "memcpy",
		[HF_TRANSPORT_SHM] = "shm",
		[HF_TRANSPORT_RDMA] = "rdma",
		[HF_TRANSPORT_TCP] = "tcp",
		[HF_TRANSPORTS] = "unspec"};

	return labels[transport];
}

static struct hf_metric *counter(const struct hf_metric_info *like, const char *name, const char *help)
{
	struct hf_metric_info info = *like;

	info.kind = HF_METRIC_COUNTER;
	info.name = name;
	info.help = help;
	return hf_metric_register(&info);
}

static struct hf_metric *histogram(const struct hf_metric_info *like, const uint64_t *bounds, size_t bound_count,
	const char *name, const char *help)
{
	struct hf_metric_info info = *like;

	info.kind = HF_METRIC_HISTOGRAM;
	info.bounds = bounds;
	info.bound_count = (unsigned)bound_count;
	info.name = name;
	info.help = help;
	return hf_metric_register(&info);
}

static struct hf_metric *latency(const struct hf_metric_info *like, const char *name, const char *help)
{
	return histogram(like, latency_bounds, COUNT(latency_bounds), name, help);
}

static struct hf_metric *size(const struct hf_metric_info *like, const char *name, const char *help)
{
	return histogram(like, size_bounds, COUNT(size_bounds), name, help);
}

static void register_reads(struct metrics_series *series, const struct hf_metric_info *like)
{
	series->requests = counter(like, "tent_read_requests_total", "READs that ended, in whatever way.");
	series->failures = counter(like, "tent_read_failures_total", "READs that failed, were invalid or timed out.");
	series->bytes = counter(like, "tent_read_bytes_total", "Bytes of READs that completed.");
	series->latency = latency(like, "tent_read_latency_us", "From submit to the end of READs that completed.");
	series->size = size(like, "tent_read_size_bytes", "Sizes of READs that completed.");
}

static void register_writes(struct metrics_series *series, const struct hf_metric_info *like)
{
	series->requests = counter(like, "tent_write_requests_total", "WRITEs that ended, in whatever way.");
	series->failures = counter(like, "tent_write_failures_total", "WRITEs that failed, were invalid or timed out.");
	series->bytes = counter(like, "tent_write_bytes_total", "Bytes of WRITEs that completed.");
	series->latency = latency(like, "tent_write_latency_us", "From submit to the end of WRITEs that completed.");
	series->size = size(like, "tent_write_size_bytes", "Sizes of WRITEs that completed.");
}

static void register_attempts(struct metrics_series *series, const struct hf_metric_info *like)
{
	series->attempts = counter(like, "tent_transport_attempts_total", "Submits to a transport.");
	series->attempt_failures = counter(like, "tent_transport_attempt_failures_total",
		"Submits that the transport refused, gave up or failed.");
	series->attempt_latency = latency(
		like, "tent_transport_attempt_latency_us", "From a submit to a transport until it is done with it.");
}

void metrics_register(struct metrics *metrics, const char *node)
{
	for (unsigned i = 0; i <= HF_TRANSPORTS; i++) {
		struct hf_metric_info like = {.labels = {{"node", node}, {"transport", label((enum hf_transport)i)}}};

		register_reads(&metrics->series[i][HF_TRANSFER_READ], &like);
		register_writes(&metrics->series[i][HF_TRANSFER_WRITE], &like);
		if (i == HF_TRANSPORTS)
			continue;
		like.labels[2] = (struct hf_metric_label){"operation", "read"};
		register_attempts(&metrics->series[i][HF_TRANSFER_READ], &like);
		like.labels[2] = (struct hf_metric_label){"operation", "write"};
		register_attempts(&metrics->series[i][HF_TRANSFER_WRITE], &like);
	}
	for (unsigned from = 0; from < HF_TRANSPORTS; from++)
		for (unsigned to = 0; to < HF_TRANSPORTS; to++)
			metrics->failovers[from][to] =
				hf_metric_register(&(struct hf_metric_info){.name = "tent_transport_failover_total",
					.help = "Tasks that moved from one transport to another.",
					.kind = HF_METRIC_COUNTER,
					.labels = {{"node", node}, {"from", label((enum hf_transport)from)},
						{"to", label((enum hf_transport)to)}}});
}

void metrics_attempt(struct metrics *metrics, enum hf_transport transport, enum hf_transfer_opcode opcode)
{
	if (metrics != NULL)
		hf_metric_add(metrics->series[transport][opcode].attempts, 1);
}

void metrics_attempt_ended(struct metrics *metrics, enum hf_transport transport, enum hf_transfer_opcode opcode,
	bool failed, uint64_t took_ns)
{
	const struct metrics_series *series = metrics == NULL ? NULL : &metrics->series[transport][opcode];

	if (series == NULL)
		return;
	hf_metric_add(series->attempt_failures, failed ? 1 : 0);
	hf_metric_observe(series->attempt_latency, took_ns / NS_PER_US);
}

void metrics_request_ended(struct metrics *metrics, enum hf_transport transport, enum hf_transfer_opcode opcode,
	enum hf_transfer_status status, uint64_t bytes, uint64_t took_ns)
{
	const struct metrics_series *series = metrics == NULL ? NULL : &metrics->series[transport][opcode];

	if (series == NULL)
		return;
	hf_metric_add(series->requests, 1);
	if (status == HF_TRANSFER_COMPLETED) {
		hf_metric_add(series->bytes, bytes);
		hf_metric_observe(series->latency, took_ns / NS_PER_US);
		hf_metric_observe(series->size, bytes);
	} else if (status != HF_TRANSFER_CANCELED) {
		hf_metric_add(series->failures, 1);
	}
}

void metrics_failover(struct metrics *metrics, enum hf_transport from, enum hf_transport to)
{
	if (metrics != NULL)
		hf_metric_add(metrics->failovers[from][to], 1);
}
