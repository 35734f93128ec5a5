/* A large state, and snapshots of it that cost as little as what changes while they are read.
 *
 *   memory   head: u64 requests, u64 0 ...   words: u64 place << 8 | times applied
 *
 * A chunk that is about to change is copied for each snapshot that has not read it yet. */
#include "bench/smr_changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"

#define CHUNK      4096u /* the head has one */
#define HEAD_WORDS (CHUNK / sizeof(uint64_t))
#define STRIDE     0x9e3779b97f4a7c15ull /* odd: numbers that follow one another lie apart, and no two in one word */

struct changes_snapshot {
	struct changes_snapshot *next;
	uint64_t at;
	bool broken; /* there was no memory for a copy */
	uint8_t *copies[];
};

static uint64_t *word_at(const struct changes_state *state, uint64_t index)
{
	return (uint64_t *)(void *)state->memory + index;
}

static uint64_t word_of(const struct changes_state *state, uint64_t number)
{
	return HEAD_WORDS + (number * STRIDE & (state->words - 1));
}

static uint64_t untouched(uint64_t index)
{
	return index * STRIDE << 8;
}

int changes_state_open(struct changes_state *state, uint64_t bytes, bool founds)
{
	*state = (struct changes_state){.bytes = CHUNK + bytes, .words = bytes / sizeof(uint64_t)};
	state->memory = calloc(1, state->bytes);
	if (state->memory == NULL)
		return -ENOMEM;
	for (uint64_t i = 0; founds && i < state->words; i++)
		*word_at(state, HEAD_WORDS + i) = untouched(HEAD_WORDS + i);
	return 0;
}

uint64_t changes_state_requests(const struct changes_state *state)
{
	return *word_at(state, 0);
}

void changes_state_sum(const struct changes_state *state, uint64_t total, struct changes_sum *sum_out)
{
	uint64_t right = 0;

	*sum_out = (struct changes_sum){.crc = crc32c(0, state->memory, state->bytes)};
	for (uint64_t n = 0; n < total; n++)
		sum_out->once += *word_at(state, word_of(state, n)) == untouched(word_of(state, n)) + 1;
	for (uint64_t i = HEAD_WORDS; i < HEAD_WORDS + state->words; i++)
		right += *word_at(state, i) == untouched(i);
	sum_out->other = state->words - right - sum_out->once;
}

/* ---- copies ---- */

static void keep(struct changes_state *state, uint64_t at, size_t bytes)
{
	for (struct changes_snapshot *reader = state->readers; reader != NULL; reader = reader->next)
		for (uint64_t i = at / CHUNK; i <= (at + bytes - 1) / CHUNK; i++) {
			if (reader->copies[i] != NULL || (i + 1) * CHUNK <= reader->at)
				continue;
			reader->copies[i] = malloc(CHUNK);
			if (reader->copies[i] == NULL)
				reader->broken = true;
			else
				memcpy(reader->copies[i], state->memory + i * CHUNK, CHUNK);
		}
}

static void change(struct changes_state *state, uint64_t index, uint64_t value)
{
	keep(state, index * sizeof(uint64_t), sizeof(uint64_t));
	*word_at(state, index) = value;
}

/* ---- what the log calls ---- */

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct changes_state *state = context;
	uint64_t number, index;

	if (request->bytes < sizeof(number))
		return 0;
	memcpy(&number, request->data, sizeof(number));
	index = word_of(state, number);
	change(state, index, *word_at(state, index) + 1);
	change(state, 0, *word_at(state, 0) + 1);
	memcpy(result, &number, sizeof(number));
	return sizeof(number);
}

static int snapshot_open(void *context, void **snapshot_out)
{
	struct changes_state *state = context;
	struct changes_snapshot *reader = calloc(1, sizeof(*reader) + state->bytes / CHUNK * sizeof(reader->copies[0]));

	if (reader == NULL)
		return -ENOMEM;
	reader->next = state->readers;
	state->readers = reader;
	*snapshot_out = reader;
	return 0;
}

static ssize_t snapshot_read(void *context, void *snapshot, void *data, size_t bytes)
{
	const struct changes_state *state = context;
	struct changes_snapshot *reader = snapshot;
	uint64_t i = reader->at / CHUNK, begin = reader->at;

	if (reader->broken)
		return -ENOMEM;
	for (; i < state->bytes / CHUNK && reader->at + CHUNK - begin <= bytes; i++, reader->at += CHUNK) {
		memcpy((uint8_t *)data + (reader->at - begin),
			reader->copies[i] != NULL ? reader->copies[i] : state->memory + reader->at, CHUNK);
		free(reader->copies[i]);
		reader->copies[i] = NULL;
	}
	return (ssize_t)(reader->at - begin);
}

static void snapshot_close(void *context, void *snapshot)
{
	struct changes_state *state = context;
	struct changes_snapshot *reader = snapshot, **at = &state->readers;

	while (*at != reader)
		at = &(*at)->next;
	*at = reader->next;
	for (uint64_t i = 0; i < state->bytes / CHUNK; i++)
		free(reader->copies[i]);
	free(reader);
}

static int restore_open(void *context)
{
	struct changes_state *state = context;

	state->restored = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct changes_state *state = context;

	if (bytes == 0 || bytes > state->bytes - state->restored)
		return -EINVAL;
	keep(state, state->restored, bytes);
	memcpy(state->memory + state->restored, data, bytes);
	state->restored += bytes;
	return 0;
}

static int restore_close(void *context, bool whole)
{
	struct changes_state *state = context;

	state->snapshots += whole;
	return whole && state->restored != state->bytes ? -EINVAL : 0;
}

const struct hf_smr_app changes_app = {.apply = apply,
	.snapshot_open = snapshot_open,
	.snapshot_read = snapshot_read,
	.snapshot_close = snapshot_close,
	.restore_open = restore_open,
	.restore_write = restore_write,
	.restore_close = restore_close};
