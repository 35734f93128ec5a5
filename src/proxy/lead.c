/* What the leader does with a run: an entry for writes, a confirmation for reads, and the server's replies. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "proxy/objects.h"
#include "proxy/redis/rewrite.h"

#define DUE_BATCH 64u
#define NS_PER_MS 1000000ull
#define DUE_MS    1000 /* the wall clock is looked at so often, since it may be set */

static void finish(struct run *run, enum run_status status)
{
	run->leading = false;
	run->status = status;
	resp_out_free(&run->entry);
	run->done(run);
}

static void finish_refused(struct run *run, int rc)
{
	if (rc == -EAGAIN) {
		list_push_back(&run->proxy->crowded, &run->node);
		return;
	}
	finish(run, rc == -EMSGSIZE ? RUN_TOO_LARGE : RUN_NOT_LEADER);
}

/* The reply for the client is whole. */
static void take_reply(struct run *run, const struct resp_out *reply)
{
	run->reply.bytes = 0;
	resp_out_raw(&run->reply, reply->data, reply->bytes);
	finish(run, reply->failed || run->reply.failed ? RUN_LOST : RUN_ANSWERED);
}

static void take_answer(struct run *run, const struct answer *answer)
{
	if (answer->skipped)
		finish(run, RUN_ENDED);
	else if (answer->dropped)
		finish(run, RUN_LOST);
	else
		take_reply(run, &answer->gather.out);
}

static void answer_told(struct answer_waiter *waiter, const struct answer *answer)
{
	take_answer(container_of(waiter, struct run, waiter), answer);
}

static void decided(struct run *run)
{
	struct answer *answer = proxy_answers_find(&run->proxy->answers, run->session, run->sequence);

	if (answer == NULL) {
		finish(run, RUN_LOST);
	} else if (answer->whole) {
		take_answer(run, answer);
	} else {
		run->waiter.told = answer_told;
		list_push_back(&answer->waiters, &run->waiter.node);
	}
}

/* ---- reads ---- */

static void read_gathered(struct server_gather *gather)
{
	struct run *run = container_of(gather, struct run, gather);
	struct resp_out reply = gather->out;

	gather->out = (struct resp_out){0};
	resp_out_free(&run->reply);
	run->reply = reply;
	finish(run, reply.failed ? RUN_LOST : RUN_ANSWERED);
}

/* Another server would end by it too. */
static void read_lost(struct server_gather *gather)
{
	resp_out_free(&gather->out);
	finish(container_of(gather, struct run, gather), RUN_ENDED);
}

static void read_confirmed(struct run *run)
{
	struct run_cursor cursor = {0};
	uint64_t now_ms = proxy_now_ms(run->proxy);

	if (proxy_is_held(run->proxy)) { /* entries that are applied are not at the server yet */
		list_push_back(&run->proxy->held_reads, &run->node);
		return;
	}
	run->gather = (struct server_gather){.left = run->commands, .done = read_gathered, .lost = read_lost};
	while (proxy_run_next(run, &cursor))
		run->proxy->protocol->ask(run->proxy, cursor.command, &cursor.request, now_ms, &run->gather);
}

void proxy_lead_held(struct proxy *proxy)
{
	while (!list_empty(&proxy->held_reads))
		read_confirmed(container_of(list_pop_front(&proxy->held_reads), struct run, node));
}

static void call_done(struct hf_smr_call *call);

/* ---- members ---- */

static bool adds(const struct run *run)
{
	struct run_cursor cursor = {0};

	return proxy_run_next(run, &cursor) && proxy_command_word(cursor.request.data, &cursor.request.args[1], "ADD");
}

static void change_done(struct run *run)
{
	bool withdrawn = run->call.outcome == HF_SMR_NOT_LEADER && run->call.leader == run->proxy->id && adds(run);

	run->reply.bytes = 0;
	if (run->call.outcome == HF_SMR_NOT_LEADER && !withdrawn) {
		finish(run, RUN_NOT_LEADER);
		return;
	}
	if (withdrawn)
		resp_out_error(&run->reply, "ERR the member did not come, and its removal ended this");
	else if (run->call.outcome == HF_SMR_DECIDED)
		resp_out_simple(&run->reply, "OK");
	else
		resp_out_error(
			&run->reply, "UNKNOWN leadership ended; the change may have taken effect: holdfast smr status");
	finish(run, run->reply.failed ? RUN_LOST : RUN_ANSWERED);
}

static const char *change_words(int rc)
{
	switch (-rc) {
	case EBUSY:
		return "another change of the members goes on; wait for its end, or remove the member that is awaited";
	case EEXIST:
		return "a member has this id already";
	case ENOENT:
		return "no member has this id";
	case EHOSTDOWN:
		return "of the members that would be left no majority follows the leader, so that nothing could be "
		       "decided; start those that are down, or remove one of them first";
	case EINVAL:
		return "it is the last voter, or a number or an address is wrong";
	default:
		return "the change was refused";
	}
}

