#include "sim/smr/smr_clients.h"

#include <errno.h>

#include "base/bytes.h"

#define AGAIN_PPM 400000u /* a request that was answered is sent once more */
#define BYTES_MAX 64u

static void propose_request(struct smr_sim_call *call)
{
	struct smr_sim *sim = call->member->sim;
	struct smr_sim_client *client = call->client;

	if (client->answered && !(client->sequence > 0 && world_chance(sim->world, AGAIN_PPM))) {
		client->op = replicas_propose(sim->replicas);
		client->bytes = (uint32_t)world_range(sim->world, 4, BYTES_MAX);
		client->sequence++;
		client->answered = false;
	} else {
		sim->repeated++;
	}
	call->op = client->op;
	call->call.session = client->session;
	call->call.sequence = client->sequence;
	call->call.bytes = client->bytes;
	put_le32(call->data, client->op);
	for (uint32_t i = 4; i < client->bytes; i++)
		call->data[i] = (uint8_t)(client->op + i);
	call->call.data = call->data;
}

int smr_client_start(struct smr_sim_call *call)
{
	struct smr_sim *sim = call->member->sim;
	struct smr_sim_client *client = &sim->clients[world_range(sim->world, 0, SMR_SIM_CLIENTS - 1)];
	int rc;

	call->client = client;
	if (client->session == 0) {
		if (client->opening)
			return -EAGAIN;
		call->op = UINT32_MAX;
		client->answered = true;
		rc = hf_smr_session_open(call->member->smr, &call->call);
		client->opening = rc == 0;
		return rc;
	}
	propose_request(call);
	return hf_smr_propose(call->member->smr, &call->call);
}

static void opened(struct smr_sim_call *call)
{
	struct smr_sim_client *client = call->client;

	client->opening = false;
	if (call->call.outcome == HF_SMR_DECIDED)
		client->session = get_le64(call->call.result);
}

void smr_client_done(struct smr_sim_call *call)
{
	struct smr_sim *sim = call->member->sim;
	struct smr_sim_client *client = call->client;

	if (call->op == UINT32_MAX) {
		opened(call);
		return;
	}
	switch (call->call.outcome) {
	case HF_SMR_DECIDED:
		if (call->call.result_bytes != 4 || get_le32(call->call.result) != call->op + 1)
			world_violate(
				sim->world, "told", "request %u was answered with the result of another one", call->op);
		replicas_answer(sim->replicas, call->op);
		client->answered |= client->op == call->op;
		sim->decided++;
		sim->outcome->operations++;
		sim->decided_since_quiet += sim->world->now_ns >= sim->faults.quiet_ns;
		break;
	case HF_SMR_NOT_LEADER: /* this time */
		break;
	case HF_SMR_UNKNOWN:
		sim->unknown++;
		sim->outcome->unknown++;
		break;
	case HF_SMR_SESSION_OVER:
		world_violate(sim->world, "told", "the session of request %u is said to be over", call->op);
		break;
	}
}
