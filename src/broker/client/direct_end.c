#include "broker/client/direct_end.h"

int direct_end_open(struct direct_end *end, struct hf_node *node, struct hf_vpd *pd, uint32_t bytes, uint32_t cqe,
	struct hf_vqp_init *init)
{
	struct hf_error error;
	void *memory;
	int rc;

	end->env = hf_loop_env(hf_node_loop(node));
	rc = hf_mem_alloc(end->env, bytes, &memory, &error);
	end->memory = memory;
	if (rc == 0)
		rc = hf_vmr_reg(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE, &end->mr, &error);
	if (rc == 0)
		rc = hf_vcq_create(node, cqe, init->context, &end->cq);
	init->send_cq = end->cq;
	return rc == 0 ? hf_vqp_create(pd, init, &end->vqp) : rc;
}

void direct_end_close(struct direct_end *end)
{
	hf_vqp_destroy(end->vqp);
	if (end->cq != NULL)
		(void)hf_vcq_destroy(end->cq);
	if (hf_vmr_dereg(end->mr) == 0)
		hf_mem_free(end->env, end->memory);
	*end = (struct direct_end){0};
}

bool direct_end_post_receive(struct direct_end *end, uint64_t wr_id, size_t offset, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->memory + offset, .length = bytes, .lkey = end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	return hf_vqp_post_recv(end->vqp, &wr, &bad) == 0;
}
