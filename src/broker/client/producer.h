/* producer.h - the inside of a producer: partitions and batches, over RDMA or TCP.
 *
 * A partition has batches in two lists: `queued`, not sent, and `sent`, sent in the order of their sequences and not
 * acknowledged. After a loss these are settled before anything else is sent: the producer requests (Access) the last
 * sequence in the log, once no grant can change it any more. Batches up to it were delivered; the others return to
 * `queued` and get new sequences. Each partition has a producer id of its own, so that one can restart alone. */
#ifndef HOLDFAST_BROKER_CLIENT_PRODUCER_H
#define HOLDFAST_BROKER_CLIENT_PRODUCER_H

#include <holdfast/grant.h>
#include <holdfast/producer.h>

#include "broker/client/direct_end.h"
#include "broker/client/leaders.h"
#include "broker/kafka_error.h"
#include "broker/log/records.h"

/* What a partition waits for. */
enum producer_way {
	PRODUCER_NEW,        /* its leader, and a producer id */
	PRODUCER_ASKING,     /* the answer to Access */
	PRODUCER_CONNECTING, /* its vqp */
	PRODUCER_DIRECT,     /* batches go by RDMA */
	PRODUCER_TCP,        /* batches go by Produce, one at a time */
	PRODUCER_WAYS,
};

struct producer_delivery {
	hf_delivered *delivered;
	void *context;
};

struct produce_batch {
	struct list node;
	uint8_t *data; /* of batch_bytes, within the registered buffer */
	struct records_writer writer;
	struct producer_delivery *deliveries;
	uint32_t delivery_room, bytes;
	int32_t sequence;       /* of the first record, once it is sent */
	uint16_t order, extent; /* DIRECT */
	uint64_t born_ns;       /* when its first record came */
	bool closed, packed;    /* no more records; they were compressed, if that helps */
	bool posted, answered;  /* DIRECT: its wr has not completed; it has its answer: whichever comes last frees it */
};

struct producer_partition {
	struct hf_producer *producer;
	struct list node, queued, sent, posted; /* posted: answered, and their wrs have not completed */
	struct leaders_topic *topic;
	int32_t index;
	enum producer_way way;
	struct leaders_broker *leader;
	struct kafka_call call; /* InitProducerId, Access or Produce: one at a time */
	int64_t id;             /* the producer id; -1: none */
	int16_t epoch;
	int32_t next_sequence;
	uint64_t again_ns, return_ns; /* no request before this time; no attempt of RDMA before this time */
	/* DIRECT and CONNECTING */
	struct direct_end end;                         /* its memory: receives, then OVERRUN */
	uint64_t address, connect_end_ns, progress_ns; /* progress: the last answer, or what had to wait for none */
	uint32_t key, extent_bytes, used, batch_max, credits, said;
	uint16_t extent, order;
	bool lost, wants_extent; /* the grant is over; OVERRUN is out */
	bool turning;
};

struct hf_producer {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_producer_config config;
	struct leaders leaders;
	struct hf_vpd *pd;
	uint8_t *buffer;
	struct hf_vmr *buffer_mr;
	struct produce_batch *batches;
	uint64_t batch_count;
	uint8_t *packed; /* a batch's worth of what a codec makes */
	struct list free, partitions;
	struct producer_partition *last; /* that was sent to */
	struct hf_poller poller;
	struct hf_timer timer;
	uint64_t pending;
	bool flushing;
	struct hf_producer_stats stats;
};

/* producer.c */
void producer_move(struct producer_partition *partition, enum producer_way to);
/* Others are on their way, so the next batch of `queued`, which is not empty, takes more records meanwhile. To look for
 * answers costs more than to add a record. */
bool producer_gathers(const struct producer_partition *partition);
/* Takes the next batch that may be sent from `queued` to `sent`, sealed; NULL: none yet. */
struct produce_batch *producer_next(struct producer_partition *partition, uint64_t now_ns);
/* Reports all records; the batch is free unless its wr is in flight. */
void producer_delivered(
	struct producer_partition *partition, struct produce_batch *batch, const struct hf_delivery *delivery);
void producer_free_batch(struct producer_partition *partition, struct produce_batch *batch);
/* Back to the front of `queued`, with new sequences. None of them is in the log. */
void producer_requeue(struct producer_partition *partition);

/* producer_tcp.c: the calls of a partition */
bool producer_tcp_is_retriable(int16_t error); /* the record is sent again, perhaps to another leader */
bool producer_tcp_turn(struct producer_partition *partition, uint64_t now_ns);

/* producer_direct.c: the grant of a partition */
int producer_direct_connect(struct producer_partition *partition, const struct kafka_access_response *access);
bool producer_direct_turn(struct producer_partition *partition, uint64_t now_ns);
/* The vqp ends; what it had posted is in `sent` and not settled. */
void producer_direct_close(struct producer_partition *partition);

#endif
