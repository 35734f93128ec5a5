/* The pure parts: rail, recovery, request log, policy, messages, configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "rail/rail.h"
#include "vqp/recovery/failover.h"
#include "vqp/data/request_log.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/objects.h"
#include "vqp/recovery/exchange.h"
#include "vqp/recovery/recovery.h"

#define MS         1000000ull
#define RETRIES_NS (50 * MS)

/* ---- rail ---- */

static void a_rail_with_errors_is_paused_for_longer_each_time(void **state)
{
	struct rail_actions actions;
	struct rail rail;
	uint64_t now_ns = 10 * MS, previous_ns = 0;

	(void)state;
	rail_init(&rail);
	rail_step(&rail, RAIL_EVENT_LINK_UP, now_ns, &actions);
	assert_true(actions.became_up);
	for (unsigned i = 0; i < 4; i++) {
		rail_step(&rail, RAIL_EVENT_WC_ERROR, now_ns, &actions);
		assert_true(actions.became_unusable);
		assert_true(rail.pause_ns > previous_ns);
		previous_ns = rail.pause_ns;
		rail_step(&rail, RAIL_EVENT_TICK, rail.resume_at_ns - 1, &actions);
		assert_int_equal(rail.state, RAIL_PAUSED);
		now_ns = rail.resume_at_ns;
		rail_step(&rail, RAIL_EVENT_TICK, now_ns, &actions);
		assert_int_equal(rail.state, RAIL_UP);
	}
	now_ns += 60000 * MS; /* calm for a long time: forgiven */
	rail_step(&rail, RAIL_EVENT_WC_ERROR, now_ns, &actions);
	assert_true(rail.pause_ns < previous_ns);
}

/* It is suspected where data is lost, and back at once where nothing else is. */
static void a_pause_outlives_a_control_path_that_goes_and_comes(void **state)
{
	struct rail_actions actions;
	struct rail rail;

	(void)state;
	rail_init(&rail);
	rail_step(&rail, RAIL_EVENT_LINK_UP, 10 * MS, &actions);
	rail_step(&rail, RAIL_EVENT_LINK_DOWN, 20 * MS, &actions);
	rail_step(&rail, RAIL_EVENT_WC_ERROR, 21 * MS, &actions);
	rail_step(&rail, RAIL_EVENT_WC_ERROR, 22 * MS, &actions);
	rail_step(&rail, RAIL_EVENT_LINK_UP, 23 * MS, &actions);
	assert_int_equal(rail.state, RAIL_PAUSED);
	rail_step(&rail, RAIL_EVENT_LINK_DOWN, 24 * MS, &actions);
	rail_step(&rail, RAIL_EVENT_LINK_UP, 25 * MS, &actions);
	assert_int_equal(rail.state, RAIL_PAUSED);
	assert_int_equal(rail.resume_at_ns, 21 * MS + rail.pause_ns);
	rail_step(&rail, RAIL_EVENT_TICK, rail.resume_at_ns, &actions);
	assert_int_equal(rail.state, RAIL_UP);
}

static void the_first_usable_rail_in_order_is_chosen(void **state)
{
	(void)state;
	assert_int_equal(rail_choose(0), -1);
	assert_int_equal(rail_choose(6), 1);
	assert_int_equal(rail_choose(1), 0);
}

/* ---- recovery: two sides, messages in flight, and the trace of what was done ---- */

struct wire_message {
	enum recovery_event_type type;
	uint32_t epoch;
	enum recovery_kind kind;
	int rail;
};

struct actor {
	struct recovery step;
	const char *name;
	struct wire_message in[32];
	unsigned first, last;
	bool fence_waits;
};

struct stage {
	struct actor a, b;
	uint32_t usable;
	bool idle; /* neither has wrs */
	uint64_t now_ns;
	char trace[1024];
};

static void note(struct stage *stage, const struct actor *actor, const char *what)
{
	size_t used = strlen(stage->trace);

	snprintf(stage->trace + used, sizeof(stage->trace) - used, "%s%s:%s", used == 0 ? "" : " ", actor->name, what);
}

static void say(struct stage *stage, struct actor *from, enum recovery_event_type type, const char *what)
{
	struct actor *to = from == &stage->a ? &stage->b : &stage->a;

	note(stage, from, what);
	to->in[to->last++ % 32] = (struct wire_message){
		.type = type, .epoch = from->step.epoch, .kind = from->step.kind, .rail = from->step.rail};
}

