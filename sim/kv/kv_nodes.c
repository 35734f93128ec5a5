/* A node with its store, and the clients that live in its process. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/checkers/store_log.h"
#include "sim/kv/kv.h"

#define CONTROL_PORT    7000u
#define HEARTBEAT_NS    (5 * NS_MS)
#define FAILBACK_NS     (20 * NS_MS)
#define QP_TIMEOUT      8 /* 1 ms */
#define QP_RETRY_CNT    2
#define BUDGET_SLACK_NS (100 * NS_MS)
#define NEVER           UINT64_MAX /* of the values of counters: what no CAS compares with */
#define REST_NS_MAX     (4 * NS_MS)
#define FEW_HOT         4u /* registers, and one counter, where faults are aimed */
#define FEW_REST_NS     (2 * NS_MS)
#define HUSH_NS         NS_MS

/* ---- answers ---- */

static bool never_happened(enum hf_kv_result result)
{
	return result != HF_KV_OK && result != HF_KV_ABSENT && result != HF_KV_UNKNOWN;
}

static uint64_t number_in(const struct hf_kv_op *op)
{
	char text[24];

	if (op->returned == NULL)
		return 0;
	snprintf(text, sizeof(text), "%.*s", (int)(op->returned_bytes < 23 ? op->returned_bytes : 23),
		(const char *)op->returned);
	return strtoull(text, NULL, 10);
}

static void end_counted(struct kv_cluster *all, struct kv_call *call)
{
	struct linear *linear = &all->counters[call->key];
	const struct hf_kv_op *op = &call->op;

	if (op->result == HF_KV_UNKNOWN)
		return;
	if (never_happened(op->result))
		linear_withdraw(linear, call->index);
	else if (op->kind == HF_KV_ADD)
		linear_complete(linear, call->index, (uint64_t)op->number - call->value, all->world->now_ns);
	else
		linear_complete(linear, call->index, number_in(op), all->world->now_ns);
}

/* A value is a number of a SET and those of APPENDs, each behind a plus: "17:...+18+21". The last one; what each is
 * behind is noted. */
static uint64_t value_in(struct registers *registers, const struct hf_kv_op *op)
{
	const char *at = op->returned, *end = at == NULL ? NULL : at + op->returned_bytes;
	uint64_t value = at != NULL && *at == '+' ? 0 : number_in(op);

	while (at != NULL && (at = memchr(at, '+', (size_t)(end - at))) != NULL) {
		uint64_t before = value;

		value = 0;
		for (at++; at < end && *at >= '0' && *at <= '9'; at++)
			value = value * 10 + (uint64_t)(*at - '0');
		registers_follows(registers, value, before);
	}
	return value;
}

static void end_registered(struct kv_cluster *all, struct kv_call *call)
{
	const struct hf_kv_op *op = &call->op;

	registers_end(&all->registers[call->key], call->index,
		op->result == HF_KV_UNKNOWN  ? REGISTERS_UNKNOWN
		: never_happened(op->result) ? REGISTERS_REFUSED
					     : REGISTERS_DONE,
		value_in(&all->registers[call->key], op), all->world->now_ns);
}

static void note_written(struct kv_node *node, uint64_t now_ns)
{
	if (node->written_ns != 0 && now_ns - node->written_ns > node->gap_ns) {
		node->gap_ns = now_ns - node->written_ns;
		node->gap_end_ns = now_ns;
	}
	node->written_ns = now_ns;
}

static void done(struct hf_kv_op *op)
{
	struct kv_call *call = container_of(op, struct kv_call, op);
	struct kv_node *node = call->client->node;
	struct kv_cluster *all = node->all;
	uint64_t took_ns = all->world->now_ns - call->posted_ns;

	world_note(all->world, "kv-done", op->result);
	if (call->counts)
		end_counted(all, call);
	else
		end_registered(all, call);
	if (took_ns > all->op_budget_ns + all->stands_ns + BUDGET_SLACK_NS + process_paused_ns(node->endpoint.process) +
			      host_suspended_ns(&node->endpoint.host))
		world_violate(all->world, "budget", "an operation took %.3f s", (double)took_ns / 1e9);
	all->outcome->unknown += op->result == HF_KV_UNKNOWN;
	all->outcome->refused += never_happened(op->result);
	if (op->result == HF_KV_OK || op->result == HF_KV_ABSENT) {
		all->outcome->operations++;
		node->done_since_quiet += all->world->now_ns >= all->faults.quiet_ns;
		node->logged |= op->kind != HF_KV_GET && op->result == HF_KV_OK;
		if (op->kind != HF_KV_GET)
			note_written(node, all->world->now_ns);
	}
	call->busy = false;
}

