/* A tcp stream of transfers and its target, over loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "env/world.h"
#include "transfer/tcp_stream.h"
#include "transfer/tcp_target.h"

#define BYTES     (4u << 20)
#define SLICE     (1u << 20)
#define SLICES    4u
#define KEY       17u
#define INITIATOR 1u
#define TARGET    2u
#define EPOCH     5u
#define TURNS     200000u

struct fixture {
	struct hf_loop *loop;
	struct tcp_target *target;
	struct tcp_stream stream;
	uint8_t *local, *remote;
	struct tcp_slice slices[SLICES];
	enum tcp_nak reasons[SLICES];
	unsigned ended, broken;
	uint32_t fenced;         /* epochs up to this */
	uint64_t lease_until_ns; /* at the first of those: */
	unsigned contacts;
};

static struct fixture *fixture_of(struct tcp_stream *stream)
{
	return container_of(stream, struct fixture, stream);
}

static bool admits(void *context, uint64_t initiator, uint32_t epoch)
{
	const struct fixture *f = context;

	return initiator == INITIATOR && epoch > f->fenced;
}

static uint64_t lease_until_ns(void *context, uint64_t initiator)
{
	struct fixture *f = context;

	assert_int_equal(initiator, INITIATOR);
	return f->contacts++ == 0 ? f->lease_until_ns : UINT64_MAX;
}

static enum tcp_nak find(
	void *context, uint64_t key, enum hf_transfer_opcode opcode, uint64_t offset, uint32_t length, uint8_t **at_out)
{
	const struct fixture *f = context;

	(void)opcode;
	if (key != KEY)
		return TCP_NAK_KEY;
	if (offset > BYTES || length > BYTES - offset)
		return TCP_NAK_BOUNDS;
	*at_out = &f->remote[offset];
	return TCP_NAK_NONE;
}

static void on_ended(struct tcp_stream *stream, struct tcp_slice *slice, enum tcp_nak reason)
{
	struct fixture *f = fixture_of(stream);

	f->reasons[slice - f->slices] = reason;
	f->ended++;
}

static void on_broken(struct tcp_stream *stream, const char *reason)
{
	(void)reason;
	fixture_of(stream)->broken++;
	tcp_stream_close(stream);
}

static void on_room(struct tcp_stream *stream)
{
	(void)stream;
}

static const struct tcp_stream_events events = {.ended = on_ended, .broken = on_broken, .room = on_room};

static struct hf_addr loopback(void)
{
	struct hf_addr addr;

	assert_int_equal(hf_addr_parse("127.0.0.1", &addr), 0);
	return addr;
}

static void open_stream(struct fixture *f, uint64_t target, uint32_t epoch)
{
	struct hf_addr local = loopback(), remote = tcp_target_addr(f->target);
	struct tcp_header hello = tcp_stream_hello(INITIATOR, target, epoch);

	assert_int_equal(tcp_stream_open(&f->stream, f->loop, &local, &remote, &hello, &events, NULL), 0);
}

static int open_fixture(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct tcp_target_config config = {.listen = loopback(),
		.incarnation = TARGET,
		.streams_max = 4,
		.admits = admits,
		.lease_until_ns = lease_until_ns,
		.find = find};

	assert_non_null(f);
	config.context = f;
	f->lease_until_ns = UINT64_MAX;
	f->local = malloc(BYTES);
	f->remote = malloc(BYTES);
	assert_true(f->local != NULL && f->remote != NULL);
	for (unsigned i = 0; i < BYTES; i++) {
		f->local[i] = (uint8_t)(i * 31 + i / 251);
		f->remote[i] = 0;
	}
	assert_int_equal(hf_loop_create(hf_env_host(), &f->loop), 0);
	assert_int_equal(tcp_target_open(f->loop, &config, &f->target, NULL), 0);
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	tcp_stream_close(&f->stream);
	tcp_target_close(f->target);
	hf_loop_destroy(f->loop);
	free(f->local);
	free(f->remote);
	free(f);
	return 0;
}

static void send_slice(struct fixture *f, unsigned i, enum hf_transfer_opcode opcode, uint64_t key)
{
	f->slices[i] = (struct tcp_slice){.opcode = opcode,
		.local = &f->local[i * SLICE],
		.length = SLICE,
		.key = key,
		.offset = i * (uint64_t)SLICE};
	tcp_stream_send(&f->stream, &f->slices[i]);
	tcp_stream_push(&f->stream);
}

