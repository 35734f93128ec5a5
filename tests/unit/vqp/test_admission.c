/* Which nodes are connected with: by their secret files, and by where they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <holdfast/node.h>

#include "base/log.h"
#include "../net/certificates.h"

#define WAIT_NS 20000000000ull

static char directory[64], lines[4096];
static struct hf_loop *loop;
static unsigned ups;

static void collect(enum log_level level, const char *line, void *context)
{
	size_t used = strlen(lines);

	(void)context;
	if (level >= LOG_WARN)
		snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
}

static int set_up(void **state)
{
	(void)state;
	ups = 0;
	lines[0] = '\0';
	log_set_sink(collect, NULL);
	snprintf(directory, sizeof(directory), "/tmp/holdfast-test-XXXXXX");
	if (mkdtemp(directory) == NULL)
		return -1;
	return hf_loop_create(hf_env_host(), &loop);
}

static void name_file(const char *name, char path[HF_PATH_BYTES])
{
	snprintf(path, HF_PATH_BYTES, "%s/%s", directory, name);
}

static int tear_down(void **state)
{
	static const char *const names[] = {"a.secret", "b.secret", "a.json", "node.crt", "node.key", "ca.crt"};
	char path[HF_PATH_BYTES];

	(void)state;
	log_set_sink(NULL, NULL);
	hf_loop_destroy(loop);
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		name_file(names[i], path);
		unlink(path);
	}
	return rmdir(directory);
}

static void write_file(const char *name, mode_t mode, const char *text)
{
	char path[HF_PATH_BYTES];
	FILE *file;

	name_file(name, path);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void on_peer_up(struct hf_peer *peer, void *context)
{
	(void)peer, (void)context;
	ups++;
}

static struct hf_addr address_of(unsigned number)
{
	unsigned pid = (unsigned)getpid();
	struct hf_addr addr;
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "127.%u.%u.%u:18515", 160 + (pid >> 8) % 64, pid & 0xff, 1 + number);
	assert_int_equal(hf_addr_parse(text, &addr), 0);
	return addr;
}

static int try_node(
	unsigned number, const char *secret, const char *cert, struct hf_node **node_out, struct hf_error *error)
{
	static const struct hf_node_events events = {.peer_up = on_peer_up};
	struct hf_node_config config = {.rail_count = 1};

	snprintf(config.name, sizeof(config.name), "%c", 'a' + number);
	snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	snprintf(config.rails[0].kind, HF_NAME_BYTES, "soft");
	config.rails[0].control = config.rails[0].address = address_of(number);
	hf_addr_set_port(&config.rails[0].address, 0);
	if (secret != NULL)
		name_file(secret, config.secret_file);
	if (cert != NULL) {
		name_file(cert, config.tls.cert);
		name_file("node.key", config.tls.key);
		name_file("ca.crt", config.tls.ca);
	}
	return hf_node_open(loop, &config, &events, NULL, node_out, error);
}

static struct hf_node *open_node(unsigned number, const char *secret)
{
	struct hf_error error = {0};
	struct hf_node *node;

	if (try_node(number, secret, NULL, &node, &error) != 0)
		fail_msg("%s", error.text);
	return node;
}

static void connect_nodes(struct hf_node *a)
{
	struct hf_addr there = address_of(1);
	struct hf_error error = {0};
	struct hf_peer *peer;

	if (hf_peer_connect(a, &there, 1, &peer, &error) != 0)
		fail_msg("%s", error.text);
}

static void turn_until_up_or_said(const char *words)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + WAIT_NS;

	while (ups < 2 && (words == NULL || strstr(lines, words) == NULL)) {
		assert_true(hf_env_now_ns(hf_env_host()) < end_ns);
		hf_loop_turn(loop, 1000000);
	}
}

static void nodes_with_the_same_secret_file_connect(void **state)
{
	struct hf_node *a, *b;

	(void)state;
	write_file("a.secret", 0600, "what both of them know\n");
	write_file("b.secret", 0400, "what both of them know");
	a = open_node(0, "a.secret");
	b = open_node(1, "b.secret");
	connect_nodes(a);
	turn_until_up_or_said(NULL);
	assert_int_equal(ups, 2);
	hf_node_close(a);
	hf_node_close(b);
}

static void a_node_of_this_host_needs_the_secret_too_where_there_is_one(void **state)
{
	struct hf_node *a, *b;

	(void)state;
	write_file("b.secret", 0600, "what only one of them knows");
	a = open_node(0, NULL);
	b = open_node(1, "b.secret");
	connect_nodes(a);
	turn_until_up_or_said("secret_file");
	assert_int_equal(ups, 0);
	hf_node_close(a);
	hf_node_close(b);
}

static void a_secret_file_that_others_may_read_keeps_a_node_from_opening(void **state)
{
	struct hf_error error = {0};
	struct hf_node *a;

	(void)state;
	write_file("a.secret", 0644, "what anybody may know");
	assert_int_equal(try_node(0, "a.secret", NULL, &a, &error), -EACCES);
	assert_non_null(strstr(error.text, "a.secret"));
	assert_non_null(strstr(error.text, "chmod 600"));
}

static void a_node_of_another_host_is_not_dialed_without_a_secret(void **state)
{
	struct hf_error error = {0};
	struct hf_peer *peer;
	struct hf_addr there;
	struct hf_node *a;

	(void)state;
	a = open_node(0, NULL);
	assert_int_equal(hf_addr_parse("192.0.2.1:18515", &there), 0); /* for documentation: no host has it */
	assert_int_equal(hf_peer_connect(a, &there, 1, &peer, &error), -EACCES);
	assert_non_null(strstr(error.text, "192.0.2.1:18515 is not on this host"));
	hf_node_close(a);
}

