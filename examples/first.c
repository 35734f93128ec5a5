/* first.c - WRITEs 1 to 2000 into the memory of another process and loses a rail at 1000; docs/first-program.md.
 * Run `first reader.json` and, beside it, `first writer.json 127.0.0.2:18515`. */
#include <holdfast/vqp.h>
#include <stdio.h>
#include <stdlib.h>

static struct hf_error error;
static struct hf_loop *loop;
static struct hf_node *node;
static struct hf_vmr *mr;
static struct hf_vqp *vqp;
static uint64_t number;

static void check(int rc, const char *what)
{
	if (rc != 0)
		exit(fprintf(stderr, "%s: error %d %s\n", what, rc, error.text) > 0);
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	*(struct hf_vmr *)reply = *mr; /* the address to write to, and the key for it */
	*reply_bytes = sizeof(*mr);
	return vqp;
}

static void write_numbers(struct hf_vcq *cq, const struct hf_vmr *there)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&number, .length = sizeof(number), .lkey = mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = (uintptr_t)there->addr;
	wr.wr.rdma.rkey = there->rkey;
	for (number = 1; number <= 2000; number++) {
		if (number == 1000)
			check(hf_dev_set_link(hf_node_dev(node, 0), HF_LINK_BOTH, false), "cut");
		check(hf_vqp_post_send(vqp, &wr, &bad), "post");
		for (int n = 0; n == 0; n = hf_vcq_poll(cq, 1, &wc))
			hf_loop_turn(loop, 1000000);
		check((int)wc.status, "WRITE");
	}
	printf("wrote 2000 numbers, the last over rail %s\n", hf_node_rail_name(node, (unsigned)hf_vqp_rail(vqp)));
}

int main(int argc, char **argv)
{
	const struct hf_vqp_service service = {.name = "number", .on_request = on_request};
	struct hf_vqp_init init = {.cap = {.max_send_wr = 16, .max_send_sge = 1}, .sq_sig_all = true};
	struct hf_node_config config;
	struct hf_addr reader;
	struct hf_peer *peer;
	struct hf_vpd *pd;

	check(argc == 2 || argc == 3 ? 0 : 1, "usage: first CONFIGURATION [ADDRESS]");
	check(hf_node_config_load(hf_env_host(), argv[1], &config, &error), "configuration");
	check(hf_loop_create(hf_env_host(), &loop), "loop");
	check(hf_node_open(loop, &config, NULL, NULL, &node, &error), "node");
	check(hf_vpd_alloc(node, &pd), "protection domain");
	check(hf_vmr_reg(pd, &number, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr, &error), "region");
	check(hf_vcq_create(node, 16, NULL, &init.send_cq), "completion queue");
	init.access = IBV_ACCESS_REMOTE_WRITE;
	check(hf_vqp_create(pd, &init, &vqp), "vqp");
	if (argc == 2) {
		check(hf_vqp_serve(node, &service), "service");
		while (hf_vqp_state(vqp) != HF_VQP_ERROR)
			hf_loop_turn(loop, 1000000000);
		printf("the writer has left, the number is %lu\n", number);
	} else {
		check(hf_addr_parse(argv[2], &reader), argv[2]);
		check(hf_peer_connect(node, &reader, 1, &peer, &error), "peer");
		check(hf_vqp_connect(vqp, peer, service.name, NULL, 0), "connect");
		while (hf_vqp_state(vqp) == HF_VQP_CONNECTING)
			hf_loop_turn(loop, 1000000);
		check(hf_vqp_state(vqp) == HF_VQP_ERROR, hf_vqp_reason(vqp));
		write_numbers(init.send_cq, hf_vqp_reply(vqp, &(size_t){0}));
	}
	hf_node_close(node);
	hf_loop_destroy(loop);
}
