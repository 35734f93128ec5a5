/* Three members with directories, on the disk of this host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "smr/durable.h"
#include "smr/smr.h"
#include "trio.h"

#define PROPOSALS 300u
#define WAL_BYTES 4096u

static void make_directory(struct trio *trio)
{
	snprintf(trio->directory, sizeof(trio->directory), "/tmp/holdfast-smr-XXXXXX");
	assert_non_null(mkdtemp(trio->directory));
	trio->config.stuck_ns = 20000000000ull; /* a sync of a busy disk may take longer than the default */
}

static void remove_name(const char *name, void *context)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", (const char *)context, name);
	(void)hf_file_remove(hf_env_host(), path);
}

static void remove_directory(const struct trio *trio)
{
	char path[80];

	for (unsigned i = 0; i < TRIO_MEMBERS; i++) {
		snprintf(path, sizeof(path), "%s/%u", trio->directory, i);
		(void)hf_dir_list(hf_env_host(), path, remove_name, path);
		(void)hf_dir_remove(hf_env_host(), path);
	}
	assert_int_equal(hf_dir_remove(hf_env_host(), trio->directory), 0);
}

static void what_was_answered_is_there_after_all_have_ended(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio.config.wal_bytes = WAL_BYTES; /* snapshots, too */
	for (unsigned round = 0; round < 4; round++) {
		trio_start_all(&trio);
		trio_propose_many(&trio, PROPOSALS, 1000 * round);
		assert_true(trio_until(&trio, trio_all_have_applied));
		for (unsigned m = 0; m < TRIO_MEMBERS; m++)
			for (uint32_t i = 0; i < (round + 1) * PROPOSALS; i++)
				assert_int_equal(trio.members[m].log[i], 1000 * (i / PROPOSALS) + i % PROPOSALS);
		for (unsigned m = 0; m < TRIO_MEMBERS; m++)
			trio_stop(&trio, m);
	}
	trio_close(&trio);
	remove_directory(&trio);
}

/* Two go on, and the third one has what it had; who lost its files takes everything from the others. */
static void a_member_returns_with_its_files_or_without(void **state)
{
	static struct trio trio;
	char path[80];
	unsigned out;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio.config.wal_bytes = WAL_BYTES;
	trio_start_all(&trio);
	for (unsigned without = 0; without < 2; without++) {
		trio_propose_many(&trio, PROPOSALS, 1000);
		out = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
		trio_stop(&trio, out);
		trio_propose_many(&trio, PROPOSALS, 2000);
		snprintf(path, sizeof(path), "%s/%u", trio.directory, out);
		if (without == 1)
			assert_int_equal(hf_dir_list(hf_env_host(), path, remove_name, path), 0);
		trio_start(&trio, out);
		assert_true(trio_until(&trio, trio_all_follow));
		assert_true(trio_until(&trio, trio_all_have_applied));
		assert_int_equal(trio.members[out].applied, (without + 1) * 2 * PROPOSALS);
	}
	trio_close(&trio);
	remove_directory(&trio);
}

/* ---- damage ---- */

/* A byte of the last file that is in use, near its end: within the last batch. */
static void damage(const struct trio *trio, unsigned id)
{
	char path[96];
	struct hf_file *file;
	uint8_t byte;
	int64_t bytes;

	snprintf(path, sizeof(path), "%s/%u/wal.0", trio->directory, id);
	assert_int_equal(hf_file_open(hf_env_host(), path, HF_FILE_WRITE, &file), 0);
	bytes = hf_file_bytes(file);
	assert_int_equal(hf_file_read_at(file, &byte, 1, (uint64_t)bytes - 9), 1);
	byte ^= 1;
	assert_int_equal(hf_file_write_at(file, &byte, 1, (uint64_t)bytes - 9), 1);
	hf_file_close(file);
}

static void remove_damaged(const struct trio *trio, unsigned id)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/%u/damaged.0", trio->directory, id);
	(void)hf_dir_list(hf_env_host(), path, remove_name, path);
	assert_int_equal(hf_dir_remove(hf_env_host(), path), 0); /* it is there */
}

static uint64_t incarnation_of(const struct trio_member *member)
{
	struct hf_smr_status status;

	hf_smr_status(member->smr, &status);
	return status.incarnation;
}

/* Its last batch was decided with it: as the incarnation that it was, it votes no more. */
static void a_damaged_member_returns_as_another_one(void **state)
{
	static struct trio trio;
	uint64_t before;
	unsigned out;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 0);
	assert_true(trio_until(&trio, trio_all_have_applied));
	out = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	before = incarnation_of(&trio.members[out]);
	trio_stop(&trio, out);
	damage(&trio, out);
	trio_start(&trio, out);
	assert_true(trio_until(&trio, trio_all_follow));
	assert_true(trio_until(&trio, trio_all_have_applied));
	assert_int_equal(trio.members[out].applied, PROPOSALS);
	assert_int_not_equal(incarnation_of(&trio.members[out]), before);
	remove_damaged(&trio, out);
	trio_close(&trio);
	remove_directory(&trio);
}

