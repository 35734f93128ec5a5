/* What becomes of a wr in flight, by its kind and by the evidence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "vqp/data/completion_log.h"
#include "vqp/recovery/verdict.h"
#include "vqp/data/wc_kind.h"

#define QP  7u
#define PSN 0xfffffeu /* wraps in the middle of a wr */
#define MTU 1024u

static const struct log_reading nothing_logged = {.doubt_end = UINT64_MAX};

/* Of nine packets, the last of them short. */
static struct request_log_wr a_wr(enum ibv_wr_opcode opcode)
{
	return (struct request_log_wr){.wr = {.opcode = opcode},
		.bytes = 8 * MTU + 100,
		.qp_num = QP,
		.first_psn = PSN,
		.psns = 9,
		.mtu_bytes = MTU};
}

static struct evidence executed(uint32_t packets)
{
	return (struct evidence){
		.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = (PSN + packets) & 0xffffff};
}

static enum verdict_kind judge(const struct request_log_wr *entry, struct evidence evidence, uint64_t *landed_out)
{
	struct verdict verdict = verdict_judge(HF_POLICY_VARUNA, entry, 0, &evidence, &nothing_logged);

	*landed_out = verdict.landed;
	return verdict.kind;
}

static struct verdict resend(const struct request_log_wr *entry, const struct evidence *evidence)
{
	return verdict_judge(HF_POLICY_RESEND, entry, 0, evidence, &nothing_logged);
}

static void resend_is_blind_except_for_messages_that_were_taken(void **state)
{
	struct request_log_wr write = a_wr(IBV_WR_RDMA_WRITE), taken = {.message = 3}, waiting = {.message = 4};
	struct evidence evidence = executed(9);

	(void)state;
	evidence.consumed = 3;
	assert_int_equal(resend(&write, &evidence).kind, VERDICT_REPLAY);
	assert_int_equal(resend(&write, &evidence).landed, 0);
	assert_int_equal(resend(&taken, &evidence).kind, VERDICT_EXECUTED);
	assert_int_equal(resend(&waiting, &evidence).kind, VERDICT_REPLAY);
}

static void a_write_resumes_at_the_first_packet_that_did_not_execute(void **state)
{
	struct request_log_wr write = a_wr(IBV_WR_RDMA_WRITE);
	uint64_t landed;

	(void)state;
	for (uint32_t packets = 0; packets < 9; packets++) {
		assert_int_equal(judge(&write, executed(packets), &landed), VERDICT_REPLAY);
		assert_int_equal(landed, packets * MTU);
	}
	assert_int_equal(judge(&write, executed(9), &landed), VERDICT_EXECUTED);
	assert_int_equal(judge(&write, executed(1000), &landed), VERDICT_EXECUTED);
	assert_int_equal(judge(&write, executed((uint32_t)-5), &landed), VERDICT_REPLAY);
	assert_int_equal(landed, 0);
}

static void without_evidence_a_write_is_unknown(void **state)
{
	struct request_log_wr write = a_wr(IBV_WR_RDMA_WRITE);
	struct evidence other = executed(9), none = executed(9), running = executed(3);
	uint64_t landed;

	(void)state;
	other.qp_num = QP + 1;
	none.has_psn = false;
	running.fenced = false;
	assert_int_equal(judge(&write, other, &landed), VERDICT_UNKNOWN);
	other.qp_num = QP;
	other.rail = 1;
	assert_int_equal(judge(&write, other, &landed), VERDICT_UNKNOWN);
	assert_int_equal(judge(&write, none, &landed), VERDICT_UNKNOWN);
	assert_int_equal(judge(&write, running, &landed), VERDICT_UNKNOWN);
	running.executed_psn = (PSN + 9) & 0xffffff;
	assert_int_equal(judge(&write, running, &landed), VERDICT_EXECUTED);
}

