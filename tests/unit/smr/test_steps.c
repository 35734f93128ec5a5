/* Steps of one replica whose others are made up: what no run of real members does at will. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "one.h"
#include "vqp/objects.h"

/* It grants to others meanwhile: what they decided until then is no older leader's. */
static void a_majority_that_was_lost_counts_from_when_it_is_there_again(void **state)
{
	uint64_t again_ns;

	(void)state;
	one_begin();
	smr.phase = SMR_PHASE_ASK;
	smr.links[1].stage = SMR_STAGE_READ;
	smr.links[2].stage = SMR_STAGE_HEAD; /* is waited for */
	(void)smr_acquire_turn(&smr);
	assert_int_equal(smr.phase, SMR_PHASE_ASK);
	assert_int_not_equal(smr.granted_boot_ns, 0);
	smr_mark_lost(&smr.links[1]);
	smr.now_ns += SECOND;
	(void)smr_acquire_turn(&smr);
	again_ns = hf_env_boot_ns(hf_env_host());
	smr.links[1].stage = SMR_STAGE_READ;
	(void)smr_acquire_turn(&smr);
	assert_int_equal(smr.phase, SMR_PHASE_ASK); /* the other one is waited for anew */
	assert_true(smr.granted_boot_ns >= again_ns);
	smr.now_ns += SECOND;
	(void)smr_acquire_turn(&smr);
	assert_int_equal(smr.phase, SMR_PHASE_PROMISE);
	one_end();
}

/* A member asks for the log of one that would elect itself: it is told to wait, and asks on (R-S16). */
static void a_log_is_granted_only_to_the_member_that_its_owner_prefers(void **state)
{
	const uint64_t request = htole64(smr_slot_seal(7));
	struct hf_vqp vqp = {.state = HF_VQP_UP};

	(void)state;
	one_begin();
	smr.links[1].ends[SMR_IN].vqp = &vqp;
	(void)memcpy(smr.back + SMR_MAILBOX(1), &request, sizeof(request));
	(void)smr_grant_turn(&smr);
	assert_int_equal(smr.holder, SMR_NOBODY);
	assert_int_equal(smr.granted, 0);
	smr.choice = 1;
	(void)smr_grant_turn(&smr);
	assert_int_equal(smr.holder, 1);
	assert_int_equal(smr.links[1].granted, 7);
	assert_int_equal(smr.granted, 1);
	one_end();
}

static uint32_t apply_nothing(void *context, const struct hf_smr_applied *request, void *result)
{
	(void)context, (void)request, (void)result;
	return 0;
}

static unsigned open_snapshots;

static int snapshot_open(void *context, void **snapshot_out)
{
	(void)context;
	open_snapshots++;
	*snapshot_out = &open_snapshots;
	return 0;
}

static void snapshot_close(void *context, void *snapshot)
{
	(void)context;
	assert_ptr_equal(snapshot, &open_snapshots);
	open_snapshots--;
}

static int restore_open(void *context)
{
	(void)context;
	return 0;
}

static void who_takes_a_snapshot_gives_none(void **state)
{
	(void)state;
	one_begin();
	smr.app = (struct hf_smr_app){
		.snapshot_open = snapshot_open, .snapshot_close = snapshot_close, .restore_open = restore_open};
	smr.sessions = smr_sessions_new(4);
	smr.links[1].snapshot = smr_snapshot_open(&smr, 1);
	assert_non_null(smr.links[1].snapshot);
	smr.giving_snapshots = open_snapshots;
	smr_restore_begin(&smr);
	assert_int_equal(smr.role, HF_SMR_RESTORING);
	assert_null(smr.links[1].snapshot);
	assert_int_equal(open_snapshots, 0);
	assert_int_equal(smr.giving_snapshots, 0);
	smr_restore_drop(&smr);
	smr_sessions_free(smr.sessions);
	one_end();
}

static struct smr_wr *post(struct smr_link *link, enum smr_wr_type type, uint64_t reads)
{
	struct smr_end *end = &link->ends[SMR_OUT];
	struct smr_wr *wr = &end->wrs[end->tail++ % SMR_WRS_MAX];

	*wr = (struct smr_wr){.type = type, .life = link->life, .reads = reads, .posted_ns = smr.now_ns};
	return wr;
}

