/* What operators see of a store: hf_kv_status; /kv.json and /ready of the node's HTTP server. */
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

static const struct {
	const char *path;
	http_handler *handler;
} pages[] = {{"/kv.json", serve}, {"/ready", ready}};

int kv_status_open(struct hf_kv *kv, struct hf_error *error)
{
	struct http_server *http = kv->node->status.http;
	int rc = 0;

	for (; http != NULL && kv->page_count < sizeof(pages) / sizeof(*pages) && rc == 0; kv->page_count += rc == 0)
		rc = http_route(http, pages[kv->page_count].path, pages[kv->page_count].handler, kv);
	return rc == 0 ? 0
		       : hf_error_set(error, rc, "kv: %s is served by another service of this node already",
				 pages[kv->page_count].path);
}

void kv_status_close(struct hf_kv *kv)
{
	while (kv->page_count > 0)
		http_unroute(kv->node->status.http, pages[--kv->page_count].path);
}
