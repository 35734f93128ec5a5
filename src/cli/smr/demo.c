/* `holdfast smr demo`: three proxies before three servers, Redis or memcached; a client counts at one of them while the
 * leader is
 * killed, and another proxy is asked for the count. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdarg.h>
#include <string.h>

#include <holdfast/node.h>

#include "cli/ask_page.h"
#include "cli/cli.h"
#include "cli/cluster/cluster.h"
#include "cli/process.h"
#include "cli/scratch.h"
#include "cli/smr/ask.h"
#include "cli/smr/smr.h"

#define COMMAND    "smr demo"
#define MEMBERS    3u
#define ROUNDS     3u
#define COUNT_NS   3000000000ull /* of counting, half before a kill and half behind it */
#define QUICK_NS   1000000000ull
#define START_NS   30000000000ull
#define ANSWER_NS  40000000000ull
#define RETURN_NS  15000000000ull
#define PAUSE_NS   20000000ull
#define PATH_BYTES (SCRATCH_PATH_BYTES + 32)
#define WHY_BYTES  (PATH_BYTES + 160)
#define NS_PER_MS  1e6

struct demo_member {
	struct process process;
	char name[2], config[PATH_BYTES], log[PATH_BYTES];
	struct hf_addr redis, http;
};

struct round {
	unsigned killed, asked;
	int64_t acknowledged, found;
	double gap_ms; /* the longest time between two acknowledged counts */
	bool returned;
};

struct demo {
	struct hf_loop *loop;
	struct scratch scratch;
	struct demo_member members[MEMBERS];
	struct round rounds[ROUNDS];
	unsigned round_count;
	const char *server;
	bool memcached;
	bool quiet, quick;
	int64_t acknowledged;
	char why[WHY_BYTES];
};

static uint64_t now_ns(const struct demo *demo)
{
	return hf_env_now_ns(hf_loop_env(demo->loop));
}

static void pause_a_little(struct demo *demo)
{
	uint64_t end_ns = now_ns(demo) + PAUSE_NS;

	while (now_ns(demo) < end_ns && !process_interrupted())
		(void)hf_loop_turn(demo->loop, PAUSE_NS);
}

static void say(const struct demo *demo, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct demo *demo, const char *format, ...)
{
	va_list list;

	if (demo->quiet)
		return;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
}

static int fail(struct demo *demo, int rc, const char *what)
{
	if (demo->why[0] == '\0')
		(void)snprintf(demo->why, sizeof(demo->why), "%s: %s; the members' logs: %s", what, strerror(-rc),
			demo->scratch.path);
	return rc;
}

/* ---- members ---- */

/* Addresses of loopback that no other demo has. */
static int write_configs(struct demo *demo)
{
	struct cluster cluster = {
		.service = cluster_find_service("smr-proxy"), .kind = "shm", .count = MEMBERS, .rails = 1};
	char fabric[HF_NAME_BYTES];
	uint8_t net[2];
	int rc = 0;

	hf_env_entropy(hf_loop_env(demo->loop), net, sizeof(net));
	(void)snprintf(fabric, sizeof(fabric), "smr-demo-%d", (int)process_own_pid());
	cluster.fabric = fabric;
	for (unsigned i = 0; i < MEMBERS; i++) {
		cluster.members[i].name[0] = (char)('a' + i);
		(void)snprintf(
			cluster.members[i].rails[0], HF_ADDR_TEXT, "127.%u.%u.%u", 64u + net[0] % 64u, net[1], i + 1);
	}
	for (unsigned i = 0; i < MEMBERS && rc == 0; i++) {
		struct demo_member *member = &demo->members[i];

		member->name[0] = (char)('a' + i);
		(void)snprintf(
			member->config, sizeof(member->config), "%s/%c.json", demo->scratch.path, member->name[0]);
		(void)snprintf(member->log, sizeof(member->log), "%s/%c.log", demo->scratch.path, member->name[0]);
		rc = hf_addr_parse(cluster.members[i].rails[0], &member->redis);
		member->http = member->redis;
		hf_addr_set_port(&member->redis, cluster.service->client_port);
		hf_addr_set_port(&member->http, cluster.service->http_port);
		if (rc == 0)
			rc = cluster_write(&cluster, i, demo->scratch.path);
	}
	return rc;
}

static int start_member(struct demo *demo, struct demo_member *member)
{
	const char *const argv[] = {"/proc/self/exe", "smr-proxy", "--config", member->config,
		demo->memcached ? "--memcached" : "--redis", demo->server, NULL};

	return process_start_other((char *const *)(uintptr_t)argv, member->log, &member->process);
}

/* The member that leads, as this one sees it; -1: none, or it does not answer. */
static int leader_seen_by(struct demo *demo, unsigned i, double *applied_out)
{
	json_t *json = ask_page(demo->loop, &demo->members[i].http, "/smr.json", PAUSE_NS * 10, NULL);
	json_t *leader = json_object_get(json, "leader");
	int id = json_is_integer(leader) ? (int)json_integer_value(leader) : -1;

	if (applied_out != NULL)
		*applied_out = json_number_value(json_object_get(json, "applied"));
	json_decref(json);
	return id;
}

