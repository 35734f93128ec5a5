/* What each kind of fault does at its beginning and at its end. */
#include "sim/faults.h"

#include "base/ensure.h"
#include "sim/device.h"

#define LEAD_NS_MAX       (500 * NS_US)
#define EXCHANGE_NS_MAX   (500 * NS_US) /* of the failover that a holdup is to hit */
#define FLAP_NS_MAX       (3 * NS_MS)
#define SLOW_BITS_MIN     10000000u /* per second */
#define SLOW_BITS_MAX     1000000000u
#define CRASH_WAITS_MAX   4000u
#define CRASH_WAIT_NS_MAX (6 * NS_US)

/* ---- one direction or both ---- */

static void cut(struct fault *fault, int by)
{
	if (fault->kind != FAULT_CUT_RX)
		fault->port->cut_tx += (unsigned)by;
	if (fault->kind != FAULT_CUT_TX)
		fault->port->cut_rx += (unsigned)by;
}

static void switch_port(struct fault *fault, bool down)
{
	struct port *port = fault->port;
	struct nic *nic = nic_at(port);

	port->downs += down ? 1u : -1u;
	port->cut_tx += down ? 1u : -1u;
	port->cut_rx += down ? 1u : -1u;
	if (nic != NULL && port->downs == (down ? 1 : 0))
		nic_set_link(nic, !down);
}

static void switch_rail(struct fault *fault, bool down)
{
	struct network *network = fault->faults->network;
	struct fault each = *fault;

	for (unsigned i = 0; i < network->port_count; i++) {
		each.port = &network->ports[i];
		if (each.port->rail == fault->port->rail)
			switch_port(&each, down);
	}
}

static void flap(struct fault *fault)
{
	struct world *world = fault->faults->world;

	switch_port(fault, fault->flaps_left % 2 == 0); /* an even number of switches: it ends up */
	if (--fault->flaps_left > 0)
		world_schedule(world, &fault->end, world->now_ns + world_range(world, 1, FLAP_NS_MAX));
}

static void partition(struct fault *fault, int by)
{
	struct network *network = fault->faults->network;

	for (unsigned i = 0; i < network->port_count; i++)
		for (unsigned j = 0; j < network->port_count; j++)
			if ((network->ports[i].host == fault->port->host) !=
				(network->ports[j].host == fault->port->host))
				network->paths[i][j].cuts += (unsigned)by;
}

/* ---- conditions of the path between two ports ---- */

static void condition(struct fault *fault, bool on)
{
	struct network *network = fault->faults->network;
	struct conditions *path = network_path(network, fault->port, fault->other);
	uint32_t ppm = on ? (uint32_t)fault->amount : 0;

	if (fault->kind == FAULT_LOSS)
		path->loss_ppm = ppm;
	if (fault->kind == FAULT_DUPLICATE)
		path->duplicate_ppm = ppm;
	if (fault->kind == FAULT_REORDER)
		path->reorder_ppm = ppm;
	if (fault->kind == FAULT_LATE)
		path->late_ppm = ppm;
	if (fault->kind == FAULT_DELAY)
		path->jitter_ns = on ? fault->amount : 300;
	if (fault->kind == FAULT_ACKS_LOST)
		path->acks_lost_ppm = ppm;
	if (fault->kind == FAULT_RESPONSES_LOST)
		path->responses_lost_ppm = ppm;
	if (fault->kind == FAULT_SLOW)
		path->bits_per_s = on ? fault->amount : 0;
	if (fault->kind == FAULT_CONTROL_HELD && on)
		path->held_until_ns = fault->faults->world->now_ns + fault->duration_ns;
	if (fault->kind == FAULT_CLOG && on)
		path->clogged_until_ns = fault->faults->world->now_ns + fault->duration_ns;
}

