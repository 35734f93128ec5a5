/* Rails of different speed, and rails that flap: the first node keeps every slot to the second busy.
 *
 *   transfer-slow  one rail has a tenth of the other's speed: it carries less than a fifth of the bytes, and both no
 *                  less than the fast one alone; 2 s after it has become as fast, it carries as much (R-T17)
 *   transfer-flap  a rail's port goes down and up, or its packets are lost now and then, ten times a second for two
 *                  cooldowns: what checkers/trips.h says, and one line a second for each rail at most (T6, R-T13) */
#include "sim/transfer/transfer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "sim/device.h"

#define BEGIN_NS      (20 * NS_MS)
#define FAST_BITS     1000000000u
#define SLOW_BITS     100000000u
#define MEASURED_NS   (100 * NS_MS)
#define EVEN_AFTER_NS (2 * NS_S)
#define EVEN_STEP_NS  (20 * NS_MS)
#define EVEN_PERCENT  40u /* of the bytes: as much, but for what the other carries meanwhile */
#define COOLDOWN_NS   (10 * NS_S)
#define FLAPPING_NS   (2 * COOLDOWN_NS)
#define FLAP_NS       (100 * NS_MS)
#define FLAP_REST_NS  (20 * NS_MS)

static struct tr *open_world(struct world *world, struct outcome *outcome, struct tr_times *times, bool slow)
{
	struct tr *tr = calloc(1, sizeof(*tr));

	ensure(tr != NULL);
	tr_set_up(tr, world, outcome);
	tr->mtu = IBV_MTU_4096;
	tr->forgets = false;
	tr->slow = slow;
	tr->network.unordered = false;
	world->tears_ppm = 0;
	tr->config = (struct hf_transfer_config){.max_failover_attempts = 3,
		.block_bytes = 4096,
		.rail_error_threshold = 3,
		.rail_error_window_ns = 10 * NS_S,
		.rail_cooldown_ns = COOLDOWN_NS};
	tr->line_gap_ns = NS_S;
	log_set_limit(NS_S);
	tr->times = times;
	times->asks[1] = true;
	for (unsigned i = 0; i < TR_NODES; i++)
		process_start(tr->nodes[i].endpoint.process);
	return tr;
}

static void close_world(struct tr *tr)
{
	log_set_limit(0); /* as it is in other worlds */
	tr_tear_down(tr);
}

/* ---- slow ---- */

static void set_speed(struct tr *tr, unsigned rail, uint64_t bits_per_s)
{
	for (unsigned i = 0; i < 2; i++)
		network_path(&tr->network, tr_port(&tr->nodes[i], rail), tr_port(&tr->nodes[1 - i], rail))->bits_per_s =
			bits_per_s;
}

static void run_for(struct tr *tr, uint64_t ns, uint64_t bytes_out[TR_RAILS])
{
	struct hf_transfer_counters before, after;

	hf_transfer_counters(tr->nodes[0].engine, &before);
	world_run_until(tr->world, tr->world->now_ns + ns);
	hf_transfer_counters(tr->nodes[0].engine, &after);
	for (unsigned i = 0; i < TR_RAILS; i++)
		bytes_out[i] = after.rail_bytes[i] - before.rail_bytes[i];
}

/* What the fast rail carries alone. */
static uint64_t measure_alone(struct tr *tr)
{
	uint64_t bytes[TR_RAILS];
	struct port *slow = tr_port(&tr->nodes[0], 1);

	nic_set_link(nic_at(slow), false);
	world_run_until(tr->world, tr->world->now_ns + BEGIN_NS);
	run_for(tr, MEASURED_NS, bytes);
	nic_set_link(nic_at(slow), true);
	return bytes[0];
}

static bool is_even(const uint64_t bytes[TR_RAILS])
{
	return bytes[1] * 100 >= (bytes[0] + bytes[1]) * EVEN_PERCENT;
}