/* ---- requests ---- */

static void fill_counted(struct kv_cluster *all, struct kv_call *call)
{
	struct hf_kv_op *op = &call->op;

	call->key = all->aims ? 0 : (unsigned)world_range(all->world, 0, KV_COUNTERS - 1);
	snprintf(call->key_text, sizeof(call->key_text), "counter%u", call->key);
	op->kind = !all->aim.reads && world_chance(all->world, 600000) ? HF_KV_ADD : HF_KV_GET;
	call->value = world_range(all->world, 1, 1ull << 40);
	op->delta = (int64_t)call->value;
	call->index =
		linear_post(&all->counters[call->key], op->kind == HF_KV_GET, call->value, NEVER, all->world->now_ns);
}

static bool is_deleted(unsigned key)
{
	return key < KV_DELETED_HOT || key >= KV_REGISTERS - KV_DELETED;
}

static unsigned pick_register(struct kv_cluster *all)
{
	if (all->aim.one)
		return FEW_HOT - 1;
	if (all->aims)
		return (unsigned)world_range(all->world, 0, FEW_HOT - 1);
	return world_chance(all->world, 500000) ? (unsigned)world_range(all->world, 0, KV_HOT - 1)
						: (unsigned)world_range(all->world, KV_HOT, KV_REGISTERS - 1);
}

static void pick_kind(struct kv_cluster *all, struct kv_call *call, uint64_t kind)
{
	struct hf_kv_op *op = &call->op;

	if (all->aim.one && !all->aim.reads) {
		op->kind = call->client->node->index == all->aim.returns ? HF_KV_APPEND : HF_KV_SET;
		return;
	}
	op->kind = kind < 50 ? HF_KV_GET : all->aims && kind >= 80 && kind < 90 ? HF_KV_APPEND : HF_KV_SET;
	op->flags = kind >= 90 && !all->standard ? HF_KV_RETURN : 0;
	if (!all->standard && is_deleted(call->key) && kind >= 50 && world_chance(all->world, 350000)) {
		op->kind = HF_KV_DELETE;
		op->flags = HF_KV_RETURN;
	}
}

static size_t fill_value(struct kv_cluster *all, struct kv_call *call)
{
	bool large;
	size_t bytes, more;

	if (call->op.kind == HF_KV_APPEND)
		return (size_t)snprintf(call->text, sizeof(call->text), "+%" PRIu64, call->value);
	bytes = (size_t)snprintf(call->text, sizeof(call->text), "%" PRIu64 ":", call->value);
	if (!world_chance(all->world, 300000))
		return bytes;
	large = world_chance(all->world, 100000) && !all->standard;
	more = (size_t)world_range(all->world, 0, large ? KV_VALUE_BYTES - bytes : 500);
	memset(call->text + bytes, '.', more);
	return bytes + more;
}

static void fill_registered(struct kv_cluster *all, struct kv_call *call)
{
	struct hf_kv_op *op = &call->op;
	uint64_t kind = all->aim.reads ? 0 : world_range(all->world, 0, 99);

	call->key = pick_register(all);
	snprintf(call->key_text, sizeof(call->key_text), "register%u", call->key);
	pick_kind(all, call, kind);
	call->value = op->kind == HF_KV_GET ? 0 : ++all->values;
	if (op->kind == HF_KV_SET || op->kind == HF_KV_APPEND) {
		op->value = call->text;
		op->value_bytes = (uint32_t)fill_value(all, call);
	}
	call->index = registers_post(&all->registers[call->key], op->kind != HF_KV_GET,
		op->kind == HF_KV_GET || op->flags != 0, call->value, all->world->now_ns);
	if (op->kind == HF_KV_DELETE)
		registers_post_deletion(&all->registers[call->key], call->index);
}

static void post(struct kv_client *client, struct kv_call *call)
{
	struct kv_cluster *all = client->node->all;

	call->client = client;
	call->op = (struct hf_kv_op){.done = done};
	call->counts = !all->standard && !all->aim.one && world_chance(all->world, 350000);
	if (call->counts)
		fill_counted(all, call);
	else
		fill_registered(all, call);
	call->op.key = call->key_text;
	call->op.key_bytes = (uint32_t)strlen(call->key_text);
	call->busy = true;
	call->posted_ns = all->world->now_ns;
	hf_kv_post(client->flow, &call->op);
}

