#include "vqp/data/wr_translation.h"

#include "base/bytes.h"
#include "base/ensure.h"
#include "dev/qp_rules.h"

_Static_assert(VQP_SGE_MAX < TRANSLATION_SGES && TRANSLATION_WRS_EACH <= TRANSLATION_WRS,
	"an entry fits into an empty translation");

void wr_translation_init(struct wr_translation *translation, const struct hf_vqp *vqp)
{
	translation->wr_count = translation->sge_count = 0;
	translation->room = TRANSLATION_WRS;
	translation->footed = false;
	translation->psn = hf_qp_next_psn(vqp->path->qp);
}

static bool names_rkey(enum ibv_wr_opcode opcode)
{
	return qp_rules_is_atomic(opcode) || opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       opcode == IBV_WR_RDMA_READ;
}

/* Puts the rail's rkey into the wr. REGION_UNKNOWN: wait, and ask. */
static enum region_lookup translate_rkey(struct hf_vqp *vqp, struct ibv_send_wr *wr, uint64_t bytes)
{
	uint32_t *rkey = qp_rules_is_atomic(wr->opcode) ? &wr->wr.atomic.rkey : &wr->wr.rdma.rkey;
	enum region_lookup found;

	if (!names_rkey(wr->opcode) || (wr->opcode != IBV_WR_RDMA_READ && bytes == 0))
		return REGION_FOUND;
	found = qp_rules_is_atomic(wr->opcode) ? region_rkey_atomic(vqp, *rkey, vqp->path->rail, rkey)
					       : region_rkey(vqp, *rkey, vqp->path->rail, rkey);
	if (found == REGION_REFUSED)
		*rkey = 0; /* the responder refuses it in its turn, with all before it executed */
	return found;
}

/* The list behind its first `skip` bytes. Returns how many sges it takes. */
static int copy_sges(const struct hf_vqp *vqp, const struct ibv_send_wr *wr, uint64_t skip, struct ibv_sge *sges)
{
	bool is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
	int count = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		struct ibv_sge sge = wr->sg_list[i];

		if (skip > 0 && skip >= sge.length) {
			skip -= sge.length;
			continue;
		}
		sge.addr += skip;
		sge.length -= (uint32_t)skip;
		skip = 0;
		if (!is_inline)
			sge.lkey = region_lkey(vqp->pd, sge.lkey, vqp->path->rail);
		sges[count++] = sge;
	}
	return count;
}

bool wr_translation_has_room(const struct wr_translation *translation, const struct request_log_wr *entry)
{
	return translation->wr_count + TRANSLATION_WRS_EACH <= translation->room &&
	       translation->sge_count + (unsigned)entry->wr.num_sge < TRANSLATION_SGES;
}

static bool is_plain(const struct hf_vqp *vqp, const struct ibv_send_wr *wr)
{
	const struct remote_region *region = vqp_peer_of(vqp->peer)->has_plain && qp_rules_is_atomic(wr->opcode)
						     ? region_remote(vqp->peer, wr->wr.atomic.rkey)
						     : NULL;

	return region != NULL && region->mode == HF_ATOMIC_PLAIN;
}

