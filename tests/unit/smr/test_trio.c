/* Three members over real devices: one leads, another one takes its place. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "smr/smr.h"
#include "smr/steps.h"
#include "trio.h"

#define PROPOSALS 200u

static void what_is_proposed_is_applied_by_all_in_order(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		for (uint32_t i = 0; i < PROPOSALS; i++)
			assert_int_equal(trio.members[m].log[i], 1000 + i);
	trio_close(&trio);
}

/* R-S5: what a later leader has decided at a member is no acceptance of what this one has there. */
static void a_leader_that_finds_later_decisions_ends(void **state)
{
	static struct trio trio;
	struct smr_link *link;
	struct hf_smr *smr;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, 8, 0);
	smr = trio_leader(&trio)->smr;
	link = smr->here[0];
	link->stage = SMR_STAGE_NONE;
	link->commit = smr->tail + 1;
	smr_take_in_begin(link);
	assert_int_equal(link->stage, SMR_STAGE_NONE);
	assert_string_equal(smr->abort_why, "a member has entries that a later leader has decided");
	trio_close(&trio);
}

static struct hf_smr *flushed;
static unsigned flushes;

/* Answers come while an entry is applied. */
static void propose_and_flush(struct hf_smr_call *call)
{
	assert_int_equal(call->outcome, HF_SMR_DECIDED);
	if (++flushes < PROPOSALS)
		assert_int_equal(hf_smr_propose(flushed, call), 0);
	hf_smr_flush(flushed);
}

static bool all_are_flushed(struct trio *trio)
{
	(void)trio;
	return flushes >= PROPOSALS + 7;
}

static void an_answer_may_propose_and_flush(void **state)
{
	static const uint32_t values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct hf_smr_call calls[8];
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	flushed = trio_leader(&trio)->smr;
	flushes = 0;
	for (unsigned i = 0; i < 8; i++) {
		calls[i] =
			(struct hf_smr_call){.done = propose_and_flush, .data = &values[i], .bytes = sizeof(values[i])};
		assert_int_equal(hf_smr_propose(flushed, &calls[i]), 0);
	}
	assert_true(trio_until(&trio, all_are_flushed));
	assert_true(trio_until(&trio, trio_all_have_applied));
	for (unsigned m = 0; m < TRIO_MEMBERS; m++) {
		assert_int_equal(trio.members[m].applied, PROPOSALS + 7);
		assert_memory_equal(trio.members[m].log, trio.members[0].log, sizeof(uint32_t) * (PROPOSALS + 7));
	}
	trio_close(&trio);
}

static bool somebody_leads(struct trio *trio)
{
	return trio_leader(trio) != NULL;
}

