/* Clients of a replicated log: from other threads, at every member, and while the leader goes. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <holdfast/channel.h>
#include <holdfast/smr_client.h>

#include "base/bytes.h"
#include "smr/lane.h"
#include "trio.h"

#define REQUESTS 300u
#define WAITED   100u
#define SOON_NS  50000000u /* before a request that is not answered is sent again for that alone */

struct one {
	struct hf_smr_request request;
	uint8_t data[4];
	bool ended;
};

static struct trio trio;
static struct hf_smr_client *clients[TRIO_MEMBERS];
static struct one ones[REQUESTS];
static unsigned ended;

static void done(struct hf_smr_request *request)
{
	struct one *one = (struct one *)(void *)((char *)request - offsetof(struct one, request));

	assert_false(one->ended);
	one->ended = true;
	ended++;
}

static void submit(unsigned i, unsigned member)
{
	struct one *one = &ones[i];

	put_le32(one->data, i);
	one->ended = false;
	one->request = (struct hf_smr_request){.data = one->data, .bytes = sizeof(one->data), .done = done};
	hf_smr_client_submit(clients[member], &one->request);
}

static void open_client(unsigned id)
{
	struct hf_error error = {0};
	struct hf_smr_client_config config = {.cluster = "trio", .smr = trio.members[id].smr};

	if (hf_smr_client_open(trio.members[id].node, &config, &clients[id], &error) != 0)
		fail_msg("client %u: %s", id, error.text);
}

static void open_all(void)
{
	trio_open(&trio);
	for (unsigned i = 0; i < TRIO_MEMBERS; i++) {
		trio_start(&trio, i);
		open_client(i);
	}
	assert_true(trio_until(&trio, trio_all_follow));
	ended = 0;
}

static void stop(unsigned id)
{
	hf_smr_stop(trio.members[id].smr);
	trio.members[id].smr = NULL;
	hf_smr_client_close(clients[id]);
	clients[id] = NULL;
	trio_stop(&trio, id);
}

static void close_all(void)
{
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		if (clients[i] != NULL)
			stop(i);
	trio_close(&trio);
}

static bool all_have_ended(struct trio *of)
{
	(void)of;
	return ended == REQUESTS;
}

/* How often a value was applied at this member. */
static unsigned count(unsigned member, uint32_t value)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < trio.members[member].applied; i++)
		n += trio.members[member].log[i] == value;
	return n;
}

static bool leader_has_all(struct trio *of)
{
	uint32_t most = 0;

	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		if (of->members[i].applied > most)
			most = of->members[i].applied;
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		if (of->members[i].smr != NULL && of->members[i].applied < most)
			return false;
	return true;
}

static void clients_at_every_member_are_answered(void **state)
{
	(void)state;
	open_all();
	for (unsigned i = 0; i < REQUESTS; i++)
		submit(i, i % TRIO_MEMBERS);
	assert_true(trio_until(&trio, all_have_ended));
	assert_true(trio_until(&trio, leader_has_all));
	for (unsigned i = 0; i < REQUESTS; i++) {
		assert_int_equal(ones[i].request.outcome, HF_SMR_DECIDED);
		for (unsigned m = 0; m < TRIO_MEMBERS; m++)
			assert_int_equal(count(m, i), 1);
	}
	close_all();
}

static _Atomic unsigned decided, over;

static void *ask(void *client)
{
	for (uint32_t i = 0; i < WAITED; i++) {
		uint8_t data[4];
		struct hf_smr_request request = {.data = data, .bytes = sizeof(data)};

		put_le32(data, i);
		hf_smr_client_submit(client, &request);
		hf_smr_client_wait(&request);
		decided += request.outcome == HF_SMR_DECIDED;
	}
	over++;
	return NULL;
}

static bool threads_are_over(struct trio *of)
{
	(void)of;
	return over == TRIO_MEMBERS;
}

