/* transfer-engine.json: its defaults, its keys, and what is refused in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <holdfast/transfer.h>

#define SECOND 1000000000ull

static int parse(const char *text, struct hf_transfer_file *file, struct hf_error *error)
{
	return hf_transfer_config_parse(text, strlen(text), file, error);
}

static void the_least_file_has_the_defaults_of_tent(void **state)
{
	struct hf_transfer_file file;
	struct hf_error error = {0};

	(void)state;
	assert_int_equal(parse("{\"node\": \"node.json\"}", &file, &error), 0);
	assert_string_equal(file.node_path, "node.json");
	assert_int_equal(file.engine.max_failover_attempts, 3);
	assert_int_equal(file.engine.fallback, HF_FALLBACK_AUTO);
	assert_int_equal(file.node.cores, HF_CORES_SHARED);
	assert_int_equal(file.engine.block_bytes, 65536);
	assert_int_equal(file.engine.shm_block_bytes, 1 << 20);
	assert_int_equal(file.engine.max_retry_count, 8);
	assert_int_equal(file.engine.max_buffers, 10000);
	assert_int_equal(file.engine.transports_off, 0);
	assert_false(file.engine.keep_requests_apart);
}

static void every_key_goes_where_it_belongs(void **state)
{
	static const char text[] =
		"{\"node\": \"/etc/n.json\", \"metadata_type\": \"p2p\", \"max_failover_attempts\": 0,"
		" \"max_buffers\": 16384,"
		" \"merge_requests\": false, \"fallback\": \"required\", \"cores\": \"owned\",\"lease_ms\": 900, "
		"\"cancel_grace_ms\": 20,"
		" \"transports\": {"
		"  \"rdma\": {\"enable\": false, \"max_timeout_ns\": 2000000000, \"rail_error_threshold\": 5,"
		"   \"rail_error_window_secs\": 6, \"rail_cooldown_secs\": 7, \"rail_probe_interval_ms\": 250,"
		"   \"window_bytes\": 1000000, \"confirm_writes\": true,"
		"   \"workers\": {\"max_retry_count\": 2, \"block_size\": 32768}},"
		"  \"shm\": {\"enable\": false, \"block_size\": 8192},"
		"  \"tcp\": {\"enable\": true, \"address\": \"127.0.0.9:7000\", \"streams\": 4}}}";
	struct hf_transfer_file file;
	struct hf_error error = {0};
	char addr[HF_ADDR_TEXT];

	(void)state;
	if (parse(text, &file, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(file.engine.max_failover_attempts, -1);
	assert_true(file.engine.keep_requests_apart);
	assert_int_equal(file.engine.fallback, HF_FALLBACK_REQUIRED);
	assert_int_equal(file.node.cores, HF_CORES_OWNED);
	assert_int_equal(file.engine.max_buffers, 16384);
	assert_int_equal(file.engine.lease_ns, SECOND * 9 / 10);
	assert_int_equal(file.engine.cancel_grace_ns, SECOND / 50);
	assert_int_equal(file.engine.max_timeout_ns, 2 * SECOND);
	assert_int_equal(file.engine.rail_error_threshold, 5);
	assert_int_equal(file.engine.rail_error_window_ns, 6 * SECOND);
	assert_int_equal(file.engine.rail_cooldown_ns, 7 * SECOND);
	assert_int_equal(file.engine.rail_probe_interval_ns, SECOND / 4);
	assert_int_equal(file.engine.window_bytes, 1000000);
	assert_true(file.engine.confirm_writes);
	assert_int_equal(file.engine.max_retry_count, 2);
	assert_int_equal(file.engine.block_bytes, 32768);
	assert_int_equal(file.engine.shm_block_bytes, 8192);
	assert_int_equal(file.engine.streams, 4);
	assert_string_equal(hf_addr_format(&file.engine.listen, addr), "127.0.0.9:7000");
	assert_int_equal(file.engine.transports_off, 1u << HF_TRANSPORT_RDMA | 1u << HF_TRANSPORT_SHM);
}

static void a_key_that_the_engine_lacks_is_refused_with_the_reason(void **state)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{"{\"node\": \"n\", \"topology\": {\"rdma_whitelist\": []}}", "line 1: topology: not in this engine: "},
		{"{\"node\": \"n\", \"metrics\": {\"http_port\": 9100}}",
			"metrics: not in this engine: the node serves them"},
		{"{\"node\": \"n\", \"metadata_type\": \"etcd\"}", "metadata_type: expected \"p2p\""},
		{"{\"node\": \"n\",\n \"transports\": {\"gds\": {\"enable\": true}}}",
			"line 2: transports.gds: not in this engine: there is no such transport"},
		{"{\"node\": \"n\", \"transports\": {\"rdma\": {\"endpoint\": 5}}}",
			"transports.rdma.endpoint: not in"},
		{"{\"node\": \"n\", \"transports\": {\"rdma\": {\"workers\": {\"blocksize\": 5}}}}",
			"transports.rdma.workers.blocksize: unknown key; expected one of max_retry_count, block_size"},
		{"{\"node\": \"n\", \"transports\": {\"rdma\": {\"rail_cooldown_secs\": 301}}}",
			"transports.rdma.rail_cooldown_secs: expected a whole number from 1 to 300"},
		{"{\"fallback\": \"off\"}", "the key \"node\" is missing"},
		{"{\"node\": \"n\", \"fallback\": \"on\"}", "expected \"auto\", \"off\" or \"required\""},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct hf_transfer_file file;
		struct hf_error error = {0};

		assert_int_equal(parse(cases[i].text, &file, &error), -EINVAL);
		if (strstr(error.text, cases[i].words) == NULL)
			fail_msg("\"%s\" is not in \"%s\"", cases[i].words, error.text);
	}
}

static void write_file(const char *directory, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* The path of the node's file begins at this file, and tcp listens beside its control paths. */
static void a_file_brings_its_node_and_an_address_for_tcp(void **state)
{
	char directory[] = "/tmp/test-transfer-config-XXXXXX", path[256], addr[HF_ADDR_TEXT];
	struct hf_transfer_file file;
	struct hf_error error = {0};

	(void)state;
	assert_non_null(mkdtemp(directory));
	(void)snprintf(path, sizeof(path), "%s/transfer-engine.json", directory);
	write_file(directory, "transfer-engine.json", "{\"node\": \"node.json\"}");
	write_file(directory, "node.json",
		"{\"name\": \"a\", \"rails\": [{\"name\": \"r0\", \"kind\": \"soft\", \"address\": \"127.0.0.2\","
		" \"control\": \"127.0.0.2:18515\"}], \"management\": [\"127.0.0.3:18516\"]}");
	if (hf_transfer_config_load(hf_env_host(), path, &file, &error) != 0)
		fail_msg("%s", error.text);
	assert_string_equal(file.node.name, "a");
	assert_int_equal(file.node.cores, HF_CORES_SHARED);
	assert_string_equal(hf_addr_format(&file.engine.listen, addr), "127.0.0.3");
	write_file(directory, "node.json",
		"{\"name\": \"a\", \"rails\": [{\"name\": \"r0\", \"kind\": \"soft\", \"address\": \"127.0.0.2\"}]}");
	assert_int_equal(hf_transfer_config_load(hf_env_host(), path, &file, &error), -EINVAL);
	assert_non_null(strstr(error.text, "has no management or control address"));
	(void)snprintf(path, sizeof(path), "%s/node.json", directory);
	assert_int_equal(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/transfer-engine.json", directory);
	assert_int_equal(hf_transfer_config_load(hf_env_host(), path, &file, &error), -ENOENT);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_file_has_the_defaults_of_tent),
		cmocka_unit_test(every_key_goes_where_it_belongs),
		cmocka_unit_test(a_key_that_the_engine_lacks_is_refused_with_the_reason),
		cmocka_unit_test(a_file_brings_its_node_and_an_address_for_tcp),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
