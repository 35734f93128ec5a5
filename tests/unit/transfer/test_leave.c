/* A peer that leaves: by the call of the program here, at any time, and by the end of its engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engines.h"
#include "transfer/engine.h"

#define BYTES  (8u << 20)
#define CHUNK  (1u << 20)
#define CHUNKS (BYTES / CHUNK)
#define LIMIT  1000000u /* turns */
#define SECOND 1000000000ull

#define RAILS_OFF (1u << HF_TRANSPORT_SHM | 1u << HF_TRANSPORT_RDMA)

struct fixture {
	struct engines engines;
	struct hf_transfer_batch *batch;
	unsigned idle;
};

static void on_idle_close_peer(struct hf_transfer_batch *batch, void *context)
{
	struct fixture *f = context;

	(void)batch;
	f->idle++;
	hf_peer_close(f->engines.pair.a.peer);
	f->engines.pair.a.peer = NULL;
	hf_transfer_close_segment(f->engines.segment);
}

static void open_fixture(struct fixture *f, const struct hf_transfer_config *config,
	void (*on_idle)(struct hf_transfer_batch *batch, void *context))
{
	*f = (struct fixture){.engines.config = *config};
	engines_open(&f->engines, BYTES, NULL, NULL);
	assert_int_equal(hf_transfer_batch_alloc(f->engines.a, CHUNKS, on_idle, f, &f->batch), 0);
}

static void close_fixture(struct fixture *f)
{
	assert_int_equal(hf_transfer_batch_free(f->batch), 0);
	engines_close(&f->engines);
}

static struct hf_transfer_request chunk(const struct fixture *f, unsigned i)
{
	return (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
		.source = f->engines.from + i * CHUNK,
		.segment = f->engines.segment,
		.target_offset = f->engines.target + i * CHUNK,
		.length = CHUNK};
}

static void submit(struct fixture *f, unsigned chunks)
{
	struct hf_transfer_request requests[CHUNKS];
	unsigned first;

	for (unsigned i = 0; i < chunks; i++)
		requests[i] = chunk(f, i);
	assert_int_equal(hf_transfer_submit(f->batch, requests, chunks, &first, NULL), 0);
}

static void wait_for(struct fixture *f, enum hf_transport transport)
{
	const struct hf_transfer_request request = chunk(f, 0);

	for (unsigned i = 0; i < LIMIT && hf_transfer_resolve(f->engines.a, &request, 0) != transport; i++)
		engines_turn(&f->engines);
	assert_int_equal(hf_transfer_resolve(f->engines.a, &request, 0), transport);
}

static void settle(struct fixture *f)
{
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f->batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&f->engines);
}

static unsigned slices_out(const struct fixture *f)
{
	const struct peer *peer = container_of(f->engines.segment, struct peer, segment);
	unsigned n = 0;

	for (unsigned i = 0; i < 2; i++)
		n += peer->rails[1].lanes[i].out_count + peer->tcp.lines[i].stream.out_count;
	return n;
}

/* R-T4, T3: the peer may execute what it was sent until its lease is over. */
static void writes_to_a_peer_that_is_closed_here_wait_for_its_lease(struct fixture *f)
{
	const struct peer *peer = container_of(f->engines.segment, struct peer, segment);

	submit(f, CHUNKS);
	for (unsigned i = 0; i < LIMIT && slices_out(f) == 0; i++)
		engines_turn(&f->engines);
	assert_true(slices_out(f) > 0);
	hf_peer_close(f->engines.pair.a.peer);
	f->engines.pair.a.peer = NULL;
	for (unsigned i = 0; i < 10; i++)
		engines_turn(&f->engines);
	assert_int_equal(hf_transfer_batch_status(f->batch), HF_TRANSFER_PENDING);
	settle(f);
	assert_int_equal(hf_transfer_batch_status(f->batch), HF_TRANSFER_FAILED);
	assert_true(hf_env_boot_ns(hf_env_host()) >= peer->over_ns);
	close_fixture(f);
}

static void writes_on_rails_wait_for_the_lease_of_a_closed_peer(void **state)
{
	const struct hf_transfer_config config = {.lease_ns = SECOND};
	struct fixture f;

	(void)state;
	if (strcmp(pair_kind, "shm") == 0) {
		print_message("skipped: nothing is under way on shm when a turn ends\n");
		skip();
	}
	open_fixture(&f, &config, NULL);
	wait_for(&f, HF_TRANSPORT_RDMA);
	writes_to_a_peer_that_is_closed_here_wait_for_its_lease(&f);
}

static void writes_on_tcp_wait_for_the_lease_of_a_closed_peer(void **state)
{
	const struct hf_transfer_config config = {.lease_ns = SECOND, .transports_off = RAILS_OFF};
	struct fixture f;

	(void)state;
	open_fixture(&f, &config, NULL);
	writes_to_a_peer_that_is_closed_here_wait_for_its_lease(&f);
}

/* `idle` is called within the peer's turn, which goes on: nothing of the peer is freed before its end. */
static void idle_may_close_the_peer(void **state)
{
	const struct hf_transfer_config configs[] = {{.keep_requests_apart = true}, {.transports_off = RAILS_OFF}};
	struct fixture f;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_fixture(&f, &configs[i], on_idle_close_peer);
		wait_for(&f, i == 1                          ? HF_TRANSPORT_TCP
			     : strcmp(pair_kind, "shm") == 0 ? HF_TRANSPORT_SHM
							     : HF_TRANSPORT_RDMA);
		submit(&f, 1);
		for (unsigned turns = 0; turns < LIMIT && f.idle == 0; turns++)
			engines_turn(&f.engines);
		assert_int_equal(f.idle, 1);
		assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
		assert_memory_equal(f.engines.from, f.engines.to, CHUNK);
		for (unsigned turns = 0; turns < 10; turns++)
			engines_turn(&f.engines);
		close_fixture(&f);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_on_rails_wait_for_the_lease_of_a_closed_peer),
		cmocka_unit_test(writes_on_tcp_wait_for_the_lease_of_a_closed_peer),
		cmocka_unit_test(idle_may_close_the_peer),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
