/* Pages of the node's HTTP server. /smr.json: the replica, its members and the last changes of leader; /ready: whether
 * clients are served. */
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

int proxy_status_open(struct proxy *proxy, struct hf_error *error)
{
	struct http_server *http = proxy->node->status.http;
	int rc = http == NULL ? 0 : http_route(http, "/smr.json", serve, proxy);

	if (http != NULL && rc == 0)
		rc = http_route(http, "/ready", ready, proxy);
	return rc == 0 ? 0 : hf_error_set(error, rc, "/smr.json is served by another proxy of this node already");
}
