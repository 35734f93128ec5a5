/* Posting: the caller's list is copied into the request log; what may leave is translated for the rail in use.
 *
 * A wr waits in the log while the vqp has no path, while a failback waits for quiet, while its rkey is not known yet,
 * and while too many packets are unretired (docs/protocol.md, R3). */
#include "vqp/data/wr_translation.h"
#include "vqp/path/pool.h"
#include "vqp/atomic/uid_post.h"

#include <errno.h>

#include "dev/qp_rules.h"

#define SIGNAL_EVERY   64u
#define PACKETS_SIGNAL (1u << 20) /* force a signal after so many */
#define PACKETS_MAX    (1u << 22) /* wait for retirement above; < 2^23 */

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The responder keeps the results of a few atomics only: those whose answers came have to be known without it.
 *
 * A replayed wr speaks for itself: the signaled one behind it, which would have spoken for it, may have executed
 * before, and then is not posted again.
 *
 * `unsignaled` before it. Posting counts them, not deciding: what is not taken now is decided again. */
static bool needs_signal(const struct hf_vqp *vqp, const struct request_log_wr *entry, uint32_t unsignaled)
{
	uint32_t every = vqp->cap.max_send_wr / 4 < SIGNAL_EVERY ? vqp->cap.max_send_wr / 4 + 1 : SIGNAL_EVERY;
	bool no_probe = (vqp->remote_access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) == 0;

	return entry->signaled || entry->sent_before || no_probe || vqp->path->shared != NULL ||
	       qp_rules_is_atomic(entry->wr.opcode) || unsignaled + 1 >= every || vqp->packets >= PACKETS_SIGNAL;
}

/* Compiles what may leave, from log->next on. Returns how many entries; *end_out: where they end. */
static unsigned gather(struct hf_vqp *vqp, struct wr_translation *translation, uint64_t *end_out)
{
	struct request_log *log = &vqp->sends;
	uint32_t packets = vqp->path->shared != NULL ? vqp->path->shared->carrier->packets : vqp->packets;
	uint32_t unsignaled = vqp->unsignaled; /* as if all of the translation were posted; it may not be */
	unsigned added = 0;
	uint64_t at = log->next;

	if (vqp->path->shared != NULL)
		translation->room = carrier_room(vqp);
	for (; at < log->tail; at++) {
		struct request_log_wr *entry = request_log_at(log, at);
		bool signal;

		if (entry->done)
			continue;
		if (entry->refused != IBV_WC_SUCCESS)
			break;
		if (vqp->path->shared != NULL && entry->message != 0)
			break; /* R7: it and what follows it wait for a dedicated qp */
		if (packets > 0 && packets + entry->psns > PACKETS_MAX) {
			if (vqp->path->shared != NULL)
				carrier_wait(vqp); /* it may be others that have so many */
			else if (added == 0 && vqp->unsignaled > 0)
				(void)post_probe(vqp); /* nothing else may say that they executed */
			break;
		}
		if (uid_post_takes(vqp, entry))
			break;
		if (!wr_translation_has_room(translation, entry)) {
			if (vqp->path->shared != NULL && added == 0)
				carrier_wait(vqp);
			break;
		}
		signal = needs_signal(vqp, entry, unsignaled);
		if (!wr_translation_add(translation, vqp, at, signal))
			break;
		unsignaled = signal ? 0 : unsignaled + 1;
		packets += entry->psns;
		added++;
	}
	*end_out = at;
	return added;
}

static void posted(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	entry->rail = (uint8_t)vqp->path->rail;
	entry->qp_num = vqp->path->our_key;
	vqp->unsignaled = entry->reports ? 0 : vqp->unsignaled + 1;
	if (vqp->packets == 0)
		vqp->moved_ns = vqp->node->turned_ns;
	path_count(vqp->path, &vqp->packets, entry->psns);
	if (entry->log_entry != 0 && !entry->footed && !entry->log_counted) {
		entry->log_counted = true;
		vqp->counters.log_bytes += LOG_ENTRY_BYTES;
	}
	if (!entry->sent_before)
		return;
	entry->sent_before = false;
	vqp->counters.resent_wrs++;
	hf_metric_add(vqps_of(vqp->node)->metrics.resent_wrs, 1);
	if (entry->wr.opcode == IBV_WR_RDMA_READ)
		return;
	vqp->counters.resent_bytes += entry->bytes - entry->landed;
	hf_metric_add(vqps_of(vqp->node)->metrics.resent_bytes, entry->bytes - entry->landed);
}

