#include "cli/broker/admin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/other_port.h"

#define TURN_NS    50000000ull
#define PAUSE_NS   100000000ull
#define TRIES      3u            /* of opening a connection, which must wait after one that broke */
#define SILENT_NS  2000000000ull /* then it is asked in other protocols */
#define WORDS      100           /* bytes of a broker's words that are shown */
#define COORDINATE 3             /* versions of FindCoordinator that name one group */
#define REMEDY     ", and whether the change was made is unknown: list, then try again"

/* A request under way. */
struct asked {
	struct kafka_call call;
	const struct admin_request *request;
	bool answered;
	int16_t code;
	char words[WORDS];
};

struct codec_string admin_string(const char *text)
{
	return (struct codec_string){text, (int32_t)strlen(text)};
}

static double seconds(const struct admin *admin)
{
	return (double)admin->options->timeout_ns / 1e9;
}

int32_t admin_change_ms(const struct admin *admin)
{
	return (int32_t)(admin->options->timeout_ns / 1000000 * 3 / 4);
}

bool admin_pause(struct admin *admin, uint64_t begun_ns, uint64_t limit_ns)
{
	struct hf_loop *loop = admin->leaders.loop;
	struct hf_env *env = hf_loop_env(loop);
	uint64_t end_ns = hf_env_now_ns(env) + PAUSE_NS;

	if (limit_ns > admin->options->timeout_ns)
		limit_ns = admin->options->timeout_ns;
	if (end_ns > begun_ns + limit_ns)
		return false;
	while (hf_env_now_ns(env) < end_ns)
		(void)hf_loop_turn(loop, PAUSE_NS / 4);
	return true;
}

/* ---- one broker ---- */

/* Which other protocol a broker's address serves, that has answered nothing; NULL. */
static const char *find_other(const struct admin *admin, const struct leaders_broker *broker)
{
	if (broker->link.broken == -ECONNREFUSED)
		return NULL;
	return other_port_find(admin->leaders.loop, &broker->link.remote, "Kafka", OTHER_PORT_NS);
}

/* Why there is no answer. `sent`: the request may have been executed. */
static int tell_broken(const struct admin *admin, const struct leaders_broker *broker,
	const struct admin_request *request, bool sent, struct hf_error *error)
{
	const char *more = sent && request->changes ? REMEDY : "";
	int reason = broker->link.broken;
	char at[HF_ADDR_TEXT];

	hf_addr_format(&broker->link.remote, at);
	switch (reason) {
	case -ETIMEDOUT:
		return hf_error_set(error, reason,
			"%s has not answered within %g s%s; check that a broker runs there, or wait longer with "
			"--timeout",
			at, seconds(admin), more);
	case -EPROTO:
	case -EMSGSIZE:
		return hf_error_set(error, reason,
			"%s does not answer in Kafka's protocol%s; name a listener of a broker, without TLS", at, more);
	case -EPIPE:
	case -ECONNRESET:
		return hf_error_set(error, reason,
			"%s ended the connection%s: a control port of a node does, and a listener with TLS or SASL; "
			"name a listener of a broker without, or look at the log of the broker",
			at, more);
	default:
		return hf_error_set(error, reason != 0 ? reason : -ENOTCONN,
			"%s cannot be reached: %s%s; check the address, and that a broker runs there", at,
			strerror(reason != 0 ? -reason : ENOTCONN), more);
	}
}

static bool is_passing(int16_t code)
{
	switch (code) {
	case KAFKA_LEADER_NOT_AVAILABLE:
	case KAFKA_NOT_LEADER_OR_FOLLOWER:
	case KAFKA_COORDINATOR_LOAD_IN_PROGRESS:
	case KAFKA_COORDINATOR_NOT_AVAILABLE:
	case KAFKA_NOT_COORDINATOR:
	case KAFKA_NOT_CONTROLLER:
		return true;
	default:
		return false;
	}
}

/* The words of brokers add nothing to these sentences. */
static bool is_plain(int16_t code)
{
	return code == KAFKA_UNKNOWN_TOPIC_OR_PARTITION || code == KAFKA_TOPIC_ALREADY_EXISTS ||
	       code == KAFKA_GROUP_ID_NOT_FOUND;
}