/* That one was lost with entries on their way: what was posted since reads none of them. */
static void a_lost_follower_holds_the_ring_up_only_while_its_slots_are_read(void **state)
{
	struct smr_link *lost = &smr.links[1];

	(void)state;
	one_begin();
	smr.role = HF_SMR_LEADER;
	smr.applied = smr.commit = smr.tail = 50;
	lost->stage = SMR_STAGE_CONFIRMED;
	lost->acked = 20;
	(void)post(lost, SMR_WR_SLOTS, 20);
	(void)post(lost, SMR_WR_SLOTS, 23);
	smr_mark_lost(lost);
	lost->acked = 40; /* as when it is taken in again */
	(void)post(lost, SMR_WR_HEAD, 0);
	assert_int_equal(smr_recycle_floor(&smr), 20);
	lost->ends[SMR_OUT].head++;
	assert_int_equal(smr_recycle_floor(&smr), 23);
	lost->ends[SMR_OUT].head++;
	assert_int_equal(smr_recycle_floor(&smr), 50);
	one_end();
}

static void take_log(void)
{
	smr_grant_take(&smr);
	assert_true(smr_grant_turn(&smr));
	assert_int_equal(smr.holder, smr.id);
}

static void set_promise(uint64_t word)
{
	put_le64(smr.log + SMR_LOG_PROMISE, word);
}

/* It lost to another value, which the snapshot has; its owner would tell a commit that covers it. */
static void what_a_snapshot_covers_is_no_value_for_the_next_holder(void **state)
{
	struct smr_slot slot;

	(void)state;
	one_begin();
	one_put_slot(smr_slot_at(&smr, 10), 10, 0x101);
	one_put_slot(smr_slot_at(&smr, 11), 11, 0x101);
	smr.oldest = smr.commit = smr.applied = 11;
	assert_int_equal(smr_own_slot(&smr, 10, &slot), SMR_SLOT_VALID);
	take_log();
	assert_int_equal(smr_own_slot(&smr, 10, &slot), SMR_SLOT_BROKEN);
	assert_int_equal(smr_own_slot(&smr, 11, &slot), SMR_SLOT_VALID);
	one_end();
}

/* No wr is out that would fail, as while disks are awaited: the vqp says it. */
static void a_log_that_is_taken_away_is_missed_at_the_next_pulse(void **state)
{
	struct hf_vqp vqp = {.grants = {.theirs = 3, .armed = 3}};

	(void)state;
	one_begin();
	smr.links[1].ends[SMR_OUT].vqp = &vqp;
	smr.links[1].stage = SMR_STAGE_CONFIRMED;
	smr_acquire_pulse(&smr);
	assert_int_equal(smr.links[1].stage, SMR_STAGE_CONFIRMED);
	vqp.grants.theirs = 4;
	vqp.grants.armed = 0;
	smr_acquire_pulse(&smr);
	assert_int_equal(smr.links[1].stage, SMR_STAGE_NONE);
	one_end();
}

/* A log may be lost with a READ of it out, and be there again: it is read again. */
static void a_log_that_was_lost_while_it_was_read_is_read_again(void **state)
{
	(void)state;
	one_begin();
	smr.links[1].stage = SMR_STAGE_PROMISED;
	smr.links[1].fetching = true;
	smr_mark_lost(&smr.links[1]);
	assert_false(smr.links[1].fetching);
	one_end();
}

/* Access is given by an exchange with it. */
static void a_candidate_that_dies_before_it_has_the_log_does_not_hold_it(void **state)
{
	(void)state;
	one_begin();
	smr.giving = SMR_GIVING_GIVE;
	smr.giving_to = 1;
	smr_grant_pulse(&smr);
	assert_false(smr.links[1].ends[SMR_IN].stale);
	smr_elect_silent(&smr.links[1].elect);
	smr_grant_pulse(&smr);
	assert_true(smr.links[1].ends[SMR_IN].stale);
	one_end();
}

/* The next holder of the own log writes there, and the NIC may send a WRITE once more. */
static void what_still_reads_the_ring_ends_with_the_attempt(void **state)
{
	(void)state;
	one_begin();
	smr.phase = SMR_PHASE_LEAD;
	smr.role = HF_SMR_LEADER;
	smr.applied = smr.commit = smr.tail = 30;
	(void)post(&smr.links[1], SMR_WR_SLOTS, 20);
	(void)post(&smr.links[2], SMR_WR_COMMIT, 0);
	smr_abort(&smr, "the test says so");
	assert_true(smr.links[1].ends[SMR_OUT].stale);
	assert_false(smr.links[2].ends[SMR_OUT].stale);
	one_end();
}

/* The next one would choose a number below one that was promised here. */
static void a_promise_that_was_cut_off_leaves_the_one_before(void **state)
{
	uint64_t number;

	(void)state;
	one_begin();
	smr.holder = 1;
	set_promise(smr_slot_seal(0x1101));
	take_log();
	smr.holder = 2;
	set_promise((smr_slot_seal(0x2202) & ~0xffffull) | (smr_slot_seal(0x1101) & 0xffff));
	assert_false(smr_slot_open(get_le64(smr.log + SMR_LOG_PROMISE), &number));
	take_log();
	assert_true(smr_slot_open(get_le64(smr.log + SMR_LOG_PROMISE), &number));
	assert_int_equal(number, 0x1101);
	one_end();
}

