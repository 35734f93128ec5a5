/* The keys of a broker: what Kafka takes is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker/broker_config.h"

static struct broker_config config;

static int parse(const char *line)
{
	struct hf_config_section section = broker_config_section(&config);
	struct hf_error error;
	char text[256];
	int n = snprintf(text, sizeof(text),
		"{\"broker\": {\"node.id\": 1, \"listeners\": \"PLAINTEXT://:9092\", \"log.dirs\": \"/l\", %s}}", line);

	broker_config_default(&config);
	return hf_config_parse(text, (size_t)n, &section, 1, &error);
}

static void the_first_members_of_a_group_need_not_wait(void **state)
{
	(void)state;
	assert_int_equal(parse("\"group.initial.rebalance.delay.ms\": 0"), 0);
	assert_int_equal(config.rebalance_delay_ms, 0);
	assert_int_equal(parse("\"group.initial.rebalance.delay.ms\": 2147483647"), 0);
	assert_int_equal(config.rebalance_delay_ms, INT32_MAX);
	assert_int_equal(parse("\"group.initial.rebalance.delay.ms\": -1"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_members_of_a_group_need_not_wait),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
