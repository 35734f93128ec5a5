/* consumer.h - reads records of partitions, over RDMA where both sides have rails, over TCP where not.
 *
 * With RDMA a consumer READs the segments of a log by itself, up to the end of committed records in a slot: a fetch
 * uses no CPU of the broker, with or without new records (KafkaDirect, sections 4.4 and 5.3). Over shm it continues
 * to read while the broker's process is stopped.
 *
 * Owned by one loop. It works in hf_consumer_poll and in turns of the loop. Only opening, closing and, seldom, polling
 * block, to register memory. */
#ifndef HOLDFAST_CONSUMER_H
#define HOLDFAST_CONSUMER_H

#include <holdfast/producer.h>

struct hf_consumer;

#define HF_OFFSET_END   (-1) /* behind the last record */
#define HF_OFFSET_BEGIN (-2) /* the first record that is kept */

struct hf_consumer_config {
	const char *brokers;         /* "HOST:PORT,..." of Kafka's listeners, by addresses; copied */
	struct hf_addr local;        /* source address of TCP; no family: any */
	enum hf_rdma_use rdma;       /* without a node: OFF */
	uint32_t fetch_bytes;        /* of one READ or Fetch, but a batch at least; 0: 65536 */
	uint64_t request_timeout_ns; /* of a request over TCP; 0: 30 s */
	uint64_t return_ns;          /* from a loss of RDMA to the next attempt; 0: 500 ms */
	int64_t reset;               /* the next offset when one was deleted; 0: HF_OFFSET_BEGIN */
};

/* node NULL: TCP alone; otherwise of the same loop, and closed after the consumer. -EINVAL, -ENOMEM, with a text. */
int hf_consumer_open(struct hf_loop *loop, struct hf_node *node, const struct hf_consumer_config *config,
	struct hf_consumer **consumer_out, struct hf_error *error);
void hf_consumer_close(struct hf_consumer *consumer); /* NULL is legal */

/* Reads this partition too, from `offset` on, or HF_OFFSET_BEGIN or _END. Moves a partition that is already read.
 * -EINVAL: no topic; -ENOMEM. */
int hf_consumer_seek(struct hf_consumer *consumer, const char *topic, int32_t partition, int64_t offset);
/* The next offset to read; negative: not known yet, or the partition is not read. */
int64_t hf_consumer_position(const struct hf_consumer *consumer, const char *topic, int32_t partition);
/* True: the partition was read to the end, as of the last READ of a slot or Fetch. */
bool hf_consumer_at_end(const struct hf_consumer *consumer, const char *topic, int32_t partition);
/* The number of a topic's partitions; 0: not known yet, turn the loop and call again. */
int32_t hf_consumer_partitions(struct hf_consumer *consumer, const char *topic);

/* ---- groups: Kafka's classic protocol, over TCP ---- */

struct hf_group_config {
	const char *group;         /* copied, as the topics are */
	const char *const *topics; /* the topics of the group */
	unsigned topic_count;
	uint64_t session_ns;   /* a member that sends nothing for this long is removed; 0: 10 s */
	uint64_t rebalance_ns; /* the group waits this long for a poll when members come or go; 0: 60 s */
	uint64_t heartbeat_ns; /* 0: a third of the session, 3 s at most */
	uint64_t commit_ns;    /* between commits of polls; 0: 5 s; UINT64_MAX: only hf_consumer_commit commits */
};
/* Joins a group, once: from then on the consumer reads the partitions that the group assigns (assignor `range`), each
 * from the committed offset, or from config.reset. In a poll after members have come or gone it commits, unless
 * commit_ns is UINT64_MAX, gives up all partitions and joins again. -EINVAL; -ENOMEM; -EBUSY: it has joined before. */
int hf_consumer_join(struct hf_consumer *consumer, const struct hf_group_config *config);
/* 0: committed; -EAGAIN: the commit may have taken effect or not, commit again; -ESTALE: the group has assigned the
 * partitions to other members. Called in a turn of the loop, or in a poll. */
typedef void hf_committed(void *context, int error);
/* Commits the position of every partition that is read; `committed` (NULL is legal) is called once. -EINVAL: the
 * consumer is in no group; -EAGAIN: it is no member at present, or reads nothing; -EBUSY: a commit is in progress. */
int hf_consumer_commit(struct hf_consumer *consumer, hf_committed *committed, void *context);
/* Commits, unless commit_ns is UINT64_MAX, and leaves the group; done when hf_consumer_group sets is_over. Until then
 * turn the loop and poll; polls return no more messages. */
void hf_consumer_leave(struct hf_consumer *consumer);

struct hf_consumer_group {
	int32_t generation;  /* -1: the consumer is no member, or waits for the others */
	unsigned partitions; /* that it reads */
	bool at_end;         /* it is a member, and has read all of them to the end, as of the last slot or Fetch */
	bool is_over;        /* it has left; or it was refused, and does not join again */
	int refusal;         /* Kafka's error code with which the group refused it, or 0 */
};
void hf_consumer_group(const struct hf_consumer *consumer, struct hf_consumer_group *group_out);

struct hf_message {
	const char *topic;
	int32_t partition;
	int64_t offset, timestamp_ms;
	const void *key, *value; /* NULL: null; valid until the next poll */
	size_t key_bytes, value_bytes;
};
/* Fills at most n messages, in the order of each partition; 0: there are none for now. Does not wait: with RDMA each
 * call without messages has read the slot, or a READ of it is in flight. Compressed batches are unpacked.
 * -EPROTONOSUPPORT: a batch has an unknown codec; -EBADMSG: its records do not match the codec or their count;
 * -EMSGSIZE: they have more than 64 MiB; -ENOMEM. Such a batch blocks its partition until hf_consumer_seek.
 * -EACCES: the group has refused the consumer. */
int hf_consumer_poll(struct hf_consumer *consumer, struct hf_message *messages, int n);

struct hf_consumer_stats {
	uint64_t records, rdma_records;
	uint64_t looks;        /* READs of slots */
	uint64_t reads;        /* READs of segments */
	uint64_t attached;     /* segments */
	uint64_t losses, anew; /* of RDMA; invalid batches that were read again */
};
void hf_consumer_stats(const struct hf_consumer *consumer, struct hf_consumer_stats *stats_out);

#endif
