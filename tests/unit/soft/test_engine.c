/* Two engines, connected by a network in memory that loses, repeats, reorders and delays what each sends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "dev/gid.h"
#include "dev/qp_rules.h"
#include "dev/soft/dc.h"
#include "dev/soft/engine.h"

#define MEMORY_BYTES (256u << 10)
#define CQE          4096u
#define KEY          0x5eed0000u
#define FLIGHT_MAX   8192u
#define PACKET_ROOM  4400u
#define STEP_NS      2000u
#define STEPS_MAX    3000000u
#define FIRST_PSN    0xfffff0u /* wraps early */

struct host {
	struct hf_dev dev;
	struct engine engine;
	struct soft_pd pd;
	struct soft_mr mr;
	struct soft_cq cq;
	struct soft_qp qp;
	uint8_t *memory;
	unsigned wakes;
};

struct flight {
	uint64_t due_ns;
	int to;
	uint32_t bytes;
	uint8_t data[PACKET_ROOM];
};

struct world {
	struct host host[2];
	struct flight *flights;
	unsigned flight_count;
	uint64_t now_ns, random;
	unsigned loss, copies, delays; /* in 1000 */
	unsigned steps, answer_every;  /* host 1 sends in every so many steps only */
	unsigned launched[2];          /* packets that this host sent */
	bool cut[2];                   /* what this host sends is lost */
};

static struct soft_bus bus = {.ops = &bus_direct};

static unsigned roll(struct world *world, unsigned limit)
{
	world->random = world->random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(world->random >> 33) % limit;
}

static void count_wake(struct engine *engine)
{
	container_of(engine, struct host, engine)->wakes++;
}

/* ---- building ---- */

static void build_host(struct host *host, const char *address)
{
	struct hf_addr addr;

	assert_int_equal(hf_addr_parse(address, &addr), 0);
	host->dev.attr = (struct hf_dev_attr){.max_rd_atomic = RD_ATOMIC_MAX, .max_msg_bytes = 1u << 30};
	engine_init(&host->engine, &host->dev, &bus, &addr);
	host->engine.wake = count_wake;
	host->engine.tx.memory = malloc((size_t)TX_RUNS * TX_RUN_BYTES);
	host->memory = calloc(1, MEMORY_BYTES);
	host->mr.base = (struct hf_mr){.pd = &host->pd.base,
		.addr = host->memory,
		.bytes = MEMORY_BYTES,
		.iova = 0x10000,
		.lkey = KEY,
		.rkey = KEY,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC};
	host->engine.mrs[KEY % MR_BUCKETS] = &host->mr;
	assert_int_equal(ring_init(&host->cq.ring, CQE, sizeof(struct ibv_wc)), 0);
	host->cq.engine = &host->engine;
}

static void build_qp(struct host *host)
{
	struct soft_qp *qp = &host->qp;

	qp->base = (struct hf_qp){.dev = &host->dev,
		.pd = &host->pd.base,
		.send_cq = &host->cq.base,
		.recv_cq = &host->cq.base,
		.cap = {.max_send_wr = 1024, .max_recv_wr = 1024, .max_send_sge = 2, .max_recv_sge = 2},
		.type = IBV_QPT_RC};
	responder_init(&qp->responder, qp, &qp->requester.flow);
	assert_int_equal(requester_init(&qp->requester, qp, &qp->base.cap), 0);
	assert_int_equal(ring_init(&qp->recv_ring, 1024, recv_slot_bytes(2)), 0);
	assert_int_equal(engine_add_qp(&host->engine, qp), 0);
}

