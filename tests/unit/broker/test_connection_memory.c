/* Who gets the memory of requests when there is not enough for all (R-B45). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "broker/broker.h"
#include "broker/connection.h"

#define KIB  1024u
#define MOST (1000u * KIB)

static struct broker broker;
static struct connection connections[3];

static int set_up(void **state)
{
	(void)state;
	broker = (struct broker){0};
	assert_int_equal(hf_loop_create(hf_env_host(), &broker.loop), 0);
	list_init(&broker.connections);
	list_init(&broker.ready);
	connection_memory_open(&broker.memory, broker.loop, &broker.connections, MOST);
	for (unsigned i = 0; i < 3; i++) {
		connections[i] = (struct connection){.broker = &broker, .in_capacity = CONNECTION_BUFFER_BYTES};
		list_push_back(&broker.connections, &connections[i].node);
		list_init(&connections[i].ready_node);
		list_init(&connections[i].memory_node);
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	connection_memory_close(&broker.memory);
	hf_loop_destroy(broker.loop);
	return 0;
}

/* Whether it gets a buffer of so many bytes beyond its own. */
static bool grow(struct connection *connection, uint32_t bytes)
{
	if (!connection_memory_allows(&broker.memory, connection, CONNECTION_BUFFER_BYTES + bytes))
		return false;
	connection->in_capacity = CONNECTION_BUFFER_BYTES + bytes;
	connection_memory_count(&broker.memory, connection);
	return true;
}

static void give_back(struct connection *connection)
{
	connection->in_capacity = CONNECTION_BUFFER_BYTES;
	connection_memory_count(&broker.memory, connection);
}

static void room_goes_to_who_holds_least_and_is_kept_for_it(void **state)
{
	struct connection *small = &connections[0], *large = &connections[1], *holder = &connections[2];

	(void)state;
	assert_true(grow(large, 100 * KIB));
	assert_true(grow(holder, 900 * KIB));
	assert_false(grow(small, 200 * KIB));
	give_back(holder);
	assert_false(list_empty(&small->ready_node));
	assert_false(grow(large, 1000 * KIB)); /* it comes first, and would leave nothing */
	assert_true(grow(small, 200 * KIB));
	assert_int_equal(broker.memory.held, 300 * KIB);
	give_back(small);
	assert_false(list_empty(&large->ready_node));
	assert_true(grow(large, 1000 * KIB));
	give_back(large);
	assert_int_equal(broker.memory.held, 0);
}

static void who_holds_more_waits_behind_who_waits(void **state)
{
	struct connection *small = &connections[0], *large = &connections[1], *holder = &connections[2];

	(void)state;
	assert_true(grow(large, 100 * KIB));
	assert_true(grow(holder, 800 * KIB));
	assert_false(grow(small, 200 * KIB));
	assert_false(grow(large, 200 * KIB)); /* there is room for it, and then there were none for the first */
	give_back(holder);
	assert_true(grow(small, 200 * KIB));
	assert_true(grow(large, 200 * KIB));
}

static void what_is_kept_for_a_connection_that_ends_is_free(void **state)
{
	(void)state;
	assert_true(grow(&connections[2], MOST));
	assert_false(grow(&connections[0], MOST));
	give_back(&connections[2]);
	assert_int_equal(broker.memory.held, MOST);
	connection_memory_forget(&broker.memory, &connections[0]);
	assert_int_equal(broker.memory.held, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		MEMORY_TEST(room_goes_to_who_holds_least_and_is_kept_for_it),
		MEMORY_TEST(who_holds_more_waits_behind_who_waits),
		MEMORY_TEST(what_is_kept_for_a_connection_that_ends_is_free),
#undef MEMORY_TEST
	};

	return cmocka_run_group_tests_name("connection memory", tests, NULL, NULL);
}