static bool take_member(const struct command_args *request, struct hf_smr_member *member)
{
	char text[HF_ADDR_TEXT];
	int64_t id;

	if (!resp_number(request->data + request->args[2].at, request->args[2].bytes, &id) || id < 0 ||
		id >= (int64_t)HF_SMR_MEMBERS_MAX || request->args[3].bytes >= sizeof(member->name) ||
		request->count - 4 > HF_SMR_ADDRESSES_MAX)
		return false;
	*member = (struct hf_smr_member){.id = (uint8_t)id};
	memcpy(member->name, request->data + request->args[3].at, request->args[3].bytes);
	for (unsigned i = 4; i < request->count; i++) {
		const struct resp_arg *arg = &request->args[i];

		if (arg->bytes >= sizeof(text))
			return false;
		memcpy(text, request->data + arg->at, arg->bytes);
		text[arg->bytes] = '\0';
		if (hf_addr_parse(text, &member->addresses[member->address_count++]) != 0)
			return false;
	}
	return true;
}

/* HOLDFAST ADD id name address..., HOLDFAST REMOVE MEMBER id */
static void change(struct run *run)
{
	struct hf_smr *smr = run->proxy->smr;
	struct run_cursor cursor = {0};
	struct hf_smr_member member;
	int64_t id;
	int rc = -EINVAL;

	run->call = (struct hf_smr_call){.done = call_done};
	if (proxy_run_next(run, &cursor)) {
		const struct command_args *request = &cursor.request;
		const struct resp_arg *args = request->args;

		if (proxy_command_word(request->data, &args[1], "ADD") && request->count > 4 &&
			take_member(request, &member))
			rc = hf_smr_add(smr, &member, &run->call);
		else if (proxy_command_word(request->data, &args[1], "REMOVE") && request->count == 4 &&
			 resp_number(request->data + args[3].at, args[3].bytes, &id) && id >= 0 && id <= UINT8_MAX)
			rc = hf_smr_remove(smr, (uint8_t)id, &run->call);
	}
	if (rc == 0)
		return;
	run->reply.bytes = 0;
	resp_out_error(&run->reply, "ERR %s", change_words(rc));
	finish(run, rc == -ENOTCONN ? RUN_NOT_LEADER : RUN_ANSWERED);
}

static void call_done(struct hf_smr_call *call)
{
	struct run *run = container_of(call, struct run, call);

	if (run->kind == RUN_CHANGE) {
		change_done(run);
		return;
	}
	switch (call->outcome) {
	case HF_SMR_NOT_LEADER:
		finish(run, RUN_NOT_LEADER);
		return;
	case HF_SMR_UNKNOWN:
		finish(run, RUN_UNKNOWN);
		return;
	case HF_SMR_SESSION_OVER:
		finish(run, RUN_SESSION_OVER);
		return;
	case HF_SMR_DECIDED:
		break;
	}
	if (run->kind == RUN_READ) {
		read_confirmed(run);
	} else if (run->kind == RUN_OPEN) {
		run->reply.bytes = 0;
		resp_out_raw(&run->reply, call->result, call->result_bytes);
		finish(run, RUN_ANSWERED);
	} else {
		decided(run);
	}
}

static void propose(struct run *run)
{
	struct proxy *proxy = run->proxy;
	int rc;

	run->call = (struct hf_smr_call){.done = call_done,
		.data = run->entry.data,
		.bytes = (uint32_t)run->entry.bytes,
		.session = run->session,
		.sequence = run->sequence};
	if (run->kind == RUN_READ) {
		rc = hf_smr_read(proxy->smr, &run->call);
	} else if (run->kind == RUN_OPEN) {
		rc = hf_smr_session_open(proxy->smr, &run->call);
	} else {
		ensure(!run->entry.failed);
		rc = hf_smr_propose(proxy->smr, &run->call);
	}
	if (rc != 0)
		finish_refused(run, rc);
}

static void write_entry(struct run *run)
{
	struct run_cursor cursor = {0};
	uint64_t now_ms = proxy_now_ms(run->proxy);

	proxy_entry_begin(
		&run->entry, run->proxy->protocol->server, run->kind == RUN_MULTI ? ENTRY_MULTI : ENTRY_WRITE, now_ms);
	while (proxy_run_next(run, &cursor))
		run->proxy->protocol->rewrite(cursor.command, &cursor.request, now_ms, &run->entry);
}

static void drawn(struct server_gather *gather)
{
	struct run *run = container_of(gather, struct run, gather);
	struct run_cursor cursor = {0};

	if (!proxy_run_next(run, &cursor) || gather->out.failed) {
		resp_out_free(&gather->out);
		finish(run, RUN_TOO_LARGE);
		return;
	}
	proxy_entry_begin(&run->entry, run->proxy->protocol->server, ENTRY_WRITE, proxy_now_ms(run->proxy));
	proxy_rewrite_drawn(&cursor.request, gather->out.data, gather->out.bytes, &run->entry);
	resp_out_free(&gather->out);
	if (run->entry.failed)
		finish(run, RUN_TOO_LARGE);
	else
		propose(run);
}

