/* Two engines in one process, over two rails and tcp: what is moved arrives whole, whatever is cut meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <holdfast/transfer.h>

#include "../vqp/pair.h"
#include "base/log.h"
#include "node/node.h"
#include "transfer/engine.h"

#define BYTES  (8u << 20)
#define SECOND 1000000000ull
#define LIMIT  100000u /* turns */
#define CHUNK  (1u << 20)
#define TASKS  512u

#define SLOW_MB 10u

static bool without_tcp; /* at b */
static bool without_management;
static unsigned permission = HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE;

struct side {
	struct hf_transfer *engine;
	uint8_t *memory;
};

struct fixture {
	struct pair pair;
	struct side a, b;
	struct hf_segment *segment; /* of b, as a sees it */
	uint64_t target;            /* where it begins */
	unsigned heard;             /* times that a heard of b's segment */
	unsigned unregistered;      /* calls of on_unregistered */
	bool pending_then;
	struct hf_transfer_batch *batch;
};

static void on_segment(struct hf_transfer *engine, struct hf_peer *peer, void *context)
{
	struct fixture *f = context;

	(void)engine;
	(void)peer;
	f->heard++;
}

static void open_side(struct fixture *f, struct end *end, struct side *side, const struct hf_transfer_config *config)
{
	const struct hf_transfer_events events = {.segment = on_segment};
	struct hf_transfer_config with_tcp = *config;
	struct hf_error error = {0};

	side->memory = calloc(1, BYTES);
	assert_non_null(side->memory);
	if (!without_tcp || strcmp(end->name, "b") != 0)
		assert_int_equal(hf_addr_parse("127.0.0.1", &with_tcp.listen), 0);
	if (hf_transfer_open(end->node, &with_tcp, side == &f->a ? &events : NULL, f, &side->engine, &error) != 0)
		fail_msg("%s", error.text);
	if (hf_transfer_register(side->engine, side->memory, BYTES, permission, &error) != 0)
		fail_msg("%s", error.text);
}

/* Bytes of the first tasks that are in place. */
static uint64_t moved(struct fixture *f, unsigned tasks)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < tasks; i++) {
		enum hf_transfer_status status;
		uint64_t bytes;

		assert_int_equal(hf_transfer_task_status(f->batch, i, &status, &bytes), 0);
		sum += bytes;
	}
	return sum;
}

static void turn(struct fixture *f)
{
	(void)hf_loop_turn(f->pair.loop, 1000000);
}

static void settle(struct fixture *f)
{
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f->batch) == HF_TRANSFER_PENDING; i++)
		turn(f);
}

static void begin_fixture(struct fixture *f, const struct hf_transfer_config *config)
{
	*f = (struct fixture){0};
	pair_management = !without_management;
	pair_open(&f->pair, HF_POLICY_VARUNA);
	open_side(f, &f->pair.a, &f->a, config);
	open_side(f, &f->pair.b, &f->b, config);
	assert_int_equal(hf_peer_connect(f->pair.a.node, &f->pair.control[1][0], 1, &f->pair.a.peer, NULL), 0);
}

static void open_fixture(struct fixture *f, const struct hf_transfer_config *config)
{
	uint64_t bytes;

	begin_fixture(f, config);
	for (unsigned i = 0; i < LIMIT && f->segment == NULL; i++) {
		turn(f);
		if (f->pair.a.peer != NULL)
			f->segment = hf_transfer_segment(f->a.engine, f->pair.a.peer);
	}
	assert_non_null(f->segment);
	assert_true(hf_segment_buffer(f->segment, 0, &f->target, &bytes));
	assert_int_equal(bytes, BYTES);
	assert_int_equal(hf_transfer_batch_alloc(f->a.engine, TASKS, NULL, NULL, &f->batch), 0);
}

static void close_fixture(struct fixture *f)
{
	assert_int_equal(hf_transfer_batch_free(f->batch), 0);
	assert_int_equal(hf_transfer_close(f->a.engine), 0);
	assert_int_equal(hf_transfer_close(f->b.engine), 0);
	pair_close(&f->pair);
	free(f->a.memory);
	free(f->b.memory);
	pair_management = false;
}

static int submit(struct fixture *f, enum hf_transfer_opcode opcode, uint64_t offset, uint64_t length)
{
	const struct hf_transfer_request request = {.opcode = opcode,
		.source = &f->a.memory[offset],
		.segment = f->segment,
		.target_offset = f->target + offset,
		.length = length};
	unsigned first;

	return hf_transfer_submit(f->batch, &request, 1, &first, NULL);
}

static void fill_with(uint8_t *memory, unsigned salt)
{
	for (unsigned i = 0; i < BYTES; i++)
		memory[i] = (uint8_t)(i * 131 + i / 257 + salt);
}

