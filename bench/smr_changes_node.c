/* A member with its state, and the client whose proposals are due whatever the members do. */
#include "bench/smr_changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <holdfast/smr_client.h>

#include "base/list.h"
#include "base/order.h"

#define CLUSTER  "members"
#define ROOM     65536u /* proposals on their way; one that finds none free is late, and counts so */
#define SLEEP_NS 1000000u

/* Other members would be on other machines: a copy of the state takes no time of the leader and the client. */
enum { CORE_OF_LEADER, CORE_OF_OTHERS };

static struct hf_smr_member member_of(const struct bed *bed, unsigned id)
{
	struct hf_smr_member member = {
		.id = (uint8_t)id, .address_count = 1, .addresses = {bed_address(bed, id, 0, BED_CONTROL)}};

	snprintf(member.name, sizeof(member.name), "m%u", id);
	return member;
}

static int open_node(const struct changes_page *page, unsigned id, struct bed *bed, struct hf_node **node_out)
{
	static const struct hf_node_events events = {0};
	struct hf_node_config config;
	int rc = bed_open_alone(bed, page->pid);

	bed_configure(bed, "n", id, "shm", 1, id, &config);
	if (rc == 0)
		rc = bed_node(bed, &config, &events, NULL, node_out);
	if (rc != 0)
		fprintf(stderr, "holdfast bench: process %u: %s\n", id, bed->error.text);
	return rc;
}

/* ---- a member ---- */

struct member {
	struct changes_state state; /* first: what apply and its kin are given */
	struct changes_page *page;
	struct bed bed;
	unsigned id;
	struct hf_smr *smr;
	struct hf_smr_call call; /* a change */
	unsigned asked;          /* that it is of; 0: none */
};

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct member *member = context;
	struct changes_member *told = &member->page->members[member->id];

	if (event->kind == HF_SMR_LEADING || event->kind == HF_SMR_FOLLOWING) {
		publish(&told->leads, event->kind == HF_SMR_LEADING);
		bench_pin(event->kind == HF_SMR_LEADING ? CORE_OF_LEADER : CORE_OF_OTHERS);
	}
	if (event->kind == HF_SMR_REMOVED || event->kind == HF_SMR_FAILED)
		_exit(event->kind == HF_SMR_REMOVED ? 0 : EIO);
}

static void changed(struct hf_smr_call *call)
{
	struct member *member = container_of(call, struct member, call);

	if (call->outcome == HF_SMR_DECIDED)
		publish(&member->page->done, member->asked);
	member->asked = 0;
}

/* The leader does what was asked for; another one that comes to lead finds it done, or does it. */
static void do_change(struct member *member)
{
	struct changes_page *page = member->page;
	unsigned asked = observe(&page->asked);
	struct hf_smr_member other = member_of(&member->bed, page->id);
	int rc;

	if (member->asked != 0 || asked == observe(&page->done) || !hf_smr_is_leader(member->smr))
		return;
	member->asked = asked;
	member->call = (struct hf_smr_call){.done = changed};
	if (page->kind == CHANGES_ADD)
		rc = hf_smr_add(member->smr, &other, &member->call);
	else
		rc = hf_smr_remove(member->smr, (uint8_t)page->id, &member->call);
	if (rc == (page->kind == CHANGES_ADD ? -EEXIST : -ENOENT))
		publish(&page->done, asked);
	if (rc != 0)
		member->asked = 0;
}

static void tell(const struct member *member)
{
	struct changes_member *told = &member->page->members[member->id];
	uint64_t total = observe(&member->page->total);
	struct hf_smr_status status;
	unsigned voters = 0, confirmed = 0;
	bool in = false;

	hf_smr_status(member->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++) {
		voters += status.members[i].voter;
		confirmed += status.members[i].confirmed;
		in |= status.members[i].id == member->id && status.members[i].incarnation == status.incarnation;
	}
	publish(&told->voters, voters);
	publish(&told->confirmed, confirmed);
	publish(&told->snapshots, member->state.snapshots);
	publish(&told->in, in && status.leader >= 0);
	if (total == 0 || told->summed || changes_state_requests(&member->state) < total)
		return;
	changes_state_sum(&member->state, total, &told->sum);
	publish(&told->summed, true);
}

