/* Partitions of records as Java's producer chooses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "broker/client/partitioner.h"

/* Values of org.apache.kafka.common.utils.Utils.murmur2. */
static void hashes_are_those_of_kafka(void **state)
{
	static const struct {
		const char *key;
		int32_t hash;
	} known[] = {{"21", -973932308}, {"foobar", -790332482}, {"a-little-bit-long-string", -985981536},
		{"a-little-bit-longer-string", -1486304829},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971}, {"abc", 479470107}};

	(void)state;
	for (unsigned i = 0; i < sizeof(known) / sizeof(*known); i++)
		assert_int_equal((int32_t)partitioner_hash(known[i].key, strlen(known[i].key)), known[i].hash);
}

static void a_negative_hash_has_a_partition_too(void **state)
{
	(void)state;
	assert_int_equal(partitioner_of_key("21", 2, 7), (-973932308 & INT32_MAX) % 7);
	assert_int_equal(partitioner_of_key("abc", 3, 7), 479470107 % 7);
	assert_int_equal(partitioner_of_key("", 0, 1), 0);
}

static void without_a_key_one_partition_gets_a_batch(void **state)
{
	struct partitioner_sticky sticky = {0};

	(void)state;
	assert_int_equal(partitioner_without_key(&sticky, 99, 300, 8, 5), 5);
	assert_int_equal(partitioner_without_key(&sticky, 99, 300, 8, 6), 5);
	assert_int_equal(partitioner_without_key(&sticky, 99, 300, 8, 6), 5);
	assert_int_equal(partitioner_without_key(&sticky, 99, 300, 8, 14), 6);
	assert_int_equal(partitioner_without_key(&sticky, 99, 300, 8, 3), 6);
	assert_int_equal(partitioner_without_key(&sticky, 99, 300, 4, 3), 3); /* partition 6 is not known any more */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_are_those_of_kafka),
		cmocka_unit_test(a_negative_hash_has_a_partition_too),
		cmocka_unit_test(without_a_key_one_partition_gets_a_batch),
	};

	return cmocka_run_group_tests_name("partitioner", tests, NULL, NULL);
}