/* What changes memory, and is not declared harmless to repeat. Messages have the log of receives (R8). */
static bool is_logged(const struct hf_vqp *vqp, const struct request_log_wr *entry)
{
	return vqp->log.entries > 0 && (vqp->remote_access & IBV_ACCESS_REMOTE_WRITE) != 0 && !entry->idempotent &&
	       !entry->plain &&
	       (qp_rules_is_atomic(entry->wr.opcode) || entry->wr.opcode == IBV_WR_RDMA_WRITE ||
		       entry->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
}

static struct ibv_send_wr *append(struct wr_translation *translation, uint64_t position, uint32_t psns)
{
	struct ibv_send_wr *wr = &translation->wrs[translation->wr_count];

	wr->wr_id = position;
	wr->next = NULL;
	if (translation->wr_count > 0)
		translation->wrs[translation->wr_count - 1].next = wr;
	translation->footers[translation->wr_count].rkey = 0;
	translation->positions[translation->wr_count++] = position;
	translation->psn = psn_add(translation->psn, psns);
	return wr;
}

/* Where the copy lies in the request log. That tells copies apart as well as an address, which is none of the
 * responder's business, and would make no two runs of the simulator alike. */
static void take_log_entry(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	uintptr_t offset = (uintptr_t)&entry->wr - (uintptr_t)vqp->sends.slots;

	entry->log_number = completion_log_take(&vqp->log, (const void *)offset, &entry->log_entry);
}

static void add_footer(struct wr_translation *translation, struct hf_vqp *vqp, struct request_log_wr *entry)
{
	struct hf_footer *footer = &translation->footers[translation->wr_count - 1];

	take_log_entry(vqp, entry);
	entry->footed = translation->footed = true;
	*footer = (struct hf_footer){.remote_addr = vqp->log.addr + (uint64_t)entry->log_number * LOG_ENTRY_BYTES,
		.value = htole64(entry->log_entry),
		.rkey = vqp->log_rkeys[vqp->path->rail]};
}

static struct ibv_send_wr *append_log_write(
	struct wr_translation *translation, struct hf_vqp *vqp, uint64_t position, struct request_log_wr *entry)
{
	uint64_t *word = &translation->words[translation->wr_count];
	struct ibv_sge *sge = &translation->sges[translation->sge_count++];
	struct ibv_send_wr *wr = &translation->wrs[translation->wr_count];

	take_log_entry(vqp, entry);
	*word = htole64(entry->log_entry);
	*sge = (struct ibv_sge){.addr = (uintptr_t)word, .length = LOG_ENTRY_BYTES};
	*wr = (struct ibv_send_wr){.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma = {.remote_addr = vqp->log.addr + (uint64_t)entry->log_number * LOG_ENTRY_BYTES,
			.rkey = vqp->log_rkeys[vqp->path->rail]}};
	return append(translation, position, 1);
}

bool wr_translation_add(struct wr_translation *translation, struct hf_vqp *vqp, uint64_t position, bool signal)
{
	struct request_log_wr *entry = request_log_at(&vqp->sends, position);
	struct ibv_send_wr *wr = &translation->wrs[translation->wr_count], *log_write;
	uint64_t left = entry->bytes - entry->landed;

	ensure(wr_translation_has_room(translation, entry));
	*wr = entry->wr;
	if (translate_rkey(vqp, wr, left) == REGION_UNKNOWN)
		return false;
	wr->sg_list = translation->sges + translation->sge_count;
	wr->num_sge = copy_sges(vqp, &entry->wr, entry->landed, wr->sg_list);
	if (entry->landed > 0)
		wr->wr.rdma.remote_addr += entry->landed; /* only WRITEs land in part */
	wr->send_flags &= ~(unsigned)(IBV_SEND_SIGNALED | HF_SEND_IDEMPOTENT);
	translation->sge_count += (unsigned)wr->num_sge;
	entry->mtu_bytes = vqp->path->mtu_bytes;
	entry->first_psn = translation->psn;
	entry->psns = qp_rules_psns(wr->opcode, left, vqp->path->mtu_bytes);
	entry->plain = is_plain(vqp, &entry->wr);
	entry->log_entry = 0;
	entry->footed = false;
	entry->reports = signal;
	wr = append(translation, position, entry->psns);
	if (is_logged(vqp, entry) && vqp->path->footers)
		add_footer(translation, vqp, entry);
	else if (is_logged(vqp, entry)) {
		log_write = append_log_write(translation, vqp, position, entry);
		/* An atomic signals by itself. Its answer makes room for another one, whose result takes its place at
		 * the responder, and may come long before its log write is acknowledged. */
		if (!qp_rules_is_atomic(entry->wr.opcode))
			wr = log_write;
	}
	if (signal)
		wr->send_flags |= IBV_SEND_SIGNALED;
	return true;
}
