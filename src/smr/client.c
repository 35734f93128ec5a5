/* Requests from any thread, each decided once: queued under a lock, numbered in a session, sent to the leader.
 *
 *   any thread                        the loop
 *     submit: queued, wake ----------->  a lane (a session, eight numbers) takes it: flight
 *                                        flight: at our replica, sent to a member, or stranded until a leader is known
 *     wait <-- over, under the lock ---  decided, or the patience is over
 *
 * A request keeps its session and number while it is sent again, so members execute it once (R-S23). It is in doubt
 * when a leader had it and its outcome is not known; then it may not go on in another session. */
#include <holdfast/channel.h>
#include <holdfast/smr_client.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/list.h"
#include "base/log.h"
#include "base/order.h"
#include "smr/client_messages.h"
#include "smr/lane.h"
#include "smr/served.h"

#define SESSIONS_DEFAULT 4u
#define PATIENCE_NS      10000000000ull
#define RETRY_NS         1000000ull /* between two looks at what waits for a leader */
#define SEEK_NS          20000000ull
#define RESEND_NS        50000000ull /* a member that does not answer for so long may be stopped: another is asked */

enum { STRANDED, LOCAL, SENT }; /* hf_smr_request.state */

struct hf_smr_client {
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_smr_member members[HF_SMR_MEMBERS_MAX]; /* that are sought: without a replica here */
	unsigned member_count;
	struct hf_poller poller;
	struct hf_timer retry, seek;
	uint64_t patience_ns;
	/* any thread */
	pthread_mutex_t lock; /* of `queued`, and of the ends of requests */
	pthread_cond_t ended;
	struct hf_smr_request *queued, **queued_end;
	_Atomic bool waiting; /* for the loop: something is queued */
	/* the loop's */
	struct hf_smr_request *ready, **ready_end;
	struct smr_lane *lanes;
	unsigned lane_count;
	uint64_t ids;
	struct hf_peer *peers[HF_SMR_MEMBERS_MAX];
	int guess; /* the member that is asked next */
	struct smr_served served;
	bool closing;
};

static void send_request(struct hf_smr_client *client, struct hf_smr_request *request);
static void pump(struct hf_smr_client *client);

/* ---- ends ---- */

static void finish(struct hf_smr_request *request, enum hf_smr_outcome outcome, int error)
{
	struct hf_smr_client *client = request->client;

	request->outcome = outcome;
	request->error = error;
	if (request->done != NULL) {
		request->done(request);
		return;
	}
	pthread_mutex_lock(&client->lock);
	request->over = true; /* it may be freed from now on */
	pthread_cond_broadcast(&client->ended);
	pthread_mutex_unlock(&client->lock);
}

static void give_up(struct hf_smr_request *request, int error)
{
	finish(request, request->doubt ? HF_SMR_UNKNOWN : HF_SMR_NOT_LEADER, error);
}

static void push(struct hf_smr_request ***end, struct hf_smr_request *request)
{
	request->next = NULL;
	**end = request;
	*end = &request->next;
}

static struct smr_lane *lane_of(
	struct hf_smr_client *client, const struct hf_smr_request *request, unsigned *flight_out)
{
	for (unsigned i = 0; i < client->lane_count; i++)
		for (unsigned k = 0; k < SMR_LANE_FLIGHTS; k++)
			if (client->lanes[i].flight[k] == request) {
				*flight_out = k;
				return &client->lanes[i];
			}
	return NULL;
}

static void land(struct hf_smr_request *request)
{
	unsigned k;
	struct smr_lane *lane = lane_of(request->client, request, &k);

	if (lane != NULL)
		lane->flight[k] = NULL;
}

/* ---- outcomes ---- */

static void opened(struct hf_smr_request *open)
{
	struct smr_lane *lane = container_of(open, struct smr_lane, open);

	lane->opening = false;
	if (open->outcome == HF_SMR_DECIDED && open->result_bytes == sizeof(lane->opened)) {
		lane->session = get_le64(lane->opened);
		lane->sequence = 0;
	}
}

/* Not moved once it is set: others are sent all the time. */
static void look_soon(struct hf_smr_client *client)
{
	if (!client->closing && client->retry.heap_slot == 0)
		hf_loop_set_timer(client->loop, &client->retry, hf_loop_now_ns(client->loop) + RETRY_NS);
}