static bool begin_fence_fault(struct fault *fault)
{
	struct nic *nic = nic_at(fault->port);
	uint64_t until_ns = fault->faults->world->now_ns + fault->duration_ns;

	if (nic == NULL)
		return false;
	if (fault->kind == FAULT_FENCE_SLOW)
		nic->fence_slow_until_ns = until_ns;
	else if (fault->kind == FAULT_FENCE_FAILS)
		nic->fence_fails_until_ns = until_ns;
	else if (fault->kind == FAULT_DRAIN_HANGS)
		nic->drain_hangs_until_ns = until_ns;
	else
		nic->drain_fails_until_ns = until_ns;
	/* A fence matters when the path fails while packets are on their way: they wait, and arrive unfenced. */
	network_path(fault->faults->network, fault->other, fault->port)->clogged_until_ns =
		until_ns - fault->duration_ns / 2;
	return true;
}

static bool begin_nic_crash(struct fault *fault)
{
	struct nic *nic = nic_at(fault->port);

	if (nic == NULL || nic->dead)
		return false;
	nic_crash(nic, fault->amount % 2 == 0);
	return true;
}

/* Its device has to be opened again, and what it served with it: the operator restarts the process. */
static void replace_nic(const struct port *port)
{
	struct nic *nic = nic_at(port);
	struct process *process = nic == NULL ? NULL : nic->process;

	if (process == NULL || !nic->dead)
		return;
	process_crash(process);
	process_start(process);
}

/* ---- dispatch ---- */

/* False: the victim is not there, nothing was injected. */
static bool begin(struct fault *fault)
{
	switch (fault->kind) {
	case FAULT_CUT:
	case FAULT_CUT_TX:
	case FAULT_CUT_RX:
		cut(fault, 1);
		return true;
	case FAULT_PORT_DOWN:
		switch_port(fault, true);
		return true;
	case FAULT_RAIL_DOWN:
		switch_rail(fault, true);
		return true;
	case FAULT_FLAP:
		flap(fault);
		return true;
	case FAULT_PARTITION:
		partition(fault, 1);
		return true;
	case FAULT_DATA_LOST:
		fault->port->data_lost++;
		return true;
	case FAULT_LOSS:
	case FAULT_DELAY:
	case FAULT_DUPLICATE:
	case FAULT_REORDER:
	case FAULT_LATE:
	case FAULT_CLOG:
	case FAULT_ACKS_LOST:
	case FAULT_RESPONSES_LOST:
	case FAULT_CONTROL_HELD:
	case FAULT_SLOW:
		condition(fault, true);
		return true;
	case FAULT_STREAM_RESET:
		return network_reset_streams(fault->faults->network, fault->port, fault->other) > 0;
	case FAULT_FENCE_SLOW:
	case FAULT_FENCE_FAILS:
	case FAULT_DRAIN_HANGS:
	case FAULT_DRAIN_FAILS:
		return begin_fence_fault(fault);
	case FAULT_NIC_CRASH:
		return begin_nic_crash(fault);
	case FAULT_PAUSE:
		if (!fault->process->running || fault->process->paused)
			return false;
		process_pause(fault->process, fault->amount % 2 == 0);
		return true;
	case FAULT_SUSPEND:
		if (!fault->process->running || fault->process->host->suspended)
			return false;
		host_suspend(fault->process->host);
		return true;
	case FAULT_PROCESS_CRASH:
		if (!fault->process->running)
			return false;
		process_crash(fault->process);
		return true;
	case FAULT_HOST_STOP:
		if (fault->process->host->stopped || !fault->process->running)
			return false;
		host_stop(fault->process->host);
		return true;
	case FAULT_SYNC_FAILS:
	case FAULT_DISK_FULL:
	case FAULT_KINDS:
		break;
	}
	ensure(false);
	return false;
}