static void threads_wait_for_their_requests(void **state)
{
	pthread_t threads[TRIO_MEMBERS];

	(void)state;
	open_all();
	decided = over = 0;
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, clients[i]), 0);
	assert_true(trio_until(&trio, threads_are_over));
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(decided, TRIO_MEMBERS * WAITED);
	assert_true(trio_until(&trio, leader_has_all));
	assert_int_equal(count(0, WAITED - 1), TRIO_MEMBERS);
	close_all();
}

static bool some_have_ended(struct trio *of)
{
	(void)of;
	return ended > REQUESTS / 4;
}

static void what_was_under_way_when_the_leader_went_is_decided_once(void **state)
{
	unsigned leader, doubts = 0;

	(void)state;
	open_all();
	leader = trio_leader(&trio)->id;
	for (unsigned i = 0; i < REQUESTS; i++)
		submit(i, (leader + 1 + i % 2) % TRIO_MEMBERS);
	assert_true(trio_until(&trio, some_have_ended));
	assert_in_range(ended, 1, REQUESTS - 1);
	stop(leader);
	assert_true(trio_until(&trio, all_have_ended));
	assert_true(trio_until(&trio, leader_has_all));
	for (unsigned i = 0; i < REQUESTS; i++) {
		assert_int_equal(ones[i].request.outcome, HF_SMR_DECIDED);
		doubts += ones[i].request.doubt;
		for (unsigned m = 0; m < TRIO_MEMBERS; m++)
			if (m != leader)
				assert_int_equal(count(m, i), 1);
	}
	assert_true(doubts > 0); /* the leader had some that it did not answer */
	close_all();
}

static void requests_of_a_client_that_is_closed_end(void **state)
{
	unsigned leader;

	(void)state;
	open_all();
	leader = trio_leader(&trio)->id;
	for (unsigned i = 0; i < REQUESTS; i++)
		submit(i, i % TRIO_MEMBERS);
	(void)hf_loop_turn(trio.loop, 0);
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		stop((leader + 1 + i) % TRIO_MEMBERS);
	assert_int_equal(ended, REQUESTS);
	trio_close(&trio);
}

static struct hf_smr_request *again; /* is submitted when the first one ends */

static void submit_again(struct hf_smr_request *request)
{
	ended++;
	if (again != NULL && again != request) {
		struct hf_smr_request *next = again;

		again = NULL;
		hf_smr_client_submit(request->client, next);
	}
}

static void what_is_submitted_while_a_client_is_closed_ends(void **state)
{
	struct hf_smr_request first = {.done = submit_again}, second = {.done = submit_again};

	(void)state;
	open_all();
	again = &second;
	hf_smr_client_submit(clients[0], &first);
	close_all();
	assert_int_equal(ended, 2);
	assert_int_equal(second.outcome, HF_SMR_NOT_LEADER);
	assert_int_equal(second.error, -ECANCELED);
}

/* ---- a member that does not answer everything ---- */

#define LIMIT_NS 20000000000ull

static unsigned heard; /* how often the request that is not answered came */

static void say_hello(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	static const uint8_t hello[2] = {1, 0};

	(void)context;
	(void)hf_channel_send(channel, peer, hello, sizeof(hello));
}

/* Sessions are opened, and requests decided, but number 0: client.c has the messages. */
static void answer_others(
	struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	const uint8_t *message = data;
	uint8_t answer[24] = {3, HF_SMR_DECIDED};

	(void)context;
	if (message[0] != 2)
		return;
	if (bytes == 28 && get_le32(message + 24) == 0) {
		heard++;
		return;
	}
	memcpy(answer + 8, message + 8, 8);
	memcpy(answer + 16, message + 8, 8); /* the session, of one that is opened */
	(void)hf_channel_send(channel, peer, answer, sizeof(answer));
}

/* A client at member 1, and member 0 of made-up answers. */
static struct hf_channel *open_unanswered(const struct hf_smr_client_config *config)
{
	static const struct hf_channel_events events = {.open = say_hello, .message = answer_others};
	struct hf_error error = {0};
	struct hf_channel *channel;