static void turn_until(struct fixture *f, const unsigned *counter, unsigned n)
{
	for (unsigned i = 0; i < TURNS && *counter < n; i++)
		(void)hf_loop_turn(f->loop, 1000000);
	assert_int_equal(*counter, n);
}

static void writes_are_placed_before_they_are_acknowledged(void **state)
{
	struct fixture *f = *state;

	open_stream(f, TARGET, EPOCH);
	for (unsigned i = 0; i < SLICES; i++)
		send_slice(f, i, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->ended, SLICES);
	for (unsigned i = 0; i < SLICES; i++)
		assert_int_equal(f->reasons[i], TCP_NAK_NONE);
	assert_memory_equal(f->local, f->remote, BYTES);
}

/* Without a copy, until the kernel says that it copies; over loopback it does. */
static void large_writes_are_kept_until_the_kernel_copies(void **state)
{
	struct fixture *f = *state;

	open_stream(f, TARGET, EPOCH);
	for (unsigned i = 0; i < SLICES; i++)
		send_slice(f, i, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->ended, SLICES);
	assert_true(f->stream.pipe.kept > 0);
	assert_int_equal(f->stream.pipe.let_go, f->stream.pipe.kept);
	assert_true(f->stream.pipe.copies);
	assert_memory_equal(f->local, f->remote, SLICES * SLICE);
}

static bool kernel_holds;
static unsigned (*kernel_let_go)(struct hf_io *io, bool *copied_out);

static unsigned let_go_later(struct hf_io *io, bool *copied_out)
{
	return kernel_holds ? 0 : kernel_let_go(io, copied_out);
}

static void a_write_ends_when_the_kernel_has_let_go_of_it(void **state)
{
	struct fixture *f = *state;
	struct world_io_ops ops;

	open_stream(f, TARGET, EPOCH);
	ops = *f->stream.pipe.io->ops;
	kernel_let_go = ops.let_go;
	kernel_holds = true;
	ops.let_go = let_go_later;
	f->stream.pipe.io->ops = &ops;
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY);
	for (unsigned i = 0; i < TURNS && !f->slices[0].answered; i++)
		(void)hf_loop_turn(f->loop, 1000000);
	assert_true(f->slices[0].answered);
	assert_memory_equal(f->local, f->remote, SLICE);
	assert_int_equal(f->ended, 0);
	assert_true(tcp_pipe_touches(&f->stream.pipe, f->local, SLICE));
	kernel_holds = false;
	turn_until(f, &f->ended, 1);
	assert_false(tcp_pipe_touches(&f->stream.pipe, f->local, SLICE));
	tcp_stream_close(&f->stream); /* before its ops go */
}

static void reads_arrive_in_place(void **state)
{
	struct fixture *f = *state;

	memcpy(f->remote, f->local, BYTES);
	memset(f->local, 0, BYTES);
	open_stream(f, TARGET, EPOCH);
	for (unsigned i = 0; i < SLICES; i++)
		send_slice(f, i, HF_TRANSFER_READ, KEY);
	turn_until(f, &f->ended, SLICES);
	assert_memory_equal(f->local, f->remote, BYTES);
}

static void a_refused_slice_is_named_and_the_next_one_goes_on(void **state)
{
	struct fixture *f = *state;

	open_stream(f, TARGET, EPOCH);
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY + 1);
	f->slices[1] = (struct tcp_slice){
		.opcode = HF_TRANSFER_READ, .local = f->local, .length = 1, .key = KEY, .offset = BYTES};
	tcp_stream_send(&f->stream, &f->slices[1]);
	tcp_stream_push(&f->stream);
	send_slice(f, 2, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->ended, 3);
	assert_int_equal(f->reasons[0], TCP_NAK_KEY);
	assert_int_equal(f->reasons[1], TCP_NAK_BOUNDS);
	assert_int_equal(f->reasons[2], TCP_NAK_NONE);
	assert_int_equal(f->remote[0], 0);
	assert_memory_equal(&f->local[2 * SLICE], &f->remote[2 * SLICE], SLICE);
	/* Had the NAKs been lost, the fence would not say that these were placed. */
	assert_int_equal(tcp_target_fence(f->target, INITIATOR, EPOCH), f->slices[0].id - 1);
}

/* R-T22: a restarted process at the same address has other data there. */
static void a_stream_for_another_incarnation_is_refused(void **state)
{
	struct fixture *f = *state;

	open_stream(f, TARGET + 1, EPOCH);
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->broken, 1);
	assert_int_equal(f->ended, 0);
	assert_int_equal(f->remote[0], 0);
}

