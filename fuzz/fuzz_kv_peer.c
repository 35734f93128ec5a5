/* What another member sends to a store that is a member, or a shadow, of an epoch with it: bytes as they are, or
 * messages whose lengths and ranges fit, whatever else they contain. The store has writes in flight. It takes the bytes
 * or ends the link, and goes on. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"
#include "store_bed.h"

#define INPUT_MAX   16384u
#define MEMBERS     3u
#define FLIGHTS     4u
#define EPOCH       5u
#define TURNS       3u
#define KEY_MAX     8u
#define VALUE_MAX   200u
#define VERSION_MAX 64u
#define ASK_VALUE   176u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct posted {
	struct hf_kv_op op;
	bool busy;
};

/* A store of its own for each role: a shadow becomes a member by a copy, which never ends here. */
static struct bed {
	bool shadow;
	struct store_bed store;
	struct hf_kv_flow *flow;
	struct posted posted[FLIGHTS];
} beds[2];

static void open_bed(struct bed *bed)
{
	struct hf_kv_config kv = {.member_count = MEMBERS,
		.store_mb = 8,
		.missed_mb = 1,
		.lease_ns = 1000000000ull,
		.budget_ns = 1000000000ull};

	log_set_level(LOG_ERROR);
	store_bed_open(&bed->store, &kv);
	bed->flow = hf_kv_flow_open(bed->store.kv);
	ensure(bed->flow != NULL);
}

/* As the log of the members would decide it, with another epoch for each input; it has no majority here. A shadow is
 * excluded and admitted. */
static void decide(struct bed *bed)
{
	struct cm *cm = &bed->store.kv->cm;
	struct cm_node *shadow = &cm->nodes[bed->shadow ? 0 : 2];

	cm->epoch = cm->epoch < EPOCH ? EPOCH : cm->epoch + 1;
	for (unsigned i = 0; i < MEMBERS; i++)
		cm->nodes[i] = (struct cm_node){.state = CM_MEMBER, .join = 1, .member_join = 1, .incarnation = 1 + i};
	cm->nodes[0].incarnation = bed->store.kv->incarnation;
	shadow->state = CM_SHADOW;
	shadow->join = (uint32_t)cm->epoch;
	shadow->absent_since = cm->epoch - 1;
	bed->store.kv->council.lease_until_ns = UINT64_MAX;
}

/* No link is up, so the request has not left. */
static void pretend_request(struct bed *bed)
{
	struct copy *copy = &bed->store.kv->copy;

	if (!bed->shadow || !copy->wanted || copy->taken)
		return;
	copy->active = copy->requested = true;
	copy->buddy = 1;
	copy->number = ++bed->store.kv->serial;
	copy->heard_ns = hf_loop_now_ns(bed->store.loop);
}

static void posted_ended(struct hf_kv_op *op)
{
	container_of(op, struct posted, op)->busy = false;
}

static void post_all(struct bed *bed)
{
	static const char *const keys[FLIGHTS] = {"a", "b", "c", "a"};

	for (unsigned i = 0; i < FLIGHTS; i++) {
		struct posted *posted = &bed->posted[i];

		if (posted->busy)
			continue;
		*posted = (struct posted){.busy = true};
		posted->op = (struct hf_kv_op){.kind = i % 2 == 0 ? HF_KV_SET : HF_KV_ADD,
			.key = keys[i],
			.key_bytes = 1,
			.value = "7",
			.value_bytes = 1,
			.delta = 1,
			.done = posted_ended};
		hf_kv_post(bed->flow, &posted->op);
	}
}

static void turn(const struct bed *bed)
{
	for (unsigned i = 0; i < TURNS; i++)
		(void)hf_loop_turn(bed->store.loop, 0);
}

