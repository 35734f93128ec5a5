/* Configuration in sections: what is read where, and what an error says. */
#include <holdfast/config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "env/json_line.h"

struct shard {
	char name[8];
	uint16_t weight;
};
struct store {
	char name[32];
	char title[8];
	char directory[64];
	bool sync;
	uint8_t small;
	uint64_t big, wait_ns;
	enum { RED, GREEN, BLUE } colour;
	struct hf_addr address;
	unsigned even;
	struct shard first, shards[3];
	unsigned shard_count;
	uint32_t ports[4];
	unsigned port_count;
};

static bool parse_even(const char *text, int64_t number, void *out)
{
	*(unsigned *)out = (unsigned)number;
	return text == NULL && number % 2 == 0;
}

static const struct hf_config_key shard_keys[] = {
	{"name", HF_CONFIG_NAME, HF_CONFIG_INTO(struct shard, name), .required = true, .unique = true},
	{"weight", HF_CONFIG_NUMBER, HF_CONFIG_INTO(struct shard, weight), .max = 1000},
};
static const char *const colours[] = {"red", "green", "blue", NULL};

#define STORE(member) HF_CONFIG_INTO(struct store, member)
static const struct hf_config_key store_keys[] = {
	{"name", HF_CONFIG_NAME, STORE(name), .required = true},
	{"title", HF_CONFIG_TEXT, STORE(title)},
	{"directory", HF_CONFIG_PATH, STORE(directory)},
	{"sync", HF_CONFIG_BOOL, STORE(sync)},
	{"small", HF_CONFIG_NUMBER, STORE(small), .min = 2, .max = 200},
	{"big", HF_CONFIG_NUMBER, STORE(big), .max = 1ull << 40},
	{"wait_ms", HF_CONFIG_MILLISECONDS, STORE(wait_ns)},
	{"colour", HF_CONFIG_CHOICE, STORE(colour), .choices = colours},
	{"address", HF_CONFIG_ADDRESS, STORE(address)},
	{"even", HF_CONFIG_PARSED, STORE(even), .parse = parse_even, .expected = "expected an even number"},
	{"first", HF_CONFIG_OBJECT, STORE(first), .of = shard_keys, .of_count = 2},
	{"shards", HF_CONFIG_OBJECT, STORE(shards), .of = shard_keys, .of_count = 2, .elements = 3,
		.count_offset = offsetof(struct store, shard_count)},
	{"ports", HF_CONFIG_NUMBER, STORE(ports), .required = true, .min = 1, .max = 65535, .elements = 4,
		.count_offset = offsetof(struct store, port_count)},
};
static const struct hf_config_key top_keys[] = {{"level", HF_CONFIG_NUMBER, 0, sizeof(unsigned), .max = 9}};

static unsigned level;
static struct store store;

static const char *small_is_not_seven(const void *out)
{
	return ((const struct store *)out)->small == 7 ? "small may be anything but 7" : NULL;
}

static struct hf_config_section sections[] = {
	{.keys = top_keys, .key_count = 1, .out = &level},
	{.name = "store",
		.keys = store_keys,
		.key_count = sizeof(store_keys) / sizeof(*store_keys),
		.out = &store,
		.check = small_is_not_seven},
};

static int parse(const char *text, struct hf_error *error)
{
	level = 5;
	store = (struct store){.small = 100};
	return hf_config_parse(text, strlen(text), sections, 2, error);
}

