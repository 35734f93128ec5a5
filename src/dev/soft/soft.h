/* soft.h - opening a soft NIC on a bus of one's own; the product's kind "soft" uses bus_direct. */
#ifndef HOLDFAST_DEV_SOFT_SOFT_H
#define HOLDFAST_DEV_SOFT_SOFT_H

#include "dev/soft/bus.h"

#include <holdfast/dev.h>

/* `bus` stays the caller's and outlives the device. */
int soft_open(struct hf_env *env, const struct hf_dev_config *config, struct soft_bus *bus, struct hf_dev **dev_out,
	struct hf_error *error);

#endif
