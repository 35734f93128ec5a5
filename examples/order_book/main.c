/* An order book at every member of a replicated log, and a client that trades.
 *
 *   order-book member ID FABRIC ADDRESS...      runs member ID; there are as many members as addresses
 *   order-book client FABRIC OWN ADDRESS...     reads orders from its standard input, a line each, and prints what came
 *                                               of each: buy PRICE QUANTITY, sell PRICE QUANTITY, cancel NUMBER,
 *                                               modify NUMBER PRICE QUANTITY
 *
 * The client uses hf_smr_client: it finds the leader, and each order takes effect once. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/smr_client.h>

#include "book.h"

#define MEMBERS_MAX 5u
#define LINE_BYTES  128u
#define CLUSTER     "order-book"

_Static_assert(sizeof(struct book_result) <= HF_SMR_RESULT_BYTES, "the executions of an order are its result");

static struct hf_error error;

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "order-book: %s: error %d %s\n", what, rc, error.text);
	exit(2);
}

static struct hf_node *open_node(const char *fabric, const char *address, struct hf_loop **loop_out)
{
	static const struct hf_node_events events = {0};
	struct hf_node_config config = {.rail_count = 1};
	struct hf_node *node;

	(void)snprintf(config.name, sizeof(config.name), "%s", address);
	for (char *at = config.name; *at != '\0'; at++)
		*at = *at == ':' ? '-' : *at;
	(void)snprintf(config.fabric, sizeof(config.fabric), "%s", fabric);
	(void)snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	(void)snprintf(config.rails[0].kind, HF_NAME_BYTES, "shm");
	must(hf_addr_parse(address, &config.rails[0].control), address);
	config.rails[0].address = config.rails[0].control;
	hf_addr_set_port(&config.rails[0].address, 0);
	must(hf_loop_create(hf_env_host(), loop_out), "loop");
	must(hf_node_open(*loop_out, &config, &events, NULL, &node, &error), "node");
	return node;
}

/* ---- a member ---- */

struct member {
	struct book *book;
	size_t restored;
};
struct snapshot {
	size_t at;
	struct book book;
};

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct member *member = context;
	struct book_request order;

	if (request->bytes != sizeof(order))
		return 0;
	memcpy(&order, request->data, sizeof(order));
	book_apply(member->book, &order, result);
	return sizeof(struct book_result);
}

static int snapshot_open(void *context, void **snapshot_out)
{
	const struct member *member = context;
	struct snapshot *snapshot = malloc(sizeof(*snapshot));

	*snapshot_out = snapshot;
	if (snapshot == NULL)
		return -ENOMEM;
	snapshot->at = 0;
	snapshot->book = *member->book;
	return 0;
}

static ssize_t snapshot_read(void *context, void *handle, void *data, size_t bytes)
{
	struct snapshot *snapshot = handle;
	size_t left = sizeof(snapshot->book) - snapshot->at;

	bytes = bytes < left ? bytes : left;
	memcpy(data, (const char *)&snapshot->book + snapshot->at, bytes);
	snapshot->at += bytes;
	return (ssize_t)bytes;
}

static void snapshot_close(void *context, void *snapshot)
{
	free(snapshot);
}

static int restore_open(void *context)
{
	((struct member *)context)->restored = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct member *member = context;

	if (bytes > sizeof(*member->book) - member->restored)
		return -EBADMSG;
	memcpy((char *)member->book + member->restored, data, bytes);
	member->restored += bytes;
	return 0;
}

static int restore_close(void *context, bool whole)
{
	const struct member *member = context;

	return whole && member->restored != sizeof(*member->book) ? -EBADMSG : 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	if (event->kind == HF_SMR_LEADING)
		puts("leads");
	else if (event->kind == HF_SMR_FOLLOWING)
		printf("follows %d\n", event->leader);
	else if (event->kind == HF_SMR_MEMBERS)
		puts("members change");
	fflush(stdout);
	if (event->kind != HF_SMR_REMOVED && event->kind != HF_SMR_FAILED)
		return;
	fprintf(stderr, "order-book: the replica steps out: %s\n", event->reason == NULL ? "" : event->reason);
	exit(1);
}

static void run_member(
	unsigned id, const char *fabric, const char *address, const struct hf_smr_member *members, unsigned count)
{
	static const struct hf_smr_app app = {apply, snapshot_open, snapshot_read, snapshot_close, restore_open,
		restore_write, restore_close, on_event};
	const struct hf_smr_config config = {
		.cluster = CLUSTER, .id = (uint8_t)id, .members = members, .member_count = count};
	struct hf_smr_client_config answers = {.cluster = CLUSTER};
	struct member member = {.book = calloc(1, sizeof(*member.book))};
	struct hf_smr_client *client;
	struct hf_loop *loop;
	struct hf_node *node = open_node(fabric, address, &loop);

	must(member.book == NULL ? -ENOMEM : 0, "book");
	must(hf_smr_start(node, &config, &app, &member, &answers.smr, &error), "replica");
	must(hf_smr_client_open(node, &answers, &client, &error), "clients");
	hf_loop_run(loop); /* until it is killed */
}

