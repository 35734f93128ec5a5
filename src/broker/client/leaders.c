/* Brokers, and the leaders of partitions. */
#include "broker/client/leaders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/kafka_error.h"

#define METADATA_VERSION 7
#define ASK_NS           20000000ull
#define STALL_NS         1000000000ull /* longer than a Fetch waits */
#define STALL_LOOK_NS    250000000ull
#define EARLIER_NS       5000000000ull /* longer than a deposed leader can live without knowing */
#define HOST_BYTES       160u
#define ADDRESSES_MAX    (2u * HF_RAILS_MAX)

/* ---- brokers ---- */

static bool parse_host(const char *host, size_t bytes, int32_t port, struct hf_addr *out)
{
	static const char name[] = "localhost";
	bool is_localhost = bytes >= sizeof(name) - 1 && memcmp(host, name, sizeof(name) - 1) == 0 &&
			    (bytes == sizeof(name) - 1 || host[sizeof(name) - 1] == ':');
	char text[HOST_BYTES], number[16] = "";

	if (bytes >= HOST_BYTES - 2 * sizeof(number))
		return false;
	if (port >= 0)
		snprintf(number, sizeof(number), ":%d", port);
	if (is_localhost)
		snprintf(text, sizeof(text), "127.0.0.1%.*s%s", (int)(bytes - sizeof(name) + 1),
			host + sizeof(name) - 1, number);
	else
		snprintf(text, sizeof(text), "%.*s%s", (int)bytes, host, number);
	return hf_addr_parse(text, out) == 0 && hf_addr_port(out) != 0;
}

bool leaders_parse(struct codec_string host, int32_t port, struct hf_addr *out)
{
	return host.bytes > 0 && port >= 0 && parse_host(host.at, (size_t)host.bytes, port, out);
}

struct leaders_broker *leaders_find(const struct leaders *leaders, int32_t id)
{
	for (unsigned i = 0; i < leaders->count; i++)
		if (leaders->brokers[i]->id == id)
			return leaders->brokers[i];
	return NULL;
}

static struct leaders_broker *add_broker(struct leaders *leaders, int32_t id, const struct hf_addr *addr)
{
	struct leaders_broker *broker = leaders->count == LEADERS_BROKERS_MAX ? NULL : calloc(1, sizeof(*broker));

	if (broker == NULL)
		return NULL;
	broker->leaders = leaders;
	broker->id = id;
	kafka_link_open(&broker->link, leaders->loop, &leaders->local, addr, leaders->late_ns);
	leaders->brokers[leaders->count++] = broker;
	return broker;
}

/* A broker of the first list gets its id when it tells its own address; one that has moved has another connection. */
bool leaders_know(struct leaders *leaders, int32_t id, struct codec_string host, int32_t port)
{
	struct leaders_broker *broker = leaders_find(leaders, id);
	struct hf_addr addr;

	if (!leaders_parse(host, port, &addr))
		return false;
	if (broker != NULL) {
		if (!hf_addr_equal(&broker->link.remote, &addr))
			broker->link.remote = addr; /* from the next connection on */
		return true;
	}
	for (unsigned i = 0; i < leaders->count; i++)
		if (leaders->brokers[i]->id < 0 && hf_addr_equal(&leaders->brokers[i]->link.remote, &addr)) {
			leaders->brokers[i]->id = id;
			return true;
		}
	if (add_broker(leaders, id, &addr) != NULL)
		return true;
	log_warn("client: broker %d is ignored: too many brokers, or no memory", id);
	return false;
}

/* ---- what they speak ---- */

/* Nothing was heard of it: perhaps others lead by now. */
static void doubt(const struct leaders_broker *broker)
{
	list_for_each (at, &broker->leaders->topics) {
		struct leaders_topic *topic = container_of(at, struct leaders_topic, node);

		for (int32_t i = 0; i < topic->count; i++)
			topic->stale |= topic->at[i].leader == broker->id;
	}
}