static void a_message_executed_when_its_receive_completed(void **state)
{
	struct request_log_wr send = a_wr(IBV_WR_SEND), imm = a_wr(IBV_WR_RDMA_WRITE_WITH_IMM);
	struct evidence evidence = executed(9);
	uint64_t landed;

	(void)state;
	send.message = imm.message = 5;
	evidence.consumed = 4;
	assert_int_equal(judge(&send, evidence, &landed), VERDICT_REPLAY);
	assert_int_equal(landed, 0); /* all of it, into the same receive */
	assert_int_equal(judge(&imm, evidence, &landed), VERDICT_REPLAY);
	assert_int_equal(landed, imm.bytes); /* only the immediate */
	evidence.consumed = 5;
	assert_int_equal(judge(&send, evidence, &landed), VERDICT_EXECUTED);
	assert_int_equal(judge(&imm, evidence, &landed), VERDICT_EXECUTED);
	evidence = executed(2);
	assert_int_equal(judge(&imm, evidence, &landed), VERDICT_REPLAY);
	assert_int_equal(landed, 2 * MTU);
}

static void reads_are_issued_again(void **state)
{
	struct request_log_wr read = a_wr(IBV_WR_RDMA_READ);
	struct evidence none = {0};
	uint64_t landed;

	(void)state;
	assert_int_equal(judge(&read, executed(9), &landed), VERDICT_REPLAY);
	assert_int_equal(judge(&read, none, &landed), VERDICT_REPLAY);
	assert_int_equal(landed, 0);
}

static void an_atomic_completes_with_the_value_that_the_device_found(void **state)
{
	struct request_log_wr add = a_wr(IBV_WR_ATOMIC_FETCH_AND_ADD);
	struct evidence evidence = executed(1);
	struct verdict verdict;

	(void)state;
	add.psns = 1;
	evidence.atomics[0] = (struct hf_atomic_result){.psn = PSN + 1, .original = 5};
	evidence.atomics[1] = (struct hf_atomic_result){.psn = PSN, .original = 77};
	evidence.atomic_count = 2;
	verdict = verdict_judge(HF_POLICY_VARUNA, &add, 0, &evidence, &nothing_logged);
	assert_int_equal(verdict.kind, VERDICT_EXECUTED);
	assert_int_equal(verdict.original, 77);
	evidence.qp_num = QP + 1;
	assert_int_equal(judge(&add, evidence, &verdict.landed), VERDICT_UNKNOWN);
}

static void an_atomic_whose_value_is_lost_is_unknown(void **state)
{
	struct request_log_wr add = a_wr(IBV_WR_ATOMIC_FETCH_AND_ADD);
	uint64_t landed;

	(void)state;
	add.psns = 1;
	assert_int_equal(judge(&add, executed(0), &landed), VERDICT_REPLAY);
	assert_int_equal(judge(&add, executed(1), &landed), VERDICT_UNKNOWN);
	add.idempotent = true;
	assert_int_equal(judge(&add, executed(1), &landed), VERDICT_REPLAY);
	add.idempotent = false;
	add.plain = true; /* as its region is */
	assert_int_equal(judge(&add, executed(1), &landed), VERDICT_REPLAY);
}

/* A requester that was stopped in its middle: nobody saw whether it took effect. */
static void only_the_atomic_in_doubt_is_unknown(void **state)
{
	struct request_log_wr add = a_wr(IBV_WR_ATOMIC_FETCH_AND_ADD), behind;
	struct evidence evidence = executed(0);
	uint64_t landed;

	(void)state;
	add.psns = 1;
	behind = add;
	behind.first_psn = PSN + 1;
	evidence.in_doubt = true;
	assert_int_equal(judge(&add, evidence, &landed), VERDICT_UNKNOWN);
	assert_int_equal(judge(&behind, evidence, &landed), VERDICT_REPLAY);
}

static void what_is_declared_idempotent_is_never_unknown(void **state)
{
	struct request_log_wr write = a_wr(IBV_WR_RDMA_WRITE);
	struct evidence evidence = {.fenced = true};
	uint64_t landed;

	(void)state;
	write.idempotent = true;
	assert_int_equal(judge(&write, evidence, &landed), VERDICT_REPLAY);
	assert_int_equal(judge(&write, executed(9), &landed), VERDICT_EXECUTED);
}

