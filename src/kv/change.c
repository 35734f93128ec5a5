/* What an operation makes of a record. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "kv/engine.h"
#include "net/resp.h"

bool kv_change_is_rmw(const struct hf_kv_op *op)
{
	return op->kind != HF_KV_GET && (op->kind != HF_KV_SET || op->flags != 0);
}

static enum change_outcome answer(struct hf_kv_op *user, enum hf_kv_result result)
{
	user->result = result;
	return CHANGE_READ;
}

static enum change_outcome add(
	struct hf_kv_op *user, struct record *record, struct write_content *content, char number[CHANGE_NUMBER_BYTES])
{
	int64_t value = 0;

	if (record != NULL && !resp_number(record_value(record), record->value_bytes, &value))
		return answer(user, HF_KV_NO_NUMBER);
	if (__builtin_add_overflow(value, user->delta, &user->number))
		return answer(user, HF_KV_OVERFLOW);
	content->value = number;
	content->value_bytes = (uint32_t)snprintf(number, CHANGE_NUMBER_BYTES, "%" PRId64, user->number);
	return CHANGE_WRITE;
}

static enum change_outcome append(
	struct hf_kv_op *user, struct record *record, struct write_content *content, uint8_t **made)
{
	uint32_t before = record == NULL ? 0 : record->value_bytes;

	if (user->value_bytes > HF_KV_VALUE_BYTES_MAX - before)
		return answer(user, HF_KV_TOO_LARGE);
	*made = malloc((size_t)before + user->value_bytes + 1);
	if (*made == NULL)
		return CHANGE_NO_MEMORY;
	if (before > 0)
		memcpy(*made, record_value(record), before);
	if (user->value_bytes > 0)
		memcpy(*made + before, user->value, user->value_bytes);
	content->value = *made;
	content->value_bytes = before + user->value_bytes;
	user->number = content->value_bytes;
	return CHANGE_WRITE;
}

/* What is returned by an operation that reads only lies in the record, else in a copy. */
static bool keep_before(struct op *op, struct record *record, bool writes)
{
	struct hf_kv_op *user = op->user;

	if (record == NULL || (user->flags & HF_KV_RETURN) == 0)
		return true;
	user->returned = record_value(record);
	user->returned_bytes = record->value_bytes;
	if (!writes)
		return true;
	free(op->saved);
	op->saved = malloc((size_t)record->value_bytes + 1);
	if (op->saved == NULL)
		return false;
	memcpy(op->saved, record_value(record), record->value_bytes);
	user->returned = op->saved;
	return true;
}

static enum change_outcome set(struct op *op, struct record *record, struct write_content *content)
{
	struct hf_kv_op *user = op->user;
	bool writes = ((user->flags & HF_KV_IF_ABSENT) == 0 || record == NULL) &&
		      ((user->flags & HF_KV_IF_PRESENT) == 0 || record != NULL);

	if (!keep_before(op, record, writes))
		return CHANGE_NO_MEMORY;
	user->applied = writes;
	content->value = user->value;
	content->value_bytes = user->value_bytes;
	return writes ? CHANGE_WRITE : answer(user, record == NULL ? HF_KV_ABSENT : HF_KV_OK);
}

enum change_outcome kv_change_of(struct op *op, struct record *record, struct write_content *content,
	char number[CHANGE_NUMBER_BYTES], uint8_t **made)
{
	struct hf_kv_op *user = op->user;

	*made = NULL;
	user->returned = NULL; /* of an attempt that was refused */
	user->returned_bytes = 0;
	*content = (struct write_content){.flags = kv_change_is_rmw(user) ? RECORD_RMW : 0};
	if (record != NULL && (record->flags & RECORD_TOMBSTONE) != 0)
		record = NULL;
	switch (user->kind) {
	case HF_KV_GET:
		user->returned = record == NULL ? NULL : record_value(record);
		user->returned_bytes = record == NULL ? 0 : record->value_bytes;
		return answer(user, record == NULL ? HF_KV_ABSENT : HF_KV_OK);
	case HF_KV_SET:
		return set(op, record, content);
	case HF_KV_DELETE:
		if (!keep_before(op, record, true))
			return CHANGE_NO_MEMORY;
		content->flags |= RECORD_TOMBSTONE;
		user->applied = record != NULL;
		return record == NULL ? answer(user, HF_KV_ABSENT) : CHANGE_WRITE;
	case HF_KV_ADD:
		return add(user, record, content, number);
	case HF_KV_APPEND:
		return append(user, record, content, made);
	case HF_KV_KINDS:
		break;
	}
	ensure(false);
	return CHANGE_READ;
}
