#include "smr/sessions.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/list.h"

#define RESULT_BYTES_MAX 1024u

struct result {
	uint32_t bytes;
	uint8_t *data;
};
struct session {
	struct list used, bucket; /* used: the one unused for longest is the first */
	uint64_t number;
	uint32_t highest, mask; /* bit i: sequence highest - i was applied */
	struct result results[SMR_SESSIONS_KEPT];
};
struct smr_sessions {
	uint32_t capacity, count, buckets;
	struct list used;
	struct list *bucket;
};

static struct list *bucket_of(struct smr_sessions *sessions, uint64_t number)
{
	return &sessions->bucket[(number * 0x9e3779b97f4a7c15ull >> 32) & (sessions->buckets - 1)];
}

struct smr_sessions *smr_sessions_new(uint32_t capacity)
{
	struct smr_sessions *sessions = calloc(1, sizeof(*sessions));

	if (sessions == NULL)
		return NULL;
	sessions->capacity = capacity;
	for (sessions->buckets = 16; sessions->buckets < capacity;)
		sessions->buckets *= 2;
	list_init(&sessions->used);
	sessions->bucket = malloc(sessions->buckets * sizeof(*sessions->bucket));
	if (sessions->bucket == NULL) {
		free(sessions);
		return NULL;
	}
	for (uint32_t i = 0; i < sessions->buckets; i++)
		list_init(&sessions->bucket[i]);
	return sessions;
}

static void end(struct smr_sessions *sessions, struct session *session)
{
	list_remove(&session->used);
	list_remove(&session->bucket);
	for (unsigned i = 0; i < SMR_SESSIONS_KEPT; i++)
		free(session->results[i].data);
	free(session);
	sessions->count--;
}

void smr_sessions_clear(struct smr_sessions *sessions)
{
	while (!list_empty(&sessions->used))
		end(sessions, container_of(sessions->used.next, struct session, used));
}

void smr_sessions_free(struct smr_sessions *sessions)
{
	if (sessions == NULL)
		return;
	smr_sessions_clear(sessions);
	free(sessions->bucket);
	free(sessions);
}

static struct session *find(struct smr_sessions *sessions, uint64_t number)
{
	list_for_each (at, bucket_of(sessions, number)) {
		struct session *session = container_of(at, struct session, bucket);

		if (session->number == number)
			return session;
	}
	return NULL;
}

static struct session *add(struct smr_sessions *sessions, uint64_t number)
{
	struct session *session;

	if (sessions->count == sessions->capacity)
		end(sessions, container_of(sessions->used.next, struct session, used));
	session = calloc(1, sizeof(*session));
	ensure(session != NULL); /* a member that went on without it would differ from the others */
	session->number = number;
	list_push_back(&sessions->used, &session->used);
	list_push_back(bucket_of(sessions, number), &session->bucket);
	sessions->count++;
	return session;
}

void smr_sessions_open(struct smr_sessions *sessions, uint64_t number)
{
	if (find(sessions, number) == NULL)
		(void)add(sessions, number);
}

void smr_sessions_close(struct smr_sessions *sessions, uint64_t number)
{
	struct session *session = find(sessions, number);

	if (session != NULL)
		end(sessions, session);
}

enum smr_sessions_verdict smr_sessions_check(
	struct smr_sessions *sessions, uint64_t number, uint32_t sequence, const void **result_out, uint32_t *bytes_out)
{
	struct session *session = find(sessions, number);
	const struct result *result;

	if (session == NULL || sequence == 0)
		return SMR_SESSIONS_OVER;
	list_remove(&session->used);
	list_push_back(&sessions->used, &session->used);
	if (sequence > session->highest)
		return SMR_SESSIONS_NEW;
	if (session->highest - sequence >= SMR_SESSIONS_KEPT)
		return SMR_SESSIONS_OVER;
	if ((session->mask & 1u << (session->highest - sequence)) == 0)
		return SMR_SESSIONS_NEW;
	result = &session->results[sequence % SMR_SESSIONS_KEPT];
	*result_out = result->data;
	*bytes_out = result->bytes;
	return SMR_SESSIONS_REPEATED;
}

static void set_result(struct result *result, const void *data, uint32_t bytes)
{
	free(result->data);
	*result = (struct result){.bytes = bytes};
	if (bytes == 0)
		return;
	result->data = malloc(bytes);
	ensure(result->data != NULL);
	memcpy(result->data, data, bytes);
}

void smr_sessions_keep(
	struct smr_sessions *sessions, uint64_t number, uint32_t sequence, const void *result, uint32_t bytes)
{
	struct session *session = find(sessions, number);

	ensure(session != NULL);
	if (sequence > session->highest) {
		uint32_t by = sequence - session->highest;

		session->mask = by >= SMR_SESSIONS_KEPT ? 0 : session->mask << by & ((1u << SMR_SESSIONS_KEPT) - 1);
		session->highest = sequence;
	}
	session->mask |= 1u << (session->highest - sequence);
	set_result(&session->results[sequence % SMR_SESSIONS_KEPT], result, bytes);
}

size_t smr_sessions_bytes(const struct smr_sessions *sessions)
{
	size_t bytes = 4;

	list_for_each (at, &sessions->used) {
		const struct session *session = container_of(at, struct session, used);

		bytes += 16;
		for (unsigned i = 0; i < SMR_SESSIONS_KEPT; i++)
			bytes += 4 + session->results[i].bytes;
	}
	return bytes;
}

void smr_sessions_encode(const struct smr_sessions *sessions, uint8_t *out)
{
	put_le32(out, sessions->count);
	out += 4;
	list_for_each (at, &sessions->used) {
		const struct session *session = container_of(at, struct session, used);

		put_le64(out, session->number);
		put_le32(out + 8, session->highest);
		put_le32(out + 12, session->mask);
		out += 16;
		for (unsigned i = 0; i < SMR_SESSIONS_KEPT; i++) {
			const struct result *result = &session->results[i];

			put_le32(out, result->bytes);
			if (result->bytes > 0)
				memcpy(out + 4, result->data, result->bytes);
			out += 4 + result->bytes;
		}
	}
}

static bool decode_one(struct smr_sessions *sessions, const uint8_t **at, const uint8_t *stop)
{
	struct session *session;

	if (stop - *at < 16 || sessions->count == sessions->capacity || find(sessions, get_le64(*at)) != NULL)
		return false;
	session = add(sessions, get_le64(*at));
	session->highest = get_le32(*at + 8);
	session->mask = get_le32(*at + 12) & ((1u << SMR_SESSIONS_KEPT) - 1);
	*at += 16;
	for (unsigned i = 0; i < SMR_SESSIONS_KEPT; i++) {
		uint32_t bytes = stop - *at < 4 ? UINT32_MAX : get_le32(*at);

		if (bytes > RESULT_BYTES_MAX || (size_t)(stop - *at) - 4 < bytes)
			return false;
		set_result(&session->results[i], *at + 4, bytes);
		*at += 4 + bytes;
	}
	return true;
}

bool smr_sessions_decode(struct smr_sessions *sessions, const uint8_t *data, size_t bytes)
{
	const uint8_t *at, *stop;

	smr_sessions_clear(sessions);
	if (bytes < 4)
		return false;
	at = data + 4;
	stop = data + bytes;
	for (uint32_t n = get_le32(data); n > 0; n--)
		if (!decode_one(sessions, &at, stop))
			return false;
	return at == stop;
}