static void feed(struct stage *stage, struct actor *actor, struct recovery_event event)
{
	unsigned actions;

	event.usable = stage->usable;
	event.idle = stage->idle;
	actions = recovery_step(&actor->step, &event, stage->now_ns);
	if (actions & RECOVERY_SEND_FENCE)
		say(stage, actor, RECOVERY_EVENT_FENCE, "FENCE");
	if (actions & RECOVERY_SEND_STATE)
		say(stage, actor, RECOVERY_EVENT_STATE, "STATE");
	if (actions & RECOVERY_SETTLE)
		note(stage, actor, "settle");
	if (actions & RECOVERY_DO_GO)
		say(stage, actor, RECOVERY_EVENT_GO, "GO");
	if (actions & RECOVERY_DO_BUILD)
		say(stage, actor, RECOVERY_EVENT_READY, "QP");
	if (actions & RECOVERY_SEND_READY)
		say(stage, actor, RECOVERY_EVENT_READY, "READY");
	if (actions & RECOVERY_RESUME)
		note(stage, actor, "resume");
	if (actions & RECOVERY_FAIL)
		note(stage, actor, "fail");
	if ((actions & RECOVERY_DO_QUIET) != 0)
		feed(stage, actor, (struct recovery_event){.type = RECOVERY_EVENT_QUIET});
	if ((actions & RECOVERY_DO_FENCE) != 0 && !actor->fence_waits)
		feed(stage, actor, (struct recovery_event){.type = RECOVERY_EVENT_FENCED});
}

static bool deliver(struct stage *stage, struct actor *to)
{
	struct wire_message message;

	if (to->first == to->last)
		return false;
	message = to->in[to->first++ % 32];
	feed(stage, to,
		(struct recovery_event){
			.type = message.type, .epoch = message.epoch, .kind = message.kind, .rail = message.rail});
	return true;
}

static void settle_down(struct stage *stage)
{
	while (deliver(stage, &stage->a) || deliver(stage, &stage->b))
		;
}

static void stage_open(struct stage *stage)
{
	*stage = (struct stage){.usable = 3, .a.name = "a", .b.name = "b"};
	recovery_init(&stage->a.step, 1, true, 1000 * MS, RETRIES_NS);
	recovery_init(&stage->b.step, 2, false, 1000 * MS, RETRIES_NS);
	feed(stage, &stage->a, (struct recovery_event){.type = RECOVERY_EVENT_CONNECTED});
	feed(stage, &stage->b, (struct recovery_event){.type = RECOVERY_EVENT_CONNECTED});
	settle_down(stage);
	assert_int_equal(stage->a.step.state, RECOVERY_IDLE);
	assert_int_equal(stage->b.step.state, RECOVERY_IDLE);
}

static void fail_path(struct stage *stage, struct actor *actor)
{
	feed(stage, actor, (struct recovery_event){.type = RECOVERY_EVENT_BROKEN});
}

static void both_idle_at(struct stage *stage, uint32_t epoch, int rail)
{
	assert_int_equal(stage->a.step.state, RECOVERY_IDLE);
	assert_int_equal(stage->b.step.state, RECOVERY_IDLE);
	assert_int_equal(stage->a.step.epoch, epoch);
	assert_int_equal(stage->b.step.epoch, epoch);
	assert_int_equal(stage->a.step.rail, rail);
	assert_int_equal(stage->b.step.rail, rail);
}

static void connecting_is_an_exchange(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	assert_string_equal(stage.trace, "a:STATE b:STATE a:settle a:GO b:settle b:QP a:READY a:resume b:resume");
	both_idle_at(&stage, 1, 0);
}

static void a_failure_seen_by_one_side_moves_both(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	stage.trace[0] = '\0';
	stage.usable = 2;
	fail_path(&stage, &stage.b);
	settle_down(&stage);
	assert_string_equal(
		stage.trace, "b:FENCE b:STATE a:STATE a:settle a:GO b:settle b:QP a:READY a:resume b:resume");
	both_idle_at(&stage, 2, 1);
}

static void a_failure_seen_by_both_at_once_is_one_exchange(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	stage.trace[0] = '\0';
	stage.usable = 2;
	fail_path(&stage, &stage.a);
	fail_path(&stage, &stage.b);
	settle_down(&stage);
	assert_string_equal(
		stage.trace, "a:FENCE a:STATE b:FENCE b:STATE a:settle a:GO b:settle b:QP a:READY a:resume b:resume");
	both_idle_at(&stage, 2, 1);
}

