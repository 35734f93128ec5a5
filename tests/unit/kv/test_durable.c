/* What of a log is in doubt when a store opens it, and what is acknowledged when it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kv/engine.h"

#define STORE_BYTES (1u << 20)
#define OTHER       1u

static struct hf_error error;

static struct hf_kv *open_store(struct hf_loop *loop, const char *directory)
{
	struct hf_kv *kv = calloc(1, sizeof(*kv));

	assert_non_null(kv);
	kv->loop = loop;
	kv->env = hf_env_host();
	kv->incarnation = 1;
	kv->config = (struct hf_kv_config){.member_count = 1, .medium = HF_KV_MEMORY, .segment_bytes = 1u << 20};
	snprintf(kv->config.cluster, sizeof(kv->config.cluster), "test");
	snprintf(kv->config.members[0].name, sizeof(kv->config.members[0].name), "a");
	snprintf(kv->config.log, sizeof(kv->config.log), "%s/kv", directory);
	assert_int_equal(kv_store_open(&kv->store, kv->env, loop, STORE_BYTES, &error), 0);
	assert_int_equal(kv_durable_open(kv, &error), 0);
	return kv;
}

static void close_store(struct hf_kv *kv)
{
	kv_durable_close(kv);
	kv_store_close(&kv->store);
	free(kv->doubts);
	free(kv);
}

static void put(struct hf_kv *kv, const char *key, uint64_t version, bool replaces)
{
	struct store_content content = {.key = (const uint8_t *)key,
		.key_bytes = (uint32_t)strlen(key),
		.ts = {.version = version},
		.flags = version == 0 ? RECORD_TOMBSTONE : 0};
	uint32_t entry = kv_store_put(&kv->store, &content, RECORD_VALID);

	assert_int_not_equal(entry, STORE_NO_ENTRY);
	kv_durable_record(kv, kv_store_at(&kv->store, entry), replaces);
}

static enum record_state state_of(struct hf_kv *kv, const char *key)
{
	uint32_t entry = kv_store_find(&kv->store, (const uint8_t *)key, (uint32_t)strlen(key));

	assert_int_not_equal(entry, STORE_NO_ENTRY);
	return record_state(kv_store_at(&kv->store, entry));
}

static void forget(const char *name, void *context)
{
	char path[HF_KV_PATH_BYTES + 64];

	snprintf(path, sizeof(path), "%s/%s", (const char *)context, name);
	unlink(path);
}

static void remove_log(const char *log, char *directory)
{
	(void)hf_dir_list(hf_env_host(), log, forget, (void *)(uintptr_t)log);
	rmdir(log);
	rmdir(directory);
}

/* A buddy had no such record, and said so. To replay that would be to send a record of version 0. */
static void the_absence_of_a_record_is_in_no_doubt(void **state)
{
	char directory[] = "/tmp/test-kv-durable-XXXXXX", log[HF_KV_PATH_BYTES];
	struct hf_loop *loop;
	struct hf_kv *kv;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	kv = open_store(loop, directory);
	put(kv, "absent", 5, false);
	put(kv, "there", 5, false);
	put(kv, "absent", 0, true);
	kv->complete = 1;
	kv_durable_epoch(kv);
	close_store(kv);
	kv = open_store(loop, directory);
	assert_int_equal(kv->doubt_count, 1);
	assert_int_equal(state_of(kv, "there"), RECORD_INVALID);
	assert_int_equal(state_of(kv, "absent"), RECORD_VALID);
	snprintf(log, sizeof(log), "%s", kv->config.log);
	close_store(kv);
	hf_loop_destroy(loop);
	remove_log(log, directory);
}

static void hear_inv(struct hf_kv *kv, const char *key)
{
	struct wire_message inv = {.kind = WIRE_INV,
		.epoch = kv->epoch,
		.write = 1,
		.ts = {.version = 2, .join = 1, .node = OTHER},
		.key = (const uint8_t *)key,
		.key_bytes = (uint32_t)strlen(key)};
	uint8_t bytes[WIRE_HEAD_BYTES + 16];

	kv_wire_write(&inv, bytes);
	assert_int_equal(kv_hear_messages(kv, OTHER, bytes, kv_wire_bytes(&inv)), kv_wire_bytes(&inv));
}

/* The end of the log does not move any more, and all before it is durable. */
static void nothing_is_acknowledged_once_the_log_has_failed(void **state)
{
	char directory[] = "/tmp/test-kv-durable-XXXXXX", log[HF_KV_PATH_BYTES];
	struct hf_loop *loop;
	struct hf_kv *kv;
	struct link *link;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	kv = open_store(loop, directory);
	assert_int_equal(kv_busy_open(kv), 0);
	assert_int_equal(kv_missed_open(&kv->missed, 1u << 10), 0);
	list_init(&kv->invalid);
	list_init(&kv->unsettled);
	kv->live = kv->member = true;
	kv->epoch = 1;
	kv->view.live = 1u | 1u << OTHER;
	kv->config.member_count = 2;
	link = &kv->links.links[OTHER];
	link->mesh.state = MESH_UP;

	hear_inv(kv, "logged");
	assert_int_equal(kv_link_waiting(link), 0);
	assert_true(kv_durable_turn(kv));
	assert_int_equal(kv_link_waiting(link), WIRE_HEAD_BYTES);
	assert_true(kv->log.durable == kv->log.end);
	kv->log.failed = -EIO;
	hear_inv(kv, "lost");
	assert_int_equal(kv_link_waiting(link), WIRE_HEAD_BYTES);

	snprintf(log, sizeof(log), "%s", kv->config.log);
	free(link->out);
	kv_missed_close(&kv->missed);
	kv_busy_free_all(kv);
	close_store(kv);
	hf_loop_destroy(loop);
	remove_log(log, directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_absence_of_a_record_is_in_no_doubt),
		cmocka_unit_test(nothing_is_acknowledged_once_the_log_has_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
