/* admin.h - requests of an administrator to brokers, over Kafka's protocol.
 *
 * A request is sent in the newest version that the broker and this program share. Functions here turn the loop until
 * the answer has arrived or the time-out of the command line is over. */
#ifndef HOLDFAST_CLI_BROKER_ADMIN_H
#define HOLDFAST_CLI_BROKER_ADMIN_H

#include "broker/client/leaders.h"
#include "broker/kafka_error.h"
#include "cli/broker/admin_options.h"

struct admin {
	const struct admin_options *options;
	struct leaders leaders;
	unsigned given, turn;       /* the first `given` brokers are those of the command line; one that answers */
	struct hf_error incomplete; /* why a part of the output is missing; empty: it is whole */
};

struct admin_request {
	int16_t key, newest; /* the newest version for which the body and `answered` are made */
	bool changes;        /* without an answer it is unknown whether it was executed */
	const void *body;
	/* Reads the answer, anew for each try. Returns Kafka's error code in it; *words_out: its message, if any. */
	int16_t (*answered)(void *context, const void *response, struct codec_string *words_out);
	void *context;
};

int admin_open(struct admin *admin, struct hf_loop *loop, const struct admin_options *options, struct hf_error *error);
void admin_close(struct admin *admin);

/* Each returns 0, or -errno and a sentence: -EREMOTEIO: the broker refused; -EAGAIN: it refused for now. */
int admin_ask(struct admin *admin, struct leaders_broker *broker, const struct admin_request *request,
	struct hf_error *error);
int admin_ask_id(struct admin *admin, int32_t id, const struct admin_request *request, struct hf_error *error);
int admin_ask_any(struct admin *admin, const struct admin_request *request, struct hf_error *error);
/* The controller, or the coordinator of a group, is found first, and again while there is none. */
int admin_ask_controller(struct admin *admin, const struct admin_request *request, struct hf_error *error);
int admin_ask_coordinator(
	struct admin *admin, const char *group, const struct admin_request *request, struct hf_error *error);

/* Brokers and topics: those of an array of names; NULL: all. No topic is created.
 *   {"controller", "brokers": [id, ...], "topics": [{"topic", "error", "internal", "partitions": [{"partition",
 *   "leader", "epoch", "replicas": [id, ...], "isr", "offline"}, ...]}, ...]}
 * Topics are in the order of their names, partitions in that of their numbers. */
int admin_metadata(struct admin *admin, const json_t *names, json_t **out_json, struct hf_error *error);

/* The time that a broker has for a change, so that its answer comes in time. */
int32_t admin_change_ms(const struct admin *admin);
/* A pause before another try; false: more than limit_ns, or the time-out, have passed since begun_ns. */
bool admin_pause(struct admin *admin, uint64_t begun_ns, uint64_t limit_ns);
/* An error code as a sentence with a remedy. */
const char *admin_refusal(int16_t code);
struct codec_string admin_string(const char *text);

#endif