static void fill(uint8_t *memory)
{
	fill_with(memory, 1);
}

static bool both_rails_carried(struct fixture *f, const struct hf_transfer_counters *before)
{
	struct hf_transfer_counters now;

	hf_transfer_counters(f->a.engine, &now);
	return now.rail_bytes[0] > before->rail_bytes[0] && now.rail_bytes[1] > before->rail_bytes[1];
}

static bool rails_come_first(const struct fixture *f)
{
	const struct hf_transfer_request request = {.opcode = HF_TRANSFER_WRITE,
		.source = f->a.memory,
		.segment = f->segment,
		.target_offset = f->target,
		.length = BYTES};

	return hf_transfer_resolve(f->a.engine, &request, 0) != HF_TRANSPORT_TCP;
}

/* Lanes come up in the background: the first tasks wait for them, and may all go over the one that comes first. */
static void wait_for_rails(struct fixture *f)
{
	struct hf_transfer_counters before;

	hf_transfer_counters(f->a.engine, &before);
	for (unsigned i = 0; i < TASKS && !both_rails_carried(f, &before); i++) {
		assert_int_equal(submit(f, HF_TRANSFER_WRITE, 0, BYTES), 0);
		settle(f);
	}
	assert_true(both_rails_carried(f, &before));
	while (!rails_come_first(f))
		turn(f); /* on a busy machine lanes may have ended again meanwhile */
	assert_int_equal(hf_transfer_batch_free(f->batch), 0);
	assert_int_equal(hf_transfer_batch_alloc(f->a.engine, TASKS, NULL, NULL, &f->batch), 0);
}

static const struct hf_transfer_config defaults;

static void a_write_and_a_read_go_over_both_rails(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	fill(f.a.memory);
	assert_int_equal(submit(&f, HF_TRANSFER_WRITE, 0, BYTES), 0);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	memset(f.a.memory, 0, BYTES);
	assert_int_equal(submit(&f, HF_TRANSFER_READ, 0, BYTES), 0);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	close_fixture(&f);
}

static void submit_chunks(struct fixture *f)
{
	for (unsigned i = 0; i < BYTES / CHUNK; i++)
		assert_int_equal(submit(f, HF_TRANSFER_WRITE, i * CHUNK, CHUNK), 0);
}

static void turn_until_some_moved(struct fixture *f)
{
	for (unsigned i = 0; i < LIMIT && moved(f, BYTES / CHUNK) < CHUNK; i++)
		turn(f);
	assert_true(moved(f, BYTES / CHUNK) >= CHUNK);
}

static void what_a_cut_rail_had_not_executed_goes_over_the_other(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	fill(f.a.memory);
	submit_chunks(&f);
	turn_until_some_moved(&f);
	pair_cut(&f.pair, 0, false);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	close_fixture(&f);
}

static void without_rails_tcp_takes_over_and_rails_that_return_are_used_again(void **state)
{
	struct hf_transfer_counters counters;
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	fill(f.a.memory);
	submit_chunks(&f);
	turn_until_some_moved(&f);
	pair_cut(&f.pair, 0, false);
	pair_cut(&f.pair, 1, false);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	fill_with(f.a.memory, 2);
	submit_chunks(&f);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	hf_transfer_counters(f.a.engine, &counters);
	assert_true(counters.tcp_bytes >= BYTES);
	/* On shm nothing is under way for long enough to be cut. */
	assert_true(strcmp(pair_kind, "shm") == 0 || counters.failovers[HF_TRANSPORT_RDMA][HF_TRANSPORT_TCP] > 0);
	pair_cut(&f.pair, 0, true);
	pair_cut(&f.pair, 1, true);
	wait_for_rails(&f);
	close_fixture(&f);
}

/* R-T23 */
static void without_fallback_a_task_fails_when_no_rail_is_left(void **state)
{
	const struct hf_transfer_config config = {.fallback = HF_FALLBACK_OFF, .max_timeout_ns = SECOND / 5};
	struct fixture f;

	(void)state;
	open_fixture(&f, &config);
	wait_for_rails(&f);
	submit_chunks(&f);
	pair_cut(&f.pair, 0, false);
	pair_cut(&f.pair, 1, false);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_FAILED);
	close_fixture(&f);
}

static void a_request_to_the_own_segment_is_a_copy(void **state)
{
	struct hf_transfer_request request;
	struct fixture f;
	unsigned first;

	(void)state;
	open_fixture(&f, &defaults);
	fill(f.a.memory);
	request = (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
		.source = f.a.memory,
		.segment = hf_transfer_own_segment(f.a.engine),
		.target_offset = (uintptr_t)f.a.memory + BYTES / 2,
		.length = BYTES / 2};
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 0), HF_TRANSPORT_MEMCPY);
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 1), HF_TRANSPORTS);
	assert_int_equal(hf_transfer_submit(f.batch, &request, 1, &first, NULL), 0);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.a.memory + BYTES / 2, BYTES / 2);
	close_fixture(&f);
}

