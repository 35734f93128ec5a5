/* admin_json.h - Kafka's values as JSON, and words from that JSON for a terminal. */
#ifndef HOLDFAST_CLI_BROKER_ADMIN_JSON_H
#define HOLDFAST_CLI_BROKER_ADMIN_JSON_H

#include <jansson.h>

#include "broker/codec/codec.h"

/* cli_json_text; null for a null. */
json_t *admin_json_text(struct codec_string text);
json_t *admin_json_ids(const int32_t *ids, int32_t count);
/* The array in the order of its elements' texts of `key`, and then of their numbers of `number` (NULL: none). */
void admin_json_sort(json_t *array, const char *key, const char *number);

/* Prints the text under `key`, without characters that move a terminal. */
void admin_json_print(const json_t *json, const char *key);
void admin_json_print_ids(const json_t *json, const char *key);
/* "1 partition", "2 partitions". */
void admin_json_print_count(size_t count, const char *what);

#endif