static int tell_refused(const struct admin *admin, const struct asked *asked, struct hf_error *error)
{
	const char *name = admin->options->name, *quote = name == NULL ? "" : "'";
	const char *refusal = admin_refusal(asked->code);
	bool has_words = asked->words[0] != '\0' && !is_plain(asked->code);
	int rc = is_passing(asked->code) ? -EAGAIN : -EREMOTEIO;

	if (refusal == NULL)
		return hf_error_set(error, rc, "%s%.60s%s%sthe broker refused with error %d of Kafka's protocol%s%s",
			quote, name == NULL ? "" : name, quote, name == NULL ? "" : ": ", asked->code,
			has_words ? ": " : "", asked->words);
	return hf_error_set(error, rc, "%s%.60s%s%s%s%s%s%s", quote, name == NULL ? "" : name, quote,
		name == NULL ? "" : ": ", refusal, has_words ? " (message of the broker: " : "",
		has_words ? asked->words : "", has_words ? ")" : "");
}

static void answered(struct kafka_call *call, const void *response)
{
	struct asked *asked = container_of(call, struct asked, call);
	struct codec_string words = {NULL, -1};

	if (response == NULL)
		return;
	asked->answered = true;
	asked->code = asked->request->answered(asked->request->context, response, &words);
	for (int32_t i = 0; i < words.bytes && i < WORDS - 1; i++)
		asked->words[i] = words.at[i] >= ' ' && words.at[i] <= '~' ? words.at[i] : '?';
}

/* NULL: the broker has not sent them; its link has the reason, or another protocol is served there. */
static const struct codec_range *find_versions(
	struct admin *admin, struct leaders_broker *broker, int16_t key, const char **other_out)
{
	uint64_t silent_ns = hf_loop_now_ns(admin->leaders.loop) + SILENT_NS;
	const struct codec_range *versions = NULL;
	bool waited = false;

	for (unsigned i = 0; i < TRIES && versions == NULL && !waited; i++) {
		versions = leaders_versions(broker, key);
		for (; broker->versions.waiting && *other_out == NULL; waited = true) {
			(void)hf_loop_turn(admin->leaders.loop, TURN_NS);
			if (hf_loop_now_ns(admin->leaders.loop) < silent_ns)
				continue;
			silent_ns = UINT64_MAX;
			*other_out = find_other(admin, broker);
		}
		if (waited)
			versions = leaders_versions(broker, key);
		else if (versions == NULL)
			(void)hf_loop_turn(admin->leaders.loop, TURN_NS);
	}
	if (versions == NULL && silent_ns != UINT64_MAX)
		*other_out = find_other(admin, broker);
	return versions;
}

static int choose_version(struct admin *admin, struct leaders_broker *broker, const struct admin_request *request,
	int16_t *out, struct hf_error *error)
{
	const struct codec_api *api = codec_find_api(kafka_apis, KAFKA_APIS, request->key);
	const char *other = NULL;
	const struct codec_range *versions = find_versions(admin, broker, request->key, &other);
	int16_t oldest = api->request->versions.from;
	char at[HF_ADDR_TEXT];

	hf_addr_format(&broker->link.remote, at);
	if (versions == NULL && other != NULL)
		return hf_error_set(error, -EPROTO,
			"%s serves clients of %s, and not of Kafka: give an address of `listeners` in the "
			"configuration of a broker",
			at, other);
	if (versions == NULL)
		return tell_broken(admin, broker, request, false, error);
	if (versions->to < versions->from)
		return hf_error_set(
			error, -EOPNOTSUPP, "the broker at %s does not serve %s; another release may", at, api->name);
	*out = versions->to < request->newest ? versions->to : request->newest;
	if (*out < oldest || *out < versions->from)
		return hf_error_set(error, -EOPNOTSUPP,
			"the broker at %s serves versions %d to %d of %s, this program %d to %d; use a release that "
			"shares one",
			at, versions->from, versions->to, api->name, oldest, request->newest);
	return 0;
}

int admin_ask(
	struct admin *admin, struct leaders_broker *broker, const struct admin_request *request, struct hf_error *error)
{
	struct asked asked = {.call = {.done = answered}, .request = request};
	bool sent = false;
	int16_t version = 0;
	int rc = choose_version(admin, broker, request, &version, error);

	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < TRIES && !sent; i++) {
		sent = kafka_link_call(&broker->link, &asked.call, request->key, version, request->body);
		if (!sent)
			(void)hf_loop_turn(admin->leaders.loop, TURN_NS);
	}
	while (asked.call.waiting)
		(void)hf_loop_turn(admin->leaders.loop, TURN_NS);
	if (!asked.answered)
		return tell_broken(admin, broker, request, sent, error);
	return asked.code == KAFKA_NONE ? 0 : tell_refused(admin, &asked, error);
}

