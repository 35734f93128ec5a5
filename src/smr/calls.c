/* Calls of the program: taken, in the log, answered. done() is called from a list, so that it may call again. */
#include "smr/steps.h"

#include <errno.h>

#define CALLS_MAX 16384u

void smr_calls_init(struct hf_smr *smr)
{
	smr->waiting_end = &smr->waiting;
	smr->logged_end = &smr->logged;
	smr->reads_end = &smr->reads;
	smr->done_end = &smr->done;
}

static int admit(struct hf_smr *smr, struct hf_smr_call *call)
{
	if (smr->role != HF_SMR_LEADER)
		return -ENOTCONN;
	if (smr->calls >= CALLS_MAX) {
		smr->refused = true;
		return -EAGAIN;
	}
	smr->calls++;
	call->next = NULL;
	call->result = NULL;
	call->result_bytes = 0;
	return 0;
}

static int take(struct hf_smr *smr, struct hf_smr_call *call)
{
	int rc = admit(smr, call);

	if (rc != 0)
		return rc;
	*smr->waiting_end = call;
	smr->waiting_end = &call->next;
	return 0;
}

int hf_smr_propose(struct hf_smr *smr, struct hf_smr_call *call)
{
	if (call->bytes > hf_smr_request_bytes_max(smr))
		return -EMSGSIZE;
	if ((call->session == 0) != (call->sequence == 0)) /* these open and close sessions */
		return -EINVAL;
	return take(smr, call);
}

int hf_smr_read(struct hf_smr *smr, struct hf_smr_call *call)
{
	int rc = admit(smr, call);

	if (rc != 0)
		return rc;
	call->index = smr->commit;
	call->wait = smr->clock;
	*smr->reads_end = call;
	smr->reads_end = &call->next;
	return 0;
}

int hf_smr_session_open(struct hf_smr *smr, struct hf_smr_call *call)
{
	call->session = 0;
	call->sequence = 1;
	call->bytes = 0;
	return take(smr, call);
}

int hf_smr_session_close(struct hf_smr *smr, struct hf_smr_call *call, uint64_t session)
{
	call->session = session;
	call->sequence = 0;
	call->bytes = 0;
	return take(smr, call);
}

void smr_calls_end(struct hf_smr *smr, struct hf_smr_call *call, enum hf_smr_outcome outcome)
{
	call->outcome = outcome;
	call->leader = hf_smr_leader(smr);
	call->next = NULL;
	*smr->done_end = call;
	smr->done_end = &call->next;
}

/* Answers the call of a request that is applied, if it was made here. The result lives on this stack: done() is called
 * now, but for calls that a program makes in it. */
void smr_calls_applied(struct hf_smr *smr, const struct hf_smr_applied *request, const void *result, uint32_t bytes,
	enum hf_smr_outcome outcome)
{
	struct hf_smr_call *call = smr->logged;

	if (call == NULL || call->wait != request->index)
		return;
	smr->logged = call->next;
	if (smr->logged == NULL)
		smr->logged_end = &smr->logged;
	call->index = request->index;
	call->outcome = outcome;
	call->leader = smr->id;
	call->result = result;
	call->result_bytes = bytes;
	call->next = NULL;
	smr->calls--;
	call->done(call);
}

bool smr_calls_finish(struct hf_smr *smr)
{
	struct hf_smr_call *call = smr->done;

	if (call == NULL && !(smr->refused && smr->calls < CALLS_MAX / 2))
		return false;
	smr->done = NULL;
	smr->done_end = &smr->done;
	while (call != NULL) {
		struct hf_smr_call *next = call->next;

		call->next = NULL;
		smr->calls--;
		call->done(call);
		call = next;
	}
	if (smr->refused && smr->calls < CALLS_MAX / 2) {
		smr->refused = false;
		smr_event(smr, HF_SMR_WRITABLE);
	}
	return true;
}