static void connect_to(struct host *host, const struct host *peer, uint8_t retry_cnt)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp.base.qp_num,
		.rq_psn = FIRST_PSN,
		.sq_psn = FIRST_PSN,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 8,
		.retry_cnt = retry_cnt,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .grh = {.dgid = gid_of_addr(&peer->engine.local)}}};

	assert_int_equal(
		qp_apply(&host->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, 0), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(qp_apply(&host->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				 0),
		0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(qp_apply(&host->qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC,
				 0),
		0);
}

static struct world *build(uint64_t seed, uint8_t retry_cnt)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world->flights = calloc(FLIGHT_MAX, sizeof(*world->flights));
	world->answer_every = 1;
	world->random = seed * 0x9e3779b97f4a7c15u + 1;
	build_host(&world->host[0], "127.0.0.1:4791");
	build_host(&world->host[1], "127.0.0.2:4791");
	build_qp(&world->host[0]);
	build_qp(&world->host[1]);
	connect_to(&world->host[0], &world->host[1], retry_cnt);
	connect_to(&world->host[1], &world->host[0], retry_cnt);
	return world;
}

static void destroy(struct world *world)
{
	for (int i = 0; i < 2; i++) {
		struct host *host = &world->host[i];

		requester_free(&host->qp.requester);
		ring_free(&host->qp.recv_ring);
		ring_free(&host->cq.ring);
		free(host->engine.tx.memory);
		free(host->memory);
	}
	free(world->flights);
	free(world);
}

/* ---- the network ---- */

static void launch(struct world *world, int to, const uint8_t *data, uint32_t bytes)
{
	struct flight *flight = &world->flights[world->flight_count];

	world->launched[1 - to]++;
	if (world->flight_count == FLIGHT_MAX || world->cut[1 - to] || roll(world, 1000) < world->loss)
		return;
	assert_true(bytes <= PACKET_ROOM);
	world->flight_count++;
	flight->to = to;
	flight->bytes = bytes;
	flight->due_ns = world->now_ns + (roll(world, 1000) < world->delays ? roll(world, 300000) : 0);
	memcpy(flight->data, data, bytes);
	if (roll(world, 1000) < world->copies)
		launch(world, to, data, bytes);
}

/* The response of a READ or atomic is its acknowledgement, and no other may be taken for it. */
static void check_acknowledgement(const struct ring *posted, const uint8_t *data, uint32_t bytes)
{
	struct packet packet;

	assert_true(packet_decode(data, bytes, &packet));
	if (packet.opcode != PACKET_ACK || (packet.syndrome & SYNDROME_KIND) != SYNDROME_ACK)
		return;
	for (uint32_t at = posted->tail; at != posted->head; at++) {
		const struct send_slot *slot = ring_slot(posted, at);
		int32_t packets_in = psn_diff(packet.psn, (uint32_t)slot->psn & 0xffffff);

		if (packets_in >= 0 && (uint32_t)packets_in < slot->psns)
			assert_false(qp_rules_has_answer(slot->opcode));
	}
}

static void take_sent(struct world *world, int from)
{
	const struct ring *posted = &world->host[1 - from].qp.requester.ring;
	struct tx *tx = &world->host[from].engine.tx;

	tx_settle(tx);
	for (unsigned i = tx->first; i < tx->count; i++)
		for (uint32_t at = 0; at < tx->runs[i].bytes; at += tx->runs[i].segment_bytes) {
			uint32_t left = tx->runs[i].bytes - at, segment = tx->runs[i].segment_bytes;
			const uint8_t *data = (uint8_t *)tx->runs[i].data + at;

			if (segment > left)
				segment = left;
			check_acknowledgement(posted, data, segment);
			launch(world, 1 - from, data, segment);
		}
	tx_sent(tx, tx->count - tx->first);
}

static void deliver_due(struct world *world)
{
	unsigned kept = 0, count = world->flight_count;

	for (unsigned i = 0; i < count; i++) {
		struct flight *flight = &world->flights[i];

		if (flight->due_ns <= world->now_ns)
			engine_receive(&world->host[flight->to].engine, &world->host[1 - flight->to].engine.local, 0,
				flight->data, flight->bytes, world->now_ns);
		else if (kept++ != i)
			world->flights[kept - 1] = *flight;
	}
	world->flight_count = kept;
}

