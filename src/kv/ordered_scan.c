/* HFSCAN start count: keys and values in the order of the keys' bytes, from the first key that is not less than start.
 *
 * The keys are chosen at once, under the lease; then each is read as a GET reads it. What was written before the call
 * is there, each record is linearizable, and the scan as a whole is not. A deleted record that is VALID is passed over;
 * one that is not may come back, and is read. While a turn passes deleted records only, the request is held and goes on
 * behind the last of them in the next turn. A reply of fewer keys than count is not the end, an empty one is. */
#include <holdfast/kv.h>

#include "kv/clients.h"

#define COUNT_MAX 1000u
#define BYTES_MAX CLIENT_OUT_BYTES /* the key that passes it is the last one */
#define LOOKS_MAX 16384u           /* keys that a turn looks at */

struct choice {
	uint32_t entries[COUNT_MAX];
	unsigned count;
	uint32_t next; /* the key that follows; STORE_NO_ENTRY: none */
};

static void choose(
	const struct store *store, const uint8_t *start, uint32_t start_bytes, unsigned count, struct choice *choice)
{
	uint32_t entry = kv_ordered_index_seek(&store->ordered, store, start, start_bytes, false);
	size_t bytes = 0;

	choice->count = 0;
	for (unsigned n = 0; entry != STORE_NO_ENTRY && n < LOOKS_MAX && choice->count < count && bytes < BYTES_MAX;
		n++) {
		const struct record *record = kv_store_at(store, entry);

		if ((record->flags & RECORD_TOMBSTONE) == 0 || record_state(record) != RECORD_VALID) {
			choice->entries[choice->count++] = entry;
			bytes += (size_t)record->key_bytes + record->value_bytes;
		}
		entry = kv_ordered_index_seek(&store->ordered, store, record->key, record->key_bytes, true);
	}
	choice->next = entry;
}

static void reply_row(struct pending *pending, struct resp_out *out)
{
	struct client *client = pending->client;

	if (pending->index == 0)
		resp_out_free(&client->rows);
	if (pending->op.returned != NULL) {
		resp_out_bulk(&client->rows, pending->op.key, pending->op.key_bytes);
		resp_out_bulk(&client->rows, pending->op.returned, pending->op.returned_bytes);
		client->sum += 2;
	}
	if (pending->index < pending->count - 1)
		return;
	if (client->sum == 0) {
		resp_out_error(out, "TRYAGAIN all records that were found were deleted meanwhile");
	} else {
		resp_out_array(out, (size_t)client->sum);
		resp_out_raw(out, client->rows.data, client->rows.bytes);
	}
	out->failed |= client->rows.failed;
	resp_out_free(&client->rows);
}

void kv_ordered_scan(const struct request *request)
{
	struct client *client = request->client;
	const struct hf_kv *kv = kv_clients_kv(client->clients);
	uint32_t start_bytes, count_bytes;
	const uint8_t *start = kv_commands_arg(request, 1, &start_bytes);
	const uint8_t *digits = kv_commands_arg(request, 2, &count_bytes);
	const char *wrong = kv_commands_refusal(kv);
	struct choice choice = {.next = STORE_NO_ENTRY};
	struct resp_out *from = &client->scan_from;
	int64_t count;

	if (!resp_number(digits, count_bytes, &count) || count < 1 || count > COUNT_MAX)
		wrong = "ERR the count of HFSCAN is 1 to 1000";
	else if (start_bytes > HF_KV_KEY_BYTES_MAX + 1)
		wrong = "ERR the start of HFSCAN has at most 16385 bytes";
	else if (kv->store.ordered.nodes == NULL)
		wrong = "ERR this member keeps no order of keys; its configuration must say \"ordered\": true";
	else if (wrong == NULL && from->bytes > 0)
		choose(&kv->store, from->data, (uint32_t)from->bytes, (unsigned)count, &choice);
	else if (wrong == NULL)
		choose(&kv->store, start, start_bytes, (unsigned)count, &choice);
	resp_out_free(from);
	if (wrong == NULL && choice.count == 0 && choice.next != STORE_NO_ENTRY) {
		const struct record *next = kv_store_at(&kv->store, choice.next);

		resp_out_raw(from, (const char *)next->key, next->key_bytes);
		client->broken |= from->failed;
		return;
	}
	if (wrong != NULL)
		resp_out_error(kv_commands_out(client), "%s", wrong);
	else if (choice.count == 0)
		resp_out_array(kv_commands_out(client), 0);
	for (unsigned i = 0; i < choice.count && !client->broken; i++) {
		const struct record *record = kv_store_at(&kv->store, choice.entries[i]);

		kv_commands_get(client, record->key, record->key_bytes, i, choice.count, reply_row);
	}
}
