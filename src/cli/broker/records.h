/* records.h - `holdfast produce` and `holdfast consume`: what they share. */
#ifndef HOLDFAST_CLI_BROKER_RECORDS_H
#define HOLDFAST_CLI_BROKER_RECORDS_H

#include <holdfast/consumer.h>

#define RECORDS_TURN_NS    50000000ull
#define RECORDS_TOPICS_MAX 32u

struct records_options {
	const char *command, *broker, *config;
	const char *topics[RECORDS_TOPICS_MAX];
	unsigned topic_count;
	int32_t partition; /* -1: none is named */
	const char *key, *group;
	int key_separator; /* -1: records have no key */
	char delimiter;
	enum hf_codec codec;
	int64_t from;
	uint64_t count;      /* of records that are read; 0: no end */
	bool exits;          /* at the end of all partitions */
	uint64_t timeout_ns; /* longest wait without a record that is acknowledged or read; 0: no end */
};

struct records_client {
	struct hf_loop *loop;
	struct hf_node *node;
	uint64_t told, failed;         /* records whose outcome is known, or that were read; of these, refused */
	uint64_t since_ns;             /* nothing has answered; 0: it has, or that was said */
	uint64_t waits_ns, waits_told; /* since when there was no other one; 0: it has not waited yet */
};

/* Its options, a loop, and a node where there is a configuration; then `work`. The status of the program. */
int records_run(int argc, char **argv, const char *command,
	int (*work)(struct records_client *client, const struct records_options *options));

/* A turn of the loop without work. Until something has answered, it says after a while, once, what is waited for.
 * -ETIMEDOUT: --timeout is over. */
int records_wait(struct records_client *client, const struct records_options *options, bool answered);

#endif
