/* Pieces of a snapshot of a replicated log, as another member sends them: {u8 part, u8 end, u16 bytes, data}. The
 * application sees its own ones alone, between open and close, and nothing is restored but what is whole; entries of
 * the tail are applied after that. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "smr/steps.h"

#define SESSIONS   4u
#define HEAD       4u
#define SLOT_BYTES 256u
#define SPAN       4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool opened, whole;

static int restore_open(void *context)
{
	(void)context;
	ensure(!opened);
	opened = true;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	(void)context, (void)data, (void)bytes;
	ensure(opened);
	return 0;
}

static int restore_close(void *context, bool is_whole)
{
	(void)context;
	ensure(opened);
	opened = false;
	whole = is_whole;
	return 0;
}

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	(void)context, (void)result;
	ensure(whole && !opened && request->bytes <= SPAN * SLOT_BYTES);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t entry[SPAN * SLOT_BYTES];
	static uint8_t back[SMR_BACK_BYTES] __attribute__((aligned(64)));
	static struct hf_smr smr;
	struct hf_error error;

	memset(&smr, 0, sizeof(smr));
	smr.app = (struct hf_smr_app){.apply = apply,
		.restore_open = restore_open,
		.restore_write = restore_write,
		.restore_close = restore_close};
	smr.geometry = (struct smr_geometry){.slots = 4 * SPAN, .slot_bytes = SLOT_BYTES, .span = SPAN};
	smr.entry = entry;
	smr.back = back;
	smr.role = HF_SMR_RESTORING;
	smr.sessions = smr_sessions_new(SESSIONS);
	opened = whole = false;
	ensure(smr.sessions != NULL && smr_restore_from_disk(&smr, &error) == 0);
	while (bytes >= HEAD && smr_restore_has_room(&smr) && smr.failed == NULL) {
		size_t length = get_le16(data + 2);

		if (length > bytes - HEAD)
			length = bytes - HEAD;
		ensure(smr_restore_push(&smr, data[0] % 4, data[1] % 8 == 1, data + HEAD, length));
		(void)smr_restore_turn(&smr);
		data += HEAD + length;
		bytes -= HEAD + length;
	}
	ensure(whole || smr.restore != NULL);
	ensure(!whole || (smr.applied != 0 && smr.members.index != 0 && smr.members.count <= HF_SMR_MEMBERS_MAX));
	smr_restore_drop(&smr);
	ensure(!opened);
	smr_sessions_free(smr.sessions);
	return 0;
}
