/* A producer and a broker: exclusive grants, extents, and what takes a grant back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "batches.h"
#include "broker/client/producer.h"
#include "broker/rdma/produce_grant.h"
#include "stand.h"

#define SEGMENT_BYTES 65536u
#define EXTENT_BYTES  16384u

static const struct hf_producer_config one_by_one = {.batch_records = 1};

static struct hf_producer_stats stats(void)
{
	struct hf_producer_stats stats;

	hf_producer_stats(stand.producer, &stats);
	return stats;
}

static void batches_go_by_rdma_through_extents_and_segments(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&one_by_one);
	stand_send_all(0, 0, 1000, 200);
	assert_int_equal(stand.failed, 0);
	assert_int_equal(stand.rdma, 1000);
	assert_int_equal(stand.next_offset, 1000);
	assert_true(stats().extents > 1000 * 200 / EXTENT_BYTES);
	assert_true(stand_partition(0)->log->segments.next != stand_partition(0)->log->segments.prev);
	stand_check_numbers(0, 0, 1000);
	stand_close();
}

static void records_are_gathered_into_batches(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.batch_bytes = 4096});
	stand_send_all(1, 7, 5000, 50);
	assert_int_equal(stand.failed, 0);
	assert_true(stats().batches < 500);
	stand_check_numbers(1, 7, 5000);
	stand_close();
}

/* Answers leave one by one, so that many wait: the holder has no more batches out than there is room for answers. */
static void a_holder_keeps_to_its_credits_while_answers_wait(void **state)
{
	const struct producer_partition *holder;
	struct produce_grant *grant;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&one_by_one);
	stand_send_all(0, 0, 1, 100);
	grant = container_of(stand_partition(0)->holder, struct produce_grant, holder);
	for (uint64_t i = 1; i <= 400; i++)
		assert_int_equal(stand_send(0, i, 100), 0);
	holder = container_of(stand.producer->partitions.next, struct producer_partition, node);
	for (unsigned turn = 0; stand.told < 401 && stats().losses == 0; turn++) {
		uint32_t kept = grant->free_count, some = turn % 6 == 5 && kept > 0;

		grant->free_count = some;
		(void)hf_loop_turn(stand.pair.loop, 100000);
		grant->free_count += kept - some;
		assert_true((int32_t)(holder->credits - grant->answered - grant->overruns) <= (int32_t)RDMA_CREDITS);
	}
	assert_int_equal(stats().losses, 0);
	stand_check_numbers(0, 0, 401);
	stand_close();
}

/* What another producer of TCP does. */
static void append_as_tcp_does(int32_t partition)
{
	static uint8_t data[1024];
	struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1, .sequence = -1};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	assert_int_equal(partition_append(stand_partition(partition), data, bytes, 1, &result), KAFKA_NONE);
}

static void another_producer_takes_the_grant_back_and_nothing_is_lost(void **state)
{
	struct partition *partition;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.batch_records = 1, .return_ns = 1000000});
	partition = stand_partition(0);
	for (uint64_t i = 0; i < 50; i++) {
		for (uint64_t k = 0; k < 10; k++)
			assert_int_equal(stand_send(0, i * 10 + k, 100), 0);
		for (unsigned turns = 0; turns < i; turns++)
			(void)hf_loop_turn(stand.pair.loop, 0);
		append_as_tcp_does(0);
		assert_null(partition->holder);
		stand_until(stand_is_flushed);
	}
	assert_int_equal(stand.failed, 0);
	assert_true(stats().losses > 5);
	assert_int_equal(partition_log_end(partition->log), 50 + 500);
	stand_close();
}

static void a_batch_that_is_wrong_ends_the_grant_and_the_rest_goes_on(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.batch_records = 1, .batch_bytes = 32768});
	stand_send_all(0, 0, 10, 100);
	/* From now on the broker takes no batch of this size, and its client does not know it. */
	stand_partition(0)->log->config.max_message_bytes = 5000;
	assert_int_equal(stand_send(0, 10, 6000), 0);
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(stand_send(0, 10 + i, 100), 0);
	stand_until(stand_is_flushed);
	assert_int_equal(stand.failed, 1);
	assert_int_equal(stand.refusal, KAFKA_MESSAGE_TOO_LARGE);
	stand_check_numbers(0, 0, 30);
	stand_close();
}

/* The leader lacks replicas for a while: nothing is told, and nothing is lost. */
static void what_may_be_taken_later_is_sent_again(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.batch_records = 1, .return_ns = 1000000});
	stand_send_all(0, 0, 10, 100);
	stand_partition(0)->replicas = 2;
	stand_partition(0)->log->config.min_insync_replicas = 2;
	for (uint64_t i = 10; i < 20; i++)
		assert_int_equal(stand_send(0, i, 100), 0);
	pair_turn_for(&stand.pair, 100000000);
	assert_int_equal(stand.told, 10);
	stand_partition(0)->log->config.min_insync_replicas = 1;
	stand_until(stand_is_flushed);
	assert_int_equal(stand.failed, 0);
	stand_check_numbers(0, 0, 20);
	stand_close();
}