static const struct codec_range *serves(const struct leaders_broker *broker, int16_t key)
{
	return &broker->served[codec_find_api(kafka_apis, KAFKA_APIS, key) - kafka_apis];
}

static void versions_known(struct kafka_call *call, const void *response)
{
	struct leaders_broker *broker = container_of(call, struct leaders_broker, versions);
	const struct kafka_api_versions_response *versions = response;

	if (versions == NULL) {
		doubt(broker);
		return;
	}
	for (unsigned i = 0; i < KAFKA_APIS; i++)
		broker->served[i] = (struct codec_range){0, -1};
	for (int32_t i = 0; i < versions->api_keys.count; i++) {
		const struct kafka_api_versions_response_api_version *key = &versions->api_keys.at[i];
		const struct codec_api *api = codec_find_api(kafka_apis, KAFKA_APIS, key->api_key);

		if (api != NULL)
			broker->served[api - kafka_apis] = (struct codec_range){key->min_version, key->max_version};
	}
	broker->access = serves(broker, KAFKA_ACCESS)->to < 0 ? LEADERS_ACCESS_NO : LEADERS_ACCESS_YES;
}

static void ask_versions(struct leaders_broker *broker)
{
	const struct kafka_api_versions_request request = {0};

	if (broker->access != LEADERS_ACCESS_UNKNOWN || broker->versions.waiting)
		return;
	broker->versions.done = versions_known;
	if (!kafka_link_call(&broker->link, &broker->versions, KAFKA_API_VERSIONS, 0, &request))
		doubt(broker);
}

const struct codec_range *leaders_versions(struct leaders_broker *broker, int16_t key)
{
	ask_versions(broker);
	return broker->access == LEADERS_ACCESS_UNKNOWN ? NULL : serves(broker, key);
}

/* ---- topics ---- */

static bool make_room(struct leaders_topic *topic, int32_t count)
{
	struct leaders_partition *at = realloc(topic->at, (size_t)count * sizeof(*at));

	if (at == NULL)
		return false;
	topic->at = at;
	for (; topic->count < count; topic->count++)
		at[topic->count] = (struct leaders_partition){-1, -1, 0};
	topic->count = count;
	return true;
}

static void take_partition(struct leaders_partition *partition,
	const struct kafka_metadata_response_metadata_response_partition *from, uint64_t now_ns)
{
	if (from->leader_epoch < partition->epoch) {
		if (partition->earlier_ns == 0)
			partition->earlier_ns = now_ns;
		if (now_ns - partition->earlier_ns < EARLIER_NS)
			return;
	}
	*partition = (struct leaders_partition){from->leader_id, from->leader_epoch, 0};
}

static void take_topic(struct leaders_topic *topic, const struct kafka_metadata_response_metadata_response_topic *from,
	uint64_t now_ns)
{
	topic->fatal = from->error_code == KAFKA_INVALID_TOPIC;
	if (from->error_code != KAFKA_NONE || from->partitions.count < 1 || !make_room(topic, from->partitions.count))
		return;
	topic->stale = false;
	for (int32_t i = 0; i < topic->count; i++) {
		const struct kafka_metadata_response_metadata_response_partition *at = &from->partitions.at[i];

		if (at->partition_index >= 0 && at->partition_index < topic->count)
			take_partition(&topic->at[at->partition_index], at, now_ns);
	}
	for (int32_t i = 0; i < topic->count; i++)
		topic->stale |= topic->at[i].leader < 0 || topic->at[i].earlier_ns != 0;
}

static struct leaders_topic *find_topic(struct leaders *leaders, struct codec_string name)
{
	list_for_each (at, &leaders->topics)
		if (codec_compare(container_of(at, struct leaders_topic, node)->name, name) == 0)
			return container_of(at, struct leaders_topic, node);
	return NULL;
}

static bool leads_something(const struct leaders *leaders, int32_t id)
{
	for (const struct list *at = leaders->topics.next; at != &leaders->topics; at = at->next) {
		const struct leaders_topic *topic = container_of(at, struct leaders_topic, node);

		for (int32_t i = 0; i < topic->count; i++)
			if (topic->at[i].leader == id)
				return true;
	}
	return false;
}

