/* `holdfast smr-proxy`: one member, its Redis and its proxy, until it is told to end. */
#include "cli/cli.h"

#include <holdfast/node.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/client_limit.h"
#include "cli/process.h"
#include "cli/smr/server.h"
#include "proxy/config.h"
#include "proxy/proxy.h"

#define COMMAND     "smr-proxy"
#define SLEEP_NS    100000000ull   /* between two looks at the server and at signals */
#define START_NS    10000000000ull /* in which the server listens */
#define RETRY_NS    10000000ull
#define WORDS_BYTES 300u
#define OTHER_FILES 400u /* descriptors for anything but clients */

struct options {
	const char *config, *redis, *memcached, *directory;
	bool scripts;
};

struct member {
	struct server server;
	struct proxy *proxy;
	const char *name;
	bool failed, memcached, server_ended;
	char why[WORDS_BYTES];
};

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {{"config", required_argument, NULL, 'c'},
		{"redis", required_argument, NULL, 'r'}, {"memcached", required_argument, NULL, 'm'},
		{"directory", required_argument, NULL, 'd'}, {"scripts", no_argument, NULL, 's'}, {0}};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (c == 'c')
			options->config = optarg;
		else if (c == 'r')
			options->redis = optarg;
		else if (c == 'm')
			options->memcached = optarg;
		else if (c == 'd')
			options->directory = optarg;
		else if (c == 's')
			options->scripts = true;
		else
			return cli_refuse_option(COMMAND, argv, c);
	}
	if (optind < argc)
		return cli_refuse_option(COMMAND, argv, 0);
	if (options->config == NULL)
		return cli_refuse(
			COMMAND, "no configuration; give one with --config FILE (docs/smr-proxy.md has an example)");
	if (options->redis != NULL && options->memcached != NULL)
		return cli_refuse(COMMAND, "the proxy stands before one server: say --redis or --memcached");
	return EXIT_DONE;
}

/* ---- what the proxy tells ---- */

static void on_ready(void *context, const struct hf_addr *listen)
{
	struct member *member = context;
	char text[HF_ADDR_TEXT];

	printf("%s takes clients of %s at %s; its server is process %d, at %s\n", member->name,
		member->memcached ? "memcached" : "Redis", hf_addr_format(listen, text),
		(int)member->server.process.pid, member->server.socket);
	fflush(stdout);
}

static void on_failed(void *context, const char *why)
{
	struct member *member = context;

	member->failed = true;
	if (!member->server_ended)
		(void)snprintf(member->why, sizeof(member->why), "%s", why);
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct member *member = context;

	if (event->kind == HF_SMR_LEADING)
		printf("%s leads, number %" PRIu64 "\n", member->name, event->number);
	else if (event->kind == HF_SMR_FOLLOWING && event->leader >= 0)
		printf("%s follows member %d\n", member->name, event->leader);
	else if (event->kind == HF_SMR_BEHIND)
		printf("%s lacks entries that are gone; it takes a snapshot\n", member->name);
	else if (event->kind == HF_SMR_RESTORED)
		printf("%s has the state up to entry %" PRIu64 "\n", member->name, event->index);
	else
		return;
	fflush(stdout);
}

/* ---- running ---- */

/* The server listens a little after it was started. */
static int open_proxy(
	struct member *member, struct hf_node *node, const struct proxy_config *config, struct hf_error *error)
{
	static const struct proxy_events events = {.ready = on_ready, .failed = on_failed, .event = on_event};
	struct hf_loop *loop = hf_node_loop(node);
	uint64_t end_ns = hf_env_now_ns(hf_loop_env(loop)) + START_NS;

