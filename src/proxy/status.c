/* Pages of the node's HTTP server. /smr.json: the replica, its members and the last changes of leader; /ready: whether
 * clients are served; metrics. */
#include <jansson.h>

#include "node/node.h"
#include "proxy/objects.h"

static json_t *describe_member(const struct hf_smr_member_status *member)
{
	return json_pack("{s:i, s:s, s:b, s:b, s:b, s:i, s:I}", "id", (int)member->id, "name", member->name, "voter",
		(int)member->voter, "alive", (int)member->alive, "confirmed", (int)member->confirmed, "score",
		(int)member->score, "applied", (json_int_t)member->applied);
}

static json_t *describe_failover(const struct hf_smr_failover *failover)
{
	return json_pack("{s:I, s:f, s:f, s:f}", "number", (json_int_t)failover->number, "detection_us",
		(double)failover->detected_ns / 1e3, "grant_us", (double)failover->granted_ns / 1e3, "catch_up_us",
		(double)failover->leading_ns / 1e3);
}

static json_t *describe(const struct proxy *proxy)
{
	struct hf_smr_status status;
	struct proxy_counts counts = proxy_count(proxy);
	json_t *members = json_array(), *failovers = json_array();

	hf_smr_status(proxy->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++)
		json_array_append_new(members, describe_member(&status.members[i]));
	for (unsigned i = 0; i < status.failover_count; i++)
		json_array_append_new(failovers, describe_failover(&status.failovers[i]));
	return json_pack(
		"{s:i, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:{s:i, s:I, s:I, s:I, s:I, s:I}}",
		"id", (int)status.id, "role", hf_smr_role_name(status.role), "leader", status.leader, "number",
		(json_int_t)status.number, "commit", (json_int_t)status.commit, "applied", (json_int_t)status.applied,
		"floor", (json_int_t)status.floor, "decided", (json_int_t)status.decided, "aborted",
		(json_int_t)status.aborted, "unknown", (json_int_t)status.unknown, "reads", (json_int_t)status.reads,
		"members", members, "failovers", failovers, "proxy", "clients", (int)counts.clients, "accepted",
		(json_int_t)counts.accepted, "evicted", (json_int_t)counts.evicted, "commands",
		(json_int_t)counts.commands, "deadlines", (json_int_t)counts.deadlines, "server_waiting",
		(json_int_t)counts.server_waiting);
}

static void serve(const struct http_request *request, struct http_answer *answer, void *context)
{
	struct proxy *proxy = context;
	json_t *json = proxy->smr == NULL ? json_object() : describe(proxy);

	(void)request;
	answer->type = "application/json";
	answer->body = json == NULL ? NULL : json_dumps(json, JSON_INDENT(1));
	json_decref(json);
}

/* NULL: clients are served. */
static const char *why_not_ready(const struct proxy *proxy)
{
	struct hf_smr_status status = {.leader = -1};
	unsigned voters = 0, alive = 0;

	if (proxy->failed || proxy->smr == NULL)
		return "LOADING the replica or its server is not there";
	if (proxy->listener == NULL)
		return "LOADING this member has not all entries yet";
	hf_smr_status(proxy->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++) {
		voters += status.members[i].voter;
		alive += status.members[i].voter && status.members[i].alive;
	}
	if (2 * alive <= voters)
		return "CLUSTERDOWN this member does not reach a majority of the members";
	return status.leader < 0 ? "CLUSTERDOWN no leader is known" : NULL;
}

static void ready(const struct http_request *request, struct http_answer *answer, void *context)
{
	const struct proxy *proxy = context;

	(void)request;
	http_answer_ready(answer, proxy->node->config.name, why_not_ready(proxy));
}

/* ---- metrics ---- */

enum {
	LEADS,
	NUMBER,
	MEMBERS_ALIVE,
	COMMIT,
	LAG,
	CLIENTS,
	CLIENTS_TOTAL,
	CLIENTS_EVICTED,
	COMMANDS,
	DEADLINES,
	SERVER_WAITING,
	DECIDED,
	ABORTED,
	UNKNOWN,
	READS,
	ROWS,
};

