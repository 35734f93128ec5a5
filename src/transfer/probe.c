#include "transfer/probe.h"

int probe_open(
	struct probe_memory *probe, struct hf_env *env, struct hf_vpd *pd, uint64_t bytes, struct hf_error *error)
{
	void *memory;
	int rc;

	probe->env = env;
	probe->bytes = bytes < PROBE_BYTES_MAX ? (uint32_t)bytes : PROBE_BYTES_MAX;
	rc = hf_mem_alloc(env, 2 * (size_t)probe->bytes, &memory, error);
	if (rc != 0)
		return rc;
	probe->memory = memory;
	return hf_vmr_reg(pd, probe->memory, 2 * (uint64_t)probe->bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, &probe->mr, error);
}

void probe_close(struct probe_memory *probe)
{
	if (hf_vmr_dereg(probe->mr) == 0)
		hf_mem_free(probe->env, probe->memory);
	*probe = (struct probe_memory){0};
}

struct wire_probe probe_describe(const struct probe_memory *probe)
{
	if (probe->mr == NULL) /* a node without rails */
		return (struct wire_probe){0};
	return (struct wire_probe){.addr = (uintptr_t)probe->memory, .bytes = probe->bytes, .rkey = probe->mr->rkey};
}

struct ibv_sge probe_sge(const struct probe_memory *probe, uint32_t bytes)
{
	return (struct ibv_sge){.addr = (uintptr_t)probe->memory + probe->bytes,
		.length = bytes < probe->bytes ? bytes : probe->bytes,
		.lkey = probe->mr->lkey};
}