static void a_hint_changes_which_transport_comes_first(void **state)
{
	struct hf_transfer_request request;
	struct fixture f;
	enum hf_transport lanes = strcmp(pair_kind, "shm") == 0 ? HF_TRANSPORT_SHM : HF_TRANSPORT_RDMA;

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	request = (struct hf_transfer_request){.segment = f.segment};
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 0), lanes);
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 1), HF_TRANSPORT_TCP);
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 2), HF_TRANSPORTS);
	request.hinted = true;
	request.hint = HF_TRANSPORT_TCP;
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 0), HF_TRANSPORT_TCP);
	assert_int_equal(hf_transfer_resolve(f.a.engine, &request, 1), lanes);
	close_fixture(&f);
}

/* R-T23 */
static void a_required_fallback_refuses_a_segment_that_one_transport_reaches(void **state)
{
	struct hf_transfer_config config = {.fallback = HF_FALLBACK_REQUIRED};
	struct hf_segment *segment;
	struct hf_error error = {0};
	struct fixture f;

	(void)state;
	open_fixture(&f, &config); /* has opened it */
	close_fixture(&f);
	without_tcp = true;
	config.fallback = HF_FALLBACK_AUTO;
	open_fixture(&f, &config);
	close_fixture(&f);
	config.fallback = HF_FALLBACK_REQUIRED;
	begin_fixture(&f, &config);
	for (unsigned i = 0; i < LIMIT && f.heard == 0; i++)
		turn(&f);
	assert_int_equal(hf_transfer_open_segment(f.a.engine, f.pair.a.peer, &segment, &error), -ENETUNREACH);
	assert_non_null(strstr(error.text, "1 transports lead to peer b and fallback is required"));
	close_fixture(&f);
	without_tcp = false;
	config.transports_off = 1u << HF_TRANSPORT_SHM | 1u << HF_TRANSPORT_RDMA;
	begin_fixture(&f, &config);
	for (unsigned i = 0; i < LIMIT && f.heard == 0; i++)
		turn(&f);
	assert_int_equal(hf_transfer_open_segment(f.a.engine, f.pair.a.peer, &segment, &error), -ENETUNREACH);
	close_fixture(&f);
}

static uint64_t posted(const struct fixture *f)
{
	const struct peer *peer = container_of(f->segment, struct peer, segment);
	struct hf_vqp_counters counters;
	uint64_t sum = 0;

	for (unsigned i = 0; i < 2; i++) {
		hf_vqp_counters(peer->rails[1].lanes[i].vqp, &counters);
		sum += counters.posted;
	}
	return sum;
}

static void confirm_writes_reads_each_write_back_on_its_lane(void **state)
{
	const struct hf_transfer_config config = {.confirm_writes = true, .keep_requests_apart = true};
	static uint8_t unreadable[4096];
	struct hf_transfer_request request;
	struct hf_error error = {0};
	struct fixture f;
	uint64_t before;
	unsigned first;

	(void)state;
	if (strcmp(pair_kind, "shm") == 0) {
		print_message("skipped: on shm no NIC acknowledges what it may lose\n");
		skip();
	}
	open_fixture(&f, &config);
	wait_for_rails(&f);
	fill(f.a.memory);
	before = posted(&f);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(submit(&f, HF_TRANSFER_WRITE, i * 4096, 4096), 0);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, 8 * 4096);
	assert_int_equal(posted(&f) - before, 16);
	f.heard = 0;
	assert_int_equal(hf_transfer_register(f.b.engine, unreadable, 4096, HF_TRANSFER_REMOTE_WRITE, NULL), 0);
	for (unsigned i = 0; i < LIMIT && f.heard == 0; i++)
		turn(&f);
	request = (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
		.source = f.a.memory,
		.segment = f.segment,
		.target_offset = (uintptr_t)unreadable,
		.length = 4096};
	assert_int_equal(hf_transfer_submit(f.batch, &request, 1, &first, &error), -EINVAL);
	assert_non_null(strstr(error.text, "confirm_writes reads WRITEs back"));
	close_fixture(&f);
}

/* R-T14: the probe does not depend on what the program has registered, nor on its permissions. */
static void a_rail_to_a_peer_without_readable_memory_is_probed(void **state)
{
	const struct probe_memory *probe;
	struct fixture f;

	(void)state;
	permission = HF_TRANSFER_REMOTE_WRITE;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	probe = &f.a.engine->probe;
	memset(f.b.engine->probe.memory, 0x5a, probe->bytes);
	pair_cut(&f.pair, 0, false);
	for (unsigned i = 0; i < 50; i++)
		turn(&f);
	assert_int_equal(probe->memory[probe->bytes], 0);
	pair_cut(&f.pair, 0, true);
	wait_for_rails(&f);
	assert_int_equal(probe->memory[probe->bytes], 0x5a);
	assert_int_equal(probe->memory[2 * probe->bytes - 1], 0x5a);
	close_fixture(&f);
	permission = HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE;
}

