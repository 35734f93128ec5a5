/* consumer_session.h - a consumer's session with one broker: a vqp through which all its partitions there are read.
 *
 * Its memory has the slots as they were read, then receives, then sends. */
#ifndef HOLDFAST_BROKER_CLIENT_CONSUMER_SESSION_H
#define HOLDFAST_BROKER_CLIENT_CONSUMER_SESSION_H

#include "broker/client/consumer.h"

#define SLOTS_BYTES   (RDMA_SLOTS * RDMA_SLOT_BYTES)
#define RECEIVE_BYTES 64u
#define SEND_BYTES    512u
#define RECEIVES_AT   SLOTS_BYTES
#define SENDS_AT      (RECEIVES_AT + RDMA_READER_RECEIVES * RECEIVE_BYTES)
#define MEMORY_BYTES  (SENDS_AT + RDMA_READER_RECEIVES * SEND_BYTES)
#define READS         64u /* under way; shm and soft take 16 of them at a time */
#define SENDS         (READS + RDMA_READER_RECEIVES)
#define CQE           (SENDS + RDMA_READER_RECEIVES)

/* wr_ids: what it is, and for READs of segments the partition's number in the list. */
#define WR_KIND    60
#define WR_RECEIVE 1ull
#define WR_SEND    2ull
#define WR_LOOK    3ull
#define WR_READ    4ull
#define WR_WHICH   ((1ull << WR_KIND) - 1)

/* NULL: no memory. */
struct consumer_session *consumer_session_of(struct hf_consumer *consumer, struct leaders_broker *broker);
/* DOWN: requests access, and connects when it has it. */
void consumer_session_ask(struct consumer_session *session);
/* CONNECTING: looks whether it is UP. */
void consumer_session_connecting(struct consumer_session *session, uint64_t now_ns);
/* Its partitions go on over TCP, until it is up again. */
void consumer_session_lose(struct consumer_session *session);
void consumer_session_close(struct consumer_session *session); /* its vqp and memory */

bool consumer_session_post_receive(struct consumer_session *session, uint32_t number);
/* By SEND. False: too many are under way. */
bool consumer_session_say(struct consumer_session *session, const uint8_t *data, uint32_t bytes);

#endif
