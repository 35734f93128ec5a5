/* Hosts, processes, and the scheduling of actors. */
#include "sim/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/device.h"
#include "sim/disk.h"
#include "sim/network.h"

#define STEP_NS_MIN    40u /* between two turns of a busy loop */
#define STEP_NS_MAX    400u
#define WAKE_NS_MIN    200u /* from readiness to the turn that sees it */
#define WAKE_NS_MAX    3000u
#define PREEMPT_PPM    500u /* of turns, which are delayed by up to PREEMPT_NS_MAX */
#define PREEMPT_NS_MAX 200000u
#define DEVICE_TIMES   20u /* a step at a device is torn as often as so many others, of which there are many more */
#define TEAR_SHIFT_MAX 8u  /* uniform in the exponent */
#define LATE_SPREAD    32u
#define SLEEP_FOREVER  UINT64_MAX

struct actor_thread {
	struct hf_thread base; /* first */
	struct process *process;
	struct list node;
	struct hf_loop *loop;
	void (*start)(struct hf_loop *loop, void *context);
	void *context;
	struct world_event begin;
};

void host_init(struct host *host, struct world *world, struct network *network, const char *name)
{
	*host = (struct host){.world = world, .network = network};
	snprintf(host->name, sizeof(host->name), "%s", name);
	host->skew_ns = world_range(world, 0, 5 * NS_S);
	host->drift_ppm = (int32_t)world_range(world, 0, 2 * HOST_DRIFT_PPM) - HOST_DRIFT_PPM;
	list_init(&host->processes);
	host->disk = disk_create(host);
}

void host_free(struct host *host)
{
	list_for_each_safe (at, &host->processes)
		process_free(container_of(at, struct process, node));
	disk_free(host->disk);
}

struct process *process_create(struct host *host, const char *name, const struct program *program, void *context)
{
	struct process *process = calloc(1, sizeof(*process));

	ensure(process != NULL);
	process->env.ops = &sim_env_ops;
	process->host = host;
	process->program = program;
	process->context = context;
	snprintf(process->name, sizeof(process->name), "%s", name);
	list_init(&process->actors);
	list_init(&process->ios);
	list_init(&process->threads);
	list_init(&process->memory);
	list_init(&process->nics);
	list_push_back(&host->processes, &process->node);
	return process;
}

void process_start(struct process *process)
{
	ensure(!process->running && !process->host->stopped);
	process->incarnation++;
	process->running = true;
	process->muted = false;
	rng_seed(&process->entropy, rng_next(&process_world(process)->rng));
	world_trace(process_world(process), "%s starts", process->name);
	if (process->program->start(process, process->context) != 0)
		process_crash(process);
}

uint64_t process_paused_ns(const struct process *process)
{
	uint64_t now_ns = process_world(process)->now_ns;

	return process->paused_ns + (process->paused ? now_ns - process->paused_since_ns : 0);
}

static void end_pause(struct process *process)
{
	process->paused_ns = process_paused_ns(process);
	process->paused = process->nics_paused = false;
}

/* What a program's stop has to take apart; a list that is not empty afterwards is a leak in product or program. */
static void check_nothing_left(struct process *process)
{
	if (!list_empty(&process->actors) || !list_empty(&process->ios) || !list_empty(&process->threads) ||
		!list_empty(&process->nics))
		world_violate(process_world(process), "closing frees everything",
			"%s left a loop, io, thread or device", process->name);
}

void process_crash(struct process *process)
{
	struct memory_kept *kept;

	if (!process->running)
		return;
	world_trace(process_world(process), "%s dies", process->name);
	end_pause(process);
	process->running = false;
	process->muted = true;
	list_for_each (at, &process->actors)
		world_cancel(process_world(process), &container_of(at, struct world_waiter, node)->turn);
	list_for_each (at, &process->ios) {
		struct sim_io *io = container_of(at, struct sim_io, node);

		io->abandon(io);
	}
	device_abandon(process);
	disk_abandon(process);
	kept = memory_keep(process); /* what a dead process has no time to store into mapped files */
	process->program->stop(process, process->context);
	memory_put_back(kept);
	check_nothing_left(process);
	memory_abandon(process);
}

void process_pause(struct process *process, bool nics_too)
{
	process->paused = process->running;
	process->nics_paused = process->paused && nics_too;
	process->paused_since_ns = process_world(process)->now_ns;
	world_trace(process_world(process), "%s is paused%s", process->name, nics_too ? ", with its NICs" : "");
}

