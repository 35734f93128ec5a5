/* request.h - a request from its first byte to its answer.
 *
 * A handler gets the decoded body and ends with request_answer, at once or later. Until then body and arena stay valid.
 * A handler that answers later sets `cancel`, which is called if the connection ends first, and may set the timer. */
#ifndef HOLDFAST_BROKER_REQUEST_H
#define HOLDFAST_BROKER_REQUEST_H

#include <holdfast/loop.h>

#include "broker/kafka_messages.h"
#include "broker/log/partition_log.h"

#define REQUEST_ARENA_BYTES (64u << 20)

struct broker;
struct connection;

struct request_hold {
	struct segment *segment;
	struct request_hold *next;
};

struct request {
	struct broker *broker;
	struct connection *connection;
	const struct codec_api *api;
	int16_t version;
	int32_t correlation;
	struct codec_string client_id;
	struct codec_arena arena;
	void *body;  /* the decoded message */
	void *state; /* the handler's, while it waits */
	void (*cancel)(struct request *request);
	struct hf_timer timer; /* fires `expire`; cancelled with the request */
	void (*expire)(struct request *request);
	struct request_hold *holds;
	bool open;
};

/* Reads the header and calls the handler. false: the connection must end; the reason was logged. */
bool request_serve(struct request *request, const uint8_t *data, size_t bytes);

/* Encodes the response, a struct of the request's key, and sends it in its turn. */
void request_answer(struct request *request, const void *response);
/* Ends without an answer, and the connection soon. `why` stands in the log, behind the name of the request. */
void request_break(struct request *request, const char *why);
/* The same, because there is no memory for an answer. */
void request_give_up(struct request *request);
/* Ends without an answer: acks=0. */
void request_answer_none(struct request *request);

/* Keeps a segment mapped until the answer is sent; the hold is the request's from here on. false: no memory, and the
 * hold is given back. */
bool request_hold(struct request *request, struct segment *segment);
/* Gives back what it holds. */
void request_drop_holds(struct request *request);
/* Arms the timer: expire is called then. */
void request_wait(struct request *request, uint64_t timeout_ns, void (*expire)(struct request *request),
	void (*cancel)(struct request *request));
/* The connection ends, or the answer was sent. */
void request_end(struct request *request);

/* What a client names as its time; 30 s when it names none. */
uint64_t request_timeout_ns(int32_t timeout_ms);

struct codec_string request_text(const char *text); /* of a constant; NULL: null */

#endif
