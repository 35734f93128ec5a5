/* Answers of READs and atomics, on a NIC whose success does not say that they arrived (answers.h). */
#include "stand.h"

#include <errno.h>
#include <string.h>

#define PLACES 8u
#define BYTES  256u

static struct bed bed;
static struct hf_mr *mr;
static uint8_t memory[PLACES * BYTES], original[sizeof(memory)];

static void open_bed(void)
{
	bed = connected(false);
	for (unsigned i = 0; i < sizeof(memory); i++)
		original[i] = memory[i] = (uint8_t)(i * 7 + 1);
	assert_int_equal(
		hf_mr_reg(bed.pd, memory, sizeof(memory), (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE, &mr, NULL), 0);
}

static void close_bed(void)
{
	assert_int_equal(hf_mr_dereg(mr), 0);
	disconnect(&bed);
}

static uint8_t *place(unsigned i)
{
	return memory + (size_t)i * BYTES;
}

static bool is_untouched(unsigned i)
{
	return memcmp(place(i), original + (size_t)i * BYTES, BYTES) == 0;
}

static struct ibv_send_wr op_into(struct ibv_sge *sge, unsigned i, enum ibv_wr_opcode opcode, uint32_t bytes, int flags)
{
	*sge = (struct ibv_sge){.addr = (uintptr_t)place(i), .length = bytes, .lkey = mr->lkey};
	return (struct ibv_send_wr){
		.wr_id = i, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = (unsigned)flags};
}

static int post_op(unsigned i, enum ibv_wr_opcode opcode, uint32_t bytes, int flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = op_into(&sge, i, opcode, bytes, flags), *bad;

	return hf_qp_post_send(bed.qp, &wr, &bad);
}

static void completes(uint64_t wr_id, enum ibv_wc_status status)
{
	fake->wcs[fake->wc_count++] =
		(struct ibv_wc){.wr_id = wr_id, .status = status, .opcode = IBV_WC_RDMA_READ, .qp_num = bed.qp->qp_num};
}

static enum ibv_wc_status polled(uint64_t wr_id)
{
	struct ibv_wc wc;

	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, wr_id);
	return wc.status;
}

static bool is_in_err(void)
{
	return fake->modified > 0 && fake->attr[fake->modified - 1].qp_state == IBV_QPS_ERR;
}