	trio_open(&trio);
	trio_start(&trio, 0);
	trio_start(&trio, 1);
	assert_int_equal(hf_channel_register(trio.members[0].node, "smrc.trio", &events, NULL, &channel, &error), 0);
	assert_int_equal(hf_smr_client_open(trio.members[1].node, config, &clients[1], &error), 0);
	heard = 0;
	return channel;
}

static void close_unanswered(struct hf_channel *channel)
{
	hf_smr_client_close(clients[1]);
	clients[1] = NULL;
	hf_channel_close(channel);
	trio_close(&trio);
}

static void a_request_without_an_answer_is_sent_again_while_others_flow(void **state)
{
	struct hf_smr_client_config config = {.cluster = "trio", .members = trio.who, .member_count = 1, .sessions = 2};
	struct hf_channel *channel;
	uint64_t end_ns;

	(void)state;
	channel = open_unanswered(&config);
	for (unsigned i = 0; i < REQUESTS; i++)
		ones[i].ended = true;
	submit(0, 1);
	end_ns = hf_env_now_ns(hf_env_host()) + LIMIT_NS;
	for (unsigned i = 1; heard < 2 && hf_env_now_ns(hf_env_host()) < end_ns; i = i % (REQUESTS - 1) + 1) {
		if (ones[i].ended) /* each turn sends one */
			submit(i, 1);
		(void)hf_loop_turn(trio.loop, 0);
	}
	assert_int_equal(heard, 2);
	close_unanswered(channel);
}

static bool the_first_has_ended(struct trio *of)
{
	(void)of;
	return ones[0].ended;
}

/* A leader has it when the patience of the client ends: it may still take effect. */
static void a_request_that_was_sent_and_not_answered_is_unknown(void **state)
{
	struct hf_smr_client_config config = {
		.cluster = "trio", .members = trio.who, .member_count = 1, .patience_ns = SOON_NS / 2};
	struct hf_channel *channel;

	(void)state;
	channel = open_unanswered(&config);
	do { /* nothing was sent where the patience was over before the session was there */
		submit(0, 1);
		assert_true(trio_until(&trio, the_first_has_ended));
	} while (ones[0].request.outcome == HF_SMR_NOT_LEADER && heard == 0);
	assert_int_equal(ones[0].request.outcome, HF_SMR_UNKNOWN);
	close_unanswered(channel);
}

/* ---- a member whose process is killed ---- */

#define TRIALS 20u

/* Member 0 in a process of its own. */
static void be_first(void)
{
	static const struct hf_channel_events events = {.open = say_hello, .message = answer_others};
	struct hf_channel *channel;
	struct hf_error error = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (hf_loop_create(hf_env_host(), &trio.loop) != 0) /* the other one is shared with who forked */
		_exit(1);
	trio_start(&trio, 0);
	if (hf_channel_register(trio.members[0].node, "smrc.trio", &events, NULL, &channel, &error) != 0)
		_exit(1);
	hf_loop_run(trio.loop);
}

static void say_second(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	static const uint8_t hello[2] = {1, 1};

	(void)context;
	(void)hf_channel_send(channel, peer, hello, sizeof(hello));
}

static bool is_at_first(struct trio *of)
{
	(void)of;
	return heard > 0 && ones[0].request.sent_to == 0;
}

static bool is_at_second(struct trio *of)
{
	(void)of;
	return ones[0].request.sent_to == 1;
}

