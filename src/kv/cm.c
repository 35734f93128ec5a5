/* Entry: u8 kind, u8 node, u8 present, u8 zero, u32 suspicion, u64 epoch, u64 incarnation[].
 * State: u64 epoch, u32 suspicions, u32 zero, then of each node u8 state, 3 zero, u32 suspicion, u64 incarnation,
 * u32 join, u32 member_join, u64 absent_since. */
#include "kv/cm.h"

#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/states.h"

#define HEAD_BYTES 16u
#define NODE_BYTES 32u

/* ---- states ---- */

static void node_move(struct cm *cm, unsigned num, enum cm_node_state to)
{
	static const struct state states[CM_NODE_STATES] = {
		[CM_ABSENT] = {"absent", BIT(CM_SHADOW) | BIT(CM_MEMBER)},
		[CM_SHADOW] = {"shadow", BIT(CM_MEMBER) | BIT(CM_ABSENT)},
		[CM_MEMBER] = {"member", BIT(CM_ABSENT)},
	};

	states_move(
		"member", states, &cm->nodes[num].state, to, "%u in epoch %llu", num, (unsigned long long)cm->epoch);
	cm->nodes[num].suspicion = 0;
}

uint32_t kv_cm_in(const struct cm *cm, enum cm_node_state state)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++)
		if (cm->nodes[i].state == state)
			bits |= BIT(i);
	return bits;
}

static void cold(struct cm *cm, const struct cm_entry *entry)
{
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++) {
		bool present = (entry->present & BIT(i)) != 0, was_member = cm->nodes[i].state == CM_MEMBER;

		if (was_member && !present)
			cm->nodes[i].absent_since = cm->epoch;
		if (cm->nodes[i].state != CM_ABSENT)
			node_move(cm, i, CM_ABSENT);
		if (!present)
			continue;
		node_move(cm, i, CM_MEMBER);
		cm->nodes[i].incarnation = entry->incarnation[i];
		cm->nodes[i].join = (uint32_t)cm->epoch;
		if (!was_member) /* else its store is whole as of before, should it end again before it hears of this */
			cm->nodes[i].member_join = cm->nodes[i].join;
	}
}

/* An entry that does not fit what its node is has come too late. */
static bool fits(const struct cm *cm, const struct cm_entry *entry)
{
	const struct cm_node *node = &cm->nodes[entry->node];
	uint64_t incarnation = entry->incarnation[entry->node];

	if (entry->epoch != cm->epoch)
		return false;
	switch (entry->kind) {
	case CM_COLD:
		return entry->present != 0;
	case CM_EXCLUDE:
		return node->state != CM_ABSENT && node->incarnation == incarnation && node->suspicion != 0 &&
		       node->suspicion == entry->suspicion &&
		       (node->state == CM_SHADOW || __builtin_popcount(kv_cm_in(cm, CM_MEMBER)) > 1);
	case CM_ADMIT:
		return node->state == CM_ABSENT && kv_cm_in(cm, CM_MEMBER) != 0;
	case CM_PROMOTE:
		return node->state == CM_SHADOW && node->incarnation == incarnation && kv_cm_in(cm, CM_MEMBER) != 0;
	case CM_SUSPECT:
		return node->state != CM_ABSENT && node->incarnation == incarnation && node->suspicion == 0 &&
		       entry->suspicion == cm->suspicions + 1;
	case CM_CLEAR:
		return node->suspicion != 0 && node->suspicion == entry->suspicion;
	case CM_KINDS:
		break;
	}
	return false;
}

bool kv_cm_step(struct cm *cm, const struct cm_entry *entry)
{
	struct cm_node *node = &cm->nodes[entry->node];
	bool another = entry->kind != CM_SUSPECT && entry->kind != CM_CLEAR;

	if (!fits(cm, entry))
		return false;
	cm->epoch += another;
	switch (entry->kind) {
	case CM_COLD:
		cold(cm, entry);
		break;
	case CM_EXCLUDE:
		if (node->state == CM_MEMBER)
			node->absent_since = cm->epoch;
		node_move(cm, entry->node, CM_ABSENT);
		break;
	case CM_ADMIT:
		node_move(cm, entry->node, CM_SHADOW);
		node->incarnation = entry->incarnation[entry->node];
		node->join = (uint32_t)cm->epoch;
		break;
	case CM_PROMOTE:
		node_move(cm, entry->node, CM_MEMBER);
		node->member_join = node->join;
		break;
	case CM_SUSPECT:
		node->suspicion = ++cm->suspicions;
		break;
	case CM_CLEAR:
		node->suspicion = 0;
		break;
	case CM_KINDS:
		ensure(false);
	}
	return another;
}

/* ---- bytes ---- */

void kv_cm_write(const struct cm_entry *entry, uint8_t at[CM_ENTRY_BYTES])
{
	memset(at, 0, CM_ENTRY_BYTES);
	at[0] = (uint8_t)entry->kind;
	at[1] = entry->node;
	at[2] = entry->present;
	put_le32(at + 4, entry->suspicion);
	put_le64(at + 8, entry->epoch);
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++)
		put_le64(at + HEAD_BYTES + 8 * i, entry->incarnation[i]);
}

bool kv_cm_read(const uint8_t *at, size_t bytes, struct cm_entry *entry_out)
{
	if (bytes != CM_ENTRY_BYTES || at[0] >= CM_KINDS || at[1] >= HF_KV_MEMBERS_MAX)
		return false;
	*entry_out = (struct cm_entry){.kind = (enum cm_kind)at[0],
		.node = at[1],
		.present = at[2],
		.suspicion = get_le32(at + 4),
		.epoch = get_le64(at + 8)};
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++)
		entry_out->incarnation[i] = get_le64(at + HEAD_BYTES + 8 * i);
	return true;
}

void kv_cm_save(const struct cm *cm, uint8_t at[CM_STATE_BYTES])
{
	memset(at, 0, CM_STATE_BYTES);
	put_le64(at, cm->epoch);
	put_le32(at + 8, cm->suspicions);
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++) {
		uint8_t *to = at + HEAD_BYTES + NODE_BYTES * i;

		to[0] = (uint8_t)cm->nodes[i].state;
		put_le32(to + 4, cm->nodes[i].suspicion);
		put_le64(to + 8, cm->nodes[i].incarnation);
		put_le32(to + 16, cm->nodes[i].join);
		put_le32(to + 20, cm->nodes[i].member_join);
		put_le64(to + 24, cm->nodes[i].absent_since);
	}
}

bool kv_cm_load(const uint8_t *at, size_t bytes, struct cm *cm_out)
{
	if (bytes != CM_STATE_BYTES)
		return false;
	*cm_out = (struct cm){.epoch = get_le64(at), .suspicions = get_le32(at + 8)};
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++) {
		const uint8_t *from = at + HEAD_BYTES + NODE_BYTES * i;

		if (from[0] >= CM_NODE_STATES)
			return false;
		cm_out->nodes[i] = (struct cm_node){.state = (enum cm_node_state)from[0],
			.suspicion = get_le32(from + 4),
			.incarnation = get_le64(from + 8),
			.join = get_le32(from + 16),
			.member_join = get_le32(from + 20),
			.absent_since = get_le64(from + 24)};
	}
	return true;
}