static void nothing_is_said_before_the_fence(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	stage.trace[0] = '\0';
	stage.b.fence_waits = true;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	assert_string_equal(stage.trace, "a:FENCE a:STATE");
	feed(&stage, &stage.b, (struct recovery_event){.type = RECOVERY_EVENT_FENCED});
	settle_down(&stage);
	both_idle_at(&stage, 2, 0);
}

static void a_second_failure_in_the_middle_is_the_next_epoch(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	fail_path(&stage, &stage.a);
	while (stage.b.step.state != RECOVERY_BUILD && (deliver(&stage, &stage.b) || deliver(&stage, &stage.a)))
		;
	assert_int_equal(stage.b.step.state, RECOVERY_BUILD);
	fail_path(&stage, &stage.b); /* the path that was just built */
	stage.usable = 2;
	settle_down(&stage);
	both_idle_at(&stage, 3, 1);
}

static void messages_of_older_epochs_are_ignored(void **state)
{
	static const enum recovery_event_type types[] = {
		RECOVERY_EVENT_FENCE, RECOVERY_EVENT_STATE, RECOVERY_EVENT_GO, RECOVERY_EVENT_READY};
	struct stage stage;

	(void)state;
	stage_open(&stage);
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	for (unsigned i = 0; i < 4; i++) {
		struct recovery_event event = {.type = types[i], .epoch = 1, .usable = 3};

		assert_int_equal(recovery_step(&stage.a.step, &event, 0), 0);
		assert_int_equal(recovery_step(&stage.b.step, &event, 0), 0);
	}
	both_idle_at(&stage, 2, 0);
}

static void a_failback_is_quiet_on_both_sides_before_either_fences(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	stage.trace[0] = '\0';
	feed(&stage, &stage.b, (struct recovery_event){.type = RECOVERY_EVENT_RETURN});
	assert_string_equal(stage.trace, ""); /* only the picker asks */
	stage.a.fence_waits = stage.b.fence_waits = true;
	feed(&stage, &stage.a, (struct recovery_event){.type = RECOVERY_EVENT_RETURN});
	assert_int_equal(stage.a.step.state, RECOVERY_EXCHANGE);
	settle_down(&stage);
	assert_int_equal(stage.a.step.state, RECOVERY_FENCE);
	assert_int_equal(stage.b.step.state, RECOVERY_FENCE);
	feed(&stage, &stage.a, (struct recovery_event){.type = RECOVERY_EVENT_FENCED});
	settle_down(&stage); /* GO waits for b's fence */
	assert_int_equal(stage.b.step.state, RECOVERY_FENCE);
	feed(&stage, &stage.b, (struct recovery_event){.type = RECOVERY_EVENT_FENCED});
	settle_down(&stage);
	assert_string_equal(
		stage.trace, "a:FENCE a:STATE b:STATE a:settle a:GO b:settle b:QP a:READY a:resume b:resume");
	both_idle_at(&stage, 2, 0);
}

static void a_failover_overrules_a_failback_of_the_same_epoch(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	feed(&stage, &stage.a, (struct recovery_event){.type = RECOVERY_EVENT_RETURN});
	fail_path(&stage, &stage.b);
	stage.usable = 2;
	settle_down(&stage);
	assert_int_equal(stage.a.step.kind, RECOVERY_FAILOVER);
	both_idle_at(&stage, 2, 1);
}

static void fails_at(struct actor *actor, uint64_t at_ns)
{
	struct recovery_event tick = {.type = RECOVERY_EVENT_RAILS};

	assert_int_equal(recovery_step(&actor->step, &tick, at_ns - 1 * MS), 0);
	assert_int_equal(recovery_step(&actor->step, &tick, at_ns), RECOVERY_FAIL);
	assert_int_equal(recovery_step(&actor->step, &tick, at_ns + 1000 * MS), 0);
}

static void without_a_path_the_budget_ends_it(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	recovery_progress(&stage.a.step);
	stage.usable = 0;
	stage.now_ns = 5000 * MS;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	fails_at(&stage.a, 6000 * MS);
}

/* All that a failover had in flight may be judged to have executed; if the program posts nothing more, no wr completes
 * on the new path. When traffic returns after the longest pause of a rail, that is no outage of ten seconds. */
