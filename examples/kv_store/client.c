/* A client: finds the leader, and keeps a session. */
#include "kv_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS   50000000ull /* a member that does not answer for so long is given up, for another one */
#define PATIENCE_NS 30000000000ull
#define WARM        1000u
#define ALONE_NS    1000u /* of a wait before the loop is turned as well */

struct memory {
	struct kv_request request;
	struct kv_answer answer;
};

struct client {
	struct kv_node at;
	struct memory *memory;
	const struct hf_smr_member *members;
	unsigned count, guess;
	struct hf_vqp *vqps[KV_MEMBERS_MAX];
	uint64_t stamp, session;
	uint32_t sequence;
};

static uint64_t now_ns(void)
{
	return hf_env_now_ns(hf_env_host());
}

/* A vqp to this member that is up, if there can be one. A member that restarted is another peer. */
static struct hf_vqp *reach(struct client *client, unsigned id, uint64_t end_ns)
{
	const struct hf_smr_member *member = &client->members[id];
	const struct kv_place ours = {.addr = (uintptr_t)&client->memory->answer, .rkey = client->at.mr->rkey};
	struct hf_vqp *vqp = client->vqps[id];
	struct hf_peer *peer;

	if (vqp != NULL && hf_vqp_state(vqp) == HF_VQP_ERROR) {
		hf_vqp_destroy(vqp);
		client->vqps[id] = vqp = NULL;
	}
	if (vqp == NULL) {
		peer = hf_peer_find(client->at.node, &member->addresses[0]);
		if (peer == NULL && hf_peer_connect(client->at.node, member->addresses, 1, &peer, &kv_error) != 0)
			return NULL;
		client->vqps[id] = vqp = kv_vqp(&client->at, NULL);
		kv_must(hf_vqp_connect(vqp, peer, KV_SERVICE, &ours, sizeof(ours)), "connect");
	}
	while (hf_vqp_state(vqp) == HF_VQP_CONNECTING && now_ns() < end_ns)
		(void)hf_loop_turn(client->at.loop, 1000000);
	return hf_vqp_state(vqp) == HF_VQP_UP ? vqp : NULL;
}

/* The answer to the latest request; false: there is none yet. */
static bool answered(const struct client *client, struct kv_answer *answer)
{
	if (*(const volatile uint64_t *)&client->memory->answer.stamp != client->stamp)
		return false;
	*answer = client->memory->answer;
	return answer->check == kv_check(answer, offsetof(struct kv_answer, check));
}

/* Asks one member; false: it does not answer. */
static bool ask(struct client *client, unsigned id, const struct kv_command *command, struct kv_answer *answer)
{
	uint64_t begin_ns = now_ns(), end_ns = begin_ns + ANSWER_NS;
	struct hf_vqp *vqp = reach(client, id, end_ns);
	struct kv_request *request = &client->memory->request;
	struct kv_place to;
	size_t bytes;

	if (vqp == NULL)
		return false;
	memcpy(&to, hf_vqp_reply(vqp, &bytes), sizeof(to));
	*request = (struct kv_request){.stamp = ++client->stamp,
		.session = client->session,
		.sequence = client->sequence,
		.command = *command};
	request->check = kv_check(request, offsetof(struct kv_request, check));
	if (!kv_write(&client->at, vqp, request, sizeof(*request), &to))
		return false;
	while (!answered(client, answer)) {
		uint64_t now = now_ns();

		if (now > end_ns)
			return false;
		if (now - begin_ns > ALONE_NS)
			(void)hf_loop_turn(client->at.loop, 0);
	}
	return true;
}

