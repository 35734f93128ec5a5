#include "transfer/probe.h"

#include <errno.h>
#include <stdlib.h>

int probe_open(struct probe_memory *probe, struct hf_vpd *pd, uint64_t bytes, struct hf_error *error)
{
	probe->bytes = bytes < PROBE_BYTES_MAX ? (uint32_t)bytes : PROBE_BYTES_MAX;
	probe->memory = calloc(2, probe->bytes);
	if (probe->memory == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the transfer engine");
	return hf_vmr_reg(pd, probe->memory, 2 * (uint64_t)probe->bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, &probe->mr, error);
}

void probe_close(struct probe_memory *probe)
{
	if (probe->mr != NULL)
		(void)hf_vmr_dereg(probe->mr);
	free(probe->memory);
	*probe = (struct probe_memory){0};
}

struct wire_probe probe_describe(const struct probe_memory *probe)
{
	return (struct wire_probe){.addr = (uintptr_t)probe->memory, .bytes = probe->bytes, .rkey = probe->mr->rkey};
}

struct ibv_sge probe_sge(const struct probe_memory *probe, uint32_t bytes)
{
	return (struct ibv_sge){.addr = (uintptr_t)probe->memory + probe->bytes,
		.length = bytes < probe->bytes ? bytes : probe->bytes,
		.lkey = probe->mr->lkey};
}
