#include "smr/members.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "smr/slot.h"

_Static_assert(SMR_MEMBERS_EACH == 12 + 32 + 80, "the layout of members.h");

const struct smr_member *smr_members_find(const struct smr_members *members, unsigned id)
{
	for (unsigned i = 0; i < members->count; i++)
		if (members->at[i].is.id == id)
			return &members->at[i];
	return NULL;
}

bool smr_members_votes(const struct smr_members *members, unsigned id, uint64_t incarnation)
{
	const struct smr_member *member = smr_members_find(members, id);

	return member != NULL && member->voter && member->incarnation == incarnation;
}

bool smr_members_majority(const struct smr_members *members, uint32_t set)
{
	unsigned voters = 0, in = 0;

	for (unsigned i = 0; i < members->count; i++) {
		voters += members->at[i].voter;
		in += members->at[i].voter && (set & 1u << members->at[i].is.id) != 0;
	}
	return 2 * in > voters;
}

int smr_members_put(struct smr_members *members, const struct smr_member *member)
{
	unsigned at = 0;

	while (at < members->count && members->at[at].is.id < member->is.id)
		at++;
	if (at == members->count || members->at[at].is.id != member->is.id) {
		if (members->count == HF_SMR_MEMBERS_MAX)
			return -ENOSPC;
		memmove(&members->at[at + 1], &members->at[at], (members->count - at) * sizeof(members->at[0]));
		members->count++;
	}
	members->at[at] = *member;
	return 0;
}

void smr_members_drop(struct smr_members *members, unsigned id)
{
	for (unsigned i = 0; i < members->count; i++)
		if (members->at[i].is.id == id) {
			members->count--;
			memmove(&members->at[i], &members->at[i + 1], (members->count - i) * sizeof(members->at[0]));
			return;
		}
}

bool smr_members_same(const struct smr_members *a, const struct smr_members *b)
{
	if (a->index != b->index || a->count != b->count)
		return false;
	for (unsigned i = 0; i < a->count; i++)
		if (a->at[i].is.id != b->at[i].is.id || a->at[i].incarnation != b->at[i].incarnation ||
			a->at[i].voter != b->at[i].voter)
			return false;
	return true;
}

static void encode_address(const struct hf_addr *addr, uint8_t *out)
{
	put_le16(out, (uint16_t)addr->sa.sa_family);
	put_le16(out + 2, hf_addr_port(addr));
	if (addr->sa.sa_family == AF_INET)
		memcpy(out + 4, &addr->in.sin_addr, sizeof(addr->in.sin_addr));
	else if (addr->sa.sa_family == AF_INET6)
		memcpy(out + 4, &addr->in6.sin6_addr, sizeof(addr->in6.sin6_addr));
}

static bool decode_address(const uint8_t *in, struct hf_addr *addr)
{
	uint16_t family = get_le16(in);

	memset(addr, 0, sizeof(*addr));
	if (family != AF_INET && family != AF_INET6)
		return false;
	addr->sa.sa_family = family;
	if (family == AF_INET)
		memcpy(&addr->in.sin_addr, in + 4, sizeof(addr->in.sin_addr));
	else
		memcpy(&addr->in6.sin6_addr, in + 4, sizeof(addr->in6.sin6_addr));
	hf_addr_set_port(addr, get_le16(in + 2));
	return true;
}

uint32_t smr_members_slots(unsigned count, uint32_t slot_bytes)
{
	uint32_t most = slot_bytes - SMR_SLOT_HEADER;

	return (1 + count * SMR_MEMBERS_EACH + most - 1) / most;
}

uint32_t smr_members_encode(const struct smr_members *members, uint8_t *out)
{
	uint8_t *at = out;

	*at++ = (uint8_t)members->count;
	for (unsigned i = 0; i < members->count; i++, at += SMR_MEMBERS_EACH) {
		const struct smr_member *member = &members->at[i];

		memset(at, 0, SMR_MEMBERS_EACH);
		at[0] = member->is.id;
		at[1] = member->voter;
		at[2] = (uint8_t)member->is.address_count;
		put_le64(at + 4, member->incarnation);
		memcpy(at + 12, member->is.name, strnlen(member->is.name, HF_NAME_BYTES - 1));
		for (unsigned j = 0; j < member->is.address_count; j++)
			encode_address(&member->is.addresses[j], at + 12 + HF_NAME_BYTES + 20 * j);
	}
	return (uint32_t)(at - out);
}

bool smr_members_decode(const uint8_t *data, size_t bytes, struct smr_members *members_out)
{
	*members_out = (struct smr_members){0};
	if (bytes < 1 || data[0] > HF_SMR_MEMBERS_MAX || bytes != 1 + data[0] * (size_t)SMR_MEMBERS_EACH)
		return false;
	for (const uint8_t *at = data + 1; at < data + bytes; at += SMR_MEMBERS_EACH) {
		struct smr_member *member = &members_out->at[members_out->count];

		if (at[0] >= HF_SMR_MEMBERS_MAX || at[1] > 1 || at[2] > HF_SMR_ADDRESSES_MAX ||
			(members_out->count > 0 && at[0] <= member[-1].is.id))
			return false;
		member->is.id = at[0];
		member->voter = at[1] != 0;
		member->is.address_count = at[2];
		member->incarnation = get_le64(at + 4);
		memcpy(member->is.name, at + 12, HF_NAME_BYTES - 1);
		for (unsigned j = 0; j < at[2]; j++)
			if (!decode_address(at + 12 + HF_NAME_BYTES + 20 * j, &member->is.addresses[j]))
				return false;
		members_out->count++;
	}
	return true;
}