/* What the status server of a's node answers. */
static void get(struct fixture *f, const char *path, char *answer, size_t bytes)
{
	struct hf_addr local, remote;
	struct hf_io *io;
	char request[128];
	size_t used = 0;
	ssize_t n = -EAGAIN;

	assert_int_equal(hf_addr_parse("127.0.0.1", &local), 0);
	assert_int_equal(http_address(f->pair.a.node->status.http, &remote), 0);
	assert_int_equal(hf_stream_connect(hf_env_host(), &local, &remote, &io, NULL), 0);
	(void)snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", path);
	for (unsigned i = 0; i < LIMIT && n != (ssize_t)strlen(request); i++) {
		turn(f);
		n = hf_stream_write(io, request, strlen(request));
	}
	for (unsigned i = 0; i < LIMIT && n != 0 && used < bytes - 1; i++) {
		turn(f);
		n = hf_stream_read(io, answer + used, bytes - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	}
	answer[used] = '\0';
	hf_io_close(io);
}

static void the_page_of_the_engine_tells_of_peers_rails_and_failovers(void **state)
{
	static char answer[1u << 18];
	struct fixture f;

	(void)state;
	pair_http = true;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	get(&f, "/transfer", answer, sizeof(answer));
	assert_non_null(strstr(answer, "200 OK"));
	assert_non_null(strstr(answer, "\"peer\":\"b\",\"up\":true,\"segment\":{\"buffers\":1,\"bytes\":8388608}"));
	assert_non_null(strstr(answer, "\"rail\":\"r1\""));
	assert_non_null(strstr(answer, "\"state\":\"healthy\",\"reachable\":true,\"open\":true,\"pause_ms\":0"));
	get(&f, "/metrics/json", answer, sizeof(answer));
	assert_non_null(strstr(answer, "tent_transport_failover_total"));
	get(&f, "/metrics", answer, sizeof(answer));
	assert_non_null(strstr(answer, "tent_write_requests_total{node=\"a\",transport="));
	assert_non_null(
		strstr(answer, "holdfast_transfer_rail_state{node=\"a\",local_nic=\"r0\",remote_nic=\"b/r0\"} 0"));
	assert_int_equal(hf_transfer_batch_free(f.batch), 0);
	f.batch = NULL;
	assert_int_equal(hf_transfer_close(f.a.engine), 0);
	f.a.engine = NULL;
	get(&f, "/transfer", answer, sizeof(answer));
	assert_non_null(strstr(answer, "404"));
	close_fixture(&f);
	pair_http = false;
}

/* R-T17, over rails: a slow rail carries few of the bytes, and none of them fails. */
static void a_rail_at_a_tenth_of_the_speed_gets_less_than_a_fifth_of_the_bytes(void **state)
{
	struct hf_transfer_counters before, after;
	uint64_t fast, slow, begin_ns, took_ns;
	struct fixture f;

	(void)state;
	if (strcmp(pair_kind, "shm") == 0) {
		print_message("skipped: shm has no rate\n");
		skip();
	}
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	assert_int_equal(hf_dev_set_rate(hf_node_dev(f.pair.a.node, 1), SLOW_MB), 0);
	hf_transfer_counters(f.a.engine, &before);
	begin_ns = hf_env_now_ns(hf_env_host());
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(submit(&f, HF_TRANSFER_WRITE, 0, BYTES), 0);
		settle(&f);
	}
	took_ns = hf_env_now_ns(hf_env_host()) - begin_ns;
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	hf_transfer_counters(f.a.engine, &after);
	fast = after.rail_bytes[0] - before.rail_bytes[0];
	slow = after.rail_bytes[1] - before.rail_bytes[1];
	assert_true(slow * 5 < fast + slow);
	assert_true(slow <= took_ns * SLOW_MB / 1000 + CHUNK);
	assert_int_equal(after.tcp_bytes - before.tcp_bytes, 0);
	close_fixture(&f);
}

/* R-T10, R-T11: a key that the peer refuses ends a lane. Its task fails; the rail is not blamed, no other task pays,
 * and nothing is tried on another transport. */