/* Of the holder before member 1, which sent that request. */
static void end_revocation(uint32_t request)
{
	smr.giving = SMR_GIVING_REVOKE;
	smr.giving_to = 1;
	smr.giving_request = request;
	smr.giving_done = true;
	(void)smr_grant_turn(&smr);
}

/* Its process ended while the holder before was cut off; another one has its place, and has not asked. */
static void a_request_of_a_process_that_is_gone_is_not_granted(void **state)
{
	(void)state;
	one_begin();
	smr.holder = 2;
	smr.choice = 1;
	end_revocation(5);
	assert_int_equal(smr.giving, SMR_GIVING_NONE);
	assert_int_equal(smr.holder, SMR_NOBODY);
	assert_int_equal(smr.links[1].granted, 0);
	one_end();
}

/* It began to take a snapshot while the holder before was cut off (R-S22). */
static void a_log_is_not_given_while_its_member_has_no_state(void **state)
{
	(void)state;
	one_begin();
	smr.holder = 2;
	smr.choice = 1;
	put_le64(smr.back + SMR_MAILBOX(1), smr_slot_seal(5));
	smr.role = HF_SMR_RESTORING;
	end_revocation(5);
	assert_int_equal(smr.holder, SMR_NOBODY);
	assert_int_equal(smr.links[1].granted, 0);
	smr.role = HF_SMR_FOLLOWER;
	end_revocation(5);
	assert_int_equal(smr.holder, 1);
	assert_int_equal(smr.links[1].granted, 5);
	one_end();
}

/* ---- members that lack entries, or a majority ---- */

static void who_lacks_entries_and_takes_no_snapshot_does_not_lead(void **state)
{
	(void)state;
	one_begin();
	assert_true(smr_public_ready(&smr));
	smr_restore_begin(&smr);
	assert_int_equal(smr.role, HF_SMR_FOLLOWER);
	assert_false(smr_public_ready(&smr));
	one_put_slot(smr_slot_at(&smr, SMR_FIRST_INDEX), SMR_FIRST_INDEX, 0x101);
	smr.applied = smr.oldest = smr.commit = smr.tail = SMR_FIRST_INDEX;
	assert_true(smr_follow_given(&smr, smr_slot_at(&smr, SMR_FIRST_INDEX)));
	assert_true(smr_public_ready(&smr));
	one_end();
}

/* All others may wait for one as well, as after a power loss. */
static void who_finds_no_snapshot_follows_again_with_what_it_has(void **state)
{
	(void)state;
	one_begin();
	smr.app.restore_open = restore_open;
	smr_restore_begin(&smr);
	assert_int_equal(smr.role, HF_SMR_RESTORING);
	for (unsigned i = 0; i < 10 && smr.restore != NULL; i++) {
		smr.now_ns += SECOND / 2;
		(void)smr_restore_turn(&smr);
	}
	assert_null(smr.restore);
	assert_int_equal(smr.role, HF_SMR_FOLLOWER);
	one_end();
}

/* It prefers itself, and would grant its log to nobody. */
static void who_tries_to_lead_in_vain_leaves_it_to_others_by_turns(void **state)
{
	(void)state;
	one_begin();
	smr.here[0] = NULL;
	smr.config.stuck_ns = SECOND;
	smr.acquiring_ns = smr.now_ns;
	for (unsigned i = 0; i < 4; i++) {
		smr_public_pulse(&smr);
		assert_int_equal(smr.choice, i % 2 == 0 ? 0 : SMR_NOBODY);
		smr.now_ns += SECOND;
	}
	one_end();
}

static void configurations_that_make_no_sense_are_refused(void **state)
{
	const struct hf_smr_member twice[2] = {{.id = 3}, {.id = 3}};
	struct hf_smr_config config = {.cluster = "one", .id = 3, .members = twice, .member_count = 2};
	const struct hf_smr_app app = {.apply = apply_nothing};
	struct hf_error error = {0};
	struct hf_smr *none;

	(void)state;
	assert_int_equal(hf_smr_start(NULL, &config, &app, NULL, &none, &error), -EINVAL);
	assert_non_null(strstr(error.text, "listed twice"));
	config.member_count = 1;
	config.sessions = 0x80000001u;
	assert_int_equal(hf_smr_start(NULL, &config, &app, NULL, &none, &error), -EINVAL);
	assert_non_null(strstr(error.text, "sessions"));
}

