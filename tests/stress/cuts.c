/* The parent cuts links and lets them heal, again and again, while the others work. One rail is whole at any time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/fabric.h>

#include "rxe/wire.h"
#include "stress.h"

#define MS            1000000ull
#define HUNG_NS       15000000000ull /* that both ends have lived without a completion of a client: something hangs */
#define STUCK_NS      (10 * HUNG_NS) /* of the clock's: one that turns no more lives no more */
#define CUT_NS_MAX    (60 * MS)
#define REST_NS_MAX   (60 * MS)
#define STEP_COMPLETE 3u /* completions of every client, before a cut is healed, while it goes on */

static uint64_t now_ns(void)
{
	return hf_env_now_ns(hf_env_host());
}

static uint64_t draw(uint64_t *random, uint64_t n)
{
	*random += 0x9e3779b97f4a7c15ull;
	return mix(*random) % n;
}

struct watched {
	uint64_t completed[CLIENTS], lived_ns[PROCESSES], since_ns;
};

static struct watched watch(struct stress *stress)
{
	struct watched watched = {.since_ns = now_ns()};

	for (unsigned i = 0; i < stress->client_count; i++)
		watched.completed[i] = atomic_load(&stress->clients[i].completed);
	for (unsigned i = 0; i < stress->processes; i++)
		watched.lived_ns[i] = atomic_load(&stress->lived_ns[i]);
	return watched;
}

static bool goes_on(struct stress *stress, const struct watched *from, unsigned client)
{
	return atomic_load(&stress->clients[client].completed) >= from->completed[client] + STEP_COMPLETE;
}

static bool hangs(struct stress *stress, const struct watched *from, unsigned client)
{
	unsigned process = 1 + client / stress->per_process;
	uint64_t server_ns = atomic_load(&stress->lived_ns[0]) - from->lived_ns[0];
	uint64_t client_ns = atomic_load(&stress->lived_ns[process]) - from->lived_ns[process];

	if (goes_on(stress, from, client))
		return false;
	return (server_ns > HUNG_NS && client_ns > HUNG_NS) || now_ns() - from->since_ns > STUCK_NS;
}

/* Until every client has completed more wrs than before; false: one of them hangs, or something was violated. */
static bool all_go_on(struct stress *stress, uint64_t random_ns)
{
	struct watched from = watch(stress);
	unsigned behind = stress->client_count, hung = 0;

	while (behind > 0) {
		behind = 0;
		for (unsigned i = 0; i < stress->client_count; i++) {
			behind += !goes_on(stress, &from, i);
			if (hangs(stress, &from, i)) {
				stress_violate(stress, "client %u hangs", i);
				hung++;
			}
		}
		if (hung > 0 || (atomic_load(&stress->violations) > 0 && !stress->blind))
			return false;
		stress_pause(MS / 2);
	}
	stress_pause(random_ns);
	return true;
}

/* Mostly the rail that somebody is on. */
static unsigned pick_rail(struct stress *stress, uint64_t *random)
{
	int rail = atomic_load(&stress->clients[draw(random, stress->client_count)].rail);

	return rail < 0 || draw(random, 5) == 0 ? (unsigned)draw(random, RAILS) : (unsigned)rail;
}

/* Of a real NIC the switch is its interface's, which has no directions; what leaves at one end of a wire is lost in its
 * queue. All clients are at the end a. */
static bool cut_wire(bool at_server, const char *rail, enum hf_link kind, bool up)
{
	bool at_b = at_server == (kind == HF_LINK_TX);
	char netdev[] = {at_b ? 'b' : 'a', rail[1], '\0'};

	return wire_lose(NULL, netdev, !up) == 0;
}

struct place {
	struct hf_fabric *fabric;
	const char *node;
	char rail[HF_NAME_BYTES];
	enum hf_link kind;
};

static bool switch_link(const struct stress *stress, const struct place *place, bool up, struct hf_error *error)
{
	if (stress_is_real(stress) && place->kind != HF_LINK_BOTH)
		return cut_wire(strcmp(place->node, stress_node_name(0)) == 0, place->rail, place->kind, up);
	return hf_fabric_set_link(place->fabric, place->node, place->rail, place->kind, up, error) == 0;
}

static const char *kind_name(enum hf_link kind)
{
	return kind == HF_LINK_BOTH ? "both directions" : kind == HF_LINK_TX ? "TX" : "RX";
}

bool stress_cuts(struct stress *stress, unsigned n, struct stress_cuts *made)
{
	struct place place;
	struct hf_error error = {0};
	uint64_t random = stress->seed;
	bool fine = true;
	uint64_t began_ns, healed_ns;

	*made = (struct stress_cuts){0};
	if (hf_fabric_open(stress_fabric(), false, &place.fabric, &error) != 0) {
		fprintf(stderr, "stress: %s\n", error.text);
		return false;
	}
	for (unsigned i = 0; i < n && fine; i++) {
		static const enum hf_link kinds[] = {HF_LINK_BOTH, HF_LINK_TX, HF_LINK_RX, HF_LINK_BOTH};

		place.node = stress_node_name(draw(&random, 2) == 0 ? 0 : (unsigned)draw(&random, stress->processes));
		place.kind = kinds[draw(&random, stress_is_real(stress) ? 4 : 3)];
		snprintf(place.rail, sizeof(place.rail), "r%u", pick_rail(stress, &random));
		began_ns = now_ns();
		fine = switch_link(stress, &place, false, &error) &&
		       all_go_on(stress, draw(&random, CUT_NS_MAX) >> draw(&random, 6)) &&
		       switch_link(stress, &place, true, &error);
		made->both += place.kind == HF_LINK_BOTH;
		made->tx += place.kind == HF_LINK_TX;
		made->rx += place.kind == HF_LINK_RX;
		healed_ns = now_ns();
		if (fine)
			fine = all_go_on(stress, draw(&random, REST_NS_MAX) >> draw(&random, 6));
		fprintf(stderr, "cut %u: %s of rail %s at node %s: %u ms, and %u ms after it\n", i + 1,
			kind_name(place.kind), place.rail, place.node, (unsigned)((healed_ns - began_ns) / MS),
			(unsigned)((now_ns() - healed_ns) / MS));
		if (!fine)
			stress_violate(stress, "in cut %u: %s of rail %s at node %s %s", i + 1, kind_name(place.kind),
				place.rail, place.node, error.text);
	}
	hf_fabric_close(place.fabric);
	return fine;
}
