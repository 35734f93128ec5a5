#include "dev/verbs/answers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dev/qp_rules.h"
#include "dev/verbs/verbs.h"
#include "env/fault.h"

#define MARK_BYTES 8u
#define SPREAD     0x9e3779b97f4a7c15ull
#define USES_MIN   16u
#define USES_MAX   (1u << 20) /* of a program that signals nothing */

/* Local memory that a wr in flight reads or writes. */
struct use {
	struct ibv_sge range;
	uint64_t wr_id;
	uint32_t end; /* signaled wrs that have completed, when this one has */
	bool writes;
	bool is_answer; /* the last bytes of one */
	bool hidden;    /* a later wr may have written over the mark */
	bool missing;   /* it was not there when its qp failed */
	uint32_t mark_bytes;
	uint64_t mark, before;
	uint64_t resent; /* what the NIC had sent again, at some time before it was posted */
};

struct verbs_answers {
	struct use *uses;
	uint32_t mask, first, end; /* of the ring; ever */
	uint32_t completed;        /* signaled wrs, with success; as far as qp->posted counts them */
	uint32_t restored;         /* as far as first and end, the places of a qp that has failed */
	bool failed;
	uint64_t key;
};

void verbs_answers_look(struct verbs_dev *dev)
{
	if (!dev->port.model->believes_acks)
		return;
	dev->resent = verbs_port_resent(&dev->port, dev->base.env);
	dev->resent_fresh = true;
}

int verbs_answers_init(struct verbs_qp *qp)
{
	const struct verbs_dev *dev = verbs_of(qp->base.dev);

	if (!dev->port.model->believes_acks)
		return 0;
	qp->answers = calloc(1, sizeof(*qp->answers));
	if (qp->answers == NULL)
		return -ENOMEM;
	fault_catch();
	hf_env_entropy(dev->base.env, &qp->answers->key, sizeof(qp->answers->key));
	return 0;
}

void verbs_answers_free(struct verbs_qp *qp)
{
	if (qp->answers == NULL)
		return;
	free(qp->answers->uses);
	free(qp->answers);
	qp->answers = NULL;
}

void verbs_answers_forget(struct verbs_qp *qp)
{
	struct verbs_answers *answers = qp->answers;

	if (answers == NULL)
		return;
	answers->first = answers->restored = answers->end;
	answers->completed = 0;
	answers->failed = false;
}

static struct use *use_at(const struct verbs_answers *answers, uint32_t at)
{
	return &answers->uses[at & answers->mask];
}

/* ---- marks ---- */

static bool overlap(const struct ibv_sge *a, const struct ibv_sge *b)
{
	return a->addr < b->addr + b->length && b->addr < a->addr + a->length;
}

static struct ibv_sge last_bytes(const struct ibv_sge *range, uint32_t bytes)
{
	return (struct ibv_sge){.addr = range->addr + range->length - bytes, .length = bytes, .lkey = range->lkey};
}

static void *mark_of(const struct use *use)
{
	return (void *)(uintptr_t)last_bytes(&use->range, use->mark_bytes).addr;
}

/* False where the NIC will refuse the wr; and where the memory was deregistered, and may have been given back. */
static bool is_permitted(const struct verbs_qp *qp, const struct ibv_sge *range, bool writes)
{
	const struct verbs_mr *mr = table_get(&verbs_of(qp->base.dev)->by_lkey, range->lkey);
	uint64_t at = mr == NULL ? 0 : range->addr - (uintptr_t)mr->base.addr;

	return mr != NULL && mr->base.pd == qp->base.pd &&
	       (!writes || (mr->base.access & IBV_ACCESS_LOCAL_WRITE) != 0) && at <= mr->base.bytes &&
	       range->length <= mr->base.bytes - at;
}

struct mark_copy {
	void *to;
	const void *from;
	uint32_t bytes;
};

static void copy_bytes(void *context)
{
	const struct mark_copy *copy = context;

	memcpy(copy->to, copy->from, copy->bytes);
}

