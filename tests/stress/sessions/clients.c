/* Two programs that are no members: threads with an hf_smr_client, and one that sends what it has to say too often. */
#include "sessions.h"

#include <holdfast/channel.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define THREADS  4u
#define WINDOW   8u
#define AGAIN_NS 3000000u
#define COPIES   3u
#define LIMIT_NS 400000000000ull
#define LATE_ONE 4u /* of so many is sent once more when it is answered */

enum { MESSAGE_HELLO = 1, MESSAGE_REQUEST, MESSAGE_ANSWER };

/* ---- threads ---- */

struct work {
	struct shared *shared;
	struct hf_smr_client *client;
	unsigned first, step, failed;
};

/* One request, until it is decided. What is unknown after the patience may be applied or not: it is no test then. */
static bool request(struct work *work, uint32_t number)
{
	uint8_t data[4], result[4] = {0};
	struct hf_smr_request it = {
		.data = data, .bytes = sizeof(data), .result = result, .result_room = sizeof(result)};

	put_le32(data, number);
	hf_smr_client_submit(work->client, &it);
	hf_smr_client_wait(&it);
	atomic_fetch_add(&work->shared->doubts, it.doubt);
	return it.outcome == HF_SMR_DECIDED && it.result_bytes == 4 && get_le32(result) == number;
}

static void *run(void *context)
{
	struct work *work = context;

	for (unsigned i = work->first; i < work->shared->requests; i += work->step) {
		work->failed += !request(work, i);
		atomic_fetch_add(&work->shared->answered, 1);
	}
	return NULL;
}

static void *turn(void *loop)
{
	hf_loop_run(loop);
	return NULL;
}

int sessions_threads(struct shared *shared, unsigned id)
{
	struct hf_smr_member members[MEMBERS];
	struct hf_smr_client_config config = {.cluster = "sessions",
		.members = members,
		.member_count = MEMBERS,
		.sessions = 2,
		.patience_ns = LIMIT_NS};
	struct work works[THREADS], last = {.shared = shared};
	pthread_t threads[THREADS], turning;
	struct hf_smr_client *client;
	struct hf_error error = {0};
	struct hf_loop *loop;
	struct hf_node *node;
	unsigned failed = 0;

	sessions_addresses(shared, members);
	if (sessions_node(shared, id, &loop, &node) != 0 || hf_smr_client_open(node, &config, &client, &error) != 0) {
		fprintf(stderr, "# threads: %s\n", error.text);
		return 1;
	}
	pthread_create(&turning, NULL, turn, loop);
	for (unsigned i = 0; i < THREADS; i++) {
		works[i] = (struct work){.shared = shared, .client = client, .first = 1 + 2 * i, .step = 2 * THREADS};
		pthread_create(&threads[i], NULL, run, &works[i]);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		failed += works[i].failed;
	}
	while (!atomic_load(&shared->plain_done))
		sched_yield();
	last.client = client;
	failed += !request(&last, SUM);
	hf_loop_stop(loop);
	hf_loop_wake(loop);
	pthread_join(turning, NULL);
	hf_smr_client_close(client);
	hf_node_close(node);
	hf_loop_destroy(loop);
	if (failed > 0)
		fprintf(stderr, "# %u requests of threads were not decided\n", failed);
	return failed > 0;
}

/* ---- too often ---- */

struct plain {
	struct shared *shared;
	struct hf_loop *loop;
	struct hf_channel *channel;
	struct hf_peer *peers[MEMBERS];
	uint64_t session, ids;
	uint32_t sequence, next, refused;
	struct {
		uint64_t id; /* 0: free */
		uint32_t sequence, number;
		uint64_t sent_ns;
	} flight[WINDOW];
};

static uint32_t draw(struct plain *plain, uint32_t below)
{
	uint32_t number;

	hf_env_entropy(hf_loop_env(plain->loop), &number, sizeof(number));
	return number % below;
}

