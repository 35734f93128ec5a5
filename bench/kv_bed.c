#include "bench/kv_bed.h"

#include <holdfast/fabric.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/ask_page.h"
#include "cli/report_file.h"
#include "cli/smr/ask.h"

#define START_NS     30000000000ull
#define ANSWER_NS    1000000000ull
#define PAUSE_NS     2000000ull
#define CONFIG_BYTES 4096u
#define SCRATCH_MB   1024ull
#define PORT_REDIS   6379u
#define MEMBERS      3u
#define STORE_MB     256u

static uint64_t now_ns(const struct kv_bed *bed)
{
	return hf_env_now_ns(hf_loop_env(bed->loop));
}

static void pause_a_little(struct kv_bed *bed)
{
	uint64_t end_ns = now_ns(bed) + PAUSE_NS;

	while (now_ns(bed) < end_ns)
		(void)hf_loop_turn(bed->loop, PAUSE_NS);
}

/* Addresses of loopback that no other bench has. */
static int open_bed(struct kv_bed *bed, struct hf_loop *loop, unsigned count, uint8_t net[2], struct hf_error *error)
{
	*bed = (struct kv_bed){.loop = loop, .count = count};
	hf_env_entropy(hf_loop_env(loop), net, 2);
	net[0] = (uint8_t)(64u + net[0] % 64u);
	return scratch_create(&bed->scratch, SCRATCH_MB << 20, error);
}

static int address(struct hf_addr *to, const uint8_t net[2], unsigned i, unsigned port)
{
	char text[HF_ADDR_TEXT];

	(void)snprintf(text, sizeof(text), "127.%u.%u.%u:%u", net[0], net[1], i + 1, port);
	return hf_addr_parse(text, to);
}

static int write_config(struct kv_bed *bed, unsigned i, const uint8_t net[2], const struct kv_bed_settings *settings)
{
	struct kv_bed_process *member = &bed->members[i];
	char text[CONFIG_BYTES], name[16];
	int n = snprintf(text, sizeof(text),
		"{\"name\": \"n%u\", \"fabric\": \"%s\", \"http\": \"127.%u.%u.%u:8080\",\n"
		" \"rails\": [{\"name\": \"r0\", \"kind\": \"shm\", \"control\": \"127.%u.%u.%u:18515\"}],\n"
		" \"kv\": {\"listen\": \"127.%u.%u.%u:7600\", \"recovery\": \"%s\", \"unnoted\": %s, \"ordered\": %s, "
		"\"store_mb\": %u, "
		"\"log\": \"log-n%u\", \"medium\": \"memory\", \"members\": [\n",
		i, bed->fabric, net[0], net[1], i + 1, net[0], net[1], i + 1, net[0], net[1], i + 1,
		settings->recovery == NULL ? "heal" : settings->recovery, settings->unnoted ? "true" : "false",
		settings->ordered ? "true" : "false", settings->store_mb == 0 ? STORE_MB : settings->store_mb, i);

	for (unsigned k = 0; k < bed->count; k++)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			"  {\"name\": \"n%u\", \"control\": [\"127.%u.%u.%u:18515\"]}%s\n", k, net[0], net[1], k + 1,
			k + 1 < bed->count ? "," : "]}}");
	(void)snprintf(name, sizeof(name), "n%u.json", i);
	(void)snprintf(member->config, sizeof(member->config), "%s/%s", bed->scratch.path, name);
	(void)snprintf(member->log, sizeof(member->log), "%s/n%u.log", bed->scratch.path, i);
	if (address(&member->clients, net, i, 7600) != 0 || address(&member->http, net, i, 8080) != 0)
		return -EINVAL;
	return report_write(hf_loop_env(bed->loop), bed->scratch.path, name, text);
}

static int start(struct kv_bed *bed, unsigned i)
{
	const char *const argv[] = {process_program(), "kv", "--config", bed->members[i].config, NULL};

	return process_start_other((char *const *)(uintptr_t)argv, bed->members[i].log, &bed->members[i].process);
}

json_t *kv_bed_status(struct kv_bed *bed, unsigned i)
{
	return ask_page(bed->loop, &bed->members[i].http, "/kv.json", ANSWER_NS, NULL);
}

