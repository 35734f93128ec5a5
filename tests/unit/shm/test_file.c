/* Files as registered memory: what is special to them on the shm device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <holdfast/dev.h>
#include <holdfast/fabric.h>

#define ODD_BYTES 5001u /* a page and a part of one */
#define POLLS_MAX 1000000

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_qp *qp;
};

static char fabric[HF_NAME_BYTES];

static void end_open(struct end *end, const char *node)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric, .node = node, .rail = "r0"};
	struct hf_qp_init init = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.type = IBV_QPT_RC,
	};
	struct hf_error error = {0};

	if (hf_dev_open(hf_env_host(), &config, &end->dev, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(hf_pd_alloc(end->dev, &end->pd), 0);
	assert_int_equal(hf_cq_create(end->dev, 8, NULL, &end->cq), 0);
	init.send_cq = init.recv_cq = end->cq;
	assert_int_equal(hf_qp_create(end->pd, &init, &end->qp), 0);
}

static void end_connect(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	union ibv_gid gid = hf_dev_gid(peer->dev);

	assert_int_equal(
		hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}}};
	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 2, .max_rd_atomic = 1};
	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

static void end_close(struct end *end)
{
	assert_int_equal(hf_qp_destroy(end->qp), 0);
	assert_int_equal(hf_cq_destroy(end->cq), 0);
	assert_int_equal(hf_pd_free(end->pd), 0);
	hf_dev_close(end->dev);
}

static enum ibv_wc_status next_status(struct end *end)
{
	struct ibv_wc wc;

	for (int i = 0; i < POLLS_MAX; i++)
		if (hf_cq_poll(end->cq, 1, &wc) == 1)
			return wc.status;
	fail_msg("no completion");
	return IBV_WC_GENERAL_ERR;
}

static uint8_t *odd_file(struct hf_file **file_out, char *path, size_t path_bytes)
{
	struct hf_error error = {0};
	void *memory;

	snprintf(path, path_bytes, "/tmp/%s.file", fabric);
	assert_int_equal(hf_file_open(hf_env_host(), path, HF_FILE_WRITE | HF_FILE_CREATE, file_out), 0);
	assert_int_equal(hf_file_resize(*file_out, ODD_BYTES), 0);
	if (hf_mem_map_file(hf_env_host(), *file_out, 0, ODD_BYTES, true, &memory, &error) != 0)
		fail_msg("%s", error.text);
	return memory;
}

/* A file rarely ends where a page does, and a mapping beyond its end cannot be had. */
static void a_file_that_ends_within_a_page_is_written_to_its_last_byte(void **state)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct end a, b;
	struct hf_mr *source, *target;
	struct hf_error error = {0};
	struct hf_file *file;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1}, *bad;
	char path[128];
	uint8_t *memory;
	void *from;

	(void)state;
	end_open(&a, "a");
	end_open(&b, "b");
	end_connect(&a, &b);
	end_connect(&b, &a);
	memory = odd_file(&file, path, sizeof(path));
	assert_int_equal(hf_mem_alloc(hf_env_host(), ODD_BYTES, &from, &error), 0);
	memset(from, 0x5a, ODD_BYTES);
	assert_int_equal(hf_mr_reg(a.pd, from, ODD_BYTES, (uintptr_t)from, 0, &source, &error), 0);
	if (hf_mr_reg(b.pd, memory, ODD_BYTES, (uintptr_t)memory, access, &target, &error) != 0)
		fail_msg("%s", error.text);

	sge = (struct ibv_sge){.addr = (uintptr_t)from, .length = ODD_BYTES, .lkey = source->lkey};
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = target->rkey;
	assert_int_equal(hf_qp_post_send(a.qp, &wr, &bad), 0);
	assert_int_equal(next_status(&a), IBV_WC_SUCCESS);
	assert_memory_equal(memory, from, ODD_BYTES);

	assert_int_equal(hf_mr_dereg(source), 0);
	assert_int_equal(hf_mr_dereg(target), 0);
	end_close(&a);
	end_close(&b);
	hf_mem_free(hf_env_host(), from);
	hf_mem_free(hf_env_host(), memory);
	hf_file_close(file);
	hf_file_remove(hf_env_host(), path);
}

static int name_fabric(void **state)
{
	uint32_t number;

	(void)state;
	hf_env_entropy(hf_env_host(), &number, sizeof(number));
	snprintf(fabric, sizeof(fabric), "test-file-%08x", number);
	return 0;
}

static int remove_fabric(void **state)
{
	(void)state;
	return hf_fabric_remove(fabric);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_ends_within_a_page_is_written_to_its_last_byte),
	};

	return cmocka_run_group_tests(tests, name_fabric, remove_fabric);
}
