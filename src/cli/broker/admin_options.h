/* admin_options.h - the command line of `holdfast topics`, `groups` and `broker recover`, and the actions of each. */
#ifndef HOLDFAST_CLI_BROKER_ADMIN_OPTIONS_H
#define HOLDFAST_CLI_BROKER_ADMIN_OPTIONS_H

#include <holdfast/error.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ADMIN_CONFIGS_MAX 32u

struct admin;

struct admin_options {
	const char *command, *brokers, *name; /* name: of a topic or a group; NULL: the action has none */
	bool json, yes;                       /* yes: what the action would do is accepted */
	uint64_t timeout_ns;
	int32_t partitions;               /* -1: as the broker's configuration says */
	int16_t replicas;                 /* -1: as above */
	char *configs[ADMIN_CONFIGS_MAX]; /* KEY=VALUE */
	unsigned config_count;
};

struct admin_action {
	const char *name;
	bool named, creates; /* a name follows; the options of a new topic are allowed */
	/* 0, with *out_json to be printed; -errno and a sentence. */
	int (*work)(struct admin *admin, json_t **out_json, struct hf_error *error);
	void (*print)(const json_t *json); /* in words */
	bool confirms;                     /* it changes nothing without --yes */
};

/* Parses the command line, works and prints; returns the exit status. The table ends with a NULL name. Without a word
 * on the command line its first action runs. */
int admin_run(int argc, char **argv, const struct admin_action *actions);

#endif