static void step(struct world *world)
{
	world->now_ns += STEP_NS;
	deliver_due(world);
	for (int i = 0; i < 2; i++) {
		struct engine *engine = &world->host[i].engine;

		engine_answer_doorbells(engine);
		engine_tick(engine, world->now_ns);
		if (i == 1 && ++world->steps % world->answer_every != 0)
			continue;
		for (unsigned round = 0; round < 4 && engine_transmit(engine, false, world->now_ns); round++)
			take_sent(world, i);
		take_sent(world, i);
	}
}

static struct ibv_wc next_wc(struct world *world, int i)
{
	struct ibv_wc wc;

	for (unsigned steps = 0; completions_poll(&world->host[i].cq, 1, &wc) == 0; steps++) {
		if (steps == STEPS_MAX)
			fail_msg("nothing completes any more");
		step(world);
	}
	return wc;
}

/* ---- posting ---- */

static void post(
	struct world *world, enum ibv_wr_opcode opcode, uint64_t id, uint32_t local, uint32_t remote, uint32_t bytes)
{
	struct host *host = &world->host[0];
	struct ibv_sge sge = {.addr = (uintptr_t)host->memory + local, .length = bytes, .lkey = KEY};
	struct ibv_send_wr *bad,
		wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = 0x10000 + remote;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = KEY;
	} else {
		wr.wr.rdma.remote_addr = 0x10000 + remote;
		wr.wr.rdma.rkey = KEY;
	}
	assert_int_equal(requester_post(&host->qp.requester, NULL, &wr, NULL, &bad), 0);
	engine_ring_doorbell(&host->qp);
}

static void post_recv(struct world *world, uint64_t id, uint32_t local, uint32_t bytes)
{
	struct host *host = &world->host[1];
	struct ibv_sge sge = {.addr = (uintptr_t)host->memory + local, .length = bytes, .lkey = KEY};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};

	assert_int_equal(recv_post(&host->qp.recv_ring, 2, &wr, &bad), 0);
}

static void fill(uint8_t *at, uint32_t bytes, unsigned seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
}

/* ---- tests ---- */

#define ROUNDS 60u

/* Each round: a WRITE of some packets, an atomic on a counter that no other operation touches, a READ back of what was
 * written, a message. Everything completes once, in order, with what it must have found. */
static void storm(uint64_t seed)
{
	struct world *world = build(seed, 7);
	uint64_t counter;

	print_message("seed %llu\n", (unsigned long long)seed);
	world->loss = 40;
	world->copies = 40;
	world->delays = 60;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t bytes = 1 + roll(world, 9000);

		fill(world->host[0].memory, bytes, i);
		post_recv(world, i, 200000, 4096);
		post(world, IBV_WR_RDMA_WRITE, 4 * i, 0, 1024, bytes);
		post(world, IBV_WR_ATOMIC_FETCH_AND_ADD, 4 * i + 1, 100000, 8, 8);
		post(world, IBV_WR_RDMA_READ, 4 * i + 2, 50000, 1024, bytes);
		post(world, IBV_WR_SEND, 4 * i + 3, 0, 0, bytes < 4096 ? bytes : 4096);
		for (unsigned k = 0; k < 4; k++) {
			struct ibv_wc wc = next_wc(world, 0);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, 4 * i + k);
		}
		memcpy(&counter, world->host[0].memory + 100000, 8);
		assert_int_equal(counter, i);
		assert_memory_equal(world->host[0].memory + 50000, world->host[0].memory, bytes);
		assert_int_equal(next_wc(world, 1).wr_id, i);
		assert_memory_equal(world->host[1].memory + 200000, world->host[0].memory, bytes < 4096 ? bytes : 4096);
	}
	assert_true(world->host[0].engine.counters.retransmitted > 0);
	assert_int_equal(world->host[1].engine.counters.malformed, 0);
	destroy(world);
}

static void everything_executes_once_over_a_network_that_does_what_it_likes(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++)
		storm(seed);
}