static void a_program_error_blames_no_rail_and_fails_no_other_task(void **state)
{
	static uint8_t second[CHUNK];
	struct hf_transfer_request wrong;
	struct hf_transfer_counters before, after;
	struct wire_buffer *view;
	enum hf_transfer_status status;
	struct fixture f;
	struct peer *peer;
	unsigned first;

	(void)state;
	open_fixture(&f, &defaults);
	f.heard = 0;
	assert_int_equal(hf_transfer_register(f.b.engine, second, CHUNK, HF_TRANSFER_REMOTE_WRITE, NULL), 0);
	for (unsigned i = 0; i < LIMIT && f.heard == 0; i++)
		turn(&f);
	wait_for_rails(&f);
	hf_transfer_counters(f.a.engine, &before);
	fill(f.a.memory);
	peer = container_of(f.segment, struct peer, segment);
	view = &peer->segment.view->buffers[1];
	assert_int_equal(view->addr, (uintptr_t)second);
	view->rkey ^= 0x5a5a;
	wrong = (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
		.source = f.a.memory,
		.segment = f.segment,
		.target_offset = (uintptr_t)second,
		.length = 4096};
	for (unsigned i = 0; i < BYTES / CHUNK; i++) {
		assert_int_equal(submit(&f, HF_TRANSFER_WRITE, i * CHUNK, CHUNK), 0);
		assert_int_equal(hf_transfer_submit(f.batch, &wrong, 1, &first, NULL), 0);
	}
	settle(&f);
	for (unsigned i = 0; i < 2 * BYTES / CHUNK; i++) {
		assert_int_equal(hf_transfer_task_status(f.batch, i, &status, NULL), 0);
		assert_int_equal(status, i % 2 == 0 ? HF_TRANSFER_COMPLETED : HF_TRANSFER_FAILED);
	}
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	hf_transfer_counters(f.a.engine, &after);
	assert_memory_equal(before.failovers, after.failovers, sizeof(before.failovers));
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(peer->rails[i / 2].lanes[i % 2].monitor.error_count, 0);
		assert_int_equal(peer->rails[i / 2].lanes[i % 2].monitor.level, 0);
	}
	close_fixture(&f);
}

/* T4: the last transport that is left does not give up at its first troubles. */
static void a_task_waits_for_tcp_where_nothing_else_reaches_the_peer(void **state)
{
	enum hf_transfer_status status = HF_TRANSFER_PENDING;
	struct fixture f;
	struct peer *peer;
	uint16_t port;

	(void)state;
	open_fixture(&f, &defaults);
	fill(f.a.memory);
	pair_cut(&f.pair, 0, false);
	pair_cut(&f.pair, 1, false);
	for (unsigned i = 0; i < 50; i++)
		turn(&f);
	peer = container_of(f.segment, struct peer, segment);
	port = peer->segment.view->tcp_port;
	peer->segment.view->tcp_port = 1; /* nothing listens there */
	assert_int_equal(submit(&f, HF_TRANSFER_WRITE, 0, BYTES), 0);
	while (status == HF_TRANSFER_PENDING && peer->tcp.lines[0].backoff_ns < SECOND / 2) {
		turn(&f);
		status = hf_transfer_batch_status(f.batch);
	}
	assert_int_equal(status, HF_TRANSFER_PENDING);
	peer->segment.view->tcp_port = port;
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f.a.memory, f.b.memory, BYTES);
	close_fixture(&f);
}

/* And it does give up, though WRITEs are on their way to the fence at each look. */
static void a_task_that_tcp_cannot_carry_fails_in_time(void **state)
{
	const struct hf_transfer_config config = {.max_timeout_ns = SECOND / 5};
	struct fixture f;

	(void)state;
	open_fixture(&f, &config);
	pair_cut(&f.pair, 0, false);
	pair_cut(&f.pair, 1, false);
	for (unsigned i = 0; i < 50; i++)
		turn(&f);
	container_of(f.segment, struct peer, segment)->segment.view->tcp_port = 1;
	assert_int_equal(submit(&f, HF_TRANSFER_WRITE, 0, BYTES), 0);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_FAILED);
	close_fixture(&f);
}

static void a_port_that_is_busy_or_of_no_address_is_refused_in_words(void **state)
{
	struct hf_transfer_config config = {0};
	struct hf_transfer *engine;
	struct hf_error error = {0};
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	config.listen = tcp_target_addr(f.a.engine->target);
	assert_int_equal(hf_transfer_close(f.b.engine), 0);
	assert_int_equal(hf_transfer_open(f.pair.b.node, &config, NULL, NULL, &engine, &error), -EADDRINUSE);
	assert_non_null(strstr(error.text, "127.0.0.1:"));
	f.b.engine = NULL;
	assert_int_equal(hf_addr_parse("0.0.0.0:0", &config.listen), 0);
	assert_int_equal(hf_transfer_open(f.pair.b.node, &config, NULL, NULL, &f.b.engine, &error), -EINVAL);
	assert_non_null(strstr(error.text, "transports.tcp.address: peers cannot connect to 0.0.0.0"));
	close_fixture(&f);
}

