#include "trio.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "smr/memory_snapshot.h"

#define PATIENCE_NS 20000000000ull
#define CONTROL     18535u

const char *trio_kind = "soft";
static unsigned generation; /* ports that a failed test leaves do not meet the next one's */
static unsigned opened_by;  /* pid: what it forks is on the same addresses */

static struct hf_addr address_of(unsigned id, unsigned rail)
{
	struct hf_addr addr;
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "127.%u.%u.%u", 96 + (opened_by >> 8) % 64, opened_by & 0xff,
		1 + (generation % 30) * 8 + id * 2 + rail);
	assert_int_equal(hf_addr_parse(text, &addr), 0);
	return addr;
}

static void open_node(struct trio *trio, struct trio_member *member, unsigned place)
{
	static const struct hf_node_events events = {0};
	struct hf_node_config config = {.rail_count = 2,
		.policy = HF_POLICY_VARUNA,
		.heartbeat_ns = 20000000,
		.failback_ns = 100000000,
		.budget_ns = 3000000000};
	struct hf_error error = {0};
	int rc;

	snprintf(config.name, sizeof(config.name), "n%u", place);
	snprintf(config.fabric, sizeof(config.fabric), "test-smr-%u-%u", opened_by, generation);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(config.rails[i].name, HF_NAME_BYTES, "r%u", i);
		snprintf(config.rails[i].kind, HF_NAME_BYTES, "%s", trio_kind);
		config.rails[i].address = config.rails[i].control = address_of(place, i);
		hf_addr_set_port(&config.rails[i].control, CONTROL);
	}
	rc = hf_node_open(trio->loop, &config, &events, trio, &member->node, &error);
	if (rc != 0)
		fail_msg("node %u: %s", place, error.text);
}

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct trio_member *member = context;

	assert_true(request->bytes >= 4 && member->applied < TRIO_LOG_MAX);
	memcpy(&member->log[member->applied], request->data, 4);
	memcpy(result, &member->applied, 4);
	member->applied++;
	return 4;
}

static bool is_busy(void *context)
{
	const struct trio_member *member = context;

	return member->trio->busy;
}

/* The state is the log; a snapshot is a copy of it. */
static int snapshot_open(void *context, void **snapshot_out)
{
	struct trio_member *member = context;
	struct smr_memory_snapshot *copy = smr_memory_snapshot_new(member->applied * sizeof(member->log[0]));

	assert_non_null(copy);
	member->snapshots++;
	member->open++;
	member->opened_ns = hf_env_now_ns(hf_env_host());
	memcpy(copy->data, member->log, copy->bytes);
	*snapshot_out = copy;
	return 0;
}

static ssize_t snapshot_read(void *context, void *snapshot, void *data, size_t bytes)
{
	const struct trio_member *member = context;

	if (hf_env_now_ns(hf_env_host()) - member->opened_ns < member->trio->slow_ns)
		return -EAGAIN;
	return smr_memory_snapshot_read(context, snapshot, data, bytes);
}

static void snapshot_close(void *context, void *snapshot)
{
	struct trio_member *member = context;

	member->open--;
	smr_memory_snapshot_close(context, snapshot);
}

static int restore_open(void *context)
{
	struct trio_member *member = context;

	member->restored = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct trio_member *member = context;

	assert_true(bytes <= sizeof(member->log) - member->restored);
	memcpy((uint8_t *)member->log + member->restored, data, bytes);
	member->restored += bytes;
	return 0;
}

static int restore_close(void *context, bool whole)
{
	struct trio_member *member = context;

	if (whole)
		member->applied = (uint32_t)(member->restored / sizeof(member->log[0]));
	return 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct trio_member *member = context;

	member->last = *event;
	member->events[event->kind]++;
}

static void start(struct trio *trio, struct trio_member *member, unsigned id, unsigned place)
{
	static const struct hf_smr_app app = {.apply = apply,
		.snapshot_open = snapshot_open,
		.snapshot_read = snapshot_read,
		.snapshot_close = snapshot_close,
		.restore_open = restore_open,
		.restore_write = restore_write,
		.restore_close = restore_close,
		.event = on_event,
		.busy = is_busy};
	struct hf_smr_config config = trio->config;
	char directory[80];
	struct hf_error error = {0};

	if (config.silent_ns == 0)
		config.silent_ns = 10000000000ull; /* all may stand still for longer than the default */
	*member = (struct trio_member){.trio = trio, .id = id};
	open_node(trio, member, place);
	config.cluster = trio->config.cluster == NULL ? "trio" : trio->config.cluster;
	config.id = (uint8_t)id;
	config.members = trio->who;
	config.member_count = TRIO_MEMBERS;
	if (trio->directory[0] != '\0') {
		snprintf(directory, sizeof(directory), "%s/%u", trio->directory, id);
		config.directory = directory;
	}
	if (hf_smr_start(member->node, &config, &app, member, &member->smr, &error) != 0)
		fail_msg("member %u: %s", id, error.text);
}