/* The same without waiting: many wrs are in flight when packets are lost. */
static void a_full_queue_of_atomics_counts_every_one(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct world *world = build(seed, 7);
		uint64_t counter;

		print_message("seed %llu\n", (unsigned long long)seed);
		world->loss = 100;
		world->copies = 100;
		world->delays = 100;
		for (unsigned i = 0; i < 300; i++)
			post(world, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 8 * i, 8, 8);
		for (unsigned i = 0; i < 300; i++)
			assert_int_equal(next_wc(world, 0).wr_id, i);
		for (unsigned i = 0; i < 300; i++) {
			memcpy(&counter, world->host[0].memory + 8 * i, 8);
			assert_int_equal(counter, i);
		}
		memcpy(&counter, world->host[1].memory + 8, 8);
		assert_int_equal(counter, 300);
		destroy(world);
	}
}

/* Answers that come after the time-out, together with new requests: the responder still has the repeated ones before
 * it, and must not take the new ones for more than it agreed to. */
static void late_responses_do_not_make_later_reads_too_many(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct world *world = build(seed, 7);

		print_message("seed %llu\n", (unsigned long long)seed);
		world->delays = 300;
		world->answer_every = 650; /* longer than the time-out */
		fill(world->host[1].memory, 8 * 300, (unsigned)seed);
		for (unsigned i = 0; i < 300; i++)
			post(world, i % 3 == 0 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ, i, 8 * i,
				i % 3 == 0 ? 100000 : 8 * i, 8);
		for (unsigned i = 0; i < 300; i++) {
			struct ibv_wc wc = next_wc(world, 0);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, i);
			if (i % 3 != 0)
				assert_memory_equal(world->host[0].memory + 8 * i, world->host[1].memory + 8 * i, 8);
		}
		destroy(world);
	}
}

static void a_request_is_given_up_when_its_retries_are_spent(void **state)
{
	struct world *world = build(1, 3);
	uint64_t unit_ns = 4096u << 8;

	(void)state;
	world->cut[0] = true;
	post(world, IBV_WR_RDMA_WRITE, 1, 0, 0, 8);
	post(world, IBV_WR_RDMA_WRITE, 2, 0, 0, 8);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_RETRY_EXC_ERR);
	assert_in_range(world->now_ns, 4 * unit_ns, 5 * unit_ns);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state(&world->host[0].qp), IBV_QPS_ERR);
	assert_int_equal(world->host[0].engine.counters.retransmitted, 3 * 2);
	destroy(world);
}

static void a_long_timeout_does_not_delay_what_is_lost(void **state)
{
	struct world *world = build(1, 3);
	uint64_t unit_ns = 4096u << 12;

	(void)state;
	world->host[0].qp.attr.timeout = 12;
	world->cut[0] = true;
	post(world, IBV_WR_RDMA_WRITE, 1, 0, 0, 8);
	while (world->now_ns < unit_ns / 8)
		step(world);
	world->cut[0] = false;
	assert_int_equal(next_wc(world, 0).status, IBV_WC_SUCCESS);
	assert_in_range(world->now_ns, unit_ns / 4, unit_ns / 2);
	assert_int_equal(world->host[0].engine.counters.retransmitted, 1);

	world->cut[0] = true;
	post(world, IBV_WR_RDMA_WRITE, 2, 0, 0, 8);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_RETRY_EXC_ERR);
	assert_in_range(world->now_ns, 4 * unit_ns, 5 * unit_ns);
	assert_int_equal(world->host[0].engine.counters.retransmitted, 1 + 2 + 3);
	destroy(world);
}

static void acknowledgements_that_are_lost_leave_the_evidence(void **state)
{
	struct world *world = build(1, 1);
	struct hf_atomic_result results[4];

	(void)state;
	world->cut[1] = true;
	post(world, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, 8);
	post(world, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 8, 8);
	post(world, IBV_WR_RDMA_WRITE, 3, 0, 1024, 3000);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(world->host[1].qp.responder.expected, (FIRST_PSN + 5) & 0xffffff);
	assert_int_equal(responder_atomic_results(&world->host[1].qp.responder, results, 4), 2);
	assert_int_equal(results[0].psn, (FIRST_PSN + 1) & 0xffffff);
	assert_int_equal(results[0].original, 1);
	assert_int_equal(results[1].original, 0);
	destroy(world);
}