/* Until it is decided: whoever answered is asked again, and the next member when nobody does. */
static bool decide(struct client *client, const struct kv_command *command, struct kv_answer *answer)
{
	uint64_t end_ns = now_ns() + PATIENCE_NS;

	while (now_ns() < end_ns) {
		bool heard = ask(client, client->guess, command, answer);

		if (heard &&
			(answer->status == KV_DONE || answer->status == KV_NONE || answer->status == KV_SESSION_OVER))
			return true;
		if (heard && answer->status == KV_NOT_LEADER && answer->leader >= 0 &&
			answer->leader < (int)client->count && answer->leader != (int)client->guess) {
			client->guess = (unsigned)answer->leader;
			continue;
		}
		client->guess = (client->guess + 1) % client->count;
		(void)hf_loop_turn(client->at.loop, 1000000);
	}
	return false;
}

static struct kv_answer call(struct client *client, enum kv_op op, const char *key, const char *value)
{
	const struct kv_command open = {.op = KV_OPEN};
	struct kv_command command = {.op = (uint32_t)op};
	struct kv_answer answer;

	if (client->session == 0) {
		client->sequence = 1;
		kv_must(decide(client, &open, &answer) ? 0 : -1, "no leader answers");
		client->session = answer.session;
		client->sequence = 0;
	}
	(void)snprintf(command.key, sizeof(command.key), "%s", key);
	(void)snprintf(command.value, sizeof(command.value), "%s", value);
	client->sequence++;
	kv_must(decide(client, &command, &answer) ? 0 : -1, "no leader answers");
	kv_must(answer.status == KV_SESSION_OVER ? -1 : 0, "the session is over");
	return answer;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int measure(struct client *client, unsigned n)
{
	uint64_t *times = calloc(n, sizeof(*times));
	long long before;

	if (n == 0 || times == NULL)
		return 2;
	before = strtoll(call(client, KV_ADD, "measured", "0").value, NULL, 10);
	for (unsigned i = 0; i < WARM; i++)
		(void)call(client, KV_ADD, "measured", "1");
	for (unsigned i = 0; i < n; i++) {
		uint64_t begin_ns = now_ns();

		kv_must(strtoll(call(client, KV_ADD, "measured", "1").value, NULL, 10) == before + WARM + i + 1 ? 0
														: -1,
			"an addition was lost, or took effect twice");
		times[i] = now_ns() - begin_ns;
	}
	qsort(times, n, sizeof(*times), by_value);
	printf("%u requests, median %llu ns, p99 %llu ns\n", n, (unsigned long long)times[n / 2],
		(unsigned long long)times[n - 1 - n / 100]);
	free(times);
	return 0;
}

int kv_client(const char *fabric, const char *own, const struct hf_smr_member *members, unsigned count,
	const char *const *words, unsigned word_count)
{
	static const struct hf_node_events events = {0};
	static struct client client;
	struct kv_answer answer;
	int status = 0;

	client.members = members;
	client.count = count;
	kv_node_open(&client.at, own, fabric, own, sizeof(struct memory), &events, &client);
	client.memory = client.at.memory;
	if (word_count == 2 && strcmp(words[0], "measure") == 0) {
		status = measure(&client, (unsigned)strtoul(words[1], NULL, 10));
	} else if (word_count == 3 && (strcmp(words[0], "set") == 0 || strcmp(words[0], "add") == 0)) {
		answer = call(&client, words[0][0] == 's' ? KV_SET : KV_ADD, words[1], words[2]);
		puts(answer.status == KV_DONE ? answer.value : "the table is full");
	} else if (word_count == 2 && strcmp(words[0], "get") == 0) {
		answer = call(&client, KV_GET, words[1], "");
		status = answer.status != KV_DONE;
		puts(answer.status == KV_DONE ? answer.value : "there is no such key");
	} else {
		fputs("kv-store: say set KEY VALUE, get KEY, add KEY NUMBER or measure N\n", stderr);
		status = 2;
	}
	for (unsigned i = 0; i < count; i++)
		hf_vqp_destroy(client.vqps[i]);
	hf_node_close(client.at.node);
	hf_mem_free(hf_env_host(), client.at.memory);
	hf_loop_destroy(client.at.loop);
	return status;
}