static void nodes_with_tls_connect(void **state)
{
	char cert[HF_PATH_BYTES], key[HF_PATH_BYTES], ca[HF_PATH_BYTES];
	uint64_t now_s = hf_env_wall_ns(hf_env_host()) / 1000000000;
	struct authority *authority = authority_create("ca", now_s);
	struct hf_error error = {0};
	struct hf_node *nodes[2];

	(void)state;
	name_file("node.crt", cert);
	name_file("node.key", key);
	name_file("ca.crt", ca);
	authority_write(authority, hf_env_host(), ca);
	authority_sign(authority, hf_env_host(), "node", now_s - 60, now_s + 3600, cert, key);
	authority_free(authority);
	for (unsigned i = 0; i < 2; i++)
		if (try_node(i, NULL, "node.crt", &nodes[i], &error) != 0)
			fail_msg("%s", error.text);
	connect_nodes(nodes[0]);
	turn_until_up_or_said(NULL);
	assert_int_equal(ups, 2);
	hf_node_close(nodes[0]);
	hf_node_close(nodes[1]);
}

static void a_missing_certificate_keeps_a_node_from_opening(void **state)
{
	struct hf_error error = {0};
	struct hf_node *a;

	(void)state;
	assert_int_equal(try_node(0, NULL, "none.crt", &a, &error), -ENOENT);
	assert_non_null(strstr(error.text, "none.crt"));
}

static void a_relative_path_begins_at_the_configuration(void **state)
{
	static const char text[] = "{ \"name\": \"a\", \"rails\": [{\"name\": \"r0\", \"kind\": \"soft\"}], "
				   "\"secret_file\": \"a.secret\", "
				   "\"tls\": {\"cert\": \"a.crt\", \"key\": \"/a.key\", \"ca\": \"ca/ca.crt\"} }";
	char path[HF_PATH_BYTES], expected[HF_PATH_BYTES];
	struct hf_node_config config;
	struct hf_error error = {0};

	(void)state;
	write_file("a.json", 0644, text);
	name_file("a.json", path);
	name_file("a.secret", expected);
	assert_int_equal(hf_node_config_load(hf_env_host(), path, &config, &error), 0);
	assert_string_equal(config.secret_file, expected);
	name_file("a.crt", expected);
	assert_string_equal(config.tls.cert, expected);
	assert_string_equal(config.tls.key, "/a.key");
	name_file("ca/ca.crt", expected);
	assert_string_equal(config.tls.ca, expected);
	assert_int_equal(hf_node_config_parse(text, sizeof(text) - 1, &config, &error), 0);
	assert_string_equal(config.secret_file, "a.secret");
	assert_int_equal(hf_node_config_parse("{\"secret_file\": 7}", 18, &config, &error), -EINVAL);
	assert_non_null(strstr(error.text, "secret_file: expected the path of a file"));
	assert_int_equal(hf_node_config_parse("{\"tls\": {\"cert\": \"a\"}}", 22, &config, &error), -EINVAL);
	assert_non_null(strstr(error.text, "tls: the key \"key\" is missing"));
}

#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_LOOP(nodes_with_the_same_secret_file_connect),
		WITH_LOOP(a_node_of_this_host_needs_the_secret_too_where_there_is_one),
		WITH_LOOP(a_secret_file_that_others_may_read_keeps_a_node_from_opening),
		WITH_LOOP(a_node_of_another_host_is_not_dialed_without_a_secret),
		WITH_LOOP(nodes_with_tls_connect),
		WITH_LOOP(a_missing_certificate_keeps_a_node_from_opening),
		WITH_LOOP(a_relative_path_begins_at_the_configuration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
