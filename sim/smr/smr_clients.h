/* smr_clients.h - clients of a replicated log that have sessions: each request is sent to whoever leads until it is
 * answered, and sometimes again, also while it is in flight. That it is applied once is the checker's to say. */
#ifndef HOLDFAST_SIM_SMR_SMR_CLIENTS_H
#define HOLDFAST_SIM_SMR_SMR_CLIENTS_H

#include "sim/smr/smr_nodes.h"

/* A request of some client, or the opening of its session, at the leader whose call this is. As hf_smr_propose;
 * -EAGAIN also when that client has nothing to send. */
int smr_client_start(struct smr_sim_call *call);
void smr_client_done(struct smr_sim_call *call);

#endif
