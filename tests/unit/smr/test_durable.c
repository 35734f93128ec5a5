/* Three members with directories, on the disk of this host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
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
		cmocka_unit_test(a_member_returns_with_its_files_or_without),
		cmocka_unit_test(members_with_other_sessions_are_refused),
		cmocka_unit_test(members_of_another_mode_are_refused),
	};

	if (argc > 1)
		trio_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