/* False: the program has taken the memory away, and the NIC, which has its pages, needs no mark there. */
static bool copy_mark(void *to, const void *from, uint32_t bytes)
{
	return fault_try(copy_bytes, &(struct mark_copy){.to = to, .from = from, .bytes = bytes});
}

static bool is_marked(const struct verbs_qp *qp, const struct use *use)
{
	uint64_t there = 0;

	return use->mark_bytes > 0 && is_permitted(qp, &use->range, true) &&
	       copy_mark(&there, mark_of(use), use->mark_bytes) && memcmp(&there, &use->mark, use->mark_bytes) == 0;
}

static void mark(const struct verbs_answers *answers, struct use *use, uint32_t bytes)
{
	use->mark_bytes = bytes;
	use->mark = answers->key ^ (answers->end * SPREAD);
	if (!copy_mark(&use->before, mark_of(use), use->mark_bytes) ||
		!copy_mark(mark_of(use), &use->mark, use->mark_bytes))
		use->mark_bytes = 0;
}

static void restore(const struct use *use)
{
	if (use->mark_bytes > 0)
		(void)copy_mark(mark_of(use), &use->before, use->mark_bytes);
}

/* ---- before the wr is posted ---- */

static uint32_t uses_of(const struct ibv_send_wr *wr)
{
	uint32_t uses = 0;

	if ((wr->send_flags & IBV_SEND_INLINE) != 0)
		return 0;
	for (int i = 0; i < wr->num_sge; i++)
		uses += wr->sg_list[i].length > 0;
	return uses;
}

static int make_room(struct verbs_answers *answers)
{
	uint32_t had = answers->uses == NULL ? 0 : answers->mask + 1, room = had == 0 ? USES_MIN : 2 * had;
	struct use *uses;

	if (answers->end - answers->first < had)
		return 0;
	uses = had == USES_MAX ? NULL : malloc(room * sizeof(*uses));
	if (uses == NULL)
		return -ENOMEM;
	for (uint32_t at = answers->first; at != answers->end; at++)
		uses[at & (room - 1)] = *use_at(answers, at);
	free(answers->uses);
	answers->uses = uses;
	answers->mask = room - 1;
	return 0;
}

/* What an earlier wr has yet to send must not change, and what it has yet to put there would hide that the later one
 * puts nothing there. */
static bool is_in_use(const struct verbs_answers *answers, const struct ibv_sge *range)
{
	for (uint32_t at = answers->first; at != answers->end; at++)
		if (overlap(&use_at(answers, at)->range, range))
			return true;
	return false;
}

static void hide_marks_in(struct verbs_answers *answers, const struct ibv_sge *range)
{
	for (uint32_t at = answers->first; at != answers->end; at++) {
		struct use *use = use_at(answers, at);
		struct ibv_sge place = last_bytes(&use->range, use->mark_bytes);

		if (use->mark_bytes > 0 && overlap(&place, range))
			use->hidden = true;
	}
}

static int expect_use(struct verbs_qp *qp, struct use use)
{
	struct verbs_answers *answers = qp->answers;
	uint32_t bytes = use.range.length < MARK_BYTES ? use.range.length : MARK_BYTES;
	struct ibv_sge place = last_bytes(&use.range, bytes);
	bool marks = use.is_answer && is_permitted(qp, &use.range, true) && !is_in_use(answers, &place);
	int rc = make_room(answers);

	if (rc != 0)
		return rc;
	if (use.writes)
		hide_marks_in(answers, &use.range);
	use.resent = verbs_of(qp->base.dev)->resent;
	if (marks)
		mark(answers, &use, bytes);
	*use_at(answers, answers->end++) = use;
	return 0;
}

/* The newest first: places may overlap. */
static void take_back(struct verbs_answers *answers, uint32_t from)
{
	while (answers->end != from)
		restore(use_at(answers, --answers->end));
}

