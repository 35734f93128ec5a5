/* A node of the stress test: its configuration, and the objects that server and clients have alike. */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_PORT 18515u
#define MOMENT_NS    5000000u

#define SLOW_HEARTBEAT_NS 50000000ull
#define SLOW_MISSES       12
#define SLOW_TIMEOUT      12          /* 17 ms */
#define SLOW_FAILBACK_NS  1000000000u /* there is more work between two cuts when it does not return at once */

#define REAL_PROCESSES   2u /* of clients */
#define REAL_PER_PROCESS 2u

static unsigned group; /* the parent's pid: tests run side by side */

const char *stress_fabric(void)
{
	static char name[HF_NAME_BYTES];

	if (group == 0) { /* the first call is the parent's, before it has children */
		group = (unsigned)getpid();
		snprintf(name, sizeof(name), "stress-%u", group);
	}
	return name;
}

/* A turn of a loop that has nothing to do. */
void stress_pause(uint64_t ns)
{
	static struct hf_loop *loop;
	uint64_t until_ns = hf_env_now_ns(hf_env_host()) + ns;

	if (loop == NULL && hf_loop_create(hf_env_host(), &loop) != 0)
		abort();
	for (uint64_t now_ns; (now_ns = hf_env_now_ns(hf_env_host())) < until_ns;)
		hf_loop_turn(loop, until_ns - now_ns);
}

/* Whoever has the lower name picks the rails: sometimes that is the server, sometimes the client. */
const char *stress_node_name(unsigned process)
{
	static const char *const names[PROCESSES] = {"m", "a1", "z2", "a3", "z4"};

	return names[process];
}

/* The NICs of scripts/rxe-guest.sh: the clients share those of one host. */
bool stress_is_real(const struct stress *stress)
{
	return strcmp(stress->kind, "verbs") == 0;
}

void stress_size(struct stress *stress)
{
	stress->processes = stress_is_real(stress) ? 1 + REAL_PROCESSES : PROCESSES;
	stress->per_process = stress_is_real(stress) ? REAL_PER_PROCESS : PER_PROCESS;
	stress->client_count = (stress->processes - 1) * stress->per_process;
}

/* Where nobody does atomics they need no rail of their own either. */
int stress_access(const struct stress *stress)
{
	return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	       (stress->atomics == ATOMICS_NONE ? 0 : IBV_ACCESS_REMOTE_ATOMIC);
}

static struct hf_addr address(const struct stress *stress, unsigned process, unsigned rail)
{
	char text[HF_ADDR_TEXT];
	struct hf_addr addr;

	if (stress_is_real(stress))
		snprintf(text, sizeof(text), "10.10.0.%u", (process == 0 ? 3 : 1) + rail);
	else
		snprintf(text, sizeof(text), "127.%u.%u.%u", 128 + (group >> 8) % 64, group & 0xff,
			1 + process * RAILS + rail);
	if (hf_addr_parse(text, &addr) != 0)
		abort();
	return addr;
}

void stress_addresses(const struct stress *stress, unsigned process, struct hf_addr control[RAILS])
{
	for (unsigned i = 0; i < RAILS; i++) {
		control[i] = address(stress, process, i);
		hf_addr_set_port(&control[i], process == 0 ? CONTROL_PORT : 0);
	}
}

static void fail(const struct stress_node *node, const char *what, const char *why)
{
	fprintf(stderr, "stress: node %s: %s: %s\n", stress_node_name(node->process), what, why);
	_exit(2);
}

void stress_node_open(struct stress_node *node, const struct hf_node_events *events, void *context, size_t bytes)
{
	struct hf_node_config config = {.rail_count = RAILS,
		.policy = node->stress->policy,
		.heartbeat_ns = 20000000,
		.failback_ns = 40000000,
		.budget_ns = 20000000000};
	struct hf_addr control[RAILS];
	struct hf_error error = {0};

	if (stress_is_real(node->stress)) { /* an emulated guest of two cores lets nobody run for long moments */
		config.heartbeat_ns = SLOW_HEARTBEAT_NS;
		config.heartbeat_misses = SLOW_MISSES;
		config.failback_ns = SLOW_FAILBACK_NS;
		config.timeout = SLOW_TIMEOUT;
		config.retry_cnt = 4;
	}
	stress_addresses(node->stress, node->process, control);
	snprintf(config.name, sizeof(config.name), "%s", stress_node_name(node->process));
	snprintf(config.fabric, sizeof(config.fabric), "%s", stress_fabric());
	for (unsigned i = 0; i < RAILS; i++) {
		snprintf(config.rails[i].name, HF_NAME_BYTES, "r%u", i);
		snprintf(config.rails[i].kind, HF_NAME_BYTES, "%s", node->stress->kind);
		config.rails[i].address = address(node->stress, node->process, i);
		config.rails[i].control = control[i];
	}
	if (hf_loop_create(hf_env_host(), &node->loop) != 0 ||
		hf_node_open(node->loop, &config, events, context, &node->node, &error) != 0)
		fail(node, "open", error.text);
	if (hf_vpd_alloc(node->node, &node->pd) != 0 || hf_vcq_create(node->node, 4096, NULL, &node->cq) != 0 ||
		hf_mem_alloc(hf_env_host(), bytes, &node->memory, &error) != 0 ||
		hf_vmr_reg(node->pd, node->memory, bytes, IBV_ACCESS_LOCAL_WRITE | stress_access(node->stress),
			&node->mr, &error) != 0)
		fail(node, "memory", error.text);
}

void stress_turn(struct stress_node *node, uint64_t max_sleep_ns)
{
	uint64_t now_ns;

	hf_loop_turn(node->loop, max_sleep_ns);
	now_ns = hf_env_now_ns(hf_env_host());
	if (node->turned_ns != 0)
		atomic_fetch_add(&node->stress->lived_ns[node->process],
			now_ns - node->turned_ns < MOMENT_NS ? now_ns - node->turned_ns : MOMENT_NS);
	node->turned_ns = now_ns;
}

void stress_node_close(struct stress_node *node)
{
	hf_vmr_dereg(node->mr);
	hf_vcq_destroy(node->cq);
	hf_vpd_free(node->pd);
	hf_node_close(node->node);
	hf_mem_free(hf_env_host(), node->memory);
	hf_loop_destroy(node->loop);
}
