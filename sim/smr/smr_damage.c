#include "sim/smr/smr_damage.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "smr/durable.h"
#include "smr/steps.h"

#define APART_PPM    600000u
#define LAST_PPM     500000u
#define APART_NS_MAX (20 * NS_MS)
#define ALONE_NS     (50 * NS_MS) /* some elections, if anybody could lead */
#define RETURN_NS    (5 * NS_S)
#define MARKED_NS    (200 * NS_MS)

/* Of which file of the WAL, of whom. */
struct flip {
	uint64_t generation, from, end, incarnation;
};

/* Below the mark: nothing is being written. */
static bool is_marked(const struct smr_sim_member *member)
{
	const struct smr_durable *durable = member->smr->durable;

	return !durable->appending && durable->store.wal_bytes > SMR_WAL_HEAD;
}

static uint64_t last_batch(struct hf_file *file, uint64_t end)
{
	uint8_t *bytes = malloc(end);
	uint64_t at = SMR_WAL_HEAD, n;

	ensure(bytes != NULL && hf_file_read_at(file, bytes, end, 0) == (ssize_t)end);
	while ((n = smr_wal_length(bytes + at)) != 0 && at + n < end)
		at += n;
	free(bytes);
	return at;
}

/* In the last batch, or anywhere behind `from`. */
static void change_byte(struct smr_sim_member *member, const struct flip *flip)
{
	struct world *world = member->sim->world;
	struct hf_env *env = &member->endpoint.process->env;
	uint64_t at = flip->from;
	char path[SMR_STORE_PATH_BYTES];
	struct hf_file *file;
	uint8_t byte;

	member->endpoint.process->muted = false; /* it is not the process that writes */
	snprintf(path, sizeof(path), "/smr/wal.%llu", (unsigned long long)flip->generation);
	ensure(hf_file_open(env, path, HF_FILE_WRITE, &file) == 0);
	if (world_chance(world, LAST_PPM))
		at = last_batch(file, flip->end);
	at = world_range(world, at, flip->end - 1);
	ensure(hf_file_read_at(file, &byte, 1, at) == 1);
	byte ^= (uint8_t)(1u << world_range(world, 0, 7));
	ensure(hf_file_write_at(file, &byte, 1, at) == 1);
	hf_file_close(file);
	world_trace(world, "  byte %llu of %s of member %u changes", (unsigned long long)at, path, member->id);
}

static struct smr_sim_member *leader_of(const struct smr_sim *sim)
{
	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL && hf_smr_is_leader(sim->members[i].smr))
			return (struct smr_sim_member *)&sim->members[i];
	return NULL;
}

static void run_for(struct smr_sim *sim, uint64_t ns)
{
	if (sim->world->violations == 0)
		world_run_until(sim->world, sim->world->now_ns + ns);
}

/* The third member has not what the others decide now; then the leader is down, too. */
static void part(struct smr_sim *sim, struct smr_sim_member *leader, struct smr_sim_member *third)
{
	process_pause(third->endpoint.process, true);
	run_for(sim, world_range(sim->world, NS_MS, APART_NS_MAX));
	process_crash(leader->endpoint.process);
}

static void meet(struct smr_sim *sim, struct smr_sim_member *leader, struct smr_sim_member *third, bool apart)
{
	if (!apart)
		return;
	process_resume(third->endpoint.process);
	network_healed(&sim->network);
	run_for(sim, ALONE_NS);
	process_start(leader->endpoint.process);
}

/* Each in the process that runs now. */
static bool all_count(const struct smr_sim *sim)
{
	const struct smr_sim_member *leader = leader_of(sim);
	struct hf_smr_status status;
	unsigned n = 0;

	if (leader == NULL)
		return false;
	hf_smr_status(leader->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++) {
		const struct hf_smr *smr = sim->members[status.members[i].id].smr;

		n += status.members[i].confirmed && smr != NULL && smr->incarnation == status.members[i].incarnation;
	}
	return n == sim->count;
}

static bool wait_until(struct smr_sim *sim, bool (*is)(const struct smr_sim *sim), uint64_t ns)
{
	uint64_t limit_ns = sim->world->now_ns + ns;

	while (sim->world->violations == 0 && sim->world->now_ns < limit_ns && !is(sim))
		run_for(sim, NS_MS);
	return sim->world->violations == 0 && is(sim);
}

bool smr_damage_round(struct smr_sim *sim)
{
	struct world *world = sim->world;
	struct smr_sim_member *leader, *victim, *third;
	bool apart = world_chance(world, APART_PPM), said;
	struct flip flip = {0};

	if (!wait_until(sim, all_count, RETURN_NS))
		return false;
	leader = leader_of(sim);
	victim = &sim->members[(leader->id + 1 + world_range(world, 0, 1)) % sim->count];
	third = &sim->members[3 - leader->id - victim->id];
	flip.generation = victim->smr->durable->store.current;
	flip.from = victim->smr->durable->store.wal_bytes;
	if (apart)
		part(sim, leader, third);
	for (uint64_t limit_ns = world->now_ns + MARKED_NS; world->now_ns < limit_ns && !is_marked(victim);)
		run_for(sim, 10 * NS_US);
	if (world->violations > 0 || !is_marked(victim)) { /* its WAL is new, and nothing is decided */
		meet(sim, leader, third, apart);
		return false;
	}
	/* what the third member has not seen of it */
	if (!apart || flip.generation != victim->smr->durable->store.current ||
		flip.from >= victim->smr->durable->store.wal_bytes)
		flip.from = SMR_WAL_HEAD;
	flip.generation = victim->smr->durable->store.current;
	flip.end = victim->smr->durable->store.wal_bytes;
	flip.incarnation = victim->smr->incarnation;
	process_crash(victim->endpoint.process);
	change_byte(victim, &flip);
	process_start(victim->endpoint.process);
	said = victim->smr != NULL && smr_durable_is_lost(victim->smr);
	meet(sim, leader, third, apart);
	if (!wait_until(sim, all_count, RETURN_NS) && world->violations == 0)
		world_violate(world, "damage", "member %u does not return from damaged files", victim->id);
	if (world->violations == 0 && (!said || victim->smr->incarnation == flip.incarnation))
		world_violate(world, "damage", "the files of member %u are damaged, and it %s", victim->id,
			said ? "is who it was" : "does not say so");
	return true;
}
