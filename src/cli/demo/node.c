#include "cli/demo/node.h"

#include <holdfast/fabric.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/process.h"
#include "cli/scratch.h"

#define SETUP_WAIT_MS 10000u
#define QP_TIMEOUT    12u /* 17 ms, four times: a busy machine does not look like a cut */
#define QUEUE_WRS     64u
#define CQ_ENTRIES    256u
#define INLINE_BYTES  16u

static void on_rail_changed(struct hf_node *hf_node, unsigned rail, bool up, void *context)
{
	struct demo_node *node = context;

	(void)hf_node;
	(void)rail;
	(void)up;
	node->rail_changed = true;
}

static void on_peer_down(struct hf_peer *peer, void *context)
{
	struct demo_node *node = context;

	hf_error_set(&node->error, -ECONNRESET, "the other node (%s) has ended", hf_peer_name(peer));
	node->quit = true;
}

int demo_node_register(struct demo_node *node, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out)
{
	return hf_vmr_reg(node->pd, addr, bytes, access, mr_out, &node->error);
}

int demo_node_make_vqp(struct demo_node *node, void (*changed)(struct hf_vqp *vqp, void *context), void *context)
{
	struct hf_vqp_init init = {
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.cap = {.max_send_wr = QUEUE_WRS,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES},
		.sq_sig_all = true,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.context = context,
		.changed = changed,
	};

	return hf_vqp_create(node->pd, &init, &node->vqp);
}

int demo_node_write_inline(
	struct demo_node *node, const void *data, uint32_t bytes, uint64_t addr, uint32_t rkey, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)data, .length = bytes};
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = {.remote_addr = addr, .rkey = rkey},
	};
	struct ibv_send_wr *bad;

	return hf_vqp_post_send(node->vqp, &wr, &bad);
}

/* The four rails of a demo have consecutive addresses: a/r0, a/r1, b/r0, b/r1. */
static struct hf_addr address_of(const struct hf_addr *base, unsigned place, uint16_t port)
{
	struct hf_addr address = *base;

	address.in.sin_addr.s_addr = htonl(ntohl(base->in.sin_addr.s_addr) + place);
	hf_addr_set_port(&address, port);
	return address;
}

static int configure(struct demo_node *node, struct hf_node_config *config, bool *sender_out)
{
	const char *role, *device, *fabric, *base_text, *config_path;
	json_int_t bytes, rate, failback_ns;
	struct hf_addr base;
	unsigned place, other;

	if (json_unpack(node->setup, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "role", &role, "device",
		    &device, "fabric", &fabric, "base", &base_text, "config", &config_path, "input", &node->input,
		    "output", &node->output, "bytes", &bytes, "rate", &rate, "failback_ns", &failback_ns) != 0 ||
		hf_addr_parse(base_text, &base) != 0)
		return hf_error_set(&node->error, -EPROTO, "the demo's setup message is malformed");
	memset(config, 0, sizeof(*config));
	config->policy = HF_POLICY_VARUNA;
	config->timeout = QP_TIMEOUT;
	if (config_path[0] != '\0') {
		int failed = hf_node_config_load(node->env, config_path, config, &node->error);

		if (failed)
			return failed;
	}
	*sender_out = strcmp(role, "a") == 0;
	place = *sender_out ? 0 : DEMO_RAILS;
	other = DEMO_RAILS - place;
	snprintf(config->name, sizeof(config->name), "%s", role);
	snprintf(config->fabric, sizeof(config->fabric), "%s", fabric);
	config->rail_count = DEMO_RAILS;
	config->management_count = 0;
	config->failback_ns = (uint64_t)failback_ns;
	for (unsigned i = 0; i < DEMO_RAILS; i++) {
		struct hf_rail_config *rail = &config->rails[i];
		enum ibv_mtu mtu = config_path[0] != '\0' ? rail->mtu : 0;

		*rail = (struct hf_rail_config){.mtu = mtu};
		snprintf(rail->name, sizeof(rail->name), "r%u", i);
		snprintf(rail->kind, sizeof(rail->kind), "%s", device);
		rail->address = address_of(&base, place + i, 0);
		rail->control = address_of(&base, place + i, DEMO_CONTROL_PORT);
		node->peer_control[i] = address_of(&base, other + i, DEMO_CONTROL_PORT);
	}
	node->shape = demo_shape_of((uint64_t)bytes);
	node->rate_bytes = (uint64_t)rate;
	return 0;
}

static int open_node(struct demo_node *node, const struct hf_node_config *config)
{
	static const struct hf_node_events events = {.peer_down = on_peer_down, .rail_changed = on_rail_changed};
	int failed = hf_loop_create(node->env, &node->loop);

	if (failed)
		return hf_error_set(&node->error, failed, "no loop: %s", strerror(-failed));
	failed = hf_node_open(node->loop, config, &events, node, &node->node, &node->error);
	if (!failed)
		failed = hf_vpd_alloc(node->node, &node->pd);
	if (!failed)
		failed = hf_vcq_create(node->node, CQ_ENTRIES, node, &node->cq);
	if (failed && node->error.text[0] == '\0')
		hf_error_set(&node->error, failed, "the node cannot be opened: %s", strerror(-failed));
	return failed;
}

static void close_node(struct demo_node *node)
{
	hf_vqp_destroy(node->vqp);
	if (node->cq != NULL)
		hf_vcq_destroy(node->cq);
	hf_node_close(node->node);
	hf_loop_destroy(node->loop);
}

static int run(struct demo_node *node)
{
	struct hf_node_config config;
	bool sender = false;
	int failed = configure(node, &config, &sender);

	if (!failed)
		failed = open_node(node, &config);
	if (!failed) {
		node->error.text[0] = '\0'; /* of what succeeded in the end */
		failed = sender ? demo_sender_run(node) : demo_receiver_run(node);
	}
	if (failed || node->error.text[0] != '\0')
		channel_send(&node->channel, json_pack("{s:s, s:i}", "error", node->error.text, "code", failed));
	close_node(node);
	return failed ? EXIT_FOUND : EXIT_DONE;
}

/* The parent was killed: what it would have removed goes now, and not with the next demo only. */
static void clean_up_after_parent(const struct demo_node *node)
{
	const char *scratch = json_string_value(json_object_get(node->setup, "scratch"));
	const char *fabric = json_string_value(json_object_get(node->setup, "fabric"));

	if (scratch != NULL)
		scratch_remove_path(scratch);
	if (fabric != NULL)
		hf_fabric_remove(fabric); /* refused as long as the other node is on it, which then does the same */
}

int demo_node_command(int argc, char **argv)
{
	static struct demo_node node;
	const int channel_fd = PROCESS_CHANNEL_FD;
	int status;

	(void)argv;
	if (argc > 1 || process_hold_lifeline() != 0)
		return cli_refuse("demo-node", "is a part of `holdfast demo` and is started by it only");
	channel_init(&node.channel, channel_fd);
	process_wait_readable(&channel_fd, 1, SETUP_WAIT_MS);
	node.setup = channel_receive(&node.channel);
	if (node.setup == NULL)
		return cli_refuse("demo-node", "received no setup from the demo that started it");
	node.env = hf_env_host();
	status = run(&node);
	if (process_parent_gone())
		clean_up_after_parent(&node);
	json_decref(node.setup);
	return status;
}