/* Its CONFIG entry could never be written: nothing would be proposed any more. */
static void a_ring_that_is_too_small_for_its_members_is_refused(void **state)
{
	struct hf_smr_member who[5] = {{.id = 0}, {.id = 1}, {.id = 2}, {.id = 3}, {.id = 4}};
	struct hf_smr_config config = {
		.cluster = "one", .members = who, .member_count = 5, .slots = 16, .slot_bytes = SLOT_BYTES};
	const struct hf_smr_app app = {.apply = apply_nothing};
	struct hf_error error = {0};
	struct hf_smr_call call = {0};
	struct hf_smr *none;

	(void)state;
	assert_int_equal(hf_smr_start(NULL, &config, &app, NULL, &none, &error), -EINVAL);
	assert_non_null(strstr(error.text, "5 members takes 8 slots of 128 bytes, and an entry has at most 4 of 16"));
	one_begin();
	smr.role = HF_SMR_LEADER;
	smr.geometry.span = smr_members_slots(VOTERS, SLOT_BYTES);
	assert_int_equal(hf_smr_add(&smr, &who[4], &call), -ENOSPC);
	smr.geometry.span = smr_members_slots(VOTERS + 1, SLOT_BYTES);
	assert_int_equal(hf_smr_add(&smr, &who[4], &call), 0);
	one_end();
}

/* Returns the follower that holds the ring up; the other one has applied all. */
static struct smr_link *lead_with_a_full_ring(void)
{
	one_begin();
	smr.role = HF_SMR_LEADER;
	smr.phase = SMR_PHASE_LEAD;
	smr.links[1].stage = smr.links[2].stage = SMR_STAGE_CONFIRMED;
	smr.links[2].public[SMR_PUBLIC_APPLIED] = smr.applied = smr.commit = smr.tail = SLOTS;
	return &smr.links[1];
}

/* It is slow, and what it has applied grows. */
static void a_follower_that_moves_is_not_left_behind(void **state)
{
	struct smr_link *slow = lead_with_a_full_ring();

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		slow->public[SMR_PUBLIC_APPLIED]++;
		smr_recycle_turn(&smr);
		smr.now_ns += SECOND * 2 / 3;
		smr_recycle_turn(&smr);
		assert_false(slow->ends[SMR_OUT].stale);
	}
	smr.now_ns += SECOND;
	smr_recycle_turn(&smr);
	assert_true(slow->ends[SMR_OUT].stale);
	one_end();
}

/* It has come so recently that too few of its heartbeats were seen; one whose heartbeat stands has failed. */
static void a_follower_that_is_new_is_not_left_behind(void **state)
{
	struct smr_link *new = lead_with_a_full_ring();

	(void)state;
	new->elect = (struct smr_elect){.score = SMR_ELECT_FAILED};
	smr_recycle_turn(&smr);
	assert_false(new->ends[SMR_OUT].stale);
	smr_elect_silent(&new->elect);
	smr_recycle_turn(&smr);
	assert_true(new->ends[SMR_OUT].stale);
	one_end();
}

static unsigned answered;

static void count_answer(struct hf_smr_call *call)
{
	assert_int_equal(call->outcome, HF_SMR_UNKNOWN);
	answered++;
}

/* It is decided, and a snapshot takes the place of applying it: its result is lost. */
static void a_decided_call_that_a_snapshot_covers_ends(void **state)
{
	struct hf_smr_call call = {.done = count_answer, .wait = 10};

	(void)state;
	one_begin();
	smr.app.restore_open = restore_open;
	smr.phase = SMR_PHASE_LEAD;
	smr.role = HF_SMR_LEADER;
	smr.applied = 5;
	smr.commit = smr.tail = 20;
	smr.calls = 1;
	smr.logged = &call;
	answered = 0;
	smr_restore_begin(&smr);
	assert_true(smr_calls_finish(&smr));
	assert_int_equal(answered, 1);
	assert_int_equal(smr.calls, 0);
	smr_restore_drop(&smr);
	one_end();
}

/* ---- a slot that is written while it is applied ---- */

#define WHOLE      500000u
#define DATA_BYTES 64u

static unsigned whole, mixed;

static uint32_t apply_one_value(void *context, const struct hf_smr_applied *request, void *result)
{
	const uint8_t *data = request->data;

	(void)context, (void)result;
	whole++;
	for (uint32_t i = 1; i < request->bytes; i++)
		mixed += data[i] != data[0];
	return 0;
}

static void put_request(uint8_t *at, uint8_t byte)
{
	const struct smr_slot slot = {.index = SMR_FIRST_INDEX,
		.bytes = 16 + DATA_BYTES,
		.kind = SMR_REQUESTS | SMR_FIRST | SMR_LAST,
		.requests = 1};
	uint8_t payload[16 + DATA_BYTES] = {0};

	put_le32(payload + 12, DATA_BYTES);
	memset(payload + 16, byte, DATA_BYTES);
	(void)smr_slot_store(&smr.geometry, at, &slot, 1 << 8, payload);
}

