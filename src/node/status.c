#include "node/status.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "node/node.h"
#include "node/peer.h"

#define JSON_TYPE "application/json"

static unsigned peers_up(const struct hf_node *node)
{
	unsigned n = 0;

	list_for_each (at, &node->peers)
		n += container_of(at, struct hf_peer, node_link)->up;
	return n;
}

void node_status_rail(struct hf_node *node, unsigned rail)
{
	if (node->status.rails[rail] != NULL)
		hf_metric_set(node->status.rails[rail], node->rails[rail].up);
}

void node_status_peers(struct hf_node *node)
{
	if (node->status.peers != NULL)
		hf_metric_set(node->status.peers, peers_up(node));
}

void node_status_service(struct hf_node *node, struct service_metrics *metrics)
{
	list_push_back(&node->status.services, &metrics->node);
}

/* ---- pages ---- */

static void sample_services(struct hf_node *node)
{
	list_for_each (at, &node->status.services)
		service_metrics_sample(container_of(at, struct service_metrics, node));
}

static void index_page(const struct http_request *request, struct http_answer *answer, void *context)
{
	(void)request, (void)context;
	answer->body = strdup("/health        whether this node can work, as JSON\n"
			      "/ready         whether its service serves clients, and the reason if not\n"
			      "/metrics       for Prometheus\n"
			      "/metrics.json  the same as JSON\n");
}

static void metrics_page(const struct http_request *request, struct http_answer *answer, void *context)
{
	(void)request;
	sample_services(context);
	answer->type = "text/plain; version=0.0.4; charset=utf-8";
	answer->body = hf_metrics_prometheus();
}

static void metrics_json_page(const struct http_request *request, struct http_answer *answer, void *context)
{
	(void)request;
	sample_services(context);
	answer->type = JSON_TYPE;
	answer->body = hf_metrics_json();
}

static void health_page(const struct http_request *request, struct http_answer *answer, void *context)
{
	const struct hf_node *node = context;
	json_t *rails = json_object(), *root;
	bool well = node->rail_count == 0;

	(void)request;
	for (unsigned i = 0; i < node->rail_count; i++) {
		well |= node->rails[i].up;
		json_object_set_new(rails, node->rails[i].config.name, json_string(node->rails[i].up ? "up" : "down"));
	}
	root = json_pack("{s:s, s:s, s:o, s:i}", "node", node->config.name, "status", well ? "ok" : "no rail is up",
		"rails", rails, "peers", (int)peers_up(node));
	answer->status = well ? 200 : 503;
	answer->type = JSON_TYPE;
	answer->body = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
	json_decref(root);
}

/* ---- opening ---- */

static void register_metrics(struct hf_node *node)
{
	const char *name = node->config.name;

	node->status.peers = hf_metric_register(&(struct hf_metric_info){.name = "holdfast_control_peers",
		.help = "Peers that a control path leads to.",
		.kind = HF_METRIC_GAUGE,
		.labels = {{"node", name}}});
	for (unsigned i = 0; i < node->rail_count; i++) {
		node->status.rails[i] = hf_metric_register(&(struct hf_metric_info){.name = "holdfast_rail_up",
			.help = "Whether the port of the rail is up.",
			.kind = HF_METRIC_GAUGE,
			.labels = {{"node", name}, {"rail", node->rails[i].config.name}}});
		node_status_rail(node, i);
	}
	node_status_peers(node);
}

int node_status_open(struct hf_node *node, struct hf_error *error)
{
	static const struct http_page pages[] = {{"/", index_page}, {"/health", health_page},
		{"/metrics", metrics_page}, {"/metrics.json", metrics_json_page}, {"/metrics/json", metrics_json_page}};
	char text[HF_ADDR_TEXT];
	struct hf_addr address;
	int rc;

	list_init(&node->status.services);
	register_metrics(node);
	if (node->config.http.sa.sa_family == AF_UNSPEC)
		return 0;
	rc = http_open(node->loop, &node->config.http, &node->status.http, error);
	for (unsigned i = 0; rc == 0 && i < sizeof(pages) / sizeof(*pages); i++)
		rc = http_route(node->status.http, pages[i].path, pages[i].handler, node);
	if (rc == 0 && http_address(node->status.http, &address) == 0)
		log_info("node %s: status at http://%s/", node->config.name, hf_addr_format(&address, text));
	return rc;
}

void node_status_close(struct hf_node *node)
{
	http_close(node->status.http);
	node->status.http = NULL;
	if (node->status.peers == NULL)
		return;
	while (!list_empty(&node->status.services))
		list_init(list_pop_front(&node->status.services));
	hf_metric_hide(node->status.peers);
	node->status.peers = NULL;
	for (unsigned i = 0; i < node->rail_count; i++) {
		hf_metric_hide(node->status.rails[i]);
		node->status.rails[i] = NULL;
	}
}
