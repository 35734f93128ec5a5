/* Configurations of a replicated log, which come from other members. What is accepted is written again as the same. */
#include <string.h>

#include "base/ensure.h"
#include "smr/members.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t out[SMR_MEMBERS_BYTES], again[SMR_MEMBERS_BYTES];
	struct smr_members members, same;
	uint32_t written;

	if (!smr_members_decode(data, bytes, &members))
		return 0;
	ensure(members.count <= HF_SMR_MEMBERS_MAX);
	written = smr_members_encode(&members, out);
	ensure(written == bytes && smr_members_decode(out, written, &same));
	ensure(smr_members_encode(&same, again) == written && memcmp(out, again, written) == 0);
	for (unsigned id = 0; id < HF_SMR_MEMBERS_MAX; id++) {
		const struct smr_member *member = smr_members_find(&members, id);

		ensure(member == NULL || (member->is.id == id && member->is.address_count <= HF_SMR_ADDRESSES_MAX));
	}
	while (members.count > 0) {
		unsigned voters = 0;

		for (unsigned i = 0; i < members.count; i++)
			voters += members.at[i].voter;
		ensure(smr_members_majority(&members, UINT32_MAX) == (voters > 0));
		smr_members_drop(&members, members.at[0].is.id);
	}
	return 0;
}
