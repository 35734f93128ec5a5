/* `holdfast groups`: lists, describes and deletes groups of consumers. */
#include <errno.h>
#include <stdio.h>

#include "cli/broker/admin.h"
#include "cli/broker/admin_json.h"
#include "cli/broker/group_description.h"
#include "cli/cli.h"

#define LIST_NEWEST   5
#define DELETE_NEWEST 2

/* ---- list ---- */

struct listing {
	json_t *groups;
	json_int_t broker; /* that is asked */
};

static int16_t listed(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_list_groups_response *answer = response;
	struct listing *listing = context;

	(void)words_out;
	if (answer->error_code != KAFKA_NONE)
		return answer->error_code;
	for (int32_t i = 0; i < answer->groups.count; i++) {
		const struct kafka_list_groups_response_listed_group *group = &answer->groups.at[i];

		json_array_append_new(listing->groups,
			json_pack("{s:o, s:o, s:o, s:I}", "group", admin_json_text(group->group_id), "state",
				group->group_state.bytes > 0 ? admin_json_text(group->group_state) : json_null(),
				"protocol_type", admin_json_text(group->protocol_type), "coordinator",
				listing->broker));
	}
	return KAFKA_NONE;
}

/* Of one broker, while it reads the groups' log. */
static int list_of(struct admin *admin, struct listing *listing, struct hf_error *error)
{
	const struct kafka_list_groups_request body = {0};
	const struct admin_request request = {
		.key = KAFKA_LIST_GROUPS, .newest = LIST_NEWEST, .body = &body, .answered = listed, .context = listing};
	uint64_t begun_ns = hf_env_now_ns(hf_loop_env(admin->leaders.loop));
	int rc;

	do
		rc = admin_ask_id(admin, (int32_t)listing->broker, &request, error);
	while (rc == -EAGAIN && admin_pause(admin, begun_ns, UINT64_MAX));
	return rc;
}

/* Each broker lists the groups that it coordinates; those of one that does not answer may be missing. */
static int list(struct admin *admin, json_t **out_json, struct hf_error *error)
{
	json_t *none = json_array(), *metadata = NULL, *id;
	struct listing listing = {.groups = json_array()};
	size_t i, failed = 0, count;
	int rc = admin_metadata(admin, none, &metadata, error);

	count = json_array_size(json_object_get(metadata, "brokers"));
	json_array_foreach(json_object_get(metadata, "brokers"), i, id)
	{
		listing.broker = json_integer_value(id);
		failed += list_of(admin, &listing, error) != 0;
	}
	if (rc == 0 && failed == count)
		rc = count > 0 ? -EIO : hf_error_set(error, -EIO, "the brokers are not known yet; try again");
	else if (failed > 0)
		hf_error_set(&admin->incomplete, 0, "groups of %zu of %zu brokers may be missing: %.180s", failed,
			count, error->text);
	json_decref(none);
	json_decref(metadata);
	admin_json_sort(listing.groups, "group", NULL);
	*out_json = json_pack("{s:o}", "groups", listing.groups);
	return rc;
}

static void print_list(const json_t *json)
{
	json_t *group;
	size_t i;

	json_array_foreach(json_object_get(json, "groups"), i, group)
	{
		admin_json_print(group, "group");
		if (json_is_string(json_object_get(group, "state"))) {
			fputs(": ", stdout);
			admin_json_print(group, "state");
		}
		printf(", coordinator broker %" JSON_INTEGER_FORMAT "\n",
			json_integer_value(json_object_get(group, "coordinator")));
	}
}

/* ---- delete ---- */

static int16_t deleted(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_delete_groups_response *answer = response;

	(void)context;
	(void)words_out;
	return answer->results.count == 1 ? answer->results.at[0].error_code : KAFKA_UNKNOWN_SERVER_ERROR;
}

static int delete (struct admin *admin, json_t **out_json, struct hf_error *error)
{
	struct codec_string name = admin_string(admin->options->name);
	const struct kafka_delete_groups_request body = {.groups_names = {&name, 1}};
	const struct admin_request request = {.key = KAFKA_DELETE_GROUPS,
		.newest = DELETE_NEWEST,
		.changes = true,
		.body = &body,
		.answered = deleted};
	int rc = admin_ask_coordinator(admin, admin->options->name, &request, error);

	*out_json = json_pack("{s:s, s:b}", "group", admin->options->name, "deleted", 1);
	return rc;
}

static void print_deleted(const json_t *json)
{
	fputs("deleted group ", stdout);
	admin_json_print(json, "group");
	putchar('\n');
}

int groups_command(int argc, char **argv)
{
	static const struct admin_action actions[] = {{"list", false, false, list, print_list},
		{"describe", true, false, group_describe, group_print}, {"delete", true, false, delete, print_deleted},
		{0}};

	return admin_run(argc, argv, actions);
}