int admin_ask_id(struct admin *admin, int32_t id, const struct admin_request *request, struct hf_error *error)
{
	struct leaders_broker *broker = id < 0 ? NULL : leaders_find(&admin->leaders, id);

	if (broker == NULL)
		return hf_error_set(error, -EHOSTUNREACH,
			"broker %d tells no address that this program can use; its advertised.listeners must have an "
			"IP address",
			id);
	return admin_ask(admin, broker, request, error);
}

/* ---- the right broker ---- */

int admin_ask_any(struct admin *admin, const struct admin_request *request, struct hf_error *error)
{
	struct hf_error last;
	int rc = 0;

	for (unsigned i = 0; i < admin->given; i++) {
		rc = admin_ask(admin, admin->leaders.brokers[admin->turn], request, error);
		if (rc == 0 || rc == -EREMOTEIO || rc == -EAGAIN)
			return rc;
		admin->turn = (admin->turn + 1) % admin->given;
	}
	last = *error;
	return admin->given == 1 ? rc
				 : hf_error_set(error, rc, "none of %u brokers answers; the last: %.190s", admin->given,
					   last.text);
}

/* Finds the id of a broker; the next try may find another. */
typedef int find_id(struct admin *admin, const char *of, int32_t *id_out, struct hf_error *error);

/* A broker that refuses connections has received nothing, and another takes its place. */
static int ask_found(
	struct admin *admin, find_id *find, const char *of, const struct admin_request *request, struct hf_error *error)
{
	uint64_t begun_ns = hf_env_now_ns(hf_loop_env(admin->leaders.loop));
	int32_t id;
	int rc;

	do {
		rc = find(admin, of, &id, error);
		if (rc == 0) {
			rc = admin_ask_id(admin, id, request, error);
			rc = rc == -ECONNREFUSED ? -EAGAIN : rc;
		}
	} while (rc == -EAGAIN && admin_pause(admin, begun_ns, UINT64_MAX));
	return rc;
}

static int find_controller(struct admin *admin, const char *of, int32_t *id_out, struct hf_error *error)
{
	json_t *none = json_array(), *metadata = NULL;
	int rc = admin_metadata(admin, none, &metadata, error);

	(void)of;
	if (rc == 0)
		*id_out = (int32_t)json_integer_value(json_object_get(metadata, "controller"));
	json_decref(none);
	json_decref(metadata);
	if (rc == 0 && *id_out < 0)
		rc = hf_error_set(error, -EAGAIN, "%s", admin_refusal(KAFKA_NOT_CONTROLLER));
	return rc;
}

int admin_ask_controller(struct admin *admin, const struct admin_request *request, struct hf_error *error)
{
	return ask_found(admin, find_controller, NULL, request, error);
}

struct found {
	struct admin *admin;
	int32_t id;
};

static int16_t coordinator_known(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_find_coordinator_response *answer = response;
	struct found *found = context;

	*words_out = answer->error_message;
	found->id = answer->node_id;
	if (answer->error_code == KAFKA_NONE)
		(void)leaders_know(&found->admin->leaders, answer->node_id, answer->host, answer->port);
	return answer->error_code;
}

static int find_coordinator(struct admin *admin, const char *group, int32_t *id_out, struct hf_error *error)
{
	const struct kafka_find_coordinator_request body = {.key = admin_string(group)};
	struct found found = {.admin = admin, .id = -1};
	const struct admin_request request = {.key = KAFKA_FIND_COORDINATOR,
		.newest = COORDINATE,
		.body = &body,
		.answered = coordinator_known,
		.context = &found};
	int rc = admin_ask_any(admin, &request, error);

	*id_out = found.id;
	return rc;
}

int admin_ask_coordinator(
	struct admin *admin, const char *group, const struct admin_request *request, struct hf_error *error)
{
	return ask_found(admin, find_coordinator, group, request, error);
}

/* ---- opening ---- */

int admin_open(struct admin *admin, struct hf_loop *loop, const struct admin_options *options, struct hf_error *error)
{
	struct hf_addr any = {0};
	int rc;

	*admin = (struct admin){.options = options};
	rc = leaders_open(&admin->leaders, loop, NULL, options->brokers, &any, options->timeout_ns, error);
	admin->given = admin->leaders.count;
	return rc;
}

void admin_close(struct admin *admin)
{
	leaders_close(&admin->leaders);
}
