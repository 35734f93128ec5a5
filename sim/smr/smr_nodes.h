/* smr_nodes.h - members of a replicated log in the simulator: each a process on its host with two rails, whose program
 * proposes numbers and reads while it leads, and applies what is decided.
 *
 * Elsewhere: what is true (checkers/replicas.c), the runs (smr_scenario.c). */
#ifndef HOLDFAST_SIM_SMR_SMR_NODES_H
#define HOLDFAST_SIM_SMR_SMR_NODES_H

#include <holdfast/smr.h>

#include "sim/bus.h"
#include "sim/checkers/log_memory.h"
#include "sim/checkers/replicas.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define SMR_SIM_MEMBERS_MAX 5u
#define SMR_SIM_RAILS       2u
#define SMR_SIM_CALLS       12u /* of a member at a time */
#define SMR_SIM_CLIENTS     5u
#define SMR_SIM_GONE_MAX    256u

struct smr_sim;
/* A client with a session, which sends each request to whoever leads, again and again until it is answered, and
 * sometimes once more. */
struct smr_sim_client {
	uint64_t session; /* 0: it has none */
	uint32_t sequence, op, bytes;
	bool opening, answered; /* answered: the request of that sequence, or there was none */
};
struct smr_sim_call {
	struct hf_smr_call call;
	struct smr_sim_client *client; /* NULL: without a session */
	struct smr_sim_member *member;
	uint32_t op, least;
	uint64_t number; /* under which the member led when the call began */
	uint8_t *data;
	bool busy, reads;
};
struct smr_sim_member {
	struct smr_sim *sim;
	unsigned id;
	struct endpoint endpoint;
	struct bus_observer observers[SMR_SIM_RAILS];
	struct hf_smr *smr;
	struct smr_sim_call calls[SMR_SIM_CALLS];
	uint64_t next_ns;
	uint64_t led, aborts;                        /* so far, in all incarnations */
	bool leads, out, started;                    /* started: once */
	struct world_event restart;                  /* of a process that stepped out, or whose host has power again */
	uint64_t last_number, accepts_under, commit; /* the latter of this process, when it was last looked at */
	bool restoring;
	unsigned snapshots; /* that are open */
	uint64_t granted;   /* so far, by this process */
	struct {
		uint64_t incarnation;
		uint32_t request;
	} granted_to[SMR_SIM_MEMBERS_MAX]; /* last */
	uint32_t restored_left, restored_place;
};
/* A process that ended, and where its log did. */
struct smr_sim_gone {
	uint64_t incarnation, end;
};
struct smr_sim {
	struct world *world;
	struct network network;
	struct faults faults;
	unsigned faults_on; /* at the moment */
	struct replicas *replicas;
	struct log_memory logs;
	struct outcome *outcome;
	struct smr_sim_member members[SMR_SIM_MEMBERS_MAX];
	unsigned count;
	struct hf_smr_config config; /* but for what differs between members */
	struct hf_smr_member who[SMR_SIM_MEMBERS_MAX];
	uint32_t bytes_max;
	uint32_t decided, decided_since_quiet, unknown, reads, led, aborts, restored;
	bool working, stopping;
	unsigned founders;     /* the first ones; others join later */
	bool moving, changing; /* members come and go; a change is under way */
	bool sessions;         /* what is proposed comes from the clients */
	struct smr_sim_client clients[SMR_SIM_CLIENTS];
	uint32_t repeated; /* sent again */
	struct smr_sim_gone gone[SMR_SIM_GONE_MAX];
	unsigned gone_count;
	bool power_only;    /* hits are losses of power at all hosts */
	bool durable;       /* processes that die come back with what is on their disks */
	uint32_t large_ppm; /* of the requests without a session */
	unsigned laps;      /* of the ring that go by while a snapshot is read, and proposals are few */
};

void smr_sim_member_init(struct smr_sim_member *member);
extern const struct program smr_sim_program; /* its context is a struct smr_sim_member */

#endif
