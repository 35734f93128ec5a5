/* fixture.h - a world of two hosts with a port each, for tests of the simulator's own parts. */
#ifndef HOLDFAST_SIM_TESTS_FIXTURE_H
#define HOLDFAST_SIM_TESTS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim/host.h"
#include "sim/network.h"

struct fixture {
	struct world world;
	struct network network;
	struct host hosts[2];
	struct process *processes[2];
	struct port *ports[2];
};

static int fixture_start(struct process *process, void *context)
{
	(void)process, (void)context;
	return 0;
}

static void fixture_stop(struct process *process, void *context)
{
	(void)process, (void)context;
}

static const struct program idle_program = {.name = "idle", .start = fixture_start, .stop = fixture_stop};

static inline void fixture_open(struct fixture *f, uint64_t seed, const struct program *program, void *context)
{
	static const char *const addresses[2] = {"10.0.0.1", "10.0.0.2"};

	memory_reset();
	world_init(&f->world, seed, false);
	network_init(&f->network, &f->world);
	for (unsigned i = 0; i < 2; i++) {
		host_init(&f->hosts[i], &f->world, &f->network, i == 0 ? "a" : "b");
		f->ports[i] = network_add_port(&f->network, &f->hosts[i], 0, addresses[i]);
		f->processes[i] = process_create(
			&f->hosts[i], i == 0 ? "a" : "b", program == NULL ? &idle_program : program, context);
		process_start(f->processes[i]);
	}
}

static inline void fixture_close(struct fixture *f)
{
	host_free(&f->hosts[0]);
	host_free(&f->hosts[1]);
	network_free(&f->network);
	world_free(&f->world);
}

static inline struct hf_env *fixture_env(struct fixture *f, unsigned i)
{
	return &f->processes[i]->env;
}

static inline void fixture_run(struct fixture *f, uint64_t ns)
{
	world_run_until(&f->world, f->world.now_ns + ns);
}

static inline struct hf_addr fixture_addr(const char *text)
{
	struct hf_addr addr;

	assert_int_equal(hf_addr_parse(text, &addr), 0);
	return addr;
}

#endif
