/* `holdfast dev`: the members of a service as processes of this host, until Ctrl-C. */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/ask_page.h"
#include "cli/cluster/cluster.h"
#include "cli/last_line.h"
#include "cli/process.h"
#include "cli/scratch.h"

#define RAILS       2u
#define RAIL_STEP   256u /* between the addresses of a member's rails */
#define LOOK_MS     100u
#define READY_NS    (120 * NS_PER_S)
#define NS_PER_S    1000000000ull
#define ASK_NS      NS_PER_S
#define STOP_MS     15000u
#define MEMBERS     3.0
#define FIRST       "127.0.0.1"
#define ENDED_BYTES 64u

struct member {
	struct process process;
	char config[SCRATCH_PATH_BYTES + HF_NAME_BYTES + 8], log[SCRATCH_PATH_BYTES + HF_NAME_BYTES + 8];
	bool ready, over;
};

struct dev {
	struct hf_loop *loop; /* asks the members */
	struct cluster cluster;
	struct scratch scratch;
	struct member members[CLUSTER_MEMBERS_MAX];
	char fabric[HF_NAME_BYTES], first[HF_ADDR_TEXT];
};

static int parse(int argc, char **argv, struct dev *dev)
{
	static const struct option longs[] = {
		{"members", required_argument, NULL, 'm'}, {"address", required_argument, NULL, 'a'}, {0}};
	double members = MEMBERS;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1)
		switch (c) {
		case 'm':
			if (!cli_number(optarg, 1, CLUSTER_MEMBERS_MAX, &members))
				return cli_refuse("dev", "--members %s: a number from 1 to %u is expected", optarg,
					CLUSTER_MEMBERS_MAX);
			break;
		case 'a':
			(void)snprintf(dev->first, sizeof(dev->first), "%s", optarg);
			break;
		default:
			return cli_refuse_option("dev", argv, c);
		}
	if (optind + 1 != argc)
		return cli_refuse("dev", "name one service: kv, smr-proxy or broker");
	dev->cluster.service = cluster_find_service(argv[optind]);
	if (dev->cluster.service == NULL || dev->cluster.service->section == NULL)
		return cli_refuse("dev", "there is no service '%s' with members; there are kv, smr-proxy and broker",
			argv[optind]);
	dev->cluster.count = (unsigned)members;
	return EXIT_DONE;
}

/* Member i has the first address + i; its second rail is a net of its own. */
static int give_addresses(struct dev *dev)
{
	struct in_addr first;

	if (inet_pton(AF_INET, dev->first, &first) != 1 || (ntohl(first.s_addr) >> 24) != 127)
		return cli_refuse("dev", "--address %s: an address of this host, 127.x.y.z, is expected", dev->first);
	for (unsigned i = 0; i < dev->cluster.count; i++) {
		struct cluster_member *member = &dev->cluster.members[i];

		member->name[0] = (char)('a' + i);
		for (unsigned k = 0; k < RAILS; k++) {
			struct in_addr address = {htonl(ntohl(first.s_addr) + i + k * RAIL_STEP)};

			(void)inet_ntop(AF_INET, &address, member->rails[k], HF_ADDR_TEXT);
		}
	}
	return EXIT_DONE;
}

static int start_member(struct dev *dev, unsigned i)
{
	struct member *member = &dev->members[i];
	const char name[] = {(char)('a' + i), '\0'};
	const char *const argv[] = {"/proc/self/exe", dev->cluster.service->name, "--config", member->config, NULL};
	int rc = cluster_write(&dev->cluster, i, dev->scratch.path);

	(void)snprintf(member->config, sizeof(member->config), "%s/%s.json", dev->scratch.path, name);
	(void)snprintf(member->log, sizeof(member->log), "%s/%s.log", dev->scratch.path, name);
	if (rc == 0)
		rc = process_start_other((char *const *)(uintptr_t)argv, member->log, &member->process);
	return rc == 0 ? EXIT_DONE : cli_fail("dev", "cannot start %s: %s", name, strerror(-rc));
}

static bool is_ready(const struct dev *dev, unsigned i)
{
	struct hf_addr address;
	json_t *page;
	bool ready;

	if (hf_addr_parse(dev->cluster.members[i].rails[0], &address) != 0)
		return false;
	hf_addr_set_port(&address, dev->cluster.service->http_port);
	page = ask_page(dev->loop, &address, "/ready", ASK_NS, NULL);
	ready = json_is_true(json_object_get(page, "ready"));
	json_decref(page);
	return ready;
}

/* True: it ended; said in words once. */
static bool has_ended(struct dev *dev, unsigned i, char words[ENDED_BYTES])
{
	struct member *member = &dev->members[i];

	if (member->over || !process_ended(&member->process, words, ENDED_BYTES))
		return false;
	member->over = true;
	return true;
}

static int give_up(const struct dev *dev)
{
	char line[LAST_LINE_BYTES];
	unsigned i = 0;

	while (dev->members[i].ready)
		i++;
	return cli_fail("dev", "%s does not serve after %llu s; the last line of its log: %s",
		dev->cluster.members[i].name, READY_NS / NS_PER_S, last_line(hf_env_host(), dev->members[i].log, line));
}

