/* What a token and a grant reach, and when that ends: a client that writes as it likes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "batches.h"
#include "broker/codec/compression.h"
#include "broker/rdma/produce_grant.h"
#include "broker/rdma/rdma.h"
#include "broker/rdma/rdma_wire.h"
#include "stand.h"

#define SEGMENT_BYTES 65536u
#define EXTENT_BYTES  16384u
#define WRITES        24u /* before the grant is taken back, and as many before that */
#define WRITE_BYTES   2048u
#define RECEIVE_BYTES (RDMA_ENTRIES_MAX * RDMA_ENTRY_BYTES)
#define RECEIVE_ID    1u /* of a wr; all others have 0 */
#define MEMORY_BYTES  (WRITE_BYTES + RECEIVE_BYTES)
#define ROUNDS        50u

struct client {
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint8_t *memory;
};

struct holder {
	struct client *client;
	struct hf_vqp *vqp;
	uint64_t address; /* of the extent */
	uint32_t key, bytes;
	uint16_t id;                   /* of the extent */
	unsigned posted, done, failed; /* wrs */
};

static struct client one, other;
static struct holder *waited_for;

/* ---- clients ---- */

static void open_client(struct client *client, struct hf_node *node)
{
	struct hf_error error;
	void *memory;

	client->node = node;
	assert_int_equal(hf_vpd_alloc(node, &client->pd), 0);
	assert_int_equal(hf_vcq_create(node, 4 * PAIR_DEPTH, NULL, &client->cq), 0);
	assert_int_equal(hf_mem_alloc(hf_env_host(), MEMORY_BYTES, &memory, &error), 0);
	client->memory = memory;
	memset(memory, 0xa5, MEMORY_BYTES);
	assert_int_equal(hf_vmr_reg(client->pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE, &client->mr, &error), 0);
}

/* As the first client's node, with other addresses. */
static struct hf_node *open_node(void)
{
	static const struct hf_node_events events = {0};
	struct end end = {.name = "c"};
	struct hf_node_config config;
	struct hf_error error = {0};
	struct hf_node *node;
	struct pair scratch = stand.pair;

	pair_config(&scratch, &end, HF_POLICY_VARUNA, &config);
	for (unsigned i = 0; i < 2; i++) {
		char text[HF_ADDR_TEXT], moved[HF_ADDR_TEXT + 16];
		unsigned at[4];

		assert_int_equal(sscanf(hf_addr_format(&config.rails[i].address, text), "%u.%u.%u.%u", &at[0], &at[1],
					 &at[2], &at[3]),
			4);
		snprintf(moved, sizeof(moved), "%u.%u.%u.%u", at[0], at[1] + 64, at[2], at[3]);
		assert_int_equal(hf_addr_parse(moved, &config.rails[i].address), 0);
		config.rails[i].control = config.rails[i].address;
		hf_addr_set_port(&config.rails[i].control, 18515);
	}
	if (hf_node_open(stand.pair.loop, &config, &events, NULL, &node, &error) != 0)
		fail_msg("%s", error.text);
	return node;
}

static void open_all(void)
{
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	open_client(&one, stand.pair.a.node);
	open_client(&other, open_node());
}

static void close_all(void)
{
	uint8_t *memory[] = {one.memory, other.memory};

	hf_node_close(other.node);
	stand_close(); /* and the first client's node */
	for (unsigned i = 0; i < 2; i++)
		hf_mem_free(hf_env_host(), memory[i]);
}

/* ---- holders ---- */

static void make_token(int32_t partition, uint8_t bytes[RDMA_TOKEN_BYTES])
{
	struct token *token = tokens_give(&stand.broker->rdma->tokens, hf_loop_now_ns(stand.pair.loop));

	assert_non_null(token);
	hf_env_entropy(hf_env_host(), token->bytes, sizeof(token->bytes));
	memcpy(bytes, token->bytes, RDMA_TOKEN_BYTES);
	token->kind = ACCESS_PRODUCE;
	token->partition = partition;
	token->all = true;
	token->leader_epoch = stand_partition(partition)->leader_epoch;
	snprintf(token->topic, sizeof(token->topic), "%s", STAND_TOPIC);
}

static bool is_answered(void)
{
	return hf_vqp_state(waited_for->vqp) == HF_VQP_UP || hf_vqp_state(waited_for->vqp) == HF_VQP_ERROR;
}

