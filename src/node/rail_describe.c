#include "node/rail_describe.h"

#define RD_ATOMIC_MAX 16u
#define DC_CAPS       (HF_DEV_DC | HF_DEV_DC_EVIDENCE)

enum ibv_mtu rail_describe_mtu(struct hf_dev *dev)
{
	struct ibv_port_attr port = {0};

	return hf_dev_query_port(dev, &port) == 0 && port.active_mtu >= IBV_MTU_256 ? port.active_mtu : IBV_MTU_1024;
}

uint8_t rail_describe_rd_atomic(const struct hf_dev *dev)
{
	return dev->attr.max_rd_atomic < RD_ATOMIC_MAX ? dev->attr.max_rd_atomic : (uint8_t)RD_ATOMIC_MAX;
}

void rail_describe(struct hf_dev *dev, struct remote_rail *rail)
{
	rail->dc_mtu = (dev->attr.caps & DC_CAPS) == DC_CAPS ? (uint8_t)rail_describe_mtu(dev) : 0;
	rail->dc_rd_atomic = rail_describe_rd_atomic(dev);
}