static void end(struct fault *fault)
{
	switch (fault->kind) {
	case FAULT_CUT:
	case FAULT_CUT_TX:
	case FAULT_CUT_RX:
		cut(fault, -1);
		break;
	case FAULT_PORT_DOWN:
		switch_port(fault, false);
		break;
	case FAULT_RAIL_DOWN:
		switch_rail(fault, false);
		break;
	case FAULT_PARTITION:
		partition(fault, -1);
		break;
	case FAULT_DATA_LOST:
		fault->port->data_lost--;
		break;
	case FAULT_LOSS:
	case FAULT_DELAY:
	case FAULT_DUPLICATE:
	case FAULT_REORDER:
	case FAULT_LATE:
	case FAULT_CLOG:
	case FAULT_ACKS_LOST:
	case FAULT_RESPONSES_LOST:
	case FAULT_CONTROL_HELD:
	case FAULT_SLOW:
		condition(fault, false);
		break;
	case FAULT_PAUSE:
		if (fault->process->paused)
			process_resume(fault->process);
		break;
	case FAULT_SUSPEND:
		if (fault->process->host->suspended) /* it was not switched off meanwhile */
			host_resume(fault->process->host);
		break;
	case FAULT_PROCESS_CRASH:
		if (!fault->process->running && !fault->process->host->stopped)
			process_start(fault->process);
		break;
	case FAULT_HOST_STOP:
		host_start(fault->process->host);
		break;
	case FAULT_NIC_CRASH:
		replace_nic(fault->port);
		break;
	case FAULT_FLAP:
	case FAULT_STREAM_RESET:
	case FAULT_FENCE_SLOW:
	case FAULT_FENCE_FAILS:
	case FAULT_DRAIN_HANGS:
	case FAULT_DRAIN_FAILS:
	case FAULT_SYNC_FAILS:
	case FAULT_DISK_FULL:
	case FAULT_KINDS:
		break;
	}
	network_healed(fault->faults->network);
}

static void end_event(struct world_event *event)
{
	struct fault *fault = container_of(event, struct fault, end);

	world_trace(fault->faults->world, "%s ends", fault_name(fault->kind));
	if (fault->kind == FAULT_FLAP)
		flap(fault);
	end(fault);
	if (fault->end.slot == 0 && fault->faults->changed != NULL)
		fault->faults->changed(fault->faults, fault, false);
	else if (fault->end.slot != 0 && fault->faults->flapped != NULL)
		fault->faults->flapped(fault->faults);
}

/* A NIC that dies matters most while it holds writes that it has acknowledged; or between a WRITE and its entry in the
 * log, when nobody has heard of either: its answers are lost from the first write on. It waits for such a moment, and
 * heals when it would have: before all is quiet. */
static bool may_die_now(struct fault *fault, const struct nic *nic)
{
	bool writes = !list_empty(&nic->bus.queue);

	if (fault->amount % 4 < 2)
		return writes;
	if (writes && !fault->mute) {
		fault->mute = true;
		fault->port->cut_tx++;
	}
	return bus_is_before_entry(&nic->bus);
}

static bool waits_for_writes(struct fault *fault)
{
	struct world *world = fault->faults->world;
	const struct nic *nic = nic_at(fault->port);
	uint64_t wait_ns = world_range(world, 1, CRASH_WAIT_NS_MAX);

	if (nic == NULL || may_die_now(fault, nic) || fault->waited++ == CRASH_WAITS_MAX ||
		wait_ns > fault->duration_ns)
		return false;
	fault->duration_ns -= wait_ns;
	world_schedule(world, &fault->begin, world->now_ns + wait_ns);
	return true;
}

static void begin_event(struct world_event *event)
{
	struct fault *fault = container_of(event, struct fault, begin);
	struct world *world = fault->faults->world;

	if (fault->kind == FAULT_NIC_CRASH && waits_for_writes(fault))
		return;
	fault->port->cut_tx -= fault->mute; /* of a dead NIC nothing comes any more */
	if ((fault->faults->may_begin != NULL && !fault->faults->may_begin(fault->faults, fault)) || !begin(fault))
		return;
	world_count_fault(world, fault->kind);
	world_trace(world, "  port %u, other %u, process %s, for %.3f ms", fault->port->index, fault->other->index,
		fault->process->name, (double)fault->duration_ns / 1e6);
	if (fault->kind != FAULT_FLAP)
		world_schedule(world, &fault->end, world->now_ns + fault->duration_ns);
	if (fault->faults->changed != NULL)
		fault->faults->changed(fault->faults, fault, true);
}

/* ---- planning ---- */