static void strand(struct hf_smr_request *request)
{
	request->state = STRANDED;
	look_soon(request->client);
}

/* The session is gone. What was in doubt may not be done in another one. */
static void session_over(struct hf_smr_request *request)
{
	struct hf_smr_client *client = request->client;
	unsigned k;
	struct smr_lane *lane = lane_of(client, request, &k);

	if (lane != NULL && lane->session == request->call.session)
		lane->session = 0;
	land(request);
	if (request->doubt)
		give_up(request, -ETIMEDOUT);
	else
		push(&client->ready_end, request);
}

static void answered(
	struct hf_smr_request *request, enum hf_smr_outcome outcome, int leader, const void *result, size_t bytes)
{
	struct hf_smr_client *client = request->client;

	switch (outcome) {
	case HF_SMR_DECIDED:
		request->result_bytes = bytes < request->result_room ? (uint32_t)bytes : request->result_room;
		if (request->result_bytes > 0)
			memcpy(request->result, result, request->result_bytes);
		land(request);
		finish(request, outcome, 0);
		break;
	case HF_SMR_SESSION_OVER:
		session_over(request);
		break;
	case HF_SMR_UNKNOWN:
		request->doubt = true;
		strand(request);
		break;
	case HF_SMR_NOT_LEADER:
		client->guess = leader >= 0 && leader < (int)HF_SMR_MEMBERS_MAX ? leader : client->guess + 1;
		strand(request);
		break;
	}
}

static void proposed(struct hf_smr_call *call)
{
	struct hf_smr_request *request = container_of(call, struct hf_smr_request, call);
	struct hf_smr_client *client = request->client;

	answered(request, call->outcome, call->leader, call->result, call->result_bytes);
	if (!client->closing)
		pump(client);
}

/* ---- sending ---- */

static int call(struct hf_smr *smr, struct hf_smr_request *request)
{
	if (smr == NULL)
		return -ENOTCONN;
	return request->call.session == 0 ? hf_smr_session_open(smr, &request->call)
					  : hf_smr_propose(smr, &request->call);
}

static bool propose(struct hf_smr_client *client, struct hf_smr_request *request)
{
	int rc = call(client->served.smr, request);

	if (rc == -EMSGSIZE) {
		land(request);
		finish(request, HF_SMR_NOT_LEADER, rc);
		return true;
	}
	if (rc != 0)
		return false;
	request->state = LOCAL;
	return true;
}

/* Of a process that ended, the kernel closes the control paths long before its peer is given up. */
static bool is_reached(const struct hf_smr_client *client, int member)
{
	return client->peers[member] != NULL && hf_peer_reached(client->peers[member]);
}

/* The leader as this node's replica sees it; else the next member that answers at all. */
static int receiver(struct hf_smr_client *client)
{
	int leader = client->served.smr == NULL ? -1 : hf_smr_leader(client->served.smr);

	if (leader >= 0)
		return leader;
	for (unsigned i = 0; i < HF_SMR_MEMBERS_MAX; i++, client->guess++) {
		client->guess = client->guess < 0 ? 0 : client->guess % (int)HF_SMR_MEMBERS_MAX;
		if (is_reached(client, client->guess))
			return client->guess;
	}
	return -1;
}

static bool send_to(struct hf_smr_client *client, struct hf_smr_request *request, int member)
{
	uint8_t *message = member < 0 || !is_reached(client, member) ? NULL : malloc(REQUEST_BYTES + request->bytes);
	int rc;

	if (message == NULL)
		return false;
	memset(message, 0, REQUEST_BYTES);
	message[0] = MESSAGE_REQUEST;
	put_le32(message + 4, request->call.sequence);
	put_le64(message + 8, request->id);
	put_le64(message + 16, request->call.session);
	if (request->bytes > 0)
		memcpy(message + REQUEST_BYTES, request->data, request->bytes);
	rc = hf_channel_send(client->served.channel, client->peers[member], message, REQUEST_BYTES + request->bytes);
	free(message);
	if (rc != 0)
		return false;
	request->state = SENT;
	request->sent_to = member;
	request->sent_ns = hf_loop_now_ns(client->loop);
	look_soon(client);
	return true;
}

