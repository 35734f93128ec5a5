/* wr_translation.h - translates entries of the request log into the device's wrs, chained so that one call posts them.
 *
 * Most entries are one wr. Where an entry needs more, the last of them carries its signal, so that one
 * completion proves that all of them executed (D2); but an atomic carries its own. They are posted together or not at
 * all.
 *
 * The entry of the completion log behind a wr is a wr of its own or, where both devices support footers, a footer
 * of the wr, which costs no packet and executes with it or not at all. */
#ifndef HOLDFAST_VQP_DATA_WR_TRANSLATION_H
#define HOLDFAST_VQP_DATA_WR_TRANSLATION_H

#include "vqp/objects.h"

#define TRANSLATION_WRS  66u /* a batch of 64 leaves in one call, which one run of packets can carry */
#define TRANSLATION_SGES 128u
#define TRANSLATION_WRS_EACH                                                                                           \
	2u /* of an entry, at most: the wr, and what is written into the completion log behind it */

struct wr_translation {
	struct ibv_send_wr wrs[TRANSLATION_WRS];
	uint64_t positions[TRANSLATION_WRS]; /* in the log: of the wr's entry */
	struct ibv_sge sges[TRANSLATION_SGES];
	struct hf_footer footers[TRANSLATION_WRS]; /* where the path has them */
	uint64_t words
		[TRANSLATION_WRS]; /* what log writes write: inline, so that the post has read it when it returns */
	unsigned wr_count, sge_count, room; /* room: of wrs, for what the qp can take now */
	bool footed;                        /* one of them has a footer */
	uint32_t psn;                       /* of the next wr */
};

void wr_translation_init(struct wr_translation *translation, const struct hf_vqp *vqp);
/* An empty translation has room for every entry, unless `room` was made less than TRANSLATION_WRS_EACH. */
bool wr_translation_has_room(const struct wr_translation *translation, const struct request_log_wr *entry);
static inline const struct hf_footer *wr_translation_footers(const struct wr_translation *translation)
{
	return translation->footed ? translation->footers : NULL;
}
/* Compiles the wr at `position` for the path in use, from its first byte that has not landed. False: it cannot be
 * posted yet, because its rkey was requested from the peer. */
bool wr_translation_add(struct wr_translation *translation, struct hf_vqp *vqp, uint64_t position, bool signal);

#endif