static unsigned peers_of(const struct hf_transfer *engine)
{
	unsigned n = 0;

	list_for_each (at, &engine->peers)
		n++;
	return n;
}

static void turn_until_left(struct fixture *f)
{
	for (unsigned i = 0; i < LIMIT && peers_of(f->a.engine) > 0; i++)
		turn(f);
	assert_int_equal(peers_of(f->a.engine), 0);
}

/* Nothing is kept of engines that come and go, but the segments that the caller may name. */
static void engines_that_come_and_go_leave_nothing_behind(void **state)
{
	struct hf_transfer_config config = {0};
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(hf_transfer_close(f.b.engine), 0);
		free(f.b.memory);
		for (unsigned k = 0; k < LIMIT && hf_transfer_segment(f.a.engine, f.pair.a.peer) != NULL; k++)
			turn(&f);
		assert_int_equal(peers_of(f.a.engine), 1);
		hf_transfer_close_segment(f.segment);
		turn_until_left(&f);
		open_side(&f, &f.pair.b, &f.b, &config);
		for (f.segment = NULL; f.segment == NULL;) {
			turn(&f);
			f.segment = hf_transfer_segment(f.a.engine, f.pair.a.peer);
		}
		assert_int_equal(peers_of(f.a.engine), 1);
		assert_int_equal(peers_of(f.b.engine), 1);
	}
	close_fixture(&f);
}

static void note_pause(enum log_level level, const char *line, void *context)
{
	(void)level;
	if (strstr(line, "Rail paused") != NULL)
		(*(unsigned *)context)++;
}

/* R-T16: a probe that ends with its peer's engine says nothing about the rail. */
static void an_engine_that_closes_trips_no_rail(void **state)
{
	unsigned pauses = 0;
	struct fixture f;

	(void)state;
	log_set_sink(note_pause, &pauses);
	for (unsigned turns = 0; turns < 20; turns++) {
		open_fixture(&f, &defaults);
		for (unsigned i = 0; i < turns; i++)
			turn(&f);
		close_fixture(&f);
	}
	log_set_sink(NULL, NULL);
	assert_int_equal(pauses, 0);
}

/* The channel is full of what the peer has not taken: what is to be said waits until it is writable. */
static void what_the_channel_refuses_is_said_later(void **state)
{
	static uint8_t junk[HF_CHANNEL_MESSAGE_BYTES], more[CHUNK];
	struct hf_error error = {0};
	uint64_t addr, bytes;
	struct fixture f;
	int rc;

	(void)state;
	open_fixture(&f, &defaults);
	for (size_t n = sizeof(junk); n > 0; n /= 2) {
		do {
			rc = hf_channel_send(f.b.engine->channel, f.pair.b.peer, junk, n);
		} while (rc == 0);
		assert_int_equal(rc, -EAGAIN);
	}
	assert_int_equal(hf_transfer_register(f.b.engine, more, sizeof(more), permission, &error), 0);
	for (unsigned i = 0; i < LIMIT && !hf_segment_buffer(f.segment, 1, &addr, &bytes); i++)
		turn(&f);
	assert_true(hf_segment_buffer(f.segment, 1, &addr, &bytes));
	assert_int_equal(bytes, sizeof(more));
	assert_int_equal(hf_transfer_unregister(f.b.engine, more, NULL, NULL), 0);
	close_fixture(&f);
}

static void requests_that_name_no_buffer_are_refused_in_words(void **state)
{
	struct hf_transfer_request request;
	struct hf_error error = {0};
	struct fixture f;
	unsigned first;

	(void)state;
	open_fixture(&f, &defaults);
	assert_int_equal(submit(&f, HF_TRANSFER_WRITE, BYTES - 10, 11), -EINVAL);
	request = (struct hf_transfer_request){.opcode = HF_TRANSFER_READ,
		.source = f.a.memory,
		.segment = f.segment,
		.target_offset = f.target + BYTES,
		.length = 1};
	assert_int_equal(hf_transfer_submit(f.batch, &request, 1, &first, &error), -EINVAL);
	assert_non_null(strstr(error.text, "request 0: no buffer of the segment holds its target"));
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_INVALID);
	close_fixture(&f);
}