/* ---- a whole log ---- */

static struct request_log_wr *add_to(struct request_log *log, enum ibv_wr_opcode opcode, uint32_t psn)
{
	struct request_log_wr *entry = request_log_at(log, log->tail++);

	*entry = a_wr(opcode);
	entry->bytes = 100;
	entry->first_psn = psn;
	entry->psns = 1;
	log->next = log->tail;
	return entry;
}

static bool is_lost(struct request_log *log, uint64_t messages, const struct evidence *evidence)
{
	struct log_reading reading = verdict_read_log(log, evidence);

	return verdict_lost(log, messages, evidence, &reading);
}

static uint32_t enter(struct request_log *log, const struct evidence *evidence)
{
	struct log_reading reading = verdict_read_log(log, evidence);

	return verdict_enter(HF_POLICY_VARUNA, log, evidence, &reading);
}

/* The NIC died between its acknowledgement and its receive completion. What was never acknowledged is sent again. */
static void an_acknowledged_message_that_no_receive_took_is_lost(void **state)
{
	struct evidence evidence = {.qp_num = QP, .fenced = true, .consumed = 1};
	struct request_log_wr *first, *second;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	first = add_to(&log, IBV_WR_SEND, 10);
	first->message = 1;
	second = add_to(&log, IBV_WR_SEND, 11);
	second->message = 2;
	first->done = true;
	assert_false(is_lost(&log, 2, &evidence));
	second->done = true;
	assert_true(is_lost(&log, 2, &evidence));
	evidence.consumed = 2;
	assert_false(is_lost(&log, 2, &evidence));
	request_log_free(&log);
}

/* Its entry is a WRITE of its own, which may be lost with the path. */
static void an_atomic_that_was_answered_may_lack_its_entry(void **state)
{
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_log = true, .log_entry = 8, .log_number = 1};
	struct request_log_wr *write, *add, *read;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	write = add_to(&log, IBV_WR_RDMA_WRITE, 10);
	write->log_entry = 8;
	write->log_number = 1;
	add = add_to(&log, IBV_WR_ATOMIC_FETCH_AND_ADD, 12);
	add->log_entry = 9;
	add->log_number = 2;
	assert_int_equal(request_log_retire(&log, 1), 2);
	evidence.ended_there = true; /* the device died, perhaps with the atomic */
	assert_true(is_lost(&log, 0, &evidence));
	evidence.ended_there = false;
	assert_false(is_lost(&log, 0, &evidence));

	/* On the next path what is behind it completes: the entry that never came is not missed there. */
	read = add_to(&log, IBV_WR_RDMA_READ, 14);
	assert_int_equal(request_log_retire(&log, 2), 1);
	assert_true(read->done);
	assert_false(is_lost(&log, 0, &evidence));
	request_log_free(&log);
}

static void what_completes_behind_an_atomic_shows_its_entry(void **state)
{
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_log = true};
	struct request_log_wr *add;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	add = add_to(&log, IBV_WR_ATOMIC_FETCH_AND_ADD, 12);
	add->log_entry = 9;
	add_to(&log, IBV_WR_RDMA_READ, 14);
	assert_int_equal(request_log_retire(&log, 1), 2);
	assert_true(is_lost(&log, 0, &evidence));
	evidence.log_entry = 9;
	assert_false(is_lost(&log, 0, &evidence));
	request_log_free(&log);
}