static void send_request(struct hf_smr_client *client, struct hf_smr_request *request)
{
	request->call.done = proposed;
	request->call.data = request->data;
	request->call.bytes = request->bytes;
	if (REQUEST_BYTES + (size_t)request->bytes > HF_CHANNEL_MESSAGE_BYTES) {
		land(request);
		finish(request, HF_SMR_NOT_LEADER, -EMSGSIZE);
	} else if (!propose(client, request) && !send_to(client, request, receiver(client))) {
		strand(request);
	}
}

static void open_session(struct hf_smr_client *client, struct smr_lane *lane)
{
	lane->session = 0;
	lane->opening = true;
	lane->open = (struct hf_smr_request){.client = client,
		.result = lane->opened,
		.result_room = sizeof(lane->opened),
		.done = opened,
		.id = ++client->ids,
		.since_ns = hf_loop_now_ns(client->loop)};
	lane->open.call.sequence = 1;
	send_request(client, &lane->open);
}

/* Requests into lanes that have room. */
static void pump(struct hf_smr_client *client)
{
	for (unsigned i = 0; i < client->lane_count && client->ready != NULL; i++) {
		struct smr_lane *lane = &client->lanes[i];

		if (smr_lane_needs_session(lane))
			open_session(client, lane);
		while (client->ready != NULL && smr_lane_has_room(lane)) {
			struct hf_smr_request *request = client->ready;

			client->ready = request->next;
			if (client->ready == NULL)
				client->ready_end = &client->ready;
			request->id = ++client->ids;
			smr_lane_take(lane, request);
			send_request(client, request);
		}
	}
}

static bool is_overdue(const struct hf_smr_request *request, uint64_t now_ns)
{
	return request->state != LOCAL && now_ns - request->since_ns > request->client->patience_ns;
}

/* True: it waits still. */
static bool look_at(struct hf_smr_client *client, struct hf_smr_request *request, uint64_t now_ns)
{
	if (is_overdue(request, now_ns)) {
		request->doubt |= request->state == SENT;
		land(request);
		give_up(request, -ETIMEDOUT);
		return false;
	}
	if (request->state == SENT &&
		(now_ns - request->sent_ns > RESEND_NS || !is_reached(client, request->sent_to))) {
		client->guess = request->sent_to + 1;
		request->doubt = true;
		request->state = STRANDED;
	}
	if (request->state == STRANDED)
		send_request(client, request);
	return true;
}

static void retry(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_smr_client *client = container_of(timer, struct hf_smr_client, retry);
	struct hf_smr_request *ready;
	bool any = false;

	for (unsigned i = 0; i < client->lane_count; i++) {
		struct smr_lane *lane = &client->lanes[i];

		if (lane->opening)
			any |= look_at(client, &lane->open, now_ns);
		for (unsigned k = 0; k < SMR_LANE_FLIGHTS; k++)
			if (lane->flight[k] != NULL)
				any |= look_at(client, lane->flight[k], now_ns);
	}
	ready = client->ready;
	client->ready = NULL;
	client->ready_end = &client->ready;
	while (ready != NULL) { /* no session could be opened */
		struct hf_smr_request *next = ready->next;

		if (is_overdue(ready, now_ns))
			give_up(ready, -ETIMEDOUT);
		else
			push(&client->ready_end, ready);
		ready = next;
	}
	pump(client);
	if (any || client->ready != NULL)
		hf_loop_set_timer(client->loop, &client->retry, now_ns + RETRY_NS);
}

static enum hf_poll client_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct hf_smr_client *client = container_of(poller, struct hf_smr_client, poller);
	struct hf_smr_request *queued;

	if (!observe(&client->waiting))
		return HF_IDLE;
	publish(&client->waiting, false);
	pthread_mutex_lock(&client->lock);
	queued = client->queued;
	client->queued = NULL;
	client->queued_end = &client->queued;
	pthread_mutex_unlock(&client->lock);
	while (queued != NULL) {
		struct hf_smr_request *next = queued->next;

		queued->since_ns = now_ns;
		push(&client->ready_end, queued);
		queued = next;
	}
	pump(client);
	return HF_BUSY;
}

static bool client_arm(struct hf_poller *poller)
{
	return !observe(&container_of(poller, struct hf_smr_client, poller)->waiting);
}

/* ---- answers ---- */

