/* What operators see of a store: hf_kv_status; /kv.json and /ready of the node's HTTP server; metrics. */
#include <jansson.h>
#include <string.h>

#include "kv/clients.h"
#include "kv/engine.h"
#include "node/node.h"

#define NS_MS 1e6
#define NS_US 1e3

void hf_kv_status(const struct hf_kv *kv, struct hf_kv_status *status_out)
{
	*status_out = kv->counters;
	status_out->epoch = kv->epoch;
	status_out->live = kv->view.live;
	status_out->serving = kv->member && kv_council_has_lease(kv);
	status_out->damaged = kv->log.damaged && kv->complete == 0;
	status_out->failed = kv->failed;
	status_out->recovering = kv->live && !kv->member;
	status_out->copies = kv->copy.wanted && !kv->copy.heals;
	status_out->buddy = kv->copy.active ? (int)kv->copy.buddy : -1;
	status_out->decides = kv->council.leads;
	status_out->lease_left_ns = kv_council_lease_left_ns(kv);
	status_out->records = kv->store.records;
	status_out->keys = kv->store.records - kv->store.tombstones;
	status_out->store_used_bytes = kv->store.made - store_undivided(&kv->store);
	status_out->store_bytes = kv->store.bytes;
	status_out->self = kv->view.self;
	status_out->member_count = kv->config.member_count;
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		static const enum hf_kv_role roles[CM_NODE_STATES] = {[CM_ABSENT] = HF_KV_ROLE_ABSENT,
			[CM_SHADOW] = HF_KV_ROLE_SHADOW,
			[CM_MEMBER] = HF_KV_ROLE_MEMBER};
		const struct cm_node *node = &kv->installed.nodes[i];
		struct hf_kv_member_status *member = &status_out->members[i];

		memcpy(member->name, kv->config.members[i].name, sizeof(member->name));
		member->role = roles[node->state];
		member->reached = kv_council_hears(kv, i);
		member->join = node->join;
		member->absent_since = node->absent_since;
	}
	status_out->recovery_count = kv_recovery_list(&kv->recovery, status_out->recoveries);
}

static json_t *describe_member(const struct hf_kv_member_status *member)
{
	static const char *const roles[] = {
		[HF_KV_ROLE_ABSENT] = "absent", [HF_KV_ROLE_SHADOW] = "shadow", [HF_KV_ROLE_MEMBER] = "member"};

	return json_pack("{s:s, s:s, s:b, s:I, s:I}", "name", member->name, "role", roles[member->role], "reached",
		(int)member->reached, "join", (json_int_t)member->join, "absent_since",
		(json_int_t)member->absent_since);
}

static json_t *describe_recovery(const struct hf_kv_recovery_status *recovery)
{
	return json_pack("{s:I, s:s, s:b, s:I, s:f, s:f, s:f}", "epoch", (json_int_t)recovery->epoch, "buddy",
		recovery->buddy, "healed", (int)recovery->healed, "records", (json_int_t)recovery->records,
		"start_to_ack_us", (double)recovery->start_to_ack_ns / NS_US, "catch_up_to_resp_us",
		(double)recovery->catch_up_to_resp_ns / NS_US, "apply_to_end_us",
		(double)recovery->apply_to_end_ns / NS_US);
}

static json_t *describe(const struct hf_kv_status *status)
{
	json_t *members = json_array(), *recoveries = json_array();

	for (unsigned i = 0; i < status->member_count; i++)
		json_array_append_new(members, describe_member(&status->members[i]));
	for (unsigned i = 0; i < status->recovery_count; i++)
		json_array_append_new(recoveries, describe_recovery(&status->recoveries[i]));
	return json_pack(
		"{s:s, s:I, s:b, s:b, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
		"name", status->members[status->self].name, "epoch", (json_int_t)status->epoch, "serving",
		(int)status->serving, "damaged", (int)status->damaged, "decides", (int)status->decides, "lease_left_ms",
		(double)status->lease_left_ns / NS_MS, "keys", (json_int_t)status->keys, "records",
		(json_int_t)status->records, "store_used_bytes", (json_int_t)status->store_used_bytes, "store_bytes",
		(json_int_t)status->store_bytes, "writes", (json_int_t)status->writes, "reads",
		(json_int_t)status->reads, "replays", (json_int_t)status->replays, "refusals",
		(json_int_t)status->refusals, "excluded", (json_int_t)status->excluded, "copied",
		(json_int_t)status->copied, "healed", (json_int_t)status->healed, "purged", (json_int_t)status->purged,
		"members", members, "recoveries", recoveries);
}

static void serve(const struct http_request *request, struct http_answer *answer, void *context)
{
	struct hf_kv_status status;
	json_t *json;

	(void)request;
	hf_kv_status(context, &status);
	json = describe(&status);
	answer->type = "application/json";
	answer->body = json == NULL ? NULL : json_dumps(json, JSON_INDENT(1));
	json_decref(json);
}

/* Ready is a member that serves reads (R-K50); /health says only that the node works. */
static void ready(const struct http_request *request, struct http_answer *answer, void *context)
{
	const struct hf_kv *kv = context;

	(void)request;
	http_answer_ready(answer, kv->node->config.name, kv_commands_refusal(kv));
}

/* ---- metrics ---- */

enum {
	SERVING,
	DECIDES,
	RECOVERING,
	EPOCH,
	MEMBERS_LIVE,
	LEASE_LEFT,
	RECORDS,
	KEYS,
	STORE_USED,
	STORE_BYTES,
	CLIENTS,
	CLIENTS_REFUSED,
	CLIENTS_EVICTED,
	COMMANDS,
	READS,
	WRITES,
	REPLAYS,
	RESTARTS,
	EXCLUSIONS,
	RETURNS_COPIED,
	RETURNS_HEALED,
	PURGED,
	ROWS,
};