static int wait_until_ready(struct dev *dev)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + READY_NS;
	unsigned ready = 0;

	while (ready < dev->cluster.count && !process_interrupted()) {
		char words[ENDED_BYTES], line[LAST_LINE_BYTES];

		for (unsigned i = 0; i < dev->cluster.count; i++) {
			struct member *member = &dev->members[i];

			if (has_ended(dev, i, words))
				return cli_fail("dev", "%s %s: %s", dev->cluster.members[i].name, words,
					last_line(hf_env_host(), member->log, line));
			if (!member->ready && is_ready(dev, i)) {
				member->ready = true;
				ready++;
			}
		}
		if (hf_env_now_ns(hf_env_host()) >= end_ns)
			return give_up(dev);
		if (ready < dev->cluster.count)
			process_wait_readable(NULL, 0, LOOK_MS);
	}
	return process_interrupted() ? EXIT_INTERRUPTED : EXIT_DONE;
}

static void print_commands(const struct dev *dev)
{
	const char *service = dev->cluster.service->name, *first = dev->cluster.members[0].rails[0];

	if (strcmp(service, "broker") == 0)
		printf("  holdfast topics create visits --partitions 3 --brokers %s:%u\n"
		       "  echo hello | holdfast produce visits --brokers %s:%u\n"
		       "  holdfast broker status %s:%u --follow\n",
			first, dev->cluster.service->client_port, first, dev->cluster.service->client_port, first,
			dev->cluster.service->http_port);
	else
		printf("  redis-cli -h %s -p %u incr visits\n"
		       "  holdfast %s status %s:%u --follow\n",
			first, dev->cluster.service->client_port, strcmp(service, "kv") == 0 ? service : "smr", first,
			dev->cluster.service->http_port);
	printf("  holdfast link down a/r0 --fabric %s      # and `up`: traffic goes over r1 meanwhile\n", dev->fabric);
	printf("  kill -9 %d                               # the others go on\n", (int)dev->members[0].process.pid);
}

static void print_members(const struct dev *dev)
{
	printf("%u members of %s serve. Their files are in %s until this command ends (Ctrl-C).\n\n",
		dev->cluster.count, dev->cluster.service->name, dev->scratch.path);
	for (unsigned i = 0; i < dev->cluster.count; i++)
		printf("  %-2s %s:%u   http://%s:%u/metrics   process %d   %s.log\n", dev->cluster.members[i].name,
			dev->cluster.members[i].rails[0], dev->cluster.service->client_port,
			dev->cluster.members[i].rails[0], dev->cluster.service->http_port,
			(int)dev->members[i].process.pid, dev->cluster.members[i].name);
	printf("\nTry:\n");
	print_commands(dev);
	fflush(stdout);
}

static int serve(struct dev *dev)
{
	unsigned alive = dev->cluster.count;

	while (!process_interrupted() && alive > 0) {
		char words[ENDED_BYTES];

		process_wait_readable(NULL, 0, LOOK_MS);
		for (unsigned i = 0; i < dev->cluster.count; i++)
			if (has_ended(dev, i, words)) {
				alive--;
				printf("%s %s; to start it again: holdfast %s --config %s\n",
					dev->cluster.members[i].name, words, dev->cluster.service->name,
					dev->members[i].config);
				fflush(stdout);
			}
	}
	return process_interrupted() ? EXIT_INTERRUPTED : cli_fail("dev", "all members have ended");
}

static void stop_all(struct dev *dev)
{
	for (unsigned i = 0; i < dev->cluster.count; i++)
		if (dev->members[i].process.pid != 0 && !dev->members[i].over)
			kill(dev->members[i].process.pid, SIGTERM);
	for (unsigned i = 0; i < dev->cluster.count; i++)
		process_stop(&dev->members[i].process, STOP_MS);
}

int dev_command(int argc, char **argv)
{
	struct dev dev = {.cluster = {.kind = "shm", .rails = RAILS}, .first = FIRST};
	struct hf_error error = {0};
	int status = parse(argc, argv, &dev);

	if (status == EXIT_DONE)
		status = give_addresses(&dev);
	if (status != EXIT_DONE)
		return status;
	process_catch_signals();
	if (hf_loop_create(hf_env_host(), &dev.loop) != 0)
		return cli_refuse("dev", "cannot make a loop");
	if (scratch_create(&dev.scratch, 0, &error) != 0)
		return cli_refuse("dev", "%s", error.text);
	(void)snprintf(dev.fabric, sizeof(dev.fabric), "dev-%d", (int)process_own_pid());
	dev.cluster.fabric = dev.fabric;
	dev.cluster.data = dev.scratch.path;
	for (unsigned i = 0; i < dev.cluster.count && status == EXIT_DONE; i++)
		status = start_member(&dev, i);
	if (status == EXIT_DONE)
		status = wait_until_ready(&dev);
	if (status == EXIT_DONE) {
		print_members(&dev);
		status = serve(&dev);
	}
	stop_all(&dev);
	scratch_remove(&dev.scratch);
	hf_loop_destroy(dev.loop);
	return status == EXIT_INTERRUPTED ? EXIT_DONE : status;
}