static void metadata_known(struct kafka_call *call, const void *response)
{
	struct leaders_broker *from = container_of(call, struct leaders_broker, metadata);
	struct leaders *leaders = from->leaders;
	const struct kafka_metadata_response *metadata = response;

	if (metadata == NULL)
		return;
	for (int32_t i = 0; i < metadata->brokers.count; i++) {
		const struct kafka_metadata_response_metadata_response_broker *at = &metadata->brokers.at[i];

		(void)leaders_know(leaders, at->node_id, at->host, at->port);
	}
	for (int32_t i = 0; i < metadata->topics.count; i++) {
		struct leaders_topic *topic = find_topic(leaders, metadata->topics.at[i].name);

		if (topic != NULL)
			take_topic(topic, &metadata->topics.at[i], hf_loop_now_ns(leaders->loop));
	}
	for (unsigned i = 0; i < leaders->count; i++) {
		struct leaders_broker *broker = leaders->brokers[i];

		if (broker != from && broker->stalled && !leads_something(leaders, broker->id)) {
			broker->stalled = false;
			kafka_link_break(&broker->link);
		}
	}
}

/* Of the next broker, not of one that has not answered yet. */
static void ask_metadata(struct leaders *leaders)
{
	struct kafka_metadata_request request = {.allow_auto_topic_creation = true};
	uint64_t now_ns = hf_loop_now_ns(leaders->loop);
	struct kafka_metadata_request_metadata_request_topic *names;

	if (now_ns < leaders->ask_ns)
		return;
	leaders->ask_ns = now_ns + ASK_NS;
	names = calloc(leaders->topic_count, sizeof(*names));
	if (names == NULL)
		return;
	request.topics.at = names;
	list_for_each (at, &leaders->topics) {
		const struct leaders_topic *topic = container_of(at, struct leaders_topic, node);

		names[request.topics.count++].name = (struct codec_string){topic->name, (int32_t)strlen(topic->name)};
	}
	for (unsigned i = 0; i < leaders->count; i++) {
		struct leaders_broker *broker = leaders->brokers[leaders->turn++ % leaders->count];

		if (broker->metadata.waiting || broker->stalled)
			continue;
		broker->metadata.done = metadata_known;
		if (kafka_link_call(&broker->link, &broker->metadata, KAFKA_METADATA, METADATA_VERSION, &request))
			break;
	}
	free(names);
}

static void look_for_stalls(struct hf_timer *timer, uint64_t now_ns)
{
	struct leaders *leaders = container_of(timer, struct leaders, timer);
	bool any = false;

	for (unsigned i = 0; i < leaders->count; i++) {
		struct leaders_broker *broker = leaders->brokers[i];

		broker->stalled = kafka_link_owes_ns(&broker->link) >= STALL_NS;
		any |= broker->stalled;
	}
	if (any && !list_empty(&leaders->topics))
		ask_metadata(leaders);
	hf_loop_set_timer(leaders->loop, timer, now_ns + STALL_LOOK_NS);
}

struct leaders_topic *leaders_topic(struct leaders *leaders, const char *name)
{
	struct leaders_topic *topic;

	list_for_each (at, &leaders->topics)
		if (strcmp(container_of(at, struct leaders_topic, node)->name, name) == 0)
			return container_of(at, struct leaders_topic, node);
	topic = strlen(name) >= LEADERS_TOPIC_BYTES ? NULL : calloc(1, sizeof(*topic));
	if (topic == NULL)
		return NULL;
	snprintf(topic->name, sizeof(topic->name), "%s", name);
	topic->stale = true;
	list_push_back(&leaders->topics, &topic->node);
	leaders->topic_count++;
	return topic;
}

struct leaders_broker *leaders_leader(struct leaders *leaders, struct leaders_topic *topic, int32_t partition)
{
	struct leaders_broker *broker = NULL;