static void run_slow(struct world *world, struct outcome *outcome)
{
	struct tr_times times = {0};
	struct tr *tr = open_world(world, outcome, &times, true);
	uint64_t bytes[TR_RAILS], alone, until_ns;

	for (unsigned i = 0; i < TR_RAILS; i++)
		set_speed(tr, i, i == 0 ? FAST_BITS : SLOW_BITS);
	world_run_until(world, BEGIN_NS);
	alone = measure_alone(tr);
	world_run_until(world, world->now_ns + BEGIN_NS);
	run_for(tr, MEASURED_NS, bytes);
	world_trace(world, "  alone %" PRIu64 ", beside %" PRIu64 " + %" PRIu64, alone, bytes[0], bytes[1]);
	if (world->violations == 0 && (bytes[1] == 0 || bytes[1] * 5 >= bytes[0] + bytes[1]))
		world_violate(world, "slow", "a rail at a tenth of the speed carries %" PRIu64 " of %" PRIu64 " bytes",
			bytes[1], bytes[0] + bytes[1]);
	if (world->violations == 0 && bytes[0] + bytes[1] < alone)
		world_violate(world, "slow", "%" PRIu64 " bytes beside a slow rail, and %" PRIu64 " without it",
			bytes[0] + bytes[1], alone);
	set_speed(tr, 1, FAST_BITS);
	until_ns = world->now_ns + EVEN_AFTER_NS;
	do
		run_for(tr, EVEN_STEP_NS, bytes);
	while (world->violations == 0 && !is_even(bytes) && world->now_ns < until_ns);
	world_trace(world, "  even %.3f ms after", (double)(world->now_ns + EVEN_AFTER_NS - until_ns) / 1e6);
	if (world->violations == 0 && !is_even(bytes))
		world_violate(world, "slow", "a rail that is fast again carries %" PRIu64 " of %" PRIu64 " bytes",
			bytes[1], bytes[0] + bytes[1]);
	close_world(tr);
}

const struct scenario scenario_transfer_slow = {
	.name = "transfer-slow",
	.what = "bulk transfers over a rail of a tenth of the other's speed",
	.only_when_named = true,
	.run = run_slow,
};

/* ---- flap ---- */

/* Told to both NICs, or noticed by what is lost. */
static void flap(struct tr *tr, bool told, bool up)
{
	struct port *port = tr_port(&tr->nodes[0], 1);

	port->cut_tx += up ? -1u : 1u;
	port->cut_rx += up ? -1u : 1u;
	if (told)
		nic_set_link(nic_at(port), up);
	if (up)
		network_healed(&tr->network);
	for (unsigned other = 1; other < TR_NODES; other++)
		tr_path_changed(tr, 0, other, 1);
}

static void run_flap(struct world *world, struct outcome *outcome)
{
	struct tr_times times = {0};
	struct tr *tr = open_world(world, outcome, &times, false);
	bool told = world->seed % 2 == 0;

	times.rest_ns = FLAP_REST_NS;
	world_run_until(world, BEGIN_NS);
	while (world->violations == 0 && world->now_ns < FLAPPING_NS) {
		uint64_t down_ns = world_range(world, FLAP_NS / 10, FLAP_NS / 10 * 9);
		uint64_t count = times.count[1];

		flap(tr, told, false);
		world_run_until(world, world->now_ns + down_ns);
		flap(tr, told, true);
		world_run_until(world, world->now_ns + FLAP_NS - down_ns);
		if (world->violations == 0 && times.count[1] == count)
			world_violate(world, "liveness", "nothing is transferred while one of two rails flaps");
		if (times.failed[1] > 0)
			world_violate(world, "vacuous", "a request fails while one of two rails flaps");
	}
	close_world(tr);
}

const struct scenario scenario_transfer_flap = {
	.name = "transfer-flap",
	.what = "bulk transfers over a rail that flaps ten times a second",
	.only_when_named = true,
	.run = run_flap,
};