/* For END: without it the vqp would fail for another reason than the one that is tested. */
static void post_receive(struct holder *holder)
{
	struct ibv_sge sge = {.addr = (uintptr_t)holder->client->memory + WRITE_BYTES,
		.length = RECEIVE_BYTES,
		.lkey = holder->client->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECEIVE_ID, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hf_vqp_post_recv(holder->vqp, &wr, &bad), 0);
}

static void connect_with(struct holder *holder, struct client *client, const uint8_t token[RDMA_TOKEN_BYTES])
{
	const struct hf_vqp_init init = {.send_cq = client->cq,
		.cap = {.max_send_wr = PAIR_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = true,
		.revocable = true};
	struct hf_error error;
	struct hf_peer *peer;
	const uint8_t *reply;
	size_t bytes;

	*holder = (struct holder){.client = client};
	peer = hf_peer_find(client->node, &stand.pair.control[1][0]);
	if (peer == NULL)
		assert_int_equal(hf_peer_connect(client->node, &stand.pair.control[1][0], 1, &peer, &error), 0);
	assert_int_equal(hf_vqp_create(client->pd, &init, &holder->vqp), 0);
	post_receive(holder);
	assert_int_equal(hf_vqp_connect(holder->vqp, peer, RDMA_SERVICE, token, RDMA_TOKEN_BYTES), 0);
	waited_for = holder;
	stand_until(is_answered);
	if (hf_vqp_state(holder->vqp) == HF_VQP_ERROR)
		return;
	reply = hf_vqp_reply(holder->vqp, &bytes);
	assert_int_equal(bytes, RDMA_GRANT_BYTES);
	holder->id = get_le16(reply + 2);
	holder->address = get_le64(reply + 8);
	holder->key = get_le32(reply + 16);
	holder->bytes = get_le32(reply + 20);
}

static void hold(struct holder *holder, struct client *client, int32_t partition)
{
	uint8_t token[RDMA_TOKEN_BYTES];

	make_token(partition, token);
	connect_with(holder, client, token);
	assert_int_equal(hf_vqp_state(holder->vqp), HF_VQP_UP);
}

static void post_imm(
	struct holder *holder, enum ibv_wr_opcode opcode, uint64_t address, uint32_t key, uint32_t bytes, uint32_t imm)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)holder->client->memory, .length = bytes, .lkey = holder->client->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .imm_data = imm,
				   .wr.rdma = {.remote_addr = address, .rkey = key}},
			   *bad;

	assert_int_equal(hf_vqp_post_send(holder->vqp, &wr, &bad), 0);
	holder->posted++;
}

static void post(struct holder *holder, enum ibv_wr_opcode opcode, uint64_t address, uint32_t key, uint32_t bytes)
{
	post_imm(holder, opcode, address, key, bytes, 0);
}

static bool has_ended(void)
{
	struct ibv_wc wcs[PAIR_DEPTH];
	int n = hf_vcq_poll(waited_for->client->cq, PAIR_DEPTH, wcs);

	for (int i = 0; i < n; i++) {
		if (wcs[i].wr_id == RECEIVE_ID)
			continue;
		waited_for->done += wcs[i].status == IBV_WC_SUCCESS;
		waited_for->failed += wcs[i].status != IBV_WC_SUCCESS;
	}
	return waited_for->done + waited_for->failed == waited_for->posted &&
	       hf_vqp_state(waited_for->vqp) == HF_VQP_ERROR;
}

static void end(struct holder *holder)
{
	waited_for = holder;
	stand_until(has_ended);
	hf_vqp_destroy(holder->vqp);
}

static void append_as_tcp_does(int32_t partition)
{
	static uint8_t data[1024];
	const struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1, .sequence = -1};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	assert_int_equal(partition_append(stand_partition(partition), data, bytes, 1, &result), KAFKA_NONE);
}

static struct segment *head_of(int32_t partition)
{
	return partition_log_head(stand_partition(partition)->log);
}

/* ---- tests ---- */