static void kick_deferred(struct process *process)
{
	list_for_each (at, &process->actors) {
		struct world_waiter *actor = container_of(at, struct world_waiter, node);

		if (actor->deferred)
			actor_kick(actor);
	}
}

void process_resume(struct process *process)
{
	end_pause(process);
	world_trace(process_world(process), "%s goes on", process->name);
	kick_deferred(process);
}

void process_free(struct process *process)
{
	process_crash(process);
	list_remove(&process->node);
	free(process);
}

static void end_suspension(struct host *host)
{
	host->suspended_ns = host_suspended_ns(host);
	host->suspended = false;
}

void host_stop(struct host *host)
{
	end_suspension(host);
	host->stopped = true; /* first: its kernel says good-bye to nobody */
	list_for_each (at, &host->processes)
		process_crash(container_of(at, struct process, node));
	disk_power_loss(host->disk);
}

void host_start(struct host *host)
{
	host->stopped = false;
	list_for_each (at, &host->processes)
		process_start(container_of(at, struct process, node));
}

void host_suspend(struct host *host)
{
	ensure(!host->stopped && !host->suspended);
	world_trace(host->world, "%s is suspended", host->name);
	host->suspended = true;
	host->suspended_since_ns = host->world->now_ns;
}

void host_resume(struct host *host)
{
	ensure(host->suspended);
	world_trace(host->world, "%s is resumed", host->name);
	end_suspension(host);
	list_for_each (at, &host->processes)
		kick_deferred(container_of(at, struct process, node));
	network_healed(host->network);
}

/* ---- clocks ---- */

/* How much a clock gains in so much time of the world. Never more than 1 in 1000, so that it grows from ns to ns. */
static uint64_t with_drift(const struct host *host, uint64_t ns)
{
	return ns + (uint64_t)((int64_t)(ns / 1000) * host->drift_ppm / 1000);
}

uint64_t host_boot_ns(const struct host *host)
{
	return with_drift(host, host->world->now_ns) + host->skew_ns + NS_S;
}

uint64_t host_suspended_ns(const struct host *host)
{
	return host->suspended_ns + (host->suspended ? host->world->now_ns - host->suspended_since_ns : 0);
}

uint64_t host_now_ns(const struct host *host)
{
	return with_drift(host, host->world->now_ns - host_suspended_ns(host)) + host->skew_ns + NS_S;
}

/* When a clock shows so much more. */
static uint64_t without_drift(const struct host *host, uint64_t ns)
{
	return ns - (uint64_t)((int64_t)(ns / 1000) * host->drift_ppm / 1000);
}

/* ---- io ---- */

void sim_io_init(struct sim_io *io, struct process *process, const struct world_io_ops *ops,
	unsigned (*ready)(struct sim_io *io), void (*abandon)(struct sim_io *io))
{
	io->io.ops = ops;
	io->process = process;
	io->ready = ready;
	io->abandon = abandon;
	list_init(&io->watched_node);
	list_push_back(&process->ios, &io->node);
}

void sim_io_free(struct sim_io *io)
{
	if (io->group != NULL)
		group_leave(io);
	list_remove(&io->node);
	list_remove(&io->watched_node);
	io->waiter = NULL;
	io->watch = NULL;
}

void sim_io_changed(struct sim_io *io)
{
	if (io->group != NULL)
		sim_io_changed(io->group);
	if (io->waiter != NULL && (io->ready(io) & io->watch->wanted) != 0)
		actor_kick(io->waiter);
}

/* ---- actors ---- */

/* From time to time another program gets the core. A soft NIC is a thread, and loses its own; in every other world
 * NICs are as prompt as hardware. */
static void lose_core(struct world_waiter *actor)
{
	struct world *world = process_world(actor->process);

	if (actor->worker || (actor->nic && world->seed % 2 != 0) || world->now_ns < actor->core_until_ns)
		return;
	actor->busy_until_ns = world->now_ns + world_range(world, world->late_ns_max / LATE_SPREAD, world->late_ns_max);
	actor->core_until_ns = actor->busy_until_ns + world_range(world, 0, world->late_ns_max);
}

