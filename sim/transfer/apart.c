/* One peer dies, and what goes to another takes as long as before (T5, R-T18).
 *
 * The first node keeps every slot to the second busy, first while the third is idle, then while the third is dead and
 * every slot to it is busy, too: from the moment of its death on, so that it is found out meanwhile. */
#include "sim/transfer/transfer.h"

#include <stdlib.h>

#include "base/ensure.h"

#define BEGIN_NS     (20 * NS_MS)  /* connecting, and lanes */
#define MEASURED_NS  (40 * NS_MS)  /* before */
#define DEAD_NS      (100 * NS_MS) /* more than a lease */
#define BITS_PER_S   10000000000u
#define LEAST        1000u /* requests that say something */
#define MOST_PERCENT 105u

static void configure(struct tr *tr)
{
	tr->mtu = IBV_MTU_4096;
	tr->forgets = false;
	tr->config = (struct hf_transfer_config){.max_failover_attempts = 3,
		.block_bytes = 4096,
		.rail_cooldown_ns = 50 * NS_MS,
		.rail_probe_interval_ns = 10 * NS_MS,
		.lease_ns = 60 * NS_MS};
	tr->network.unordered = false;
	tr->world->tears_ppm = 0; /* a few of them would be all that is measured */
	for (unsigned i = 0; i < tr->network.port_count; i++)
		for (unsigned k = 0; k < tr->network.port_count; k++)
			tr->network.paths[i][k].bits_per_s = BITS_PER_S;
}

static void die(struct tr *tr, unsigned way)
{
	struct tr_node *node = &tr->nodes[2];

	if (way == 0)
		process_crash(node->endpoint.process);
	else if (way == 1)
		host_stop(&node->endpoint.host);
	else if (way == 2)
		process_pause(node->endpoint.process, true);
	for (unsigned i = 0; i < TR_PATHS && way == 3; i++) {
		tr_port(node, i)->cut_tx++;
		tr_port(node, i)->cut_rx++;
	}
}

static uint64_t measure(struct tr *tr, uint64_t for_ns)
{
	struct tr_times *times = tr->times;

	times->sum_ns[1] = times->count[1] = 0;
	world_run_until(tr->world, tr->world->now_ns + for_ns);
	if (tr->world->violations == 0 && times->count[1] < LEAST)
		world_violate(tr->world, "liveness", "%u requests to a peer that is well completed in %u ms",
			(unsigned)times->count[1], (unsigned)(for_ns / NS_MS));
	return times->count[1] == 0 ? 0 : times->sum_ns[1] / times->count[1];
}

static void run(struct world *world, struct outcome *outcome)
{
	struct tr_times times = {.asks = {false, true, false}};
	struct tr *tr = calloc(1, sizeof(*tr));
	uint64_t before_ns, after_ns;

	ensure(tr != NULL);
	tr_set_up(tr, world, outcome);
	configure(tr);
	tr->times = &times;
	for (unsigned i = 0; i < TR_NODES; i++)
		process_start(tr->nodes[i].endpoint.process);
	world_run_until(world, BEGIN_NS);
	before_ns = measure(tr, MEASURED_NS);
	times.asks[2] = true;
	world_run_until(world, world->now_ns + NS_MS / 10);
	die(tr, (unsigned)(world->seed % 4));
	after_ns = measure(tr, DEAD_NS);
	world_trace(world, "  a request takes %.3f us before and %.3f us beside a dead peer", (double)before_ns / 1e3,
		(double)after_ns / 1e3);
	if (world->violations == 0 && after_ns * 100 > before_ns * MOST_PERCENT)
		world_violate(world, "apart", "requests take %.3f us before another peer died, and %.3f us after",
			(double)before_ns / 1e3, (double)after_ns / 1e3);
	tr_tear_down(tr);
}

const struct scenario scenario_transfer_apart = {
	.name = "transfer-apart",
	.what = "bulk transfers to one peer while another one is dead: they take as long as before",
	.only_when_named = true,
	.run = run,
};