/* Its NAK was lost. A READ before it is issued again, and it fails when that is done. */
static void what_the_responder_refused_is_not_sent_again(void **state)
{
	struct request_log_wr *read, *write, *behind;
	struct evidence evidence = {.qp_num = QP,
		.fenced = true,
		.has_psn = true,
		.executed_psn = 13,
		.refusal = {.psn = 13, .status = IBV_WC_REM_ACCESS_ERR}};
	struct request_log_end end = {.first = IBV_WC_REM_ACCESS_ERR, .rest = IBV_WC_WR_FLUSH_ERR, .refused = true};
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	read = add_to(&log, IBV_WR_RDMA_READ, 10);
	write = add_to(&log, IBV_WR_RDMA_WRITE, 11);
	write->bytes = 5 * MTU;
	write->psns = 5;
	behind = add_to(&log, IBV_WR_RDMA_WRITE, 16);
	assert_int_equal(enter(&log, &evidence), 0);
	assert_int_equal(read->refused, IBV_WC_SUCCESS);
	assert_int_equal(behind->refused, IBV_WC_SUCCESS);
	assert_int_equal(write->refused, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(request_log_refused(&log), IBV_WC_SUCCESS);
	assert_int_equal(request_log_retire(&log, 0), 1);
	assert_int_equal(request_log_refused(&log), IBV_WC_REM_ACCESS_ERR);
	request_log_fail(&log, &end);
	assert_int_equal(write->status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(write->outcome, HF_WC_UNKNOWN); /* two of its packets executed */
	assert_int_equal(behind->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(behind->outcome, HF_WC_NOT_EXECUTED);
	request_log_free(&log);
}

/* The failure that comes before anything was replayed has evidence of another qp, and must not judge again. */
static void a_second_failure_continues_from_the_verdicts(void **state)
{
	struct request_log_wr *write;
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 10 + 3};
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	write = add_to(&log, IBV_WR_RDMA_WRITE, 10);
	write->bytes = 5 * MTU;
	write->psns = 5;
	assert_int_equal(enter(&log, &evidence), 0);
	assert_int_equal(write->landed, 3 * MTU);
	evidence.executed_psn = 10 + 5;
	assert_int_equal(enter(&log, &evidence), 0);
	assert_false(write->done);
	assert_int_equal(write->landed, 3 * MTU);

	write->qp_num = 8; /* posted again: two packets, one of which executes before the next failure */
	write->first_psn = 500;
	write->psns = 2;
	evidence = (struct evidence){.qp_num = 8, .fenced = true, .has_psn = true, .executed_psn = 501};
	assert_int_equal(enter(&log, &evidence), 0);
	assert_int_equal(write->landed, 4 * MTU);
	request_log_free(&log);
}

/* The receiver was told of the message, and may use the memory for something else by now. */
static void what_is_before_a_message_that_a_receive_took_executed(void **state)
{
	struct request_log_wr *idempotent, *write, *add, *send, *behind;
	struct evidence evidence = {.fenced = true, .consumed = 1};
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	idempotent = add_to(&log, IBV_WR_RDMA_WRITE, 10);
	idempotent->idempotent = true;
	write = add_to(&log, IBV_WR_RDMA_WRITE, 11);
	add = add_to(&log, IBV_WR_ATOMIC_FETCH_AND_ADD, 12);
	send = add_to(&log, IBV_WR_SEND, 13);
	send->message = 1;
	behind = add_to(&log, IBV_WR_RDMA_WRITE, 14);
	behind->idempotent = true;
	assert_int_equal(enter(&log, &evidence), 1);
	assert_true(idempotent->done);
	assert_int_equal(idempotent->status, IBV_WC_SUCCESS);
	assert_int_equal(write->status, IBV_WC_SUCCESS);
	assert_int_equal(add->outcome, HF_WC_UNKNOWN); /* its value is lost */
	assert_int_equal(send->status, IBV_WC_SUCCESS);
	assert_false(behind->done);
	request_log_free(&log);
}

/* A READ, and a WRITE behind a fence. */
static void open_fenced(struct request_log *log, struct request_log_wr **read_out, struct request_log_wr **write_out)
{
	assert_int_equal(request_log_init(log, 8, 1, 0), 0);
	*read_out = add_to(log, IBV_WR_RDMA_READ, 10);
	*write_out = add_to(log, IBV_WR_RDMA_WRITE, 11);
	(*write_out)->wr.send_flags = IBV_SEND_FENCE;
}

/* X is read, then written behind a fence: to read again after the write would find the new value. */
static void a_read_before_an_executed_fence_is_not_issued_again(void **state)
{
	struct request_log_wr *before, *write, *behind;
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 12};
	struct request_log log;

	(void)state;
	open_fenced(&log, &before, &write);
	behind = add_to(&log, IBV_WR_RDMA_READ, 12);
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(before->done);
	assert_true(write->done);
	assert_false(behind->done);
	request_log_free(&log);
}

/* The device sent the fenced wr because it took the READ to be over, and may have been wrong. */
static void a_read_before_an_executed_fence_is_unknown_where_its_data_may_be_missing(void **state)
{
	struct request_log_wr *read, *write;
	struct evidence evidence = {
		.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 12, .answers_unsure = true};
	struct request_log log;

	(void)state;
	open_fenced(&log, &read, &write);
	assert_int_equal(enter(&log, &evidence), 1);
	assert_int_equal(read->outcome, HF_WC_UNKNOWN);
	assert_int_equal(write->status, IBV_WC_SUCCESS);
	request_log_free(&log);
}

/* It was sent again and found its own value there, so it was the first one that exchanged (HF_ATOMIC_PLAIN). */
static void a_compare_and_swap_before_an_executed_fence_has_the_value_of_its_first_time(void **state)
{
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 12};
	struct request_log_wr *swap, *write;
	uint64_t found = 2;
	struct ibv_sge sge = {.addr = (uintptr_t)&found, .length = sizeof(found)};
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	swap = add_to(&log, IBV_WR_ATOMIC_CMP_AND_SWP, 10);
	swap->wr.sg_list = &sge;
	swap->wr.num_sge = 1;
	swap->wr.wr.atomic.compare_add = 1;
	swap->wr.wr.atomic.swap = 2;
	swap->compares = true;
	write = add_to(&log, IBV_WR_RDMA_WRITE, 11);
	write->wr.send_flags = IBV_SEND_FENCE;
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(swap->done);
	assert_int_equal(swap->status, IBV_WC_SUCCESS);
	assert_int_equal(found, 1);
	request_log_free(&log);
}