int changes_node_member(void *context, unsigned id)
{
	struct changes_page *page = context;
	struct member member = {.page = page, .id = id};
	struct hf_smr_member members[CHANGES_MEMBERS];
	struct hf_smr_config config = {.cluster = CLUSTER, .id = (uint8_t)id, .members = members};
	struct hf_smr_app app = changes_app;
	struct hf_smr_client *client;
	struct hf_error error = {0};
	struct hf_node *node;
	int rc = changes_state_open(&member.state, page->state_bytes, !observe(&page->proposes));

	bench_pin(CORE_OF_OTHERS);
	app.event = on_event;
	if (rc == 0)
		rc = open_node(page, id, &member.bed, &node);
	for (unsigned i = 0; i < CHANGES_MEMBERS; i++)
		if (i < CHANGES_FOUNDERS || i == id)
			members[config.member_count++] = member_of(&member.bed, i);
	if (rc == 0)
		rc = hf_smr_start(node, &config, &app, &member, &member.smr, &error);
	if (rc == 0)
		rc = hf_smr_client_open(
			node, &(struct hf_smr_client_config){.cluster = CLUSTER, .smr = member.smr}, &client, &error);
	if (rc != 0)
		fprintf(stderr, "holdfast bench: member %u: %s\n", id, error.text);
	while (rc == 0) {
		(void)hf_loop_turn(member.bed.loop, SLEEP_NS);
		do_change(&member);
		tell(&member);
	}
	return rc;
}

/* ---- the client ---- */

struct proposal {
	struct hf_smr_request request;
	struct client *client;
	struct proposal *next; /* that is free */
	uint64_t due_ns, number;
	uint8_t data[SMR_BYTES];
};

struct client {
	struct changes_page *page;
	struct hf_smr_client *log;
	struct proposal *free;
	uint64_t start_ns, next;
};

static void decided(struct hf_smr_request *request)
{
	struct proposal *proposal = container_of(request, struct proposal, request);
	struct client *client = proposal->client;
	struct changes_page *page = client->page;

	page->took_ns[proposal->number] = hf_env_now_ns(hf_env_host()) - proposal->due_ns;
	if (request->outcome != HF_SMR_DECIDED)
		atomic_fetch_add(&page->refused, 1);
	proposal->next = client->free;
	client->free = proposal;
	atomic_fetch_add(&page->ended, 1);
}

static uint64_t due_of(const struct client *client, uint64_t number)
{
	return client->start_ns + number * 1000000000ull / client->page->rate;
}

/* All that is due. */
static void submit(struct client *client)
{
	uint64_t now_ns = hf_env_now_ns(hf_env_host());

	while (client->next < CHANGES_NUMBERS_MAX && due_of(client, client->next) <= now_ns && client->free != NULL) {
		struct proposal *proposal = client->free;

		client->free = proposal->next;
		proposal->number = client->next++;
		proposal->due_ns = due_of(client, proposal->number);
		client->page->late_ns[proposal->number] = now_ns - proposal->due_ns;
		memcpy(proposal->data, &proposal->number, sizeof(proposal->number));
		proposal->request =
			(struct hf_smr_request){.data = proposal->data, .bytes = SMR_BYTES, .done = decided};
		hf_smr_client_submit(client->log, &proposal->request);
	}
	publish(&client->page->due, client->next);
}

int changes_node_client(void *context, unsigned id)
{
	struct changes_page *page = context;
	struct hf_smr_member members[CHANGES_MEMBERS];
	struct hf_smr_client_config config = {.cluster = CLUSTER,
		.members = members,
		.member_count = CHANGES_MEMBERS,
		.sessions = HF_SMR_CLIENT_SESSIONS_MAX,
		.patience_ns = CHANGES_LIMIT_NS};
	struct proposal *room = calloc(ROOM, sizeof(*room));
	struct client client = {.page = page};
	struct hf_error error = {0};
	struct hf_node *node;
	struct bed bed = {0};
	int rc = room == NULL ? -ENOMEM : open_node(page, id, &bed, &node);

	bench_pin(CORE_OF_LEADER);
	for (unsigned i = 0; rc == 0 && i < CHANGES_MEMBERS; i++)
		members[i] = member_of(&bed, i);
	for (unsigned i = 0; rc == 0 && i < ROOM; i++) {
		room[i].client = &client;
		room[i].next = client.free;
		client.free = &room[i];
	}
	if (rc == 0)
		rc = hf_smr_client_open(node, &config, &client.log, &error);
	if (rc != 0)
		return rc;
	hf_loop_set_slack(bed.loop, 1000);
	client.start_ns = hf_env_now_ns(hf_env_host());
	publish(&page->proposes, true);
	while (observe(&page->ended) < client.next || !observe(&page->stops)) {
		uint64_t now_ns = hf_env_now_ns(hf_env_host()), next_ns = due_of(&client, client.next);
		uint64_t sleep_ns = next_ns > now_ns ? next_ns - now_ns : 0;

		if (!observe(&page->stops))
			submit(&client);
		(void)hf_loop_turn(bed.loop, sleep_ns < SLEEP_NS ? sleep_ns : SLEEP_NS);
	}
	hf_smr_client_close(client.log);
	bed_close(&bed);
	free(room);
	return 0;
}