/* Kinds behind FAULT_HOST_STOP are of scenarios that name them: the seeds of the others stay what they were. Those of
 * disks are no plan's: scenarios make them themselves. */
static enum fault_kind pick_kind(struct world *world, uint32_t allowed)
{
	unsigned last = FAULT_SUSPEND;

	while (last > FAULT_HOST_STOP && (allowed & FAULT_BIT(last)) == 0)
		last--;
	for (;;) {
		enum fault_kind kind = (enum fault_kind)world_range(world, 0, last);

		if (allowed & FAULT_BIT(kind))
			return kind;
	}
}

/* Mostly short, sometimes long: uniform in the exponent. */
static uint64_t pick_duration(struct world *world, uint64_t most_ns)
{
	uint64_t ns = world_range(world, 20 * NS_US, 400 * NS_MS) >> world_range(world, 0, 8);

	return ns < most_ns ? ns : most_ns;
}

static uint64_t pick_amount(struct world *world, enum fault_kind kind)
{
	if (kind == FAULT_DELAY)
		return world_range(world, 5 * NS_US, 2 * NS_MS);
	if (kind == FAULT_SLOW)
		return world_range(world, SLOW_BITS_MIN, SLOW_BITS_MAX);
	if (kind == FAULT_LATE)
		return world_range(world, 2000, 100000);
	if (kind == FAULT_ACKS_LOST || kind == FAULT_RESPONSES_LOST) /* mostly all of them */
		return world_chance(world, 700000) ? 1000000 : world_range(world, 100000, 900000);
	return world_range(world, 5000, 300000);
}

static struct fault *add(struct faults *faults, uint64_t at_ns, enum fault_kind kind)
{
	struct fault *fault = &faults->plan[faults->count++];
	struct network *network = faults->network;
	struct world *world = faults->world;

	ensure(faults->count <= FAULTS_MAX);
	fault->faults = faults;
	fault->kind = kind;
	fault->port = &network->ports[world_range(world, 0, network->port_count - 1)];
	do
		fault->other = &network->ports[world_range(world, 0, network->port_count - 1)];
	while (fault->other->host == fault->port->host || fault->other->rail != fault->port->rail);
	fault->process = faults->processes[world_range(world, 0, faults->process_count - 1)];
	fault->duration_ns = pick_duration(world, faults->quiet_ns - at_ns);
	if (kind == FAULT_DATA_LOST) /* as likely long as short: nobody is told */
		fault->duration_ns = world_range(world, 0, faults->quiet_ns - at_ns);
	fault->amount = pick_amount(world, kind);
	fault->flaps_left = 2 * (unsigned)world_range(world, 0, 4) + 2;
	fault->begin.what = "fault";
	fault->begin.fire = begin_event;
	fault->begin.outermost = fault->end.outermost = true;
	fault->end.what = "heal";
	fault->end.fire = end_event;
	world_schedule(world, &fault->begin, at_ns);
	return fault;
}

void faults_plan(struct faults *faults, struct network *network, struct process *const *processes, unsigned n,
	uint32_t allowed, unsigned count, uint64_t quiet_ns)
{
	struct world *world = network->world;

	*faults = (struct faults){
		.world = world, .network = network, .processes = processes, .process_count = n, .quiet_ns = quiet_ns};
	while (faults->count < count) {
		uint64_t at_ns = world_range(world, world->now_ns, quiet_ns - quiet_ns / 10);

		(void)add(faults, at_ns, pick_kind(world, allowed));
	}
}

void faults_plan_stall(struct faults *faults, enum fault_kind kind, uint64_t least_ns)
{
	struct world *world = faults->world;
	uint64_t at_ns = world_range(world, world->now_ns, faults->quiet_ns - least_ns);

	ensure(faults->quiet_ns - world->now_ns > least_ns);
	add(faults, at_ns, kind)->duration_ns = world_range(world, least_ns, faults->quiet_ns - at_ns);
}