static void a_token_opens_one_vqp(void **state)
{
	const struct partition_holder *granted;
	uint8_t token[RDMA_TOKEN_BYTES];
	struct holder first, again;

	(void)state;
	open_all();
	make_token(0, token);
	connect_with(&first, &one, token);
	assert_int_equal(hf_vqp_state(first.vqp), HF_VQP_UP);
	granted = stand_partition(0)->holder;
	assert_non_null(granted);
	for (unsigned i = 0; i < 2; i++) {
		connect_with(&again, i == 0 ? &one : &other, token);
		assert_int_equal(hf_vqp_end(again.vqp, NULL), HF_VQP_END_REFUSED);
		hf_vqp_destroy(again.vqp);
		assert_ptr_equal(stand_partition(0)->holder, granted);
		assert_int_equal(hf_vqp_state(first.vqp), HF_VQP_UP);
	}
	hf_vqp_destroy(first.vqp);
	connect_with(&again, &one, token);
	assert_int_equal(hf_vqp_end(again.vqp, NULL), HF_VQP_END_REFUSED);
	hf_vqp_destroy(again.vqp);
	close_all();
}

static void write_all_over(struct holder *holder, unsigned seed)
{
	for (unsigned i = 0; i < WRITES; i++) {
		uint32_t place = (i + seed) % 3 == 0 ? 0 : (i * 709 + seed * 97) % (holder->bytes - WRITE_BYTES);

		post(holder, IBV_WR_RDMA_WRITE, holder->address + place, holder->key, WRITE_BYTES);
	}
}

static void a_grant_taken_back_lets_nothing_land(void **state)
{
	static uint8_t kept[SEGMENT_BYTES];
	unsigned done = 0, failed = 0;

	(void)state;
	open_all();
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct segment *head = head_of(0);
		struct holder holder;

		hold(&holder, &one, 0);
		write_all_over(&holder, round);
		for (unsigned i = 0; i < round % 5; i++)
			(void)hf_loop_turn(stand.pair.loop, 0);
		write_all_over(&holder, round + 1);
		append_as_tcp_does(0);
		assert_null(stand_partition(0)->holder);
		assert_ptr_equal(head_of(0), head);
		for (const uint8_t *at = head->map + head->bytes; at < head->map + head->capacity; at++)
			if (*at != 0)
				fail_msg("round %u: a byte lies behind the tail", round);
		memcpy(kept, head->map, SEGMENT_BYTES);
		post(&holder, IBV_WR_RDMA_WRITE, holder.address, holder.key, 8);
		end(&holder);
		pair_turn_for(&stand.pair, 1000000);
		assert_memory_equal(head->map, kept, SEGMENT_BYTES);
		assert_true(holder.failed > 0);
		done += holder.done;
		failed += holder.failed;
	}
	assert_int_equal(partition_log_end(stand_partition(0)->log), ROUNDS);
	print_message("%u writes landed before the end of their grant, %u did not\n", done, failed);
	/* Over shm who posts does the work, so only what is posted behind the end comes too late. */
	assert_true(strcmp(pair_kind, "shm") == 0 ? failed == ROUNDS : failed > ROUNDS);
	close_all();
}

static void try(enum ibv_wr_opcode opcode, const struct holder *target, int64_t from, bool its_key, uint32_t bytes)
{
	static uint8_t kept[2][SEGMENT_BYTES], read[WRITE_BYTES];
	struct holder holder;

	hold(&holder, &one, 0);
	memcpy(read, one.memory, WRITE_BYTES);
	for (int32_t i = 0; i < 2; i++)
		memcpy(kept[i], head_of(i)->map, SEGMENT_BYTES);
	target = target == NULL ? &holder : target;
	post(&holder, opcode, (uint64_t)((int64_t)target->address + from), its_key ? target->key : holder.key, bytes);
	end(&holder);
	assert_int_equal(holder.failed, 1);
	for (int32_t i = 0; i < 2; i++)
		assert_memory_equal(head_of(i)->map, kept[i], SEGMENT_BYTES);
	assert_memory_equal(one.memory, read, WRITE_BYTES);
}

