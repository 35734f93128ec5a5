/* Leader epochs of a partition. */
#include "broker/log/leader_epochs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 40u

int leader_epochs_add(struct leader_epochs *epochs, int32_t epoch, int64_t start_offset)
{
	if (epochs->count > 0 && epochs->at[epochs->count - 1].epoch >= epoch)
		return 0;
	if (epochs->count == epochs->capacity) {
		unsigned capacity = epochs->capacity == 0 ? 4 : epochs->capacity * 2;
		struct leader_epoch *at = realloc(epochs->at, capacity * sizeof(*at));

		if (at == NULL)
			return -ENOMEM;
		epochs->at = at;
		epochs->capacity = capacity;
	}
	/* An epoch without a record has left no trace. */
	leader_epochs_truncate(epochs, start_offset);
	epochs->at[epochs->count++] = (struct leader_epoch){epoch, start_offset};
	return 0;
}

void leader_epochs_truncate(struct leader_epochs *epochs, int64_t end_offset)
{
	while (epochs->count > 0 && epochs->at[epochs->count - 1].start_offset >= end_offset)
		epochs->count--;
}

bool leader_epochs_end(
	const struct leader_epochs *epochs, int32_t epoch, int64_t log_end, int32_t *epoch_out, int64_t *end_out)
{
	unsigned i = epochs->count;

	while (i > 0 && epochs->at[i - 1].epoch > epoch)
		i--;
	if (i == 0)
		return false;
	*epoch_out = epochs->at[i - 1].epoch;
	*end_out = i < epochs->count ? epochs->at[i].start_offset : log_end;
	return true;
}

int32_t leader_epochs_at(const struct leader_epochs *epochs, int64_t offset)
{
	unsigned i = epochs->count;

	while (i > 0 && epochs->at[i - 1].start_offset > offset)
		i--;
	return i == 0 ? -1 : epochs->at[i - 1].epoch;
}

void leader_epochs_free(struct leader_epochs *epochs)
{
	free(epochs->at);
	*epochs = (struct leader_epochs){0};
}

/* A whole number and the space behind it. */
static bool parse_number(const char **at, int64_t most, int64_t *out)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(*at, &end, 10);
	if (end == *at || errno != 0 || value < 0 || value > most)
		return false;
	*at = end;
	*out = value;
	return true;
}

int leader_epochs_parse(struct leader_epochs *epochs, const char *text)
{
	int64_t version, count, epoch, start;

	if (!parse_number(&text, 0, &version) || !parse_number(&text, INT32_MAX, &count))
		return -EBADMSG;
	for (int64_t i = 0; i < count; i++) {
		if (!parse_number(&text, INT32_MAX, &epoch) || !parse_number(&text, INT64_MAX, &start))
			return -EBADMSG;
		if (epochs->count > 0 && (epoch <= epochs->at[epochs->count - 1].epoch ||
						 start <= epochs->at[epochs->count - 1].start_offset))
			return -EBADMSG;
		if (leader_epochs_add(epochs, (int32_t)epoch, start) != 0)
			return -ENOMEM;
	}
	return 0;
}

char *leader_epochs_format(const struct leader_epochs *epochs)
{
	size_t bytes = (epochs->count + 1) * (size_t)LINE_BYTES;
	char *text = malloc(bytes);
	int n;

	if (text == NULL)
		return NULL;
	n = snprintf(text, bytes, "0\n%u\n", epochs->count);
	for (unsigned i = 0; i < epochs->count; i++)
		n += snprintf(text + n, bytes - (size_t)n, "%d %lld\n", epochs->at[i].epoch,
			(long long)epochs->at[i].start_offset);
	return text;
}
