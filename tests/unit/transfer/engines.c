#include "engines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define LIMIT 100000u /* turns */

static struct hf_transfer *open_engine(const struct engines *engines, struct end *end, uint8_t *memory,
	const struct hf_transfer_events *events, void *context)
{
	struct hf_transfer_config config = engines->config;
	struct hf_transfer *engine;
	struct hf_error error = {0};

	assert_int_equal(hf_addr_parse("127.0.0.1", &config.listen), 0);
	if (hf_transfer_open(end->node, &config, events, context, &engine, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(hf_transfer_register(engine, memory, engines->bytes,
				 HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE, &error),
		0);
	return engine;
}

void engines_turn(struct engines *engines)
{
	(void)hf_loop_turn(engines->pair.loop, 1000000);
}

void engines_open(struct engines *engines, size_t bytes, const struct hf_transfer_events *events, void *context)
{
	struct pair *pair = &engines->pair;
	uint64_t segment_bytes;

	engines->bytes = bytes;
	engines->from = malloc(bytes);
	engines->to = calloc(1, bytes);
	assert_true(engines->from != NULL && engines->to != NULL);
	for (size_t i = 0; i < bytes; i++)
		engines->from[i] = (uint8_t)(i * 131 + i / 257 + 1);
	pair_management = true;
	pair_open(pair, HF_POLICY_VARUNA);
	engines->a = open_engine(engines, &pair->a, engines->from, events, context);
	engines->b = open_engine(engines, &pair->b, engines->to, events, context);
	assert_int_equal(hf_peer_connect(pair->a.node, &pair->control[1][0], 1, &pair->a.peer, NULL), 0);
	for (unsigned i = 0; i < LIMIT && engines->segment == NULL; i++) {
		engines_turn(engines);
		engines->segment = pair->a.peer == NULL ? NULL : hf_transfer_segment(engines->a, pair->a.peer);
	}
	assert_non_null(engines->segment);
	assert_true(hf_segment_buffer(engines->segment, 0, &engines->target, &segment_bytes));
	assert_int_equal(segment_bytes, bytes);
}

void engines_close(struct engines *engines)
{
	assert_int_equal(hf_transfer_close(engines->a), 0);
	assert_int_equal(hf_transfer_close(engines->b), 0);
	pair_close(&engines->pair);
	free(engines->from);
	free(engines->to);
	pair_management = false;
}