static void a_read_before_a_fence_that_did_not_execute_is_issued_again(void **state)
{
	struct request_log_wr *before, *write;
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 11};
	struct request_log log;

	(void)state;
	open_fenced(&log, &before, &write);
	assert_int_equal(enter(&log, &evidence), 0);
	assert_false(before->done);
	assert_false(write->done);
	request_log_free(&log);
}

static void the_value_of_an_atomic_goes_where_the_wr_wants_it(void **state)
{
	uint8_t memory[16] = {0};
	struct ibv_sge sges[2] = {
		{.addr = (uintptr_t)memory, .length = 3}, {.addr = (uintptr_t)memory + 8, .length = 5}};
	struct evidence evidence = {
		.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 11, .atomic_count = 1};
	struct request_log_wr *add;
	struct request_log log;
	uint64_t value = 0x1122334455667788, got;

	(void)state;
	evidence.atomics[0] = (struct hf_atomic_result){.psn = 10, .original = value};
	assert_int_equal(request_log_init(&log, 8, 2, 0), 0);
	add = add_to(&log, IBV_WR_ATOMIC_CMP_AND_SWP, 10);
	add->wr.sg_list = sges;
	add->wr.num_sge = 2;
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(add->done);
	memcpy(&got, memory, 3);
	memcpy((uint8_t *)&got + 3, memory + 8, 5);
	assert_int_equal(got, value);
	request_log_free(&log);
}

static void what_is_unknown_is_done_and_told(void **state)
{
	struct request_log_wr *first, *second;
	struct evidence evidence = {.qp_num = QP, .fenced = true, .has_psn = true, .executed_psn = 11};
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	first = add_to(&log, IBV_WR_ATOMIC_FETCH_AND_ADD, 10);
	second = add_to(&log, IBV_WR_ATOMIC_FETCH_AND_ADD, 11);
	assert_int_equal(enter(&log, &evidence), 1);
	assert_true(first->done);
	assert_int_not_equal(first->status, IBV_WC_SUCCESS);
	assert_int_equal(first->outcome, HF_WC_UNKNOWN);
	assert_false(second->done);
	request_log_free(&log);
}

