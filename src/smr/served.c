#include "smr/served.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "smr/client_messages.h"

struct request {
	struct hf_smr_call call;
	struct list node; /* of `proposed`, or `answers` */
	struct smr_served *served;
	struct hf_peer *peer; /* NULL: gone */
	uint64_t id;
	uint8_t *answer;
	size_t answer_bytes;
	uint8_t data[];
};

static void request_free(struct request *request)
{
	list_remove(&request->node);
	free(request->answer);
	free(request);
}

/* False: there is no room for it now. */
static bool send_answer(struct request *request)
{
	int rc = request->peer == NULL ? -ENOTCONN
				       : hf_channel_send(request->served->channel, request->peer, request->answer,
						 request->answer_bytes);

	if (rc == -EAGAIN)
		return false;
	request_free(request);
	return true;
}

static void answer(struct request *request, uint8_t outcome, const void *result, uint32_t bytes)
{
	struct smr_served *served = request->served;

	request->answer_bytes = ANSWER_BYTES + bytes;
	request->answer = calloc(1, request->answer_bytes);
	if (request->answer == NULL) { /* it is sent again, and answered from what its session remembers */
		request_free(request);
		return;
	}
	request->answer[0] = MESSAGE_ANSWER;
	request->answer[1] = outcome;
	request->answer[2] = (uint8_t)(served->smr == NULL ? -1 : hf_smr_leader(served->smr));
	put_le64(request->answer + 8, request->id);
	if (bytes > 0)
		memcpy(request->answer + ANSWER_BYTES, result, bytes);
	list_remove(&request->node);
	list_push_back(&served->answers, &request->node);
	(void)send_answer(request);
}

static void proposed(struct hf_smr_call *call)
{
	answer(container_of(call, struct request, call), (uint8_t)call->outcome, call->result, call->result_bytes);
}

void smr_served_hear(struct smr_served *served, struct hf_peer *peer, const uint8_t *message, size_t bytes)
{
	struct request *request;
	bool opens;
	int rc;

	if (bytes < REQUEST_BYTES || served->smr == NULL)
		return;
	request = calloc(1, sizeof(*request) + bytes);
	if (request == NULL)
		return;
	request->served = served;
	request->peer = peer;
	request->id = get_le64(message + 8);
	memcpy(request->data, message + REQUEST_BYTES, bytes - REQUEST_BYTES);
	request->call = (struct hf_smr_call){.done = proposed,
		.data = request->data,
		.bytes = (uint32_t)(bytes - REQUEST_BYTES),
		.session = get_le64(message + 16),
		.sequence = get_le32(message + 4)};
	list_push_back(&served->proposed, &request->node);
	opens = request->call.session == 0 && request->call.sequence == 1;
	rc = opens ? hf_smr_session_open(served->smr, &request->call) : hf_smr_propose(served->smr, &request->call);
	if (rc != 0)
		answer(request, rc == -EMSGSIZE ? TOO_LARGE : HF_SMR_NOT_LEADER, NULL, 0);
}

void smr_served_flush(struct smr_served *served)
{
	list_for_each_safe (at, &served->answers)
		(void)send_answer(container_of(at, struct request, node));
}

void smr_served_forget(struct smr_served *served, const struct hf_peer *peer)
{
	struct list *const lists[] = {&served->proposed, &served->answers};

	for (unsigned i = 0; i < 2; i++)
		list_for_each (at, lists[i]) {
			struct request *request = container_of(at, struct request, node);

			if (request->peer == peer)
				request->peer = NULL;
		}
}

void smr_served_init(struct smr_served *served, struct hf_smr *smr)
{
	*served = (struct smr_served){.smr = smr};
	list_init(&served->proposed);
	list_init(&served->answers);
}

void smr_served_close(struct smr_served *served)
{
	while (!list_empty(&served->answers))
		request_free(container_of(served->answers.next, struct request, node));
	while (!list_empty(&served->proposed))
		request_free(container_of(served->proposed.next, struct request, node));
}
