#include "proxy/proxy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "proxy/objects.h"
#include "proxy/snapshot.h"

#define NS_PER_MS  1000000ull
#define CLIENTS_MB 256u
#define SILENCE_NS 10000000000ull

uint64_t proxy_now_ms(const struct proxy *proxy)
{
	return hf_env_wall_ns(hf_loop_env(proxy->loop)) / NS_PER_MS;
}

void proxy_fail(struct proxy *proxy, const char *format, ...)
{
	char words[PROXY_WORDS];
	va_list list;

	if (proxy->failed || proxy->closing)
		return;
	proxy->failed = true;
	va_start(list, format);
	(void)vsnprintf(words, sizeof(words), format, list);
	va_end(list);
	proxy->events.failed(proxy->context, words);
}

void proxy_fail_kind(struct proxy *proxy)
{
	proxy_fail(proxy, "the other members stand before another kind of server; this one before %s",
		proxy->protocol->replies.name);
}

/* ---- callbacks of the replica ---- */

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	(void)result; /* replies are kept in answers.h */
	proxy_apply(context, request);
	return 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct proxy *proxy = context;

	if (proxy->closing)
		return;
	if (proxy->events.event != NULL)
		proxy->events.event(proxy->context, event);
	switch (event->kind) {
	case HF_SMR_LEADING:
	case HF_SMR_FOLLOWING:
		if (event->kind == HF_SMR_LEADING) {
			proxy_snapshot_abort(proxy);
			proxy_apply_leads(proxy);
		}
		for (int id = 0; id < (int)HF_SMR_MEMBERS_MAX; id++)
			if (id != event->leader)
				proxy_route_lost(proxy, id);
		proxy_lead_crowded(proxy);
		proxy_route_again(proxy);
		proxy_lead_due(proxy);
		break;
	case HF_SMR_WRITABLE:
		proxy_lead_crowded(proxy);
		break;
	case HF_SMR_REMOVED:
		proxy_fail(proxy, "this member was removed, or another process took its place");
		break;
	case HF_SMR_FAILED:
		proxy_fail(
			proxy, "the replica steps out: %s", event->reason == NULL ? "no reason given" : event->reason);
		break;
	case HF_SMR_BEHIND:
	case HF_SMR_RESTORED:
	case HF_SMR_MEMBERS:
		break;
	}
}

/* ---- the server ---- */

static void server_broken(void *context, const char *why)
{
	struct proxy *proxy = context;

	if (proxy->smr == NULL)
		proxy_fail(proxy, "%s", why);
	else
		proxy_apply_ended(proxy, why);
}

/* Another member leads meanwhile, whose server answers; but for a write that the server works at, which the other one
 * would get next (R-S33). */
static void server_unwell(void *context, bool unwell)
{
	struct proxy *proxy = context;
	bool works = unwell && !proxy->unwell && proxy_apply_works(proxy);

	if (works && !proxy->works)
		log_warn("proxy: the server works at a write; this member leads on, and no other server has it yet");
	proxy->works = works;
	if (works || unwell == proxy->unwell)
		return;
	proxy->unwell = unwell;
	if (unwell)
		log_warn("proxy: the server does not answer; this member does not lead until it does");
	else
		log_info("proxy: the server answers again");
	if (proxy->smr != NULL)
		hf_smr_set_well(proxy->smr, !unwell);
}

void proxy_set_deadline(struct proxy *proxy, const uint8_t *key, size_t key_bytes, int64_t shifted_ms)
{
	const struct deadline *first = proxy_deadlines_first(&proxy->deadlines);
	int64_t before = first == NULL ? INT64_MAX : first->ms;

	if (shifted_ms < 0)
		proxy_deadlines_drop(&proxy->deadlines, key, key_bytes);
	else if (proxy_deadlines_set(&proxy->deadlines, key, key_bytes, shifted_ms) != 0)
		proxy_fail(proxy, "no memory for the deadlines of keys");
	first = proxy_deadlines_first(&proxy->deadlines);
	if (first != NULL && first->ms < before)
		proxy_lead_due(proxy);
}

static void server_deadline(void *context, const uint8_t *key, size_t key_bytes, int64_t shifted_ms)
{
	proxy_set_deadline(context, key, key_bytes, shifted_ms);
}

static void due(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	proxy_lead_due(container_of(timer, struct proxy, due));
}

static void retry(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	proxy_route_again(container_of(timer, struct proxy, retry));
}

static bool is_busy(void *context)
{
	const struct proxy *proxy = context;

	return proxy->snapshot != NULL || proxy_may_give(proxy) ||
	       proxy_server_unsent(proxy->server) > SERVER_UNSENT_MOST;
}