/* Nothing says whether it executed before, and no path comes in time. What the next one says is of the next one. */
static void what_is_sent_again_in_doubt_is_unknown_when_it_fails(void **state)
{
	struct request_log_end ends[] = {{.first = IBV_WC_RETRY_EXC_ERR, .rest = IBV_WC_WR_FLUSH_ERR},
		{.first = IBV_WC_REM_ACCESS_ERR, .rest = IBV_WC_WR_FLUSH_ERR, .refused = true}};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct evidence none = {.fenced = true}, not_executed = executed(0);
		struct request_log_wr *doubted, *behind;
		struct request_log log;

		assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
		doubted = add_to(&log, i == 2 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_WRITE, PSN);
		doubted->idempotent = i != 2;
		doubted->plain = i == 2; /* as its region is */
		assert_int_equal(enter(&log, &none), 0);
		behind = add_to(&log, IBV_WR_RDMA_WRITE, PSN + 1);
		behind->qp_num = 0;
		assert_false(doubted->done);
		if (i == 1) {
			doubted->qp_num = QP;
			assert_int_equal(enter(&log, &not_executed), 0);
			assert_false(doubted->done);
		}
		assert_int_equal(doubted->qp_num, 0);
		assert_int_equal(request_log_outcome(doubted), HF_WC_UNKNOWN);
		request_log_fail(&log, &ends[i == 3]);
		assert_int_equal(doubted->outcome, HF_WC_UNKNOWN);
		assert_int_equal(behind->outcome, HF_WC_NOT_EXECUTED);
		request_log_free(&log);
	}
}

/* ---- what a status says ---- */

static void failures_of_the_path_and_of_the_program_are_kept_apart(void **state)
{
	const enum ibv_wc_status program[] = {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_LOC_QP_OP_ERR};
	const enum ibv_wc_status path[] = {IBV_WC_RETRY_EXC_ERR, IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_GENERAL_ERR,
		IBV_WC_FATAL_ERR, IBV_WC_BAD_RESP_ERR};

	(void)state;
	for (unsigned i = 0; i < sizeof(program) / sizeof(program[0]); i++)
		assert_int_equal(wc_kind_of(program[i], true), WC_PROGRAM);
	for (unsigned i = 0; i < sizeof(path) / sizeof(path[0]); i++)
		assert_int_equal(wc_kind_of(path[i], true), WC_PATH);
	assert_int_equal(wc_kind_of(IBV_WC_LOC_QP_OP_ERR, false), WC_PATH);
	assert_int_equal(wc_kind_of(IBV_WC_WR_FLUSH_ERR, true), WC_FLUSH);
	assert_int_equal(wc_kind_of(IBV_WC_SUCCESS, false), WC_OK);
}

/* ---- by the completion log ---- */

#define ENTRIES 4u

static struct request_log_wr *log_to(struct request_log *log, struct log_writer *writer, enum ibv_wr_opcode opcode)
{
	struct request_log_wr *entry = add_to(log, opcode, 10);

	entry->log_number = completion_log_take(writer, &entry->wr, &entry->log_entry);
	return entry;
}

static struct evidence newest(const struct request_log_wr *entry)
{
	return (struct evidence){.qp_num = QP,
		.fenced = true,
		.has_log = true,
		.log_number = entry == NULL ? 0 : entry->log_number,
		.log_entry = entry == NULL ? 0 : entry->log_entry};
}

static void the_first_wr_without_an_entry_is_unknown_and_later_ones_did_not_execute(void **state)
{
	struct log_writer writer = {.entries = ENTRIES};
	struct request_log_wr *first, *read, *lost, *idempotent, *behind;
	struct evidence evidence;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	first = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	read = add_to(&log, IBV_WR_RDMA_READ, 10);
	idempotent = add_to(&log, IBV_WR_RDMA_WRITE, 10);
	idempotent->idempotent = true;
	lost = log_to(&log, &writer, IBV_WR_ATOMIC_FETCH_AND_ADD);
	behind = log_to(&log, &writer, IBV_WR_ATOMIC_FETCH_AND_ADD);
	evidence = newest(first);
	assert_int_equal(enter(&log, &evidence), 1);
	assert_int_equal(first->status, IBV_WC_SUCCESS);
	assert_true(first->done);
	assert_false(read->done);
	assert_false(idempotent->done);
	assert_int_equal(lost->outcome, HF_WC_UNKNOWN);
	assert_false(behind->done);
	request_log_free(&log);
}

