#include "one.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

struct hf_smr smr;
struct hf_peer *const somewhere = (struct hf_peer *)(void *)&smr;

void one_begin(void)
{
	smr = (struct hf_smr){.id = 0,
		.incarnation = 100,
		.role = HF_SMR_FOLLOWER,
		.choice = 0,
		.holder = SMR_NOBODY,
		.wanted = SMR_NOBODY,
		.now_ns = SECOND,
		.geometry = {.slots = SLOTS, .slot_bytes = SLOT_BYTES, .span = SLOTS / 4, .seed = 7},
		.config = {.patience_ns = SECOND, .pulse_ns = SECOND / 1000}};
	assert_int_equal(hf_loop_create(hf_env_host(), &smr.loop), 0);
	smr.log = calloc(1, SMR_LOG_SLOTS + SLOTS * SLOT_BYTES);
	smr.back = calloc(1, SMR_BACK_BYTES);
	smr.entry = calloc(smr.geometry.span, SLOT_BYTES);
	smr.batch = calloc(smr.geometry.span, SLOT_BYTES);
	smr.copy = calloc(1, SLOT_BYTES);
	assert_true(smr.log != NULL && smr.back != NULL && smr.entry != NULL && smr.batch != NULL && smr.copy != NULL);
	smr.members = (struct smr_members){.index = 1, .count = VOTERS};
	smr_calls_init(&smr);
	for (unsigned i = 0; i < VOTERS; i++) {
		smr.members.at[i] =
			(struct smr_member){.is = {.id = (uint8_t)i}, .voter = true, .incarnation = 100 + i};
		smr.links[i] = (struct smr_link){.smr = &smr, .id = (uint8_t)i, .incarnation = 100 + i};
		smr.links[i].elect = (struct smr_elect){.score = SMR_ELECT_SCORE_MAX, .alive = true};
		if (i == 0)
			continue;
		smr.links[i].peer = somewhere;
		smr.here[i - 1] = &smr.links[i];
	}
}

void one_end(void)
{
	hf_loop_destroy(smr.loop);
	free(smr.log);
	free(smr.back);
	free(smr.entry);
	free(smr.batch);
	free(smr.copy);
}

void one_put_slot(uint8_t *slot, uint64_t index, uint64_t number)
{
	const struct smr_slot value = {.index = index, .bytes = 4, .kind = SMR_REQUESTS | SMR_FIRST | SMR_LAST};

	(void)smr_slot_store(&smr.geometry, slot, &value, number, "old");
}
