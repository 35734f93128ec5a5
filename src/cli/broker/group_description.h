/* group_description.h - a consumer group: its members, and its committed offset and lag in each partition. */
#ifndef HOLDFAST_CLI_BROKER_GROUP_DESCRIPTION_H
#define HOLDFAST_CLI_BROKER_GROUP_DESCRIPTION_H

#include "cli/broker/admin.h"

/* Of the group that the command line names:
 *   {"group", "state", "protocol_type", "assignor", "members": [{"member", "instance", "client", "host", "assignment":
 *   [{"topic", "partition"}, ...]}, ...], "partitions": [{"topic", "partition", "committed", "end", "lag", "member",
 *   "error"}, ...]}
 * committed, end, lag, member and error are null where there is none. 0, or -errno and a sentence. */
int group_describe(struct admin *admin, json_t **out_json, struct hf_error *error);
void group_print(const json_t *group);

#endif