static void turn_for(struct trio *trio, unsigned turns)
{
	while (turns-- > 0)
		(void)hf_loop_turn(trio->loop, 1000000);
}

/* None of them has what it had, and none is new: a cluster that they founded would be an empty one (R-D5). */
static void damaged_members_found_no_cluster(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, 20, 0);
	assert_true(trio_until(&trio, trio_all_have_applied));
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		trio_stop(&trio, m);
	for (unsigned round = 0; round < 2; round++) { /* a verdict holds for the next start, too */
		for (unsigned m = 0; m < TRIO_MEMBERS; m++) {
			if (round == 0)
				damage(&trio, m);
			trio_start(&trio, m);
		}
		turn_for(&trio, 1500);
		assert_null(trio_leader(&trio));
		for (unsigned m = 0; m < TRIO_MEMBERS; m++)
			trio_stop(&trio, m);
	}
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		damage(&trio, m); /* puts the byte back: nothing else was changed */
	trio_start_all(&trio);
	assert_int_equal(trio_leader(&trio)->applied, 20);
	trio_close(&trio);
	remove_directory(&trio);
}

struct copy {
	char name[8][32];
	uint8_t *bytes[8];
	int64_t size[8];
	unsigned count;
	char directory[80];
};

static void copy_name(const char *name, void *context)
{
	struct copy *copy = context;

	if (strcmp(name, "lock") != 0)
		snprintf(copy->name[copy->count++], sizeof(copy->name[0]), "%s", name);
}

static void copy_files(struct copy *copy, bool back)
{
	for (unsigned i = 0; i < copy->count; i++) {
		char path[128];
		struct hf_file *file;

		snprintf(path, sizeof(path), "%s/%s", copy->directory, copy->name[i]);
		assert_int_equal(hf_file_open(hf_env_host(), path, HF_FILE_WRITE, &file), 0);
		if (!back) {
			copy->size[i] = hf_file_bytes(file);
			copy->bytes[i] = malloc((size_t)copy->size[i] + 1);
			assert_non_null(copy->bytes[i]);
			assert_int_equal(
				hf_file_read_at(file, copy->bytes[i], (size_t)copy->size[i], 0), copy->size[i]);
		} else {
			assert_int_equal(hf_file_resize(file, (uint64_t)copy->size[i]), 0);
			assert_int_equal(
				hf_file_write_at(file, copy->bytes[i], (size_t)copy->size[i], 0), copy->size[i]);
			free(copy->bytes[i]);
		}
		hf_file_close(file);
	}
}

static bool one_has_failed(struct trio *trio)
{
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		if (trio->members[m].events[HF_SMR_FAILED] > 0)
			return true;
	return false;
}

/* A backup of a member, whole in itself: it has less than it has promised (R-D4). */
static void an_older_copy_of_a_member_has_no_vote(void **state)
{
	static struct trio trio;
	static struct copy copy;
	unsigned out;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, 20, 0);
	assert_true(trio_until(&trio, trio_all_have_applied));
	out = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	trio_stop(&trio, out);
	snprintf(copy.directory, sizeof(copy.directory), "%s/%u", trio.directory, out);
	assert_int_equal(hf_dir_list(hf_env_host(), copy.directory, copy_name, &copy), 0);
	copy_files(&copy, false);
	trio_start(&trio, out);
	assert_true(trio_until(&trio, trio_all_follow));
	trio_propose_many(&trio, PROPOSALS, 100);
	assert_true(trio_until(&trio, trio_all_have_applied));
	turn_for(&trio, 300); /* what was seen reaches the disks */
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		trio_stop(&trio, m);
	copy_files(&copy, true);
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		trio_start(&trio, m);
	assert_true(trio_until(&trio, one_has_failed));
	assert_int_equal(trio.members[out].events[HF_SMR_FAILED], 1);
	assert_non_null(strstr(trio.members[out].last.reason, "an older copy"));
	trio_stop(&trio, out);
	trio_start(&trio, out);
	assert_true(trio_until(&trio, trio_all_follow));
	assert_true(trio_until(&trio, trio_all_have_applied));
	assert_int_equal(trio.members[out].applied, PROPOSALS + 20);
	remove_damaged(&trio, out);
	trio_close(&trio);
	remove_directory(&trio);
}

static bool has_read(struct trio *trio)
{
	return trio->members[0].events[HF_SMR_RESTORED] > 0;
}

