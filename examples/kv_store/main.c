#include "kv_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hf_error kv_error;
const char *const *kv_addresses;

void kv_must(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "kv-store: %s: error %d %s\n", what, rc, kv_error.text);
	exit(2);
}

uint64_t kv_check(const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint64_t check = 0x9e3779b97f4a7c15u, word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		check = (check ^ word) * 0xff51afd7ed558ccdu;
		check ^= check >> 32;
	}
	return check;
}

void kv_node_open(struct kv_node *it, const char *name, const char *fabric, const char *address, size_t bytes,
	const struct hf_node_events *events, void *context)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct hf_node_config config = {.rail_count = 1};
	struct hf_env *env = hf_env_host();

	(void)snprintf(config.name, sizeof(config.name), "%s", name);
	for (char *at = config.name; *at != '\0'; at++) /* an address with its port is a name, but for the colon */
		*at = *at == ':' ? '-' : *at;
	(void)snprintf(config.fabric, sizeof(config.fabric), "%s", fabric);
	(void)snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	(void)snprintf(config.rails[0].kind, HF_NAME_BYTES, "shm");
	kv_must(hf_addr_parse(address, &config.rails[0].control), address);
	config.rails[0].address = config.rails[0].control;
	hf_addr_set_port(&config.rails[0].address, 0);
	kv_must(hf_loop_create(env, &it->loop), "loop");
	kv_must(hf_node_open(it->loop, &config, events, context, &it->node, &kv_error), "node");
	kv_must(hf_vpd_alloc(it->node, &it->pd), "protection domain");
	kv_must(hf_vcq_create(it->node, 1024, NULL, &it->cq), "completion queue");
	kv_must(hf_mem_alloc(env, bytes, &it->memory, &kv_error), "memory");
	kv_must(hf_vmr_reg(it->pd, it->memory, bytes, access, &it->mr, &kv_error), "region");
}

struct hf_vqp *kv_vqp(struct kv_node *it, void *context)
{
	const struct hf_vqp_init init = {.send_cq = it->cq,
		.cap = {.max_send_wr = 16, .max_send_sge = 1},
		.sq_sig_all = true,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.context = context};
	struct hf_vqp *vqp;

	kv_must(hf_vqp_create(it->pd, &init, &vqp), "vqp");
	return vqp;
}

bool kv_write(struct kv_node *it, struct hf_vqp *vqp, const void *from, size_t bytes, const struct kv_place *to)
{
	struct ibv_sge sge = {.addr = (uintptr_t)from, .length = (uint32_t)bytes, .lkey = it->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = HF_SEND_IDEMPOTENT, /* the same again does no harm */
					 .wr.rdma = {.remote_addr = to->addr, .rkey = to->rkey}};
	struct ibv_wc wcs[16];

	while (hf_vcq_poll(it->cq, 16, wcs) == 16)
		continue;
	return hf_vqp_state(vqp) == HF_VQP_UP && hf_vqp_post_send(vqp, &wr, &bad) == 0;
}

static int usage(void)
{
	fputs("kv-store member ID FABRIC ADDRESS..., or kv-store client FABRIC OWN ADDRESS... -- set KEY VALUE, get "
	      "KEY, "
	      "add KEY NUMBER or measure N\n",
		stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct hf_smr_member members[KV_MEMBERS_MAX] = {0};
	bool serves = argc > 4 && strcmp(argv[1], "member") == 0;
	int i = 4;

	if (argc < 5 || (!serves && strcmp(argv[1], "client") != 0))
		return usage();
	kv_addresses = (const char *const *)&argv[4];
	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		unsigned id = (unsigned)i - 4;

		if (id == KV_MEMBERS_MAX)
			return usage();
		members[id] = (struct hf_smr_member){.id = (uint8_t)id, .address_count = 1};
		kv_must(hf_addr_parse(argv[i], &members[id].addresses[0]), argv[i]);
	}
	if (serves && i == argc && strtoul(argv[2], NULL, 10) < (unsigned)i - 4)
		return kv_member((unsigned)strtoul(argv[2], NULL, 10), argv[3], members, (unsigned)i - 4);
	if (serves || i >= argc - 1)
		return usage();
	return kv_client(argv[2], argv[3], members, (unsigned)i - 4, (const char *const *)&argv[i + 1],
		(unsigned)(argc - i) - 1);
}
