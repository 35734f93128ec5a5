/* kafka_link.h - a client's connection to a broker over TCP: requests and responses in order.
 *
 * It connects at the first call. When it breaks, or a response is late, every pending call fails, and its outcome at
 * the broker is unknown. Owned by a loop. */
#ifndef HOLDFAST_BROKER_KAFKA_LINK_H
#define HOLDFAST_BROKER_KAFKA_LINK_H

#include <holdfast/loop.h>

#include "base/list.h"
#include "broker/kafka_messages.h"

struct kafka_link;

/* The caller's, until `done`. */
struct kafka_call {
	struct list node;
	/* NULL: the connection broke. Valid during the call, which may call and close anything but the link. */
	void (*done)(struct kafka_call *call, const void *response);
	const struct codec_api *api;
	int16_t version;
	int32_t correlation;
	uint64_t sent_ns;
	bool waiting;
};

struct kafka_link {
	struct hf_loop *loop;
	struct hf_addr local, remote;
	struct hf_io *io;
	struct hf_watch watch;
	struct hf_timer timer;
	struct codec_arena arena;
	struct list calls;
	uint8_t *out, *in;
	size_t out_from, out_to, out_room, in_bytes, in_room;
	int32_t correlation;
	uint64_t late_ns, again_ns; /* after this time an answer is late; not before this moment another connection */
	int broken;                 /* why the last connection ended, -errno; -ETIMEDOUT: an answer was late */
};

void kafka_link_open(struct kafka_link *link, struct hf_loop *loop, const struct hf_addr *local,
	const struct hf_addr *remote, uint64_t late_ns);
void kafka_link_close(struct kafka_link *link); /* makes no callback */
/* As if it had broken: every pending call fails. Not within `done` of one of its calls. */
void kafka_link_break(struct kafka_link *link);
/* How long the oldest call has been waiting for its answer; 0: none is. */
uint64_t kafka_link_owes_ns(const struct kafka_link *link);
/* The request is encoded at once. False: there is no connection for now, or no memory; nothing was taken. */
bool kafka_link_call(
	struct kafka_link *link, struct kafka_call *call, int16_t key, int16_t version, const void *request);

#endif
