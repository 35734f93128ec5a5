/* Exclusive produce. */
#include "broker/rdma/produce_grant.h"

#include <stdlib.h>
#include <string.h>

#include "base/states.h"
#include "base/log.h"
#include "broker/broker.h"

#define RECEIVE_BYTES 32u /* OVERRUN, and nothing larger */
#define SEND_BYTES    (RDMA_ENTRIES_MAX * RDMA_ENTRY_BYTES)
#define MEMORY_BYTES  (RDMA_CREDITS * RECEIVE_BYTES + PRODUCE_GRANT_SENDS * SEND_BYTES)
#define SEND_BIT      (1ull << 32) /* of a wr_id */
#define OVER_NS       1000000000ull

_Static_assert(RDMA_OVERRUN_BYTES <= RECEIVE_BYTES, "a receive holds an OVERRUN");

/* A copy of the batch at the tail: what was looked into is what is committed (R-B8). */
struct grant_look {
	struct inspection inspection;
	struct produce_grant *grant;
	struct batch batch;
	struct batch_contents contents;
	uint32_t bytes;
	uint8_t at[];
};

static const struct state produce_grant_states[PRODUCE_GRANT_STATES] = {
	[PRODUCE_GRANT_OPEN] = {"open", BIT(PRODUCE_GRANT_OVER)},
	[PRODUCE_GRANT_OVER] = {"over", 0},
};

static void produce_grant_move(struct produce_grant *grant, enum produce_grant_state to)
{
	states_move("grant", produce_grant_states, &grant->state, to, "%u", grant->id);
}

/* ---- the extent ---- */

static int open_extent(struct produce_grant *grant, uint32_t batch_bytes)
{
	struct partition_log *log = grant->partition->log;
	struct log_extent *extent = &grant->extent;
	struct hf_error error;
	int rc = partition_log_grant(log, grant->client->rdma->broker->config.extent_bytes, batch_bytes, extent);

	if (rc != 0)
		return rc;
	/* What others have committed lies out of its reach. */
	rc = hf_vmr_reg(grant->client->pd, extent->segment->map + extent->tail, extent->end - extent->tail,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &grant->extent_mr, &error);
	if (rc != 0) {
		log_warn("broker: %s: an extent cannot be registered: %s", log->directory, error.text);
		partition_log_end_grant(log, extent);
		segment_unpin(extent->segment);
		*extent = (struct log_extent){0};
		return rc;
	}
	grant->id++;
	grant->order = 0;
	return 0;
}

/* Pages of another extent, once no more than half of a whole one is left: its holder waits for them otherwise. */
static void prepare_next(const struct produce_grant *grant)
{
	const struct log_extent *extent = &grant->extent;
	uint32_t most = grant->client->rdma->broker->config.extent_bytes;

	if (grant->state != PRODUCE_GRANT_OPEN || extent->segment == NULL)
		return;
	if (extent->end - extent->segment->bytes <= most / 2)
		partition_log_prepare_ahead(grant->partition->log, extent->end + most);
}

/* After it the holder's bytes come nowhere any more (R-B3), and what it left behind the tail is zero (R-B9). */
static void close_extent(struct produce_grant *grant)
{
	struct partition_log *log = grant->partition->log;

	if (grant->extent.segment == NULL)
		return;
	if (rdma_dereg(grant->client, grant->extent_mr, grant->extent.segment))
		partition_log_end_grant(log, &grant->extent);
	else
		partition_log_leave_grant(log, &grant->extent);
	grant->extent = (struct log_extent){0};
	grant->extent_mr = NULL;
}

/* ---- the end ---- */

static bool has_enough(const struct produce_grant *grant)
{
	return !grant->token.all || partition_has_enough(grant->partition);
}

static bool is_due_at(const struct produce_grant *grant, uint32_t at)
{
	int64_t due = grant->answers[at % RDMA_CREDITS].due_offset;

	return due == 0 || grant->partition == NULL ||
	       (partition_has_settled(grant->partition, due, grant->token.all) && has_enough(grant));
}

