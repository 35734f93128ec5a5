/* producer.h - writes records into the topics of a broker, over RDMA where both have rails, over TCP where not.
 *
 * With RDMA a producer gets an exclusive grant of each partition that it writes: one-sided WRITEs put its record
 * batches at their final place, and the broker only checks and commits them (KafkaDirect, sections 4.2 and 5.1).
 * Another producer of that partition ends the grant, as does the loss of all rails: then the producer continues over
 * TCP, and returns to RDMA later. In every case each record is in the log once and in the order in which it was sent,
 * because every producer is idempotent.
 *
 * Owned by one loop, in whose turns it works. Only opening and closing block, to register memory. */
#ifndef HOLDFAST_PRODUCER_H
#define HOLDFAST_PRODUCER_H

#include <holdfast/node.h>

struct hf_producer;

enum hf_rdma_use {
	HF_RDMA_AUTO,     /* where available, else TCP */
	HF_RDMA_OFF,      /* never */
	HF_RDMA_REQUIRED, /* without RDMA records wait, until their delivery_timeout_ns is over */
};

/* Of a batch's records, by Kafka's numbers. A batch that does not shrink stays uncompressed. */
enum hf_codec { HF_CODEC_NONE, HF_CODEC_GZIP, HF_CODEC_SNAPPY, HF_CODEC_LZ4, HF_CODEC_ZSTD, HF_CODECS };

struct hf_producer_config {
	const char *brokers;   /* "HOST:PORT,..." of Kafka's listeners, by addresses; copied */
	struct hf_addr local;  /* source address of TCP; no family: any */
	enum hf_rdma_use rdma; /* without a node: OFF */
	enum hf_codec codec;
	bool acks_leader;             /* acknowledged by the leader alone (acks=1), not by all replicas in sync */
	uint32_t batch_bytes;         /* of the largest batch: a record and some 110 bytes fit; 0: 65536 */
	uint32_t batch_records;       /* 1: no batching; 0: as many as fit */
	uint64_t buffer_bytes;        /* for batches that are not acknowledged; 0: 32 MiB */
	uint64_t linger_ns;           /* how long a batch waits for more records; 0: while others are in flight */
	uint64_t request_timeout_ns;  /* of a request over TCP; 0: 30 s */
	uint64_t delivery_timeout_ns; /* of a record; 0: 120 s */
	uint64_t return_ns;           /* from a loss of RDMA to the next attempt; 0: 500 ms */
};

/* node NULL: TCP alone; otherwise of the same loop, and closed after the producer. -EINVAL, -ENOMEM, with a text. */
int hf_producer_open(struct hf_loop *loop, struct hf_node *node, const struct hf_producer_config *config,
	struct hf_producer **producer_out, struct hf_error *error);
/* Records without an acknowledgement may be in the log or not; hf_delivered is not called. NULL is legal. */
void hf_producer_close(struct hf_producer *producer);

/* The choice of Java's producer: by the hash of the key; without a key, one partition for a batch's worth of bytes,
 * then another. */
#define HF_PARTITION_ANY (-1)

struct hf_record {
	const char *topic;
	int32_t partition;       /* or HF_PARTITION_ANY */
	const void *key, *value; /* NULL: null; copied */
	size_t key_bytes, value_bytes;
	int64_t timestamp_ms; /* since 1970 */
};

/* The outcome of a record. */
struct hf_delivery {
	int error;   /* 0; -ETIMEDOUT: it may be in the log or not; -EIO: the broker refused it, it is not in the log */
	int refusal; /* Kafka's error code of -EIO */
	int64_t offset; /* -1: not known */
	bool rdma;      /* it went over RDMA */
};
/* Called in a turn of the loop, or in hf_producer_poll; may send. */
typedef void hf_delivered(void *context, const struct hf_delivery *delivery);

/* Accepts a record; `delivered` (NULL is legal) is called once. -EAGAIN: the buffer is full, or the number of
 * partitions for HF_PARTITION_ANY is not known yet: turn the loop; -EMSGSIZE: the record does not fit into batch_bytes;
 * -EINVAL: no topic, or an invalid name; -ENOMEM. */
int hf_producer_send(
	struct hf_producer *producer, const struct hf_record *record, hf_delivered *delivered, void *context);
/* Records without an outcome yet. To flush, call hf_producer_flush, which ends all lingering, and turn the loop until
 * this is 0. */
uint64_t hf_producer_pending(const struct hf_producer *producer);
void hf_producer_flush(struct hf_producer *producer);
/* Does the work of a loop's turn for this producer, except streams and timers: for programs that wait by polling. True:
 * there was work. */
bool hf_producer_poll(struct hf_producer *producer);

struct hf_producer_stats {
	uint64_t records, batches;        /* acknowledged */
	uint64_t rdma_batches;            /* of them over RDMA */
	uint64_t grants, losses, extents; /* grants begun, grants lost; extents after the first */
	uint64_t settled;                 /* batches that were found in the log after a loss */
};
void hf_producer_stats(const struct hf_producer *producer, struct hf_producer_stats *stats_out);

#endif
