/* A member that counts, and the nodes of all processes. */
#include "sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc.h"

struct counter {
	struct shared *shared;
	unsigned id;
	uint8_t *counts;
	size_t restored;
};

struct reader {
	size_t at;
	uint8_t counts[];
};

static void address(const struct shared *shared, unsigned id, struct hf_addr *out)
{
	char text[HF_ADDR_TEXT];

	(void)snprintf(text, sizeof(text), "127.%u.%u.%u:18700", 60 + (unsigned)shared->pid / 256 % 60,
		(unsigned)shared->pid % 256, 1 + id);
	(void)hf_addr_parse(text, out);
}

void sessions_addresses(const struct shared *shared, struct hf_smr_member members[MEMBERS])
{
	for (unsigned i = 0; i < MEMBERS; i++) {
		members[i] = (struct hf_smr_member){.id = (uint8_t)i, .address_count = 1};
		address(shared, i, &members[i].addresses[0]);
	}
}

int sessions_node(const struct shared *shared, unsigned id, struct hf_loop **loop_out, struct hf_node **node_out)
{
	static const struct hf_node_events events = {0};
	struct hf_node_config config = {.rail_count = 1};
	struct hf_error error = {0};
	int rc = hf_loop_create(hf_env_host(), loop_out);

	(void)snprintf(config.name, sizeof(config.name), "n%u", id);
	(void)snprintf(config.fabric, sizeof(config.fabric), "sessions-%d", shared->pid);
	(void)snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	(void)snprintf(config.rails[0].kind, HF_NAME_BYTES, "shm");
	address(shared, id, &config.rails[0].control);
	config.rails[0].address = config.rails[0].control;
	hf_addr_set_port(&config.rails[0].address, 0);
	if (rc == 0)
		rc = hf_node_open(*loop_out, &config, &events, NULL, node_out, &error);
	if (rc != 0)
		fprintf(stderr, "# process %u: %s\n", id, error.text);
	return rc;
}

/* ---- the state machine ---- */

static void sum(struct counter *counter)
{
	struct member *member = &counter->shared->members[counter->id];

	member->once = member->more = 0;
	for (unsigned i = 0; i < counter->shared->requests; i++) {
		member->once += counter->counts[i] == 1;
		member->more += counter->counts[i] > 1;
	}
	member->crc = crc32c(0, counter->counts, counter->shared->requests);
	atomic_store(&member->summed, true);
}

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct counter *counter = context;
	uint32_t number = request->bytes == 4 ? get_le32(request->data) : REQUESTS_MAX;

	if (number == SUM)
		sum(counter);
	else if (number < counter->shared->requests && counter->counts[number] < UINT8_MAX)
		counter->counts[number]++;
	put_le32(result, number);
	return 4;
}

static int snapshot_open(void *context, void **snapshot_out)
{
	const struct counter *counter = context;
	struct reader *reader = malloc(sizeof(*reader) + counter->shared->requests);

	if (reader == NULL)
		return -1;
	reader->at = 0;
	memcpy(reader->counts, counter->counts, counter->shared->requests);
	*snapshot_out = reader;
	return 0;
}

static ssize_t snapshot_read(void *context, void *snapshot, void *data, size_t bytes)
{
	const struct counter *counter = context;
	struct reader *reader = snapshot;
	size_t left = counter->shared->requests - reader->at;

	bytes = bytes < left ? bytes : left;
	memcpy(data, reader->counts + reader->at, bytes);
	reader->at += bytes;
	return (ssize_t)bytes;
}

static void snapshot_close(void *context, void *snapshot)
{
	(void)context;
	free(snapshot);
}

static int restore_open(void *context)
{
	struct counter *counter = context;

	memset(counter->counts, 0, counter->shared->requests);
	counter->restored = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct counter *counter = context;

	if (bytes > counter->shared->requests - counter->restored)
		return -1;
	memcpy(counter->counts + counter->restored, data, bytes);
	counter->restored += bytes;
	return 0;
}

static int restore_close(void *context, bool whole)
{
	const struct counter *counter = context;

	return whole && counter->restored != counter->shared->requests ? -1 : 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct counter *counter = context;
	struct member *member = &counter->shared->members[counter->id];

	if (event->kind == HF_SMR_LEADING || event->kind == HF_SMR_FOLLOWING)
		atomic_store(&member->leads, event->kind == HF_SMR_LEADING);
	if (event->kind == HF_SMR_REMOVED || event->kind == HF_SMR_FAILED)
		_exit(3);
}

int sessions_member(struct shared *shared, unsigned id)
{
	static const struct hf_smr_app app = {apply, snapshot_open, snapshot_read, snapshot_close, restore_open,
		restore_write, restore_close, on_event};
	struct hf_smr_member members[MEMBERS];
	struct hf_smr_config config = {
		.cluster = "sessions", .id = (uint8_t)id, .members = members, .member_count = MEMBERS, .slots = 256};
	struct counter counter = {.shared = shared, .id = id, .counts = calloc(1, shared->requests)};
	struct hf_smr_client *client = NULL;
	struct hf_smr_status status;
	struct hf_error error = {0};
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_smr *smr;
	int rc = counter.counts == NULL ? -1 : sessions_node(shared, id, &loop, &node);

	sessions_addresses(shared, members);
	if (rc == 0)
		rc = hf_smr_start(node, &config, &app, &counter, &smr, &error);
	if (rc == 0)
		rc = hf_smr_client_open(
			node, &(struct hf_smr_client_config){.cluster = "sessions", .smr = smr}, &client, &error);
	if (rc != 0) {
		fprintf(stderr, "# member %u: %s\n", id, error.text);
		return 1;
	}
	for (;;) { /* until it is killed */
		(void)hf_loop_turn(loop, 1000000);
		hf_smr_status(smr, &status);
		atomic_store(&shared->members[id].in,
			(status.role == HF_SMR_LEADER || (status.role == HF_SMR_FOLLOWER && status.leader >= 0)) &&
				status.applied > 1);
	}
}