void trio_start(struct trio *trio, unsigned id)
{
	start(trio, &trio->members[id], id, id);
}

void trio_start_second(struct trio *trio, struct trio_member *second, unsigned id)
{
	start(trio, second, id, TRIO_MEMBERS);
}

void trio_stop(struct trio *trio, unsigned id)
{
	trio_stop_member(&trio->members[id]);
}

void trio_stop_member(struct trio_member *member)
{
	hf_smr_stop(member->smr);
	hf_node_close(member->node);
	member->smr = NULL;
	member->node = NULL;
}

void trio_open(struct trio *trio)
{
	memset(trio, 0, sizeof(*trio));
	generation++;
	opened_by = (unsigned)getpid();
	assert_int_equal(hf_loop_create(hf_env_host(), &trio->loop), 0);
	for (unsigned id = 0; id < TRIO_MEMBERS; id++) {
		trio->who[id] = (struct hf_smr_member){.id = (uint8_t)id, .address_count = 2};
		for (unsigned i = 0; i < 2; i++) {
			trio->who[id].addresses[i] = address_of(id, i);
			hf_addr_set_port(&trio->who[id].addresses[i], CONTROL);
		}
	}
}

void trio_close(struct trio *trio)
{
	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		trio_stop(trio, id);
	hf_loop_destroy(trio->loop);
}

bool trio_until(struct trio *trio, bool (*done)(struct trio *trio))
{
	uint64_t until_ns = hf_env_now_ns(hf_env_host()) + PATIENCE_NS;

	while (!done(trio)) {
		if (hf_env_now_ns(hf_env_host()) > until_ns)
			return false;
		(void)hf_loop_turn(trio->loop, 1000000);
	}
	return true;
}

struct trio_member *trio_leader(struct trio *trio)
{
	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		if (trio->members[id].smr != NULL && hf_smr_is_leader(trio->members[id].smr))
			return &trio->members[id];
	return NULL;
}

bool trio_another_one_leads(struct trio *trio)
{
	const struct trio_member *leader = trio_leader(trio);

	return leader != NULL && leader->id != trio->unwell;
}

bool trio_all_follow(struct trio *trio)
{
	const struct trio_member *leader = trio_leader(trio);
	struct hf_smr_status status;
	unsigned running = 0, confirmed = 0;

	if (leader == NULL)
		return false;
	hf_smr_status(leader->smr, &status);
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		running += trio->members[i].smr != NULL;
	for (unsigned i = 0; i < status.member_count; i++)
		confirmed += status.members[i].confirmed;
	return confirmed == running;
}

static bool answered;

static void done(struct hf_smr_call *call)
{
	(void)call;
	answered = true;
}

static bool is_answered(struct trio *trio)
{
	(void)trio;
	return answered;
}

enum hf_smr_outcome trio_propose(struct trio *trio, uint32_t value, struct hf_smr_call *call_out)
{
	struct trio_member *leader = trio_leader(trio);

	answered = false;
	call_out->done = done;
	call_out->data = &value;
	call_out->bytes = sizeof(value);
	assert_non_null(leader);
	assert_int_equal(hf_smr_propose(leader->smr, call_out), 0);
	assert_true(trio_until(trio, is_answered));
	return call_out->outcome;
}

void trio_start_all(struct trio *trio)
{
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		trio_start(trio, i);
	assert_true(trio_until(trio, trio_all_follow));
}

void trio_propose_many(struct trio *trio, uint32_t count, uint32_t from)
{
	for (uint32_t i = 0; i < count; i++) {
		struct hf_smr_call call = {0};

		assert_int_equal(trio_propose(trio, from + i, &call), HF_SMR_DECIDED);
	}
}

bool trio_all_have_applied(struct trio *trio)
{
	uint32_t most = 0;

	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		if (trio->members[i].applied > most)
			most = trio->members[i].applied;
	for (unsigned i = 0; i < TRIO_MEMBERS; i++)
		if (trio->members[i].smr != NULL && trio->members[i].applied < most)
			return false;
	return true;
}
