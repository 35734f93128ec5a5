/* The mark beside a log (env/synced.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "env/synced.h"

#define RECORD_BYTES 256

static char path[64];

static int set_up(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/test-synced-XXXXXX");
	close(mkstemp(path));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(path);
}

static struct synced *open_mark(const char *owner, struct synced_proof *proof)
{
	struct synced *synced;

	assert_int_equal(synced_open(hf_env_host(), path, owner, &synced, proof, NULL), 0);
	return synced;
}

static struct synced_proof proof_left(const char *owner)
{
	struct synced_proof proof;

	synced_close(open_mark(owner, &proof), false);
	return proof;
}

static void flip(long at)
{
	FILE *file = fopen(path, "r+");
	int c;

	fseek(file, at, SEEK_SET);
	c = fgetc(file);
	fseek(file, at, SEEK_SET);
	fputc(c ^ 1, file);
	fclose(file);
}

static void the_next_life_has_the_proof_of_the_one_before(void **state)
{
	struct synced_proof proof;
	struct synced *synced = open_mark("c/a", &proof);

	(void)state;
	assert_false(proof.known);
	assert_int_equal(synced_write(synced, 64, 1000, 1200), 0);
	synced_close(synced, false); /* killed: the same boot, the same file */
	proof = proof_left("c/a");
	assert_true(proof.known && !proof.closed);
	assert_int_equal(proof.first, 64);
	assert_int_equal(proof.end, 1200);
	assert_false(proof_left("c/b").known);
	synced = open_mark("c/a", &proof);
	assert_int_equal(synced_write(synced, 64, 2000, 2000), 0);
	synced_close(synced, true);
	assert_true(proof_left("c/a").closed);
}

/* SYNCED-2 */
static void a_torn_record_leaves_the_one_before(void **state)
{
	struct synced_proof proof;
	struct synced *synced = open_mark("c/a", &proof);

	(void)state;
	assert_int_equal(synced_write(synced, 0, 3, 3), 0); /* the second record */
	assert_int_equal(synced_sync(synced), 0);
	for (uint64_t i = 4; i <= 7; i++) /* all in the first one */
		assert_int_equal(synced_write(synced, 0, i, i), 0);
	synced_close(synced, false);
	assert_int_equal(proof_left("c/a").end, 7);
	flip(0);
	assert_int_equal(proof_left("c/a").end, 3);
	flip(RECORD_BYTES);
	assert_false(proof_left("c/a").known);
}

/* SYNCED-3 */
static void a_copied_file_proves_only_what_is_on_the_disk(void **state)
{
	struct synced_proof proof;
	struct synced *synced = open_mark("c/a", &proof);
	uint8_t data[2 * RECORD_BYTES] = {0};
	char other[80];
	FILE *file;

	(void)state;
	assert_int_equal(synced_write(synced, 0, 1000, 1200), 0);
	synced_close(synced, false);
	file = fopen(path, "r");
	assert_true(fread(data, 1, sizeof(data), file) > RECORD_BYTES);
	fclose(file);
	snprintf(other, sizeof(other), "%s-copy", path);
	file = fopen(other, "w");
	fwrite(data, 1, sizeof(data), file);
	fclose(file);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(proof_left("c/a").end, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_next_life_has_the_proof_of_the_one_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_torn_record_leaves_the_one_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_copied_file_proves_only_what_is_on_the_disk, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("synced", tests, NULL, NULL);
}