static void draw(struct run *run)
{
	struct run_cursor cursor = {0};
	struct resp_out out = {0};

	if (!proxy_run_next(run, &cursor)) {
		finish(run, RUN_TOO_LARGE);
		return;
	}
	proxy_rewrite_draw(&cursor.request, &out);
	run->gather = (struct server_gather){.left = 1, .done = drawn, .lost = read_lost};
	proxy_server_ask(run->proxy->server, out.data, out.bytes, ENTRY_PLAIN, 0, &run->gather);
	resp_out_free(&out);
}

void proxy_lead(struct run *run)
{
	run->leading = true;
	run->entry.bytes = 0;
	run->entry.failed = false;
	if (run->proxy->smr == NULL || run->proxy->ending || !hf_smr_is_leader(run->proxy->smr)) {
		finish(run, RUN_NOT_LEADER);
		return;
	}
	if (run->kind == RUN_DRAW) {
		draw(run);
		return;
	}
	if (run->kind == RUN_CHANGE) {
		change(run);
		return;
	}
	if (run->kind == RUN_WRITE || run->kind == RUN_MULTI)
		write_entry(run);
	if (run->entry.failed)
		finish(run, RUN_TOO_LARGE);
	else
		propose(run);
}

void proxy_lead_crowded(struct proxy *proxy)
{
	struct list waiting;

	list_init(&waiting);
	while (!list_empty(&proxy->crowded))
		list_push_back(&waiting, list_pop_front(&proxy->crowded));
	while (!list_empty(&waiting))
		propose(container_of(list_pop_front(&waiting), struct run, node));
}

/* ---- keys that are due ---- */

static void set_due_timer(struct proxy *proxy, int64_t wait_ms)
{
	if (wait_ms > DUE_MS)
		wait_ms = DUE_MS;
	hf_loop_set_timer(proxy->loop, &proxy->due,
		hf_loop_now_ns(proxy->loop) + (wait_ms < 1 ? 1 : (uint64_t)wait_ms) * NS_PER_MS);
}

static void due_done(struct hf_smr_call *call)
{
	struct proxy *proxy = container_of(call, struct proxy, due_call);

	proxy->due_proposed = false;
	if (!proxy->closing)
		set_due_timer(proxy, 1);
}

static int propose_due(struct proxy *proxy, uint64_t now_ms, const struct deadline *const *due, size_t n)
{
	proxy->due_entry.bytes = 0;
	proxy_entry_begin(&proxy->due_entry, proxy->protocol->server, ENTRY_DUE, now_ms);
	for (size_t i = 0; i < n; i++)
		proxy->protocol->rewrite_due(&proxy->due_entry, due[i]->key, due[i]->bytes, due[i]->ms);
	if (proxy->due_entry.failed)
		return -ENOMEM;
	proxy->due_call = (struct hf_smr_call){
		.done = due_done, .data = proxy->due_entry.data, .bytes = (uint32_t)proxy->due_entry.bytes};
	return hf_smr_propose(proxy->smr, &proxy->due_call);
}

/* As many of the keys as fit in an entry. One that does not fit by itself is left, and those behind it go on. */
static int propose_some(struct proxy *proxy, uint64_t now_ms, const struct deadline *const *due, size_t left)
{
	int rc = -EMSGSIZE;

	for (; rc == -EMSGSIZE && left > 0; due++, left--)
		for (size_t n = left; rc == -EMSGSIZE && n > 0; n /= 2)
			rc = propose_due(proxy, now_ms, due, n);
	return rc;
}

void proxy_lead_due(struct proxy *proxy)
{
	const struct deadline *due[DUE_BATCH], *first = proxy_deadlines_first(&proxy->deadlines);
	uint64_t now_ms = proxy_now_ms(proxy);
	int64_t shifted_ms = (int64_t)now_ms + ENTRY_SHIFT_MS;
	size_t n;
	int rc;

	if (first == NULL || proxy->due_proposed || proxy->smr == NULL || !hf_smr_is_leader(proxy->smr))
		return;
	/* The server's answers take keys from the list: until then the same keys would be proposed again. */
	if (proxy_is_held(proxy) || !proxy_server_passed(proxy->server, proxy->due_mark)) {
		set_due_timer(proxy, 1);
		return;
	}
	n = proxy_deadlines_due(&proxy->deadlines, shifted_ms, due, DUE_BATCH);
	if (n == 0) {
		set_due_timer(proxy, first->ms - shifted_ms);
		return;
	}
	rc = propose_some(proxy, now_ms, due, n);
	proxy->due_proposed = rc == 0;
	if (rc != 0)
		set_due_timer(proxy, rc == -EAGAIN ? 1 : DUE_MS);
}