/* The device took what is before `end`. */
static void advance(struct hf_vqp *vqp, uint64_t end)
{
	struct request_log *log = &vqp->sends;

	if (log->next < end)
		home_reached(vqp); /* whatever waited for it is posted, or is no more */
	for (; log->next < end; log->next++)
		if (!request_log_at(log, log->next)->done)
			posted(vqp, request_log_at(log, log->next));
}

/* False: the device did not take everything. */
static bool hand_over(struct hf_vqp *vqp, struct wr_translation *translation, uint64_t end)
{
	struct ibv_send_wr *bad = NULL;
	int rc = path_post_send(vqp, vqp->path, translation->wrs, wr_translation_footers(translation), &bad);
	unsigned taken = rc == 0 ? translation->wr_count : (unsigned)(bad - translation->wrs);
	if (rc == 0) {
		advance(vqp, end);
		return true;
	}
	advance(vqp, translation->positions[taken]);
	if (taken > 0 && translation->positions[taken - 1] == translation->positions[taken]) {
		advance(vqp, translation->positions[taken] + 1); /* in part: the evidence has to tell how far */
		marks_broken(vqp);
	} else if (rc != -ENOMEM) /* full: completions will make room */
		vqp_abort(vqp, IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR);
	return false;
}

/* As if the NAK had come: all before it has completed. */
static void fail_refused(struct hf_vqp *vqp)
{
	enum ibv_wc_status status = request_log_refused(&vqp->sends);

	if (status != IBV_WC_SUCCESS)
		vqp_fail(vqp, status, IBV_WC_WR_FLUSH_ERR, true);
}

void post_pump(struct hf_vqp *vqp)
{
	struct request_log *log = &vqp->sends;
	struct wr_translation translation;
	uint64_t end;

	if (vqp->forsaken) {
		if (vqp->state == HF_VQP_UP && log->next < log->tail)
			vqp_fail_alone(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR,
				vqp->peer == NULL && post_may_execute(vqp));
		return;
	}
	if (vqp->state == HF_VQP_UP && !vqp->held)
		uid_post_confirm(vqp);
	while (vqp->state == HF_VQP_UP && !vqp->held && !vqp->path_cut && !vqp->path_broken && log->next < log->tail) {
		wr_translation_init(&translation, vqp);
		if (gather(vqp, &translation, &end) == 0) {
			advance(vqp, end); /* over what is done */
			fail_refused(vqp);
			if (end < log->tail && uid_post_takes(vqp, request_log_at(log, end)))
				uid_post_pump(vqp);
			return;
		}
		if (!hand_over(vqp, &translation, end))
			return;
	}
}

bool post_quiet(const struct hf_vqp *vqp)
{
	for (uint64_t at = vqp->sends.head; at < vqp->sends.next; at++)
		if (!request_log_at(&vqp->sends, at)->done)
			return false;
	return uid_post_quiet(vqp);
}

bool post_may_execute(const struct hf_vqp *vqp)
{
	for (uint64_t at = vqp->sends.head; at < vqp->sends.next; at++) {
		const struct request_log_wr *entry = request_log_at(&vqp->sends, at);

		if (!entry->done && entry->wr.opcode != IBV_WR_RDMA_READ)
			return true;
	}
	return !uid_post_quiet(vqp);
}

bool post_may_probe(const struct hf_vqp *vqp)
{
	return (vqp->remote_access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) != 0;
}

