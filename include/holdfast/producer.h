/* producer.h - writes records into the topics of a broker, over RDMA where both have rails, over TCP where not.
 *
 * With RDMA a producer gets an exclusive grant of each partition that it writes: its record batches go by one-sided
 * WRITEs to where they stay, and the broker only checks and commits them (KafkaDirect, sections 4.2 and 5.1). Another
 * producer of that partition takes the grant back, as does the loss of all rails: then it goes on over TCP, and comes
 * back later. In every case each record is in the log once and in the order in which it was sent, because every
 * producer is idempotent.
 *
 * Owned by one loop, in whose turns it works; nothing here blocks but opening and closing, for registering memory. */
#ifndef HOLDFAST_PRODUCER_H
#define HOLDFAST_PRODUCER_H

#include <holdfast/node.h>

struct hf_producer;

enum hf_rdma_use {
	HF_RDMA_AUTO,     /* where it can be had */
	HF_RDMA_OFF,      /* never */
	HF_RDMA_REQUIRED, /* or not at all: records wait, until their time is over */
};

/* Of a batch's records, by Kafka's numbers. What does not become smaller is left as it is. */
enum hf_codec { HF_CODEC_NONE, HF_CODEC_GZIP, HF_CODEC_SNAPPY, HF_CODEC_LZ4, HF_CODEC_ZSTD, HF_CODECS };

struct hf_producer_config {
	const char *brokers;   /* "HOST:PORT,..." of Kafka's listeners, by addresses; copied */
	struct hf_addr local;  /* TCP leaves from here; no family: from anywhere */
	enum hf_rdma_use rdma; /* without a node: OFF */
	enum hf_codec codec;
	bool acks_leader;             /* acknowledged by the leader alone (acks=1), not by all replicas in sync */
	uint32_t batch_bytes;         /* of the largest batch: a record and some 110 bytes fit; 0: 65536 */
	uint32_t batch_records;       /* 1: no batching; 0: as many as fit */
	uint64_t buffer_bytes;        /* for batches that are not acknowledged; 0: 32 MiB */
	uint64_t linger_ns;           /* how long a batch waits for more; 0: while others are on their way */
	uint64_t request_timeout_ns;  /* of a request over TCP; 0: 30 s */
	uint64_t delivery_timeout_ns; /* of a record; 0: 120 s */
	uint64_t return_ns;           /* after a loss of RDMA it is tried again after this; 0: 500 ms */
};

/* node NULL: TCP alone; otherwise of the same loop, and closed after the producer. -EINVAL, -ENOMEM with words. */
int hf_producer_open(struct hf_loop *loop, struct hf_node *node, const struct hf_producer_config *config,
	struct hf_producer **producer_out, struct hf_error *error);
/* What was not acknowledged is not told, and may be in the log or not. NULL is legal. */
void hf_producer_close(struct hf_producer *producer);

/* As Java's producer chooses: by the hash of the key; without a key, one partition for a batch's worth of bytes, then
 * another. */
#define HF_PARTITION_ANY (-1)

struct hf_record {
	const char *topic;
	int32_t partition;       /* or HF_PARTITION_ANY */
	const void *key, *value; /* NULL: null; copied */
	size_t key_bytes, value_bytes;
	int64_t timestamp_ms; /* since 1970 */
};

/* What became of a record. */
struct hf_delivery {
	int error;      /* 0; -ETIMEDOUT: it may be in the log or not; -EIO: the broker refused it, and it is not */
	int refusal;    /* Kafka's error code of -EIO */
	int64_t offset; /* -1: not known */
	bool rdma;      /* it went over RDMA */
};
/* Called in a turn of the loop, or in hf_producer_poll; may send. */
typedef void hf_delivered(void *context, const struct hf_delivery *delivery);

/* Takes a record; `delivered` (NULL is legal) is called once. -EAGAIN: the buffer is full, or it is not
 * known yet how many partitions there are for HF_PARTITION_ANY: turn the loop; -EMSGSIZE: it does not fit into
 * batch_bytes; -EINVAL: no topic, or one that cannot be; -ENOMEM. */
int hf_producer_send(
	struct hf_producer *producer, const struct hf_record *record, hf_delivered *delivered, void *context);
/* Records that are not told of yet. A flush is turning the loop until this is 0; hf_producer_flush ends all
 * lingering. */
uint64_t hf_producer_pending(const struct hf_producer *producer);
void hf_producer_flush(struct hf_producer *producer);
/* Does what a turn of the loop does for this producer, but for its streams and timers: for programs that wait by
 * polling. True: something was done. */
bool hf_producer_poll(struct hf_producer *producer);

struct hf_producer_stats {
	uint64_t records, batches;        /* acknowledged */
	uint64_t rdma_batches;            /* of them over RDMA */
	uint64_t grants, losses, extents; /* grants that began, that were lost; extents after the first */
	uint64_t settled;                 /* batches that were found in the log after a loss */
};
void hf_producer_stats(const struct hf_producer *producer, struct hf_producer_stats *stats_out);

#endif
