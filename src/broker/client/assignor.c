#include "broker/client/assignor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define NO_USER_DATA UINT32_MAX
#define ROOM_LEAST   16u

/* ---- bytes ---- */

/* So many bytes further, if they are there. */
static const uint8_t *step(struct codec_bytes from, size_t *at, size_t bytes)
{
	const uint8_t *here = from.at + *at;

	if (from.bytes < 0 || bytes > (size_t)from.bytes - *at)
		return NULL;
	*at += bytes;
	return here;
}

static bool read_i32(struct codec_bytes from, size_t *at, int32_t *out)
{
	const uint8_t *here = step(from, at, 4);

	if (here != NULL)
		*out = (int32_t)get_be32(here);
	return here != NULL;
}

static bool read_name(struct codec_bytes from, size_t *at, struct codec_string *out)
{
	const uint8_t *here = step(from, at, 2);
	size_t bytes = here == NULL ? 0 : get_be16(here);

	here = bytes == 0 || bytes > INT16_MAX ? NULL : step(from, at, bytes);
	*out = (struct codec_string){(const char *)here, (int32_t)bytes};
	return here != NULL && memchr(here, 0, bytes) == NULL;
}

static uint8_t *put_name(uint8_t *to, const char *name)
{
	size_t bytes = strlen(name);

	put_be16(to, (uint16_t)bytes);
	memcpy(to + 2, name, bytes);
	return to + 2 + bytes;
}

/* ---- subscriptions ---- */

struct codec_bytes assignor_subscribe(char *const *topics, unsigned count)
{
	size_t bytes = 2 + 4 + 4;
	uint8_t *data, *to;

	for (unsigned i = 0; i < count; i++)
		bytes += 2 + strlen(topics[i]);
	data = malloc(bytes);
	if (data == NULL)
		return (struct codec_bytes){NULL, -1};
	put_be16(data, 0); /* version */
	put_be32(data + 2, count);
	to = data + 6;
	for (unsigned i = 0; i < count; i++)
		to = put_name(to, topics[i]);
	put_be32(to, NO_USER_DATA);
	return (struct codec_bytes){data, (int32_t)bytes};
}

static char *copy(struct codec_string text)
{
	return strndup(text.at, (size_t)text.bytes);
}

static int add(struct assignor *assignor, struct codec_string member, struct codec_string topic)
{
	struct assignor_wish *wish;

	if (assignor->count == assignor->room) {
		size_t room = assignor->room < ROOM_LEAST ? ROOM_LEAST : 2 * assignor->room;
		struct assignor_wish *more = realloc(assignor->wishes, room * sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		assignor->wishes = more;
		assignor->room = room;
	}
	wish = &assignor->wishes[assignor->count];
	*wish = (struct assignor_wish){.member = copy(member), .topic = copy(topic)};
	assignor->count++;
	return wish->member == NULL || wish->topic == NULL ? -ENOMEM : 0;
}

int assignor_take(struct assignor *assignor, struct codec_string member, struct codec_bytes subscription)
{
	struct codec_string topic;
	size_t at = 0;
	int32_t count;
	int rc = step(subscription, &at, 2) != NULL && read_i32(subscription, &at, &count) ? 0 : -EBADMSG;

	for (int32_t i = 0; rc == 0 && i < count; i++)
		rc = read_name(subscription, &at, &topic) ? add(assignor, member, topic) : -EBADMSG;
	return rc;
}

/* ---- range ---- */

static int by_topic_and_member(const void *a, const void *b)
{
	const struct assignor_wish *x = a, *y = b;
	int order = strcmp(x->topic, y->topic);

	return order != 0 ? order : strcmp(x->member, y->member);
}

void assignor_sort(struct assignor *assignor)
{
	if (assignor->count > 0)
		qsort(assignor->wishes, assignor->count, sizeof(*assignor->wishes), by_topic_and_member);
}

size_t assignor_spread(struct assignor *assignor, size_t first, int32_t partitions)
{
	struct assignor_wish *wishes = assignor->wishes;
	int32_t members = 0, next = 0;
	size_t end = first;

	for (; end < assignor->count && strcmp(wishes[end].topic, wishes[first].topic) == 0; end++)
		members++;
	for (size_t i = first; i < end; i++) {
		wishes[i].first = next;
		wishes[i].count = partitions / members + ((int32_t)(i - first) < partitions % members);
		next += wishes[i].count;
	}
	return end;
}

static bool is_of(const struct assignor_wish *wish, struct codec_string member)
{
	return wish->count > 0 && codec_compare(wish->member, member) == 0;
}

struct codec_bytes assignor_assignment(const struct assignor *assignor, struct codec_string member)
{
	size_t bytes = 2 + 4 + 4;
	uint32_t topics = 0;
	uint8_t *data, *to;

	for (size_t i = 0; i < assignor->count; i++)
		if (is_of(&assignor->wishes[i], member)) {
			topics++;
			bytes += 2 + strlen(assignor->wishes[i].topic) + 4 + 4 * (size_t)assignor->wishes[i].count;
		}
	data = malloc(bytes);
	if (data == NULL)
		return (struct codec_bytes){NULL, -1};
	put_be16(data, 0); /* version */
	put_be32(data + 2, topics);
	to = data + 6;
	for (size_t i = 0; i < assignor->count; i++) {
		const struct assignor_wish *wish = &assignor->wishes[i];

		if (!is_of(wish, member))
			continue;
		to = put_name(to, wish->topic);
		put_be32(to, (uint32_t)wish->count);
		to += 4;
		for (int32_t k = 0; k < wish->count; k++, to += 4)
			put_be32(to, (uint32_t)(wish->first + k));
	}
	put_be32(to, NO_USER_DATA);
	return (struct codec_bytes){data, (int32_t)bytes};
}

void assignor_clear(struct assignor *assignor)
{
	for (size_t i = 0; i < assignor->count; i++) {
		free(assignor->wishes[i].member);
		free(assignor->wishes[i].topic);
	}
	free(assignor->wishes);
	*assignor = (struct assignor){0};
}

/* ---- assignments ---- */

int assignor_next(struct assignor_reader *reader, struct codec_string *topic, int32_t *partition)
{
	if (!reader->begun) {
		reader->begun = true;
		if (reader->from.bytes <= 0) /* nothing for this member */
			return 0;
		if (step(reader->from, &reader->at, 2) == NULL ||
			!read_i32(reader->from, &reader->at, &reader->topics_left))
			return -EBADMSG;
	}
	while (reader->partitions_left <= 0) {
		if (reader->topics_left <= 0)
			return 0;
		reader->topics_left--;
		if (!read_name(reader->from, &reader->at, &reader->topic) ||
			!read_i32(reader->from, &reader->at, &reader->partitions_left))
			return -EBADMSG;
	}
	reader->partitions_left--;
	*topic = reader->topic;
	return read_i32(reader->from, &reader->at, partition) && *partition >= 0 ? 1 : -EBADMSG;
}