static const struct service_metric rows[ROWS] = {
	[SERVING] = {"holdfast_kv_serving", "Whether this member serves clients.", HF_METRIC_GAUGE},
	[DECIDES] = {"holdfast_kv_decides", "Whether this member leads the membership log.", HF_METRIC_GAUGE},
	[RECOVERING] = {"holdfast_kv_recovering", "Whether this member receives records that it lacks.",
		HF_METRIC_GAUGE},
	[EPOCH] = {"holdfast_kv_epoch", "The epoch of the list of members.", HF_METRIC_GAUGE},
	[MEMBERS_LIVE] = {"holdfast_kv_members_live", "Members whose acknowledgement a write needs.", HF_METRIC_GAUGE},
	[LEASE_LEFT] = {"holdfast_kv_lease_left_ms", "The rest of this member's lease.", HF_METRIC_GAUGE},
	[RECORDS] = {"holdfast_kv_records", "Records, deleted ones included.", HF_METRIC_GAUGE},
	[KEYS] = {"holdfast_kv_keys", "Keys that have a value.", HF_METRIC_GAUGE},
	[STORE_USED] = {"holdfast_kv_store_used_bytes", "Memory of the store that has records.", HF_METRIC_GAUGE},
	[STORE_BYTES] = {"holdfast_kv_store_bytes", "Memory that the store may use.", HF_METRIC_GAUGE},
	[CLIENTS] = {"holdfast_kv_clients", "Connections of clients.", HF_METRIC_GAUGE},
	[CLIENTS_REFUSED] = {"holdfast_kv_clients_refused_total", "Connections beyond the limit of clients.",
		HF_METRIC_COUNTER},
	[CLIENTS_EVICTED] = {"holdfast_kv_clients_evicted_total",
		"Clients that were closed because the buffers of all were full.", HF_METRIC_COUNTER},
	[COMMANDS] = {"holdfast_kv_commands_total", "Commands of clients.", HF_METRIC_COUNTER},
	[READS] = {"holdfast_kv_reads_total", "Reads of records.", HF_METRIC_COUNTER},
	[WRITES] = {"holdfast_kv_writes_total", "Writes that this member began.", HF_METRIC_COUNTER},
	[REPLAYS] = {"holdfast_kv_replays_total", "Writes of others that this member completed.", HF_METRIC_COUNTER},
	[RESTARTS] = {"holdfast_kv_rmw_restarts_total", "Read-modify-writes that began anew behind another write.",
		HF_METRIC_COUNTER},
	[EXCLUSIONS] = {"holdfast_kv_exclusions_total", "How often this member was excluded.", HF_METRIC_COUNTER},
	[RETURNS_COPIED] = {"holdfast_kv_returns_copied_total", "How often it returned by a copy of all records.",
		HF_METRIC_COUNTER},
	[RETURNS_HEALED] = {"holdfast_kv_returns_healed_total", "How often it returned by the updates that it missed.",
		HF_METRIC_COUNTER},
	[PURGED] = {"holdfast_kv_purged_total", "Deleted records that were removed.", HF_METRIC_COUNTER},
};

static void sample(const void *service, uint64_t *values)
{
	const struct hf_kv *kv = service;
	struct clients_counts clients = {0};
	struct hf_kv_status status;

	hf_kv_status(kv, &status);
	if (kv->clients != NULL)
		clients = kv_clients_count(kv->clients);
	values[SERVING] = status.serving;
	values[DECIDES] = status.decides;
	values[RECOVERING] = status.recovering;
	values[EPOCH] = status.epoch;
	values[MEMBERS_LIVE] = (uint64_t)__builtin_popcount(status.live);
	values[LEASE_LEFT] = status.lease_left_ns / 1000000;
	values[RECORDS] = status.records;
	values[KEYS] = status.keys;
	values[STORE_USED] = status.store_used_bytes;
	values[STORE_BYTES] = status.store_bytes;
	values[CLIENTS] = clients.now;
	values[CLIENTS_REFUSED] = clients.refused;
	values[CLIENTS_EVICTED] = clients.evicted;
	values[COMMANDS] = clients.commands;
	values[READS] = status.reads;
	values[WRITES] = status.writes;
	values[REPLAYS] = status.replays;
	values[RESTARTS] = status.refusals;
	values[EXCLUSIONS] = status.excluded;
	values[RETURNS_COPIED] = status.copied;
	values[RETURNS_HEALED] = status.healed;
	values[PURGED] = status.purged;
}

static void open_metrics(struct hf_kv *kv)
{
	struct hf_metric_label label = {"node", kv->node->config.name};

	service_metrics_open(&kv->metrics, rows, ROWS, label, sample, kv);
	node_status_service(kv->node, &kv->metrics);
	service_metrics_latency(&kv->metrics, "holdfast_kv_operation_seconds",
		"From the arrival of an operation until its reply.", label);
}

/* ---- opening ---- */

static const struct http_page pages[] = {{"/kv.json", serve}, {"/ready", ready}};

int kv_status_open(struct hf_kv *kv, struct hf_error *error)
{
	int rc = http_pages_open(&kv->pages, kv->node->status.http, pages, sizeof(pages) / sizeof(*pages), kv, error);

	if (rc == 0)
		open_metrics(kv);
	return rc;
}

void kv_status_close(struct hf_kv *kv)
{
	service_metrics_close(&kv->metrics);
	http_pages_close(&kv->pages, kv->node->status.http);
}
