#include "bench/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/order.h"

#define SERVE_NS  100000u
#define OTHERS_NS 10000000ull

/* Seen by both processes. */
struct bench_watch {
	_Atomic uint32_t in_use;
};

void bench_fleet_use(struct bench_fleet *fleet, unsigned at)
{
	publish(&fleet->watch->in_use, at);
}

static bool is_open(const struct bench_fleet *fleet, unsigned at)
{
	return (fleet->opened >> at & 1) != 0;
}

static void turn_others(struct bench_fleet *fleet, unsigned at, uint64_t now_ns)
{
	if (now_ns < fleet->others_due_ns)
		return;
	fleet->others_due_ns = now_ns + OTHERS_NS;
	for (unsigned i = 0; i < fleet->n; i++)
		if (i != at && is_open(fleet, i))
			hf_loop_turn(fleet->nodes[i].bed.loop, 0);
}

int bench_fleet_turn(struct bench_fleet *fleet, unsigned at, uint64_t now_ns)
{
	hf_loop_turn(fleet->nodes[at].bed.loop, 0);
	turn_others(fleet, at, now_ns);
	for (unsigned i = 0; i < fleet->n; i++)
		if (fleet->nodes[i].broken || fleet->nodes[i].down > 0)
			return hf_error_set(&fleet->error, -EIO, "%s, %s: %s", fleet->setup.kind, fleet->modes[i]->name,
				fleet->nodes[i].broken ? "the other process is gone" : "a vqp failed for good");
	return 0;
}

int bench_fleet_executed(struct bench_fleet *fleet, unsigned at, uint64_t *bytes_out)
{
	uint64_t question = 0;

	bench_fleet_use(fleet, at);
	return bench_swap(fleet->meeting, true, &question, bytes_out, sizeof(question)) ? 0 : -EPIPE;
}

/* ---- the far side ---- */

static uint64_t executed_bytes(const struct bench_nodes *nodes)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < BENCH_RAILS; i++) {
		struct hf_dev_counters counters;

		hf_dev_counters(hf_node_dev(nodes->node, i), &counters);
		bytes += counters.executed_bytes;
	}
	return bytes;
}

static void serve_turn(struct bench_fleet *fleet)
{
	unsigned at = observe(&fleet->watch->in_use);

	if (is_open(fleet, at)) {
		hf_loop_turn(fleet->nodes[at].bed.loop, SERVE_NS);
		bench_nodes_bury(&fleet->nodes[at]);
	}
	turn_others(fleet, at, hf_env_now_ns(fleet->nodes[at].bed.env));
}

/* Until the near side has connected what was opened last. */
static int serve_connecting(struct bench_fleet *fleet)
{
	int mine = 0, theirs = 0;

	while (!bench_asked(fleet->meeting, false)) {
		if (bench_other_left(fleet->meeting, false))
			return -EPIPE;
		serve_turn(fleet);
	}
	return bench_swap(fleet->meeting, false, &mine, &theirs, sizeof(mine)) ? theirs : -EPIPE;
}

static int serve(struct bench_fleet *fleet)
{
	while (!bench_other_left(fleet->meeting, false)) {
		uint64_t executed, question;

		serve_turn(fleet);
		if (!bench_asked(fleet->meeting, false))
			continue;
		/* Set before it asked. */
		executed = executed_bytes(&fleet->nodes[observe(&fleet->watch->in_use)]);
		if (!bench_swap(fleet->meeting, false, &executed, &question, sizeof(executed)))
			break;
	}
	return 0;
}

/* ---- both ---- */

static int open_all(struct bench_fleet *fleet, bool near)
{
	int rc = 0;

	for (unsigned k = 0; k < fleet->n && rc == 0; k++) {
		unsigned i = fleet->order[k];
		int theirs;

		fleet->opened |= 1u << i;
		if (near)
			bench_fleet_use(fleet, i); /* a node that connects is served without delay */
		rc = bench_nodes_open(&fleet->nodes[i], &fleet->setups[i], fleet->meeting, near);
		if (rc != 0)
			fleet->error = fleet->nodes[i].bed.error;
		else if (!near)
			rc = serve_connecting(fleet);
		else if (!bench_swap(fleet->meeting, true, &rc, &theirs, sizeof(rc)))
			rc = -EPIPE;
	}
	return rc;
}

static void close_all(struct bench_fleet *fleet)
{
	for (unsigned i = 0; i < fleet->n; i++)
		if (is_open(fleet, i))
			bench_nodes_close(&fleet->nodes[i]);
	fleet->opened = 0;
}

static int run_near(struct bench_meeting *meeting, void *context)
{
	struct bench_fleet *fleet = context;
	int rc;

	fleet->meeting = meeting;
	rc = open_all(fleet, true);
	if (rc == 0)
		rc = fleet->run(fleet, fleet->context);
	bench_leave(meeting, true);
	close_all(fleet);
	return rc;
}

static int run_far(struct bench_meeting *meeting, void *context)
{
	struct bench_fleet *fleet = context;
	int rc;

	fleet->meeting = meeting;
	rc = open_all(fleet, false);
	if (rc == 0)
		rc = serve(fleet);
	else if (fleet->error.text[0] != '\0')
		fprintf(stderr, "holdfast bench: the server: %s\n", fleet->error.text);
	close_all(fleet);
	return rc;
}

static int make_setups(struct bench_fleet *fleet, struct hf_env *env)
{
	size_t bytes = fleet->setup.clients * fleet->setup.client_bytes;
	void *watch = NULL;
	int rc;

	/* Allocated before there are two processes, so that both see it. */
	if ((rc = hf_mem_alloc(env, sizeof(*fleet->watch), &watch, &fleet->error)) != 0 ||
		(rc = hf_mem_alloc(env, bytes, &fleet->setup.near_memory, &fleet->error)) != 0 ||
		(rc = hf_mem_alloc(env, bytes, &fleet->setup.far_memory, &fleet->error)) != 0) {
		fleet->watch = watch;
		return rc;
	}
	fleet->watch = watch;
	for (unsigned i = 0; i < fleet->n; i++) {
		fleet->setups[i] = fleet->setup;
		fleet->setups[i].mode = fleet->modes[i];
		fleet->setups[i].number = i;
	}
	return 0;
}

/* The first one opened has other pages than the last. */
static void shuffle(struct bench_fleet *fleet, struct hf_env *env)
{
	uint32_t random[BENCH_FLEET_MAX];

	hf_env_entropy(env, random, sizeof(random));
	for (unsigned i = 0; i < fleet->n; i++) {
		unsigned other = random[i] % (i + 1);

		fleet->order[i] = fleet->order[other];
		fleet->order[other] = i;
	}
}

int bench_fleet_run(struct bench_fleet *fleet, int (*run)(struct bench_fleet *fleet, void *context), void *context)
{
	struct hf_env *env = hf_env_host();
	int rc;

	fleet->run = run;
	fleet->context = context;
	fleet->opened = 0;
	shuffle(fleet, env);
	rc = make_setups(fleet, env);
	if (rc == 0) {
		rc = bench_together(run_near, run_far, fleet);
		bed_clean();
	}
	if (fleet->setup.near_memory != NULL)
		hf_mem_free(env, fleet->setup.near_memory);
	if (fleet->setup.far_memory != NULL)
		hf_mem_free(env, fleet->setup.far_memory);
	if (fleet->watch != NULL)
		hf_mem_free(env, fleet->watch);
	if (rc != 0 && fleet->error.text[0] == '\0')
		hf_error_set(&fleet->error, rc, "%s: not measured: %s", fleet->setup.kind, strerror(-rc));
	return rc;
}
