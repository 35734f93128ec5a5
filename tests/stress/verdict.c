/* What can be said only when all is over: the counter and the chain, which belong to everybody. */
#include <inttypes.h>

#include "stress.h"

static uint64_t additions(const struct stress *stress)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < stress->client_count; i++)
		sum += atomic_load(&stress->clients[i].additions);
	return sum;
}

static void check_counter(struct stress *stress)
{
	uint64_t asked = additions(stress), got = atomic_load(&stress->final_counter);

	atomic_store(&stress->doubled, got > asked ? got - asked : 0);
	if (stress->blind)
		return;
	if (got != asked)
		stress_violate(stress, "counter: %" PRIu64 " additions, and it is %" PRIu64, asked, got);
	for (uint64_t i = 0; i < asked && i < COUNTER_MAX; i++)
		if ((atomic_load(&stress->answered[i / 8]) & 1u << i % 8) == 0) {
			stress_violate(stress, "counter: nobody was answered %" PRIu64, i);
			return;
		}
}

/* Backwards from what is there now: every success is one link, and none is left over. */
static void check_chain(struct stress *stress)
{
	uint64_t at = atomic_load(&stress->final_chain), links = 0, successes = 0;

	for (unsigned i = 0; i < stress->client_count; i++)
		for (uint64_t n = 0; n < ATTEMPTS_MAX; n++)
			successes += stress->clients[i].links[n] != 0;
	while (at != 0 && links <= successes) {
		uint64_t client = (at >> 48) - 1, attempt = at & 0xffffffffffff;

		if (client >= stress->client_count || attempt >= ATTEMPTS_MAX ||
			stress->clients[client].links[attempt] == 0) {
			stress_violate(stress, "chain: %016" PRIx64 " is there, whose CAS was said to have failed", at);
			return;
		}
		at = stress->clients[client].links[attempt] - 1;
		links++;
	}
	if (links != successes)
		stress_violate(stress, "chain: %" PRIu64 " CAS were said to have succeeded, and %" PRIu64 " did",
			successes, links);
}

void stress_verdict(struct stress *stress)
{
	check_counter(stress);
	if (!stress->blind)
		check_chain(stress);
}
