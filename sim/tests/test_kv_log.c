/* The log of a store while the n-th call of its disk fails, for each n until none does: what was acknowledged is there
 * after the power was lost, and a failure is said. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "kv/log.h"
#include "sim/disk.h"

#define SEEDS       8u
#define CALLS_MAX   1000u
#define VERSIONS    12u /* in two lives */
#define VALUE_BYTES 100u
#define DROP_AT     4u
#define HALF        2u

enum failure { FAILS_WITHOUT_EFFECT, FAILS_IN_PART, FAILURES };

static struct {
	struct world_ops ops;
	unsigned calls, fails_at; /* 0: never */
	enum failure failure;
} disk;

struct failing_file {
	struct hf_file file; /* first */
	struct hf_file *real;
};

struct bed {
	struct fixture f;
	struct hf_loop *loop;
	struct hf_kv_config config;
	struct log log;
	struct hf_error error;
	uint64_t incarnation, next, positions[VERSIONS + 1];
	uint64_t acknowledged; /* versions up to this one */
	uint64_t dropped;      /* the position before which nothing is needed */
	bool said;             /* that something failed */
	/* what was read */
	uint64_t first, last;
};

/* ---- a disk whose n-th call fails ---- */

static bool fails_now(void)
{
	return ++disk.calls == disk.fails_at;
}

static struct hf_file *real(struct hf_file *file)
{
	return ((struct failing_file *)file)->real;
}

static void file_close(struct hf_file *file)
{
	hf_file_close(real(file));
	free(file);
}

static int64_t file_bytes(struct hf_file *file)
{
	return fails_now() ? -EIO : hf_file_bytes(real(file));
}

static ssize_t file_read_at(struct hf_file *file, void *data, size_t bytes, uint64_t offset)
{
	return fails_now() ? -EIO : hf_file_read_at(real(file), data, bytes, offset);
}

static ssize_t file_write_at(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	if (!fails_now())
		return hf_file_write_at(real(file), data, bytes, offset);
	return disk.failure == FAILS_IN_PART ? hf_file_write_at(real(file), data, bytes / HALF, offset) : -EIO;
}

static int file_sync(struct hf_file *file, bool data_only)
{
	bool fails = fails_now();

	if (fails && disk.failure == FAILS_WITHOUT_EFFECT)
		return -EIO;
	return (data_only ? hf_file_sync_data(real(file)) : hf_file_sync(real(file))) != 0 || fails ? -EIO : 0;
}

static int file_lock(struct hf_file *file)
{
	return fails_now() ? -EIO : hf_file_lock(real(file));
}

static int file_resize(struct hf_file *file, uint64_t bytes)
{
	return fails_now() ? -EIO : hf_file_resize(real(file), bytes);
}

static int file_identity(struct hf_file *file, uint64_t *device_out, uint64_t *inode_out)
{
	return fails_now() ? -EIO : hf_file_identity(real(file), device_out, inode_out);
}

static const struct world_file_ops file_ops = {.close = file_close,
	.bytes = file_bytes,
	.resize = file_resize,
	.identity = file_identity,
	.read_at = file_read_at,
	.write_at = file_write_at,
	.sync = file_sync,
	.lock = file_lock};

static int file_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out)
{
	struct failing_file *file = malloc(sizeof(*file));
	bool fails = fails_now();
	int rc;

	assert_non_null(file);
	*file_out = NULL;
	rc = fails && disk.failure == FAILS_WITHOUT_EFFECT ? -EIO
							   : sim_env_ops.file_open(env, path, flags, &file->real);
	if (rc == 0 && fails) {
		hf_file_close(file->real);
		rc = -EIO;
	}
	if (rc != 0) {
		free(file);
		return rc;
	}
	file->file.ops = &file_ops;
	*file_out = &file->file;
	return 0;
}

static int file_remove(struct hf_env *env, const char *path)
{
	return fails_now() ? -EIO : sim_env_ops.file_remove(env, path);
}

static int file_rename(struct hf_env *env, const char *from, const char *to)
{
	return fails_now() ? -EIO : sim_env_ops.file_rename(env, from, to);
}

static int dir_make(struct hf_env *env, const char *path)
{
	return fails_now() ? -EIO : sim_env_ops.dir_make(env, path);
}

static int dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context)
{
	return fails_now() ? -EIO : sim_env_ops.dir_list(env, path, found, context);
}

static int dir_sync(struct hf_env *env, const char *path)
{
	return fails_now() ? -EIO : sim_env_ops.dir_sync(env, path);
}

static int dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out)
{
	return fails_now() ? -EIO : sim_env_ops.dir_space(env, path, free_bytes_out, bytes_out);
}

static void make_disk(unsigned fails_at, enum failure failure)
{
	disk.ops = sim_env_ops;
	disk.ops.file_open = file_open;
	disk.ops.file_remove = file_remove;
	disk.ops.file_rename = file_rename;
	disk.ops.dir_make = dir_make;
	disk.ops.dir_list = dir_list;
	disk.ops.dir_sync = dir_sync;
	disk.ops.dir_space = dir_space;
	disk.calls = 0;
	disk.fails_at = fails_at;
	disk.failure = failure;
}