static void refused(const char *text, const char *words)
{
	struct hf_error error = {0};

	assert_int_equal(parse(text, &error), -EINVAL);
	if (strstr(error.text, words) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", words, error.text);
}

static void every_type_goes_into_its_member(void **state)
{
	struct hf_error error = {0};

	(void)state;
	assert_int_equal(parse("{\"level\": 0, \"store\": {\"name\": \"s\", \"title\": \"A b\", \"directory\": \"d\", "
			       "\"sync\": true, \"small\": 200, \"big\": 1099511627776, \"wait_ms\": 3, "
			       "\"colour\": \"blue\", \"address\": \"127.0.0.1:9\", \"even\": 42, "
			       "\"first\": {\"name\": \"f\"}, \"shards\": [{\"name\": \"x\", \"weight\": 0}, "
			       "{\"weight\": 1000, \"name\": \"y\"}], \"ports\": [80, 65535]}}",
				 &error),
		0);
	assert_int_equal(level, 0);
	assert_true(sections[1].present && store.sync);
	assert_string_equal(store.name, "s");
	assert_string_equal(store.title, "A b");
	assert_string_equal(store.directory, "d");
	assert_int_equal(store.small, 200);
	assert_int_equal(store.big, 1ull << 40);
	assert_int_equal(store.wait_ns, 3000000);
	assert_int_equal(store.colour, BLUE);
	assert_int_equal(hf_addr_port(&store.address), 9);
	assert_int_equal(store.even, 42);
	assert_string_equal(store.first.name, "f");
	assert_int_equal(store.shard_count, 2);
	assert_string_equal(store.shards[1].name, "y");
	assert_int_equal(store.shards[1].weight, 1000);
	assert_int_equal(store.port_count, 2);
	assert_int_equal(store.ports[1], 65535);
}

static void an_optional_section_is_whole_or_not_there(void **state)
{
	static const struct hf_config_key pair_keys[] = {
		{"low", HF_CONFIG_NUMBER, 0, sizeof(unsigned), .required = true, .max = 9},
		{"high", HF_CONFIG_NUMBER, sizeof(unsigned), sizeof(unsigned), .max = 9},
	};
	unsigned pair[2] = {1, 2};
	struct hf_config_section both[] = {{.keys = pair_keys, .key_count = 2, .out = pair, .optional = true},
		{.name = "store", .keys = store_keys, .key_count = 1, .out = &store}};
	struct hf_error error = {0};

	(void)state;
	assert_int_equal(hf_config_parse("{}", 2, both, 2, &error), 0);
	assert_false(both[0].present);
	assert_int_equal(hf_config_parse("{\"low\": 3}", 10, both, 2, &error), 0);
	assert_true(both[0].present);
	assert_int_equal(pair[0], 3);
	assert_int_equal(hf_config_parse("{\"high\": 3}", 11, both, 2, &error), -EINVAL);
	assert_non_null(strstr(error.text, "low"));
}

static void what_a_file_does_not_name_keeps_its_value(void **state)
{
	struct hf_error error = {0};

	(void)state;
	assert_int_equal(parse("{}", &error), 0);
	assert_false(sections[1].present);
	assert_int_equal(level, 5);
	assert_int_equal(store.small, 100);
	sections[1].required = true;
	assert_int_equal(parse("{}", &error), -EINVAL);
	sections[1].required = false;
	assert_string_equal(error.text, "line 1: the key \"store\" is missing");
}

static void an_error_names_line_key_and_what_was_expected(void **state)
{
	(void)state;
	refused("{\n\"level\": 10}", "line 2: level: expected a whole number from 0 to 9");
	refused("{\"level\": \"1\"}", "expected a whole number");
	refused("{\"level\": -1}", "expected a whole number");
	refused("{\"level\": 1.5}", "expected a whole number");
	refused("{\n\n\"sture\": {}}", "line 3: sture: unknown key; expected one of level, store");
	refused("{\"store\": [}", "line 1: ");
	refused("{\"store\":\n[]}", "store: expected an object");
	refused("{\n\"store\": {\n\"ports\": [1],\n\"kolour\": 1}}",
		"line 4: store.kolour: unknown key; expected one of name");
	refused("{\n\"store\":\n{\"ports\": [1]}}", "line 2: store: the key \"name\" is missing");
	refused("{\"store\": {\"name\": \".s\"}}", "store.name: expected a name: 1 to 31");
	refused("{\"store\": {\"title\": \"too long\"}}", "store.title: expected a text of 1 to 7 bytes");
	refused("{\"store\": {\"directory\": \"\"}}", "store.directory: expected the path of a file, 1 to 63 bytes");
	refused("{\"store\": {\"sync\": 1}}", "store.sync: expected true or false");
	refused("{\"store\": {\"wait_ms\": 0}}", "store.wait_ms: expected a whole number from 1 to 3600000");
	refused("{\"store\": {\"colour\": \"pink\"}}", "store.colour: expected \"red\", \"green\" or \"blue\"");
	refused("{\"store\": {\"address\": \"x\"}}", "store.address: expected an address such as");
	refused("{\"store\": {\"even\": 43}}", "store.even: expected an even number");
	refused("{\"store\": {\"even\": \"42\"}}", "store.even: expected an even number");
	refused("{\"store\": {\"even\": true}}", "store.even: expected an even number");
	refused("{\"store\": {\"ports\": []}}", "store.ports: expected a list of 1 to 4");
	refused("{\"store\": {\"shards\": {}}}", "store.shards: expected a list of at most 3");
	refused("{\"store\": {\"ports\": [1,\n2,\n70000]}}", "line 3: store.ports[2]: expected a whole number");
	refused("{\"store\": {\"shards\": [\n{\"name\": \"a\"},\n{\"name\":\n\"a\"}]}}",
		"line 3: store.shards[1].name: expected a value that no other element of the list has");
	refused("{\"store\": {\"name\": \"s\", \"ports\": [1], \"small\": 7}}", "store: small may be anything but 7");
	refused("{\"level\": 1, \"level\": 2}", "duplicate");
}

static void a_line_is_found_behind_whatever_stands_before(void **state)
{
	static const char text[] =
		"{ \"a\\\"]\": [[\"}\"],\n{\"b\": \"\\\\\"}], \"n\": null,\n\"\\u0063\": [0,\n {\"d\":\n 1}]}";
	const struct json_step c = {.key = "c"}, d[] = {c, {.index = 1}, {.key = "d"}}, none[] = {c, {.index = 2}};

	(void)state;
	assert_int_equal(json_line(text, strlen(text), NULL, 0), 1);
	assert_int_equal(json_line(text, strlen(text), &c, 1), 3);
	assert_int_equal(json_line(text, strlen(text), d, 2), 4);
	assert_int_equal(json_line(text, strlen(text), d, 3), 4);
	assert_true(json_line(text, strlen(text), none, 2) >= 3);
}

static void a_file_is_named_and_is_where_relative_paths_begin(void **state)
{
	static const char text[] =
		"{\n\"store\": {\"name\": \"s\", \"ports\": [1], \"directory\": \"data\"}, \"x\": 1}";
	char path[] = "/tmp/holdfast-test-XXXXXX", expected[128];
	struct hf_error error = {0};
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	assert_int_equal(hf_config_load(hf_env_host(), path, sections, 2, &error), -EINVAL);
	snprintf(expected, sizeof(expected), "%s: line 2: x: unknown key; expected one of level, store", path);
	assert_string_equal(error.text, expected);
	assert_string_equal(store.directory, "/tmp/data");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(hf_config_load(hf_env_host(), path, sections, 2, &error), -ENOENT);
	assert_non_null(strstr(error.text, "No such file"));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_goes_into_its_member),
		cmocka_unit_test(an_optional_section_is_whole_or_not_there),
		cmocka_unit_test(what_a_file_does_not_name_keeps_its_value),
		cmocka_unit_test(an_error_names_line_key_and_what_was_expected),
		cmocka_unit_test(a_line_is_found_behind_whatever_stands_before),
		cmocka_unit_test(a_file_is_named_and_is_where_relative_paths_begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
