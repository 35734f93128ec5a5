#include "transfer/tcp.h"

#include <stdlib.h>

#include "base/states.h"
#include "base/log.h"
#include "transfer/peer.h"

#define FAILURES_MOST   4u /* streams in a row that carried nothing, until the peer counts as out of reach */
#define BACKOFF_MIN_NS  20000000ull
#define BACKOFF_MAX_NS  1000000000ull
#define SLICES_A_STREAM 16u

static const struct state line_states[TCP_LINE_STATES] = {
	[TCP_LINE_CLOSED] = {"closed", BIT(TCP_LINE_OPEN)},
	[TCP_LINE_OPEN] = {"open", BIT(TCP_LINE_FENCING) | BIT(TCP_LINE_CLOSED)},
	[TCP_LINE_FENCING] = {"fencing", BIT(TCP_LINE_FENCED)},
	[TCP_LINE_FENCED] = {"fenced", BIT(TCP_LINE_CLOSED)},
};

static void line_move(struct tcp_line *line, enum tcp_line_state to)
{
	states_move("tcp", line_states, &line->state, to, "stream %u", line->stream.epoch);
}

/* A slice on its way over a stream. */
struct tcp_sent {
	struct tcp_slice wire;
	struct slice *slice;
};

static struct tcp_sent *sent_of(struct tcp_slice *wire)
{
	return container_of(wire, struct tcp_sent, wire);
}

static struct tcp_line *line_of(struct tcp_stream *stream)
{
	return container_of(stream, struct tcp_line, stream);
}

static struct tcp_transport *tcp_of(struct transport *transport)
{
	return container_of(transport, struct tcp_transport, transport);
}

/* ---- the ends of slices ---- */

static void take_out(struct tcp_line *line, struct tcp_sent *sent)
{
	list_remove(&sent->wire.link);
	line->stream.out_count--;
	free(sent);
}

static void bring_back(struct tcp_line *line, struct tcp_sent *sent)
{
	struct slice *slice = sent->slice;

	take_out(line, sent);
	slice_back(slice);
}

static void on_ended(struct tcp_stream *stream, struct tcp_slice *wire, enum tcp_nak reason)
{
	struct tcp_line *line = line_of(stream);
	struct slice *slice = sent_of(wire)->slice;

	free(sent_of(wire));
	line->answered = true;
	line->backoff_ns = 0;
	line->peer->failures = 0;
	if (reason == TCP_NAK_NONE) {
		line->peer->bytes += slice->range.end - slice->range.begin;
		slice_done(slice);
		return;
	}
	if (reason != TCP_NAK_KEY || !slice_refreshes(slice))
		slice_job_fail(slice->job);
	slice_back(slice);
}

/* For a reason of the path; one that is withdrawn has none. */
static void note_failure(struct tcp_line *line)
{
	if (!line->answered)
		line->peer->failures++;
	line->backoff_ns = line->backoff_ns == 0 ? BACKOFF_MIN_NS : line->backoff_ns * 2;
	if (line->backoff_ns > BACKOFF_MAX_NS)
		line->backoff_ns = BACKOFF_MAX_NS;
}

static void end_line(struct tcp_line *line, uint64_t now_ns)
{
	line->retry_ns = now_ns + line->backoff_ns;
	line_move(line, TCP_LINE_CLOSED);
}

/* READs are stored by us alone, so they end here; WRITEs wait for the fence at the peer. */
static void stop_line(struct tcp_line *line)
{
	bool fences = false;

	tcp_stream_close(&line->stream);
	list_for_each_safe (at, &line->stream.out) {
		struct tcp_sent *sent = sent_of(container_of(at, struct tcp_slice, link));

		if (sent->wire.opcode == HF_TRANSFER_READ)
			bring_back(line, sent);
		else
			fences = true;
	}
	if (!fences) {
		end_line(line, hf_loop_now_ns(line->peer->transport->loop));
		return;
	}
	line_move(line, TCP_LINE_FENCING);
	line->peer->transport->say_fence(line->peer->peer, line->stream.epoch);
}

static void on_broken(struct tcp_stream *stream, const char *reason)
{
	struct tcp_line *line = line_of(stream);

	log_debug("transfer: tcp stream %u broke: %s", stream->epoch, reason);
	note_failure(line);
	stop_line(line);
}

static void on_room(struct tcp_stream *stream)
{
	(void)stream; /* the next turn fills it */
}

static const struct tcp_stream_events stream_events = {.ended = on_ended, .broken = on_broken, .room = on_room};

static void end_fenced(struct tcp_line *line)
{
	while (!list_empty(&line->stream.out)) {
		struct tcp_sent *sent = sent_of(container_of(line->stream.out.next, struct tcp_slice, link));
		bool placed = sent->wire.id <= line->placed;
		struct slice *slice = sent->slice;

		take_out(line, sent);
		if (placed)
			slice_done(slice);
		else
			slice_back(slice);
	}
	end_line(line, hf_loop_now_ns(line->peer->transport->loop));
}