static void over(struct produce_grant *grant)
{
	struct partition *partition = grant->partition;
	uint32_t at = grant->answered;

	if (grant->state == PRODUCE_GRANT_OVER)
		return;
	close_extent(grant);
	/* Whether replicas have the others, its holder asks the next leader. */
	while (at != grant->committed && is_due_at(grant, at))
		at++;
	grant->committed = at;
	partition->holder = NULL;
	grant->partition = NULL;
	grant->over_ns = hf_loop_now_ns(grant->client->rdma->broker->loop);
	grant->tell_end = true;
	if (grant->look != NULL) /* what is not looked into yet is not in the log: its holder sends it again */
		inspector_abandon(&grant->look->inspection);
	grant->look = NULL;
	grant->waiting_from = grant->waiting_to;
	produce_grant_move(grant, PRODUCE_GRANT_OVER);
}

/* Another one appends next. What has arrived comes before it. */
static void take_back(struct partition_holder *holder)
{
	struct produce_grant *grant = container_of(holder, struct produce_grant, holder);

	rdma_harvest(grant->client->rdma, &grant->end);
	over(grant);
}

/* ---- what the holder says ---- */

static struct produce_answer *add_answer(struct produce_grant *grant, uint16_t order, enum kafka_error error)
{
	struct produce_answer *answer = &grant->answers[grant->committed++ % RDMA_CREDITS];

	*answer = (struct produce_answer){
		.order = order, .id = grant->id, .error = (int16_t)error, .base_offset = -1, .append_time_ms = -1};
	return answer;
}

/* As of any producer: the leader must reach the controller, and acks=all needs its replicas. */
static enum kafka_error may_commit(const struct produce_grant *grant)
{
	if (!broker_has_lease(grant->client->rdma->broker))
		return KAFKA_NOT_LEADER_OR_FOLLOWER;
	return has_enough(grant) ? KAFKA_NONE : KAFKA_NOT_ENOUGH_REPLICAS;
}

static void finish_batch(struct produce_grant *grant, uint32_t bytes, const struct batch_contents *contents)
{
	struct broker *broker = grant->client->rdma->broker;
	struct append_result result = {.base_offset = -1, .append_time_ms = -1};
	struct produce_answer *answer;
	enum kafka_error error = may_commit(grant);

	if (error == KAFKA_NONE)
		error = partition_commit(
			grant->partition, &grant->extent, bytes, broker_now_ms(broker), contents, &result);
	answer = add_answer(grant, grant->order++, error);
	answer->base_offset = result.base_offset;
	answer->append_time_ms = result.append_time_ms;
	answer->due_offset = error == KAFKA_NONE ? partition_log_end(grant->partition->log) : 0;
	if (error != KAFKA_NONE || result.duplicate)
		over(grant);
}

/* ---- compressed batches (R-B42) ---- */

static int64_t look_into(struct inspection *inspection, uint32_t index, size_t most)
{
	struct grant_look *look = container_of(inspection, struct grant_look, inspection);
	size_t limit = most < BATCH_CONTENTS_MOST ? most : BATCH_CONTENTS_MOST;

	(void)index;
	batch_contents_check(look->at, &look->batch, limit, &look->contents);
	return look->contents.result == BATCH_CONTENTS_LARGE && most < BATCH_CONTENTS_MOST
		       ? -1
		       : (int64_t)look->contents.bytes;
}

static void dropped(struct inspection *inspection)
{
	free(container_of(inspection, struct grant_look, inspection));
}

static void finish_look(struct grant_look *look)
{
	struct produce_grant *grant = look->grant;
	const struct segment *segment = grant->extent.segment;

	grant->look = NULL;
	if (memcmp(segment->map + segment->bytes, look->at, look->bytes) != 0)
		look->contents.result = BATCH_CONTENTS_WRONG; /* its holder has changed it meanwhile */
	finish_batch(grant, look->bytes, &look->contents);
	free(look);
}

static void looked(struct inspection *inspection);

