/* rail_describe.h - the description of a rail, from its device's attributes, for peers. */
#ifndef HOLDFAST_NODE_RAIL_DESCRIBE_H
#define HOLDFAST_NODE_RAIL_DESCRIBE_H

#include <holdfast/dev.h>

#include "node/peer.h"

enum ibv_mtu rail_describe_mtu(struct hf_dev *dev);        /* of its port, now */
uint8_t rail_describe_rd_atomic(const struct hf_dev *dev); /* what qps are made with */
void rail_describe(struct hf_dev *dev, struct remote_rail *rail);

#endif
