/* What members of a group tell each other. Each piece of the input, {u8 bytes, subscription}, is a member's: every
 * partition of every topic that somebody wants goes to one of them. The input is read as an assignment as well. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "broker/client/assignor.h"

#define MEMBERS_MAX    8u
#define PARTITIONS_MAX 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* No more partitions than there are bytes for. */
static int32_t count(struct codec_bytes assignment, bool *whole_out)
{
	struct assignor_reader reader = {.from = assignment};
	struct codec_string topic;
	int32_t partition, n = 0, rc;

	while ((rc = assignor_next(&reader, &topic, &partition)) == 1) {
		ensure(partition >= 0 && topic.bytes >= 0 && topic.bytes <= assignment.bytes);
		ensure(4 * (int64_t)++n <= assignment.bytes);
	}
	*whole_out = rc == 0;
	return n;
}

static struct codec_string name_of(unsigned member, char text[16])
{
	return (struct codec_string){text, snprintf(text, 16, "m%u", member)};
}

/* Of all members: how often each partition of that topic is given away. */
static void book(const struct assignor *assignor, unsigned members, const char *topic, unsigned given[PARTITIONS_MAX])
{
	for (unsigned i = 0; i < members; i++) {
		char text[16];
		struct codec_bytes assignment = assignor_assignment(assignor, name_of(i, text));
		struct assignor_reader reader = {.from = assignment};
		struct codec_string of;
		int32_t partition;

		ensure(assignment.at != NULL);
		while (assignor_next(&reader, &of, &partition) == 1)
			if (codec_compare(topic, of) == 0) {
				ensure(partition < (int32_t)PARTITIONS_MAX);
				given[partition]++;
			}
		free((void *)(uintptr_t)assignment.at);
	}
}

static void assign(const uint8_t *data, size_t bytes, int32_t partitions)
{
	struct assignor assignor = {0};
	unsigned members = 0;

	for (size_t at = 0; at < bytes && members < MEMBERS_MAX; members++) {
		size_t n = data[at] < bytes - at - 1 ? data[at] : bytes - at - 1;
		char text[16];

		(void)assignor_take(&assignor, name_of(members, text), (struct codec_bytes){data + at + 1, (int32_t)n});
		at += 1 + n;
	}
	assignor_sort(&assignor);
	for (size_t first = 0; first < assignor.count;)
		first = assignor_spread(&assignor, first, partitions);
	for (size_t i = 0; i < assignor.count; i++) {
		unsigned given[PARTITIONS_MAX] = {0};

		if (i > 0 && strcmp(assignor.wishes[i].topic, assignor.wishes[i - 1].topic) == 0)
			continue;
		book(&assignor, members, assignor.wishes[i].topic, given);
		for (unsigned k = 0; k < PARTITIONS_MAX; k++)
			ensure(given[k] == (k < (unsigned)partitions));
	}
	assignor_clear(&assignor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	bool whole;

	if (bytes == 0 || bytes > 4096)
		return 0;
	(void)count((struct codec_bytes){data, (int32_t)bytes}, &whole);
	assign(data + 1, bytes - 1, data[0] % (PARTITIONS_MAX + 1));
	return 0;
}