static void schedule_turn(struct world_waiter *actor, uint64_t delay_ns)
{
	struct world *world = process_world(actor->process);
	uint64_t at_ns;

	if (world->late_ns_max > 0)
		lose_core(actor);
	if (world_chance(world, PREEMPT_PPM))
		delay_ns += world_range(world, 0, PREEMPT_NS_MAX);
	at_ns = (actor->busy_until_ns > world->now_ns ? actor->busy_until_ns : world->now_ns) + delay_ns;
	if (actor->turn.slot == 0 || actor->turn.at_ns > at_ns)
		world_schedule(world, &actor->turn, at_ns);
}

void actor_kick(struct world_waiter *actor)
{
	actor->sleep_ns = 0; /* inside a turn: it is the turn's end that schedules */
	if (!actor->in_turn && actor->process->running)
		schedule_turn(actor, world_range(process_world(actor->process), WAKE_NS_MIN, WAKE_NS_MAX));
}

static bool something_ready(struct world_waiter *actor)
{
	list_for_each (at, &actor->watched) {
		struct sim_io *io = container_of(at, struct sim_io, watched_node);

		if ((io->ready(io) & io->watch->wanted) != 0)
			return true;
	}
	return false;
}

static bool stands_still(const struct process *process, bool nic)
{
	return (nic ? process->nics_paused : process->paused) || process->host->suspended ||
	       (process->torn && !(nic && process->nics_go_on));
}

static void take_turn(struct world_event *event)
{
	struct world_waiter *actor = container_of(event, struct world_waiter, turn);
	struct world *world = process_world(actor->process);
	struct world_waiter *torn = actor->process->in_turn;
	enum hf_poll poll;

	actor->deferred = stands_still(actor->process, actor->nic);
	if (actor->deferred)
		return;
	actor->in_turn = true;
	actor->process->in_turn = actor;
	actor->sleep_ns = SLEEP_FOREVER;
	poll = hf_loop_turn(actor->loop, SLEEP_FOREVER);
	actor->in_turn = false;
	actor->process->in_turn = torn;
	if (poll == HF_BUSY || actor->sleep_ns == 0 || something_ready(actor))
		schedule_turn(actor, world_range(world, STEP_NS_MIN, STEP_NS_MAX));
	else if (actor->sleep_ns != SLEEP_FOREVER)
		schedule_turn(actor,
			without_drift(actor->process->host, actor->sleep_ns) + world_range(world, 0, WAKE_NS_MAX));
}

void process_tear(struct process *process, uint64_t ns)
{
	struct world *world = process_world(process);

	ensure(process->in_turn != NULL && !process->torn);
	world_trace(world, "  %s is torn for %.3f us at most%s", process->name, (double)ns / 1e3,
		process->nics_go_on ? ", its NICs go on" : "");
	process->torn = true;
	world_pass(world, world->now_ns + ns);
	process->torn = process->nics_go_on = false;
	list_for_each (at, &process->nics)
		bus_release(&container_of(at, struct nic, node)->bus);
	kick_deferred(process);
}

static bool is_step_torn(const struct process *process, unsigned times)
{
	struct world *world = process_world(process);

	return world->tears_ppm > 0 && process->in_turn != NULL && !process->torn &&
	       world_chance(world, times * world->tears_ppm);
}

static uint64_t tear_ns(struct world *world)
{
	return 1 + (world_range(world, 0, world->tear_ns_max) >> world_range(world, 0, TEAR_SHIFT_MAX));
}

void process_step(struct process *process)
{
	if (is_step_torn(process, 1))
		process_tear(process, tear_ns(process_world(process)));
}

void process_device_step(struct process *process)
{
	if (!is_step_torn(process, DEVICE_TIMES))
		return;
	process->nics_go_on = !process->in_turn->nic && world_chance(process_world(process), 500000);
	process_tear(process, tear_ns(process_world(process)));
}

void actor_blocks(struct world_waiter *worker, uint64_t ns)
{
	uint64_t now_ns = process_world(worker->process)->now_ns;

	ensure(worker->worker && worker->in_turn);
	worker->busy_until_ns = (worker->busy_until_ns > now_ns ? worker->busy_until_ns : now_ns) + ns;
}