/* Another process, as a device is. */
static pid_t write_in_turn(uint8_t *slot)
{
	static uint8_t values[2][SLOT_BYTES];
	pid_t writer;

	put_request(values[0], 'a');
	put_request(values[1], 'b');
	memcpy(slot, values[0], SLOT_BYTES);
	writer = fork();
	for (unsigned i = 0; writer == 0; i++) {
		memcpy(slot, values[i % 2], SLOT_BYTES);
		__asm__ volatile("" ::: "memory");
	}
	return writer;
}

static void a_slot_that_is_written_meanwhile_is_applied_whole(void **state)
{
	const size_t bytes = SMR_LOG_SLOTS + SLOTS * SLOT_BYTES;
	pid_t writer;

	(void)state;
	one_begin();
	free(smr.log);
	smr.log = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(smr.log, MAP_FAILED);
	smr.app.apply = apply_one_value;
	whole = mixed = 0;
	writer = write_in_turn(smr_slot_at(&smr, SMR_FIRST_INDEX));
	assert_int_not_equal(writer, -1);
	while (whole < WHOLE) {
		smr.applied = SMR_FIRST_INDEX;
		smr.commit = SMR_FIRST_INDEX + 1;
		if (!smr_follow_apply(&smr))
			(void)sched_yield(); /* the writer may stand still in mid-copy */
	}
	(void)kill(writer, SIGKILL);
	(void)waitpid(writer, NULL, 0);
	assert_int_equal(mixed, 0);
	(void)munmap(smr.log, bytes);
	smr.log = NULL;
	one_end();
}

/* ---- configurations that a recovery finds ---- */

#define FIRST_SLOT 2u /* of the first one */
#define ENTRY      5u /* slots that a configuration of three takes */
#define PROCESSES  6u /* three are members */

static void begin_members(void)
{
	one_begin();
	smr.chunk = smr.geometry.span;
	smr.number = 3 << 8;
	smr.holder = 0;
	smr.commit = smr.applied = FIRST_SLOT;
	for (unsigned i = 1; i < PROCESSES; i++) {
		smr.links[i] =
			(struct smr_link){.smr = &smr, .id = (uint8_t)i, .incarnation = 100 + i, .peer = somewhere};
		smr.links[i].scratch = calloc(smr.chunk, SLOT_BYTES);
		assert_non_null(smr.links[i].scratch);
		smr.here[i - 1] = &smr.links[i];
	}
}

static void end_members(void)
{
	for (unsigned i = 1; i < PROCESSES; i++)
		free(smr.links[i].scratch);
	one_end();
}

/* Member 0 and two others. */
static struct smr_members trio_of(uint64_t index, uint8_t second, uint8_t third)
{
	const uint8_t ids[] = {0, second, third};
	struct smr_members members = {.index = index, .count = VOTERS};

	for (unsigned i = 0; i < VOTERS; i++)
		members.at[i] = (struct smr_member){.is = {.id = ids[i]}, .voter = true, .incarnation = 100u + ids[i]};
	return members;
}

/* Slots from `first` on, in a log whose slot of index `from` is at `at`. */
static void put_members(uint8_t *at, uint64_t from, uint64_t first, const struct smr_members *members, uint64_t round)
{
	const uint32_t most = SLOT_BYTES - SMR_SLOT_HEADER;
	uint8_t bytes[SMR_MEMBERS_BYTES];
	uint32_t left = smr_members_encode(members, bytes);

	for (uint32_t i = 0; i < ENTRY; i++) {
		struct smr_slot slot = {.index = first + i,
			.origin = smr_slot_origin(round << 8) + i,
			.kind = (uint16_t)(SMR_CONFIG | (i == 0 ? SMR_FIRST : 0) | (i + 1 == ENTRY ? SMR_LAST : 0)),
			.bytes = left < most ? left : most};

		(void)smr_slot_store(
			&smr.geometry, at + (first + i - from) * SLOT_BYTES, &slot, round << 8, bytes + i * most);
		left -= slot.bytes;
	}
	assert_int_equal(left, 0);
}

/* In the log of another member, as a recovery that begins now will read it. */
static void put_there(unsigned id, uint64_t first, const struct smr_members *members, uint64_t round)
{
	put_members(smr.links[id].scratch, smr.commit, first, members, round);
}