/* The answer to a READ is read from memory when it is sent. */
static void a_read_that_was_accepted_returns_nothing_after_access_was_taken_away(void **state)
{
	struct world *world = build(1, 7);
	struct soft_qp *qp = &world->host[1].qp;

	(void)state;
	world->answer_every = STEPS_MAX;
	post(world, IBV_WR_RDMA_READ, 1, 50000, 1024, 100000);
	for (unsigned i = 0; i < 10; i++)
		step(world);
	assert_true(qp->responder.pending_count > 0);
	qp->attr.qp_access_flags &= ~(unsigned)IBV_ACCESS_REMOTE_READ;
	fill(world->host[1].memory + 1024, 100000, 77);
	world->answer_every = 1;
	assert_int_equal(next_wc(world, 0).status, IBV_WC_REM_ACCESS_ERR);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal(world->host[0].memory[50000 + i], 0);
	destroy(world);
}

static void results_from_a_lap_of_psns_before_are_no_evidence(void **state)
{
	struct world *world = build(1, 7);
	struct hf_atomic_result results[4];

	(void)state;
	post(world, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, 8);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_SUCCESS);
	assert_int_equal(responder_atomic_results(&world->host[1].qp.responder, results, 4), 1);
	world->host[1].qp.responder.expected = FIRST_PSN - 2; /* some 2^24 packets later */
	assert_int_equal(responder_atomic_results(&world->host[1].qp.responder, results, 4), 0);
	destroy(world);
}

/* Host 1 sends seldom: before it answers it has the WRITE, whose acknowledgement is due, and what is behind it. */
static void a_response_acknowledges_what_is_before_it(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct world *world = build(1, 7);

		world->answer_every = 10;
		post(world, IBV_WR_RDMA_WRITE, 1, 0, 1024, 8);
		step(world);
		step(world);
		assert_true(world->host[1].qp.responder.ack_due);
		post(world, opcodes[i], 2, 50000, 2048, 8);
		assert_int_equal(next_wc(world, 0).wr_id, 1);
		assert_int_equal(next_wc(world, 0).wr_id, 2);
		for (unsigned k = 0; k < 20; k++)
			step(world);
		assert_int_equal(world->launched[1], 1);
		destroy(world);
	}
}

/* perftest's ib_send_lat -e takes the completion of its SEND before the answer to it. */
static void an_answer_leaves_behind_the_acknowledgement_of_what_it_answers(void **state)
{
	struct world *world = build(1, 7);
	struct host *a = &world->host[0], *b = &world->host[1];
	struct ibv_sge sge = {.addr = (uintptr_t)b->memory, .length = 8, .lkey = KEY};
	struct ibv_send_wr *bad, answer = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	const uint8_t *first;

	(void)state;
	post_recv(world, 7, 0, 8);
	post(world, IBV_WR_SEND, 1, 0, 0, 8);
	engine_answer_doorbells(&a->engine);
	engine_transmit(&a->engine, false, 0);
	engine_receive(&b->engine, &a->engine.local, 0, a->engine.tx.runs[0].data, a->engine.tx.runs[0].bytes, 0);
	assert_true(b->qp.responder.ack_due);
	assert_int_equal(requester_post(&b->qp.requester, NULL, &answer, NULL, &bad), 0);
	engine_ring_doorbell(&b->qp);
	engine_answer_doorbells(&b->engine);
	engine_transmit(&b->engine, true, 0);
	first = b->engine.tx.runs[0].data;
	assert_int_equal(first[0], PACKET_ACK);
	assert_int_equal(b->engine.tx.count, 2);
	assert_false(b->qp.responder.ack_due);
	destroy(world);
}

static void a_message_waits_for_its_receive(void **state)
{
	struct world *world = build(1, 7);

	(void)state;
	post(world, IBV_WR_SEND, 1, 0, 0, 3000);
	for (unsigned i = 0; i < 1000; i++)
		step(world);
	assert_true(world->host[1].engine.counters.rnr_naks_sent > 1);
	post_recv(world, 7, 0, 4096);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_SUCCESS);
	assert_int_equal(next_wc(world, 1).byte_len, 3000);
	destroy(world);
}

