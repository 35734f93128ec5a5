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

/* Where the cores are shared with programs that compute, a broker is late now and then (R-G4). */
static void times_are_those_of_shared_or_of_owned_cores(void **state)
{
	(void)state;
	assert_int_equal(parse("\"num.partitions\": 1"), 0);
	broker_config_settle(&config);
	assert_true(config.session_ns == 3000000000 && config.heartbeat_ns == 250000000);
	assert_int_equal(parse("\"cores\": \"owned\""), 0);
	broker_config_settle(&config);
	assert_true(config.session_ns == 500000000 && config.heartbeat_ns == 50000000);
	assert_int_equal(parse("\"cores\": \"shared\", \"broker.session.timeout.ms\": 1000"), 0);
	broker_config_settle(&config);
	assert_true(config.session_ns == 1000000000 && config.heartbeat_ns == 250000000);
	assert_int_equal(parse("\"cores\": \"owned\", \"broker.heartbeat.interval.ms\": 126"), -EINVAL);
	assert_int_equal(parse("\"cores\": \"mine\""), -EINVAL);
}

/* A request could never be read. */
static void all_requests_may_take_as_much_as_one(void **state)
{
	(void)state;
	assert_int_equal(parse("\"max.connections.per.ip\": 3"), 0);
	assert_int_equal(broker_config_queued_bytes(&config), 256u << 20);
	assert_int_equal(parse("\"socket.request.max.bytes\": 536870912"), 0);
	assert_int_equal(broker_config_queued_bytes(&config), 512u << 20);
	assert_int_equal(parse("\"queued.max.request.bytes\": 104857600"), 0);
	assert_int_equal(broker_config_queued_bytes(&config), 100u << 20);
	assert_int_equal(parse("\"queued.max.request.bytes\": 104857599"), -EINVAL);
	assert_int_equal(parse("\"queued.max.request.bytes\": -1"), 0);
	assert_true(broker_config_queued_bytes(&config) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_those_of_shared_or_of_owned_cores),
		cmocka_unit_test(the_first_members_of_a_group_need_not_wait),
		cmocka_unit_test(all_requests_may_take_as_much_as_one),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
