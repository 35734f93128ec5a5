#include "dev/soft/dc.h"

#include <errno.h>
#include <stdlib.h>

#include "dev/qp_rules.h"

#define STREAMS_MAX     1024u
#define STREAMS_BUCKETS 256u
#define KEEP_PACKETS    (1u << 16) /* a stream is forgotten for a new one after this many packets to others */

struct stream {
	struct responder responder;
	struct flow flow;
	uint64_t life, fenced_life; /* what is of the fenced one, or older, is dropped */
	uint64_t last_used;         /* in packets that the target received */
	bool used;
	struct stream *next; /* in its bucket */
};

struct dc_streams {
	struct soft_qp *qp;
	uint64_t received;
	bool forgot_some; /* of those that were evicted nothing is known */
	struct stream *buckets[STREAMS_BUCKETS];
	struct stream *streams[STREAMS_MAX]; /* the first `count` exist */
	unsigned count;
};

int dc_streams_create(struct soft_qp *qp, struct dc_streams **streams_out)
{
	*streams_out = calloc(1, sizeof(**streams_out));
	if (*streams_out == NULL)
		return -ENOMEM;
	(*streams_out)->qp = qp;
	return 0;
}

static void unlink_stream(struct dc_streams *streams, struct stream *stream)
{
	struct stream **at = &streams->buckets[stream->flow.dest_qpn % STREAMS_BUCKETS];

	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	responder_forget(&stream->responder);
	stream->used = false;
}

void dc_streams_forget(struct dc_streams *streams)
{
	for (unsigned i = 0; i < streams->count; i++)
		if (streams->streams[i]->used)
			unlink_stream(streams, streams->streams[i]);
}

void dc_streams_destroy(struct dc_streams *streams)
{
	if (streams == NULL)
		return;
	dc_streams_forget(streams);
	for (unsigned i = 0; i < streams->count; i++)
		free(streams->streams[i]);
	free(streams);
}

void dc_streams_stop(struct dc_streams *streams)
{
	for (unsigned i = 0; i < streams->count; i++)
		if (streams->streams[i]->used)
			responder_stop(&streams->streams[i]->responder);
}

void dc_streams_silence(struct dc_streams *streams)
{
	for (unsigned i = 0; i < streams->count; i++)
		if (streams->streams[i]->used)
			responder_silence(&streams->streams[i]->responder);
}

static struct stream *find_stream(struct dc_streams *streams, const struct hf_addr *peer, uint32_t source_qpn)
{
	struct stream *stream = streams->buckets[source_qpn % STREAMS_BUCKETS];

	while (stream != NULL && (stream->flow.dest_qpn != source_qpn || !flow_is_from(&stream->flow, peer)))
		stream = stream->next;
	return stream;
}

/* The only memory that a packet can make us take: so much for each initiator that knows the key, up to a limit. */
static struct stream *make_stream(struct dc_streams *streams)
{
	struct stream *stream = streams->count == STREAMS_MAX ? NULL : calloc(1, sizeof(*stream));

	if (stream == NULL)
		return NULL;
	list_init(&stream->responder.busy);
	streams->streams[streams->count++] = stream;
	return stream;
}

/* A free stream, or one that was not heard of for so long that no copy of its packets can be on its way. */
static struct stream *free_stream(struct dc_streams *streams)
{
	struct stream *oldest = NULL, *made;

	for (unsigned i = 0; i < streams->count; i++) {
		struct stream *stream = streams->streams[i];

		if (!stream->used)
			return stream;
		if (oldest == NULL || stream->last_used < oldest->last_used)
			oldest = stream;
	}
	made = make_stream(streams);
	if (made != NULL || oldest == NULL)
		return made;
	if (streams->received - oldest->last_used < KEEP_PACKETS)
		return NULL;
	unlink_stream(streams, oldest);
	streams->forgot_some = true;
	return oldest;
}

static struct stream *add_stream(struct dc_streams *streams, const struct flow *flow)
{
	struct stream *stream = free_stream(streams), **bucket;

	if (stream == NULL)
		return NULL;
	bucket = &streams->buckets[flow->dest_qpn % STREAMS_BUCKETS];
	stream->flow = *flow;
	stream->used = true;
	stream->life = stream->fenced_life = 0;
	stream->next = *bucket;
	*bucket = stream;
	responder_init(&stream->responder, streams->qp, &stream->flow);
	return stream;
}

static void connect_stream(struct stream *stream, const struct packet *packet)
{
	struct responder *responder = &stream->responder;

	if (packet->va < stream->life || packet->va <= stream->fenced_life)
		return; /* late, of a former use of that initiator */
	if (packet->va > stream->life) {
		responder_forget(responder);
		stream->life = packet->va;
		responder_start(responder, packet->psn);
	} else if (psn_diff(packet->psn, responder->expected) > 0) {
		responder_start(responder, packet->psn); /* it spoke to others meanwhile */
		responder->nak_sent = false;
	}
}