/* A footer executes with its wr or not at all, so nothing is in doubt, but for a wr of which some packets executed. */
static void with_footers_nothing_is_unknown_but_a_wr_of_several_packets(void **state)
{
	struct log_writer writer = {.entries = ENTRIES};
	struct request_log_wr *first, *lost, *longer;
	struct evidence evidence;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	first = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	lost = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	first->footed = lost->footed = true;
	evidence = newest(first);
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(first->done);
	assert_false(lost->done);
	longer = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	longer->footed = true;
	longer->psns = 2;
	assert_int_equal(enter(&log, &evidence), 1);
	assert_int_equal(longer->outcome, HF_WC_UNKNOWN);
	request_log_free(&log);
}

static void its_missing_footer_says_nothing(enum ibv_wr_opcode opcode, const struct evidence *evidence)
{
	struct log_writer writer = {.entries = ENTRIES};
	struct request_log_wr *doubtful, *behind;
	struct request_log log;

	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	doubtful = log_to(&log, &writer, opcode);
	behind = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	doubtful->footed = behind->footed = true;
	assert_int_equal(enter(&log, evidence), 1);
	assert_int_equal(doubtful->outcome, HF_WC_UNKNOWN);
	assert_false(behind->done);
	request_log_free(&log);
}

/* A NIC that died may have had the bytes of a wr in memory, and its footer still under way. */
static void a_footer_that_is_missing_says_nothing_when_the_nic_died(void **state)
{
	struct evidence evidence = newest(NULL);

	(void)state;
	evidence.ended_there = true;
	its_missing_footer_says_nothing(IBV_WR_RDMA_WRITE, &evidence);
}

/* The process that did the responder's work was stopped, maybe between an atomic and its footer. */
static void a_footer_that_is_missing_says_nothing_where_the_device_is_in_doubt(void **state)
{
	struct evidence evidence = newest(NULL);

	(void)state;
	evidence.in_doubt = true;
	its_missing_footer_says_nothing(IBV_WR_ATOMIC_FETCH_AND_ADD, &evidence);
}

static void an_entry_says_that_all_before_it_executed(void **state)
{
	struct log_writer writer = {.entries = ENTRIES};
	struct request_log_wr *first, *idempotent, *last;
	struct evidence evidence;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	first = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	idempotent = add_to(&log, IBV_WR_RDMA_WRITE, 10);
	idempotent->idempotent = true;
	last = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	evidence = newest(last);
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(first->done);
	assert_true(idempotent->done);
	assert_true(last->done);
	request_log_free(&log);
}

/* Its entry in the completion log is lost, and the WRITE before it has none: sent again, that would overtake it. */
static void what_is_before_an_atomic_that_executed_executed(void **state)
{
	struct log_writer writer = {.entries = ENTRIES};
	struct request_log_wr *idempotent, *add, *behind;
	struct evidence evidence = newest(NULL);
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	idempotent = add_to(&log, IBV_WR_RDMA_WRITE, 10);
	idempotent->idempotent = true;
	add = log_to(&log, &writer, IBV_WR_ATOMIC_FETCH_AND_ADD);
	add->first_psn = 12;
	behind = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	evidence.atomics[evidence.atomic_count++] = (struct hf_atomic_result){.psn = 12, .original = 7};
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(idempotent->done);
	assert_true(add->done);
	assert_int_equal(add->status, IBV_WC_SUCCESS);
	assert_false(behind->done);
	request_log_free(&log);
}