/* ---- a client ---- */

static bool parse(const char *line, struct book_request *order)
{
	char word[8] = "";

	*order = (struct book_request){0};
	if (sscanf(line, "%7s", word) != 1)
		return false;
	order->side = strcmp(word, "sell") == 0 ? BOOK_SELL : BOOK_BUY;
	if (strcmp(word, "buy") == 0 || strcmp(word, "sell") == 0)
		return sscanf(line, "%*s %" SCNu32 " %" SCNu32, &order->price, &order->quantity) == 2;
	order->op = strcmp(word, "cancel") == 0 ? BOOK_CANCEL : BOOK_MODIFY;
	if (order->op == BOOK_CANCEL)
		return sscanf(line, "%*s %" SCNu64, &order->number) == 1;
	return strcmp(word, "modify") == 0 && sscanf(line, "%*s %" SCNu64 " %" SCNu32 " %" SCNu32, &order->number,
						      &order->price, &order->quantity) == 3;
}

static void print(const struct book_result *result)
{
	static const char *const refusals[] = {[BOOK_UNKNOWN] = "no such order",
		[BOOK_REFUSED] = "price or quantity is out of range",
		[BOOK_FULL] = "the book is full"};

	if (result->outcome != BOOK_DONE) {
		puts(result->outcome <= BOOK_FULL ? refusals[result->outcome] : "no result");
		return;
	}
	printf("order %" PRIu64 ": executed %u, rests %u;", result->number, result->executed, result->rests);
	for (uint32_t i = 0; i < result->fills && i < BOOK_FILLS; i++)
		printf(" %u at %u with %" PRIu64, result->list[i].quantity, result->list[i].price,
			result->list[i].with);
	if (result->fills > BOOK_FILLS)
		printf(" and %u more", result->fills - BOOK_FILLS);
	putchar('\n');
}

static void *turn(void *loop)
{
	hf_loop_run(loop);
	return NULL;
}

static int run_client(const char *fabric, const char *own, const struct hf_smr_member *members, unsigned count)
{
	const struct hf_smr_client_config config = {.cluster = CLUSTER,
		.members = members,
		.member_count = count,
		.sessions = 1,
		.patience_ns = 60000000000ull};
	struct hf_smr_client *client;
	struct hf_loop *loop;
	struct hf_node *node = open_node(fabric, own, &loop);
	char line[LINE_BYTES];
	pthread_t thread;
	int status = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	must(hf_smr_client_open(node, &config, &client, &error), "client");
	must(pthread_create(&thread, NULL, turn, loop), "thread");
	while (status == 0 && fgets(line, sizeof(line), stdin) != NULL) {
		struct book_request order;
		struct book_result result = {0};
		struct hf_smr_request request = {
			.data = &order, .bytes = sizeof(order), .result = &result, .result_room = sizeof(result)};

		if (!parse(line, &order)) {
			puts("say buy PRICE QUANTITY, sell PRICE QUANTITY, cancel NUMBER or modify NUMBER PRICE "
			     "QUANTITY");
			continue;
		}
		hf_smr_client_submit(client, &request);
		hf_smr_client_wait(&request);
		status = request.outcome != HF_SMR_DECIDED;
		if (status == 0)
			print(&result);
		else
			fprintf(stderr,
				"order-book: no leader answers; whether the last order took effect is not known\n");
		fflush(stdout);
	}
	hf_loop_stop(loop);
	hf_loop_wake(loop);
	pthread_join(thread, NULL);
	hf_smr_client_close(client);
	hf_node_close(node);
	hf_loop_destroy(loop);
	return status;
}

int main(int argc, char **argv)
{
	struct hf_smr_member members[MEMBERS_MAX] = {0};
	bool serves = argc > 1 && strcmp(argv[1], "member") == 0;
	unsigned count = argc > 4 ? (unsigned)argc - 4 : 0, id;

	if (count == 0 || count > MEMBERS_MAX || (!serves && strcmp(argv[1], "client") != 0)) {
		fputs("order-book member ID FABRIC ADDRESS..., or order-book client FABRIC OWN ADDRESS...\n", stderr);
		return 2;
	}
	for (unsigned i = 0; i < count; i++) {
		members[i] = (struct hf_smr_member){.id = (uint8_t)i, .address_count = 1};
		must(hf_addr_parse(argv[4 + i], &members[i].addresses[0]), argv[4 + i]);
	}
	if (!serves)
		return run_client(argv[2], argv[3], members, count);
	id = (unsigned)strtoul(argv[2], NULL, 10);
	must(id < count ? 0 : -EINVAL, "no member has this id");
	run_member(id, argv[3], argv[4 + id], members, count);
	return 0;
}
