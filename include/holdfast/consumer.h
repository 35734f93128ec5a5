/* consumer.h - reads records of partitions, over RDMA where both sides have rails, over TCP where not.
 *
 * With RDMA a consumer READs the segments of a log by itself, up to where a slot says that it may: neither finding
 * records nor finding that there are none costs the broker's CPU anything (KafkaDirect, sections 4.4 and 5.3). Over shm
 * it reads on while the broker's process is stopped.
 *
 * Owned by one loop. It works in hf_consumer_poll and in turns of the loop; nothing here blocks but opening, closing
 * and, seldom, polling, for registering memory. */
#ifndef HOLDFAST_CONSUMER_H
#define HOLDFAST_CONSUMER_H

#include <holdfast/producer.h>

struct hf_consumer;

#define HF_OFFSET_END   (-1) /* behind the last record */
#define HF_OFFSET_BEGIN (-2) /* the first record that is kept */

struct hf_consumer_config {
	const char *brokers;         /* "HOST:PORT,..." of Kafka's listeners, by addresses; copied */
	struct hf_addr local;        /* TCP leaves from here; no family: from anywhere */
	enum hf_rdma_use rdma;       /* without a node: OFF */
	uint32_t fetch_bytes;        /* of one READ or Fetch, but a batch at least; 0: 65536 */
	uint64_t request_timeout_ns; /* of a request over TCP; 0: 30 s */
	uint64_t return_ns;          /* after a loss of RDMA it is tried again after this; 0: 500 ms */
	int64_t reset;               /* where to go on when an offset is not there any more; 0: HF_OFFSET_BEGIN */
};

/* node NULL: TCP alone; otherwise of the same loop, and closed after the consumer. -EINVAL, -ENOMEM with words. */
int hf_consumer_open(struct hf_loop *loop, struct hf_node *node, const struct hf_consumer_config *config,
	struct hf_consumer **consumer_out, struct hf_error *error);
void hf_consumer_close(struct hf_consumer *consumer); /* NULL is legal */

/* Reads this partition too, from `offset` on, or HF_OFFSET_BEGIN or _END. One that is read already goes on there.
 * -EINVAL: no topic; -ENOMEM. */
int hf_consumer_seek(struct hf_consumer *consumer, const char *topic, int32_t partition, int64_t offset);
/* Where it will go on; negative: not known yet, or not read. */
int64_t hf_consumer_position(const struct hf_consumer *consumer, const char *topic, int32_t partition);
/* True: it was read to the end, as of the last look or Fetch. */
bool hf_consumer_at_end(const struct hf_consumer *consumer, const char *topic, int32_t partition);
/* Of a topic; 0: not known yet, turn the loop and ask again. */
int32_t hf_consumer_partitions(struct hf_consumer *consumer, const char *topic);

/* ---- groups: Kafka's classic protocol, over TCP ---- */

struct hf_group_config {
	const char *group;         /* copied, as the topics are */
	const char *const *topics; /* all whose partitions it wants a share of */
	unsigned topic_count;
	uint64_t session_ns;   /* not heard for so long, it is out; 0: 10 s */
	uint64_t rebalance_ns; /* so long the group waits for a poll when members come or go; 0: 60 s */
	uint64_t heartbeat_ns; /* 0: a third of the session, 3 s at most */
	uint64_t commit_ns;    /* so often a poll commits; 0: 5 s; UINT64_MAX: only hf_consumer_commit does */
};
/* Joins a group, once: from then on it reads the partitions that the group gives it (assignor `range`), each from where
 * the group was, or from config.reset. In a poll after members have come or gone it commits, unless commit_ns is
 * UINT64_MAX, gives all partitions up and joins again. -EINVAL; -ENOMEM; -EBUSY: it has joined one before. */
int hf_consumer_join(struct hf_consumer *consumer, const struct hf_group_config *config);
/* 0: committed; -EAGAIN: it may be in the group or not, commit again; -ESTALE: the group has given the partitions to
 * others. In a turn of the loop, or in a poll. */
typedef void hf_committed(void *context, int error);
/* Commits where it will go on, of all that it reads; `committed` (NULL is legal) is called once. -EINVAL: it is in no
 * group; -EAGAIN: it is no member for now, or reads nothing; -EBUSY: another commit is under way. */
int hf_consumer_commit(struct hf_consumer *consumer, hf_committed *committed, void *context);
/* Commits, unless commit_ns is UINT64_MAX, and leaves the group; over when hf_consumer_group says so. Until then turn
 * the loop and poll, which gives out nothing any more. */
void hf_consumer_leave(struct hf_consumer *consumer);

struct hf_consumer_group {
	int32_t generation;  /* -1: it is no member, or waits for the others */
	unsigned partitions; /* that it reads */
	bool at_end;         /* it is a member, and has read all of them to the end, as of the last look or Fetch */
	bool is_over;        /* it has left; or refused, it does not join again */
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
 * call that finds nothing has looked, or looks on. What is compressed is unpacked.
 * -EPROTONOSUPPORT: a batch has a codec that is not known; -EBADMSG: its records are not what the codec or their count
 * says; -EMSGSIZE: they are more than 64 MiB; -ENOMEM. Such a batch is in the way until another offset is sought.
 * -EACCES: the group has refused the consumer. */
int hf_consumer_poll(struct hf_consumer *consumer, struct hf_message *messages, int n);

struct hf_consumer_stats {
	uint64_t records, rdma_records;
	uint64_t looks;        /* READs of slots */
	uint64_t reads;        /* READs of segments */
	uint64_t attached;     /* segments */
	uint64_t losses, anew; /* of RDMA; batches that were not what they had to be, and were read anew */
};
void hf_consumer_stats(const struct hf_consumer *consumer, struct hf_consumer_stats *stats_out);

#endif