static void refuse_key(struct dc_streams *streams, struct flow *flow, const struct packet *packet)
{
	struct engine *engine = streams->qp->engine;
	struct packet answer = {.opcode = PACKET_ACK, .psn = packet->psn, .syndrome = SYNDROME_NAK | NAK_REMOTE_ACCESS};
	uint8_t *payload, *at = flow_packet(flow, &engine->tx, &answer, &payload);

	if (at == NULL)
		return; /* it will ask again */
	flow_seal(flow, at, &answer);
	engine->counters.naks_sent++;
}

bool dc_receive(struct soft_qp *target, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes,
	const struct packet *packet)
{
	struct dc_streams *streams = target->streams;
	enum ibv_qp_state state = qp_state(target);
	struct stream *stream = find_stream(streams, peer, packet->source_qpn);
	struct flow flow, *from = stream == NULL ? &flow : &stream->flow;

	if (stream == NULL)
		flow_init_addr(&flow, &target->engine->local, peer, packet->source_qpn);
	if (!packet_icrc_good(&from->in, hf_addr_port(peer), place, data, bytes))
		return false;
	if (state != IBV_QPS_RTR && state != IBV_QPS_RTS)
		return true; /* as if it were lost */
	if (packet->dc_key != target->dc_key) {
		refuse_key(streams, from, packet);
		return true;
	}
	streams->received++;
	if (stream == NULL && (packet->traits & PACKET_IS_CONNECT))
		stream = add_stream(streams, &flow);
	if (stream == NULL)
		return true; /* its connect packet was lost, and is sent again when the initiator goes back */
	stream->last_used = streams->received;
	if (packet->traits & PACKET_IS_CONNECT)
		connect_stream(stream, packet);
	else if (!stream->responder.fatal && stream->life > stream->fenced_life &&
		 packet->source_use == (uint8_t)stream->life)
		responder_receive(&stream->responder, packet);
	return true;
}

/* ---- evidence ---- */

static int flow_of_source(const struct dc_streams *streams, const struct hf_dc_source *source, struct flow *flow_out)
{
	return flow_init(flow_out, &streams->qp->engine->local, &source->gid, source->qp_num);
}

int dc_fence(struct dc_streams *streams, const struct hf_dc_source *source)
{
	struct stream *stream;
	struct flow flow;
	int rc = flow_of_source(streams, source, &flow);

	if (rc != 0)
		return rc;
	stream = find_stream(streams, &flow.peer, source->qp_num);
	if (stream == NULL)
		stream = add_stream(streams, &flow);
	if (stream == NULL)
		return -ENOSPC;
	stream->last_used = streams->received;
	if (stream->fenced_life < source->use)
		stream->fenced_life = source->use;
	if (stream->life <= stream->fenced_life) {
		stream->responder.fatal = false; /* a refusal that has not left yet is not to leave any more */
		responder_stop(&stream->responder);
	}
	return 0;
}

int dc_evidence(struct dc_streams *streams, const struct hf_dc_source *source, const struct responder **responder_out)
{
	struct stream *stream;
	struct flow flow;
	int rc = flow_of_source(streams, source, &flow);

	if (rc != 0)
		return rc;
	stream = find_stream(streams, &flow.peer, source->qp_num);
	if (stream == NULL || stream->life < source->use)
		return streams->forgot_some ? -ENODATA : -ENOENT;
	if (stream->life > source->use)
		return -ENODATA;
	*responder_out = &stream->responder;
	return 0;
}

/* ---- initiator ---- */

static bool same_dest(const struct hf_dc_dest *a, const struct hf_dc_dest *b)
{
	return a->dct_num == b->dct_num && a->dc_key == b->dc_key &&
	       a->gid.global.subnet_prefix == b->gid.global.subnet_prefix &&
	       a->gid.global.interface_id == b->gid.global.interface_id;
}

enum dc_ready dc_connect(struct requester *requester, const struct send_slot *slot)
{
	struct soft_qp *qp = requester->qp;
	struct packet packet = {.opcode = PACKET_DC_CONNECT,
		.traits = packet_traits(PACKET_DC_CONNECT),
		.psn = (uint32_t)requester->next & 0xffffff,
		.va = requester->life,
		.dc_key = slot->dest.dc_key,
		.source_qpn = qp->base.qp_num,
		.source_use = (uint8_t)requester->life};
	uint8_t *payload, *at;

	if (!same_dest(&requester->dest, &slot->dest)) {
		if (requester->acked != requester->next)
			return DC_WAIT;
		/* An unreachable gid was refused when the wr was posted. */
		flow_init(&requester->flow, &qp->engine->local, &slot->dest.gid, slot->dest.dct_num);
		requester->dest = slot->dest;
		requester->connected = false;
	}
	if (requester->connected)
		return DC_READY;
	at = flow_packet(&requester->flow, &qp->engine->tx, &packet, &payload);
	if (at == NULL)
		return DC_TX_FULL;
	flow_seal(&requester->flow, at, &packet);
	requester->connected = true;
	return DC_READY;
}
