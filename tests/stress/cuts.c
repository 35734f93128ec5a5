/* The parent cuts links and lets them heal, again and again, while the others work. One rail is whole at any time. */
#include <stdio.h>
#include <stdlib.h>

#include <holdfast/fabric.h>

#include "stress.h"

#define MS            1000000ull
#define HUNG_NS       15000000000ull /* without any completion of a client: something hangs */
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

/* Until every client has completed more wrs than before; false: one of them hangs, or something was violated. */
static bool all_go_on(struct stress *stress, uint64_t random_ns)
{
	uint64_t before[CLIENTS], since = now_ns();
	unsigned behind = CLIENTS;

	for (unsigned i = 0; i < CLIENTS; i++)
		before[i] = atomic_load(&stress->clients[i].completed);
	while (behind > 0) {
		behind = 0;
		for (unsigned i = 0; i < CLIENTS; i++)
			behind += atomic_load(&stress->clients[i].completed) < before[i] + STEP_COMPLETE;
		if (atomic_load(&stress->violations) > 0 && !stress->blind)
			return false;
		if (now_ns() - since > HUNG_NS) {
			for (unsigned i = 0; i < CLIENTS; i++)
				if (atomic_load(&stress->clients[i].completed) < before[i] + STEP_COMPLETE)
					stress_violate(stress, "client %u hangs", i);
			return false;
		}
		stress_pause(MS / 2);
	}
	stress_pause(random_ns);
	return true;
}

/* Mostly the rail that somebody is on. */
static unsigned pick_rail(struct stress *stress, uint64_t *random)
{
	int rail = atomic_load(&stress->clients[draw(random, CLIENTS)].rail);

	return rail < 0 || draw(random, 5) == 0 ? (unsigned)draw(random, RAILS) : (unsigned)rail;
}

bool stress_cuts(struct stress *stress, unsigned n, struct stress_cuts *made)
{
	struct hf_fabric *fabric;
	struct hf_error error = {0};
	uint64_t random = stress->seed;
	bool fine = true;

	*made = (struct stress_cuts){0};
	if (hf_fabric_open(stress_fabric(), false, &fabric, &error) != 0) {
		fprintf(stderr, "stress: %s\n", error.text);
		return false;
	}
	for (unsigned i = 0; i < n && fine; i++) {
		static const enum hf_link kinds[] = {HF_LINK_BOTH, HF_LINK_TX, HF_LINK_RX};
		const char *node = stress_node_name(draw(&random, 2) == 0 ? 0 : (unsigned)draw(&random, PROCESSES));
		enum hf_link kind = kinds[draw(&random, 3)];
		char rail[HF_NAME_BYTES];

		snprintf(rail, sizeof(rail), "r%u", pick_rail(stress, &random));
		fine = hf_fabric_set_link(fabric, node, rail, kind, false, &error) == 0 &&
		       all_go_on(stress, draw(&random, CUT_NS_MAX) >> draw(&random, 6)) &&
		       hf_fabric_set_link(fabric, node, rail, kind, true, &error) == 0;
		made->both += kind == HF_LINK_BOTH;
		made->tx += kind == HF_LINK_TX;
		made->rx += kind == HF_LINK_RX;
		if (fine)
			fine = all_go_on(stress, draw(&random, REST_NS_MAX) >> draw(&random, 6));
		if (!fine)
			stress_violate(stress, "in cut %u: %s of rail %s at node %s %s", i + 1,
				kind == HF_LINK_BOTH ? "both directions"
				: kind == HF_LINK_TX ? "TX"
						     : "RX",
				rail, node, error.text);
	}
	hf_fabric_close(fabric);
	return fine;
}