static void fenced_up_to(struct tcp_line *line, uint64_t answered)
{
	line_move(line, TCP_LINE_FENCED);
	line->placed = answered;
}

void tcp_peer_fenced(struct tcp_peer *tcp_peer, uint32_t epoch, uint64_t answered)
{
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++) {
		struct tcp_line *line = &tcp_peer->lines[i];

		if (line->state == TCP_LINE_FENCING && line->stream.epoch == epoch)
			fenced_up_to(line, answered);
	}
}

/* ---- the transport ---- */

static bool tcp_reaches(struct transport *transport, const struct task_request *request)
{
	const struct peer *peer = request->segment->peer;

	(void)transport;
	return peer->node_peer != NULL && peer->segment.view->tcp_family != 0 && peer->tcp.failures < FAILURES_MOST;
}

static enum transport_answer tcp_submit(struct transport *transport, struct transport_job *above)
{
	struct tcp_transport *tcp = tcp_of(transport);
	struct peer *peer = above->request->segment->peer;

	if (!tcp_reaches(transport, above->request) ||
		slice_job_new(above, &peer->tcp.jobs, tcp->block_bytes, hf_loop_now_ns(tcp->loop)) == NULL)
		return TRANSPORT_REFUSED;
	return TRANSPORT_ACCEPTED;
}

static bool carries(const struct tcp_line *line, const struct slice_job *job)
{
	list_for_each (at, &line->stream.out)
		if (sent_of(container_of(at, struct tcp_slice, link))->slice->job == job)
			return true;
	return false;
}

static void tcp_withdraw(struct transport *transport, struct transport_job *above)
{
	struct tcp_peer *tcp_peer = &above->request->segment->peer->tcp;
	struct slice_job *job = above->carried;

	(void)transport;
	slice_job_hold(job);
	slice_job_withdraw(job);
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++)
		if (tcp_peer->lines[i].state == TCP_LINE_OPEN && carries(&tcp_peer->lines[i], job))
			stop_line(&tcp_peer->lines[i]);
	slice_job_release(job);
}

static const struct transport_ops tcp_ops = {.reaches = tcp_reaches, .submit = tcp_submit, .withdraw = tcp_withdraw};

void tcp_transport_init(struct tcp_transport *tcp)
{
	tcp->transport = (struct transport){.ops = &tcp_ops, .kind = HF_TRANSPORT_TCP};
	tcp->next_epoch = 1;
}

/* ---- of one peer ---- */

void tcp_peer_init(struct tcp_peer *tcp_peer, struct tcp_transport *tcp, struct peer *peer)
{
	*tcp_peer = (struct tcp_peer){.transport = tcp, .peer = peer};
	list_init(&tcp_peer->jobs);
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		tcp_peer->lines[i].peer = tcp_peer;
}

static void give_up_all(struct tcp_peer *tcp_peer)
{
	while (!list_empty(&tcp_peer->jobs))
		slice_job_give_up(container_of(tcp_peer->jobs.next, struct slice_job, link));
}

/* Of a peer that has left. `over`: it places nothing any more. */
static void end_left(struct tcp_line *line, bool over)
{
	if (line->state == TCP_LINE_OPEN)
		stop_line(line);
	if (line->state == TCP_LINE_FENCING && over)
		fenced_up_to(line, 0);
	if (line->state == TCP_LINE_FENCED)
		end_fenced(line);
}

bool tcp_peer_has_ended(const struct tcp_peer *tcp_peer)
{
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++)
		if (tcp_peer->lines[i].state != TCP_LINE_CLOSED)
			return false;
	return list_empty(&tcp_peer->jobs);
}

void tcp_peer_close(struct tcp_peer *tcp_peer)
{
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++)
		end_left(&tcp_peer->lines[i], true);
	give_up_all(tcp_peer);
}

static bool open_line(struct tcp_line *line, uint64_t now_ns)
{
	struct tcp_transport *tcp = line->peer->transport;
	const struct wire_segment *view = line->peer->peer->segment.view;
	struct tcp_header hello = tcp_stream_hello(tcp->incarnation, view->incarnation, tcp->next_epoch++);
	struct hf_addr target;

	if (!wire_tcp(view, &target))
		return false;
	line_move(line, TCP_LINE_OPEN);
	line->answered = false;
	if (tcp_stream_open(&line->stream, tcp->loop, &tcp->local, &target, &hello, &stream_events, NULL) == 0)
		return true;
	note_failure(line);
	end_line(line, now_ns);
	return false;
}