static void say(struct plain *plain, uint64_t id, uint32_t sequence, uint32_t number)
{
	uint8_t message[28] = {MESSAGE_REQUEST};
	struct hf_peer *peer = plain->peers[draw(plain, MEMBERS)];

	put_le32(message + 4, sequence);
	put_le64(message + 8, id);
	put_le64(message + 16, plain->session);
	put_le32(message + 24, number);
	if (peer != NULL && hf_channel_send(plain->channel, peer, message, plain->session == 0 ? 24 : 28) == 0)
		atomic_fetch_add(&plain->shared->sent, 1);
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct plain *plain = context;
	const uint8_t *message = data;
	uint64_t id;

	(void)channel;
	if (message[0] == MESSAGE_HELLO && bytes >= 2 && message[1] < MEMBERS)
		plain->peers[message[1]] = peer;
	if (message[0] != MESSAGE_ANSWER || bytes < 16 || message[1] == HF_SMR_NOT_LEADER ||
		message[1] == HF_SMR_UNKNOWN)
		return;
	id = get_le64(message + 8);
	if (plain->session == 0 && message[1] == HF_SMR_DECIDED && bytes == 24) {
		plain->session = get_le64(message + 16);
		return;
	}
	for (unsigned i = 0; i < WINDOW; i++) {
		if (plain->flight[i].id == 0 || plain->flight[i].id != id)
			continue;
		plain->refused += message[1] != HF_SMR_DECIDED || bytes != 20 ||
				  get_le32(message + 16) != plain->flight[i].number;
		if (draw(plain, LATE_ONE) == 0)
			say(plain, id, plain->flight[i].sequence, plain->flight[i].number);
		plain->flight[i].id = 0;
		atomic_fetch_add(&plain->shared->answered, 1);
	}
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct plain *plain = context;

	(void)channel;
	for (unsigned i = 0; i < MEMBERS; i++)
		if (plain->peers[i] == peer)
			plain->peers[i] = NULL;
}

/* One number in each of eight places, so that no more are out than members remember. */
static bool work(struct plain *plain, uint64_t now_ns)
{
	bool busy = false;

	for (unsigned i = 0; i < WINDOW && plain->session != 0; i++) {
		unsigned copies = 0;

		if (plain->flight[i].id == 0 && plain->next < plain->shared->requests &&
			(plain->sequence + 1) % WINDOW == i) {
			plain->flight[i].id = ++plain->ids;
			plain->flight[i].sequence = ++plain->sequence;
			plain->flight[i].number = plain->next;
			plain->flight[i].sent_ns = now_ns;
			plain->next += 2;
			copies = 1 + draw(plain, COPIES);
		} else if (plain->flight[i].id != 0 && now_ns - plain->flight[i].sent_ns > AGAIN_NS) {
			plain->flight[i].sent_ns = now_ns;
			copies = 1;
		}
		for (; copies > 0; copies--)
			say(plain, plain->flight[i].id, plain->flight[i].sequence, plain->flight[i].number);
		busy |= plain->flight[i].id != 0;
	}
	return busy || plain->session == 0 || plain->next < plain->shared->requests;
}

/* A member that restarted is another peer. */
static bool seek(struct plain *plain, struct hf_node *node, const struct hf_smr_member members[MEMBERS])
{
	struct hf_peer *peer;

	for (unsigned i = 0; i < MEMBERS; i++)
		if (plain->peers[i] == NULL && hf_peer_find(node, &members[i].addresses[0]) == NULL)
			(void)hf_peer_connect(node, members[i].addresses, 1, &peer, NULL);
	return true;
}

int sessions_plain(struct shared *shared, unsigned id)
{
	static const struct hf_channel_events events = {.message = on_message, .end = on_end};
	struct plain plain = {.shared = shared};
	struct hf_smr_member members[MEMBERS];
	struct hf_error error = {0};
	struct hf_node *node;
	uint64_t begin_ns, asked_ns = 0;
	int rc = sessions_node(shared, id, &plain.loop, &node);

	if (rc == 0)
		rc = hf_channel_register(node, "smrc.sessions", &events, &plain, &plain.channel, &error);
	sessions_addresses(shared, members);
	if (rc != 0) {
		fprintf(stderr, "# plain client: %s\n", error.text);
		return 1;
	}
	begin_ns = hf_env_now_ns(hf_env_host());
	while (seek(&plain, node, members) && work(&plain, hf_loop_now_ns(plain.loop)) &&
		hf_env_now_ns(hf_env_host()) - begin_ns < LIMIT_NS) {
		(void)hf_loop_turn(plain.loop, AGAIN_NS);
		if (plain.session == 0 && hf_loop_now_ns(plain.loop) - asked_ns > AGAIN_NS) {
			asked_ns = hf_loop_now_ns(plain.loop);
			say(&plain, ++plain.ids, 1, 0);
		}
	}
	if (plain.refused > 0 || plain.next < shared->requests)
		fprintf(stderr, "# plain client: %u answers are wrong, %u numbers sent\n", plain.refused,
			plain.next / 2);
	atomic_store(&shared->plain_done, true);
	hf_node_close(node);
	hf_loop_destroy(plain.loop);
	return plain.refused > 0 || plain.next < shared->requests;
}