/* The server has said what it is: the replica and the listener begin. */
static void learned(struct server_gather *gather)
{
	static const struct hf_smr_app app = {.apply = apply,
		.snapshot_open = proxy_snapshot_open,
		.snapshot_read = proxy_snapshot_read,
		.snapshot_close = proxy_snapshot_close,
		.restore_open = proxy_restore_open,
		.restore_write = proxy_restore_write,
		.restore_close = proxy_restore_close,
		.event = on_event,
		.busy = is_busy};
	struct proxy *proxy = container_of(gather, struct proxy, learned);
	struct hf_error error = {0};
	const char *name = proxy->protocol->replies.name, *why = "without a reply";
	struct hf_addr listen;
	int rc;

	if (!gather->out.failed)
		why = proxy->protocol->hear_hello(proxy, gather->out.data, gather->out.bytes);
	resp_out_free(&gather->out);
	if (why != NULL) {
		proxy_fail(proxy, "the server is %s; start the proxy with a %s that it supports", why, name);
		return;
	}
	rc = hf_smr_start(proxy->node, &proxy->smr_config, &app, proxy, &proxy->smr, &error);
	if (rc == 0)
		rc = proxy_client_listen(proxy, &error);
	if (rc == 0)
		rc = hf_io_local(proxy->listener, &listen);
	if (rc != 0)
		proxy_fail(proxy, "%s", error.text);
	else
		proxy->events.ready(proxy->context, &listen);
}

static void say_hello(struct proxy *proxy)
{
	const char *hello = proxy->protocol->hello;

	proxy->learned = (struct server_gather){.left = 1, .done = learned};
	proxy_server_ask(proxy->server, hello, strlen(hello), ENTRY_PLAIN, 0, &proxy->learned);
}

/* ---- life ---- */

int proxy_open(struct hf_node *node, const struct proxy_config *config, const struct proxy_events *events,
	void *context, struct proxy **proxy_out, struct hf_error *error)
{
	static const struct server_events server_events = {
		.broken = server_broken, .unwell = server_unwell, .deadline = server_deadline};
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	int rc;

	*proxy_out = NULL;
	if (proxy == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the proxy");
	proxy->node = node;
	proxy->loop = hf_node_loop(node);
	proxy->events = *events;
	proxy->context = context;
	proxy->smr_config = config->smr;
	proxy->smr_config.sessions = ANSWERS_SESSIONS;
	proxy->smr_config.snapshots_pause = true;
	proxy->id = config->smr.id;
	proxy->server_pid = config->server_pid;
	proxy->protocol = config->memcached ? &proxy_memcached : &proxy_redis;
	proxy->listen = config->listen;
	proxy->clients_max = config->clients == 0 ? PROXY_CLIENTS : config->clients;
	proxy->clients_bytes_max = (size_t)(config->clients_mb == 0 ? CLIENTS_MB : config->clients_mb) << 20;
	proxy->commands.scripts = config->scripts;
	proxy->due.fire = due;
	proxy->retry.fire = retry;
	proxy_answers_init(&proxy->answers);
	hf_env_entropy(hf_loop_env(proxy->loop), &proxy->deadlines.seed, sizeof(proxy->deadlines.seed));
	list_init(&proxy->clients);
	list_init(&proxy->crowded);
	list_init(&proxy->held_reads);
	list_init(&proxy->stranded);
	list_init(&proxy->sent);
	list_init(&proxy->forward_peers);
	list_init(&proxy->orphans);
	rc = proxy_forward_open(proxy, error);
	if (rc == 0)
		rc = proxy_server_open(proxy->loop, config->socket,
			config->silence_ns == 0 ? SILENCE_NS : config->silence_ns, &proxy->protocol->replies,
			&server_events, proxy, &proxy->server, error);
	if (rc != 0) {
		proxy_close(proxy);
		return rc;
	}
	rc = proxy_status_open(proxy, error);
	if (rc != 0) {
		proxy_close(proxy);
		return rc;
	}
	proxy_apply_open(proxy);
	say_hello(proxy);
	*proxy_out = proxy;
	return 0;
}

void proxy_close(struct proxy *proxy)
{
	if (proxy == NULL)
		return;
	proxy->closing = true;
	proxy_status_close(proxy);
	proxy_apply_close(proxy);
	hf_loop_cancel_timer(proxy->loop, &proxy->due);
	hf_smr_stop(proxy->smr);
	proxy->smr = NULL;
	hf_loop_cancel_timer(proxy->loop, &proxy->retry);
	proxy_server_close(proxy->server);
	proxy_client_close_all(proxy);
	proxy_forward_close(proxy);
	proxy_snapshot_free(proxy);
	proxy_answers_free(&proxy->answers);
	proxy_deadlines_free(&proxy->deadlines);
	resp_out_free(&proxy->learned.out);
	resp_out_free(&proxy->due_entry);
	proxy_apply_free(proxy);
	free(proxy);
}

struct hf_smr *proxy_smr(struct proxy *proxy)
{
	return proxy->smr;
}

struct proxy_counts proxy_count(const struct proxy *proxy)
{
	return (struct proxy_counts){.clients = proxy->client_count,
		.accepted = proxy->accepted,
		.evicted = proxy->evicted,
		.commands = proxy->commands_done,
		.deadlines = proxy->deadlines.count,
		.server_waiting = proxy_server_waiting(proxy->server)};
}
