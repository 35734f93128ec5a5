/* How long an engine waits: for a slice, for a stream and for a rail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engines.h"
#include "transfer/engine.h"

#define BYTES  (8u << 20)
#define CHUNK  (1u << 20)
#define SECOND 1000000000ull
#define LIMIT  100000u /* turns */
#define LIVES  5u      /* of a lane */

struct fixture {
	struct engines engines;
	struct hf_transfer_batch *batch;
};

static struct hf_transfer_request request_of(struct fixture *f, enum hf_transfer_opcode opcode)
{
	return (struct hf_transfer_request){.opcode = opcode,
		.source = f->engines.from,
		.segment = f->engines.segment,
		.target_offset = f->engines.target,
		.length = BYTES};
}

static bool rails_come_first(struct fixture *f)
{
	const struct hf_transfer_request request = request_of(f, HF_TRANSFER_WRITE);

	return hf_transfer_resolve(f->engines.a, &request, 0) != HF_TRANSPORT_TCP;
}

static void wait_for_rails(struct fixture *f, bool there)
{
	for (unsigned i = 0; i < LIMIT && rails_come_first(f) != there; i++)
		engines_turn(&f->engines);
	assert_true(rails_come_first(f) == there);
}

static void switch_rails(struct fixture *f, bool up)
{
	for (unsigned rail = 0; rail < 2; rail++)
		pair_cut(&f->engines.pair, rail, up);
}

static void slow_rails(struct fixture *f, uint32_t mb)
{
	for (unsigned rail = 0; rail < 2; rail++)
		assert_int_equal(hf_dev_set_rate(hf_node_dev(f->engines.pair.a.node, rail), mb), 0);
}

static void open_fixture(struct fixture *f, const struct hf_transfer_config *config)
{
	*f = (struct fixture){.engines.config = *config};
	engines_open(&f->engines, BYTES, NULL, NULL);
	assert_int_equal(hf_transfer_batch_alloc(f->engines.a, 1, NULL, NULL, &f->batch), 0);
	wait_for_rails(f, true);
}

static void submit(struct fixture *f, enum hf_transfer_opcode opcode)
{
	const struct hf_transfer_request request = request_of(f, opcode);
	unsigned first;

	assert_int_equal(hf_transfer_submit(f->batch, &request, 1, &first, NULL), 0);
}

static void close_fixture(struct fixture *f)
{
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f->batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&f->engines);
	assert_int_equal(hf_transfer_batch_status(f->batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f->engines.from, f->engines.to, BYTES);
	assert_int_equal(hf_transfer_batch_free(f->batch), 0);
	engines_close(&f->engines);
}

/* R-G4: a peer that waits for a core connects late. What is submitted meanwhile waits for its rails, for a second. */
static void the_first_work_waits_for_the_rails(void **state)
{
	struct fixture f = {0};
	struct hf_transfer_counters counters;
	struct rdma_peer *rails;

	(void)state;
	engines_open(&f.engines, BYTES, NULL, NULL);
	assert_int_equal(hf_transfer_batch_alloc(f.engines.a, 1, NULL, NULL, &f.batch), 0);
	rails = &container_of(f.engines.segment, struct peer, segment)->rails[strcmp(pair_kind, "shm") == 0 ? 0 : 1];
	for (unsigned i = 0; i < 2; i++)
		assert_false(lane_is_open(&rails->lanes[i]));
	assert_true(rails_come_first(&f));
	for (unsigned i = 0; i < 2; i++)
		rails->lanes[i].first_until_ns -= 2 * SECOND;
	assert_false(rails_come_first(&f));
	for (unsigned i = 0; i < 2; i++)
		rails->lanes[i].first_until_ns += 2 * SECOND;
	submit(&f, HF_TRANSFER_WRITE);
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f.batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&f.engines);
	hf_transfer_counters(f.engines.a, &counters);
	assert_int_equal(counters.tcp_bytes, 0);
	close_fixture(&f);
}

static void needs_a_rate(void)
{
	if (strcmp(pair_kind, "shm") == 0) {
		print_message("skipped: shm has no rate\n");
		skip();
	}
}

/* R-T10: a time-out moves on like a failure. At 1 MB/s no slice ends in time. */
static void a_time_out_fails_over_like_a_failure(void **state)
{
	const struct hf_transfer_config config = {.block_bytes = CHUNK, .max_timeout_ns = SECOND / 50};
	struct hf_transfer_counters counters;
	struct fixture f;

	(void)state;
	needs_a_rate();
	open_fixture(&f, &config);
	slow_rails(&f, 1);
	submit(&f, HF_TRANSFER_WRITE);
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f.batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&f.engines);
	hf_transfer_counters(f.engines.a, &counters);
	assert_true(counters.failovers[HF_TRANSPORT_RDMA][HF_TRANSPORT_TCP] > 0);
	close_fixture(&f);
}

