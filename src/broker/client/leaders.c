/* Brokers, and who leads what. */
#include "broker/client/leaders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/kafka_error.h"

#define METADATA_VERSION 5
#define ASK_NS           20000000ull
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

static struct leaders_broker *find_broker(const struct leaders *leaders, int32_t id)
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
static void know_broker(struct leaders *leaders, int32_t id, const struct hf_addr *addr)
{
	struct leaders_broker *broker = find_broker(leaders, id);

	if (broker != NULL) {
		if (!hf_addr_equal(&broker->link.remote, addr))
			broker->link.remote = *addr; /* from the next connection on */
		return;
	}
	for (unsigned i = 0; i < leaders->count; i++)
		if (leaders->brokers[i]->id < 0 && hf_addr_equal(&leaders->brokers[i]->link.remote, addr)) {
			leaders->brokers[i]->id = id;
			return;
		}
	if (add_broker(leaders, id, addr) == NULL)
		log_warn("client: broker %d is not used: there are too many, or no memory", id);
}

/* ---- what they speak ---- */

static void versions_known(struct kafka_call *call, const void *response)
{
	struct leaders_broker *broker = container_of(call, struct leaders_broker, versions);
	const struct kafka_api_versions_response *versions = response;

	if (versions == NULL)
		return;
	broker->access = LEADERS_ACCESS_NO;
	for (int32_t i = 0; i < versions->api_keys.count; i++)
		if (versions->api_keys.at[i].api_key == KAFKA_ACCESS)
			broker->access = LEADERS_ACCESS_YES;
}

static void ask_versions(struct leaders_broker *broker)
{
	const struct kafka_api_versions_request request = {0};

	if (broker->access != LEADERS_ACCESS_UNKNOWN || broker->versions.waiting)
		return;
	broker->versions.done = versions_known;
	(void)kafka_link_call(&broker->link, &broker->versions, KAFKA_API_VERSIONS, 0, &request);
}

/* ---- topics ---- */

static void take_topic(struct leaders_topic *topic, const struct kafka_metadata_response_metadata_response_topic *from)
{
	int32_t *leaders;

	topic->fatal = from->error_code == KAFKA_INVALID_TOPIC;
	if (from->error_code != KAFKA_NONE || from->partitions.count < 1)
		return;
	leaders = malloc((size_t)from->partitions.count * sizeof(*leaders));
	if (leaders == NULL)
		return;
	for (int32_t i = 0; i < from->partitions.count; i++)
		leaders[i] = -1;
	topic->stale = false;
	for (int32_t i = 0; i < from->partitions.count; i++) {
		int32_t index = from->partitions.at[i].partition_index;

		if (index >= 0 && index < from->partitions.count)
			leaders[index] = from->partitions.at[i].leader_id;
		topic->stale |= from->partitions.at[i].leader_id < 0;
	}
	free(topic->leaders);
	topic->leaders = leaders;
	topic->count = from->partitions.count;
}

static void metadata_known(struct kafka_call *call, const void *response)
{
	struct leaders *leaders = container_of(call, struct leaders, metadata);
	const struct kafka_metadata_response *metadata = response;
	struct hf_addr addr;

	if (metadata == NULL)
		return;
	for (int32_t i = 0; i < metadata->brokers.count; i++) {
		const struct kafka_metadata_response_metadata_response_broker *at = &metadata->brokers.at[i];

		if (parse_host(at->host.at, (size_t)at->host.bytes, at->port, &addr))
			know_broker(leaders, at->node_id, &addr);
	}
	for (int32_t i = 0; i < metadata->topics.count; i++)
		if (codec_compare(leaders->asked->name, metadata->topics.at[i].name) == 0)
			take_topic(leaders->asked, &metadata->topics.at[i]);
}

static void ask_metadata(struct leaders *leaders, struct leaders_topic *topic)
{
	struct kafka_metadata_request_metadata_request_topic name = {
		.name = {topic->name, (int32_t)strlen(topic->name)}};
	struct kafka_metadata_request request = {.topics = {&name, 1}, .allow_auto_topic_creation = true};
	uint64_t now_ns = hf_loop_now_ns(leaders->loop);

	if (leaders->metadata.waiting || now_ns < leaders->ask_ns)
		return;
	leaders->ask_ns = now_ns + ASK_NS;
	leaders->asked = topic;
	leaders->metadata.done = metadata_known;
	for (unsigned i = 0; i < leaders->count; i++) {
		struct leaders_broker *broker = leaders->brokers[leaders->turn++ % leaders->count];

		if (kafka_link_call(&broker->link, &leaders->metadata, KAFKA_METADATA, METADATA_VERSION, &request))
			return;
	}
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
	return topic;
}

struct leaders_broker *leaders_leader(struct leaders *leaders, struct leaders_topic *topic, int32_t partition)
{
	struct leaders_broker *broker = NULL;

	if (topic->stale)
		ask_metadata(leaders, topic);
	else if (partition < topic->count)
		broker = find_broker(leaders, topic->leaders[partition]);
	if (broker == NULL || broker->id < 0)
		return NULL;
	ask_versions(broker);
	return broker->access == LEADERS_ACCESS_UNKNOWN ? NULL : broker;
}

int32_t leaders_partitions(struct leaders *leaders, struct leaders_topic *topic)
{
	if (topic->stale)
		ask_metadata(leaders, topic);
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
	for (unsigned i = 0; i < leaders->count; i++) {
		kafka_link_close(&leaders->brokers[i]->link);
		free(leaders->brokers[i]);
	}
	leaders->count = 0;
	while (leaders->topics.next != NULL && !list_empty(&leaders->topics)) {
		struct leaders_topic *topic =
			container_of(list_pop_front(&leaders->topics), struct leaders_topic, node);

		free(topic->leaders);
		free(topic);
	}
}