bool post_probe_on(struct hf_vqp *vqp, struct path *path)
{
	/* On the path in use it speaks for all that was posted before; on another one for nothing, even when that has
	 * become the path in use by the time that it completes. */
	uint64_t end = path == vqp->path ? vqp->sends.next : 0;
	struct ibv_send_wr wr = {.wr_id = WR_PROBE | end, .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (!post_may_probe(vqp) || path->qp == NULL)
		return false;
	wr.opcode = vqp->remote_access & IBV_ACCESS_REMOTE_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	return path_post_send(vqp, path, &wr, NULL, &bad) == 0;
}

bool post_probe(struct hf_vqp *vqp)
{
	if (!vqp->probing)
		vqp->probing = post_probe_on(vqp, vqp->path);
	return vqp->probing;
}

static int check_send(const struct hf_vqp *vqp, const struct ibv_send_wr *wr)
{
	for (int i = 0; i < wr->num_sge && (uint32_t)wr->num_sge <= vqp->cap.max_send_sge; i++)
		if (wr->sg_list == NULL)
			return -EINVAL;
	return qp_rules_check_send(&vqp->shape, wr);
}

/* What is posted to a vqp that has failed for good completes at once. */
static void flush_if_over(struct hf_vqp *vqp, struct request_log *log, struct request_log_wr *entry)
{
	if (vqp->state != HF_VQP_ERROR || vqp_is_ending(vqp))
		return;
	entry->done = true;
	entry->status = IBV_WC_WR_FLUSH_ERR;
	entry->outcome = HF_WC_NOT_EXECUTED;
	log->next = log->tail;
	vcq_note(vqp);
}

/* So does what is posted behind a revocation, before hf_vqp_rearm; all before it has ended then. */
static void flush_if_revoked(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	if (entry->done || vqp->grants.theirs == 0 || vqp->grants.armed != 0)
		return;
	entry->done = true;
	entry->status = IBV_WC_WR_FLUSH_ERR;
	entry->outcome = HF_WC_NOT_EXECUTED;
	vqp->messages -= entry->message != 0;
	vqp->sends.next = vqp->sends.tail;
	vcq_note(vqp);
}

static void logged(struct hf_vqp *vqp, struct request_log_wr *entry)
{
	const struct ibv_send_wr *wr = &entry->wr;

	entry->bytes = qp_rules_wr_bytes(wr);
	entry->idempotent = (wr->send_flags & HF_SEND_IDEMPOTENT) != 0;
	entry->psns = qp_rules_psns(wr->opcode, entry->bytes, 256); /* no path has a smaller mtu */
	entry->signaled = vqp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	if (takes_receive(wr->opcode))
		entry->message = ++vqp->messages;
	vqp->sends.tail++;
	vqp->send_cq->awaited++;
	vqp->counters.posted++;
	flush_if_over(vqp, &vqp->sends, entry);
	flush_if_revoked(vqp, entry);
}

int hf_vqp_post_send(struct hf_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	int rc = vqp->sends.lent > 0 ? -EBUSY : 0;

	for (; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr) {
		rc = check_send(vqp, wr);
		if (rc == 0 && request_log_full(&vqp->sends))
			(void)completions_look(vqp->node, &vqp->looked); /* unsignaled wrs leave without a poll */
		if (rc == 0 && request_log_full(&vqp->sends))
			rc = -ENOMEM;
		if (rc == 0)
			logged(vqp, request_log_copy(&vqp->sends, wr));
	}
	if (rc != 0)
		*bad_wr = wr;
	post_pump(vqp);
	return rc;
}

uint64_t hf_vqp_last_request(const struct hf_vqp *vqp)
{
	return vqp->sends.tail;
}

struct ibv_send_wr *hf_vqp_wr(struct hf_vqp *vqp)
{
	struct ibv_send_wr *wr = request_log_lend(&vqp->sends);

	if (wr != NULL)
		return wr;
	(void)completions_look(vqp->node, &vqp->looked);
	return request_log_lend(&vqp->sends);
}

int hf_vqp_post_wrs(struct hf_vqp *vqp, struct ibv_send_wr **bad_wr)
{
	struct request_log *log = &vqp->sends;
	int rc = 0;

	while (log->lent > 0 && rc == 0) {
		struct ibv_send_wr *wr = &request_log_at(log, log->tail)->wr;

		rc = check_send(vqp, wr);
		if (rc == 0)
			logged(vqp, request_log_adopt(log));
		else
			*bad_wr = wr;
	}
	log->lent = 0;
	post_pump(vqp);
	return rc;
}

int hf_vqp_post_recv(struct hf_vqp *vqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int rc = 0;

	for (; wr != NULL; wr = wr->next) {
		struct ibv_send_wr copy = {.wr_id = wr->wr_id, .sg_list = wr->sg_list, .num_sge = wr->num_sge};

		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > vqp->cap.max_recv_sge ||
			(wr->num_sge > 0 && wr->sg_list == NULL))
			rc = -EINVAL;
		else if (request_log_full(&vqp->recvs))
			rc = -ENOMEM;
		if (rc != 0) {
			*bad_wr = wr;
			break;
		}
		struct request_log_wr *entry = request_log_copy(&vqp->recvs, &copy);

		entry->signaled = true;
		vqp->recvs.tail++;
		flush_if_over(vqp, &vqp->recvs, entry);
	}
	/* Also while new sends are held for a failback: the peer's last SEND may be waiting for this receive. */
	if (vqp->state == HF_VQP_UP && vqp->path->qp != NULL && !vqp->path_broken)
		(void)path_post_recvs(vqp, vqp->path);
	return rc;
}