static int wait_serving(struct kv_bed *bed, unsigned i, struct hf_error *error)
{
	uint64_t end_ns = now_ns(bed) + START_NS;
	char words[80];

	while (now_ns(bed) < end_ns) {
		json_t *status = kv_bed_status(bed, i);
		bool serves = json_is_true(json_object_get(status, "serving"));

		json_decref(status);
		if (serves)
			return 0;
		if (process_ended(&bed->members[i].process, words, sizeof(words)))
			return hf_error_set(error, -ECHILD, "member n%u %s", i, words);
		if (process_interrupted())
			return -EINTR;
		pause_a_little(bed);
	}
	return hf_error_set(error, -ETIMEDOUT, "member n%u does not serve", i);
}

int kv_bed_return(struct kv_bed *bed, unsigned i, struct hf_error *error)
{
	int rc = start(bed, i);

	return rc != 0 ? hf_error_set(error, rc, "member n%u: %s", i, strerror(-rc)) : wait_serving(bed, i, error);
}

int kv_bed_open(
	struct kv_bed *bed, struct hf_loop *loop, const struct kv_bed_settings *settings, struct hf_error *error)
{
	unsigned count = settings->count == 0 ? MEMBERS : settings->count;
	uint8_t net[2];
	int rc = open_bed(bed, loop, count, net, error);

	(void)snprintf(bed->fabric, sizeof(bed->fabric), "bench-kv-%d-%u-%u", process_own_pid(), net[0], net[1]);
	for (unsigned i = 0; rc == 0 && i < count; i++)
		rc = write_config(bed, i, net, settings);
	for (unsigned i = 0; rc == 0 && i < count; i++)
		rc = start(bed, i);
	for (unsigned i = 0; rc == 0 && i < count; i++)
		rc = wait_serving(bed, i, error);
	return rc;
}

static bool answers(struct kv_bed *bed, unsigned i, const char *line, const char *words)
{
	struct ask ask;
	struct resp_element reply;
	bool good = ask_open(&ask, bed->loop, &bed->members[i].clients) == 0 &&
		    ask_redis(&ask, line, ANSWER_NS, &reply) == 0 && reply.type == RESP_BULK &&
		    memmem(reply.text, reply.bytes, words, strlen(words)) != NULL;

	ask_close(&ask);
	return good;
}

int kv_bed_open_redis(struct kv_bed *bed, struct hf_loop *loop, struct hf_error *error)
{
	uint8_t net[2];
	int rc = open_bed(bed, loop, 3, net, error);
	uint64_t end_ns = now_ns(bed) + START_NS;
	char first[32], words[80];

	(void)snprintf(first, sizeof(first), "127.%u.%u.1", net[0], net[1]);
	for (unsigned i = 0; rc == 0 && i < 3; i++) {
		struct kv_bed_process *server = &bed->members[i];
		char host[32];
		const char *argv[] = {"redis-server", "--port", "6379", "--bind", host, "--save", "", "--appendonly",
			"no", "--protected-mode", "no", "--dir", bed->scratch.path, "--repl-diskless-sync-delay", "0",
			i == 0 ? NULL : "--replicaof", first, "6379", NULL};

		(void)snprintf(host, sizeof(host), "127.%u.%u.%u", net[0], net[1], i + 1);
		(void)snprintf(server->log, sizeof(server->log), "%s/redis%u.log", bed->scratch.path, i);
		rc = address(&server->clients, net, i, PORT_REDIS);
		if (rc == 0)
			rc = process_start_other((char *const *)(uintptr_t)argv, server->log, &server->process);
	}
	while (rc == 0 && !answers(bed, 0, "INFO replication", "connected_slaves:2")) {
		if (process_ended(&bed->members[0].process, words, sizeof(words)))
			return hf_error_set(error, -ENOENT, "redis-server %s; is it installed?", words);
		if (now_ns(bed) > end_ns)
			return hf_error_set(error, -ETIMEDOUT, "redis-server has no replicas");
		pause_a_little(bed);
	}
	return rc;
}

void kv_bed_kill(struct kv_bed *bed, unsigned i)
{
	process_stop(&bed->members[i].process, 0);
}

void kv_bed_close(struct kv_bed *bed)
{
	for (unsigned i = 0; i < bed->count; i++)
		kv_bed_kill(bed, i);
	if (bed->fabric[0] != '\0')
		(void)hf_fabric_remove(bed->fabric);
	if (bed->loop != NULL)
		scratch_remove(&bed->scratch);
	*bed = (struct kv_bed){0};
}