	for (;;) {
		int rc = proxy_open(node, config, &events, member, &member->proxy, error);

		if ((rc != -ENOENT && rc != -ECONNREFUSED) || process_interrupted())
			return rc;
		if (server_ended(&member->server, member->why, sizeof(member->why)))
			return hf_error_set(error, -ECHILD, "%s", member->why);
		if (hf_env_now_ns(hf_loop_env(loop)) > end_ns)
			return hf_error_set(error, -ETIMEDOUT, "the server does not listen at %s after 10 s",
				member->server.socket);
		(void)hf_loop_turn(loop, RETRY_NS);
	}
}

static int run(struct member *member, struct hf_loop *loop)
{
	while (!process_interrupted() && !member->failed) {
		(void)hf_loop_turn(loop, SLEEP_NS);
		/* The proxy, whose connection ends too, tells its clients and the other members first. */
		if (!member->server_ended)
			member->server_ended = server_ended(&member->server, member->why, sizeof(member->why));
	}
	if (!member->failed)
		return cli_flush(COMMAND);
	fprintf(stderr, "holdfast " COMMAND ": %s steps out: %s; start it again to take it back in\n", member->name,
		member->why);
	return EXIT_FOUND;
}

static int serve(const struct hf_node_config *node_config, const struct proxy_settings *settings, const char *program,
	bool memcached)
{
	static struct member member;
	struct hf_error error = {0};
	struct proxy_config config = {.memcached = memcached,
		.listen = settings->listen,
		.clients = settings->clients,
		.clients_mb = settings->clients_mb,
		.scripts = settings->scripts,
		.silence_ns = settings->silence_ns};
	struct hf_loop *loop;
	struct hf_node *node = NULL;
	int rc = hf_loop_create(hf_env_host(), &loop), status;

	if (rc != 0)
		return cli_refuse(COMMAND, "cannot make a loop: %s", strerror(-rc));
	member.name = node_config->name;
	member.memcached = memcached;
	rc = proxy_config_smr(settings, node_config->name, memcached, &config.smr, &error);
	if (rc == 0)
		rc = server_start(&member.server, program, memcached, &error);
	config.socket = member.server.socket;
	config.server_pid = (int)member.server.process.pid;
	log_set_service("smr-proxy", node_config->name);
	if (rc == 0)
		rc = hf_node_open(loop, node_config, NULL, NULL, &node, &error);
	if (rc == 0)
		rc = open_proxy(&member, node, &config, &error);
	status = rc == 0 ? run(&member, loop) : cli_refuse(COMMAND, "%s", error.text);
	proxy_close(member.proxy);
	hf_node_close(node);
	hf_loop_destroy(loop);
	server_stop(&member.server);
	return status;
}

int smr_proxy_command(int argc, char **argv)
{
	struct options options = {0};
	struct hf_node_config node;
	static struct proxy_settings settings;
	struct hf_config_section sections[] = {hf_node_config_section(&node), proxy_config_section(&settings)};
	struct hf_error error = {0};
	int rc = parse(argc, argv, &options);

	if (rc != EXIT_DONE)
		return rc;
	rc = hf_config_load(hf_env_host(), options.config, sections, 2, &error);
	if (rc != 0)
		return cli_refuse(COMMAND, "%s", error.text);
	rc = client_limit_fit(COMMAND, PROXY_CLIENTS, OTHER_FILES, &settings.clients);
	if (rc != EXIT_DONE)
		return rc;
	settings.scripts |= options.scripts;
	if (options.directory != NULL && (size_t)snprintf(settings.directory, sizeof(settings.directory), "%s",
						 options.directory) >= sizeof(settings.directory))
		return cli_refuse(COMMAND, "the path of the directory is too long");
	if (options.redis == NULL && options.memcached == NULL && settings.memcached[0] != '\0')
		options.memcached = settings.memcached;
	if (options.redis == NULL)
		options.redis = settings.redis[0] != '\0' ? settings.redis : "redis-server";
	node.cores = settings.cores;
	process_catch_signals();
	return options.memcached != NULL ? serve(&node, &settings, options.memcached, true)
					 : serve(&node, &settings, options.redis, false);
}