/* Looks into the batch at the tail if it is compressed. false: it is not, or is refused without a look. */
static bool begin_look(struct produce_grant *grant, uint32_t bytes)
{
	const struct segment *segment = grant->extent.segment;
	struct grant_look *look;
	struct batch batch;

	if (bytes > grant->extent.end - segment->bytes || bytes > grant->partition->log->config.max_message_bytes ||
		batch_read(segment->map + segment->bytes, bytes, &batch) != BATCH_RIGHT ||
		(batch.attributes & BATCH_COMPRESSION) == 0)
		return false;
	look = malloc(sizeof(*look) + bytes);
	if (look == NULL)
		return false;
	look->inspection = (struct inspection){.count = 1, .look = look_into, .done = looked, .drop = dropped};
	look->grant = grant;
	look->bytes = bytes;
	memcpy(look->at, segment->map + segment->bytes, bytes);
	if (batch_read(look->at, bytes, &look->batch) != BATCH_RIGHT) {
		free(look);
		return false;
	}
	grant->look = look;
	if (inspector_begin(&grant->client->rdma->broker->inspector, &look->inspection, bytes))
		finish_look(look);
	return true;
}

static void take_batch(struct produce_grant *grant, uint32_t imm, uint32_t bytes)
{
	if (imm != rdma_imm(grant->order, grant->id)) {
		add_answer(grant, (uint16_t)(imm >> 16), KAFKA_INVALID_REQUEST);
		over(grant);
		return;
	}
	if (may_commit(grant) != KAFKA_NONE || !begin_look(grant, bytes))
		finish_batch(grant, bytes, NULL);
}

static void take_overrun(struct produce_grant *grant, const uint8_t *at, uint32_t bytes)
{
	struct segment *segment = grant->extent.segment;

	/* Another extent costs the broker its bytes; a producer with room for its batch is given none. */
	if (bytes != RDMA_OVERRUN_BYTES || at[0] != RDMA_OVERRUN || get_le16(at + 2) != grant->order ||
		get_le32(at + 4) != segment->bytes - grant->extent.tail ||
		get_le32(at + 8) <= grant->extent.end - segment->bytes) {
		over(grant);
		return;
	}
	close_extent(grant);
	if (open_extent(grant, get_le32(at + 8)) != 0)
		over(grant);
	else
		grant->tell_extent = true;
	grant->overruns++;
}

static void take_notice(struct produce_grant *grant, const struct produce_notice *notice)
{
	if (notice->is_batch)
		take_batch(grant, notice->imm, notice->bytes);
	else
		take_overrun(grant, notice->overrun, notice->bytes);
}

/* What arrived behind the batch comes next. */
static void looked(struct inspection *inspection)
{
	struct produce_grant *grant = container_of(inspection, struct grant_look, inspection)->grant;

	finish_look(container_of(inspection, struct grant_look, inspection));
	while (grant->look == NULL && grant->waiting_from != grant->waiting_to)
		take_notice(grant, &grant->waiting[grant->waiting_from++ % RDMA_CREDITS]);
}

static void post_receive(struct produce_grant *grant, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)grant->memory + (size_t)number * RECEIVE_BYTES,
		.length = RECEIVE_BYTES,
		.lkey = grant->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;

	if (hf_vqp_post_recv(grant->end.vqp, &wr, &bad) != 0)
		hf_vqp_abort(grant->end.vqp);
}

static struct produce_notice read_notice(const struct produce_grant *grant, const struct ibv_wc *wc)
{
	struct produce_notice notice = {.is_batch = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM, .bytes = wc->byte_len};

	if (notice.is_batch)
		notice.imm = wc->imm_data;
	else if (notice.bytes == RDMA_OVERRUN_BYTES)
		memcpy(notice.overrun, grant->memory + wc->wr_id * RECEIVE_BYTES, RDMA_OVERRUN_BYTES);
	return notice;
}