static struct hf_smr_request *find(struct hf_smr_client *client, uint64_t id)
{
	for (unsigned i = 0; i < client->lane_count; i++) {
		struct smr_lane *lane = &client->lanes[i];

		if (lane->opening && lane->open.id == id)
			return &lane->open;
		for (unsigned k = 0; k < SMR_LANE_FLIGHTS; k++)
			if (lane->flight[k] != NULL && lane->flight[k]->id == id)
				return lane->flight[k];
	}
	return NULL;
}

/* One that was sent twice is answered twice; the first answer that is an outcome counts. */
static void hear_answer(struct hf_smr_client *client, const uint8_t *message, size_t bytes)
{
	struct hf_smr_request *request = bytes < ANSWER_BYTES ? NULL : find(client, get_le64(message + 8));

	if (request == NULL || request->state == LOCAL)
		return;
	if (message[1] == TOO_LARGE) {
		land(request);
		finish(request, HF_SMR_NOT_LEADER, -EMSGSIZE);
	} else if (message[1] <= HF_SMR_SESSION_OVER) {
		answered(request, (enum hf_smr_outcome)message[1], (int8_t)message[2], message + ANSWER_BYTES,
			bytes - ANSWER_BYTES);
	}
	pump(client);
}

/* ---- the channel ---- */

static void on_open(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	const struct hf_smr_client *client = context;
	struct hf_smr_status status = {.id = NO_MEMBER};
	uint8_t hello[HELLO_BYTES] = {MESSAGE_HELLO};

	if (client->served.smr != NULL)
		hf_smr_status(client->served.smr, &status);
	hello[1] = status.id;
	(void)hf_channel_send(channel, peer, hello, sizeof(hello));
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct hf_smr_client *client = context;
	const uint8_t *message = data;

	(void)channel;
	if (bytes < HELLO_BYTES)
		return;
	if (message[0] == MESSAGE_HELLO && message[1] < HF_SMR_MEMBERS_MAX)
		client->peers[message[1]] = peer;
	else if (message[0] == MESSAGE_REQUEST)
		smr_served_hear(&client->served, peer, message, bytes);
	else if (message[0] == MESSAGE_ANSWER)
		hear_answer(client, message, bytes);
}

static void on_writable(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct hf_smr_client *client = context;

	(void)channel;
	(void)peer;
	smr_served_flush(&client->served);
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct hf_smr_client *client = context;

	(void)channel;
	smr_served_forget(&client->served, peer);
	for (unsigned i = 0; i < HF_SMR_MEMBERS_MAX; i++)
		if (client->peers[i] == peer)
			client->peers[i] = NULL;
	for (unsigned i = 0; i < client->lane_count; i++)
		for (unsigned k = 0; k <= SMR_LANE_FLIGHTS; k++) {
			struct smr_lane *lane = &client->lanes[i];
			struct hf_smr_request *request = lane->opening ? &lane->open : NULL;

			if (k < SMR_LANE_FLIGHTS)
				request = lane->flight[k];
			if (request == NULL || request->state != SENT || client->peers[request->sent_to] != NULL)
				continue;
			request->doubt = true;
			strand(request);
		}
}

/* ---- life ---- */

/* A member that restarted is another peer, and is connected to anew. */
static void seek(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_smr_client *client = container_of(timer, struct hf_smr_client, seek);

	for (unsigned i = 0; i < client->member_count; i++) {
		const struct hf_smr_member *member = &client->members[i];
		struct hf_peer *peer = NULL;
		struct hf_error error = {0};

		for (unsigned k = 0; k < member->address_count && peer == NULL; k++)
			peer = hf_peer_find(client->node, &member->addresses[k]);
		if (peer == NULL && member->address_count > 0 &&
			hf_peer_connect(client->node, member->addresses, member->address_count, &peer, &error) != 0)
			log_warn("smr: cannot connect to member %u: %s", member->id, error.text);
	}
	hf_loop_set_timer(client->loop, timer, now_ns + SEEK_NS);
}

int hf_smr_client_open(struct hf_node *node, const struct hf_smr_client_config *config,
	struct hf_smr_client **client_out, struct hf_error *error)
{
	static const struct hf_channel_events events = {
		.open = on_open, .message = on_message, .writable = on_writable, .end = on_end};
	struct hf_smr_client *client;
	char name[HF_NAME_BYTES];
	int rc;

