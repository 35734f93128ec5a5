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

#include "shm/end.h"

#define ODD_BYTES 5001u /* a page and a part of one */
#define POLLS_MAX 1000000

static char fabric[HF_NAME_BYTES];

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
	if (hf_mem_map_file(hf_env_host(), *file_out, 0, ODD_BYTES, HF_MAP_WRITE, &memory, &error) != 0)
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
	end_open(&a, hf_env_host(), fabric, "a", false);
	end_open(&b, hf_env_host(), fabric, "b", false);
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

/* A mapping of a file that has been truncated raises SIGBUS, at each process that maps it. */
static void expect_of_truncated(enum ibv_wr_opcode opcode, bool local, enum ibv_wc_status expected)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1}, *bad;
	struct hf_mr *here, *there;
	struct end a, b;
	struct hf_error error = {0};
	struct hf_file *file;
	struct ibv_sge sge;
	char path[128];
	uint8_t *memory;
	void *other;

	end_open(&a, hf_env_host(), fabric, "a", false);
	end_open(&b, hf_env_host(), fabric, "b", false);
	end_connect(&a, &b);
	end_connect(&b, &a);
	memory = odd_file(&file, path, sizeof(path));
	assert_int_equal(hf_mem_alloc(hf_env_host(), ODD_BYTES, &other, &error), 0);
	assert_int_equal(hf_mr_reg(a.pd, local ? memory : other, ODD_BYTES, 0, access, &here, &error), 0);
	assert_int_equal(hf_mr_reg(b.pd, local ? other : memory, ODD_BYTES, 0, access, &there, &error), 0);
	sge = (struct ibv_sge){.addr = (uintptr_t)here->addr, .length = ODD_BYTES, .lkey = here->lkey};
	wr.sg_list = &sge;
	wr.wr.rdma.rkey = there->rkey;
	assert_int_equal(hf_qp_post_send(a.qp, &wr, &bad), 0); /* from now on it is mapped */
	assert_int_equal(next_status(&a), IBV_WC_SUCCESS);
	assert_int_equal(hf_file_resize(file, 0), 0);
	assert_int_equal(hf_qp_post_send(a.qp, &wr, &bad), 0);
	assert_int_equal(next_status(&a), expected);
	assert_int_equal(hf_mr_dereg(here), 0);
	assert_int_equal(hf_mr_dereg(there), 0);
	end_close(&a);
	end_close(&b);
	hf_mem_free(hf_env_host(), other);
	hf_mem_free(hf_env_host(), memory);
	hf_file_close(file);
	hf_file_remove(hf_env_host(), path);
}

static void a_truncated_file_ends_the_qp_and_no_process(void **state)
{
	(void)state;
	expect_of_truncated(IBV_WR_RDMA_WRITE, false, IBV_WC_REM_ACCESS_ERR);
	expect_of_truncated(IBV_WR_RDMA_READ, false, IBV_WC_REM_ACCESS_ERR);
	expect_of_truncated(IBV_WR_RDMA_WRITE, true, IBV_WC_LOC_PROT_ERR);
	expect_of_truncated(IBV_WR_RDMA_READ, true, IBV_WC_LOC_PROT_ERR);
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
		cmocka_unit_test(a_truncated_file_ends_the_qp_and_no_process),
	};

	return cmocka_run_group_tests(tests, name_fabric, remove_fabric);
}
