/* stand.h - a broker and clients with rails, on one loop, for tests. */
#ifndef HOLDFAST_TESTS_UNIT_BROKER_STAND_H
#define HOLDFAST_TESTS_UNIT_BROKER_STAND_H

#include <holdfast/consumer.h>

#include "../vqp/pair.h"
#include "broker/broker.h"

#define STAND_TOPIC       "t"
#define STAND_PATIENCE_NS 20000000000ull /* of every wait: it bounds a failure, and decides nothing else */

struct stand {
	struct pair pair; /* a: of clients, b: of the broker */
	struct broker_config config;
	struct broker *broker;
	char directory[64], address[64];
	struct hf_producer *producer;
	struct hf_consumer *consumer;
	unsigned told, failed, rdma; /* deliveries; of them refused, and over RDMA */
	int64_t next_offset;         /* of the last delivery */
	int refusal;
};

extern struct stand stand;

/* A broker with one topic of two partitions, segments of so many bytes, extents of so many. */
void stand_open(uint32_t segment_bytes, uint32_t extent_bytes);
void stand_close(void);
/* Of a producer with this configuration, whose `brokers` is filled in. */
void stand_open_producer(const struct hf_producer_config *config);
void stand_open_consumer(const struct hf_consumer_config *config);
/* Sends records with numbers from, from + 1, ... and waits until all are told. */
void stand_send_all(int32_t partition, uint64_t from, uint64_t count, uint32_t bytes);
/* Polls until `count` records came, whose numbers are to be from, from + 1, ... their offsets those plus `shift`. */
void stand_receive(uint64_t from, uint64_t count, int64_t shift);
/* A record whose value is `number` and `bytes` bytes in all. */
int stand_send(int32_t partition, uint64_t number, uint32_t bytes);
/* Turns until done(); fails the test when that takes more than 20 s. */
void stand_until(bool (*done)(void));
bool stand_is_flushed(void);
struct partition *stand_partition(int32_t index);
/* Reads [0, end) of the partition over its log: fails unless the numbers are from, from + 1, ... */
void stand_check_numbers(int32_t index, uint64_t from, uint64_t count);

#endif