static bool send_one(struct tcp_line *line)
{
	const struct wire_segment *view = line->peer->peer->segment.view;
	struct slice_job *job = container_of(line->peer->jobs.next, struct slice_job, link);
	const struct task_request *request = job->above->request;
	int buffer = segment_buffer(&line->peer->peer->segment, request->offset, request->length);
	struct tcp_sent *sent = calloc(1, sizeof(*sent));
	struct slice *slice;

	if (sent == NULL)
		return false; /* another turn has memory, or the deadline ends the task */
	slice = slice_job_take(job);
	if (buffer < 0) {
		free(sent);
		slice_job_fail(job);
		slice_back(slice);
		return true;
	}
	if (list_empty(&line->stream.out))
		line->progress_ns = hf_loop_now_ns(line->peer->transport->loop);
	slice->key = view->buffers[buffer].key;
	slice->generation = view->generation;
	sent->slice = slice;
	sent->wire = (struct tcp_slice){.opcode = request->opcode,
		.local = request->source + slice->range.begin,
		.length = (uint32_t)(slice->range.end - slice->range.begin),
		.key = slice->key,
		.offset = request->offset + slice->range.begin};
	tcp_stream_send(&line->stream, &sent->wire);
	return true;
}

static bool fill_line(struct tcp_line *line)
{
	bool any = false;

	while (!list_empty(&line->peer->jobs) && line->stream.out_count < SLICES_A_STREAM &&
		tcp_stream_has_room(&line->stream) && send_one(line))
		any = true;
	tcp_stream_push(&line->stream);
	return any;
}

bool tcp_peer_is_released(const struct tcp_peer *tcp_peer)
{
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++) {
		const struct tcp_line *line = &tcp_peer->lines[i];

		if (line->state == TCP_LINE_CLOSED)
			continue;
		list_for_each (at, &line->stream.out)
			if (!segment_has(&tcp_peer->peer->segment,
				    sent_of(container_of(at, struct tcp_slice, link))->slice->key))
				return false;
	}
	return true;
}

static bool is_stuck(struct tcp_line *line, uint64_t now_ns)
{
	if (line->moved != line->stream.pipe.moved) {
		line->moved = line->stream.pipe.moved;
		line->progress_ns = now_ns;
	}
	return !list_empty(&line->stream.out) && now_ns - line->progress_ns >= line->peer->transport->max_timeout_ns;
}

/* Slices of WRITEs come back, and their jobs with them, when the peer has fenced their stream. */
static bool has_slices_out(const struct tcp_peer *tcp_peer)
{
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++)
		if (tcp_peer->lines[i].state != TCP_LINE_CLOSED && !list_empty(&tcp_peer->lines[i].stream.out))
			return true;
	return false;
}

static void give_up_stranded(struct tcp_peer *tcp_peer, uint64_t now_ns)
{
	if (tcp_peer->failures < FAILURES_MOST) {
		tcp_peer->stranded_ns = 0;
		return;
	}
	if (tcp_peer->stranded_ns == 0)
		tcp_peer->stranded_ns = now_ns;
	slice_jobs_give_up_stranded(
		&tcp_peer->jobs, tcp_peer->stranded_ns, tcp_peer->transport->max_timeout_ns, now_ns);
	if (list_empty(&tcp_peer->jobs) && !has_slices_out(tcp_peer))
		tcp_peer->failures = 0; /* the next job tries again */
}

static void leave_turn(struct tcp_peer *tcp_peer)
{
	bool over = hf_env_boot_ns(hf_loop_env(tcp_peer->transport->loop)) >= tcp_peer->peer->over_ns;

	for (unsigned i = 0; i < tcp_peer->transport->streams; i++)
		end_left(&tcp_peer->lines[i], over);
	give_up_all(tcp_peer);
}

bool tcp_peer_turn(struct tcp_peer *tcp_peer, uint64_t now_ns)
{
	bool busy = false;

	if (tcp_peer->peer->node_peer == NULL) {
		leave_turn(tcp_peer);
		return false;
	}
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++) {
		struct tcp_line *line = &tcp_peer->lines[i];

		if (line->state == TCP_LINE_FENCED)
			end_fenced(line);
		if (line->state == TCP_LINE_CLOSED && !list_empty(&tcp_peer->jobs) && now_ns >= line->retry_ns)
			busy |= open_line(line, now_ns);
		if (line->state == TCP_LINE_OPEN && is_stuck(line, now_ns)) {
			note_failure(line);
			stop_line(line);
		}
		if (line->state == TCP_LINE_OPEN)
			busy |= fill_line(line);
	}
	give_up_stranded(tcp_peer, now_ns);
	return busy;
}

uint64_t tcp_peer_wake_ns(const struct tcp_peer *tcp_peer)
{
	uint64_t wake_ns = UINT64_MAX;

	if (list_empty(&tcp_peer->jobs))
		return wake_ns;
	for (unsigned i = 0; i < tcp_peer->transport->streams; i++)
		if (tcp_peer->lines[i].state == TCP_LINE_CLOSED && tcp_peer->lines[i].retry_ns < wake_ns)
			wake_ns = tcp_peer->lines[i].retry_ns;
	return wake_ns;
}