/* All are read. True: it goes on with what it found. */
static bool recover(void)
{
	smr.phase = SMR_PHASE_CATCH_UP;
	smr.abort_why = NULL;
	smr_recover_begin(&smr);
	while (smr.phase == SMR_PHASE_RECOVER && smr.abort_why == NULL) {
		uint64_t lap = (smr.recover_at | (SLOTS - 1)) + 1, stop = smr.recover_at + smr.chunk;

		for (unsigned i = 1; i < PROCESSES; i++) {
			smr.links[i].stage = SMR_STAGE_PROMISED;
			smr.links[i].fetched = smr.recover_at;
			smr.links[i].fetched_end = stop < lap ? stop : lap;
		}
		smr_recover_turn(&smr);
		for (unsigned i = 1; i < PROCESSES; i++)
			memset(smr.links[i].scratch, 0, smr.chunk * SLOT_BYTES);
	}
	if (smr.abort_why != NULL)
		smr_abort(&smr, smr.abort_why);
	return smr.phase == SMR_PHASE_NOOP;
}

static bool is_enough(unsigned one, unsigned other)
{
	return smr_phase_majority(&smr, 1u | 1u << one | 1u << other);
}

/* It was asleep while two configurations were decided, and reads the first one alone. */
static void who_was_told_of_a_configuration_does_not_forget_it(void **state)
{
	const struct smr_members first = trio_of(FIRST_SLOT + ENTRY - 1, 1, 3), second = trio_of(100, 4, 5);

	(void)state;
	begin_members();
	smr_change_heard(&smr, &second);
	put_there(1, FIRST_SLOT, &first, 1);
	(void)recover();
	assert_false(is_enough(1, 2)); /* of those who were members, and of the first ones */
	assert_true(smr_phase_majority(&smr, 1u | 1u << 1 | 1u << 4));
	end_members();
}

/* The second one is not found before the members of the first one are asked. */
static void each_configuration_in_the_log_needs_its_majority(void **state)
{
	const struct smr_members first = trio_of(FIRST_SLOT + ENTRY - 1, 1, 3);
	const struct smr_members second = trio_of(FIRST_SLOT + 2 * ENTRY - 1, 4, 5);

	(void)state;
	begin_members();
	put_there(1, FIRST_SLOT, &first, 1);
	assert_false(recover());
	put_there(2, FIRST_SLOT, &first, 1);
	put_there(2, FIRST_SLOT + ENTRY, &second, 1);
	assert_false(recover());
	assert_false(is_enough(1, 2));
	assert_true(smr_phase_majority(&smr, 1u | 1u << 1 | 1u << 4));
	assert_int_equal(smr.members.index, first.index); /* the second one was logged behind decided entries alone */
	end_members();
}

/* Another leader's has its place: the one that was found before was not decided. */
static void a_configuration_that_was_abandoned_is_replaced(void **state)
{
	const struct smr_members first = trio_of(FIRST_SLOT + ENTRY - 1, 1, 3), other = trio_of(first.index, 4, 5);

	(void)state;
	begin_members();
	put_there(1, FIRST_SLOT, &first, 1);
	assert_false(recover());
	put_there(2, FIRST_SLOT, &other, 5);
	assert_false(recover());
	assert_false(is_enough(1, 2));
	smr.number = 6 << 8;
	assert_true(recover());
	end_members();
}

/* Nothing has its place. */
static void a_configuration_that_was_abandoned_needs_no_majority(void **state)
{
	const struct smr_members first = trio_of(FIRST_SLOT + ENTRY - 1, 4, 5);
	struct smr_slot noop = {.kind = SMR_NOOP | SMR_FIRST | SMR_LAST};

	(void)state;
	begin_members();
	put_there(1, FIRST_SLOT, &first, 1);
	assert_false(recover());
	assert_false(is_enough(1, 2));
	for (noop.index = FIRST_SLOT; noop.index < FIRST_SLOT + ENTRY; noop.index++)
		(void)smr_slot_store(&smr.geometry, smr.links[2].scratch + (noop.index - FIRST_SLOT) * SLOT_BYTES,
			&noop, 5 << 8, NULL);
	assert_true(recover());
	assert_true(is_enough(1, 2));
	end_members();
}

/* A leader died when a majority had half of it. */
static void a_configuration_whose_first_slots_are_applied_is_found(void **state)
{
	const struct smr_members first = trio_of(FIRST_SLOT + ENTRY - 1, 4, 5);

	(void)state;
	begin_members();
	put_members(smr_slot_at(&smr, FIRST_SLOT), FIRST_SLOT, FIRST_SLOT, &first, 1);
	smr_follow_commit(&smr, FIRST_SLOT + 2);
	assert_true(smr_follow_apply(&smr));
	assert_false(recover());
	assert_false(is_enough(1, 2));
	end_members();
}

/* The entry is decided, and applied here. */
static void change_members(const struct smr_members *members)
{
	put_members(smr_slot_at(&smr, FIRST_SLOT), FIRST_SLOT, FIRST_SLOT, members, 1);
	smr_follow_commit(&smr, FIRST_SLOT + ENTRY);
	assert_true(smr_follow_apply(&smr));
	assert_int_equal(smr.members.index, members->index);
}

