/* metrics.h - the metrics of an engine, under Mooncake's names (docs/transfer.md).
 *
 * Requests count once, when they end, by the transport that carried them last; merged ones together. An attempt is one
 * submit to one transport: a request that moved from rdma to tcp is one request of tcp, a failed attempt of rdma, and
 * an attempt of tcp. Every call is legal with NULL and does nothing then. */
#ifndef HOLDFAST_TRANSFER_METRICS_H
#define HOLDFAST_TRANSFER_METRICS_H

#include <holdfast/metrics.h>
#include <holdfast/transfer.h>

struct metrics_series { /* of a transport and an opcode */
	struct hf_metric *requests, *failures, *bytes, *latency, *size;
	struct hf_metric *attempts, *attempt_failures, *attempt_latency;
};

struct metrics {
	struct metrics_series series[HF_TRANSPORTS + 1][2];
	struct hf_metric *failovers[HF_TRANSPORTS][HF_TRANSPORTS];
};

void metrics_register(struct metrics *metrics, const char *node);

void metrics_attempt(struct metrics *metrics, enum hf_transport transport, enum hf_transfer_opcode opcode);
void metrics_attempt_ended(struct metrics *metrics, enum hf_transport transport, enum hf_transfer_opcode opcode,
	bool failed, uint64_t took_ns);
void metrics_request_ended(struct metrics *metrics, enum hf_transport transport, enum hf_transfer_opcode opcode,
	enum hf_transfer_status status, uint64_t bytes, uint64_t took_ns);
void metrics_failover(struct metrics *metrics, enum hf_transport from, enum hf_transport to);

#endif
