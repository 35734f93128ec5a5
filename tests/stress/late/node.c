/* A node with an engine and registered memory, for either process; the target's program. */
#include "late.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CONTROL_PORT 18516u
#define MS           1000000ull

const char *late_fabric(const struct late *late)
{
	static char name[HF_NAME_BYTES];

	snprintf(name, sizeof(name), "late-%u", late->group);
	return name;
}

static struct hf_addr address(const struct late *late, bool target, unsigned number)
{
	char text[HF_ADDR_TEXT];
	struct hf_addr addr;

	snprintf(text, sizeof(text), "127.%u.%u.%u", 64 + (late->group >> 8) % 64, late->group & 0xff,
		1 + number + (target ? LATE_RAILS + 1 : 0));
	if (hf_addr_parse(text, &addr) != 0)
		abort();
	return addr;
}

/* Over a network behind the rails. */
struct hf_addr late_control(const struct late *late, bool target)
{
	struct hf_addr addr = address(late, target, LATE_RAILS);

	hf_addr_set_port(&addr, CONTROL_PORT);
	return addr;
}

static void fail(const char *what, const struct hf_error *error)
{
	fprintf(stderr, "late: %s: %s\n", what, error->text);
	_exit(2);
}

static void configure(const struct late *late, bool target, struct hf_node_config *config)
{
	*config = (struct hf_node_config){
		.policy = HF_POLICY_VARUNA, .heartbeat_ns = 20 * MS, .budget_ns = 3000 * MS, .management_count = 1};
	snprintf(config->name, sizeof(config->name), "%s", target ? "t" : "r");
	snprintf(config->fabric, sizeof(config->fabric), "%s", late_fabric(late));
	config->management[0] = late_control(late, target);
	config->rail_count = strcmp(late->kind, "tcp") == 0 ? 0 : LATE_RAILS;
	for (unsigned i = 0; i < config->rail_count; i++) {
		snprintf(config->rails[i].name, HF_NAME_BYTES, "r%u", i);
		snprintf(config->rails[i].kind, HF_NAME_BYTES, "%s", late->kind);
		config->rails[i].address = config->rails[i].control = address(late, target, i);
		hf_addr_set_port(&config->rails[i].control, CONTROL_PORT);
	}
}

void late_node_open(struct late_node *node, struct late *late, bool target, const struct hf_node_events *events,
	const struct hf_transfer_events *transfer_events, void *context)
{
	struct hf_transfer_config transfer = {.listen = address(late, target, LATE_RAILS),
		.rail_cooldown_ns = 200 * MS,
		.rail_probe_interval_ns = 50 * MS,
		.max_timeout_ns = 1000 * MS,
		.cancel_grace_ns = 5 * MS,
		.lease_ns = LATE_LEASE_NS};
	struct hf_node_config config;
	struct hf_error error = {0};
	void *memory;

	node->late = late;
	configure(late, target, &config);
	if (hf_loop_create(hf_env_host(), &node->loop) != 0 ||
		hf_node_open(node->loop, &config, events, context, &node->node, &error) != 0)
		fail("node", &error);
	if (hf_transfer_open(node->node, &transfer, transfer_events, context, &node->engine, &error) != 0)
		fail("engine", &error);
	if (hf_mem_alloc(hf_env_host(), LATE_BYTES, &memory, &error) != 0 ||
		hf_transfer_register(node->engine, memory, LATE_BYTES,
			HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE, &error) != 0)
		fail("memory", &error);
	node->memory = memory;
}

int late_target(struct late *late)
{
	static struct late_node node;

	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* the requester looks at this memory */
	late_node_open(&node, late, true, NULL, NULL, NULL);
	atomic_store(&late->target_pid, (int)getpid());
	atomic_store(&late->target_memory, (uintptr_t)node.memory);
	while (atomic_load(&late->ending) < 2)
		hf_loop_turn(node.loop, MS);
	return 0;
}