/* ---- lives of a log ---- */

static int read_entries(void *context, const struct log_entry *entries, const uint64_t *positions, unsigned count,
	struct hf_error *error)
{
	struct bed *bed = context;

	(void)positions, (void)error;
	for (unsigned i = 0; i < count; i++) {
		if (entries[i].kind != LOG_WRITE)
			continue;
		if (bed->first == 0)
			bed->first = entries[i].ts.version;
		else
			assert_int_equal(entries[i].ts.version, bed->last + 1);
		bed->last = entries[i].ts.version;
	}
	return 0;
}

static bool open_log(struct bed *bed)
{
	struct process *process = bed->f.processes[0];

	process->env.ops = &disk.ops;
	assert_int_equal(hf_loop_create(&process->env, &bed->loop), 0);
	bed->first = bed->last = 0;
	bed->error = (struct hf_error){0};
	if (kv_log_open(&bed->log, bed->loop, &bed->config, "a", ++bed->incarnation, read_entries, bed, &bed->error) ==
		0) {
		bed->next = bed->last + 1;
		return true;
	}
	bed->said = true;
	assert_true(bed->error.text[0] != '\0');
	return false;
}

static void append(struct bed *bed)
{
	static const uint8_t value[VALUE_BYTES];
	struct log_entry mark = {.kind = LOG_MARK, .ts = {.version = bed->log.durable}};
	struct log_entry entry = {.kind = LOG_WRITE,
		.ts = {.version = bed->next},
		.key = (const uint8_t *)"key",
		.key_bytes = 3,
		.value = value,
		.value_bytes = VALUE_BYTES};

	bed->positions[bed->next] = kv_log_append(&bed->log, &entry);
	(void)kv_log_append(&bed->log, &mark);
	bed->log.mark = mark.ts.version;
	if (kv_log_flush_now(&bed->log) == 0)
		bed->acknowledged = bed->next;
	else
		bed->said = true;
	bed->next++;
}

/* The process ends in good order or not, and the host loses its power. */
static void end(struct bed *bed)
{
	kv_log_close(&bed->log);
	hf_loop_destroy(bed->loop);
	host_stop(&bed->f.hosts[0]);
	host_start(&bed->f.hosts[0]);
}

static void live(struct bed *bed, uint64_t until)
{
	bool opened = open_log(bed);

	while (opened && !bed->said && bed->next <= until) {
		append(bed);
		if (bed->next == DROP_AT + 1 && !bed->said) {
			bed->dropped = bed->log.segments[bed->log.segment_count - 1].position;
			kv_log_drop(&bed->log, bed->dropped);
		}
	}
	end(bed);
}

/* All that was acknowledged is there, but for what was dropped. */
static void check(struct bed *bed)
{
	uint64_t needed = 1;

	disk.fails_at = 0;
	if (!open_log(bed))
		fail_msg("call %u: %s", disk.calls, bed->error.text);
	while (needed <= bed->acknowledged && bed->positions[needed] < bed->dropped)
		needed++;
	assert_false(bed->log.damaged);
	if (needed <= bed->acknowledged) {
		assert_true(bed->first != 0 && bed->first <= needed);
		assert_true(bed->last >= bed->acknowledged);
	}
	end(bed);
}

/* False: no call failed. */
static bool run(uint64_t seed, unsigned fails_at, enum failure failure)
{
	struct bed *bed = calloc(1, sizeof(*bed));
	bool failed;

	assert_non_null(bed);
	make_disk(fails_at, failure);
	bed->config.medium = HF_KV_FILE;
	bed->config.segment_bytes = 2 * VALUE_BYTES;
	snprintf(bed->config.cluster, sizeof(bed->config.cluster), "test");
	snprintf(bed->config.log, sizeof(bed->config.log), "kv");
	fixture_open(&bed->f, seed, NULL, NULL);
	live(bed, VERSIONS / 2);
	bed->said = false;
	live(bed, VERSIONS);
	failed = disk.calls >= fails_at;
	if (!failed)
		assert_int_equal(bed->acknowledged, VERSIONS);
	check(bed);
	fixture_close(&bed->f);
	free(bed);
	return failed;
}

static void nothing_acknowledged_is_lost_whichever_call_of_the_disk_fails(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR + 1);
	for (enum failure failure = FAILS_WITHOUT_EFFECT; failure < FAILURES; failure++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			unsigned n = 1;

			while (run(seed, n, failure))
				assert_true(++n < CALLS_MAX);
			assert_true(n > 50);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_acknowledged_is_lost_whichever_call_of_the_disk_fails),
	};

	return cmocka_run_group_tests_name("failures of the log of a store", tests, NULL, NULL);
}