static void a_request_that_is_refused_keeps_no_other_from_its_task(void **state)
{
	struct hf_transfer_request requests[4];
	enum hf_transfer_status status;
	struct hf_error error = {0};
	struct fixture f;
	uint64_t bytes;
	int tasks[4];

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	fill(f.a.memory);
	memset(f.b.memory, 0, BYTES);
	for (unsigned i = 0; i < 4; i++)
		requests[i] = (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
			.source = f.a.memory + i * 4096,
			.segment = f.segment,
			.target_offset = f.target + i * 4096,
			.length = 4096};
	requests[1].target_offset = f.target + BYTES;
	requests[2].length = 0;
	assert_int_equal(hf_transfer_submit_each(f.batch, &requests[1], 2, tasks, &error), 0);
	assert_int_equal(tasks[0], -EINVAL);
	assert_int_equal(tasks[1], -EINVAL);
	assert_non_null(strstr(error.text, "request 0: no buffer of the segment holds its target"));
	assert_int_equal(hf_transfer_submit_each(f.batch, requests, 4, tasks, &error), 0);
	assert_non_null(strstr(error.text, "request 1: no buffer of the segment holds its target"));
	assert_int_equal(tasks[0], 0);
	assert_int_equal(tasks[1], -EINVAL);
	assert_int_equal(tasks[2], -EINVAL);
	assert_int_equal(tasks[3], 1);
	settle(&f);
	for (int task = 0; task < 2; task++) {
		assert_int_equal(hf_transfer_task_status(f.batch, (unsigned)task, &status, &bytes), 0);
		assert_int_equal(status, HF_TRANSFER_COMPLETED);
		assert_int_equal(bytes, 4096);
	}
	assert_memory_equal(f.a.memory, f.b.memory, 4096);
	assert_memory_equal(f.a.memory + 3 * 4096, f.b.memory + 3 * 4096, 4096);
	assert_int_equal(f.b.memory[4096], 0);
	assert_int_equal(hf_transfer_submit_each(f.batch, requests, 4, tasks, NULL), 0);
	settle(&f);
	assert_int_equal(tasks[3], 3);
	close_fixture(&f);
}

static void on_unregistered(struct hf_transfer *engine, void *addr, void *context)
{
	struct fixture *f = context;

	(void)engine;
	(void)addr;
	f->unregistered++;
	f->pending_then = hf_transfer_batch_status(f->batch) == HF_TRANSFER_PENDING;
}

static void turn_until_unregistered(struct fixture *f)
{
	for (unsigned i = 0; i < LIMIT && f->unregistered == 0; i++)
		turn(f);
	assert_int_equal(f->unregistered, 1);
}

/* R-T20, of the memory here */
static void memory_of_a_pending_request_stays_registered(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	submit_chunks(&f);
	assert_int_equal(hf_transfer_unregister(f.a.engine, f.a.memory + 1, on_unregistered, &f), -ENOENT);
	assert_int_equal(hf_transfer_unregister(f.a.engine, f.a.memory, on_unregistered, &f), 0);
	assert_int_equal(hf_transfer_unregister(f.a.engine, f.a.memory, on_unregistered, &f), -EALREADY);
	assert_int_equal(submit(&f, HF_TRANSFER_WRITE, 0, CHUNK), -EINVAL);
	assert_int_equal(hf_transfer_register(f.a.engine, f.a.memory, CHUNK, 0, NULL), -EEXIST);
	assert_int_equal(hf_transfer_batch_free(f.batch), -EBUSY);
	assert_int_equal(hf_transfer_close(f.a.engine), -EBUSY);
	turn_until_unregistered(&f);
	assert_false(f.pending_then);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_INVALID);
	assert_int_equal(hf_transfer_register(f.a.engine, f.a.memory, CHUNK, 0, NULL), 0);
	close_fixture(&f);
}

/* Lives of lanes that a has begun. */
static unsigned lives(const struct fixture *f)
{
	const struct peer *peer = container_of(f->segment, struct peer, segment);
	unsigned sum = 0;

	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < 2; k++)
			sum += peer->rails[i].lanes[k].lives;
	return sum;
}

/* R-T20, of memory that peers write: no slice meets a key that has gone, which would end its lane; and nothing is
 * written once it is unregistered. */
static void unregister_under_load_takes_no_key_away_from_a_slice(void **state)
{
	enum hf_transfer_status status;
	unsigned before;
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	fill(f.a.memory);
	before = lives(&f);
	for (unsigned i = 0; i < 4; i++)
		submit_chunks(&f);
	turn_until_some_moved(&f);
	assert_int_equal(hf_transfer_unregister(f.b.engine, f.b.memory, on_unregistered, &f), 0);
	turn_until_unregistered(&f);
	memset(f.b.memory, 0xee, BYTES);
	settle(&f);
	for (unsigned i = 0; i < 1000; i++)
		turn(&f);
	for (unsigned i = 0; i < BYTES; i++)
		assert_int_equal(f.b.memory[i], 0xee);
	assert_int_equal(lives(&f), before);
	assert_int_equal(hf_transfer_task_status(f.batch, 4 * BYTES / CHUNK - 1, &status, NULL), 0);
	assert_true(status == HF_TRANSFER_FAILED || strcmp(pair_kind, "shm") == 0);
	close_fixture(&f);
}