/* Neither by its own key nor by that of another client, nor what is committed in its own partition. */
static void a_holder_reaches_its_extent_alone(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	const struct partition_holder *granted;
	struct holder victim;

	(void)state;
	open_all();
	for (unsigned i = 0; i < 3; i++) {
		append_as_tcp_does(0);
		append_as_tcp_does(1);
	}
	hold(&victim, &other, 1);
	granted = stand_partition(1)->holder;
	for (unsigned i = 0; i < 2; i++) {
		try(opcodes[i], &victim, 0, false, 8);
		try(opcodes[i], &victim, 0, true, 8);
		try(opcodes[i], &victim, -8, true, 8);
		try(opcodes[i], &victim, 100, true, 100);
		try(opcodes[i], &victim, -(int64_t)head_of(1)->bytes, false, 61);
		try(opcodes[i], NULL, -8, false, 8);
		try(opcodes[i], NULL, -1, false, 64);
		try(opcodes[i], NULL, (int64_t)victim.bytes - 8, false, 16);
	}
	assert_ptr_equal(stand_partition(1)->holder, granted);
	assert_int_equal(hf_vqp_state(victim.vqp), HF_VQP_UP);
	hf_vqp_destroy(victim.vqp);
	close_all();
}

static uint64_t heard; /* wrs of the holder that were received */

static bool is_told(void)
{
	struct ibv_wc wc;

	while (hf_vcq_poll(waited_for->client->cq, 1, &wc) == 1)
		heard += wc.wr_id == RECEIVE_ID;
	return heard > 0;
}

/* Its broker answers with another extent or with the end. */
static void say_overrun(struct holder *holder, uint32_t bytes)
{
	uint8_t *at = holder->client->memory;

	memset(at, 0, RDMA_OVERRUN_BYTES);
	at[0] = RDMA_OVERRUN;
	put_le32(at + 8, bytes);
	post(holder, IBV_WR_SEND, 0, 0, RDMA_OVERRUN_BYTES);
	heard = 0;
	waited_for = holder;
	stand_until(is_told);
}

/* An extent is zeroed and registered anew, for 16 bytes. */
static void who_has_room_for_its_batch_gets_no_other_extent(void **state)
{
	(void)state;
	open_all();
	for (unsigned i = 0; i < 3; i++) {
		struct holder holder;

		hold(&holder, &one, 0);
		say_overrun(&holder, i == 0 ? 0 : i == 1 ? holder.bytes : holder.bytes + 1);
		assert_int_equal(stand_partition(0)->holder != NULL, i == 2);
		hf_vqp_destroy(holder.vqp);
	}
	close_all();
}

static bool no_room; /* for another region */

int __real_hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error);
int __wrap_hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error);

/* Linked in its place (--wrap). */
int __wrap_hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error)
{
	return no_room ? hf_error_set(error, -ENOSPC, "no room for another region")
		       : __real_hf_vmr_reg(pd, addr, bytes, access, mr_out, error);
}

static void an_extent_that_cannot_be_registered_ends_the_grant(void **state)
{
	struct holder holder;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	no_room = true;
	say_overrun(&holder, holder.bytes + 1);
	no_room = false;
	assert_null(stand_partition(0)->holder);
	hf_vqp_destroy(holder.vqp);
	append_as_tcp_does(0);
	hold(&holder, &one, 0);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

static uint32_t post_batch(struct holder *holder, uint64_t address, uint16_t order, uint16_t id)
{
	const struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1, .sequence = -1};
	uint32_t bytes = (uint32_t)batches_make(&wish, holder->client->memory);

	post_imm(holder, IBV_WR_RDMA_WRITE_WITH_IMM, address, holder->key, bytes, rdma_imm(order, id));
	heard = 0;
	waited_for = holder;
	return bytes;
}

static void write_batch(struct holder *holder, uint16_t order, uint16_t id)
{
	(void)post_batch(holder, holder->address, order, id);
	stand_until(is_told);
}

/* It names its order (R-B1). */
static void a_batch_that_is_not_due_ends_the_grant(void **state)
{
	(void)state;
	open_all();
	for (uint16_t order = 0; order < 3; order++) {
		struct holder holder;

		hold(&holder, &one, 0);
		write_batch(&holder, order, holder.id);
		assert_int_equal(stand_partition(0)->holder != NULL, order == 0);
		assert_int_equal(partition_log_end(stand_partition(0)->log), 1);
		hf_vqp_destroy(holder.vqp);
	}
	close_all();
}

