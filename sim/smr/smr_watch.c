#include "sim/smr/smr_watch.h"

#include <string.h>

#include "base/ensure.h"
#include "sim/checkers/torn_slots.h"
#include "sim/device.h"
#include "smr/durable.h"
#include "smr/steps.h"
#include "vqp/objects.h"

static void look_at_slots(
	struct smr_sim_member *member, const struct hf_smr *smr, uint64_t at, const uint8_t *data, size_t bytes)
{
	uint32_t each = smr->geometry.slot_bytes;

	for (size_t done = 0; at >= SMR_LOG_SLOTS && (at - SMR_LOG_SLOTS) % each == 0 && done < bytes;) {
		size_t n = bytes - done < each ? bytes - done : each;

		torn_slots_write(member->sim->world, &smr->geometry, smr->log + at, data + done, n);
		done += n;
		at += n;
	}
}

/* Before anything is written into a log: its owner has the configuration by which it granted that. */
static void found(struct smr_sim_member *member)
{
	const struct smr_members *founders = &member->smr->members;
	struct log_members_voter voters[HF_SMR_MEMBERS_MAX];

	ensure(founders->index == 1);
	for (unsigned i = 0; i < founders->count; i++)
		voters[i] = (struct log_members_voter){
			.member = founders->at[i].is.id, .incarnation = founders->at[i].incarnation};
	log_members_found(&member->sim->logs.members, voters, founders->count);
}

static void on_effect(struct bus_observer *observer, const struct effect *effect)
{
	struct smr_sim_member *member = env_process(effect->nic->dev->env)->context;
	const struct hf_smr *smr = member->smr;
	uint64_t log = smr == NULL ? 0 : (uintptr_t)smr->log, end = smr == NULL ? 0 : log + smr->log_mr->bytes;

	(void)observer;
	if (effect->kind != EFFECT_WRITE || effect->host < log || effect->host >= end)
		return;
	look_at_slots(member, smr, effect->host - log, effect->data, effect->bytes);
	if (member->sim->logs.members.chosen_count == 0 && smr->holder >= 0)
		found(member);
	log_memory_write(&member->sim->logs,
		&(struct log_memory_owner){.member = member->id,
			.holder = smr->holder,
			.applied = smr->restore != NULL ? UINT64_MAX : smr->applied},
		effect->host - log, effect->data, effect->bytes);
}

static void check_incarnation(const struct smr_sim *sim, unsigned id, uint64_t incarnation)
{
	for (unsigned i = 0; i < sim->gone_count; i++)
		if (sim->gone[i].incarnation == incarnation)
			world_violate(sim->world, "memory", "member %u starts empty as one that had a log", id);
}

void smr_watch_start(struct smr_sim_member *member)
{
	if (member->smr != NULL && !member->sim->durable)
		check_incarnation(member->sim, member->id, member->smr->incarnation);
	if (member->smr != NULL)
		log_memory_start(&member->sim->logs, member->id, member->smr->log, &member->smr->incarnation);
	member->accepts_under = member->commit = member->granted = 0;
	memset(member->granted_to, 0, sizeof(member->granted_to));
	for (unsigned i = 0; i < SMR_SIM_RAILS; i++) {
		member->observers[i] = (struct bus_observer){.effect = on_effect};
		bus_observe(&nic_of(hf_node_dev(member->endpoint.node, i))->bus, &member->observers[i]);
	}
}

/* ---- grants ---- */

static void check_access(const struct smr_sim *sim, const struct hf_smr *smr)
{
	for (unsigned i = 0; i < sim->count; i++) {
		const struct hf_vqp *vqp = smr->links[i].ends[SMR_IN].vqp;

		if (vqp != NULL && smr->links[i].granted == 0 && (vqp->access & IBV_ACCESS_REMOTE_WRITE) != 0)
			world_violate(sim->world, "access",
				"member %u may write into the log of member %u, which granted it nothing", i, smr->id);
	}
}