void faults_plan_silence(struct faults *faults, uint64_t least_ns)
{
	struct world *world = faults->world;
	const struct process *process = faults->processes[world_range(world, 0, faults->process_count - 1)];
	uint64_t at_ns = world_range(world, world->now_ns, faults->quiet_ns - least_ns);
	uint64_t duration_ns = world_range(world, least_ns, faults->quiet_ns - at_ns);

	for (unsigned i = 0; i < faults->network->port_count; i++) {
		struct port *port = &faults->network->ports[i];
		struct fault *fault = port->host == process->host ? add(faults, at_ns, FAULT_DATA_LOST) : NULL;

		if (fault == NULL)
			continue;
		fault->port = port;
		fault->duration_ns = duration_ns;
	}
}

void faults_plan_holdup(struct faults *faults, uint64_t least_ns)
{
	static const enum fault_kind kinds[] = {FAULT_CLOG, FAULT_CONTROL_HELD};
	struct world *world = faults->world;
	const struct process *process = faults->processes[world_range(world, 0, faults->process_count - 1)];
	uint64_t at_ns = world_range(world, world->now_ns, faults->quiet_ns - least_ns);
	uint64_t duration_ns = world_range(world, least_ns, faults->quiet_ns - at_ns);
	struct network *network = faults->network;
	struct fault *first = add(faults, at_ns, FAULT_PORT_DOWN);

	first->duration_ns = duration_ns;
	at_ns += world_range(world, 0, EXCHANGE_NS_MAX) >> world_range(world, 0, 6);
	for (unsigned i = 0; i < network->port_count * network->port_count * 2; i++) {
		struct port *port = &network->ports[i / 2 / network->port_count];
		struct port *other = &network->ports[i / 2 % network->port_count];
		bool held = port->host == process->host && other->host != port->host && other->rail == port->rail;
		struct fault *fault = held ? add(faults, at_ns, kinds[i % 2]) : NULL;

		if (fault == NULL)
			continue;
		fault->port = port;
		fault->other = other;
		fault->duration_ns = duration_ns;
		if (port->rail == 0)
			first->port = port;
	}
}

static bool is_silence(const struct fault *fault, const struct host *host, uint64_t least_ns)
{
	return (fault->kind == FAULT_DATA_LOST || fault->kind == FAULT_CLOG) && fault->port->host == host &&
	       fault->duration_ns >= least_ns && fault->begin.slot == 0;
}

unsigned faults_silences(const struct faults *faults, const struct host *host, uint64_t least_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < faults->count; i++)
		if (is_silence(&faults->plan[i], host, least_ns))
			n += faults->plan[i].end.slot == 0 ? 2 : 1;
	return n;
}

bool faults_is_silent(const struct faults *faults, const struct host *host, uint64_t least_ns)
{
	for (unsigned i = 0; i < faults->count; i++)
		if (is_silence(&faults->plan[i], host, least_ns) && faults->plan[i].end.slot != 0)
			return true;
	return false;
}

unsigned faults_stalls(const struct faults *faults, const struct process *process, uint64_t least_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < faults->count; i++) {
		const struct fault *fault = &faults->plan[i];

		n += (fault->kind == FAULT_PAUSE || fault->kind == FAULT_SUSPEND) && fault->process == process &&
		     fault->duration_ns >= least_ns && fault->begin.slot == 0;
	}
	return n;
}

uint64_t faults_wait_ns(const struct faults *faults, uint32_t posted, uint32_t total)
{
	struct world *world = faults->world;
	uint64_t near_ns = world->now_ns + LEAD_NS_MAX, next_ns = UINT64_MAX;
	unsigned begun = 0;

	for (unsigned i = 0; i < faults->count; i++) {
		uint64_t begin_ns = faults->plan[i].begin.at_ns;

		begun += begin_ns <= near_ns;
		if (begin_ns > near_ns && begin_ns < next_ns)
			next_ns = begin_ns;
	}
	if (posted < total * (1 + begun) / (1 + faults->count) || world->now_ns >= faults->quiet_ns)
		return 0;
	if (next_ns == UINT64_MAX)
		return faults->quiet_ns - world->now_ns;
	return next_ns - world->now_ns - world_range(world, 0, LEAD_NS_MAX);
}