static bool member_ended(struct demo *demo, unsigned i)
{
	char words[80];

	if (!process_ended(&demo->members[i].process, words, sizeof(words)))
		return false;
	(void)snprintf(demo->why, sizeof(demo->why), "member %s %s; see %s", demo->members[i].name, words,
		demo->members[i].log);
	return true;
}

/* All of them know one leader. */
static int wait_for_leader(struct demo *demo, uint64_t limit_ns)
{
	uint64_t end_ns = now_ns(demo) + limit_ns;

	while (now_ns(demo) < end_ns && !process_interrupted()) {
		int leaders[MEMBERS];
		bool same = true;

		for (unsigned i = 0; i < MEMBERS; i++) {
			if (member_ended(demo, i))
				return -ECHILD;
			leaders[i] = leader_seen_by(demo, i, NULL);
			same &= leaders[i] >= 0 && leaders[i] == leaders[0];
		}
		if (same)
			return leaders[0];
		pause_a_little(demo);
	}
	return process_interrupted() ? -EINTR : -ETIMEDOUT;
}

/* It follows, and has applied what the others have. */
static bool wait_for_return(struct demo *demo, unsigned i, unsigned other)
{
	uint64_t end_ns = now_ns(demo) + RETURN_NS;

	while (now_ns(demo) < end_ns && !process_interrupted() && !member_ended(demo, i)) {
		double mine = 0, theirs = 0;

		if (leader_seen_by(demo, i, &mine) >= 0 && leader_seen_by(demo, other, &theirs) >= 0 && mine > 0 &&
			mine + 64 >= theirs)
			return true;
		pause_a_little(demo);
	}
	return false;
}

/* ---- counting ---- */

static int ask_server(
	struct demo *demo, struct ask *ask, const char *redis, const char *memcached, struct resp_element *reply)
{
	return demo->memcached ? ask_memcached(ask, memcached, ANSWER_NS, reply)
			       : ask_redis(ask, redis, ANSWER_NS, reply);
}

static int count(struct demo *demo, struct ask *ask, uint64_t for_ns, double *gap_ms)
{
	uint64_t begin_ns = now_ns(demo), last_ns = begin_ns;
	struct resp_element reply;

	while (now_ns(demo) - begin_ns < for_ns && !process_interrupted()) {
		int rc = ask_server(demo, ask, "INCR counter", "incr counter 1", &reply);
		double gap = (double)(now_ns(demo) - last_ns) / NS_PER_MS;

		if (rc != 0)
			return fail(demo, rc, "the count was not answered");
		if (reply.type != RESP_INTEGER || reply.number != demo->acknowledged + 1) {
			(void)snprintf(demo->why, sizeof(demo->why),
				"count %" PRId64 " was answered with %.*s: lost, or counted twice",
				demo->acknowledged + 1,
				reply.type == RESP_INTEGER ? (int)strlen("another one") : (int)reply.bytes,
				reply.type == RESP_INTEGER ? "another one" : (const char *)reply.text);
			return -EBADMSG;
		}
		demo->acknowledged++;
		last_ns = now_ns(demo);
		*gap_ms = gap > *gap_ms ? gap : *gap_ms;
	}
	return process_interrupted() ? -EINTR : 0;
}

static int read_count(struct demo *demo, unsigned i, int64_t *count_out)
{
	struct resp_element reply;
	struct ask ask;
	int rc = ask_open(&ask, demo->loop, &demo->members[i].redis);

	if (rc == 0)
		rc = ask_server(demo, &ask, "GET counter", "get counter", &reply);
	if (rc == 0 && (reply.type != RESP_BULK || !resp_number(reply.text, reply.bytes, count_out)))
		rc = -EPROTO;
	ask_close(&ask);
	return rc == 0 ? 0 : fail(demo, rc, "another proxy could not be read");
}

static int kill_leader_and_count(struct demo *demo, unsigned leader, struct round *round)
{
	unsigned counting = (leader + 1) % MEMBERS, other = (leader + 2) % MEMBERS;
	uint64_t half_ns = (demo->quick ? QUICK_NS : COUNT_NS) / 2;
	struct resp_element reply;
	struct ask ask;
	int rc = ask_open(&ask, demo->loop, &demo->members[counting].redis);

	round->killed = leader;
	round->asked = other;
	if (rc == 0) /* memcached counts what is there */
		rc = ask_server(demo, &ask, "EXISTS counter", "add counter 0 0 1\r\n0", &reply);
	say(demo, "member %s leads; a client counts at the proxy of %s", demo->members[leader].name,
		demo->members[counting].name);
	if (rc == 0)
		rc = count(demo, &ask, half_ns, &round->gap_ms);
	round->gap_ms = 0;
	if (rc == 0) {
		say(demo, "%" PRId64 " counts are acknowledged; member %s and its server are killed (signal 9)",
			demo->acknowledged, demo->members[leader].name);
		process_stop(&demo->members[leader].process, 0);
		rc = count(demo, &ask, half_ns, &round->gap_ms);
	}
	ask_close(&ask);
	round->acknowledged = demo->acknowledged;
	if (rc == 0)
		rc = read_count(demo, other, &round->found);
	if (rc == 0)
		say(demo,
			"%" PRId64
			" counts are acknowledged, the longest wait was %.0f ms; the proxy of %s finds %" PRId64,
			round->acknowledged, round->gap_ms, demo->members[other].name, round->found);
	return rc;
}