/* Requests of a process are numbered from 1 on. In durable mode an incarnation is several processes. */
static void check_grant(struct smr_sim_member *member, const struct smr_link *to)
{
	const struct smr_sim *sim = member->sim;
	const struct hf_smr *asker = sim->members[to->id].smr;

	if (asker != NULL && asker->incarnation == to->incarnation && asker->requests < to->granted)
		world_violate(sim->world, "asked",
			"member %u grants its log for request %u of member %u, which made %u", member->id, to->granted,
			to->id, asker->requests);
	if (member->granted_to[to->id].incarnation == to->incarnation &&
		member->granted_to[to->id].request == to->granted)
		world_violate(sim->world, "once", "member %u grants request %u of member %u twice", member->id,
			to->granted, to->id);
	member->granted_to[to->id].incarnation = to->incarnation;
	member->granted_to[to->id].request = to->granted;
}

static void check_armed(const struct smr_sim *sim, const struct hf_smr *smr)
{
	for (unsigned i = 0; i < sim->count; i++) {
		const struct smr_link *link = &smr->links[i];
		const struct hf_vqp *vqp = link->ends[SMR_OUT].vqp;
		const struct hf_smr *owner = sim->members[i].smr;
		uint32_t granted = 0;

		if (owner != NULL && owner->incarnation == link->incarnation &&
			owner->links[smr->id].incarnation == smr->incarnation)
			granted = owner->links[smr->id].granted;
		if (link->stage < SMR_STAGE_HEAD || vqp == NULL)
			continue;
		if (vqp->grants.armed != 0 && (vqp->grants.armed & 0xffff) != link->grant) /* 0: revoked since */
			world_violate(sim->world, "armed", "member %u uses grant %u of member %u, and its ack names %u",
				smr->id, vqp->grants.armed, i, link->grant);
		if (granted != 0 && granted != link->request)
			world_violate(sim->world, "armed",
				"member %u uses the log of member %u for request %u, which was granted request %u",
				smr->id, i, link->request, granted);
	}
}

static void check_grants(struct smr_sim_member *member)
{
	const struct hf_smr *smr = member->smr;

	check_access(member->sim, smr);
	check_armed(member->sim, smr);
	if (!member->sim->durable && smr->granted != member->granted && smr->holder >= 0 && smr->holder != smr->id)
		check_grant(member, &smr->links[smr->holder]);
	member->granted = smr->granted;
}

/* ---- what is being read ---- */

/* By a member that leads now: an entry of its own is where a wr reads an earlier one. */
static void check_reads(const struct smr_sim *sim, const struct hf_smr *smr)
{
	for (unsigned i = 0; i < sim->count; i++) {
		const struct smr_end *end = &smr->links[i].ends[SMR_OUT];

		for (uint32_t k = end->head; k != end->tail; k++) {
			uint64_t index = end->wrs[k % SMR_WRS_MAX].reads;
			uint64_t there = index == 0 ? 0 : get_le64(smr_slot_at(smr, index) + 8);

			if (there > index && there >= smr->noop_index)
				world_violate(sim->world, "reused",
					"member %u has reused the slot of entry %llu, which a wr to member %u reads",
					smr->id, (unsigned long long)index, i);
		}
	}
}

/* ---- promises ---- */

/* What is on a disk stays there: of a member that does not run, nothing is known. */
static bool has_promised(const struct smr_sim *sim, unsigned id, uint64_t number)
{
	const struct hf_smr *smr = sim->members[id].smr;

	if (!sim->durable)
		return sim->logs.promised[id] >= number;
	return smr == NULL || smr->replay != NULL || smr->durable->shown_number >= number;
}

static void check_promise(const struct smr_sim *sim, unsigned id, uint64_t number)
{
	const struct smr_members *members = &sim->members[id].smr->members;
	unsigned voters = 0, n = 0;

	for (unsigned i = 0; i < members->count; i++) {
		unsigned voter = members->at[i].is.id;

		voters += members->at[i].voter;
		n += members->at[i].voter && ((!sim->durable && voter == id) || has_promised(sim, voter, number));
	}
	if (2 * n <= voters)
		world_violate(sim->world, "promise",
			"member %u accepts entries under a number that %u of %u voters promised", id, n, voters);
}