	*client_out = NULL;
	if (config->sessions > HF_SMR_CLIENT_SESSIONS_MAX || config->member_count > HF_SMR_MEMBERS_MAX ||
		config->cluster == NULL || strlen(config->cluster) > HF_SMR_CLUSTER_MAX)
		return hf_error_set(error, -EINVAL,
			"smr: a client has a cluster of at most 15 bytes, at most 64 sessions, and at most 16 members");
	client = calloc(1, sizeof(*client));
	if (client == NULL)
		return hf_error_set(error, -ENOMEM, "smr: no memory for a client");
	client->loop = hf_node_loop(node);
	client->patience_ns = config->patience_ns == 0 ? PATIENCE_NS : config->patience_ns;
	client->lane_count = config->sessions == 0 ? SESSIONS_DEFAULT : config->sessions;
	client->lanes = calloc(client->lane_count, sizeof(*client->lanes));
	client->queued_end = &client->queued;
	client->ready_end = &client->ready;
	client->poller = (struct hf_poller){.poll = client_poll, .arm = client_arm};
	client->node = node;
	client->retry.fire = retry;
	client->seek = (struct hf_timer){.fire = seek, .quiet = true};
	smr_served_init(&client->served, config->smr);
	pthread_mutex_init(&client->lock, NULL);
	pthread_cond_init(&client->ended, NULL);
	hf_loop_add_poller(client->loop, &client->poller);
	(void)snprintf(name, sizeof(name), "smrc.%s", config->cluster);
	rc = client->lanes == NULL ? hf_error_set(error, -ENOMEM, "smr: no memory for a client")
				   : hf_channel_register(node, name, &events, client, &client->served.channel, error);
	if (rc != 0) {
		hf_smr_client_close(client);
		return rc;
	}
	if (config->smr == NULL) {
		client->member_count = config->member_count;
		memcpy(client->members, config->members, config->member_count * sizeof(*config->members));
		hf_loop_set_timer(client->loop, &client->seek, hf_loop_now_ns(client->loop) + 1);
	}
	*client_out = client;
	return 0;
}

static void give_up_those_there(struct hf_smr_client *client)
{
	(void)client_poll(&client->poller, 0); /* what is queued is ready */
	for (unsigned i = 0; i < client->lane_count; i++)
		for (unsigned k = 0; k < SMR_LANE_FLIGHTS; k++) {
			struct hf_smr_request *request = client->lanes[i].flight[k];

			client->lanes[i].flight[k] = NULL;
			if (request != NULL) {
				request->doubt |= request->state == SENT;
				give_up(request, -ECANCELED);
			}
		}
	while (client->ready != NULL) {
		struct hf_smr_request *request = client->ready;

		client->ready = request->next;
		give_up(request, -ECANCELED);
	}
	client->ready_end = &client->ready;
}

/* Also what done() of one submits. */
static void give_up_all(struct hf_smr_client *client)
{
	do
		give_up_those_there(client);
	while (observe(&client->waiting));
}

void hf_smr_client_close(struct hf_smr_client *client)
{
	if (client == NULL)
		return;
	client->closing = true;
	client->served.smr = NULL;
	hf_channel_close(client->served.channel);
	for (unsigned i = 0; i < HF_SMR_MEMBERS_MAX; i++)
		client->peers[i] = NULL;
	if (client->lanes != NULL)
		give_up_all(client);
	hf_loop_cancel_timer(client->loop, &client->retry);
	hf_loop_cancel_timer(client->loop, &client->seek);
	hf_loop_remove_poller(client->loop, &client->poller);
	smr_served_close(&client->served);
	pthread_mutex_destroy(&client->lock);
	pthread_cond_destroy(&client->ended);
	free(client->lanes);
	free(client);
}

/* ---- any thread ---- */

void hf_smr_client_submit(struct hf_smr_client *client, struct hf_smr_request *request)
{
	request->client = client;
	request->call = (struct hf_smr_call){0};
	request->state = STRANDED;
	request->doubt = request->over = false;
	request->result_bytes = 0;
	pthread_mutex_lock(&client->lock);
	push(&client->queued_end, request);
	pthread_mutex_unlock(&client->lock);
	publish(&client->waiting, true);
	announce();
	hf_loop_wake(client->loop);
}

void hf_smr_client_wait(struct hf_smr_request *request)
{
	struct hf_smr_client *client = request->client;

	pthread_mutex_lock(&client->lock);
	while (!request->over)
		pthread_cond_wait(&client->ended, &client->lock);
	pthread_mutex_unlock(&client->lock);
}