static void completed(struct rdma_end *end, const struct ibv_wc *wc)
{
	struct produce_grant *grant = container_of(end, struct produce_grant, end);
	uint32_t number = (uint32_t)wc->wr_id, open;

	if ((wc->wr_id & SEND_BIT) != 0) {
		grant->free_sends[grant->free_count++] = number;
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		return; /* the vqp is in error, and so is the grant soon */
	if (grant->state == PRODUCE_GRANT_OPEN) {
		struct produce_notice notice = read_notice(grant, wc);

		open = grant->committed - grant->answered + (grant->look != NULL) + grant->waiting_to -
		       grant->waiting_from;
		if (open == RDMA_CREDITS)
			over(grant); /* it has sent more than its credits */
		else if (grant->look != NULL)
			grant->waiting[grant->waiting_to++ % RDMA_CREDITS] = notice;
		else
			take_notice(grant, &notice);
	}
	post_receive(grant, number);
}

/* ---- what it is told ---- */

/* Of what is not answered there are never more than the ring holds. */
static uint32_t credits(const struct produce_grant *grant)
{
	return grant->answered + grant->overruns + RDMA_CREDITS;
}

static void put_answer(const struct produce_grant *grant, const struct produce_answer *answer, uint8_t *to)
{
	memset(to, 0, RDMA_ENTRY_BYTES);
	to[0] = RDMA_ANSWER;
	put_le16(to + 2, answer->order);
	put_le16(to + 4, (uint16_t)answer->error);
	put_le16(to + 6, answer->id);
	put_le32(to + 8, credits(grant));
	put_le64(to + 16, (uint64_t)answer->base_offset);
	put_le64(to + 24, (uint64_t)answer->append_time_ms);
}

static void put_extent(struct produce_grant *grant, uint8_t *to)
{
	const struct log_extent *extent = &grant->extent;

	memset(to, 0, RDMA_ENTRY_BYTES);
	to[0] = RDMA_EXTENT;
	put_le16(to + 2, grant->id);
	put_le32(to + 4, grant->extent_mr->rkey);
	put_le64(to + 8, (uintptr_t)extent->segment->map + extent->tail);
	put_le32(to + 16, extent->end - extent->tail);
	put_le32(to + 20, credits(grant));
}

static bool is_due(const struct produce_grant *grant)
{
	return grant->answered != grant->committed && is_due_at(grant, grant->answered);
}

/* Answers in order, then another extent or the end, in one SEND. */
static uint32_t fill(struct produce_grant *grant, uint8_t *to)
{
	uint32_t n = 0;

	while (n < RDMA_ENTRIES_MAX && is_due(grant))
		put_answer(grant, &grant->answers[grant->answered++ % RDMA_CREDITS], to + RDMA_ENTRY_BYTES * n++);
	if (n == RDMA_ENTRIES_MAX || grant->answered != grant->committed)
		return n;
	if (grant->tell_extent && grant->state == PRODUCE_GRANT_OPEN)
		put_extent(grant, to + RDMA_ENTRY_BYTES * n++);
	grant->tell_extent = false;
	if (grant->tell_end && n < RDMA_ENTRIES_MAX) {
		memset(to + RDMA_ENTRY_BYTES * n, 0, RDMA_ENTRY_BYTES);
		to[RDMA_ENTRY_BYTES * n++] = RDMA_END;
		grant->tell_end = false;
	}
	return n;
}

static bool has_news(const struct produce_grant *grant)
{
	return is_due(grant) || (grant->answered == grant->committed && (grant->tell_extent || grant->tell_end));
}

static bool tell(struct produce_grant *grant)
{
	bool busy = false;

	while (grant->free_count > 0 && has_news(grant)) {
		uint32_t number = grant->free_sends[grant->free_count - 1];
		uint8_t *at = grant->memory + RDMA_CREDITS * RECEIVE_BYTES + (size_t)number * SEND_BYTES;
		struct ibv_sge sge = {.addr = (uintptr_t)at, .lkey = grant->mr->lkey};
		struct ibv_send_wr wr = {.wr_id = SEND_BIT | number,
					   .sg_list = &sge,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND},
				   *bad;

		sge.length = fill(grant, at) * RDMA_ENTRY_BYTES;
		if (hf_vqp_post_send(grant->end.vqp, &wr, &bad) != 0) {
			hf_vqp_abort(grant->end.vqp);
			return true;
		}
		grant->free_count--;
		busy = true;
	}
	return busy;
}

bool produce_grant_turn(struct produce_grant *grant, uint64_t now_ns)
{
	if (grant->end.lost || (grant->state == PRODUCE_GRANT_OVER && now_ns - grant->over_ns > OVER_NS)) {
		produce_grant_close(grant);
		return true;
	}
	/* hw has passed batches as members left the isr: its holder asks again until there are enough. */
	if (grant->state == PRODUCE_GRANT_OPEN && grant->answered != grant->committed && !has_enough(grant))
		over(grant);
	prepare_next(grant);
	return tell(grant);
}

/* ---- opening ---- */

static int open_memory(struct produce_grant *grant)
{
	struct hf_error error;
	void *memory = NULL;
	int rc = hf_mem_alloc(grant->client->rdma->broker->env, MEMORY_BYTES, &memory, &error);

	grant->memory = memory;
	if (rc == 0)
		rc = hf_vmr_reg(grant->client->pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE, &grant->mr, &error);
	if (rc != 0)
		log_warn("broker: no memory for a grant: %s", error.text);
	return rc;
}

static size_t put_reply(const struct produce_grant *grant, uint8_t *to)
{
	const struct log_extent *extent = &grant->extent;
	const struct log_config *config = &grant->partition->log->config;

	memset(to, 0, RDMA_GRANT_BYTES);
	to[0] = RDMA_VERSION;
	to[1] = ACCESS_PRODUCE;
	put_le16(to + 2, grant->id);
	put_le32(to + 4, RDMA_CREDITS);
	put_le64(to + 8, (uintptr_t)extent->segment->map + extent->tail);
	put_le32(to + 16, grant->extent_mr->rkey);
	put_le32(to + 20, extent->end - extent->tail);
	put_le32(to + 24,
		config->max_message_bytes < config->segment_bytes ? config->max_message_bytes : config->segment_bytes);
	put_le32(to + 28, (uint32_t)grant->partition->leader_epoch);
	return RDMA_GRANT_BYTES;
}

static bool prepare(struct produce_grant *grant)
{
	if (open_memory(grant) != 0 || rdma_make_vqp(grant->client, &grant->end, IBV_ACCESS_REMOTE_WRITE, true,
					       RDMA_CREDITS, PRODUCE_GRANT_SENDS) == NULL)
		return false;
	for (uint32_t i = 0; i < PRODUCE_GRANT_SENDS; i++)
		grant->free_sends[grant->free_count++] = i;
	for (uint32_t i = 0; i < RDMA_CREDITS; i++)
		post_receive(grant, i);
	partition_take_back(grant->partition);
	if (open_extent(grant, 1) != 0)
		return false;
	grant->partition->holder = &grant->holder;
	return true;
}

struct hf_vqp *produce_grant_open(
	struct rdma_client *client, const struct token *token, uint8_t *reply, size_t *reply_bytes)
{
	const struct codec_string topic = {token->topic, (int32_t)strlen(token->topic)};
	enum kafka_error error;
	struct partition *partition = broker_find_led(client->rdma->broker, topic, token->partition, &error);
	bool is_current = partition != NULL && partition->leader_epoch == token->leader_epoch;
	struct produce_grant *grant = is_current ? calloc(1, sizeof(*grant)) : NULL;

	if (grant == NULL)
		return NULL;
	*grant = (struct produce_grant){.end = {.completed = completed},
		.client = client,
		.holder = {.take_back = take_back},
		.partition = partition,
		.token = *token};
	list_push_back(&client->grants, &grant->node);
	if (!prepare(grant)) {
		grant->partition = grant->partition->holder == &grant->holder ? grant->partition : NULL;
		produce_grant_close(grant);
		return NULL;
	}
	client->rdma->grants++;
	*reply_bytes = put_reply(grant, reply);
	return grant->end.vqp;
}

void produce_grant_close(struct produce_grant *grant)
{
	struct rdma *rdma = grant->client->rdma;

	if (grant->partition != NULL)
		take_back(&grant->holder);
	rdma_drop_vqp(rdma, &grant->end);
	if (hf_vmr_dereg(grant->mr) == 0)
		hf_mem_free(rdma->broker->env, grant->memory);
	list_remove(&grant->node);
	free(grant);
}