/* Each time somebody says that there is none, the wait begins anew: far more is lost here than a request is tried. */
static void losses_while_a_message_waits_do_not_add_up(void **state)
{
	struct world *world = build(1, 7);

	(void)state;
	world->loss = 200;
	post(world, IBV_WR_SEND, 1, 0, 0, 8);
	for (unsigned i = 0; i < 20000; i++)
		step(world);
	assert_true(world->launched[0] > world->launched[1] + 7);
	post_recv(world, 7, 0, 8);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_SUCCESS);
	assert_int_equal(next_wc(world, 1).byte_len, 8);
	destroy(world);
}

/* A stranger with the right numbers but another address, and one who flips a bit. */
static void packets_of_others_are_counted_and_dropped(void **state)
{
	struct world *world = build(1, 7);
	struct host *b = &world->host[1];
	struct hf_addr stranger;
	struct tx *tx = &world->host[0].engine.tx;
	uint8_t *packet;

	(void)state;
	fill(world->host[0].memory, 8, 1);
	post(world, IBV_WR_RDMA_WRITE, 1, 0, 0, 8);
	engine_answer_doorbells(&world->host[0].engine);
	engine_transmit(&world->host[0].engine, false, 0);
	packet = tx->runs[0].data;
	assert_int_equal(hf_addr_parse("127.0.0.3:4791", &stranger), 0);
	engine_receive(&b->engine, &stranger, 0, packet, tx->runs[0].bytes, 0);
	assert_int_equal(b->engine.counters.malformed, 1);
	packet[30] ^= 1;
	engine_receive(&b->engine, &world->host[0].engine.local, 0, packet, tx->runs[0].bytes, 0);
	assert_int_equal(b->engine.counters.malformed, 2);
	assert_int_equal(b->memory[0], 0);
	packet[30] ^= 1;
	engine_receive(&b->engine, &world->host[0].engine.local, 0, packet, tx->runs[0].bytes, 0);
	assert_memory_equal(b->memory, world->host[0].memory, 8);
	destroy(world);
}

static void a_responder_in_error_executes_nothing(void **state)
{
	struct world *world = build(1, 0);

	(void)state;
	qp_fail(&world->host[1].qp);
	fill(world->host[0].memory, 8, 1);
	post(world, IBV_WR_RDMA_WRITE, 1, 0, 0, 8);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(world->host[1].memory[0], 0);
	assert_int_equal(world->host[1].qp.responder.expected, FIRST_PSN);
	destroy(world);
}

static void a_qp_that_was_never_connected_flushes_what_is_posted(void **state)
{
	struct world *world = build(1, 0);
	struct soft_qp *qp = &world->host[0].qp;

	(void)state;
	requester_free(&qp->requester);
	ring_free(&qp->recv_ring);
	engine_remove_qp(&world->host[0].engine, qp);
	memset(qp, 0, sizeof(*qp));
	build_qp(&world->host[0]);
	qp_fail(qp);
	post(world, IBV_WR_RDMA_WRITE, 1, 0, 0, 3000);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_WR_FLUSH_ERR);
	destroy(world);
}

/* ---- DC ---- */

#define TARGETS 2
#define DC_KEY  0xdc0ffeeu

struct dc_world {
	struct world *world;
	struct soft_qp initiator, target[TARGETS];
};

static void start_dc(struct host *host, struct soft_qp *qp, int dc)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_1024,
		.timeout = 8,
		.retry_cnt = 7,
		.rnr_retry = 7};

	qp->base = host->qp.base;
	qp->base.type = IBV_QPT_DRIVER;
	qp->dc = dc;
	qp->dc_key = DC_KEY;
	responder_init(&qp->responder, qp, &qp->requester.flow);
	assert_int_equal(requester_init(&qp->requester, qp, &qp->base.cap), 0);
	assert_int_equal(ring_init(&qp->recv_ring, 8, recv_slot_bytes(2)), 0);
	assert_int_equal(engine_add_qp(&host->engine, qp), 0);
	if (dc == HF_DC_TARGET)
		assert_int_equal(dc_streams_create(qp, &qp->streams), 0);
	assert_int_equal(qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 1), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU, 1), 0);
	attr.qp_state = IBV_QPS_RTS;
	if (dc == HF_DC_INITIATOR)
		assert_int_equal(
			qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, 1), 0);
}

