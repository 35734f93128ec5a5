/* engine.h - an engine's objects and their relations; private to src/transfer.
 *
 *   engine -- buffers (our segment), batches
 *    |-- peers -- segment, lanes of each rail, tcp lines
 *    |-- transports (memcpy, shm, rdma, tcp), ranked
 *    |-- passive lanes (vqps that peers' lanes end in), tcp target */
#ifndef HOLDFAST_TRANSFER_ENGINE_H
#define HOLDFAST_TRANSFER_ENGINE_H

#include <holdfast/channel.h>
#include <holdfast/transfer.h>
#include <holdfast/vqp.h>

#include "transfer/batch.h"
#include "transfer/buffers.h"
#include "transfer/memcpy.h"
#include "transfer/notify.h"
#include "transfer/peer.h"
#include "transfer/probe.h"
#include "transfer/tcp_target.h"

struct hf_transfer {
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_transfer_events events;
	void *context;
	uint64_t incarnation;
	struct hf_node_listener lease; /* R-T4 */
	bool listens;
	enum hf_transfer_fallback fallback;
	bool merge_requests;
	struct hf_channel *channel, *notices;
	struct hf_vqp_service service;
	bool served;
	struct hf_vpd *pd;
	struct hf_vcq *passive_cq;
	struct list passives;
	struct buffers buffers;
	struct probe_memory probe;
	struct tcp_target *target;
	struct memcpy_transport own;
	struct rdma_transport shm, rdma;
	struct tcp_transport tcp;
	struct owner_context owners;
	struct metrics metrics;
	struct list peers;
	union wire_message *said, *heard; /* the last segment; too large for the stack */
	uint8_t *wire;                    /* its bytes, WIRE_BYTES_MAX */
	unsigned batches;
	struct hf_poller poller;
	struct hf_timer timer;
	bool attached;
};

/* peers.c */
extern const struct hf_channel_events peers_channel_events;
void peers_tell_segment(struct hf_transfer *engine); /* to all of them: our buffers have changed */
bool peers_turn(struct hf_transfer *engine, uint64_t now_ns);
uint64_t peers_wake_ns(const struct hf_transfer *engine);
void peers_close(struct hf_transfer *engine);
bool peers_admit(void *engine, uint64_t initiator, uint32_t epoch); /* tcp_target_config */
uint64_t peers_lease_until_ns(void *engine, uint64_t initiator);    /* likewise */

/* page.c */
int page_open(struct hf_transfer *engine);
void page_close(struct hf_transfer *engine);

/* release.c */
bool release_turn(struct hf_transfer *engine, uint64_t now_ns); /* finishes to unregister what may be */

/* passive.c */
struct hf_vqp *passive_accept(
	const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *engine); /* hf_vqp_service */
bool passive_turn(struct hf_transfer *engine);
void passive_close(struct hf_transfer *engine);

#endif