static void show_applied(unsigned id, uint64_t applied)
{
	smr.links[id].known = true;
	smr.links[id].public[SMR_PUBLIC_APPLIED] = applied;
}

static void count_decided(struct hf_smr_call *call)
{
	assert_int_equal(call->outcome, HF_SMR_DECIDED);
	answered++;
}

/* Those who have not applied it need a majority of the members before: with this one it would be gone. */
static void a_change_is_answered_when_a_majority_has_applied_it(void **state)
{
	const struct smr_members members = trio_of(FIRST_SLOT + ENTRY - 1, 1, 3);
	struct hf_smr_call call = {.done = count_decided};

	(void)state;
	begin_members();
	smr.role = HF_SMR_LEADER;
	smr.phase = SMR_PHASE_LEAD;
	smr.change_call = &call;
	smr.change_asked = smr.changing = true;
	smr.calls = 1;
	answered = 0;
	change_members(&members);
	show_applied(1, members.index);
	show_applied(2, members.index + 1); /* is no member any more */
	smr_change_turn(&smr);
	assert_false(smr_calls_finish(&smr));
	show_applied(1, members.index + 1);
	smr_change_turn(&smr);
	assert_true(smr_calls_finish(&smr));
	assert_int_equal(answered, 1);
	assert_int_equal(call.index, members.index);
	end_members();
}

/* They count it until they have applied that. */
static void a_removed_member_stays_until_a_majority_has_applied_it(void **state)
{
	struct smr_members members = trio_of(FIRST_SLOT + ENTRY - 1, 3, 5);

	(void)state;
	members.at[0].is.id = 1;
	members.at[0].incarnation = 101;
	begin_members();
	change_members(&members);
	show_applied(1, members.index + 1);
	show_applied(2, members.index + 1);
	smr_change_turn(&smr);
	assert_false(smr.removed);
	show_applied(5, members.index + 1);
	smr_change_turn(&smr);
	assert_true(smr.removed);
	end_members();
}

/* It was added again since, or is added now. */
static void who_reads_its_removal_from_its_disk_stays(void **state)
{
	struct smr_members members = trio_of(FIRST_SLOT + ENTRY - 1, 3, 5);

	(void)state;
	members.at[0].is.id = 1;
	members.at[0].incarnation = 101;
	begin_members();
	smr.replay = (struct smr_replay *)(void *)&smr; /* is not looked at */
	change_members(&members);
	smr.replay = NULL;
	for (unsigned i = 1; i < PROCESSES; i++)
		show_applied(i, members.index + 1);
	smr_change_turn(&smr);
	assert_false(smr.removed);
	end_members();
}

/* ---- entries of two slots ---- */

#define PAIR 2u

/* Slots [from, end) of an entry that was proposed in `round` at FIRST_SLOT, as accepted in round `accepted`. */
static void put_pair(uint8_t *at, unsigned from, unsigned end, uint8_t byte, uint64_t round, uint64_t accepted)
{
	const uint32_t most = SLOT_BYTES - SMR_SLOT_HEADER, bytes = 16 + SLOT_BYTES - SMR_SLOT_HEADER;
	uint8_t payload[16 + SLOT_BYTES] = {0};

	put_le32(payload + 12, most);
	memset(payload + 16, byte, most);
	for (unsigned i = from; i < end; i++) {
		const struct smr_slot slot = {.index = FIRST_SLOT + i,
			.origin = smr_slot_origin(round << 8) + i,
			.kind = (uint16_t)(SMR_REQUESTS | (i == 0 ? SMR_FIRST : SMR_LAST)),
			.requests = 1,
			.bytes = i == 0 ? most : bytes - most};

		(void)smr_slot_store(
			&smr.geometry, at + i * SLOT_BYTES, &slot, accepted << 8, payload + (size_t)i * most);
	}
}

static void begin_pair(void)
{
	begin_members();
	smr.number = 9 << 8;
	smr.app.apply = apply_one_value;
	whole = mixed = 0;
}

static void decide_pair(void)
{
	assert_true(recover());
	smr_follow_commit(&smr, FIRST_SLOT + PAIR);
	assert_true(smr_follow_apply(&smr));
	assert_int_equal(smr.applied, FIRST_SLOT + PAIR);
	assert_int_equal(smr.begun.first, 0);
	assert_int_equal(mixed, 0);
}

/* A WRITE of the newer entry was torn between its slots. */
static void slots_of_two_proposals_are_no_entry(void **state)
{
	(void)state;
	begin_pair();
	put_pair(smr.links[1].scratch, 0, 1, 'y', 5, 5);
	put_pair(smr.links[2].scratch, 0, PAIR, 'x', 1, 1);
	decide_pair();
	assert_int_equal(whole, 0);
	end_members();
}