/* ---- what is decided ---- */

static uint64_t end_of(const struct smr_sim_member *member)
{
	const struct hf_smr *smr = member->smr;
	uint64_t end = smr->applied;
	struct smr_slot slot;

	while (smr_own_slot(smr, end, &slot) == SMR_SLOT_VALID || log_memory_has(&member->sim->logs, member->id, end))
		end++;
	return end;
}

void smr_watch_end(struct smr_sim_member *member)
{
	struct smr_sim *sim = member->sim;

	if (member->smr != NULL && sim->gone_count < SMR_SIM_GONE_MAX)
		sim->gone[sim->gone_count++] =
			(struct smr_sim_gone){.incarnation = member->smr->incarnation, .end = end_of(member)};
}

static bool has_entry(const struct smr_sim *sim, const struct smr_member *voter, uint64_t index)
{
	const struct smr_sim_member *member = &sim->members[voter->is.id];

	if (member->smr != NULL && member->smr->incarnation == voter->incarnation)
		return end_of(member) > index;
	for (unsigned i = 0; i < sim->gone_count; i++)
		if (sim->gone[i].incarnation == voter->incarnation)
			return sim->gone[i].end > index;
	return sim->gone_count == SMR_SIM_GONE_MAX;
}

static void check_decided(struct smr_sim *sim, unsigned id, uint64_t index)
{
	const struct smr_members *newest = &sim->members[id].smr->members;
	unsigned n = 0;

	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL && sim->members[i].smr->members.index > newest->index &&
			sim->members[i].smr->members.index <= index)
			newest = &sim->members[i].smr->members;
	for (unsigned i = 0; i < newest->count; i++)
		n += has_entry(sim, &newest->at[i], index);
	if (2 * n <= newest->count)
		world_violate(sim->world, "decided",
			"member %u takes entry %llu for decided, which %u of %u members have", id,
			(unsigned long long)index, n, newest->count);
}

/* ---- what is durable ---- */

static void check_durable(const struct smr_sim *sim, const struct hf_smr *smr)
{
	const struct smr_durable *durable = smr->durable;
	struct smr_slot slot;

	if (durable->sure > smr->commit || durable->sure > durable->at)
		world_violate(sim->world, "sure", "member %u would not write entry %llu again, and %s", smr->id,
			(unsigned long long)durable->sure - 1,
			durable->sure > smr->commit ? "it is not decided" : "its WAL does not have it");
	if (durable->at != 0 && smr_own_slot(smr, smr_durable_floor(smr), &slot) == SMR_SLOT_LATER)
		world_violate(sim->world, "reused", "member %u needs entry %llu, and its slot has entry %llu", smr->id,
			(unsigned long long)smr_durable_floor(smr), (unsigned long long)slot.index);
	for (uint64_t i = smr->commit; i < durable->shown; i++)
		if (smr_own_slot(smr, i, &slot) == SMR_SLOT_VALID && smr_slot_number(&slot) < durable->shown_number)
			world_violate(sim->world, "durable",
				"member %u says that entry %llu is durable under a number that it has not", smr->id,
				(unsigned long long)i);
}

/* ---- configurations ---- */

static void check_members(const struct smr_sim *sim, const struct hf_smr *smr, const struct smr_members *members)
{
	if (!smr_phase_majority_of(smr, members, smr_phase_set(smr, SMR_STAGE_PROMISED)))
		world_violate(sim->world, "newer", "member %u goes on without a majority of the members of entry %llu",
			smr->id, (unsigned long long)members->index);
}