static struct dc_world *build_dc(uint64_t seed)
{
	struct dc_world *dc = calloc(1, sizeof(*dc));

	assert_non_null(dc);
	dc->world = build(seed, 7);
	start_dc(&dc->world->host[0], &dc->initiator, HF_DC_INITIATOR);
	for (int i = 0; i < TARGETS; i++)
		start_dc(&dc->world->host[1], &dc->target[i], HF_DC_TARGET);
	return dc;
}

static void destroy_dc(struct dc_world *dc)
{
	requester_free(&dc->initiator.requester);
	ring_free(&dc->initiator.recv_ring);
	for (int i = 0; i < TARGETS; i++) {
		dc_streams_destroy(dc->target[i].streams);
		requester_free(&dc->target[i].requester);
		ring_free(&dc->target[i].recv_ring);
	}
	destroy(dc->world);
	free(dc);
}

static void post_dc(struct dc_world *dc, int target, uint64_t dc_key, uint64_t id)
{
	struct host *host = &dc->world->host[0];
	struct hf_dc_dest dest = {.gid = gid_of_addr(&dc->world->host[1].engine.local),
		.dct_num = dc->target[target].base.qp_num,
		.dc_key = dc_key};
	struct ibv_sge sge = {.addr = (uintptr_t)host->memory + 8 * id, .length = 8, .lkey = KEY};
	struct ibv_send_wr *bad, wr = {.wr_id = id,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.atomic = {.remote_addr = 0x10000, .compare_add = 1, .rkey = KEY}};

	assert_int_equal(requester_post(&dc->initiator.requester, &dest, &wr, NULL, &bad), 0);
	engine_ring_doorbell(&dc->initiator);
}

static void an_initiator_executes_once_at_each_of_its_targets(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct dc_world *dc = build_dc(seed);
		struct world *world = dc->world;
		uint64_t counter;

		print_message("seed %llu\n", (unsigned long long)seed);
		world->loss = world->copies = world->delays = 60;
		for (unsigned i = 0; i < 200; i++)
			post_dc(dc, (int)(i / 5 % TARGETS), DC_KEY, i);
		for (unsigned i = 0; i < 200; i++) {
			struct ibv_wc wc = next_wc(world, 0);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, i);
			memcpy(&counter, world->host[0].memory + 8 * i, 8);
			assert_int_equal(counter, i);
		}
		assert_int_equal(world->host[1].engine.counters.malformed, 0);
		destroy_dc(dc);
	}
}

static void a_wrong_key_is_refused_and_harms_nobody_else(void **state)
{
	struct dc_world *dc = build_dc(1);

	(void)state;
	post_dc(dc, 0, DC_KEY + 1, 1);
	assert_int_equal(next_wc(dc->world, 0).status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(dc->world->host[1].memory[0], 0);
	assert_int_equal(qp_state(&dc->target[0]), IBV_QPS_RTR);
	destroy_dc(dc);
}

/* Its psns begin anew, below those that the target has seen: its life says that they are no duplicates. */
static void a_recycled_initiator_is_not_taken_for_its_former_self(void **state)
{
	struct dc_world *dc = build_dc(1);
	struct soft_qp *qp = &dc->initiator;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .timeout = 8, .retry_cnt = 3};

	(void)state;
	post_dc(dc, 0, DC_KEY, 0);
	post_dc(dc, 0, DC_KEY, 1);
	assert_int_equal(next_wc(dc->world, 0).status, IBV_WC_SUCCESS);
	assert_int_equal(next_wc(dc->world, 0).status, IBV_WC_SUCCESS);
	qp_move(qp, IBV_QPS_RESET);
	assert_int_equal(qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_PORT, dc->world->now_ns), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU, dc->world->now_ns), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
				 dc->world->now_ns),
		0);
	post_dc(dc, 0, DC_KEY, 2);
	assert_int_equal(next_wc(dc->world, 0).status, IBV_WC_SUCCESS);
	assert_int_equal(dc->world->host[1].memory[0], 3);
	destroy_dc(dc);
}

