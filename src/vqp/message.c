/* Control messages, little-endian, packed; one of the control channel carries several, each as u16 bytes, message:
 *
 *   u16 kind   u16 zero   u32 to   u32 from   u32 epoch   then, in the order of visit(), the fields of the kind
 *
 * One function describes encoding and decoding, so that they cannot differ. Everything is validated: ranges of small
 * numbers, names, and that not a byte is missing or left over. */
#include "vqp/message.h"

#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "net/control.h"
#include "vqp/atomic/uid.h"
#include "vqp/data/completion_log.h"

struct wire {
	uint8_t *at;
	uint32_t bytes, used;
	bool decode, bad;
};

static void raw(struct wire *wire, void *value, uint32_t bytes)
{
	if (wire->bad || wire->bytes - wire->used < bytes) {
		wire->bad = true;
		return;
	}
	if (wire->decode)
		memcpy(value, wire->at + wire->used, bytes);
	else
		memcpy(wire->at + wire->used, value, bytes);
	wire->used += bytes;
}

static void u8(struct wire *wire, uint8_t *value, uint8_t max)
{
	raw(wire, value, 1);
	if (*value > max)
		wire->bad = true;
}

static void u16(struct wire *wire, uint16_t *value, uint16_t max)
{
	uint16_t le = htole16(*value);

	raw(wire, &le, sizeof(le));
	*value = le16toh(le);
	if (*value > max)
		wire->bad = true;
}

static void u32(struct wire *wire, uint32_t *value, uint32_t max)
{
	uint32_t le = htole32(*value);

	raw(wire, &le, sizeof(le));
	*value = le32toh(le);
	if (*value > max)
		wire->bad = true;
}

static void u64(struct wire *wire, uint64_t *value)
{
	uint64_t le = htole64(*value);

	raw(wire, &le, sizeof(le));
	*value = le64toh(le);
}

static void name(struct wire *wire, char value[HF_NAME_BYTES])
{
	raw(wire, value, HF_NAME_BYTES);
	if (strnlen(value, HF_NAME_BYTES) == 0 || strnlen(value, HF_NAME_BYTES) == HF_NAME_BYTES)
		wire->bad = true;
}

#define RAIL_MASK ((1u << HF_RAILS_MAX) - 1)
#define NUM_MASK  0xffffffu

static void qp(struct wire *wire, struct message *m)
{
	u8(wire, &m->rail, HF_RAILS_MAX - 1);
	u8(wire, &m->cached, MESSAGE_PATHS - 1);
	u8(wire, &m->rd_atomic, UINT8_MAX);
	u8(wire, &m->mtu, IBV_MTU_4096);
	u8(wire, &m->footers, 1);
	u32(wire, &m->qp_num, NUM_MASK);
	u32(wire, &m->psn, NUM_MASK);
	if (m->mtu < IBV_MTU_256)
		wire->bad = true;
}

static void dc(struct wire *wire, struct message *m)
{
	u8(wire, &m->dc, 1);
	u32(wire, &m->dct_num, NUM_MASK);
	u64(wire, &m->dc_key);
	u64(wire, &m->dc_use);
}

static void slots(struct wire *wire, struct message *m)
{
	u32(wire, &m->rkey, UINT32_MAX);
	u64(wire, &m->slots_addr);
	u64(wire, &m->sequence);
	u32(wire, &m->slots, 1u << UID_INDEX_BITS);
	u32(wire, &m->first_slot, 1u << UID_INDEX_BITS);
	u8(wire, &m->lent_slots, UINT8_MAX);
	if (m->sequence > UID_SEQUENCE_MAX || m->first_slot + m->lent_slots > m->slots)
		wire->bad = true;
}

static void access(struct wire *wire, struct message *m)
{
	u32(wire, &m->access, UINT32_MAX);
	u32(wire, &m->grant, UINT32_MAX);
	u8(wire, &m->revocable, 1);
}

static void own_end(struct wire *wire, struct message *m)
{
	access(wire, m);
	u32(wire, &m->pd, UINT32_MAX);
	u32(wire, &m->depth, LOG_ENTRIES_MAX);
}

static void private_data(struct wire *wire, struct message *m)
{
	own_end(wire, m);
	u16(wire, &m->private_bytes, HF_PRIVATE_BYTES);
	if (!wire->bad)
		raw(wire, m->private_data, m->private_bytes);
}