/* A request that nobody answers goes from one to the other. How long one that was killed keeps it. */
static uint64_t kill_first(void)
{
	static const struct hf_channel_events events = {.open = say_second, .message = answer_others};
	struct hf_smr_client_config config = {.cluster = "trio", .members = trio.who, .member_count = 2, .sessions = 1};
	struct hf_channel *channel;
	struct hf_error error = {0};
	uint64_t since_ns;
	pid_t pid;

	trio_open(&trio);
	pid = fork();
	if (pid == 0)
		be_first();
	trio_start(&trio, 1);
	trio_start(&trio, 2);
	assert_int_equal(hf_channel_register(trio.members[1].node, "smrc.trio", &events, NULL, &channel, &error), 0);
	assert_int_equal(hf_smr_client_open(trio.members[2].node, &config, &clients[2], &error), 0);
	heard = 0;
	submit(0, 2);
	assert_true(trio_until(&trio, is_at_first));
	since_ns = ones[0].request.sent_ns;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(trio_until(&trio, is_at_second));
	since_ns = ones[0].request.sent_ns - since_ns;
	hf_smr_client_close(clients[2]);
	clients[2] = NULL;
	hf_channel_close(channel);
	trio_close(&trio);
	return since_ns;
}

/* Where the machine has no time for us it stays there for longer: once is enough. */
static void a_request_does_not_wait_for_a_member_that_was_killed(void **state)
{
	unsigned soon = 0;

	(void)state;
	for (unsigned i = 0; i < TRIALS && soon == 0; i++)
		soon += kill_first() < SOON_NS;
	assert_int_equal(soon, 1);
}

static bool one_has_ended(struct trio *of)
{
	(void)of;
	return ended == 1;
}

static void a_request_that_no_log_takes_is_refused(void **state)
{
	static uint8_t data[2u << 20];

	(void)state;
	open_all();
	for (unsigned member = 0; member < TRIO_MEMBERS; member++)
		for (unsigned i = 0; i < 2; i++) {
			struct one *one = &ones[0];

			ended = 0;
			one->ended = false;
			one->request = (struct hf_smr_request){.data = data,
				.bytes = i == 0 ? hf_smr_request_bytes_max(trio.members[0].smr) + 1 : sizeof(data),
				.done = done};
			hf_smr_client_submit(clients[member], &one->request);
			assert_true(trio_until(&trio, one_has_ended));
			assert_int_equal(one->request.outcome, HF_SMR_NOT_LEADER);
			assert_int_equal(one->request.error, -EMSGSIZE);
		}
	close_all();
}

/* Number 0 closes a session: the request would be lost, and said to be decided. */
static void a_lane_whose_numbers_are_used_up_opens_another_session(void **state)
{
	struct smr_lane lane = {.session = 7, .sequence = UINT32_MAX - 2};
	struct hf_smr_request last[2] = {0};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_true(smr_lane_has_room(&lane));
		smr_lane_take(&lane, &last[i]);
	}
	assert_int_equal(last[1].call.sequence, UINT32_MAX);
	assert_false(smr_lane_has_room(&lane));
	assert_false(smr_lane_needs_session(&lane)); /* these are under way */
	lane.flight[last[1].call.sequence % SMR_LANE_FLIGHTS] = NULL;
	assert_false(smr_lane_needs_session(&lane));
	lane.flight[last[0].call.sequence % SMR_LANE_FLIGHTS] = NULL;
	assert_false(smr_lane_has_room(&lane));
	assert_true(smr_lane_needs_session(&lane));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_whose_numbers_are_used_up_opens_another_session),
		cmocka_unit_test(clients_at_every_member_are_answered),
		cmocka_unit_test(threads_wait_for_their_requests),
		cmocka_unit_test(what_was_under_way_when_the_leader_went_is_decided_once),
		cmocka_unit_test(requests_of_a_client_that_is_closed_end),
		cmocka_unit_test(what_is_submitted_while_a_client_is_closed_ends),
		cmocka_unit_test(a_request_without_an_answer_is_sent_again_while_others_flow),
		cmocka_unit_test(a_request_that_was_sent_and_not_answered_is_unknown),
		cmocka_unit_test(a_request_does_not_wait_for_a_member_that_was_killed),
		cmocka_unit_test(a_request_that_no_log_takes_is_refused),
	};

	trio_kind = argc > 1 ? argv[1] : "shm";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