	if (topic->stale)
		ask_metadata(leaders);
	else if (partition < topic->count)
		broker = leaders_find(leaders, topic->at[partition].leader);
	if (broker == NULL || broker->id < 0)
		return NULL;
	ask_versions(broker);
	return broker->access == LEADERS_ACCESS_UNKNOWN ? NULL : broker;
}

bool leaders_moved(struct leaders *leaders, const struct leaders_topic *topic, int32_t partition,
	const struct leaders_broker *broker)
{
	ask_metadata(leaders);
	return partition < topic->count && topic->at[partition].leader >= 0 &&
	       topic->at[partition].leader != broker->id;
}

struct leaders_broker *leaders_any(struct leaders *leaders)
{
	for (unsigned i = 0; i < leaders->count; i++) {
		struct leaders_broker *broker = leaders->brokers[leaders->turn++ % leaders->count];

		if (!broker->stalled)
			return broker;
	}
	return NULL;
}

int32_t leaders_partitions(struct leaders *leaders, struct leaders_topic *topic)
{
	if (topic->stale)
		ask_metadata(leaders);
	return topic->count;
}

struct hf_peer *leaders_peer(struct leaders *leaders, const struct codec_string *addresses, int32_t count)
{
	struct hf_addr parsed[ADDRESSES_MAX];
	struct hf_error error;
	struct hf_peer *peer = NULL;
	unsigned n = 0;

	for (int32_t i = 0; i < count && n < ADDRESSES_MAX; i++)
		if (addresses[i].bytes > 0 && parse_host(addresses[i].at, (size_t)addresses[i].bytes, -1, &parsed[n]))
			n++;
	for (unsigned i = 0; i < n && peer == NULL; i++)
		peer = hf_peer_find(leaders->node, &parsed[i]);
	if (peer == NULL && n > 0 && hf_peer_connect(leaders->node, parsed, n, &peer, &error) != 0) {
		log_warn("client: a broker cannot be reached over its rails: %s", error.text);
		return NULL;
	}
	return peer;
}

/* ---- opening ---- */

int leaders_open(struct leaders *leaders, struct hf_loop *loop, struct hf_node *node, const char *brokers,
	const struct hf_addr *local, uint64_t late_ns, struct hf_error *error)
{
	struct hf_addr addr;

	*leaders = (struct leaders){.loop = loop, .node = node, .local = *local, .late_ns = late_ns};
	list_init(&leaders->topics);
	leaders->timer = (struct hf_timer){.fire = look_for_stalls, .quiet = true};
	hf_loop_set_timer(loop, &leaders->timer, hf_loop_now_ns(loop) + STALL_LOOK_NS);
	if (leaders->local.sa.sa_family == AF_UNSPEC)
		(void)hf_addr_parse("0.0.0.0:0", &leaders->local);
	while (brokers != NULL && *brokers != '\0') {
		const char *comma = strchrnul(brokers, ',');

		if (!parse_host(brokers, (size_t)(comma - brokers), -1, &addr))
			return hf_error_set(error, -EINVAL, "'%.*s' is no address of a broker; write HOST:PORT",
				(int)(comma - brokers > 100 ? 100 : comma - brokers), brokers);
		if (add_broker(leaders, -1, &addr) == NULL)
			return hf_error_set(error, -ENOMEM, "too many brokers, or no memory");
		brokers = *comma == ',' ? comma + 1 : comma;
	}
	return leaders->count > 0 ? 0 : hf_error_set(error, -EINVAL, "no broker is given; write HOST:PORT");
}

void leaders_close(struct leaders *leaders)
{
	if (leaders->loop != NULL)
		hf_loop_cancel_timer(leaders->loop, &leaders->timer);
	for (unsigned i = 0; i < leaders->count; i++) {
		kafka_link_close(&leaders->brokers[i]->link);
		free(leaders->brokers[i]);
	}
	leaders->count = 0;
	while (leaders->topics.next != NULL && !list_empty(&leaders->topics)) {
		struct leaders_topic *topic =
			container_of(list_pop_front(&leaders->topics), struct leaders_topic, node);

		free(topic->at);
		free(topic);
	}
}
