/* kafka_round_trip.h - decodes a message of Kafka's protocol and encodes it again: what is accepted lies within its
 * arena, and its bytes decode and encode to themselves. */
#ifndef HOLDFAST_FUZZ_KAFKA_ROUND_TRIP_H
#define HOLDFAST_FUZZ_KAFKA_ROUND_TRIP_H

#include "broker/kafka_messages.h"

/* The input: u16 key and u16 version, big-endian as in the header of a request, and a body, which is a request or a
 * response. Keys and versions that the broker does not have are skipped. */
void kafka_round_trip(const uint8_t *data, size_t bytes, bool response);

#endif