static void check_logged(const struct smr_sim *sim, const struct hf_smr *smr)
{
	uint8_t bytes[SMR_MEMBERS_BYTES];
	struct smr_members members;
	struct smr_slot slot;
	uint64_t next = 0; /* the origin of the next slot; 0: none continues anything */
	size_t n = 0;

	for (uint64_t i = smr->commit; i < smr->tail; i++) {
		if (smr_own_slot(smr, i, &slot) != SMR_SLOT_VALID || (slot.kind & SMR_KINDS_MASK) != SMR_CONFIG)
			continue;
		if ((slot.kind & SMR_FIRST) != 0) {
			n = 0;
			next = slot.origin;
		}
		if (slot.origin != next || n + slot.bytes > sizeof(bytes)) {
			next = 0;
			continue;
		}
		next++;
		memcpy(bytes + n, smr_slot_at(smr, i) + SMR_SLOT_HEADER, slot.bytes);
		n += slot.bytes;
		if ((slot.kind & SMR_LAST) == 0 || !smr_members_decode(bytes, n, &members))
			continue;
		/* A majority of the told configuration has all decided entries below it (R-S20). */
		if (smr_counts_told(smr) && i < smr->told.index)
			continue;
		members.index = i;
		check_members(sim, smr, &members);
	}
}

/* What a member that is there has applied, and has said. */
static void check_told(const struct smr_sim *sim, const struct hf_smr *smr)
{
	for (unsigned i = 0; i < sim->count; i++) {
		const struct hf_smr *other = sim->members[i].smr;
		const struct smr_link *link = &smr->links[i];

		if (other != NULL && link->peer != NULL && link->incarnation == other->incarnation &&
			link->config_index == other->members.index && link->config_index > smr->members.index)
			check_members(sim, smr, &other->members);
	}
}

/* A process that has ended, or reads its disk, may have applied it. */
static bool lacks(const struct smr_sim *sim, const struct smr_member *voter, uint64_t index)
{
	const struct hf_smr *smr = sim->members[voter->is.id].smr;

	return smr != NULL && smr->incarnation == voter->incarnation && smr->replay == NULL && smr->applied <= index;
}

void smr_watch_settled(const struct smr_sim_member *member)
{
	const struct smr_members *members = &member->smr->members;
	unsigned without = 0;

	for (unsigned i = 0; i < members->count; i++)
		without += lacks(member->sim, &members->at[i], members->index);
	if (2 * without >= members->count)
		world_violate(member->sim->world, "settled", "member %u %s, and %u of %u members have not applied that",
			member->id, smr_members_find(members, member->id) == NULL ? "was removed" : "answers a change",
			without, members->count);
}

void smr_watch_turn(struct smr_sim_member *member)
{
	const struct hf_smr *smr = member->smr;
	struct smr_sim *sim = member->sim;

	if (smr == NULL)
		return;
	if (sim->durable && smr->replay == NULL && smr->restore == NULL)
		check_durable(sim, smr);
	check_grants(member);
	if (smr->members.index == 1 && smr->members.count != sim->founders)
		world_violate(sim->world, "founders", "member %u is in a cluster that %u of %u members founded",
			member->id, smr->members.count, sim->founders);
	if (smr->phase < SMR_PHASE_NOOP)
		return;
	check_reads(sim, smr);
	if (smr->holder != smr->id)
		world_violate(sim->world, "holder", "member %u accepts entries, and member %d holds its log",
			member->id, smr->holder);
	if (!smr->lost && !smr_phase_majority(smr, smr_phase_set(smr, SMR_STAGE_PROMISED)))
		world_violate(sim->world, "majority", "member %u goes on under number %llu without a majority",
			member->id, (unsigned long long)smr->number);
	if (!smr->lost) {
		check_logged(sim, smr);
		check_told(sim, smr);
	}
	if (smr->number != member->accepts_under)
		check_promise(sim, member->id, smr->number);
	member->accepts_under = smr->number;
	if (!sim->durable && smr->commit != member->commit && smr->commit > SMR_FIRST_INDEX)
		check_decided(sim, member->id, smr->commit - 1);
	member->commit = smr->commit;
}