static void a_path_that_held_ends_an_outage_without_a_completion(void **state)
{
	struct recovery_event tick = {.type = RECOVERY_EVENT_RAILS};
	struct stage stage;

	(void)state;
	stage_open(&stage);
	recovery_progress(&stage.a.step);
	stage.usable = 2;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	both_idle_at(&stage, 2, 1);
	stage.usable = 3;
	stage.now_ns = 5000 * MS;
	stage.a.fence_waits = true;
	feed(&stage, &stage.a, (struct recovery_event){.type = RECOVERY_EVENT_RETURN});
	settle_down(&stage);
	assert_int_equal(stage.a.step.state, RECOVERY_FENCE);
	assert_int_equal(recovery_step(&stage.a.step, &tick, 5001 * MS), 0);
	feed(&stage, &stage.a, (struct recovery_event){.type = RECOVERY_EVENT_FENCED});
	settle_down(&stage);
	both_idle_at(&stage, 3, 0);
}

/* A path that is taken and fails at once is not the end of an outage. */
static void paths_that_do_not_hold_are_of_one_outage(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	recovery_progress(&stage.a.step);
	stage.now_ns = 5000 * MS;
	for (unsigned i = 0; i < 9; i++, stage.now_ns += 100 * MS) {
		stage.usable = 1u << i % 2;
		fail_path(&stage, &stage.a);
		settle_down(&stage);
		assert_int_equal(stage.a.step.state, RECOVERY_IDLE);
	}
	stage.usable = 0;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	fails_at(&stage.a, 6000 * MS);
}

/* Each wr waits until its retries are over, which takes longer than a quarter of the budget. */
static void nor_is_a_path_on_which_a_wr_only_waited(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	recovery_progress(&stage.a.step);
	stage.now_ns = 5000 * MS;
	for (unsigned i = 0; i < 4; i++, stage.now_ns += 250 * MS + RETRIES_NS - 1) {
		assert_int_equal(stage.a.step.state, RECOVERY_IDLE);
		fail_path(&stage, &stage.a);
		settle_down(&stage);
	}
	assert_int_equal(stage.a.step.state, RECOVERY_IDLE);
	fail_path(&stage, &stage.a); /* the budget is over */
	settle_down(&stage);
	assert_int_equal(stage.a.step.state, RECOVERY_FAILED);
}

/* A responder that never posts has no wr whose completion would end an outage. */
static void a_side_without_work_has_a_budget_for_every_outage(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	stage.idle = true;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	both_idle_at(&stage, 2, 0);
	stage.usable = 0;
	stage.now_ns = 5000 * MS;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	fails_at(&stage.b, 6000 * MS);
}

static void a_rail_that_comes_back_in_time_is_taken(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	stage.usable = 0;
	fail_path(&stage, &stage.a);
	settle_down(&stage);
	assert_int_equal(stage.a.step.state, RECOVERY_PATH);
	stage.usable = 1;
	feed(&stage, &stage.a, (struct recovery_event){.type = RECOVERY_EVENT_RAILS});
	settle_down(&stage);
	both_idle_at(&stage, 2, 0);
}

/* ---- request log, policy ---- */

static void the_log_owns_what_it_may_have_to_send_again(void **state)
{
	struct request_log log;
	char payload[8] = "before";
	struct ibv_sge sge = {.addr = (uintptr_t)payload, .length = 7};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_INLINE};
	struct request_log_wr *entry;

	(void)state;
	assert_int_equal(request_log_init(&log, 5, 2, 16), 0);
	entry = request_log_copy(&log, &wr);
	snprintf(payload, sizeof(payload), "%s", "after!");
	sge.length = 0;
	assert_string_equal((char *)(uintptr_t)entry->wr.sg_list[0].addr, "before");
	assert_int_equal(entry->wr.sg_list[0].length, 7);
	log.tail = 5;
	assert_true(request_log_full(&log));
	request_log_free(&log);
}