/* R-T4: nobody can be asked to fence, so the WRITEs stay pending until the peer has fenced itself. */
static void without_any_control_path_writes_stay_pending_until_the_lease_is_over(void **state)
{
	const struct hf_transfer_config config = {.lease_ns = SECOND / 2, .fallback = HF_FALLBACK_OFF};
	uint64_t begin_ns;
	struct fixture f;

	(void)state;
	if (strcmp(pair_kind, "shm") == 0) {
		print_message("skipped: nothing is under way on shm for long enough to be cut\n");
		skip();
	}
	without_management = true;
	open_fixture(&f, &config);
	wait_for_rails(&f);
	submit_chunks(&f);
	turn_until_some_moved(&f);
	begin_ns = hf_env_now_ns(hf_env_host());
	pair_cut(&f.pair, 0, false);
	pair_cut(&f.pair, 1, false);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_FAILED);
	assert_int_equal(f.pair.a.peers_down, 1);
	assert_true(hf_env_now_ns(hf_env_host()) - begin_ns >= config.lease_ns);
	close_fixture(&f);
	without_management = false;
}

static void a_peer_that_goes_ends_the_tasks_to_it(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	wait_for_rails(&f);
	submit_chunks(&f);
	turn_until_some_moved(&f);
	assert_int_equal(hf_transfer_close(f.b.engine), 0);
	f.b.engine = NULL;
	settle(&f);
	assert_int_not_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_PENDING);
	for (unsigned i = 0; i < LIMIT && hf_transfer_segment(f.a.engine, f.pair.a.peer) != NULL; i++)
		turn(&f);
	assert_null(hf_transfer_segment(f.a.engine, f.pair.a.peer));
	submit_chunks(&f);
	settle(&f);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_FAILED);
	close_fixture(&f);
}

static void a_task_that_has_ended_is_canceled_without_its_segment(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, &defaults);
	assert_int_equal(hf_transfer_close(f.b.engine), 0);
	f.b.engine = NULL;
	for (unsigned i = 0; i < LIMIT && hf_transfer_segment(f.a.engine, f.pair.a.peer) != NULL; i++)
		turn(&f);
	assert_int_equal(submit(&f, HF_TRANSFER_WRITE, 0, BYTES), 0);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_FAILED);
	hf_transfer_close_segment(f.segment);
	turn_until_left(&f);
	assert_int_equal(hf_transfer_cancel(f.batch, 0), 0);
	assert_int_equal(hf_transfer_batch_status(f.batch), HF_TRANSFER_FAILED);
	close_fixture(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_and_a_read_go_over_both_rails),
		cmocka_unit_test(what_a_cut_rail_had_not_executed_goes_over_the_other),
		cmocka_unit_test(without_rails_tcp_takes_over_and_rails_that_return_are_used_again),
		cmocka_unit_test(without_fallback_a_task_fails_when_no_rail_is_left),
		cmocka_unit_test(a_request_to_the_own_segment_is_a_copy),
		cmocka_unit_test(a_hint_changes_which_transport_comes_first),
		cmocka_unit_test(a_required_fallback_refuses_a_segment_that_one_transport_reaches),
		cmocka_unit_test(an_engine_that_closes_trips_no_rail),
		cmocka_unit_test(confirm_writes_reads_each_write_back_on_its_lane),
		cmocka_unit_test(a_rail_to_a_peer_without_readable_memory_is_probed),
		cmocka_unit_test(the_page_of_the_engine_tells_of_peers_rails_and_failovers),
		cmocka_unit_test(a_rail_at_a_tenth_of_the_speed_gets_less_than_a_fifth_of_the_bytes),
		cmocka_unit_test(a_program_error_blames_no_rail_and_fails_no_other_task),
		cmocka_unit_test(a_task_waits_for_tcp_where_nothing_else_reaches_the_peer),
		cmocka_unit_test(a_task_that_tcp_cannot_carry_fails_in_time),
		cmocka_unit_test(a_port_that_is_busy_or_of_no_address_is_refused_in_words),
		cmocka_unit_test(engines_that_come_and_go_leave_nothing_behind),
		cmocka_unit_test(what_the_channel_refuses_is_said_later),
		cmocka_unit_test(requests_that_name_no_buffer_are_refused_in_words),
		cmocka_unit_test(a_request_that_is_refused_keeps_no_other_from_its_task),
		cmocka_unit_test(memory_of_a_pending_request_stays_registered),
		cmocka_unit_test(unregister_under_load_takes_no_key_away_from_a_slice),
		cmocka_unit_test(without_any_control_path_writes_stay_pending_until_the_lease_is_over),
		cmocka_unit_test(a_peer_that_goes_ends_the_tasks_to_it),
		cmocka_unit_test(a_task_that_has_ended_is_canceled_without_its_segment),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