static const struct service_metric rows[ROWS] = {
	[LEADS] = {"holdfast_proxy_leads", "Whether this member leads the log.", HF_METRIC_GAUGE},
	[NUMBER] = {"holdfast_proxy_proposal_number", "The proposal number of this leader; 0 at others.",
		HF_METRIC_GAUGE},
	[MEMBERS_ALIVE] = {"holdfast_proxy_members_alive", "Voters that this member sees alive.", HF_METRIC_GAUGE},
	[COMMIT] = {"holdfast_proxy_commit", "The place in the log up to which entries are decided.", HF_METRIC_GAUGE},
	[LAG] = {"holdfast_proxy_lag", "Decided entries that this member has not applied.", HF_METRIC_GAUGE},
	[CLIENTS] = {"holdfast_proxy_clients", "Connections of clients.", HF_METRIC_GAUGE},
	[CLIENTS_TOTAL] = {"holdfast_proxy_clients_total", "Connections that were accepted.", HF_METRIC_COUNTER},
	[CLIENTS_EVICTED] = {"holdfast_proxy_clients_evicted_total",
		"Clients that were closed because the buffers of all were full.", HF_METRIC_COUNTER},
	[COMMANDS] = {"holdfast_proxy_commands_total", "Commands of clients that were answered.", HF_METRIC_COUNTER},
	[DEADLINES] = {"holdfast_proxy_keys_with_deadline", "Keys that expire.", HF_METRIC_GAUGE},
	[SERVER_WAITING] = {"holdfast_proxy_server_waiting", "Commands at the server that it has not answered.",
		HF_METRIC_GAUGE},
	[DECIDED] = {"holdfast_proxy_decided_total", "Entries that this member has applied.", HF_METRIC_COUNTER},
	[ABORTED] = {"holdfast_proxy_aborted_total", "Entries that this member proposed and that have no effect.",
		HF_METRIC_COUNTER},
	[UNKNOWN] = {"holdfast_proxy_unknown_total",
		"Entries that this member proposed and whose outcome it does not know.", HF_METRIC_COUNTER},
	[READS] = {"holdfast_proxy_reads_total", "Confirmations of the lead, each of which serves reads.",
		HF_METRIC_COUNTER},
};

static void sample(const void *service, uint64_t *values)
{
	const struct proxy *proxy = service;
	const struct proxy_counts counts = proxy_count(proxy);
	struct hf_smr_status status = {0};

	if (proxy->smr != NULL)
		hf_smr_status(proxy->smr, &status);
	values[LEADS] = status.leader == (int)status.id && proxy->smr != NULL;
	values[NUMBER] = values[LEADS] == 1 ? status.number : 0;
	for (unsigned i = 0; i < status.member_count; i++)
		values[MEMBERS_ALIVE] += status.members[i].voter && status.members[i].alive;
	values[COMMIT] = status.commit;
	values[LAG] = status.commit > status.applied ? status.commit - status.applied : 0;
	values[CLIENTS] = counts.clients;
	values[CLIENTS_TOTAL] = counts.accepted;
	values[CLIENTS_EVICTED] = counts.evicted;
	values[COMMANDS] = counts.commands;
	values[DEADLINES] = counts.deadlines;
	values[SERVER_WAITING] = counts.server_waiting;
	values[DECIDED] = status.decided;
	values[ABORTED] = status.aborted;
	values[UNKNOWN] = status.unknown;
	values[READS] = status.reads;
}

static void open_metrics(struct proxy *proxy)
{
	struct hf_metric_label label = {"node", proxy->node->config.name};

	service_metrics_open(&proxy->metrics, rows, ROWS, label, sample, proxy);
	node_status_service(proxy->node, &proxy->metrics);
	service_metrics_latency(&proxy->metrics, "holdfast_proxy_run_seconds",
		"From the arrival of consecutive commands of a client, all reads or all writes, until their replies.",
		label);
}

/* ---- opening ---- */

static const struct http_page pages[] = {{"/smr.json", serve}, {"/ready", ready}};

int proxy_status_open(struct proxy *proxy, struct hf_error *error)
{
	int rc = http_pages_open(
		&proxy->pages, proxy->node->status.http, pages, sizeof(pages) / sizeof(*pages), proxy, error);

	if (rc == 0)
		open_metrics(proxy);
	return rc;
}

void proxy_status_close(struct proxy *proxy)
{
	service_metrics_close(&proxy->metrics);
	http_pages_close(&proxy->pages, proxy->node->status.http);
}
