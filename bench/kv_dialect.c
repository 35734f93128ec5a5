/* How a benchmark talks to stores that speak RESP. */
#include "bench/kv_load.h"

static void resp_set(struct resp_out *out, const char *key, const void *value, uint32_t bytes)
{
	resp_out_array(out, 3);
	resp_out_text(out, "SET");
	resp_out_text(out, key);
	resp_out_bulk(out, value, bytes);
}

/* Redis answers a SET before its replicas have it; WAIT waits for two. */
static void resp_wait(struct resp_out *out)
{
	resp_out_array(out, 3);
	resp_out_text(out, "WAIT");
	resp_out_text(out, "2");
	resp_out_text(out, "0");
}

static void resp_set_and_wait(struct resp_out *out, const char *key, const void *value, uint32_t bytes)
{
	resp_set(out, key, value, bytes);
	resp_wait(out);
}

static void resp_get(struct resp_out *out, const char *key)
{
	resp_out_array(out, 2);
	resp_out_text(out, "GET");
	resp_out_text(out, key);
}

static void resp_scan(struct resp_out *out, const char *start, unsigned count)
{
	resp_out_array(out, 3);
	resp_out_text(out, "HFSCAN");
	resp_out_text(out, start);
	resp_out_decimal(out, count);
}

static void resp_swap(struct resp_out *out, const char *key, const void *value, uint32_t bytes)
{
	resp_out_array(out, 4);
	resp_out_text(out, "SET");
	resp_out_text(out, key);
	resp_out_bulk(out, value, bytes);
	resp_out_text(out, "GET");
}

static void resp_swap_and_wait(struct resp_out *out, const char *key, const void *value, uint32_t bytes)
{
	resp_swap(out, key, value, bytes);
	resp_wait(out);
}

static enum resp_outcome resp_read(const uint8_t *data, size_t bytes, size_t *used_out, bool *refused_out)
{
	struct resp_reply reply = {0};
	enum resp_outcome outcome = resp_reply_read(&reply, data, bytes, used_out);

	*refused_out = outcome == RESP_WHOLE && data[0] == '-';
	return outcome;
}

const struct kv_dialect kv_dialect_resp = {.name = "RESP",
	.set_answers = 1,
	.set = resp_set,
	.get = resp_get,
	.scan = resp_scan,
	.swap = resp_swap,
	.read = resp_read};
const struct kv_dialect kv_dialect_resp_wait = {.name = "RESP, WAIT 2",
	.set_answers = 2,
	.set = resp_set_and_wait,
	.get = resp_get,
	.swap = resp_swap_and_wait,
	.read = resp_read};