/* Every bit of an entry counts: with fewer bits of stamp an old entry is taken for a new one, and the wr vanishes. */
static void an_entry_of_an_earlier_turn_says_nothing(void **state)
{
	struct request_log_wr *write;
	struct evidence evidence;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 1, 1, 0), 0);
	for (unsigned bit = 0; bit < LOG_STAMP_BITS; bit++) {
		struct log_writer writer = {.entries = 1}, later = {.entries = 1, .turn = 1ull << bit};

		log.head = log.next = log.tail = 0;
		write = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
		evidence = newest(write);
		write->log_number = completion_log_take(&later, &write->wr, &write->log_entry);
		assert_int_equal(verdict_read_log(&log, &evidence).executed_end, 0);
		evidence = newest(write);
		assert_int_equal(verdict_read_log(&log, &evidence).executed_end, 1);
	}
	request_log_free(&log);
}

static void the_psn_decides_where_the_log_cannot(void **state)
{
	struct log_writer writer = {.entries = ENTRIES};
	struct request_log_wr *first, *second;
	struct evidence evidence;
	struct request_log log;

	(void)state;
	assert_int_equal(request_log_init(&log, 8, 1, 0), 0);
	first = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	second = log_to(&log, &writer, IBV_WR_RDMA_WRITE);
	second->first_psn = 12;
	evidence = newest(NULL); /* the first executed, and its log write did not */
	evidence.has_psn = true;
	evidence.executed_psn = 11;
	assert_int_equal(enter(&log, &evidence), 0);
	assert_true(first->done);
	assert_false(second->done);
	request_log_free(&log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resend_is_blind_except_for_messages_that_were_taken),
		cmocka_unit_test(a_write_resumes_at_the_first_packet_that_did_not_execute),
		cmocka_unit_test(without_evidence_a_write_is_unknown),
		cmocka_unit_test(a_message_executed_when_its_receive_completed),
		cmocka_unit_test(reads_are_issued_again),
		cmocka_unit_test(an_atomic_completes_with_the_value_that_the_device_found),
		cmocka_unit_test(an_atomic_whose_value_is_lost_is_unknown),
		cmocka_unit_test(only_the_atomic_in_doubt_is_unknown),
		cmocka_unit_test(what_is_declared_idempotent_is_never_unknown),
		cmocka_unit_test(a_footer_that_is_missing_says_nothing_when_the_nic_died),
		cmocka_unit_test(a_footer_that_is_missing_says_nothing_where_the_device_is_in_doubt),
		cmocka_unit_test(an_atomic_that_was_answered_may_lack_its_entry),
		cmocka_unit_test(what_completes_behind_an_atomic_shows_its_entry),
		cmocka_unit_test(what_the_responder_refused_is_not_sent_again),
		cmocka_unit_test(an_acknowledged_message_that_no_receive_took_is_lost),
		cmocka_unit_test(a_second_failure_continues_from_the_verdicts),
		cmocka_unit_test(a_read_before_an_executed_fence_is_not_issued_again),
		cmocka_unit_test(a_read_before_an_executed_fence_is_unknown_where_its_data_may_be_missing),
		cmocka_unit_test(a_compare_and_swap_before_an_executed_fence_has_the_value_of_its_first_time),
		cmocka_unit_test(a_read_before_a_fence_that_did_not_execute_is_issued_again),
		cmocka_unit_test(the_value_of_an_atomic_goes_where_the_wr_wants_it),
		cmocka_unit_test(what_is_before_a_message_that_a_receive_took_executed),
		cmocka_unit_test(what_is_unknown_is_done_and_told),
		cmocka_unit_test(what_is_sent_again_in_doubt_is_unknown_when_it_fails),
		cmocka_unit_test(failures_of_the_path_and_of_the_program_are_kept_apart),
		cmocka_unit_test(the_first_wr_without_an_entry_is_unknown_and_later_ones_did_not_execute),
		cmocka_unit_test(with_footers_nothing_is_unknown_but_a_wr_of_several_packets),
		cmocka_unit_test(an_entry_says_that_all_before_it_executed),
		cmocka_unit_test(what_is_before_an_atomic_that_executed_executed),
		cmocka_unit_test(an_entry_of_an_earlier_turn_says_nothing),
		cmocka_unit_test(the_psn_decides_where_the_log_cannot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