/* ---- the program ---- */

static bool run_client(struct kv_client *client, uint64_t now_ns)
{
	struct kv_cluster *all = client->node->all;
	bool one = all->aim.one && !all->aim.reads;
	unsigned busy = 0, depth = one ? 1 : client->depth;

	if (all->stopping || now_ns < client->next_ns)
		return false;
	if (all->work != NULL) {
		client->next_ns = now_ns + world_range(all->world, 1, client->rest_ns_max);
		return all->work(client);
	}
	if ((all->aim.hushed & 1u << client->node->index) != 0 || (one && client != client->node->clients)) {
		client->next_ns = now_ns + world_range(all->world, 1, HUSH_NS);
		return false;
	}
	for (unsigned i = 0; i < KV_OPS; i++)
		busy += client->calls[i].busy;
	for (unsigned i = 0; i < KV_OPS && busy < depth; i++)
		if (!client->calls[i].busy) {
			post(client, &client->calls[i]);
			busy++;
		}
	client->next_ns = now_ns + world_range(all->world, 1, client->rest_ns_max);
	return true;
}

static enum hf_poll poll_node(struct hf_poller *poller, uint64_t now_ns)
{
	struct kv_node *node = container_of(poller, struct kv_node, endpoint.poller);
	bool busy = false;

	for (unsigned i = 0; i < KV_CLIENTS; i++)
		busy |= run_client(&node->clients[i], now_ns);
	return busy ? HF_BUSY : HF_IDLE;
}

static bool arm_node(struct hf_poller *poller)
{
	struct kv_node *node = container_of(poller, struct kv_node, endpoint.poller);
	uint64_t due_ns = UINT64_MAX;

	for (unsigned i = 0; i < KV_CLIENTS; i++)
		if (node->clients[i].next_ns < due_ns)
			due_ns = node->clients[i].next_ns;
	if (!node->all->stopping)
		hf_loop_set_timer(node->endpoint.loop, &node->endpoint.timer, due_ns);
	return true;
}

static struct hf_addr address_of(const struct kv_cluster *all, unsigned node, unsigned rail, uint16_t port)
{
	struct hf_addr address = all->network.ports[rail * all->count + node].address;

	hf_addr_set_port(&address, port);
	return address;
}

static void configure_node(const struct kv_node *node, struct hf_node_config *config)
{
	*config =
		(struct hf_node_config){.rail_count = KV_RAILS, .policy = HF_POLICY_VARUNA, .cores = node->all->cores};
	if (!node->all->standard) {
		config->heartbeat_ns = HEARTBEAT_NS;
		config->heartbeat_misses = 4;
		config->failback_ns = FAILBACK_NS;
		config->budget_ns = node->all->node_budget_ns;
		config->timeout = QP_TIMEOUT;
		config->retry_cnt = QP_RETRY_CNT;
	}
	snprintf(config->name, sizeof(config->name), "%s", node->endpoint.host.name);
	for (unsigned i = 0; i < KV_RAILS; i++) {
		struct hf_addr address = address_of(node->all, node->index, i, 0);

		endpoint_set_rail(config, i, &address, CONTROL_PORT);
	}
}

static void configure_store(const struct kv_cluster *all, struct hf_kv_config *config)
{
	*config = (struct hf_kv_config){.member_count = all->count,
		.store_mb = 1,
		.missed_mb = 1,
		.missed_entries = all->missed_entries,
		.cores = all->cores,
		.lease_ns = all->lease_ns,
		.replay_ns = all->replay_ns,
		.budget_ns = all->op_budget_ns,
		.medium = all->keep == KV_KEEP_FILE ? HF_KV_FILE : HF_KV_MEMORY,
		.recovery = all->recovery,
		.segment_bytes = all->segment_bytes};
	if (all->keep != KV_KEEP_NOTHING)
		snprintf(config->log, sizeof(config->log), "kv");
	snprintf(config->cluster, sizeof(config->cluster), "sim");
	for (unsigned i = 0; i < all->count; i++) {
		struct hf_kv_member *member = &config->members[i];

		snprintf(member->name, sizeof(member->name), "%s", all->nodes[i].endpoint.host.name);
		member->control_count = KV_RAILS;
		for (unsigned k = 0; k < KV_RAILS; k++)
			member->control[k] = address_of(all, i, k, CONTROL_PORT);
	}
}