static void node(struct wire *wire, struct message *m)
{
	u8(wire, &m->rail_count, HF_RAILS_MAX);
	for (unsigned i = 0; !wire->bad && i < m->rail_count; i++) {
		name(wire, m->rails[i].name);
		name(wire, m->rails[i].kind);
		raw(wire, m->rails[i].gid, sizeof(m->rails[i].gid));
		u8(wire, &m->rails[i].dc_mtu, IBV_MTU_4096);
		u8(wire, &m->rails[i].dc_rd_atomic, UINT8_MAX);
	}
	u32(wire, &m->up, RAIL_MASK);
}

static void atomics(struct wire *wire, struct message *m)
{
	u8(wire, &m->in_doubt, 1);
	u8(wire, &m->atomic_count, EVIDENCE_ATOMICS);
	for (unsigned i = 0; !wire->bad && i < m->atomic_count; i++) {
		u32(wire, &m->atomics[i].psn, NUM_MASK);
		u64(wire, &m->atomics[i].original);
	}
}

static void fault(struct wire *wire, struct message *m)
{
	u8(wire, &m->ended, 1);
	u8(wire, &m->refused, IBV_WC_GENERAL_ERR);
	u32(wire, &m->refused_psn, NUM_MASK);
}

static void completion_log(struct wire *wire, struct message *m)
{
	u8(wire, &m->has_log, 1);
	u32(wire, &m->log_number, LOG_ENTRIES_MAX - 1);
	u64(wire, &m->log_entry);
}

static void why_it_fences(struct wire *wire, struct message *m)
{
	u8(wire, &m->failback, 1);
	u8(wire, &m->suspect, 1);
	u8(wire, &m->wr_failed, 1);
}

static void where_log_is(struct wire *wire, struct message *m)
{
	u64(wire, &m->log_addr);
	u32(wire, &m->log_entries, LOG_ENTRIES_MAX);
	u32(wire, &m->up, RAIL_MASK);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		u32(wire, &m->rkeys[i], UINT32_MAX);
	if (m->log_entries == 0 || (m->log_entries & (m->log_entries - 1)) != 0)
		wire->bad = true;
}

static void lengths(struct wire *wire, struct message *m)
{
	u8(wire, &m->more, 1);
	u8(wire, &m->length_count, MESSAGE_LENGTHS_MAX);
	for (unsigned i = 0; !wire->bad && i < m->length_count; i++) {
		u64(wire, &m->lengths[i].message);
		u32(wire, &m->lengths[i].bytes, UINT32_MAX);
	}
}

