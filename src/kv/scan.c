/* SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]: keys, in the order of this member's index.
 *
 * The cursor is the next entry of the index. Entries are never moved, so a key that is there from the first call to the
 * last one is listed once. Another member has another order, and so has this one after a full copy: a scan
 * stays at its member. A key whose write is not known to be everywhere yet is listed; reading it waits as ever. */
#include <stdio.h>
#include <inttypes.h>

#include "kv/clients.h"
#include "net/glob.h"

#define COUNT_DEFAULT 10
#define COUNT_MAX     10000
#define ENTRIES_MAX   65536u     /* of the index that a call looks at */
#define WORK_MAX      (1u << 20) /* steps of the pattern, but for those of the last key */

struct scan {
	int64_t cursor, count;
	bool matches; /* the glob is used */
	struct glob glob;
	bool strings; /* they are asked for: there is nothing else */
	int64_t found;
	size_t work;
	struct resp_out keys;
};

static bool take_number(const struct request *request, unsigned i, int64_t least, int64_t *number_out)
{
	uint32_t bytes;
	const uint8_t *at = kv_commands_arg(request, i, &bytes);

	return resp_number(at, bytes, number_out) && *number_out >= least;
}

/* NULL: they are right. */
static const char *take_options(const struct request *request, struct scan *scan)
{
	const uint8_t *pattern = NULL;
	uint32_t pattern_bytes = 0;

	if (!take_number(request, 1, 0, &scan->cursor))
		return "ERR invalid cursor";
	for (unsigned i = 2; i < request->count; i += 2) {
		if (i + 1 == request->count)
			return "ERR syntax error";
		if (kv_commands_arg_is(request, i, "MATCH"))
			pattern = kv_commands_arg(request, i + 1, &pattern_bytes);
		else if (kv_commands_arg_is(request, i, "COUNT") && take_number(request, i + 1, 1, &scan->count))
			scan->count = scan->count < COUNT_MAX ? scan->count : COUNT_MAX;
		else if (kv_commands_arg_is(request, i, "TYPE"))
			scan->strings = kv_commands_arg_is(request, i + 1, "string");
		else
			return "ERR syntax error";
	}
	if (pattern_bytes > GLOB_PATTERN_MAX)
		return "ERR a pattern has at most 1024 bytes here";
	scan->matches = pattern != NULL;
	if (scan->matches)
		glob_init(&scan->glob, pattern, pattern_bytes);
	return NULL;
}

static void look_at(const struct record *record, struct scan *scan)
{
	scan->count--;
	scan->work += (size_t)scan->glob.words * record->key_bytes;
	if (!scan->strings || (scan->matches && !glob_match(&scan->glob, record->key, record->key_bytes)))
		return;
	resp_out_bulk(&scan->keys, record->key, record->key_bytes);
	scan->found++;
}

/* Returns the next cursor. */
static uint64_t walk(const struct store *store, struct scan *scan)
{
	uint64_t at = (uint64_t)scan->cursor;

	for (unsigned n = 0; at <= store->mask && scan->count > 0 && n < ENTRIES_MAX && scan->work < WORK_MAX;
		at++, n++) {
		const struct record *record = kv_store_look(store, at);

		/* a DEL that is not decided may have no effect, and the key was there all the time */
		if (record != NULL && ((record->flags & RECORD_TOMBSTONE) == 0 || record_state(record) != RECORD_VALID))
			look_at(record, scan);
	}
	return at > store->mask ? 0 : at;
}

void kv_scan(const struct request *request)
{
	const struct hf_kv *kv = kv_clients_kv(request->client->clients);
	struct resp_out *out = kv_commands_out(request->client);
	struct scan scan = {.count = COUNT_DEFAULT, .strings = true};
	const char *wrong = take_options(request, &scan);
	char cursor[24];

	if (wrong == NULL)
		wrong = kv_commands_refusal(kv);
	if (wrong != NULL) {
		resp_out_error(out, "%s", wrong);
		return;
	}
	snprintf(cursor, sizeof(cursor), "%" PRIu64, walk(&kv->store, &scan));
	resp_out_array(out, 2);
	resp_out_text(out, cursor);
	resp_out_array(out, (size_t)scan.found);
	resp_out_raw(out, scan.keys.data, scan.keys.bytes);
	out->failed |= scan.keys.failed;
	resp_out_free(&scan.keys);
}
