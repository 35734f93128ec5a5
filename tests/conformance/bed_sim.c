/* The bed in the simulator: the soft device on two hosts of a world of its own, in virtual time.
 *
 * The test is outside of that world: it calls the devices between two of its events and lets time pass itself. */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/device.h"
#include "sim/network.h"

#define SEED       1
#define SETTLED_NS (100 * NS_US) /* by then a NIC's posted writes are visible */

static struct {
	struct world world;
	struct network network;
	struct host hosts[2];
	struct process *processes[2];
} bed;

static int program_start(struct process *process, void *context)
{
	(void)process, (void)context;
	return 0;
}

static void program_stop(struct process *process, void *context)
{
	(void)process, (void)context;
}

static const struct program idle_program = {.name = "conformance", .start = program_start, .stop = program_stop};

static int open_world(const struct bed *of, struct hf_env **a_out, struct hf_env **b_out)
{
	static bool registered;

	if (!registered)
		device_register();
	registered = true;
	memory_reset();
	world_init(&bed.world, SEED, false);
	network_init(&bed.network, &bed.world);
	for (unsigned i = 0; i < 2; i++) {
		host_init(&bed.hosts[i], &bed.world, &bed.network, i == 0 ? "a" : "b");
		bed.processes[i] = process_create(&bed.hosts[i], i == 0 ? "a" : "b", &idle_program, NULL);
		network_add_port(&bed.network, &bed.hosts[i], 0, bed_address(of, i == 0 ? BED_A : BED_B));
		process_start(bed.processes[i]);
	}
	for (unsigned from = 0; from < 2; from++) /* packets keep their order: faults are what tests make themselves */
		network_path(&bed.network, &bed.network.ports[from], &bed.network.ports[1 - from])->jitter_ns = 0;
	*a_out = &bed.processes[0]->env;
	*b_out = &bed.processes[1]->env;
	return 0;
}

static void close_world(void)
{
	for (unsigned i = 0; i < 2; i++)
		host_free(&bed.hosts[i]);
	network_free(&bed.network);
	world_free(&bed.world);
	memory_reset();
}

static void pass(uint64_t ns)
{
	world_run_until(&bed.world, bed.world.now_ns + ns);
	if (bed.world.violations > 0) {
		fprintf(stderr, "the world says: %s\n", bed.world.violation);
		abort();
	}
}

static void settle(void)
{
	pass(SETTLED_NS);
}

const struct bed beds[] = {
	{.name = "sim",
		.kind = "soft",
		.has_addresses = true,
		.big_bytes = 4u << 20,
		.world_open = open_world,
		.world_close = close_world,
		.pass = pass,
		.settle = settle},
};
const unsigned bed_count = 1;
