/* The scenarios there are; a seed runs through the first one unless told otherwise. */
#include <string.h>

#include "sim/scenario.h"

const struct scenario *const scenarios[] = {&scenario_rc, &scenario_vqp, &scenario_grants, &scenario_lanes,
	&scenario_varuna, &scenario_varuna_hca, &scenario_varuna_silent, &scenario_atomics, &scenario_channels,
	&scenario_transfer, &scenario_transfer_apart, &scenario_transfer_slow, &scenario_transfer_flap,
	&scenario_uid_model, &scenario_smr, &scenario_smr_plain, &scenario_smr_failover, &scenario_kv,
	&scenario_broker_one, NULL};

const struct scenario *scenario_find(const char *name)
{
	for (unsigned i = 0; scenarios[i] != NULL; i++)
		if (strcmp(scenarios[i]->name, name) == 0)
			return scenarios[i];
	return NULL;
}