/* ---- the demo ---- */

static int run_rounds(struct demo *demo)
{
	int rc = 0;

	for (unsigned i = 0; i < (demo->quick ? 1 : ROUNDS); i++) {
		struct round *round = &demo->rounds[i];
		int leader = wait_for_leader(demo, START_NS);

		if (leader < 0)
			return fail(demo, leader, "the members found no leader");
		demo->round_count++;
		rc = kill_leader_and_count(demo, (unsigned)leader, round);
		if (rc != 0 || round->found != round->acknowledged)
			return rc;
		rc = start_member(demo, &demo->members[leader]);
		if (rc != 0)
			return fail(demo, rc, "the killed member could not be started again");
		round->returned = wait_for_return(demo, (unsigned)leader, round->asked);
		if (!round->returned) {
			say(demo, "member %s was started again, and was not taken in within 15 s; see %s",
				demo->members[leader].name, demo->members[leader].log);
			return 0;
		}
		say(demo, "member %s was started again with an empty server, and is back", demo->members[leader].name);
	}
	return 0;
}

static json_t *report(const struct demo *demo, bool good)
{
	json_t *rounds = json_array();

	for (unsigned i = 0; i < demo->round_count; i++) {
		const struct round *round = &demo->rounds[i];

		json_array_append_new(
			rounds, json_pack("{s:s, s:s, s:I, s:I, s:f, s:b}", "killed", demo->members[round->killed].name,
					"asked", demo->members[round->asked].name, "acknowledged",
					(json_int_t)round->acknowledged, "found", (json_int_t)round->found,
					"longest_wait_ms", round->gap_ms, "returned", (int)round->returned));
	}
	return json_pack("{s:b, s:s, s:o}", "good", (int)good, "why", demo->why, "rounds", rounds);
}

static int judge(struct demo *demo, int rc, bool as_json)
{
	bool good = rc == 0 && demo->round_count > 0;

	for (unsigned i = 0; i < demo->round_count; i++)
		good &= demo->rounds[i].found == demo->rounds[i].acknowledged && demo->rounds[i].returned;
	if (process_interrupted())
		return EXIT_INTERRUPTED;
	if (as_json)
		return cli_print_json(report(demo, good)) == EXIT_DONE && good ? EXIT_DONE : EXIT_FOUND;
	if (demo->why[0] != '\0')
		printf("%s\n", demo->why);
	printf(good ? "every acknowledged write was found, and each killed member is back\n" : "a fault was found\n");
	return cli_flush(COMMAND) == EXIT_DONE && good ? EXIT_DONE : EXIT_FOUND;
}

static int run_demo(struct demo *demo, bool as_json)
{
	struct hf_error error = {0};
	int rc = scratch_create(&demo->scratch, 0, &error), status;

	if (rc != 0)
		return cli_refuse(COMMAND, "%s", error.text);
	rc = write_configs(demo);
	for (unsigned i = 0; i < MEMBERS && rc == 0; i++)
		rc = start_member(demo, &demo->members[i]);
	if (rc != 0)
		(void)fail(demo, rc, "the members could not be started");
	else
		rc = run_rounds(demo);
	status = judge(demo, rc, as_json);
	for (unsigned i = 0; i < MEMBERS; i++)
		process_stop(&demo->members[i].process, 0);
	if (status == EXIT_DONE)
		scratch_remove(&demo->scratch);
	return status;
}

int smr_demo(int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'}, {"quick", no_argument, NULL, 'q'},
		{"redis", required_argument, NULL, 'r'}, {"memcached", required_argument, NULL, 'm'}, {0}};
	static struct demo demo;
	bool as_json = false;
	int c, status;

	demo.server = "redis-server";
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (c == 'j')
			as_json = true;
		else if (c == 'q')
			demo.quick = true;
		else if (c == 'r')
			demo.server = optarg;
		else if (c == 'm') {
			demo.server = optarg;
			demo.memcached = true;
		} else
			return cli_refuse_option(COMMAND, argv, c);
	}
	if (optind < argc)
		return cli_refuse_option(COMMAND, argv, 0);
	demo.quiet = as_json;
	if (hf_loop_create(hf_env_host(), &demo.loop) != 0)
		return cli_refuse(COMMAND, "cannot make a loop");
	process_catch_signals();
	status = run_demo(&demo, as_json);
	hf_loop_destroy(demo.loop);
	return status;
}