static void success_of_one_wr_is_success_of_all_before_it(void **state)
{
	const struct request_log_end end = {.first = IBV_WC_RETRY_EXC_ERR, .rest = IBV_WC_WR_FLUSH_ERR};
	const struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	for (log.tail = 0; log.tail < 6; log.tail++)
		request_log_copy(&log, &wr);
	log.next = log.tail;
	assert_int_equal(request_log_retire(&log, 3), 4);
	assert_int_equal(request_log_retire(&log, 3), 0);
	assert_false(request_log_at(&log, 4)->done);
	request_log_at(&log, 4)->qp_num = 7;
	request_log_fail(&log, &end);
	assert_int_equal(request_log_at(&log, 3)->status, IBV_WC_SUCCESS);
	assert_int_equal(request_log_at(&log, 4)->status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(request_log_at(&log, 5)->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(request_log_at(&log, 4)->outcome, HF_WC_UNKNOWN);
	assert_int_equal(request_log_at(&log, 5)->outcome, HF_WC_NOT_EXECUTED);
	request_log_free(&log);
}

static void a_receive_reports_what_the_latest_list_says(void **state)
{
	struct lengths_message first = {.more = 1, .count = 1, .lengths = {{5, 1000}}};
	struct lengths_message second = {.count = 1, .lengths = {{7, 3000}}};
	struct lengths_message other = {.count = 1, .lengths = {{8, 4000}}};
	struct imm_lengths lengths = {0};
	uint32_t bytes = 0;

	(void)state;
	assert_int_equal(imm_lengths_learn(&lengths, &first), 0);
	assert_int_equal(imm_lengths_learn(&lengths, &second), 0);
	assert_true(imm_lengths_of(&lengths, 5, &bytes));
	assert_int_equal(bytes, 1000);
	assert_true(imm_lengths_of(&lengths, 7, &bytes));
	assert_false(imm_lengths_of(&lengths, 6, &bytes));
	assert_int_equal(bytes, 3000);
	assert_int_equal(imm_lengths_learn(&lengths, &other), 0);
	assert_false(imm_lengths_of(&lengths, 7, &bytes));
	assert_true(imm_lengths_of(&lengths, 8, &bytes));
	imm_lengths_free(&lengths);
}

static void a_picker_with_receives_waits_where_the_other_sides_message_may_go_on_in_its_middle(void **state)
{
	struct hf_vqp picker = {.recovery = {.picks = true, .kind = RECOVERY_FAILOVER}}, other = picker;

	(void)state;
	other.recovery.picks = false;
	picker.resumes = other.evidence.resumes =
		true; /* of the picker's the other side hears before it has receives */
	assert_true(next_path_goes_at_once(&picker, PATH_BACKUP));
	assert_true(next_path_goes_at_once(&other, PATH_BACKUP));
	picker.evidence.resumes = other.resumes = true;
	assert_false(next_path_goes_at_once(&picker, PATH_BACKUP));
	assert_false(next_path_goes_at_once(&other, PATH_BACKUP));
}

/* ---- messages ---- */

static void all_kinds(struct message_kinds *kinds)
{
	*kinds = (struct message_kinds){0};
	peer_register(kinds);
	kinds_register(kinds);
}

static void fill(const struct fields *fields, uint8_t *object, bool most);

/* The least or the most that a field can hold. */
static void fill_field(const struct field *field, uint8_t *object, bool most)
{
	uint64_t value = most ? field->max : field->min;

	for (unsigned i = 0; i < field->elements; i++) {
		uint8_t *at = object + field->offset + (size_t)i * field->bytes;

		if (field->type == FIELD_INTEGERS)
			memcpy(at, &value, field->bytes); /* of a little-endian host */
		else if (field->type == FIELD_NAMES)
			memset(at, 'n', most ? field->bytes - 1u : 1u);
		else if (field->type == FIELD_RAW)
			memset(at, most ? 0xff : 0, field->bytes);
		else
			fill(field->of, at, most);
	}
}

static void fill(const struct fields *fields, uint8_t *object, bool most)
{
	for (unsigned i = 0; i < fields->count; i++)
		fill_field(&fields->fields[i], object, most);
}

static void check_kind(const struct message_kinds *kinds, const struct message_kind *kind, bool most)
{
	uint8_t at[CONTROL_MESSAGE_MAX], again[CONTROL_MESSAGE_MAX];
	static union message in, out;
	uint32_t bytes;

	memset(&in, 0, sizeof(in));
	fill(&kind->fields, (uint8_t *)&in, most);
	in.head = (struct message_head){.kind = kind, .to = 5, .from = 6, .epoch = 7};
	if (kind->number == MESSAGE_SLOTS && most)
		return; /* not all of its fields can be at their most */
	bytes = message_encode(&in.head, at);
	assert_true(message_decode(kinds, at, bytes, &out));
	assert_true(out.head.to == 5 && out.head.from == 6 && out.head.epoch == 7);
	assert_int_equal(message_encode(&out.head, again), bytes);
	assert_memory_equal(at, again, bytes);
	assert_false(message_decode(kinds, at, bytes - 1, &out));
	at[bytes] = 0;
	assert_false(message_decode(kinds, at, bytes + 1, &out));
}

static void every_kind_of_message_is_read_as_it_was_written(void **state)
{
	struct message_kinds kinds;
	unsigned count = 0;

	(void)state;
	all_kinds(&kinds);
	for (unsigned number = 0; number < MESSAGE_NUMBERS; number++) {
		if (kinds.by_number[number] == NULL)
			continue;
		check_kind(&kinds, kinds.by_number[number], false);
		check_kind(&kinds, kinds.by_number[number], true);
		count++;
	}
	assert_true(count >= 28);
}

/* Slots beyond the arena, a log whose size is no power of two. */
static void what_no_field_says_alone_is_checked_too(void **state)
{
	static union message out;
	struct message_kinds kinds;
	struct slots_message slots = {.first_slot = 4, .slots = 8, .lent_slots = 4};
	struct log_message log = {.entries = 64};
	uint8_t at[CONTROL_MESSAGE_MAX];
	uint32_t bytes;

	(void)state;
	all_kinds(&kinds);
	slots.head.kind = kinds.by_number[MESSAGE_SLOTS];
	bytes = message_encode(&slots.head, at);
	assert_true(message_decode(&kinds, at, bytes, &out));
	at[bytes - 1] = 5; /* lent_slots is the last byte */
	assert_false(message_decode(&kinds, at, bytes, &out));
	log.head.kind = kinds.by_number[MESSAGE_LOG];
	bytes = message_encode(&log.head, at);
	assert_true(message_decode(&kinds, at, bytes, &out));
	at[MESSAGE_HEAD_BYTES + 8] = 65; /* entries are behind the address */
	assert_false(message_decode(&kinds, at, bytes, &out));
}

static void a_kind_that_no_layer_registered_is_refused(void **state)
{
	static union message out;
	struct message_kinds kinds = {0};
	struct region_key_message ask = {.rkey = 1};
	uint8_t at[CONTROL_MESSAGE_MAX];
	uint32_t bytes;

	(void)state;
	kinds_register(&kinds);
	ask.head.kind = kinds.by_number[MESSAGE_REGION_ASK];
	bytes = message_encode(&ask.head, at);
	assert_true(message_decode(&kinds, at, bytes, &out));
	kinds.by_number[MESSAGE_REGION_ASK] = NULL;
	assert_false(message_decode(&kinds, at, bytes, &out));
}

static void several_messages_travel_as_one_until_it_is_full(void **state)
{
	static struct outbox box;
	static union message out;
	struct message_kinds kinds;
	struct region_key_message in = {0};
	const uint8_t *at = box.bytes;
	uint32_t count = 0;

	(void)state;
	all_kinds(&kinds);
	in.head.kind = kinds.by_number[MESSAGE_REGION_ASK];
	for (in.rkey = 1; outbox_add(&box, &in.head); in.rkey++)
		count++;
	assert_true(count > 50 && box.used <= CONTROL_MESSAGE_MAX);
	for (uint32_t i = 1; i <= count; i++) {
		assert_true(outbox_next(&kinds, &at, box.bytes + box.used, &out));
		assert_int_equal(((struct region_key_message *)(void *)&out)->rkey, i);
	}
	assert_ptr_equal(at, box.bytes + box.used);
	assert_false(outbox_next(&kinds, &at, box.bytes + box.used, &out));
	at = box.bytes;
	assert_false(outbox_next(&kinds, &at, box.bytes + 5, &out)); /* ends within a message */
}

static void a_region_in_no_mode_of_atomics_is_not_believed(void **state)
{
	static union message out;
	struct message_kinds kinds;
	struct region_message in = {.rkey = 1};
	uint8_t at[CONTROL_MESSAGE_MAX];
	uint32_t bytes;

	(void)state;
	all_kinds(&kinds);
	in.head.kind = kinds.by_number[MESSAGE_REGION];
	bytes = message_encode(&in.head, at);
	assert_true(message_decode(&kinds, at, bytes, &out));
	at[bytes - 1] = HF_ATOMIC_MODES; /* the mode is the last byte */
	assert_false(message_decode(&kinds, at, bytes, &out));
}

/* ---- configuration ---- */

static void refused(const char *text, const char *words)
{
	struct hf_node_config config;
	struct hf_error error = {0};

	assert_true(hf_node_config_parse(text, strlen(text), &config, &error) < 0);
	if (strstr(error.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void a_configuration_is_read_in_full(void **state)
{
	static const char text[] =
		"{ \"name\": \"a\", \"fabric\": \"f\", \"rails\": ["
		"{\"name\": \"r0\", \"kind\": \"soft\", \"address\": \"127.0.0.2\", \"control\": "
		"\"127.0.0.2:1\", \"mtu\": 2048},"
		"{\"name\": \"r1\", \"kind\": \"shm\", \"nic\": \"mlx5_0/2\"}], \"management\": [\"127.0.0.9:7\"], "
		"\"policy\": \"resend-cache\","
		"\"heartbeat_ms\": 10, \"heartbeat_misses\": 3, \"failback_ms\": 20, \"budget_ms\": "
		"30, \"timeout\": 12,"
		"\"retry_cnt\": 5 }";
	struct hf_node_config config;
	struct hf_error error = {0};

	(void)state;
	assert_int_equal(hf_node_config_parse(text, strlen(text), &config, &error), 0);
	assert_string_equal(config.rails[1].kind, "shm");
	assert_string_equal(config.rails[0].nic, "");
	assert_string_equal(config.rails[1].nic, "mlx5_0/2");
	assert_int_equal(config.rail_count, 2);
	assert_int_equal(config.rails[0].mtu, IBV_MTU_2048);
	assert_int_equal(hf_addr_port(&config.management[0]), 7);
	assert_int_equal(config.policy, HF_POLICY_RESEND_CACHE);
	assert_int_equal(config.heartbeat_ns, 10 * MS);
	assert_int_equal(config.heartbeat_misses, 3);
	assert_int_equal(config.budget_ns, 30 * MS);
	assert_int_equal(config.timeout, 12);
	assert_int_equal(config.retry_cnt, 5);
}

static void what_is_wrong_in_a_configuration_is_named_with_its_line(void **state)
{
	(void)state;
	refused("{\n\"name\": \"a\",\n}", "line 3");
	refused("{\"name\": \"a\", \"rails\": [{\"name\": \"r0\",\n\"kind\": \"sotf\"}]}",
		"line 2: rails[0].kind: expected a kind of device that holdfast devices lists: shm, soft or verbs");
	refused("[]", "expected an object");
	refused("{\"fabric\": \"f\"}", "line 1: the key \"name\" is missing");
	refused("{\n\"name\": \"a\",\n\"rale\": []}", "line 3: rale: unknown key");
	refused("{\"name\": \"A\"}", "name: expected a name");
	refused("{\n\"rails\": [\n{\"name\": \"r0\",\n\"kind\": \"soft\"},\n{\"name\": \"r1\", \"kind\": \"soft\",\n"
		"\"mtu\": 1500}]}",
		"line 6: rails[1].mtu: expected 256");
	refused("{\"rails\": [{\"nic\": \"mlx5_0/0\"}]}", "rails[0].nic: expected an RDMA NIC");
	refused("{\"rails\": [{\"nic\": \"/1\"}]}", "expected an RDMA NIC");
	refused("{\"rails\": [{\"nic\": \"mlx5_0/1/2\"}]}", "expected an RDMA NIC");
	refused("{\"rails\": [{\"nic\": \"../../etc\"}]}", "expected an RDMA NIC");
	refused("{\"rails\": [{\"nic\": 7}]}", "expected an RDMA NIC");
	refused("{\"budget_ms\": 0}", "budget_ms: expected a whole number from 1");
	refused("{\"timeout\": 32}", "from 1 to 31");
	refused("{\"policy\": \"varnish\"}", "expected \"none\"");
	refused("{\"management\": [\"here\"]}", "management[0]: expected an address");
	refused("{\"name\": \"a\", \"name\": \"b\"}", "duplicate");
}

static void a_missing_file_is_named(void **state)
{
	struct hf_node_config config;
	struct hf_error error = {0};

	(void)state;
	assert_true(hf_node_config_load(hf_env_host(), "/nonexistent/a.json", &config, &error) < 0);
	assert_non_null(strstr(error.text, "/nonexistent/a.json: No such file"));
}

/* ---- how a vqp that failed ends ---- */

static void a_vqp_that_fails_reports_once_it_is_fenced(void **state)
{
	struct ending ending = {0};

	(void)state;
	ending_begin(&ending, ENDING_OVER, true);
	assert_true(ending_goes_on(&ending));
	assert_int_equal(ending_step(&ending, ENDING_EVENT_CLOSED), 0);
	assert_int_equal(ending_step(&ending, ENDING_EVENT_LEASE), 0);
	assert_int_equal(ending.state, ENDING_FENCE);
	assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), ENDING_REPORT);
	assert_true(ending.tells);
	assert_false(ending_goes_on(&ending));
	assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), 0);
	ending_reset(&ending);
	assert_int_equal(ending.state, ENDING_NOT);
}

static void one_that_asks_reports_when_the_other_side_has_ended_or_its_lease(void **state)
{
	struct ending ending;

	(void)state;
	for (unsigned by_lease = 0; by_lease < 2; by_lease++) {
		ending = (struct ending){0};
		ending_begin(&ending, ENDING_ANSWER, true);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), ENDING_ASK);
		assert_false(ending.tells);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), 0);
		if (by_lease) {
			assert_int_equal(ending_step(&ending, ENDING_EVENT_LEASE), ENDING_REPORT);
			continue;
		}
		assert_int_equal(ending_step(&ending, ENDING_EVENT_CLOSED), 0);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), ENDING_REPORT);
	}
}

