/* /transfer, a page of the node's status server: the state of an engine as JSON.
 *
 *   {"node": "a", "batches": 1, "segment": {"buffers": 2, "bytes": 8388608},
 *    "peers": [{"peer": "b", "up": true, "segment": {...},
 *               "rails": [{"rail": "r0", "transport": "RDMA", "state": "healthy", "reachable": true, "open": true,
 *                          "pause_ms": 0, "trips": 0, "bytes": 1, "in_flight": 0, "mb_per_s": 950}],
 *               "tcp": {"streams": 2, "bytes": 0}}],
 *    "failovers": [{"from": "RDMA", "to": "TCP", "count": 3}]} */
#include "transfer/engine.h"

#include <jansson.h>

#include "node/node.h"

#define PATH "/transfer"

static json_t *segment_json(const struct wire_segment *view)
{
	json_int_t bytes = 0;

	for (unsigned i = 0; i < view->count; i++)
		bytes += (json_int_t)view->buffers[i].bytes;
	return json_pack("{s:i, s:I}", "buffers", (int)view->count, "bytes", bytes);
}

static json_t *lane_json(const struct lane *lane, enum hf_transport transport, uint64_t now_ns)
{
	static const char *const states[RAIL_MONITOR_STATES] = {[RAIL_MONITOR_HEALTHY] = "healthy",
		[RAIL_MONITOR_PAUSED] = "paused",
		[RAIL_MONITOR_PROBING] = "probing"};
	const struct rail_monitor *monitor = &lane->monitor;
	bool waits = monitor->state != RAIL_MONITOR_HEALTHY && monitor->resume_ns > now_ns;

	return json_pack("{s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I}", "rail", lane->news.rail, "transport",
		hf_transport_name(transport), "state", states[monitor->state], "reachable", monitor->reachable, "open",
		lane_is_open(lane), "pause_ms",
		(json_int_t)(waits ? (monitor->resume_ns - now_ns + 999999) / 1000000 : 0), "trips",
		(json_int_t)hf_metric_value(lane->news.trips), "bytes", (json_int_t)lane->bytes, "in_flight",
		(json_int_t)lane->load.in_flight, "mb_per_s", (json_int_t)(lane->load.speed * 1000));
}

static json_t *peer_json(const struct peer *peer, uint64_t now_ns)
{
	json_t *rails = json_array();
	unsigned streams = 0;

	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < HF_RAILS_MAX; k++)
			if (peer->rails[i].made & 1u << k)
				json_array_append_new(rails, lane_json(&peer->rails[i].lanes[k],
								     peer->rails[i].transport->transport.kind, now_ns));
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		streams += peer->tcp.lines[i].state == TCP_LINE_OPEN;
	return json_pack("{s:s, s:b, s:o, s:o, s:{s:i, s:I}}", "peer",
		peer->node_peer == NULL ? "" : hf_peer_name(peer->node_peer), "up", peer->node_peer != NULL, "segment",
		segment_json(peer->segment.view), "rails", rails, "tcp", "streams", (int)streams, "bytes",
		(json_int_t)peer->tcp.bytes);
}

static json_t *failovers_json(const struct owner_context *owners)
{
	json_t *list = json_array();

	for (unsigned from = 0; from < HF_TRANSPORTS; from++)
		for (unsigned to = 0; to < HF_TRANSPORTS; to++)
			if (owners->failovers[from][to] > 0)
				json_array_append_new(list,
					json_pack("{s:s, s:s, s:I}", "from", hf_transport_name((enum hf_transport)from),
						"to", hf_transport_name((enum hf_transport)to), "count",
						(json_int_t)owners->failovers[from][to]));
	return list;
}

static void answer_page(const struct http_request *request, struct http_answer *answer, void *context)
{
	const struct hf_transfer *engine = context;
	uint64_t now_ns = hf_loop_now_ns(engine->loop);
	json_t *peers = json_array(), *root;

	(void)request;
	list_for_each (at, &engine->peers)
		json_array_append_new(peers, peer_json(container_of(at, struct peer, link), now_ns));
	root = json_pack("{s:s, s:i, s:o, s:o, s:o}", "node", engine->node->config.name, "batches",
		(int)engine->batches, "segment", segment_json(engine->own.self.segment.view), "peers", peers,
		"failovers", failovers_json(&engine->owners));
	answer->type = "application/json";
	answer->body = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
	json_decref(root);
}

int page_open(struct hf_transfer *engine)
{
	struct http_server *server = engine->node->status.http;

	return server == NULL ? 0 : http_route(server, PATH, answer_page, engine);
}

void page_close(struct hf_transfer *engine)
{
	http_unroute(engine->node->status.http, PATH);
}