static void slots_of_one_proposal_are_an_entry_whatever_their_numbers(void **state)
{
	(void)state;
	begin_pair();
	put_pair(smr.links[1].scratch, 0, 1, 'x', 1, 5);
	put_pair(smr.links[2].scratch, 0, PAIR, 'x', 1, 1);
	decide_pair();
	assert_int_equal(whole, 1);
	end_members();
}

static void a_slot_that_continues_nothing_is_skipped(void **state)
{
	const struct smr_slot noop = {.index = FIRST_SLOT, .kind = SMR_NOOP | SMR_FIRST | SMR_LAST};

	(void)state;
	begin_pair();
	put_pair(smr.links[2].scratch, 0, PAIR, 'x', 1, 1);
	(void)smr_slot_store(&smr.geometry, smr.links[1].scratch, &noop, 5 << 8, NULL);
	decide_pair();
	assert_int_equal(whole, 0);
	end_members();
}

/* Neither by a recovery nor when it is applied. */
static void slots_of_two_configurations_are_none(void **state)
{
	const struct smr_members older = trio_of(FIRST_SLOT + ENTRY - 1, 1, 3), newer = trio_of(older.index, 4, 5);

	(void)state;
	begin_members();
	put_there(1, FIRST_SLOT, &newer, 5);
	memset(smr.links[1].scratch + 2 * SLOT_BYTES, 0, (ENTRY - 2) * SLOT_BYTES);
	put_there(2, FIRST_SLOT, &older, 1);
	smr.number = 6 << 8;
	assert_true(recover());
	assert_true(is_enough(1, 2));
	smr_follow_commit(&smr, FIRST_SLOT + ENTRY);
	assert_true(smr_follow_apply(&smr));
	assert_int_equal(smr.applied, FIRST_SLOT + ENTRY);
	assert_int_equal(smr.members.index, 1);
	end_members();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configurations_that_make_no_sense_are_refused),
		cmocka_unit_test(a_ring_that_is_too_small_for_its_members_is_refused),
		cmocka_unit_test(a_follower_that_moves_is_not_left_behind),
		cmocka_unit_test(a_follower_that_is_new_is_not_left_behind),
		cmocka_unit_test(a_decided_call_that_a_snapshot_covers_ends),
		cmocka_unit_test(a_lost_follower_holds_the_ring_up_only_while_its_slots_are_read),
		cmocka_unit_test(what_a_snapshot_covers_is_no_value_for_the_next_holder),
		cmocka_unit_test(a_log_that_was_lost_while_it_was_read_is_read_again),
		cmocka_unit_test(a_log_that_is_taken_away_is_missed_at_the_next_pulse),
		cmocka_unit_test(a_candidate_that_dies_before_it_has_the_log_does_not_hold_it),
		cmocka_unit_test(what_still_reads_the_ring_ends_with_the_attempt),
		cmocka_unit_test(a_promise_that_was_cut_off_leaves_the_one_before),
		cmocka_unit_test(a_request_of_a_process_that_is_gone_is_not_granted),
		cmocka_unit_test(a_log_is_not_given_while_its_member_has_no_state),
		cmocka_unit_test(who_lacks_entries_and_takes_no_snapshot_does_not_lead),
		cmocka_unit_test(who_finds_no_snapshot_follows_again_with_what_it_has),
		cmocka_unit_test(who_tries_to_lead_in_vain_leaves_it_to_others_by_turns),
		cmocka_unit_test(who_takes_a_snapshot_gives_none),
		cmocka_unit_test(who_was_told_of_a_configuration_does_not_forget_it),
		cmocka_unit_test(each_configuration_in_the_log_needs_its_majority),
		cmocka_unit_test(a_configuration_that_was_abandoned_is_replaced),
		cmocka_unit_test(a_configuration_that_was_abandoned_needs_no_majority),
		cmocka_unit_test(a_configuration_whose_first_slots_are_applied_is_found),
		cmocka_unit_test(a_change_is_answered_when_a_majority_has_applied_it),
		cmocka_unit_test(a_removed_member_stays_until_a_majority_has_applied_it),
		cmocka_unit_test(a_slot_that_is_written_meanwhile_is_applied_whole),
		cmocka_unit_test(who_reads_its_removal_from_its_disk_stays),
		cmocka_unit_test(a_majority_that_was_lost_counts_from_when_it_is_there_again),
		cmocka_unit_test(a_log_is_granted_only_to_the_member_that_its_owner_prefers),
		cmocka_unit_test(slots_of_two_proposals_are_no_entry),
		cmocka_unit_test(slots_of_one_proposal_are_an_entry_whatever_their_numbers),
		cmocka_unit_test(a_slot_that_continues_nothing_is_skipped),
		cmocka_unit_test(slots_of_two_configurations_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