/* An acknowledgement interrupts the sender: of a batch only the end, which completes, is worth one. */
static void a_batch_is_acknowledged_at_its_end(void **state)
{
	struct world *world = build(1, 7);
	struct host *host = &world->host[0];
	struct hf_dgram *run = &host->engine.tx.runs[0];
	struct ibv_sge sge = {.addr = (uintptr_t)host->memory, .length = 8, .lkey = KEY};
	struct ibv_send_wr *bad, wr[10];

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		wr[i] = (struct ibv_send_wr){.next = i < 9 ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i < 9 ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = 0x10000 + 8 * i, .rkey = KEY}};
	assert_int_equal(requester_post(&host->qp.requester, NULL, wr, NULL, &bad), 0);
	engine_ring_doorbell(&host->qp);
	engine_answer_doorbells(&host->engine);
	engine_transmit(&host->engine, false, 0);
	assert_int_equal(run->bytes, 10 * run->segment_bytes);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(((uint8_t *)run->data)[i * run->segment_bytes + 8] >> 7, i == 9);
	destroy(world);
}

/* A wr that cannot leave keeps those before it from being the last; they are acknowledged all the same. */
static void a_wr_before_a_wrong_one_needs_no_timeout(void **state)
{
	struct world *world = build(1, 7);
	struct host *host = &world->host[0];
	struct ibv_sge good = {.addr = (uintptr_t)host->memory, .length = 8, .lkey = KEY}, wrong = good;
	struct ibv_send_wr *bad, wr[2];

	(void)state;
	wrong.lkey = KEY + 1;
	for (unsigned i = 0; i < 2; i++)
		wr[i] = (struct ibv_send_wr){.wr_id = i,
			.next = i == 0 ? &wr[1] : NULL,
			.sg_list = i == 0 ? &good : &wrong,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {.remote_addr = 0x10000, .rkey = KEY}};
	assert_int_equal(requester_post(&host->qp.requester, NULL, wr, NULL, &bad), 0);
	engine_ring_doorbell(&host->qp);
	assert_int_equal(next_wc(world, 0).status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(host->engine.counters.retransmitted, 0);
	destroy(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_executes_once_over_a_network_that_does_what_it_likes),
		cmocka_unit_test(a_full_queue_of_atomics_counts_every_one),
		cmocka_unit_test(late_responses_do_not_make_later_reads_too_many),
		cmocka_unit_test(a_request_is_given_up_when_its_retries_are_spent),
		cmocka_unit_test(a_long_timeout_does_not_delay_what_is_lost),
		cmocka_unit_test(acknowledgements_that_are_lost_leave_the_evidence),
		cmocka_unit_test(a_read_that_was_accepted_returns_nothing_after_access_was_taken_away),
		cmocka_unit_test(results_from_a_lap_of_psns_before_are_no_evidence),
		cmocka_unit_test(a_response_acknowledges_what_is_before_it),
		cmocka_unit_test(an_answer_leaves_behind_the_acknowledgement_of_what_it_answers),
		cmocka_unit_test(a_message_waits_for_its_receive),
		cmocka_unit_test(losses_while_a_message_waits_do_not_add_up),
		cmocka_unit_test(a_batch_is_acknowledged_at_its_end),
		cmocka_unit_test(a_wr_before_a_wrong_one_needs_no_timeout),
		cmocka_unit_test(packets_of_others_are_counted_and_dropped),
		cmocka_unit_test(a_responder_in_error_executes_nothing),
		cmocka_unit_test(a_qp_that_was_never_connected_flushes_what_is_posted),
		cmocka_unit_test(an_initiator_executes_once_at_each_of_its_targets),
		cmocka_unit_test(a_wrong_key_is_refused_and_harms_nobody_else),
		cmocka_unit_test(a_recycled_initiator_is_not_taken_for_its_former_self),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