static void another_member_leads_when_the_leader_is_gone(void **state)
{
	static struct trio trio;
	unsigned first;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	first = trio_leader(&trio)->id;
	trio_stop(&trio, first);
	assert_true(trio_until(&trio, somebody_leads));
	trio_propose_many(&trio, PROPOSALS, 2000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		for (uint32_t i = 0; i < 2 * PROPOSALS && m != first; i++)
			assert_int_equal(trio.members[m].log[i], i < PROPOSALS ? 1000 + i : 2000 + i - PROPOSALS);
	trio_close(&trio);
}

static bool all_know(struct trio *trio)
{
	const struct trio_member *leader = trio_leader(trio);

	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		if (leader == NULL || hf_smr_leader(trio->members[i].smr) != (int)leader->id)
			return false;
	return true;
}

static void who_does_not_lead_takes_no_proposal_and_knows_who_does(void **state)
{
	struct hf_smr_call call = {.data = "abcd", .bytes = 4};
	static struct trio trio;
	unsigned leader;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	assert_true(trio_until(&trio, all_know));
	leader = trio_leader(&trio)->id;
	assert_int_equal(hf_smr_propose(trio.members[(leader + 1) % 3].smr, &call), -ENOTCONN);
	assert_int_equal(hf_smr_read(trio.members[(leader + 1) % 3].smr, &call), -ENOTCONN);
	call.bytes = hf_smr_request_bytes_max(trio.members[leader].smr) + 1;
	assert_int_equal(hf_smr_propose(trio.members[leader].smr, &call), -EMSGSIZE);
	trio_close(&trio);
}

static uint64_t session;

static void opened(struct hf_smr_call *call)
{
	assert_int_equal(call->outcome, HF_SMR_DECIDED);
	assert_int_equal(call->result_bytes, 8);
	session = get_le64(call->result);
}

static bool is_open(struct trio *trio)
{
	(void)trio;
	return session != 0;
}

static void a_request_of_a_session_takes_effect_once(void **state)
{
	struct hf_smr_call call = {.done = opened};
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	session = 0;
	assert_int_equal(hf_smr_session_open(trio_leader(&trio)->smr, &call), 0);
	assert_true(trio_until(&trio, is_open));
	for (unsigned i = 0; i < 3; i++) {
		call = (struct hf_smr_call){.session = session, .sequence = 1};
		assert_int_equal(trio_propose(&trio, 77, &call), HF_SMR_DECIDED);
	}
	assert_true(trio_until(&trio, trio_all_have_applied));
	assert_int_equal(trio.members[0].applied, 1);
	call = (struct hf_smr_call){.session = session}; /* would close it */
	assert_int_equal(hf_smr_propose(trio_leader(&trio)->smr, &call), -EINVAL);
	call = (struct hf_smr_call){.sequence = 1}; /* would open another one */
	assert_int_equal(hf_smr_propose(trio_leader(&trio)->smr, &call), -EINVAL);
	call = (struct hf_smr_call){.session = session + 1, .sequence = 1};
	assert_int_equal(trio_propose(&trio, 78, &call), HF_SMR_SESSION_OVER);
	trio_close(&trio);
}

static void closed(struct hf_smr_call *call)
{
	assert_int_equal(call->outcome, HF_SMR_DECIDED);
	session = 0;
}

static bool is_closed(struct trio *trio)
{
	(void)trio;
	return session == 0;
}

/* Its last request is among those that are refused, although it took effect. */
static void a_request_of_a_session_that_was_closed_is_refused(void **state)
{
	struct hf_smr_call call = {.done = opened};
	static struct trio trio;
	uint64_t number;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	session = 0;
	assert_int_equal(hf_smr_session_open(trio_leader(&trio)->smr, &call), 0);
	assert_true(trio_until(&trio, is_open));
	number = session;
	call = (struct hf_smr_call){.session = number, .sequence = 1};
	assert_int_equal(trio_propose(&trio, 77, &call), HF_SMR_DECIDED);
	call = (struct hf_smr_call){.done = closed};
	assert_int_equal(hf_smr_session_close(trio_leader(&trio)->smr, &call, number), 0);
	assert_true(trio_until(&trio, is_closed));
	for (uint32_t sequence = 1; sequence < 3; sequence++) {
		call = (struct hf_smr_call){.session = number, .sequence = sequence};
		assert_int_equal(trio_propose(&trio, 78, &call), HF_SMR_SESSION_OVER);
	}
	assert_true(trio_until(&trio, trio_all_have_applied));
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		assert_int_equal(trio.members[i].applied, 1);
	trio_close(&trio);
}

static bool changed;

static struct {
	struct hf_smr *leader;
	uint8_t id;
	struct hf_smr_call *call;
	int rc;
} removal;

static bool removal_is_answered(struct trio *trio)
{
	(void)trio;
	removal.rc = hf_smr_remove(removal.leader, removal.id, removal.call);
	return removal.rc != -EHOSTDOWN;
}

/* Once the leader has counted enough heartbeats of those that are left. */
static void remove_member(struct trio *trio, struct hf_smr *leader, unsigned id, struct hf_smr_call *call)
{
	removal.leader = leader;
	removal.id = (uint8_t)id;
	removal.call = call;
	assert_true(trio_until(trio, removal_is_answered));
	assert_int_equal(removal.rc, 0);
}

static void change_done(struct hf_smr_call *call)
{
	(void)call;
	changed = true;
}

static bool is_changed(struct trio *trio)
{
	(void)trio;
	return changed;
}

static void a_change_that_is_refused_leaves_the_one_under_way_as_it_is(void **state)
{
	struct hf_smr_member other = {.id = 9, .name = "other"};
	struct hf_smr_call first = {.done = change_done}, second = {.done = change_done};
	struct hf_smr_status status;
	static struct trio trio;
	struct hf_smr *leader;
	unsigned out;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	leader = trio_leader(&trio)->smr;
	out = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	changed = false;
	remove_member(&trio, leader, out, &first);
	assert_true(trio_until(&trio, is_changed));
	assert_int_equal(first.outcome, HF_SMR_DECIDED);
	trio_stop(&trio, out);
	changed = false;
	assert_int_equal(hf_smr_add(leader, &trio.who[out], &first), 0);
	assert_int_equal(hf_smr_add(leader, &other, &second), -EBUSY);
	trio_start(&trio, out);
	assert_true(trio_until(&trio, is_changed));
	assert_int_equal(first.outcome, HF_SMR_DECIDED);
	hf_smr_status(leader, &status);
	assert_int_equal(status.member_count, TRIO_MEMBERS);
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		assert_int_equal(status.members[i].id, i);
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
}

/* A process that was asked for and never comes does not keep another one from taking a member's place. */
static void a_member_is_replaced_while_another_one_is_awaited(void **state)
{
	struct hf_smr_member other = {.id = 9, .name = "other"};
	struct hf_smr_call call = {.done = change_done};
	static struct trio trio;
	unsigned out;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	changed = false;
	assert_int_equal(hf_smr_add(trio_leader(&trio)->smr, &other, &call), 0);
	out = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	trio_stop(&trio, out);
	trio_start(&trio, out);
	assert_true(trio_until(&trio, trio_all_follow));
	assert_false(changed);
	trio_propose_many(&trio, PROPOSALS, 2000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
	assert_true(changed); /* it ended with the leader */
	assert_int_equal(call.outcome, HF_SMR_UNKNOWN);
}

static unsigned ended;

static void count_end(struct hf_smr_call *call)
{
	(void)call;
	ended++;
}

static bool two_have_ended(struct trio *trio)
{
	(void)trio;
	return ended == 2;
}

/* As when its address was wrong: else no other change is possible while this member leads. */
static void an_addition_ends_when_its_member_is_removed(void **state)
{
	struct hf_smr_member other = {.id = 9, .name = "other"};
	struct hf_smr_call add = {.done = count_end}, drop = {.done = count_end};
	static struct trio trio;
	struct hf_smr *leader;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	leader = trio_leader(&trio)->smr;
	ended = 0;
	assert_int_equal(hf_smr_add(leader, &other, &add), 0);
	assert_int_equal(hf_smr_remove(leader, 8, &drop), -ENOENT);
	assert_int_equal(hf_smr_remove(leader, 9, &drop), 0);
	assert_true(trio_until(&trio, two_have_ended));
	assert_int_equal(add.outcome, HF_SMR_NOT_LEADER);
	assert_int_equal(drop.outcome, HF_SMR_DECIDED);
	assert_int_equal(hf_smr_remove(leader, 9, &drop), -ENOENT);
	ended = 1;
	remove_member(&trio, leader, (trio_leader(&trio)->id + 1) % TRIO_MEMBERS, &drop);
	assert_true(trio_until(&trio, two_have_ended));
	assert_int_equal(drop.outcome, HF_SMR_DECIDED);
	trio_close(&trio);
}

static struct trio_member *removed;

static bool is_deposed(struct trio *trio)
{
	(void)trio;
	return !hf_smr_is_leader(removed->smr);
}

static bool has_left(struct trio *trio)
{
	(void)trio;
	return removed->events[HF_SMR_REMOVED] == 1;
}

static void begin_removal_of_leader(struct trio *trio, struct hf_smr_call *call)
{
	trio_open(trio);
	trio_start_all(trio);
	removed = trio_leader(trio);
	ended = 1;
	remove_member(trio, removed->smr, removed->id, call);
}

/* It leads no more when it has applied that, and answers when the others need it no more. */
static void a_leader_that_is_removed_answers_before_it_leaves(void **state)
{
	struct hf_smr_call call = {.done = count_end};
	static struct trio trio;

	(void)state;
	begin_removal_of_leader(&trio, &call);
	assert_true(trio_until(&trio, two_have_ended));
	assert_int_equal(call.outcome, HF_SMR_DECIDED);
	assert_false(has_left(&trio)); /* so that the program can pass the answer on */
	assert_true(trio_until(&trio, has_left));
	trio_stop(&trio, removed->id);
	assert_int_equal(ended, 2);
	assert_true(trio_until(&trio, trio_all_follow));
	trio_propose_many(&trio, PROPOSALS, 1000);
	trio_close(&trio);
}

/* Its program stops it before the others have applied the removal. */
static void a_leader_that_is_removed_and_stopped_answers_once(void **state)
{
	struct hf_smr_call call = {.done = count_end};
	static struct trio trio;

	(void)state;
	begin_removal_of_leader(&trio, &call);
	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		if (id != removed->id)
			hf_loop_remove_poller(trio.loop, &trio.members[id].smr->poller);
	assert_true(trio_until(&trio, is_deposed));
	assert_int_equal(ended, 1);
	trio_stop(&trio, removed->id);
	assert_int_equal(ended, 2);
	assert_int_equal(call.outcome, HF_SMR_UNKNOWN);
	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		if (id != removed->id)
			hf_loop_add_poller(trio.loop, &trio.members[id].smr->poller);
	trio_close(&trio);
}

/* As one that was out of reach meanwhile: the entry is kept from it, and it hears of the new configuration. */
static void a_member_that_missed_its_removal_is_told(void **state)
{
	struct hf_smr_call call = {.done = count_end};
	static struct trio trio;
	struct hf_smr *smr;

	(void)state;
	trio_open(&trio);
	trio.config.patience_ns = 1000000000000;
	trio_start_all(&trio);
	removed = &trio.members[(trio_leader(&trio)->id + 1) % TRIO_MEMBERS];
	smr = removed->smr;
	assert_true(trio_until(&trio, trio_all_have_applied));
	hf_loop_remove_poller(trio.loop, &smr->poller);
	ended = 1;
	remove_member(&trio, trio_leader(&trio)->smr, removed->id, &call);
	assert_true(trio_until(&trio, two_have_ended));
	memset(smr_slot_at(smr, smr->applied), 0, smr->geometry.slot_bytes);
	hf_loop_add_poller(trio.loop, &smr->poller);
	assert_true(trio_until(&trio, has_left));
	assert_int_equal(smr->members.count, TRIO_MEMBERS); /* it has not applied the removal */
	trio_close(&trio);
}

static bool leader_misses_one(struct trio *trio)
{
	struct hf_smr_status status = {0};
	unsigned confirmed = 0;

	if (trio_leader(trio) != NULL)
		hf_smr_status(trio_leader(trio)->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++)
		confirmed += status.members[i].confirmed;
	return confirmed == TRIO_MEMBERS - 1;
}

/* Two would be left, one of them dead: nobody could decide anything, and nobody would lead. */
static void a_removal_that_leaves_no_majority_is_refused(void **state)
{
	struct hf_smr_call call = {.done = change_done};
	struct hf_smr_status status;
	static struct trio trio;
	unsigned dead, alive;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	dead = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	alive = (trio_leader(&trio)->id + 2) % TRIO_MEMBERS;
	trio_stop(&trio, dead);
	assert_true(trio_until(&trio, leader_misses_one));
	assert_int_equal(hf_smr_remove(trio_leader(&trio)->smr, (uint8_t)alive, &call), -EHOSTDOWN);
	assert_int_equal(hf_smr_remove(trio_leader(&trio)->smr, (uint8_t)trio_leader(&trio)->id, &call), -EHOSTDOWN);
	trio_propose_many(&trio, PROPOSALS, 2000);
	changed = false;
	assert_int_equal(hf_smr_remove(trio_leader(&trio)->smr, (uint8_t)dead, &call), 0);
	assert_true(trio_until(&trio, is_changed));
	assert_int_equal(call.outcome, HF_SMR_DECIDED);
	hf_smr_status(trio_leader(&trio)->smr, &status);
	assert_int_equal(status.member_count, TRIO_MEMBERS - 1);
	trio_propose_many(&trio, PROPOSALS, 3000);
	trio_close(&trio);
}

/* Whose program cannot serve lets another one lead, and follows. */
static void a_member_that_is_unwell_does_not_lead(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	trio.unwell = trio_leader(&trio)->id;
	hf_smr_set_well(trio.members[trio.unwell].smr, false);
	assert_true(trio_until(&trio, trio_another_one_leads));
	trio_propose_many(&trio, PROPOSALS, 2000);
	hf_smr_set_well(trio.members[trio.unwell].smr, true);
	assert_true(trio_until(&trio, trio_all_follow));
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
}

/* As if its NIC had died with the entry, and had taken the next one over another rail. */
static void lose_an_entry(const struct hf_smr *leader, struct hf_smr *member)
{
	const struct smr_slot slot = {.index = leader->tail + 1, .commit = 2, .kind = SMR_NOOP | SMR_FIRST | SMR_LAST};

	(void)smr_slot_store(&member->geometry, smr_slot_at(member, slot.index), &slot, leader->number, NULL);
}

static bool two_are_confirmed(struct trio *trio)
{
	struct hf_smr_status status;
	unsigned confirmed = 0;

	if (!trio_another_one_leads(trio))
		return false;
	hf_smr_status(trio_leader(trio)->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++)
		confirmed += status.members[i].confirmed;
	return confirmed == TRIO_MEMBERS - 1;
}

static void who_has_lost_an_entry_counts_when_it_was_started_again(void **state)
{
	struct hf_smr_status status;
	static struct trio trio;
	unsigned lost;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio.unwell = trio_leader(&trio)->id;
	lost = trio.unwell == TRIO_MEMBERS - 1 ? 1 : TRIO_MEMBERS - 1; /* the lowest one that is well leads next */
	lose_an_entry(trio.members[trio.unwell].smr, trio.members[lost].smr);
	hf_smr_set_well(trio.members[trio.unwell].smr, false);
	assert_true(trio_until(&trio, two_are_confirmed));
	hf_smr_status(trio_leader(&trio)->smr, &status);
	assert_false(status.members[lost].confirmed);
	trio_propose_many(&trio, PROPOSALS, 2000);
	trio_stop(&trio, lost);
	trio_start(&trio, lost);
	assert_true(trio_until(&trio, trio_all_follow));
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
}

/* What its device had acknowledged may be lost, though its memory can be read and written over another one. */
static void who_has_stepped_out_does_not_count(void **state)
{
	struct hf_smr_call call = {0};
	static struct trio trio;
	unsigned out, other;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	out = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	other = (trio_leader(&trio)->id + 2) % TRIO_MEMBERS;
	trio.members[out].smr->listener.events.device_died(trio.members[out].node, 0, trio.members[out].smr);
	assert_int_equal(trio.members[out].events[HF_SMR_FAILED], 1);
	assert_true(trio_until(&trio, leader_misses_one));
	assert_int_equal(trio_propose(&trio, 2000, &call), HF_SMR_DECIDED);
	assert_true(trio.members[other].smr->commit >= call.index);
	trio_close(&trio);
}

static unsigned refusals;
static const char *words; /* that are counted */

static void count_words(enum log_level level, const char *line, void *context)
{
	(void)level, (void)context;
	refusals += strstr(line, words) != NULL;
}

static void count_lines(const char *of)
{
	words = of;
	refusals = 0;
	log_set_sink(count_words, NULL);
}

static bool two_refuse(struct trio *trio)
{
	(void)trio;
	return refusals >= 2;
}

static struct trio_member second;

static bool second_counts(struct trio *trio)
{
	struct hf_smr_status status;

	if (trio_leader(trio) == NULL)
		return false;
	hf_smr_status(trio_leader(trio)->smr, &status);
	return status.members[second.id].confirmed && status.members[second.id].incarnation == second.smr->incarnation;
}

/* Else they displace each other for ever: each is a newcomer to the others while the other one is the member. */
static void a_second_process_of_a_member_waits_until_the_first_has_ended(void **state)
{
	static struct trio trio;
	unsigned id;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	id = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	count_lines("refused as a member: another process is member");
	trio_start_second(&trio, &second, id);
	assert_true(trio_until(&trio, two_refuse));
	trio_propose_many(&trio, PROPOSALS, 2000);
	log_set_sink(NULL, NULL);
	assert_int_equal(refusals, 2); /* once each */
	assert_int_equal(trio.members[id].events[HF_SMR_REMOVED], 0);
	assert_true(trio_all_follow(&trio));
	trio_stop(&trio, id);
	assert_true(trio_until(&trio, second_counts));
	trio_propose_many(&trio, PROPOSALS, 3000);
	trio_stop_member(&second);
	trio_close(&trio);
}

static bool all_are_missed(struct trio *trio)
{
	(void)trio;
	return refusals >= 4; /* two miss the third, and that one both of them */
}

static void who_finds_a_node_without_its_cluster_says_so(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	count_lines("has no replica of this cluster");
	trio_start(&trio, 0);
	trio_start(&trio, 1);
	trio.config.cluster = "other";
	trio_start(&trio, 2);
	assert_true(trio_until(&trio, all_are_missed));
	log_set_sink(NULL, NULL);
	trio_close(&trio);
}

/* As when it stopped to lead before it could apply the entry. */
static void a_call_that_is_decided_and_not_applied_ends_with_the_replica(void **state)
{
	struct hf_smr_call call = {.done = count_end};
	static struct trio trio;
	struct hf_smr *smr;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	smr = trio.members[(trio_leader(&trio)->id + 1) % TRIO_MEMBERS].smr;
	smr->calls++;
	smr->logged = &call;
	smr->logged_end = &call.next;
	ended = 0;
	trio_close(&trio);
	assert_int_equal(ended, 1);
	assert_int_equal(call.outcome, HF_SMR_UNKNOWN);
}

#define MANY_CALLS 20000u

static bool is_writable(struct trio *trio)
{
	return trio_leader(trio) != NULL && trio_leader(trio)->events[HF_SMR_WRITABLE] > 0;
}

static bool all_have_ended(struct trio *trio)
{
	(void)trio;
	return ended == MANY_CALLS;
}

static void who_proposes_too_much_is_told_when_there_is_room(void **state)
{
	static struct hf_smr_call calls[MANY_CALLS];
	static struct trio trio;
	unsigned taken = 0;
	int rc = 0;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	ended = 0;
	for (unsigned i = 0; i < MANY_CALLS; i++)
		calls[i] = (struct hf_smr_call){.done = count_end, .data = &words, .bytes = 4};
	while (taken < MANY_CALLS && rc == 0) {
		rc = hf_smr_propose(trio_leader(&trio)->smr, &calls[taken]);
		taken += rc == 0;
	}
	assert_int_equal(rc, -EAGAIN);
	assert_true(trio_until(&trio, is_writable));
	while (taken < MANY_CALLS)
		assert_int_equal(hf_smr_propose(trio_leader(&trio)->smr, &calls[taken++]), 0);
	assert_true(trio_until(&trio, all_have_ended));
	for (unsigned i = 0; i < MANY_CALLS; i++)
		assert_int_equal(calls[i].outcome, HF_SMR_DECIDED);
	trio_close(&trio);
}

static bool all_refuse(struct trio *trio)
{
	(void)trio;
	return refusals >= 8; /* two and the third, both ways: a line at who refuses and at who is refused */
}

static void members_with_other_slots_refuse_each_other(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	count_lines("slots of 256 bytes at member");
	trio.config.slots = 1024;
	trio_start(&trio, 0);
	trio_start(&trio, 1);
	trio.config.slots = 512;
	trio_start(&trio, 2);
	assert_true(trio_until(&trio, all_refuse));
	log_set_sink(NULL, NULL);
	assert_null(trio_leader(&trio));
	trio_close(&trio);
}

static void the_last_voter_is_not_removed(void **state)
{
	struct hf_smr_call call = {.done = change_done};
	static struct trio trio;
	unsigned leader;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	leader = trio_leader(&trio)->id;
	for (unsigned i = 1; i < TRIO_MEMBERS; i++) {
		changed = false;
		remove_member(&trio, trio.members[leader].smr, (leader + i) % TRIO_MEMBERS, &call);
		assert_true(trio_until(&trio, is_changed));
		assert_int_equal(call.outcome, HF_SMR_DECIDED);
	}
	assert_int_equal(hf_smr_remove(trio.members[leader].smr, (uint8_t)leader, &call), -EINVAL);
	trio_propose_many(&trio, PROPOSALS, 1000);
	trio_close(&trio);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_that_is_decided_and_not_applied_ends_with_the_replica),
		cmocka_unit_test(who_proposes_too_much_is_told_when_there_is_room),
		cmocka_unit_test(members_with_other_slots_refuse_each_other),
		cmocka_unit_test(the_last_voter_is_not_removed),
		cmocka_unit_test(who_finds_a_node_without_its_cluster_says_so),
		cmocka_unit_test(a_second_process_of_a_member_waits_until_the_first_has_ended),
		cmocka_unit_test(who_has_stepped_out_does_not_count),
		cmocka_unit_test(what_is_proposed_is_applied_by_all_in_order),
		cmocka_unit_test(a_leader_that_finds_later_decisions_ends),
		cmocka_unit_test(an_answer_may_propose_and_flush),
		cmocka_unit_test(another_member_leads_when_the_leader_is_gone),
		cmocka_unit_test(who_does_not_lead_takes_no_proposal_and_knows_who_does),
		cmocka_unit_test(a_request_of_a_session_takes_effect_once),
		cmocka_unit_test(a_request_of_a_session_that_was_closed_is_refused),
		cmocka_unit_test(a_change_that_is_refused_leaves_the_one_under_way_as_it_is),
		cmocka_unit_test(a_member_is_replaced_while_another_one_is_awaited),
		cmocka_unit_test(an_addition_ends_when_its_member_is_removed),
		cmocka_unit_test(a_leader_that_is_removed_answers_before_it_leaves),
		cmocka_unit_test(a_leader_that_is_removed_and_stopped_answers_once),
		cmocka_unit_test(a_member_that_missed_its_removal_is_told),
		cmocka_unit_test(a_removal_that_leaves_no_majority_is_refused),
		cmocka_unit_test(a_member_that_is_unwell_does_not_lead),
		cmocka_unit_test(who_has_lost_an_entry_counts_when_it_was_started_again),
	};

	if (argc > 1)
		trio_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
