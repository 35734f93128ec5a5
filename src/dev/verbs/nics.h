/* nics.h - the list of RDMA NICs (holdfast/nics.h). */
#ifndef HOLDFAST_DEV_VERBS_NICS_H
#define HOLDFAST_DEV_VERBS_NICS_H

#include <holdfast/nics.h>

#include "dev/verbs/port.h"

int verbs_nics(void (*found)(const struct hf_nic *nic, void *context), void *context, struct hf_error *error);

/* Through that library; the tests bring their own. */
int verbs_nics_through(const struct verbs_lib *lib, void (*found)(const struct hf_nic *nic, void *context),
	void *context, struct hf_error *error);

#endif