int actor_open(struct hf_env *env, struct hf_loop *loop, struct world_waiter **actor_out)
{
	struct process *process = env_process(env);
	struct world_waiter *actor = calloc(1, sizeof(*actor));

	if (actor == NULL)
		return -ENOMEM;
	actor->process = process;
	actor->loop = loop;
	actor->nic = process->opening == HF_THREAD_NIC;
	actor->worker = process->opening == HF_THREAD_WORKER;
	actor->turn.what = "turn";
	actor->turn.fire = take_turn;
	actor->turn.detail = (uint64_t)(process->name[0] & 0x7f) << 8 | actor->nic;
	list_init(&actor->watched);
	list_push_back(&process->actors, &actor->node);
	actor_kick(actor);
	*actor_out = actor;
	return 0;
}

void actor_close(struct world_waiter *actor)
{
	ensure(!actor->in_turn);
	if (actor->worker)
		disk_settle(actor);
	world_cancel(process_world(actor->process), &actor->turn);
	list_for_each_safe (at, &actor->watched) {
		struct sim_io *io = container_of(at, struct sim_io, watched_node);

		list_remove(&io->watched_node);
		io->watch->io = NULL;
		io->io.watch = NULL;
		io->waiter = NULL;
		io->watch = NULL;
	}
	list_remove(&actor->node);
	free(actor);
}

int actor_watch(struct world_waiter *actor, struct hf_watch *watch)
{
	struct sim_io *io = (struct sim_io *)(void *)watch->io;

	if (io->waiter == NULL)
		list_push_back(&actor->watched, &io->watched_node);
	ensure(io->waiter == NULL || io->waiter == actor);
	io->waiter = actor;
	io->watch = watch;
	sim_io_changed(io);
	return 0;
}

void actor_unwatch(struct world_waiter *actor, struct hf_watch *watch)
{
	struct sim_io *io = (struct sim_io *)(void *)watch->io;

	ensure(io->waiter == NULL || io->waiter == actor);
	list_remove(&io->watched_node);
	io->waiter = NULL;
	io->watch = NULL;
}

/* Calls ready() of what is ready. A callback may unwatch or close any other io, so each round starts at the front;
 * an io that was served goes to the back, behind a marker. */
unsigned actor_wait(struct world_waiter *actor, uint64_t max_ns)
{
	struct list served;
	unsigned calls = 0;

	actor->sleep_ns = max_ns < actor->sleep_ns ? max_ns : actor->sleep_ns;
	if (!something_ready(actor))
		return 0;
	list_init(&served);
	for (struct list *at; (at = list_pop_front(&actor->watched)) != NULL;) {
		struct sim_io *io = container_of(at, struct sim_io, watched_node);
		unsigned ready = io->ready(io) & io->watch->wanted;

		list_push_back(&served, at);
		if (ready == 0)
			continue;
		calls++;
		io->watch->ready(io->watch, ready);
	}
	while (!list_empty(&served))
		list_push_back(&actor->watched, list_pop_front(&served));
	return calls;
}

/* ---- threads ---- */

static void begin_thread(struct world_event *event)
{
	struct actor_thread *thread = container_of(event, struct actor_thread, begin);

	thread->start(thread->loop, thread->context);
}

int thread_start(struct hf_env *env, const char *name, enum hf_thread_kind kind,
	void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out)
{
	struct process *process = env_process(env);
	struct actor_thread *thread;
	int rc;

	*thread_out = NULL;
	if (process->muted)
		return -EAGAIN;
	thread = calloc(1, sizeof(*thread));
	if (thread == NULL)
		return -ENOMEM;
	process->opening = kind;
	rc = hf_loop_create(env, &thread->loop);
	process->opening = HF_THREAD_HELPER;
	if (rc != 0) {
		free(thread);
		return rc;
	}
	world_trace(process_world(process), "%s starts thread %s", process->name, name);
	thread->base.env = env;
	thread->process = process;
	thread->start = start;
	thread->context = context;
	thread->begin.what = "thread";
	thread->begin.fire = begin_thread;
	thread->begin.outermost = true;
	list_push_back(&process->threads, &thread->node);
	/* before the first turn of its loop, which WAKE_NS_MIN delays */
	world_schedule(process_world(process), &thread->begin,
		process_world(process)->now_ns + world_range(process_world(process), 0, WAKE_NS_MIN - 1));
	*thread_out = &thread->base;
	return 0;
}

void thread_stop(struct hf_thread *stopped)
{
	struct actor_thread *thread = (struct actor_thread *)(void *)stopped;

	world_cancel(process_world(thread->process), &thread->begin);
	hf_loop_destroy(thread->loop);
	list_remove(&thread->node);
	free(thread);
}
