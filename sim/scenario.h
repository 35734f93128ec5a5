/* scenario.h - what a seed is run through: a cluster, its workload, its faults, and the checkers' verdict. */
#ifndef HOLDFAST_SIM_SCENARIO_H
#define HOLDFAST_SIM_SCENARIO_H

#include "sim/world.h"

/* What a run showed besides its violations. */
struct outcome {
	uint64_t operations; /* completed */
	uint64_t doubled;    /* non-idempotent ones that took effect twice where the policy allows it */
	uint64_t unknown;    /* completed as HF_WC_UNKNOWN */
	uint64_t failovers;
	uint64_t in_doubt; /* faults that hit work in flight */
	uint64_t excluded, copied,
		healed;        /* members of stores; those that returned by a full copy, or by what they missed */
	uint64_t torn_logs;    /* an entry was lost, and those behind it were not */
	uint64_t older_logs;   /* an older copy took the place of the log of a store's member */
	uint64_t damaged_logs; /* of members of stores, below their marks */
	uint64_t purged;       /* deleted records that members of stores removed */
	/* Members of stores that were killed while one returned: in all, and of those that one, its buddy, who
	 * decided */
	uint64_t hit_recoveries, hit_returning, hit_buddies, hit_deciders;
	uint64_t truncated;       /* logs of replicas that were cut where a later leader has another history */
	uint64_t failed, refused; /* wrs that did not succeed; among them, those that a wrong key was meant for */
};

struct scenario {
	const char *name, *what;
	bool only_when_named; /* not among those that every seed runs through */
	void (*run)(struct world *world, struct outcome *outcome);
};

extern const struct scenario scenario_rc, scenario_vqp, scenario_grants, scenario_lanes, scenario_varuna,
	scenario_varuna_hca, scenario_varuna_silent, scenario_atomics, scenario_channels, scenario_transfer,
	scenario_transfer_apart, scenario_transfer_slow, scenario_transfer_flap, scenario_uid_model, scenario_smr_plain;
extern const struct scenario scenario_smr, scenario_smr_failover, scenario_smr_holdup, scenario_smr_newcomer,
	scenario_smr_torn, scenario_smr_durable, scenario_smr_clients, scenario_smr_calm, scenario_smr_members,
	scenario_smr_fenced, scenario_smr_late, scenario_kv_late, scenario_smr_slow_disk, scenario_smr_members_disks,
	scenario_smr_damage;
extern const struct scenario scenario_kv, scenario_kv_heal, scenario_kv_lease, scenario_kv_aim, scenario_kv_failover,
	scenario_kv_takeovers, scenario_kv_leave, scenario_kv_rails, scenario_kv_device, scenario_kv_room,
	scenario_kv_hang, scenario_kv_order, scenario_kv_cold, scenario_kv_damage;
extern const struct scenario scenario_broker_one, scenario_broker_rdma, scenario_broker_repl, scenario_broker_rdma_repl,
	scenario_broker_group, scenario_broker_our_group, scenario_broker_hostile, scenario_broker_sync,
	scenario_broker_rdma_sync, scenario_broker_holders, scenario_broker_isr, scenario_broker_late;
extern const struct scenario *const scenarios[]; /* NULL terminated: scenarios.c */
const struct scenario *scenario_find(const char *name);

#endif
