/* messages.h - messages of any key and version with contents drawn from a seed, for tests of the codec. */
#ifndef HOLDFAST_TESTS_UNIT_BROKER_MESSAGES_H
#define HOLDFAST_TESTS_UNIT_BROKER_MESSAGES_H

#include "broker/kafka_messages.h"

/* Fills the fields that exist in this version, and leaves the others at their defaults. The seed goes on. */
void messages_draw(
	const struct codec_message *of, int16_t version, struct codec_arena *arena, void *message, uint64_t *seed);

#endif