/* The number of a write in flight, which ACKs and NACKs name, or of the copy. */
static uint64_t pick_write(const struct hf_kv *kv, uint64_t from)
{
	if (from % 4 == 0)
		return from;
	if (from % 4 == 1)
		return kv->copy.number;
	return kv->busy_count == 0 ? from : busy_write_number(kv->busy[from / 4 % kv->busy_count]);
}

/* A message that is well formed, of the bytes that are there; returns those that it used. */
static size_t mend(const struct hf_kv *kv, const uint8_t *data, size_t bytes, struct wire_message *message)
{
	static const uint8_t none[VALUE_MAX];
	static const char keys[] = "abcdefgh";
	size_t value_bytes = data[1] % VALUE_MAX;

	*message = (struct wire_message){.kind = (enum wire_kind)(data[0] % WIRE_KINDS),
		.epoch = kv->epoch - (data[2] % 8 == 0) + (data[2] % 8 == 1),
		.ts = {.version = 1 + data[3] % VERSION_MAX, .join = data[4] % 4, .node = data[5] % MEMBERS},
		.write = pick_write(kv, get_le32(data + 8)),
		.note = data[6] % 2 == 0 ? 0 : get_le32(data + 12),
		.flags = data[7] % 4 == 0 ? data[7] / 4 % 4 : 0,
		.key = (const uint8_t *)keys + data[6] % KEY_MAX,
		.key_bytes = 1,
		.value = none};
	data += 16;
	bytes -= 16;
	if (message->kind == WIRE_ASK)
		value_bytes = ASK_VALUE;
	if (message->kind == WIRE_COPY_END)
		value_bytes = PURGE_BYTES;
	message->value_bytes = (uint32_t)(value_bytes < bytes ? value_bytes : 0);
	if (message->value_bytes > 0)
		message->value = data;
	return 16 + message->value_bytes;
}

static void hear(const struct bed *bed, unsigned peer, const uint8_t *data, size_t bytes)
{
	size_t used = kv_hear_messages(bed->store.kv, peer, data, bytes);

	ensure(used == SIZE_MAX || used <= bytes);
	if (used == SIZE_MAX)
		bed->store.kv->links.owner.down(bed->store.kv, peer);
}

static void hear_mended(const struct bed *bed, unsigned peer, const uint8_t *data, size_t bytes)
{
	while (bytes >= 16) {
		struct wire_message message, read;
		size_t used = mend(bed->store.kv, data, bytes, &message), length;
		uint8_t *at;

		/* What its kind does not carry is left out, one part after the other. */
		for (unsigned parts = 0; parts < 16; parts++) {
			struct wire_message less = message;

			less.key_bytes = (parts & 1) != 0 ? 0 : message.key_bytes;
			less.value_bytes = (parts & 2) != 0 ? 0 : message.value_bytes;
			less.note = (parts & 4) != 0 ? 0 : message.note;
			less.ts.version = (parts & 8) != 0 ? 0 : message.ts.version;
			at = malloc(kv_wire_bytes(&less));
			ensure(at != NULL);
			kv_wire_write(&less, at);
			if (kv_wire_read(at, kv_wire_bytes(&less), &read, &length) == WIRE_WHOLE) {
				hear(bed, peer, at, length);
				parts = 16;
			}
			free(at);
		}
		turn(bed);
		data += used;
		bytes -= used;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct bed *bed = &beds[bytes > 0 ? data[0] & 1 : 0];

	if (bytes < 2 || bytes > INPUT_MAX)
		return 0;
	bed->shadow = (data[0] & 1) != 0;
	if (bed->store.loop == NULL)
		open_bed(bed);
	decide(bed);
	turn(bed);
	post_all(bed);
	turn(bed);
	pretend_request(bed);
	if ((data[0] & 2) != 0)
		hear_mended(bed, 1 + (data[0] >> 2 & 1), data + 1, bytes - 1);
	else
		hear(bed, 1 + (data[0] >> 2 & 1), data + 1, bytes - 1);
	turn(bed);
	return 0;
}