static int start_clients(struct kv_node *node)
{
	struct world *world = node->all->world;

	for (unsigned i = 0; i < KV_CLIENTS; i++) {
		struct kv_client *client = &node->clients[i];

		memset(client, 0, sizeof(*client));
		client->node = node;
		client->flow = hf_kv_flow_open(node->kv);
		client->depth = (unsigned)world_range(world, 1, KV_OPS);
		client->rest_ns_max = node->all->standard ? REST_NS_MAX : 4 * NS_MS << world_range(world, 0, 3);
		if (node->all->aims)
			client->rest_ns_max = FEW_REST_NS;
		if (client->flow == NULL)
			return -1;
	}
	return 0;
}

/* Such a log is left as it is, until the others serve. */
static bool says_damaged(const struct kv_node *node, bool damaged)
{
	struct hf_kv_status status;

	hf_kv_status(node->kv, &status);
	if (damaged && !status.damaged)
		world_violate(node->all->world, "damage", "%u does not say that its log is damaged", node->index);
	if (status.damaged && !node->lost && !node->aged)
		world_violate(
			node->all->world, "damage", "%u takes what a loss of power leaves for damage", node->index);
	return status.damaged;
}

static int start_node(struct process *process, void *context)
{
	struct kv_node *node = context;
	struct hf_node_config config;
	struct hf_kv_config store;
	struct hf_error error = {0};
	struct store_log_end end;
	const char *wrong;
	bool damaged;
	int rc;

	configure_node(node, &config);
	configure_store(node->all, &store);
	kv_images_put(node);
	damaged = kv_damage_put(node);
	end = store_log_find_end(&process->env, store.log);
	rc = endpoint_open(&node->endpoint, &config, NULL, NULL, 16);
	if (rc == 0 && (rc = hf_kv_open(node->endpoint.node, &store, &node->kv, &error)) != 0 && rc != -EIO &&
		rc != -ENOSPC)
		world_violate(node->all->world, "start", "%s", error.text);
	if (rc == 0 && store.log[0] != '\0' && !says_damaged(node, damaged) &&
		(wrong = store_log_check(&process->env, store.log, &end)) != NULL)
		world_violate(node->all->world, "log", "%s", wrong);
	if (rc == 0)
		rc = start_clients(node);
	if (rc == 0)
		endpoint_run(&node->endpoint, poll_node, arm_node);
	return rc;
}

static void stop_node(struct process *process, void *context)
{
	struct kv_node *node = context;
	struct outcome *outcome = node->all->outcome;
	struct hf_kv_status status = {0};

	(void)process;
	if (node->kv != NULL)
		hf_kv_status(node->kv, &status);
	kv_damage_look(node, &status);
	outcome->excluded += status.excluded;
	outcome->copied += status.copied;
	outcome->healed += status.healed;
	outcome->purged += status.purged;
	hf_kv_close(node->kv);
	node->kv = NULL;
	memset(node->clients, 0, sizeof(node->clients));
	if (node->endpoint.loop != NULL)
		endpoint_close(&node->endpoint);
}

/* ---- the cluster ---- */

void kv_nodes_make(struct kv_cluster *all)
{
	static const char *const names[KV_NODES_MAX] = {"a", "b", "c", "d", "e"};

	network_init(&all->network, all->world);
	all->network.stream_limit_ns = 8 * NS_S;
	for (unsigned i = 0; i < all->count; i++) {
		struct kv_node *node = &all->nodes[i];

		node->all = all;
		node->index = i;
		host_init(&node->endpoint.host, all->world, &all->network, names[i]);
		node->endpoint.process = process_create(&node->endpoint.host, names[i], &kv_program, node);
	}
	for (unsigned rail = 0; rail < KV_RAILS; rail++)
		for (unsigned i = 0; i < all->count; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&all->network, &all->nodes[i].endpoint.host, rail, address);
		}
}

void kv_nodes_free(struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		host_free(&all->nodes[i].endpoint.host);
	network_free(&all->network);
	kv_images_free(all);
	for (unsigned i = 0; i < KV_REGISTERS; i++)
		registers_free(&all->registers[i]);
	for (unsigned i = 0; i < KV_COUNTERS; i++)
		linear_free(&all->counters[i]);
}

const struct program kv_program = {.name = "kv", .start = start_node, .stop = stop_node};