static void visit(struct wire *wire, struct message *m)
{
	uint16_t kind = (uint16_t)m->kind, zero = 0;

	u16(wire, &kind, MESSAGE_KINDS - 1);
	u16(wire, &zero, 0);
	u32(wire, &m->to, NUM_MASK);
	u32(wire, &m->from, NUM_MASK);
	u32(wire, &m->epoch, UINT32_MAX);
	if (wire->bad || kind == 0) {
		wire->bad = true;
		return;
	}
	m->kind = (enum message_kind)kind;
	switch (m->kind) {
	case MESSAGE_NODE:
		node(wire, m);
		break;
	case MESSAGE_LEASE:
		u64(wire, &m->stamp);
		u64(wire, &m->echo);
		u64(wire, &m->lease_ns);
		break;
	case MESSAGE_RAILS:
		u32(wire, &m->up, RAIL_MASK);
		break;
	case MESSAGE_REGION:
		u32(wire, &m->rkey, UINT32_MAX);
		for (unsigned i = 0; i < HF_RAILS_MAX; i++)
			u32(wire, &m->rkeys[i], UINT32_MAX);
		u8(wire, &m->home, UINT8_MAX);
		u32(wire, &m->atomic_rkey, UINT32_MAX);
		u8(wire, &m->mode, HF_ATOMIC_MODES - 1);
		break;
	case MESSAGE_REGION_GONE:
	case MESSAGE_REGION_ASK:
	case MESSAGE_REGION_NONE:
		u32(wire, &m->rkey, UINT32_MAX);
		break;
	case MESSAGE_CONNECT:
		name(wire, m->service);
		name(wire, m->terms);
		private_data(wire, m);
		break;
	case MESSAGE_ACCEPT:
		private_data(wire, m);
		break;
	case MESSAGE_JOIN:
		name(wire, m->terms);
		own_end(wire, m);
		u8(wire, &m->answer, 1);
		break;
	case MESSAGE_FENCE:
		why_it_fences(wire, m);
		break;
	case MESSAGE_STATE:
		why_it_fences(wire, m);
		u8(wire, &m->fenced, 1);
		u8(wire, &m->has_psn, 1);
		u32(wire, &m->executed_psn, NUM_MASK);
		u8(wire, &m->about_rail, HF_RAILS_MAX - 1);
		u32(wire, &m->about_qp, NUM_MASK);
		fault(wire, m);
		atomics(wire, m);
		completion_log(wire, m);
		u64(wire, &m->consumed);
		u8(wire, &m->resumes, 1);
		access(wire, m);
		u32(wire, &m->up, RAIL_MASK);
		break;
	case MESSAGE_LOG:
		where_log_is(wire, m);
		break;
	case MESSAGE_LENGTHS:
		lengths(wire, m);
		break;
	case MESSAGE_GO:
	case MESSAGE_QP:
	case MESSAGE_BACKUP:
	case MESSAGE_BACKUP_QP:
		qp(wire, m);
		u32(wire, &m->about_qp, NUM_MASK);
		break;
	case MESSAGE_POOL:
		qp(wire, m);
		dc(wire, m);
		break;
	case MESSAGE_SLOTS:
		slots(wire, m);
		break;
	case MESSAGE_POOL_QP:
		qp(wire, m);
		dc(wire, m);
		u32(wire, &m->about_qp, NUM_MASK);
		break;
	case MESSAGE_POOL_GONE:
	case MESSAGE_CLOSED:
		u8(wire, &m->rail, HF_RAILS_MAX - 1);
		u32(wire, &m->about_qp, NUM_MASK);
		break;
	case MESSAGE_GRANT:
		access(wire, m);
		break;
	case MESSAGE_REFUSE:
		name(wire, m->terms);
		break;
	case MESSAGE_READY:
	case MESSAGE_MOVE:
		u8(wire, &m->rail, HF_RAILS_MAX - 1);
		break;
	case MESSAGE_SLOTS_ASK:
		break;
	case MESSAGE_KINDS:
		wire->bad = true;
		break;
	}
}

uint32_t message_encode(const struct message *message, uint8_t *at)
{
	struct wire wire = {.at = at, .bytes = MESSAGE_MAX};

	visit(&wire, (struct message *)(uintptr_t)message); /* which writes nothing to it that it has not read there */
	ensure(!wire.bad);
	return wire.used;
}

bool message_decode(const uint8_t *at, uint32_t bytes, struct message *message_out)
{
	uint8_t copy[MESSAGE_MAX];
	struct wire wire = {.at = copy, .bytes = bytes, .decode = true};

	*message_out = (struct message){0};
	if (bytes > sizeof(copy))
		return false;
	memcpy(copy, at, bytes);
	visit(&wire, message_out);
	return !wire.bad && wire.used == bytes;
}

bool message_box_add(struct message_box *box, const struct message *message)
{
	uint8_t at[MESSAGE_MAX];
	uint32_t bytes = message_encode(message, at);

	if (sizeof(box->bytes) - box->used < MESSAGE_LENGTH_BYTES + bytes)
		return false;
	put_le16(box->bytes + box->used, (uint16_t)bytes);
	memcpy(box->bytes + box->used + MESSAGE_LENGTH_BYTES, at, bytes);
	box->used += MESSAGE_LENGTH_BYTES + bytes;
	return true;
}

bool message_box_next(const uint8_t **at, const uint8_t *end, struct message *message_out)
{
	uint32_t left = (uint32_t)(end - *at), bytes;

	if (left < MESSAGE_LENGTH_BYTES)
		return false;
	bytes = get_le16(*at);
	if (left - MESSAGE_LENGTH_BYTES < bytes || !message_decode(*at + MESSAGE_LENGTH_BYTES, bytes, message_out))
		return false;
	*at += MESSAGE_LENGTH_BYTES + bytes;
	return true;
}
