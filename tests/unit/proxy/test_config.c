/* The section of the proxy, and the configuration of its log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proxy/config.h"

static struct proxy_settings settings;

static int parse(const char *more)
{
	struct hf_config_section section = proxy_config_section(&settings);
	struct hf_error error;
	char text[512];
	int n = snprintf(text, sizeof(text),
		"{\"smr-proxy\": {\"members\": [{\"id\": 0, \"name\": \"a\", \"control\": [\"127.0.0.1:7471\"]}], "
		"\"listen\": \"127.0.0.1:6379\"%s}}",
		more);

	return hf_config_parse(text, (size_t)n, &section, 1, &error);
}

static void values_of_the_preset_are_settable_one_by_one(void **state)
{
	struct hf_smr_config smr;
	struct hf_error error;

	(void)state;
	assert_int_equal(parse(", \"preset\": \"fast\", \"pulse_us\": 50, \"silent_ms\": 20, \"stuck_ms\": 30, "
			       "\"patience_ms\": 40, \"idle_ms\": 5, \"window\": 2, \"wal_mib\": 8, \"tail_mib\": 4"),
		0);
	assert_int_equal(proxy_config_smr(&settings, "a", false, &smr, &error), 0);
	assert_int_equal(smr.preset, HF_SMR_FAST);
	assert_int_equal(smr.pulse_ns, 50000);
	assert_int_equal(smr.silent_ns, 20000000);
	assert_int_equal(smr.stuck_ns, 30000000);
	assert_int_equal(smr.patience_ns, 40000000);
	assert_int_equal(smr.idle_ns, 5000000);
	assert_int_equal(smr.window, 2);
	assert_int_equal(smr.wal_bytes, 8 << 20);
	assert_int_equal(smr.tail_bytes, 4 << 20);
}

static void what_is_not_set_is_the_presets(void **state)
{
	struct hf_smr_config smr;
	struct hf_error error;

	(void)state;
	assert_int_equal(parse(""), 0);
	assert_int_equal(proxy_config_smr(&settings, "a", false, &smr, &error), 0);
	assert_int_equal(smr.preset, HF_SMR_CALM);
	assert_int_equal(smr.pulse_ns + smr.silent_ns + smr.stuck_ns + smr.patience_ns + smr.idle_ns, 0);
	assert_int_equal(smr.window + smr.wal_bytes + smr.tail_bytes, 0);
}

static void a_value_out_of_its_range_is_refused(void **state)
{
	(void)state;
	assert_int_equal(parse(", \"window\": 9"), -EINVAL);
	assert_int_equal(parse(", \"pulse_us\": 9"), -EINVAL);
	assert_int_equal(parse(", \"stuck_ms\": 0"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_the_preset_are_settable_one_by_one),
		cmocka_unit_test(what_is_not_set_is_the_presets),
		cmocka_unit_test(a_value_out_of_its_range_is_refused),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
