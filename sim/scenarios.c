/* The scenarios there are; a seed runs through the first one unless told otherwise. */
#include <string.h>

#include "sim/scenario.h"

const struct scenario *const scenarios[] = {&scenario_rc, &scenario_vqp, &scenario_grants, &scenario_lanes,
	&scenario_varuna, &scenario_varuna_hca, &scenario_varuna_silent, &scenario_atomics, &scenario_channels,
	&scenario_transfer, &scenario_transfer_apart, &scenario_transfer_slow, &scenario_transfer_flap,
	&scenario_uid_model, &scenario_smr, &scenario_smr_durable, &scenario_smr_damage, &scenario_smr_slow_disk,
	&scenario_smr_members_disks, &scenario_smr_clients, &scenario_smr_fenced, &scenario_smr_calm,
	&scenario_smr_late, &scenario_kv_late, &scenario_smr_members, &scenario_smr_plain, &scenario_smr_failover,
	&scenario_smr_holdup, &scenario_smr_newcomer, &scenario_smr_torn, &scenario_kv, &scenario_kv_heal,
	&scenario_kv_lease, &scenario_kv_cold, &scenario_kv_damage, &scenario_kv_aim, &scenario_kv_failover,
	&scenario_kv_takeovers, &scenario_kv_leave, &scenario_kv_rails, &scenario_kv_device, &scenario_kv_room,
	&scenario_kv_hang, &scenario_kv_order, &scenario_broker_one, &scenario_broker_rdma, &scenario_broker_repl,
	&scenario_broker_rdma_repl, &scenario_broker_group, &scenario_broker_our_group, &scenario_broker_hostile,
	&scenario_broker_sync, &scenario_broker_rdma_sync, &scenario_broker_holders, &scenario_broker_isr,
	&scenario_broker_late, NULL};

const struct scenario *scenario_find(const char *name)
{
	for (unsigned i = 0; scenarios[i] != NULL; i++)
		if (strcmp(scenarios[i]->name, name) == 0)
			return scenarios[i];
	return NULL;
}
