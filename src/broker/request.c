/* Requests: header, dispatch, answer. */
#include "broker/request.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "broker/requests/handlers.h"

#define HEADER_LEAST    8u /* key, version, correlation id */
#define PIECES_OVERHEAD 2u /* around each piece of records, a piece of the buffer */

static struct log_limit refusals;

static bool refuse(struct request *request, const char *why)
{
	uint64_t left_out;
	char text[HF_ADDR_TEXT];

	if (log_limit_allows(&refusals, hf_loop_now_ns(request->broker->loop), &left_out))
		log_warn("broker: %s: %s %s (version %d); the connection ends (%llu lines suppressed)",
			hf_addr_format(&request->connection->remote, text),
			request->api == NULL ? "a request" : request->api->name, why, request->version,
			(unsigned long long)left_out);
	return false;
}

static bool is_flexible(const struct request *request)
{
	return codec_in(request->api->request->flexible, request->version);
}

/* An unknown version of ApiVersions is answered in version 0, whatever its header and body are. */
static bool serve_unknown_version(struct request *request)
{
	request->version = 0;
	request->body = NULL;
	api_versions_handle(request);
	return true;
}

static bool read_header(struct request *request, const uint8_t *data, size_t bytes, size_t *used_out)
{
	struct kafka_request_header header;

	if (codec_decode(&kafka_request_header_codec, is_flexible(request) ? 2 : 1, data, bytes, &request->arena,
		    &header, used_out) != CODEC_OK)
		return refuse(request, "has a malformed header");
	request->client_id = header.client_id;
	return true;
}

/* Bytes behind the message are ignored (R-B40): librdkafka sends some behind Metadata, and Kafka ignores them. */
static bool read_body(struct request *request, const uint8_t *data, size_t bytes)
{
	const struct codec_message *of = request->api->request;
	size_t used;

	request->body = codec_arena_take(&request->arena, of->root->bytes);
	if (request->body == NULL)
		return refuse(request, "finds no memory");
	switch (codec_decode(of, request->version, data, bytes, &request->arena, request->body, &used)) {
	case CODEC_OK:
	case CODEC_TRAILING:
		return true;
	case CODEC_MALFORMED:
		return refuse(request, "is malformed");
	case CODEC_TOO_LARGE:
		return refuse(request, "takes more memory than a request may");
	}
	return false;
}

bool request_serve(struct request *request, const uint8_t *data, size_t bytes)
{
	const struct handler *handler;
	size_t used;

	ensure(!request->open);
	request->api = NULL;
	request->version = 0;
	if (bytes < HEADER_LEAST)
		return refuse(request, "is too short");
	request->api = codec_find_api(kafka_apis, KAFKA_APIS, (int16_t)get_be16(data));
	request->version = (int16_t)get_be16(data + 2);
	request->correlation = (int32_t)get_be32(data + 4);
	handler = request->api == NULL ? NULL : handlers_find(request->api->key);
	if (handler == NULL)
		return refuse(request, "has a key that was not announced");
	request->open = true;
	if (request->version < handler->from || request->version > handler->to)
		return handler->key == KAFKA_API_VERSIONS ? serve_unknown_version(request)
							  : refuse(request, "has a version that was not announced");
	if (!read_header(request, data, bytes, &used) || !read_body(request, data + used, bytes - used))
		return false;
	handler->handle(request);
	return true;
}

/* ---- answering ---- */

/* The encoded bytes with the records between them. */
static struct iovec *make_pieces(
	struct request *request, uint8_t *data, size_t bytes, const struct codec_piece *records, unsigned *n_out)
{
	size_t count = 1, from = 0, all = bytes;
	struct iovec *out;
	unsigned n = 0;

	for (const struct codec_piece *at = records; at != NULL; at = at->next)
		count += PIECES_OVERHEAD;
	out = codec_arena_take_array(&request->arena, count, sizeof(*out));
	if (out == NULL)
		return NULL;
	for (const struct codec_piece *at = records; at != NULL; at = at->next) {
		union {
			const uint8_t *in;
			void *out; /* struct iovec lacks a const */
		} span = {.in = at->at};

		if (at->behind > from)
			out[n++] = (struct iovec){data + from, at->behind - from};
		out[n++] = (struct iovec){span.out, at->bytes};
		from = at->behind;
		all += at->bytes;
	}
	if (bytes > from)
		out[n++] = (struct iovec){data + from, bytes - from};
	ensure(all - 4 <= INT32_MAX);
	put_be32(data, (uint32_t)(all - 4));
	*n_out = n;
	return out;
}

static void stop_waiting(struct request *request)
{
	hf_loop_cancel_timer(request->broker->loop, &request->timer);
	request->cancel = NULL;
}

void request_break(struct request *request, const char *why)
{
	refuse(request, why);
	hf_loop_set_timer(request->broker->loop, &request->connection->idle, 0);
}

void request_give_up(struct request *request)
{
	/* No answer is better than a wrong one: the client sees its connection end and asks again. */
	request_break(request, "has an answer that takes more memory than a request may");
}

void request_answer(struct request *request, const void *response)
{
	/* The header of ApiVersions is never flexible: the client does not know yet what the broker speaks. */
	bool flexible = is_flexible(request) && request->api->key != KAFKA_API_VERSIONS;
	struct codec_piece *records;
	struct iovec *pieces = NULL;
	uint8_t *data;
	unsigned n = 0;
	size_t bytes = codec_encode(
		request->api->response, request->version, response, &request->arena, flexible ? 9 : 8, &data, &records);

	stop_waiting(request);
	if (bytes > 0)
		pieces = make_pieces(request, data, bytes, records, &n);
	if (pieces == NULL) {
		request_give_up(request);
		return;
	}
	put_be32(data + 4, (uint32_t)request->correlation);
	if (flexible)
		data[8] = 0; /* no tagged fields */
	connection_answer(request->connection, pieces, n);
}

void request_answer_none(struct request *request)
{
	stop_waiting(request);
	connection_answer(request->connection, NULL, 0);
}

bool request_hold(struct request *request, struct segment *segment)
{
	struct request_hold *hold = codec_arena_take(&request->arena, sizeof(*hold));

	if (hold == NULL) {
		segment_release(segment);
		return false;
	}
	*hold = (struct request_hold){segment, request->holds};
	request->holds = hold;
	return true;
}

void request_drop_holds(struct request *request)
{
	for (; request->holds != NULL; request->holds = request->holds->next)
		segment_release(request->holds->segment);
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	struct request *request = container_of(timer, struct request, timer);

	(void)now_ns;
	request->expire(request);
}

void request_wait(struct request *request, uint64_t timeout_ns, void (*expire)(struct request *request),
	void (*cancel)(struct request *request))
{
	struct hf_loop *loop = request->broker->loop;

	request->expire = expire;
	request->cancel = cancel;
	request->timer.fire = timer_fired;
	hf_loop_set_timer(loop, &request->timer, hf_loop_now_ns(loop) + timeout_ns);
}

void request_end(struct request *request)
{
	stop_waiting(request);
	request_drop_holds(request);
	request->open = false;
	request->state = NULL;
	codec_arena_reset(&request->arena, REQUEST_ARENA_BYTES);
}

uint64_t request_timeout_ns(int32_t timeout_ms)
{
	return timeout_ms > 0 ? (uint32_t)timeout_ms * 1000000ull : 30000000000ull;
}

struct codec_string request_text(const char *text)
{
	return (struct codec_string){text, text == NULL ? -1 : (int32_t)strlen(text)};
}
