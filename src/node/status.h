/* status.h - the status of a node: metrics, and pages over HTTP when its configuration has an address for them.
 *
 *   /              a list of the pages
 *   /health        JSON; 200, or 503 when the node has rails and none is up
 *   /metrics       of the process, for Prometheus
 *   /metrics.json  the same as JSON, also as /metrics/json
 *
 * A layer above adds its pages by http_route(node->status.http, ...), which is NULL without an address. */
#ifndef HOLDFAST_NODE_STATUS_H
#define HOLDFAST_NODE_STATUS_H

#include <holdfast/metrics.h>
#include <holdfast/node.h>

#include "net/http.h"
#include "node/service_metrics.h"

struct node_status {
	struct hf_metric *peers, *rails[HF_RAILS_MAX]; /* gauges; NULL: not open */
	struct http_server *http;
	struct list services; /* struct service_metrics, which /metrics samples */
};

int node_status_open(struct hf_node *node, struct hf_error *error);
void node_status_close(struct hf_node *node);
void node_status_rail(struct hf_node *node, unsigned rail); /* its port went up or down */
void node_status_peers(struct hf_node *node);               /* one came or went */
/* Samples them for each reader of /metrics, until they are closed. */
void node_status_service(struct hf_node *node, struct service_metrics *metrics);

#endif
