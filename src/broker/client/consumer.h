/* consumer.h - the inside of a consumer: partitions with their buffered bytes, over RDMA or TCP.
 *
 * A partition has bytes of the log in a buffer, [from, to): whole batches and the beginning of another. They come by
 * READs of a segment that the broker has registered (consumer_direct.c), through the session with that broker, or by
 * Fetch (consumer_tcp.c). hf_consumer_poll checks whole batches (R-B15) and returns their records. */
#ifndef HOLDFAST_BROKER_CLIENT_CONSUMER_H
#define HOLDFAST_BROKER_CLIENT_CONSUMER_H

#include <holdfast/consumer.h>
#include <holdfast/vqp.h>

#include "broker/codec/compression.h"
#include "broker/client/direct_end.h"
#include "broker/client/leaders.h"
#include "broker/kafka_error.h"
#include "broker/log/records.h"

/* What a partition waits for. */
enum consumer_way {
	CONSUMER_NEW,       /* its leader; an offset, where only BEGIN or END is known; a session */
	CONSUMER_ATTACHING, /* the answer to ATTACH */
	CONSUMER_DIRECT,    /* READs */
	CONSUMER_TCP,       /* Fetch */
	CONSUMER_WAYS,
};

struct consumer_partition {
	struct hf_consumer *consumer;
	struct list node;
	struct leaders_topic *topic;
	int32_t index;
	bool idle; /* not read for now */
	enum consumer_way way;
	struct leaders_broker *leader;
	struct kafka_call call; /* ListOffsets or Fetch */
	int64_t position;       /* the next record that is given out; HF_OFFSET_BEGIN, HF_OFFSET_END */
	int64_t next_base;      /* of the next batch; -1: any that has `position` */
	int64_t end;            /* from the broker; TCP */
	uint64_t again_ns;
	uint32_t life, asked_life; /* of the pending request: a response to an earlier one is ignored */
	/* what was read */
	uint8_t *buffer;
	struct hf_vmr *buffer_mr; /* with a node */
	uint32_t room, from, to;
	struct batch batch; /* the one that is being given out */
	struct records_reader reader;
	bool in_batch;
	struct compression_buffer unpacked; /* records of a batch that was compressed */
	bool unpacked_given;                /* some of them, in this poll: they stay where they are */
	/* DIRECT */
	struct consumer_session *session;
	uint64_t address;
	uint32_t key, place, readable,
		reading; /* place: in the segment, of `to`; reading: bytes that are on their way */
	uint16_t slot, generation, request;
	uint64_t first_look;                /* which has the slot */
	bool complete;                      /* `readable` is all there will be */
	bool withdrawn;                     /* the slot belongs to another reader */
	struct consumer_session *in_flight; /* has a READ into the buffer, of this life or an earlier one */
};

enum consumer_session_state {
	SESSION_DOWN,       /* waits for its time */
	SESSION_ASKING,     /* the answer to Access */
	SESSION_CONNECTING, /* its vqp */
	SESSION_UP,
	SESSION_STATES,
};

/* With one broker. */
struct consumer_session {
	struct hf_consumer *consumer;
	struct list node;
	struct leaders_broker *broker;
	enum consumer_session_state state;
	struct kafka_call call;
	struct direct_end end; /* its memory: the slots as they were read, receives, sends */
	uint64_t progress_ns;  /* the last completion, or what had to wait for none */
	uint64_t slots_address, again_ns, connect_end_ns, look_number, looked_number;
	uint32_t slots_key, looked_slots, free_sends[RDMA_READER_RECEIVES], free_count;
	uint32_t reading;            /* READs under way */
	uint16_t requests, released; /* the last ATTACH, and the last before a RELEASE */
	bool lost, looking;          /* looking: the READ of the slots is under way */
	bool progress;               /* something came but a look that found nothing new */
	bool full; /* the broker has no slot left for it: other partitions are read over TCP until one is released */
};

struct hf_consumer {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_consumer_config config;
	struct leaders leaders;
	struct hf_vpd *pd;
	struct list partitions, sessions;
	struct membership *membership; /* NULL: it is in no group */
	struct hf_timer timer;
	struct hf_consumer_stats stats;
};

/* consumer.c */
void consumer_move(struct consumer_partition *partition, enum consumer_way to);
/* From the beginning of `position`, after a while unless `at_once`. What was read and not given out is dropped. */
void consumer_begin_anew(struct consumer_partition *partition, bool at_once);
/* Makes room for this many bytes behind `to`; drops returned records. False: no memory. No READ is in flight. */
bool consumer_make_room(struct consumer_partition *partition, uint32_t bytes);
/* Reads nothing until offsets are sought. What polls gave out stays until the next one. */
void consumer_stop_all(struct hf_consumer *consumer);
/* It was read to the end, as of the last look or Fetch. */
bool consumer_at_end(const struct consumer_partition *partition);
/* The offset is not there any more. */
void consumer_reset(struct consumer_partition *partition);

/* consumer_tcp.c */
void consumer_tcp_turn(struct consumer_partition *partition, uint64_t now_ns);

/* consumer_direct.c: true: something was done */
bool consumer_direct_turn(struct hf_consumer *consumer, uint64_t now_ns);
/* Whether RDMA is to be had, or to be waited for, for this partition; ATTACHes it. */
bool consumer_direct_begin(struct consumer_partition *partition, uint64_t now_ns);
/* Gives its slot back. */
void consumer_direct_end(struct consumer_partition *partition);
void consumer_direct_close(struct hf_consumer *consumer);

#endif