static int expect_wr(struct verbs_qp *qp, const struct ibv_send_wr *wr, uint32_t end)
{
	bool writes = qp_rules_has_answer(wr->opcode);

	for (uint32_t i = 0, left = uses_of(wr); left > 0; i++) {
		const struct ibv_sge *range = &wr->sg_list[i];
		int rc;

		if (range->length == 0)
			continue;
		left--;
		rc = expect_use(qp, (struct use){.range = *range,
					    .wr_id = wr->wr_id,
					    .end = end,
					    .writes = writes,
					    .is_answer = writes && left == 0});
		if (rc != 0)
			return rc;
	}
	return 0;
}

int verbs_answers_expect(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
	struct verbs_answers *answers = qp->answers;
	uint32_t posted = qp->posted, from;

	if (answers == NULL)
		return 0;
	from = answers->end;
	for (; wr != NULL; wr = wr->next) {
		if (expect_wr(qp, wr, posted + 1) != 0) {
			take_back(answers, from);
			return -ENOMEM;
		}
		posted += qp->base.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	}
	return 0;
}

void verbs_answers_unexpect(struct verbs_qp *qp, const struct ibv_send_wr *end)
{
	uint32_t unposted = 0;

	if (qp->answers == NULL)
		return;
	for (const struct ibv_send_wr *wr = end; wr != NULL; wr = wr->next)
		unposted += uses_of(wr);
	take_back(qp->answers, qp->answers->end - unposted);
}

/* ---- when it has completed ---- */

/* Without a mark, or where it may be what came, the NIC's word that nothing was sent again is what there is. */
static bool has_arrived(const struct verbs_qp *qp, const struct use *use)
{
	struct verbs_dev *dev = verbs_of(qp->base.dev);
	bool marked = is_marked(qp, use);

	if (use->missing || (marked && use->mark_bytes == MARK_BYTES))
		return false;
	if (!marked && use->mark_bytes > 0 && !use->hidden)
		return true;
	if (use->resent == VERBS_RESENT_UNKNOWN)
		return use->mark_bytes == 0;
	if (!dev->resent_fresh)
		verbs_answers_look(dev);
	return use->resent == dev->resent;
}

void verbs_answers_restore(struct verbs_qp *qp)
{
	struct verbs_answers *answers = qp->answers;

	if (answers == NULL)
		return;
	if ((int32_t)(answers->restored - answers->first) < 0)
		answers->restored = answers->first;
	for (; (int32_t)(answers->end - answers->restored) > 0; answers->restored++) {
		struct use *use = use_at(answers, answers->restored);

		use->missing = is_marked(qp, use);
		if (use->missing)
			restore(use);
	}
}

bool verbs_answers_refused(const struct verbs_qp *qp, uint64_t wr_id)
{
	const struct verbs_answers *answers = qp->answers;

	if (answers == NULL)
		return false;
	for (uint32_t at = answers->first; at != answers->end; at++) {
		const struct use *use = use_at(answers, at);

		if (use->wr_id == wr_id && !is_permitted(qp, &use->range, use->writes))
			return true;
	}
	return false;
}

static void fail(struct verbs_qp *qp)
{
	qp->answers->failed = true;
	log_info("%s: qp %u: a wr completed with success, but its data did not arrive; the wr fails",
		qp->base.dev->attr.name, qp->base.qp_num);
	if (qp->error_ns == 0)
		(void)verbs_qp_move(qp, IBV_QPS_ERR);
}

enum ibv_wc_status verbs_answers_judge(struct verbs_qp *qp)
{
	struct verbs_answers *answers = qp->answers;

	if (answers == NULL)
		return IBV_WC_SUCCESS;
	if (answers->failed)
		return IBV_WC_WR_FLUSH_ERR;
	answers->completed++;
	for (; answers->first != answers->end; answers->first++) {
		const struct use *use = use_at(answers, answers->first);

		if ((int32_t)(answers->completed - use->end) < 0)
			return IBV_WC_SUCCESS;
		if (!use->is_answer || has_arrived(qp, use))
			continue;
		fail(qp);
		return IBV_WC_RETRY_EXC_ERR;
	}
	return IBV_WC_SUCCESS;
}