static void what_was_answered_completes(void **state)
{
	(void)state;
	open_bed();
	assert_int_equal(post_op(0, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_op(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_op(2, IBV_WR_RDMA_READ, 0, IBV_SEND_SIGNALED), 0);
	memset(place(0), 9, BYTES);
	memset(place(1), 9, 8);
	for (unsigned i = 0; i < 3; i++)
		completes(i, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(polled(i), IBV_WC_SUCCESS);
	assert_false(is_in_err());
	close_bed();
}

/* And nothing behind it, of which the program would hear otherwise before it hears of the answer. */
static void what_was_not_answered_fails_with_its_qp(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};

	(void)state;
	for (unsigned i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		open_bed();
		assert_int_equal(post_op(0, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
		assert_int_equal(post_op(1, opcodes[i], 8, IBV_SEND_SIGNALED), 0);
		assert_int_equal(post_op(2, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
		assert_false(is_untouched(1));
		for (unsigned k = 0; k < 3; k++)
			completes(k, IBV_WC_SUCCESS);
		assert_int_equal(polled(0), IBV_WC_SUCCESS);
		assert_int_equal(polled(1), IBV_WC_RETRY_EXC_ERR);
		assert_true(is_in_err());
		assert_int_equal(polled(2), IBV_WC_WR_FLUSH_ERR);
		assert_true(is_untouched(1));
		close_bed();
		stand_set_up(NULL);
	}
}

/* Its answer is due when the next signaled wr has completed, and not before. */
static void of_what_is_not_signaled_the_next_that_is_tells(void **state)
{
	(void)state;
	open_bed();
	assert_int_equal(post_op(0, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_op(1, IBV_WR_RDMA_READ, BYTES, 0), 0);
	assert_int_equal(post_op(2, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
	completes(0, IBV_WC_SUCCESS);
	assert_int_equal(polled(0), IBV_WC_SUCCESS);
	completes(2, IBV_WC_SUCCESS);
	assert_int_equal(polled(2), IBV_WC_RETRY_EXC_ERR);
	close_bed();
}

static void what_fails_leaves_its_place_as_it_was(void **state)
{
	(void)state;
	open_bed();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(post_op(i, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED), 0);
	memset(place(1), 9, BYTES); /* it came, but the NIC did not get to say so */
	for (unsigned i = 0; i < 3; i++)
		completes(i, i == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(polled(0), IBV_WC_RETRY_EXC_ERR);
	assert_true(is_untouched(0));
	assert_int_equal(*place(1), 9);
	assert_true(is_untouched(2));
	close_bed();
}

static void what_was_not_posted_leaves_its_place_as_it_was(void **state)
{
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];

	(void)state;
	open_bed();
	for (unsigned i = 0; i < 3; i++) {
		wr[i] = op_into(&sge[i], i, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	sge[2].addr = (uintptr_t)place(1) + 4; /* over that of the one before */
	fake->send_room = 1;
	assert_int_equal(hf_qp_post_send(bed.qp, wr, &bad), -ENOMEM);
	assert_ptr_equal(bad, &wr[1]);
	assert_false(is_untouched(0));
	assert_true(is_untouched(1));
	assert_true(is_untouched(2));
	memset(place(0), 9, BYTES);
	completes(0, IBV_WC_SUCCESS);
	assert_int_equal(polled(0), IBV_WC_SUCCESS);
	close_bed();
}

/* The NIC will refuse the wr; writing there ourselves would not be refused. */
static void what_the_nic_may_not_write_is_not_marked(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct hf_mr *read_only;

	(void)state;
	open_bed();
	assert_int_equal(hf_mr_reg(bed.pd, place(4), BYTES, (uintptr_t)place(4), 0, &read_only, NULL), 0);
	for (unsigned i = 0; i < 4; i++) {
		wr = op_into(&sge, 4, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED);
		if (i == 0)
			sge.lkey = 7; /* nobody's */
		else if (i == 1)
			sge.lkey = read_only->lkey;
		else
			sge.addr = i == 2 ? (uintptr_t)memory + sizeof(memory) - 8 : (uintptr_t)memory - 8;
		assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
	}
	assert_memory_equal(memory, original, sizeof(memory));
	completes(4, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(polled(4), IBV_WC_LOC_PROT_ERR);
	assert_int_equal(hf_mr_dereg(read_only), 0);
	close_bed();
}

/* Linux 6.12: nothing says why the first of them was flushed. */
static void who_was_the_reason_is_told_although_all_are_flushed(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		stand_set_up(NULL);
		open_bed();
		assert_int_equal(post_op(0, IBV_WR_RDMA_WRITE, 8, 0), 0);
		wr = op_into(&sge, 1, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED);
		sge.lkey += i == 0 ? 0 : 7;
		assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
		assert_int_equal(post_op(2, IBV_WR_RDMA_READ, 8, IBV_SEND_SIGNALED), 0);
		completes(1, IBV_WC_WR_FLUSH_ERR);
		completes(2, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(polled(1), i == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_PROT_ERR);
		assert_int_equal(polled(2), IBV_WC_WR_FLUSH_ERR);
		close_bed();
	}
}

/* A vqp that was destroyed leaves wrs behind, whose memory may have been given back. */
static void memory_that_is_deregistered_is_not_looked_at(void **state)
{
	(void)state;
	open_bed();
	assert_int_equal(post_op(0, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_op(1, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED), 0);
	assert_int_equal(hf_mr_dereg(mr), 0);
	completes(0, IBV_WC_SUCCESS);
	completes(1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(polled(0), IBV_WC_SUCCESS);
	assert_int_equal(polled(1), IBV_WC_RETRY_EXC_ERR);
	assert_false(is_untouched(1));
	disconnect(&bed);
}

/* ---- answers that a mark does not tell of ---- */

static const char *resent; /* what the NIC's counter says; NULL: it has none */

static void counter_close(struct hf_file *file)
{
	(void)file;
}

static ssize_t counter_read(struct hf_file *file, void *data, size_t bytes, uint64_t offset)
{
	(void)file;
	assert_int_equal(offset, 0);
	assert_true(bytes >= strlen(resent));
	memcpy(data, resent, strlen(resent));
	return (ssize_t)strlen(resent);
}

static int counter_open(struct hf_env *asked, const char *path, unsigned flags, struct hf_file **file_out)
{
	static const struct world_file_ops file_ops = {.close = counter_close, .read_at = counter_read};
	static struct hf_file file = {.ops = &file_ops};

	(void)asked;
	assert_int_equal(flags, 0);
	assert_string_equal(path, "/sys/class/infiniband/rxe_a0/ports/1/hw_counters/completer_retry_err");
	*file_out = &file;
	return resent == NULL ? -ENOENT : 0;
}

static void open_bed_that_counts(const char *says)
{
	stand_set_up(NULL);
	ops.file_open = counter_open;
	resent = says;
	open_bed();
}

/* One byte in 256 is what was marked. */
static void a_short_answer_may_be_what_was_marked_where_nothing_was_sent_again(void **state)
{
	static const struct {
		const char *before, *after;
		enum ibv_wc_status status;
	} cases[] = {
		{"3\n", "3\n", IBV_WC_SUCCESS},
		{"3\n", "4\n", IBV_WC_RETRY_EXC_ERR},
		{NULL, NULL, IBV_WC_RETRY_EXC_ERR},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_bed_that_counts(cases[i].before);
		assert_int_equal(post_op(0, IBV_WR_RDMA_READ, 7, IBV_SEND_SIGNALED), 0);
		resent = cases[i].after;
		completes(0, IBV_WC_SUCCESS);
		assert_int_equal(polled(0), cases[i].status);
		close_bed();
	}
}

/* What the WRITE has yet to send must be what the program left there. */
static void what_a_wr_in_flight_reads_is_not_marked(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_bed_that_counts("3\n");
		assert_int_equal(post_op(0, IBV_WR_RDMA_WRITE, BYTES, IBV_SEND_SIGNALED), 0);
		assert_int_equal(post_op(0, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED), 0);
		assert_true(is_untouched(0));
		resent = i == 0 ? "3\n" : "4\n";
		completes(0, IBV_WC_SUCCESS);
		completes(0, IBV_WC_SUCCESS);
		assert_int_equal(polled(0), IBV_WC_SUCCESS);
		assert_int_equal(polled(0), i == 0 ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
		close_bed();
	}
}

static void what_the_nic_has_a_copy_of_is_marked(void **state)
{
	(void)state;
	open_bed();
	assert_int_equal(post_op(0, IBV_WR_RDMA_WRITE, 32, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
	assert_int_equal(post_op(0, IBV_WR_RDMA_READ, 32, IBV_SEND_SIGNALED), 0);
	assert_false(is_untouched(0));
	close_bed();
}

/* Of two READs to one place the second's answer hides whether the first had one, and the first's whether it has. */
static void of_answers_in_one_place_the_nic_is_asked(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_bed_that_counts("3\n");
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(post_op(k / 2, IBV_WR_RDMA_READ, BYTES, IBV_SEND_SIGNALED), 0);
		memset(place(0), 9, BYTES); /* the first, the second, or both */
		memset(place(1), 9, BYTES);
		if (i == 1)
			resent = "4\n";
		for (unsigned k = 0; k < 3; k++)
			completes(k, IBV_WC_SUCCESS);
		assert_int_equal(polled(0), i == 0 ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(polled(1), i == 0 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
		close_bed();
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_answered_completes),
		TEST(what_was_not_answered_fails_with_its_qp),
		TEST(of_what_is_not_signaled_the_next_that_is_tells),
		TEST(what_fails_leaves_its_place_as_it_was),
		TEST(what_was_not_posted_leaves_its_place_as_it_was),
		TEST(what_the_nic_may_not_write_is_not_marked),
		TEST(who_was_the_reason_is_told_although_all_are_flushed),
		TEST(memory_that_is_deregistered_is_not_looked_at),
		TEST(what_a_wr_in_flight_reads_is_not_marked),
		TEST(what_the_nic_has_a_copy_of_is_marked),
		TEST(of_answers_in_one_place_the_nic_is_asked),
		TEST(a_short_answer_may_be_what_was_marked_where_nothing_was_sent_again),
	};

	return STAND_RUN(argc, argv, tests);
}