/* R-G6: as one that has no core. No slice ends in time on any rail; their lanes are made again until some do. */
static void a_peer_that_stands_still_pauses_no_rail(void **state)
{
	const struct hf_transfer_config config = {.block_bytes = CHUNK,
		.max_timeout_ns = SECOND / 4, /* far more than a turn takes on a busy machine */
		.rail_error_threshold = 1,
		.rail_error_window_ns = 3600 * SECOND,
		.fallback = HF_FALLBACK_OFF,
		.max_retry_count = 1000};
	const struct lane *lanes;
	struct fixture f;

	(void)state;
	needs_a_rate();
	open_fixture(&f, &config);
	slow_rails(&f, 1);
	submit(&f, HF_TRANSFER_WRITE);
	lanes = container_of(f.engines.segment, struct peer, segment)->rails[1].lanes;
	for (unsigned i = 0; i < LIMIT && (lanes[0].lives < LIVES || lanes[1].lives < LIVES); i++)
		engines_turn(&f.engines);
	for (unsigned rail = 0; rail < 2; rail++) {
		assert_true(lanes[rail].lives >= LIVES);
		assert_int_equal(lanes[rail].monitor.life, 0); /* no trip */
	}
	slow_rails(&f, 0);
	close_fixture(&f);
}

/* T4: the wait for a rail begins when the last one is cut, not when the task began. */
static void without_fallback_a_task_waits_for_a_rail_that_was_cut(void **state)
{
	const struct hf_transfer_config config = {
		.fallback = HF_FALLBACK_OFF, .max_timeout_ns = SECOND, .window_bytes = CHUNK / 8};
	struct fixture f;

	(void)state;
	needs_a_rate();
	open_fixture(&f, &config);
	slow_rails(&f, 3);
	submit(&f, HF_TRANSFER_WRITE);
	pair_turn_for(&f.engines.pair, config.max_timeout_ns + SECOND / 10);
	switch_rails(&f, false);
	wait_for_rails(&f, false);
	for (unsigned i = 0; i < 10; i++)
		engines_turn(&f.engines);
	switch_rails(&f, true);
	close_fixture(&f);
}

static void turn_late(struct fixture *f, uint64_t ns)
{
	uint64_t until_ns = hf_env_now_ns(hf_env_host()) + ns;

	engines_turn(&f->engines);
	while (hf_env_now_ns(hf_env_host()) < until_ns)
		continue;
}

/* A turn takes 1 MiB from a stream at the most: the slice takes longer than max_timeout_ns, and moves in each turn. */
static void a_slow_stream_that_moves_is_not_ended(void **state)
{
	const struct hf_transfer_config config = {.shm_block_bytes = BYTES, .max_timeout_ns = SECOND / 5};
	struct fixture f;

	(void)state;
	open_fixture(&f, &config);
	switch_rails(&f, false);
	wait_for_rails(&f, false);
	submit(&f, HF_TRANSFER_READ);
	for (unsigned i = 0; i < 50 && hf_transfer_batch_status(f.batch) == HF_TRANSFER_PENDING; i++)
		turn_late(&f, SECOND / 25);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	close_fixture(&f);
}

/* A cancel ends a stream that has carried nothing yet; the next request opens another. */
static void cancels_are_no_failures_of_tcp(void **state)
{
	const struct hf_transfer_config config = {.cancel_grace_ns = 1};
	struct hf_transfer_request request;
	struct fixture f;

	(void)state;
	open_fixture(&f, &config);
	request = request_of(&f, HF_TRANSFER_WRITE);
	request.hinted = true;
	request.hint = HF_TRANSPORT_TCP;
	for (unsigned i = 0; i < 8; i++) {
		const struct tcp_peer *tcp = &container_of(f.engines.segment, struct peer, segment)->tcp;
		unsigned first;

		assert_int_equal(hf_transfer_resolve(f.engines.a, &request, 0), HF_TRANSPORT_TCP);
		assert_int_equal(hf_transfer_submit(f.batch, &request, 1, &first, NULL), 0);
		while (tcp->lines[0].stream.out_count + tcp->lines[1].stream.out_count == 0)
			engines_turn(&f.engines);
		assert_int_equal(hf_transfer_cancel(f.batch, 0), 0);
		while (hf_transfer_batch_status(f.batch) == HF_TRANSFER_PENDING)
			engines_turn(&f.engines);
		assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_CANCELED);
		assert_int_equal(tcp->failures, 0);
		assert_int_equal(hf_transfer_batch_free(f.batch), 0);
		assert_int_equal(hf_transfer_batch_alloc(f.engines.a, 1, NULL, NULL, &f.batch), 0);
	}
	submit(&f, HF_TRANSFER_WRITE);
	close_fixture(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_work_waits_for_the_rails),
		cmocka_unit_test(a_time_out_fails_over_like_a_failure),
		cmocka_unit_test(a_peer_that_stands_still_pauses_no_rail),
		cmocka_unit_test(without_fallback_a_task_waits_for_a_rail_that_was_cut),
		cmocka_unit_test(a_slow_stream_that_moves_is_not_ended),
		cmocka_unit_test(cancels_are_no_failures_of_tcp),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