/* R-T3: the bytes of a WRITE lie in the target's kernel when the initiator closes; the fence keeps them out. */
static void nothing_is_placed_after_the_fence(void **state)
{
	struct fixture *f = *state;
	unsigned turns = 0;
	uint8_t *before = malloc(BYTES);

	assert_non_null(before);
	open_stream(f, TARGET, EPOCH);
	for (unsigned i = 0; i < SLICES; i++)
		send_slice(f, i, HF_TRANSFER_WRITE, KEY);
	for (; turns < TURNS && f->remote[SLICE / 2] == 0 && f->ended == 0; turns++)
		(void)hf_loop_turn(f->loop, 1000000);
	tcp_stream_close(&f->stream);
	f->fenced = EPOCH;
	assert_in_range(tcp_target_fence(f->target, INITIATOR, EPOCH), 0, SLICES - 1);
	memcpy(before, f->remote, BYTES);
	for (unsigned i = 0; i < 100; i++)
		(void)hf_loop_turn(f->loop, 1000000);
	assert_memory_equal(before, f->remote, BYTES);
	free(before);
}

/* The fence may come before the stream's HELLO has. */
static void a_stream_that_was_fenced_before_it_began_is_refused(void **state)
{
	struct fixture *f = *state;

	open_stream(f, TARGET, EPOCH);
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY);
	f->fenced = EPOCH;
	assert_int_equal(tcp_target_fence(f->target, INITIATOR, EPOCH), 0);
	turn_until(f, &f->broken, 1);
	assert_int_equal(f->remote[0], 0);
}

/* R-T5: the process stood still behind the HELLO. Contact is heard afterwards, before what waited in the socket. */
static void what_waited_past_the_lease_is_not_placed(void **state)
{
	struct fixture *f = *state;

	f->lease_until_ns = hf_env_boot_ns(hf_env_host());
	open_stream(f, TARGET, EPOCH);
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->broken, 1);
	assert_int_equal(f->ended, 0);
	assert_int_equal(f->remote[0], 0);
}

static void a_lease_is_extended_while_there_is_contact(void **state)
{
	struct fixture *f = *state;

	f->lease_until_ns = hf_env_boot_ns(hf_env_host()) + 3600000000000ull;
	open_stream(f, TARGET, EPOCH);
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->ended, 1);
	f->contacts = 1;
	tcp_target_turn(f->target, hf_env_now_ns(hf_env_host()) + 1000000000);
	assert_int_equal(f->contacts, 2);
}

static void streams_without_a_hello_give_way_to_peers(void **state)
{
	struct fixture *f = *state;
	struct hf_addr local = loopback(), remote = tcp_target_addr(f->target);
	struct hf_io *silent[8];

	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(hf_stream_connect(hf_env_host(), &local, &remote, &silent[i], NULL), 0);
	for (unsigned i = 0; i < 50; i++)
		(void)hf_loop_turn(f->loop, 1000000);
	open_stream(f, TARGET, EPOCH);
	send_slice(f, 0, HF_TRANSFER_WRITE, KEY);
	turn_until(f, &f->ended, 1);
	for (unsigned i = 0; i < 8; i++)
		hf_io_close(silent[i]);
}

static void a_buffer_that_goes_ends_the_streams_that_use_it(void **state)
{
	struct fixture *f = *state;

	open_stream(f, TARGET, EPOCH);
	for (unsigned i = 0; i < SLICES; i++)
		send_slice(f, i, HF_TRANSFER_READ, KEY);
	for (unsigned i = 0; i < TURNS && f->ended == 0; i++)
		(void)hf_loop_turn(f->loop, 1000000);
	tcp_target_release(f->target, f->remote, BYTES);
	memset(f->remote, 0xee, BYTES); /* under ASan in a build of its own: nothing reads it after a free() */
	turn_until(f, &f->broken, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(writes_are_placed_before_they_are_acknowledged),
		CASE(large_writes_are_kept_until_the_kernel_copies),
		CASE(a_write_ends_when_the_kernel_has_let_go_of_it),
		CASE(reads_arrive_in_place),
		CASE(a_refused_slice_is_named_and_the_next_one_goes_on),
		CASE(a_stream_for_another_incarnation_is_refused),
		CASE(nothing_is_placed_after_the_fence),
		CASE(a_stream_that_was_fenced_before_it_began_is_refused),
		CASE(what_waited_past_the_lease_is_not_placed),
		CASE(a_lease_is_extended_while_there_is_contact),
		CASE(streams_without_a_hello_give_way_to_peers),
		CASE(a_buffer_that_goes_ends_the_streams_that_use_it),
	};

	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
