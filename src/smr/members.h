/* members.h - a configuration: the members of a cluster, their incarnations, and its majorities. Pure.
 *
 * Sets of members are bits by id. As bytes, in a CONFIG entry and between members, little-endian:
 *   u8 count; for each u8 id, u8 voter, u8 addresses, u8 0, u64 incarnation, name[32],
 *   4 x {u16 family, u16 port, ip[16]} */
#ifndef HOLDFAST_SMR_CONFIGURATION_H
#define HOLDFAST_SMR_CONFIGURATION_H

#include <holdfast/smr.h>

struct smr_member {
	struct hf_smr_member is;
	bool voter;
	uint64_t incarnation; /* 48 bits; 0: not known */
};

struct smr_members {
	uint64_t index; /* of its entry; 0: there is none */
	unsigned count;
	struct smr_member at[HF_SMR_MEMBERS_MAX]; /* by id, ascending */
};

#define SMR_MEMBERS_EACH  (12u + HF_NAME_BYTES + HF_SMR_ADDRESSES_MAX * 20u)
#define SMR_MEMBERS_BYTES (1u + HF_SMR_MEMBERS_MAX * SMR_MEMBERS_EACH)

const struct smr_member *smr_members_find(const struct smr_members *members, unsigned id); /* NULL: none */
/* The member with that id in that incarnation votes. */
bool smr_members_votes(const struct smr_members *members, unsigned id, uint64_t incarnation);
/* More than half of its voters are in the set. */
bool smr_members_majority(const struct smr_members *members, uint32_t set);
bool smr_members_same(const struct smr_members *a, const struct smr_members *b);   /* index, and voters */
int smr_members_put(struct smr_members *members, const struct smr_member *member); /* in place of its id; -ENOSPC */
void smr_members_drop(struct smr_members *members, unsigned id);

/* Slots that the CONFIG entry of `count` members takes. */
uint32_t smr_members_slots(unsigned count, uint32_t slot_bytes);
uint32_t smr_members_encode(const struct smr_members *members, uint8_t *out);
bool smr_members_decode(const uint8_t *data, size_t bytes, struct smr_members *members_out); /* index is left 0 */

#endif