/* What lies behind a refused batch has its place behind that (R-B11). */
static void a_batch_that_is_refused_ends_the_grant(void **state)
{
	struct holder holder;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	stand_partition(0)->log->config.max_message_bytes = 16;
	write_batch(&holder, 0, holder.id);
	assert_null(stand_partition(0)->holder);
	assert_int_equal(partition_log_end(stand_partition(0)->log), 0);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

static void is_not_replicated(struct partition *partition)
{
	(void)partition;
}

static bool has_committed_one(void)
{
	return partition_log_end(stand_partition(0)->log) == 1;
}

/* Its answer at once does not take along those that wait for replicas: the holder hears only the end (B1). */
static void what_no_replica_has_is_not_acknowledged_when_the_next_batch_is_refused(void **state)
{
	struct holder holder;
	uint32_t bytes;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	stand_partition(0)->appended = is_not_replicated;
	bytes = post_batch(&holder, holder.address, 0, holder.id);
	stand_until(has_committed_one);
	stand_partition(0)->log->config.max_message_bytes = 16;
	(void)post_batch(&holder, holder.address + bytes, 1, holder.id);
	stand_until(is_told);
	assert_null(stand_partition(0)->holder);
	assert_int_equal(one.memory[WRITE_BYTES], RDMA_END);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

/* hw passes what waits when the other members leave the isr (B1). */
static void what_too_few_replicas_have_is_not_acknowledged(void **state)
{
	struct partition *partition;
	struct holder holder;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	partition = stand_partition(0);
	partition->appended = is_not_replicated;
	(void)post_batch(&holder, holder.address, 0, holder.id);
	stand_until(has_committed_one);
	partition->replicas = 3;
	partition->log->config.min_insync_replicas = 2;
	partition_set_hw(partition, 1);
	stand_until(is_told);
	assert_null(partition->holder);
	assert_int_equal(one.memory[WRITE_BYTES], RDMA_END);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

/* What is said of the extent before is not booked in the next one (R-B2). */
static void a_batch_with_the_id_of_the_extent_before_ends_the_grant(void **state)
{
	(void)state;
	open_all();
	for (int64_t i = 0; i < 2; i++) {
		struct holder holder;
		const uint8_t *entry = one.memory + WRITE_BYTES;
		uint16_t before;

		hold(&holder, &one, 0);
		before = holder.id;
		say_overrun(&holder, holder.bytes + 1);
		assert_int_equal(entry[0], RDMA_EXTENT);
		holder.id = get_le16(entry + 2);
		holder.key = get_le32(entry + 4);
		holder.address = get_le64(entry + 8);
		post_receive(&holder);
		write_batch(&holder, 0, i == 0 ? holder.id : before);
		assert_int_equal(stand_partition(0)->holder != NULL, i == 0);
		assert_int_equal(partition_log_end(stand_partition(0)->log), 1);
		hf_vqp_destroy(holder.vqp);
	}
	close_all();
}

/* ---- compressed batches (R-B42) ---- */

#define PACKED_RECORDS 100
#define PACKED_VALUE   40000u /* a helper thread looks into it */

static bool has_committed_both(void)
{
	return partition_log_end(stand_partition(0)->log) == PACKED_RECORDS + 1;
}

static bool is_looked_into(void)
{
	const struct partition_holder *holder = stand_partition(0)->holder;

	return holder != NULL && container_of(holder, struct produce_grant, holder)->look != NULL;
}

/* Helper threads that do nothing else until they are let go. */
#define HELPERS 2

static struct inspection held[HELPERS];
static atomic_bool let_go;
static unsigned held_done;

static int64_t hold_on(struct inspection *inspection, uint32_t index, size_t most)
{
	(void)inspection;
	(void)index;
	(void)most;
	while (!atomic_load(&let_go))
		sched_yield();
	return 0;
}

static void held_is_done(struct inspection *inspection)
{
	(void)inspection;
	held_done++;
}

static void hold_helpers(void)
{
	atomic_store(&let_go, false);
	held_done = 0;
	for (unsigned i = 0; i < HELPERS; i++) {
		held[i] = (struct inspection){.count = 1, .look = hold_on, .done = held_is_done};
		assert_false(inspector_begin(&stand.broker->inspector, &held[i], UINT32_MAX));
	}
}

static bool helpers_are_done(void)
{
	return held_done == HELPERS;
}

static void let_helpers_go(void)
{
	atomic_store(&let_go, true);
	stand_until(helpers_are_done);
}

/* One that unpacks to 4 MB, with a count of `count`; its bytes. */
static uint32_t post_packed(struct holder *holder, int32_t count)
{
	const struct batch_wish wish = {.records = PACKED_RECORDS,
		.value_bytes = PACKED_VALUE,
		.producer_id = -1,
		.sequence = -1,
		.timestamp_ms = 1000};
	uint8_t *data = malloc(PACKED_RECORDS * (PACKED_VALUE + 20) + 400);
	uint32_t bytes;

	assert_non_null(data);
	bytes = (uint32_t)batches_pack(data, batches_make(&wish, data), HF_CODEC_ZSTD);
	assert_true(bytes <= WRITE_BYTES);
	put_be32(data + 23, (uint32_t)count - 1);
	put_be32(data + 57, (uint32_t)count);
	batches_seal(data, bytes);
	memcpy(holder->client->memory, data, bytes);
	free(data);
	post_imm(holder, IBV_WR_RDMA_WRITE_WITH_IMM, holder->address, holder->key, bytes, rdma_imm(0, holder->id));
	stand_until(is_looked_into);
	return bytes;
}

static bool waits_behind(void)
{
	const struct produce_grant *grant = container_of(stand_partition(0)->holder, struct produce_grant, holder);

	return grant->waiting_to != grant->waiting_from;
}

static void what_comes_behind_a_packed_batch_waits_for_it(void **state)
{
	struct holder holder;
	struct log_batch found;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	hold_helpers();
	(void)post_batch(&holder, holder.address + post_packed(&holder, PACKED_RECORDS), 1, holder.id);
	stand_until(waits_behind);
	assert_int_equal(partition_log_end(stand_partition(0)->log), 0);
	let_helpers_go();
	stand_until(has_committed_both);
	assert_non_null(stand_partition(0)->holder);
	assert_true(partition_log_find_time(stand_partition(0)->log, 1000, 0, &found));
	assert_int_equal(found.batch.base_offset, 0);
	assert_int_equal(found.batch.count, PACKED_RECORDS);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

static bool has_no_holder(void)
{
	return stand_partition(0)->holder == NULL;
}

static void nothing_comes_behind_a_packed_batch_that_is_wrong(void **state)
{
	struct holder holder;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	hold_helpers();
	(void)post_batch(&holder, holder.address + post_packed(&holder, PACKED_RECORDS + 1), 1, holder.id);
	stand_until(waits_behind);
	let_helpers_go();
	stand_until(has_no_holder);
	assert_int_equal(partition_log_end(stand_partition(0)->log), 0);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

/* Nobody waits for the look; the holder sends it again. */
static void an_append_ends_the_grant_of_a_packed_batch(void **state)
{
	struct holder holder;

	(void)state;
	open_all();
	hold(&holder, &one, 0);
	hold_helpers();
	(void)post_packed(&holder, PACKED_RECORDS);
	append_as_tcp_does(0);
	let_helpers_go();
	assert_null(stand_partition(0)->holder);
	assert_int_equal(partition_log_end(stand_partition(0)->log), 1);
	hf_vqp_destroy(holder.vqp);
	close_all();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_opens_one_vqp),
		cmocka_unit_test(a_grant_taken_back_lets_nothing_land),
		cmocka_unit_test(a_holder_reaches_its_extent_alone),
		cmocka_unit_test(an_extent_that_cannot_be_registered_ends_the_grant),
		cmocka_unit_test(a_batch_that_is_not_due_ends_the_grant),
		cmocka_unit_test(a_batch_that_is_refused_ends_the_grant),
		cmocka_unit_test(what_no_replica_has_is_not_acknowledged_when_the_next_batch_is_refused),
		cmocka_unit_test(what_too_few_replicas_have_is_not_acknowledged),
		cmocka_unit_test(a_batch_with_the_id_of_the_extent_before_ends_the_grant),
		cmocka_unit_test(what_comes_behind_a_packed_batch_waits_for_it),
		cmocka_unit_test(nothing_comes_behind_a_packed_batch_that_is_wrong),
		cmocka_unit_test(an_append_ends_the_grant_of_a_packed_batch),
		cmocka_unit_test(who_has_room_for_its_batch_gets_no_other_extent),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name("grant", tests, NULL, NULL);
}
