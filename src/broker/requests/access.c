/* Access: a token for a vqp; and what became of a producer's batches, once no grant changes that any more. */
#include "broker/requests/handlers.h"

#include <string.h>

#include <holdfast/node.h>

#include "broker/rdma/rdma.h"

#define ADDRESSES_MAX (2u * HF_RAILS_MAX)

static void refuse(struct kafka_access_response *response, enum kafka_error error, const char *message)
{
	response->error_code = (int16_t)error;
	response->error_message = request_text(message);
}

/* What is in the log of this producer. A grant of its partition is over before. */
static void settle(struct request *request, struct kafka_access_response *response, int32_t *epoch_out)
{
	const struct kafka_access_request *body = request->body;
	enum kafka_error error;
	struct partition *partition = broker_find_led(request->broker, body->topic, body->partition, &error);

	if (partition == NULL) {
		refuse(response, error, NULL);
		return;
	}
	error = partition_check_epoch(partition, body->current_leader_epoch);
	if (error != KAFKA_NONE) {
		refuse(response, error, NULL);
		return;
	}
	if (!broker_has_lease(
		    request->broker)) { /* as one that has just joined: its grant would end at the first batch */
		refuse(response, KAFKA_NOT_LEADER_OR_FOLLOWER, "this broker does not reach the controller");
		return;
	}
	if (body->acks != 1 && !partition_has_enough(partition)) {
		refuse(response, KAFKA_NOT_ENOUGH_REPLICAS, NULL);
		return;
	}
	if (codec_compare(GROUPS_TOPIC, body->topic) == 0) {
		refuse(response, KAFKA_INVALID_TOPIC, "this topic is the broker's own");
		return;
	}
	if (body->producer_id < 0) {
		refuse(response, KAFKA_INVALID_REQUEST, "a grant needs a producer id; ask for one (InitProducerId)");
		return;
	}
	partition_take_back(partition);
	*epoch_out = partition->leader_epoch;
	if (producer_state_last(&partition->log->producers, body->producer_id, body->producer_epoch,
		    &response->last_sequence, &response->last_offset) &&
		response->last_offset >= partition->hw)
		refuse(response, KAFKA_REQUEST_TIMED_OUT, "its last batch is not replicated yet; ask again");
}

static void tell_addresses(struct request *request, struct kafka_access_response *response)
{
	struct hf_addr addresses[ADDRESSES_MAX];
	unsigned n = hf_node_addresses(request->broker->node, addresses, ADDRESSES_MAX);
	struct codec_string *at = codec_arena_take_array(&request->arena, n, sizeof(*at));
	char *text;

	for (unsigned i = 0; at != NULL && i < n; i++) {
		text = codec_arena_take(&request->arena, HF_ADDR_TEXT);
		if (text == NULL)
			return;
		at[i] = request_text(hf_addr_format(&addresses[i], text));
		response->addresses.at = at;
		response->addresses.count = (int32_t)i + 1;
	}
}

static void give_token(struct request *request, struct kafka_access_response *response, int32_t epoch)
{
	const struct kafka_access_request *body = request->body;
	struct broker *broker = request->broker;
	struct token *token =
		broker->rdma == NULL ? NULL : tokens_give(&broker->rdma->tokens, hf_loop_now_ns(broker->loop));

	if (token == NULL) {
		refuse(response, KAFKA_UNSUPPORTED_VERSION,
			broker->rdma == NULL ? "this broker has no rails; go on over TCP"
					     : "too many tokens are not used yet; ask again");
		return;
	}
	hf_env_entropy(broker->env, token->bytes, sizeof(token->bytes));
	memcpy(response->token.byte, token->bytes, sizeof(token->bytes));
	token->kind = (enum access_kind)body->kind;
	token->partition = body->partition;
	token->leader_epoch = epoch;
	token->producer_id = body->producer_id;
	token->producer_epoch = body->producer_epoch;
	token->all = body->acks != 1;
	if (token->kind == ACCESS_PRODUCE) /* of a topic that exists, so it fits */
		memcpy(token->topic, body->topic.at, (size_t)body->topic.bytes);
	tell_addresses(request, response);
}

void access_handle(struct request *request)
{
	const struct kafka_access_request *body = request->body;
	struct kafka_access_response response;
	int32_t epoch = -1;

	codec_default(kafka_access_response_codec.root, &response);
	response.error_message = request_text(NULL);
	response.last_sequence = -1;
	response.last_offset = -1;
	if (body->kind < 0 || body->kind >= ACCESS_KINDS)
		refuse(&response, KAFKA_INVALID_REQUEST, "this kind of access is not known");
	else if (body->kind != ACCESS_READ)
		settle(request, &response, &epoch);
	if (response.error_code == KAFKA_NONE && body->kind != ACCESS_SETTLE)
		give_token(request, &response, epoch);
	request_answer(request, &response);
}