/* Before it was asked, or behind that. */
static void strays_are_waited_for_until_the_lease_is_over(void **state)
{
	struct ending ending;

	(void)state;
	for (unsigned asked = 0; asked < 2; asked++) {
		ending = (struct ending){0};
		ending_begin(&ending, ENDING_ANSWER, true);
		if (asked)
			assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), ENDING_ASK);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_STRAYS), 0);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_FENCED), 0);
		assert_int_equal(ending.state, ENDING_LEASE);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_CLOSED), 0);
		assert_int_equal(ending.state, ENDING_LEASE);
		assert_int_equal(ending_step(&ending, ENDING_EVENT_LEASE), ENDING_REPORT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_vqp_that_fails_reports_once_it_is_fenced),
		cmocka_unit_test(one_that_asks_reports_when_the_other_side_has_ended_or_its_lease),
		cmocka_unit_test(strays_are_waited_for_until_the_lease_is_over),
		cmocka_unit_test(a_rail_with_errors_is_paused_for_longer_each_time),
		cmocka_unit_test(a_pause_outlives_a_control_path_that_goes_and_comes),
		cmocka_unit_test(the_first_usable_rail_in_order_is_chosen),
		cmocka_unit_test(connecting_is_an_exchange),
		cmocka_unit_test(a_failure_seen_by_one_side_moves_both),
		cmocka_unit_test(a_failure_seen_by_both_at_once_is_one_exchange),
		cmocka_unit_test(nothing_is_said_before_the_fence),
		cmocka_unit_test(a_second_failure_in_the_middle_is_the_next_epoch),
		cmocka_unit_test(messages_of_older_epochs_are_ignored),
		cmocka_unit_test(a_failback_is_quiet_on_both_sides_before_either_fences),
		cmocka_unit_test(a_failover_overrules_a_failback_of_the_same_epoch),
		cmocka_unit_test(without_a_path_the_budget_ends_it),
		cmocka_unit_test(a_path_that_held_ends_an_outage_without_a_completion),
		cmocka_unit_test(paths_that_do_not_hold_are_of_one_outage),
		cmocka_unit_test(nor_is_a_path_on_which_a_wr_only_waited),
		cmocka_unit_test(a_side_without_work_has_a_budget_for_every_outage),
		cmocka_unit_test(a_rail_that_comes_back_in_time_is_taken),
		cmocka_unit_test(the_log_owns_what_it_may_have_to_send_again),
		cmocka_unit_test(success_of_one_wr_is_success_of_all_before_it),
		cmocka_unit_test(a_receive_reports_what_the_latest_list_says),
		cmocka_unit_test(a_picker_with_receives_waits_where_the_other_sides_message_may_go_on_in_its_middle),
		cmocka_unit_test(every_kind_of_message_is_read_as_it_was_written),
		cmocka_unit_test(what_no_field_says_alone_is_checked_too),
		cmocka_unit_test(a_kind_that_no_layer_registered_is_refused),
		cmocka_unit_test(several_messages_travel_as_one_until_it_is_full),
		cmocka_unit_test(a_region_in_no_mode_of_atomics_is_not_believed),
		cmocka_unit_test(a_configuration_is_read_in_full),
		cmocka_unit_test(what_is_wrong_in_a_configuration_is_named_with_its_line),
		cmocka_unit_test(a_missing_file_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