/* A server takes a long WAL more slowly than a disk gives it. */
static void a_disk_is_read_no_faster_than_the_program_takes_it(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 0);
	assert_true(trio_until(&trio, trio_all_have_applied));
	for (unsigned m = 0; m < TRIO_MEMBERS; m++)
		trio_stop(&trio, m);
	trio.busy = true;
	trio_start(&trio, 0);
	for (unsigned i = 0; i < 2000; i++) {
		(void)hf_loop_turn(trio.loop, 1000000);
		assert_int_equal(trio.members[0].applied, 0);
	}
	trio.busy = false;
	assert_true(trio_until(&trio, has_read));
	assert_in_range(trio.members[0].applied, 1, PROPOSALS); /* the last ones wait for a majority */
	trio_close(&trio);
	remove_directory(&trio);
}

static struct trio_member *first;

static bool has_handed_on(struct trio *trio)
{
	const struct trio_member *leader = trio_leader(trio);
	struct hf_smr_call call = {0};

	if (leader == NULL || leader != first)
		return leader != NULL && first->snapshots > 0;
	(void)trio_propose(trio, 1, &call); /* unknown where that ends its leadership */
	return false;
}

/* A leader that takes the snapshot itself makes its clients wait until the state is read. */
static void who_pauses_for_a_snapshot_hands_leadership_on_before(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio.config.wal_bytes = WAL_BYTES;
	trio.config.snapshots_pause = true;
	trio_start_all(&trio);
	first = trio_leader(&trio);
	assert_true(trio_until(&trio, has_handed_on));
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
	remove_directory(&trio);
}

/* DUR-4: with a snapshot's tail a member gets slots of an entry whose first ones it never had. */
static void no_snapshot_begins_with_slots_that_are_not_there(void **state)
{
	static struct trio trio;
	struct hf_smr *smr;
	uint64_t oldest;

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, 8, 0);
	assert_true(trio_until(&trio, trio_all_have_applied));
	smr = trio.members[trio_leader(&trio) == &trio.members[0] ? 1 : 0].smr;
	oldest = smr->oldest;
	smr->oldest = smr_applied_entries(smr) + 1;
	smr->durable->since = smr->config.wal_bytes;
	assert_false(smr_durable_save_turn(smr));
	assert_int_equal(smr->durable->saving, SMR_SAVING_NONE);
	smr->oldest = oldest;
	(void)smr_durable_save_turn(smr);
	assert_int_equal(smr->durable->saving, SMR_SAVING_OWN);
	trio_close(&trio);
	remove_directory(&trio);
}

/* ---- members that differ ---- */

static char heard[8192];

static void collect(enum log_level level, const char *line, void *context)
{
	size_t used = strlen(heard);

	(void)level, (void)context;
	snprintf(heard + used, sizeof(heard) - used, "%s\n", line);
}

static bool both_have_said_why(struct trio *trio)
{
	(void)trio;
	return strstr(heard, "is refused as a member: ") != NULL &&
	       strstr(heard, "refuses this one as a member: ") != NULL;
}

/* Member 0 runs; 1 is configured otherwise. */
static void expect_refusal(struct trio *trio, const char *why)
{
	heard[0] = '\0';
	log_set_sink(collect, NULL);
	trio_start(trio, 1);
	assert_true(trio_until(trio, both_have_said_why));
	log_set_sink(NULL, NULL);
	assert_non_null(strstr(heard, why));
	trio_close(trio);
}

static void members_with_other_sessions_are_refused(void **state)
{
	static struct trio trio;

	(void)state;
	trio_open(&trio);
	trio_start(&trio, 0);
	trio.config.sessions = 77;
	expect_refusal(&trio, "77 sessions at member 1, 1024 at member 0; make them the same");
}

static void members_of_another_mode_are_refused(void **state)
{
	static struct trio trio;
	char directory[64];

	(void)state;
	trio_open(&trio);
	make_directory(&trio);
	memcpy(directory, trio.directory, sizeof(directory));
	trio_start(&trio, 0);
	trio.directory[0] = '\0';
	expect_refusal(&trio, "member 0 is durable, and member 1 is not: give all members a directory, or none");
	memcpy(trio.directory, directory, sizeof(directory));
	remove_directory(&trio);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_answered_is_there_after_all_have_ended),
		cmocka_unit_test(a_disk_is_read_no_faster_than_the_program_takes_it),
		cmocka_unit_test(who_pauses_for_a_snapshot_hands_leadership_on_before),
		cmocka_unit_test(no_snapshot_begins_with_slots_that_are_not_there),
		cmocka_unit_test(a_member_returns_with_its_files_or_without),
		cmocka_unit_test(a_damaged_member_returns_as_another_one),
		cmocka_unit_test(damaged_members_found_no_cluster),
		cmocka_unit_test(an_older_copy_of_a_member_has_no_vote),
		cmocka_unit_test(members_with_other_sessions_are_refused),
		cmocka_unit_test(members_of_another_mode_are_refused),
	};

	if (argc > 1)
		trio_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
