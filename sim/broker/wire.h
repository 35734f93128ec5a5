/* wire.h - a client's connection to the broker: one request under way, over a stream that may break.
 *
 * Owned by the client's loop. It connects again by itself, after a while. */
#ifndef HOLDFAST_SIM_BROKER_WIRE_H
#define HOLDFAST_SIM_BROKER_WIRE_H

#include <holdfast/loop.h>

#include "broker/kafka_messages.h"

#define WIRE_BYTES (256u << 10) /* of an answer */

struct wire {
	struct hf_loop *loop;
	struct hf_addr local, remote;
	struct hf_io *io;
	struct hf_watch watch;
	struct hf_timer timer; /* connect again; or the answer is late */
	struct codec_arena arena;
	const uint8_t *out;
	size_t out_bytes, in_bytes;
	uint8_t *in;
	const struct codec_api *api;
	int16_t version;
	int32_t correlation;
	bool waiting; /* for an answer */
	uint64_t late_ns, again_ns;
	/* Connected: send something. */
	void (*ready)(struct wire *wire);
	/* The answer, valid during the call. */
	void (*answer)(struct wire *wire, const void *response);
	/* The connection broke or the answer is late; `ready` is called when there is another one. */
	void (*broken)(struct wire *wire);
};

void wire_open(struct wire *wire, struct hf_loop *loop, const struct hf_addr *local, const struct hf_addr *remote);
void wire_close(struct wire *wire);
void wire_send(struct wire *wire, int16_t key, int16_t version, const void *request);
/* Connects to another broker next; nothing is under way. `broken` is not called. */
void wire_move(struct wire *wire, const struct hf_addr *remote);
/* Call `ready` after a while, though nothing is under way. */
void wire_rest(struct wire *wire, uint64_t ns);

#endif
