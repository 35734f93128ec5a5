/* Steps of one replica whose others are made up: what no run of real members does at will. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "smr/steps.h"

#define SLOTS      64u
#define SLOT_BYTES 128u
#define VOTERS     3u
#define SECOND     1000000000ull

static struct hf_smr smr;
static struct hf_peer *const somewhere = (struct hf_peer *)(void *)&smr; /* is not looked at */

/* Member 0 of three, which follows and would elect itself; the others are there. */
static void begin(void)
{
	smr = (struct hf_smr){.id = 0,
		.incarnation = 100,
		.role = HF_SMR_FOLLOWER,
		.choice = 0,
		.holder = SMR_NOBODY,
		.wanted = SMR_NOBODY,
		.now_ns = SECOND,
		.geometry = {.slots = SLOTS, .slot_bytes = SLOT_BYTES, .span = SLOTS / 4, .seed = 7},
		.config = {.patience_ns = SECOND, .pulse_ns = SECOND / 1000}};
	assert_int_equal(hf_loop_create(hf_env_host(), &smr.loop), 0);
	smr.log = calloc(1, SMR_LOG_SLOTS + SLOTS * SLOT_BYTES);
	smr.back = calloc(1, SMR_BACK_BYTES);
	assert_true(smr.log != NULL && smr.back != NULL);
	smr.members = (struct smr_members){.index = 1, .count = VOTERS};
	smr_calls_init(&smr);
	for (unsigned i = 0; i < VOTERS; i++) {
		smr.members.at[i] =
			(struct smr_member){.is = {.id = (uint8_t)i}, .voter = true, .incarnation = 100 + i};
		smr.links[i] = (struct smr_link){.smr = &smr, .id = (uint8_t)i, .incarnation = 100 + i};
		smr.links[i].elect.alive = true;
		if (i == 0)
			continue;
		smr.links[i].peer = somewhere;
		smr.here[i - 1] = &smr.links[i];
	}
}

static void end(void)
{
	hf_loop_destroy(smr.loop);
	free(smr.log);
	free(smr.back);
}

/* It grants to others meanwhile: what they decided until then is no older leader's. */
static void a_majority_that_was_lost_counts_from_when_it_is_there_again(void **state)
{
	uint64_t again_ns;

	(void)state;
	begin();
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
	end();
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
	begin();
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
	end();
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
	begin();
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
	end();
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

/* The next one would choose a number below one that was promised here. */
static void a_promise_that_was_cut_off_leaves_the_one_before(void **state)
{
	uint64_t number;

	(void)state;
	begin();
	smr.holder = 1;
	set_promise(smr_slot_seal(0x1101));
	take_log();
	smr.holder = 2;
	set_promise((smr_slot_seal(0x2202) & ~0xffffull) | (smr_slot_seal(0x1101) & 0xffff));
	assert_false(smr_slot_open(get_le64(smr.log + SMR_LOG_PROMISE), &number));
	take_log();
	assert_true(smr_slot_open(get_le64(smr.log + SMR_LOG_PROMISE), &number));
	assert_int_equal(number, 0x1101);
	end();
}

/* Its process ended while the holder before was cut off; another one has its place, and has not asked. */
static void a_request_of_a_process_that_is_gone_is_not_granted(void **state)
{
	(void)state;
	begin();
	smr.holder = 2;
	smr.choice = 1;
	smr.giving = SMR_GIVING_REVOKE;
	smr.giving_to = 1;
	smr.giving_request = 5;
	smr.giving_done = true;
	(void)smr_grant_turn(&smr);
	assert_int_equal(smr.giving, SMR_GIVING_NONE);
	assert_int_equal(smr.holder, SMR_NOBODY);
	assert_int_equal(smr.links[1].granted, 0);
	end();
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
	begin();
	smr.app.restore_open = restore_open;
	smr.phase = SMR_PHASE_LEAD;
	smr.role = HF_SMR_LEADER;
	smr.applied = 5;
	smr.commit = smr.tail = 20;
	smr.calls = 1;
	smr.logged = &call;
	smr.copy = calloc(1, SLOT_BYTES);
	answered = 0;
	smr_restore_begin(&smr);
	assert_true(smr_calls_finish(&smr));
	assert_int_equal(answered, 1);
	assert_int_equal(smr.calls, 0);
	smr_restore_drop(&smr);
	free(smr.copy);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configurations_that_make_no_sense_are_refused),
		cmocka_unit_test(a_decided_call_that_a_snapshot_covers_ends),
		cmocka_unit_test(a_lost_follower_holds_the_ring_up_only_while_its_slots_are_read),
		cmocka_unit_test(a_promise_that_was_cut_off_leaves_the_one_before),
		cmocka_unit_test(a_request_of_a_process_that_is_gone_is_not_granted),
		cmocka_unit_test(who_takes_a_snapshot_gives_none),
		cmocka_unit_test(a_majority_that_was_lost_counts_from_when_it_is_there_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