static void is_not_replicated(struct partition *partition)
{
	(void)partition;
}

static bool has_committed_one(void)
{
	return partition_log_end(stand_partition(0)->log) == 1;
}

/* Its producer asks what became of it until there are enough replicas (B1). */
static void what_too_few_replicas_have_is_told_later(void **state)
{
	struct partition *partition;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.batch_records = 1, .return_ns = 1000000});
	partition = stand_partition(0);
	partition->appended = is_not_replicated;
	assert_int_equal(stand_send(0, 0, 100), 0);
	stand_until(has_committed_one);
	partition->replicas = 3;
	partition->log->config.min_insync_replicas = 2;
	partition_set_hw(partition, 1);
	pair_turn_for(&stand.pair, 100000000);
	assert_int_equal(stand.told, 0);
	partition->log->config.min_insync_replicas = 1;
	stand_until(stand_is_flushed);
	assert_int_equal(stand.failed, 0);
	stand_check_numbers(0, 0, 1);
	stand_close();
}

static bool nothing_is_held(void)
{
	return stand_partition(0)->holder == NULL;
}

static void a_client_that_is_gone_leaves_nothing_behind_the_tail(void **state)
{
	struct segment *head;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&one_by_one);
	stand_send_all(0, 0, 10, 100);
	assert_non_null(stand_partition(0)->holder);
	head = container_of(stand_partition(0)->log->segments.prev, struct segment, node);
	memset(head->map + head->bytes, 0xaa, 100); /* as a WRITE whose notice never comes */
	hf_producer_close(stand.producer);
	stand.producer = NULL;
	stand_until(nothing_is_held);
	for (uint32_t i = head->bytes; i < head->bytes + 100; i++)
		assert_int_equal(head->map[i], 0);
	stand_close();
}

static const struct producer_partition *only_partition(void)
{
	return container_of(stand.producer->partitions.next, struct producer_partition, node);
}

static bool has_a_token(void)
{
	return only_partition()->way == PRODUCER_CONNECTING;
}

static bool has_used_it(void)
{
	return only_partition()->way != PRODUCER_CONNECTING;
}

/* Between the token and the vqp others may have led. */
static void a_token_is_worth_nothing_in_another_epoch(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.batch_records = 1, .return_ns = 1000000});
	assert_int_equal(stand_send(0, 0, 100), 0);
	stand_until(has_a_token);
	stand_partition(0)->leader_epoch++;
	stand_until(has_used_it);
	assert_int_not_equal(only_partition()->way, PRODUCER_DIRECT);
	stand_until(stand_is_flushed);
	assert_int_equal(stand.failed, 0);
	stand_check_numbers(0, 0, 1);
	stand_close();
}

static void without_rails_it_goes_over_tcp(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.rdma = HF_RDMA_OFF, .batch_records = 3});
	stand_send_all(0, 0, 100, 100);
	assert_int_equal(stand.failed, 0);
	assert_int_equal(stand.rdma, 0);
	stand_check_numbers(0, 0, 100);
	stand_close();
}

static void a_cut_rail_costs_no_grant(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&one_by_one);
	stand_send_all(0, 0, 10, 100);
	for (uint64_t i = 0; i < 20; i++) {
		for (uint64_t k = 0; k < 10; k++)
			assert_int_equal(stand_send(0, 10 + i * 10 + k, 100), 0);
		pair_cut(&stand.pair, i % 2, false);
		stand_until(stand_is_flushed);
		pair_cut(&stand.pair, i % 2, true);
		pair_turn_for(&stand.pair, 150000000);
	}
	assert_int_equal(stand.failed, 0);
	assert_int_equal(stats().losses, 0);
	assert_int_equal(stand.rdma, 210);
	stand_check_numbers(0, 0, 210);
	stand_close();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_go_by_rdma_through_extents_and_segments),
		cmocka_unit_test(records_are_gathered_into_batches),
		cmocka_unit_test(a_holder_keeps_to_its_credits_while_answers_wait),
		cmocka_unit_test(another_producer_takes_the_grant_back_and_nothing_is_lost),
		cmocka_unit_test(a_batch_that_is_wrong_ends_the_grant_and_the_rest_goes_on),
		cmocka_unit_test(what_may_be_taken_later_is_sent_again),
		cmocka_unit_test(what_too_few_replicas_have_is_told_later),
		cmocka_unit_test(a_client_that_is_gone_leaves_nothing_behind_the_tail),
		cmocka_unit_test(a_token_is_worth_nothing_in_another_epoch),
		cmocka_unit_test(without_rails_it_goes_over_tcp),
		cmocka_unit_test(a_cut_rail_costs_no_grant),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name("produce", tests, NULL, NULL);
}
