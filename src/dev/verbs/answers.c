#include "dev/verbs/answers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dev/verbs/verbs.h"

#define MARK_BYTES 8u
#define SPREAD     0x9e3779b97f4a7c15ull

struct answer {
	struct ibv_sge place; /* of the mark; of no bytes: of none that may be written, and the NIC will say so */
	uint32_t end;         /* signaled wrs that have completed, when it should be there */
	bool missing;         /* it was not when its qp failed */
	uint64_t mark, before;
	uint64_t resent; /* verbs_port_resent() before it was posted, if the mark is short */
};

struct verbs_answers {
	struct answer *ring;
	uint32_t mask, first, end; /* of the ring; ever */
	uint32_t unsignaled;       /* behind the last wr that was signaled */
	uint32_t completed;        /* signaled wrs, with success; as far as qp->posted counts them */
	uint64_t key;
	uint32_t restored; /* as far as first and end, the places of a qp that has failed */
	bool failed;
};

int verbs_answers_init(struct verbs_qp *qp)
{
	const struct verbs_dev *dev = verbs_of(qp->base.dev);

	if (!dev->port.model->believes_acks)
		return 0;
	qp->answers = calloc(1, sizeof(*qp->answers));
	if (qp->answers == NULL)
		return -ENOMEM;
	hf_env_entropy(dev->base.env, &qp->answers->key, sizeof(qp->answers->key));
	return 0;
}

void verbs_answers_free(struct verbs_qp *qp)
{
	if (qp->answers == NULL)
		return;
	free(qp->answers->ring);
	free(qp->answers);
	qp->answers = NULL;
}

void verbs_answers_forget(struct verbs_qp *qp)
{
	struct verbs_answers *answers = qp->answers;

	if (answers == NULL)
		return;
	answers->first = answers->restored = answers->end;
	answers->unsignaled = answers->completed = 0;
	answers->failed = false;
}

/* ---- before the wr is posted ---- */

static bool has_answer(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool may_write(const struct verbs_qp *qp, const struct ibv_sge *sge)
{
	const struct verbs_mr *mr = table_get(&verbs_of(qp->base.dev)->by_lkey, sge->lkey);
	uint64_t at = mr == NULL ? 0 : sge->addr - (uintptr_t)mr->base.addr;

	return mr != NULL && mr->base.pd == qp->base.pd && (mr->base.access & IBV_ACCESS_LOCAL_WRITE) != 0 &&
	       at <= mr->base.bytes && sge->length <= mr->base.bytes - at;
}

static void find_place(const struct verbs_qp *qp, const struct ibv_send_wr *wr, struct answer *answer)
{
	int last = wr->num_sge - 1;
	struct ibv_sge *place = &answer->place;

	while (last >= 0 && wr->sg_list[last].length == 0)
		last--;
	if (last < 0 || !may_write(qp, &wr->sg_list[last]))
		return;
	*place = wr->sg_list[last];
	if (place->length <= MARK_BYTES)
		return;
	place->addr += place->length - MARK_BYTES;
	place->length = MARK_BYTES;
}

/* Whose wr has completed may have deregistered the memory, and given it back. */
static bool is_marked(const struct verbs_qp *qp, const struct answer *answer)
{
	const struct ibv_sge *place = &answer->place;

	return place->length > 0 && may_write(qp, place) &&
	       memcmp((void *)(uintptr_t)place->addr, &answer->mark, place->length) == 0;
}

static void mark(struct answer *answer)
{
	void *at = (void *)(uintptr_t)answer->place.addr;

	if (answer->place.length == 0)
		return;
	memcpy(&answer->before, at, answer->place.length);
	memcpy(at, &answer->mark, answer->place.length);
}

static void restore(const struct answer *answer)
{
	if (answer->place.length == 0)
		return;
	memcpy((void *)(uintptr_t)answer->place.addr, &answer->before, answer->place.length);
}

static int make_room(struct verbs_answers *answers)
{
	uint32_t had = answers->ring == NULL ? 0 : answers->mask + 1, room = had == 0 ? 16 : 2 * had;
	struct answer *ring;

	if (answers->end - answers->first < had)
		return 0;
	ring = malloc(room * sizeof(*ring));
	if (ring == NULL)
		return -ENOMEM;
	for (uint32_t at = answers->first; at != answers->end; at++)
		ring[at & (room - 1)] = answers->ring[at & answers->mask];
	free(answers->ring);
	answers->ring = ring;
	answers->mask = room - 1;
	return 0;
}

static int expect_one(struct verbs_qp *qp, const struct ibv_send_wr *wr, uint32_t completed_then)
{
	struct verbs_answers *answers = qp->answers;
	const struct verbs_dev *dev = verbs_of(qp->base.dev);
	struct answer answer = {.end = completed_then, .mark = answers->key ^ (answers->end * SPREAD)};
	int rc = answers->unsignaled > qp->base.cap.max_send_wr ? -ENOMEM : make_room(answers);

	if (rc != 0)
		return rc;
	find_place(qp, wr, &answer);
	if (answer.place.length < MARK_BYTES)
		answer.resent = verbs_port_resent(&dev->port, dev->base.env);
	mark(&answer);
	answers->ring[answers->end++ & answers->mask] = answer;
	return 0;
}

/* The newest first: places may overlap. */
static void take_back(struct verbs_answers *answers, uint32_t from)
{
	while (answers->end != from)
		restore(&answers->ring[--answers->end & answers->mask]);
}

int verbs_answers_expect(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
	struct verbs_answers *answers = qp->answers;
	uint32_t posted = qp->posted, from = answers == NULL ? 0 : answers->end;

	for (; answers != NULL && wr != NULL; wr = wr->next) {
		bool signaled = qp->base.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;

		posted += signaled;
		answers->unsignaled = signaled ? 0 : answers->unsignaled + has_answer(wr);
		if (has_answer(wr) && expect_one(qp, wr, signaled ? posted : posted + 1) != 0) {
			take_back(answers, from);
			return -ENOMEM;
		}
	}
	return 0;
}

void verbs_answers_unexpect(struct verbs_qp *qp, const struct ibv_send_wr *end)
{
	uint32_t unposted = 0;

	if (qp->answers == NULL)
		return;
	for (const struct ibv_send_wr *wr = end; wr != NULL; wr = wr->next)
		unposted += has_answer(wr);
	take_back(qp->answers, qp->answers->end - unposted);
}

/* ---- when it has completed ---- */

static bool has_arrived(const struct verbs_qp *qp, const struct answer *answer)
{
	const struct verbs_dev *dev = verbs_of(qp->base.dev);

	if (answer->missing || !is_marked(qp, answer))
		return !answer->missing;
	return answer->place.length < MARK_BYTES && answer->resent != VERBS_RESENT_UNKNOWN &&
	       answer->resent == verbs_port_resent(&dev->port, dev->base.env);
}

void verbs_answers_restore(struct verbs_qp *qp)
{
	struct verbs_answers *answers = qp->answers;

	if (answers == NULL)
		return;
	if ((int32_t)(answers->restored - answers->first) < 0)
		answers->restored = answers->first;
	for (; (int32_t)(answers->end - answers->restored) > 0; answers->restored++) {
		struct answer *answer = &answers->ring[answers->restored & answers->mask];

		answer->missing = is_marked(qp, answer);
		if (answer->missing)
			restore(answer);
	}
}

static void fail(struct verbs_qp *qp)
{
	qp->answers->failed = true;
	log_info("%s: qp %u: a wr completed with success and without its answer: it has failed",
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
		const struct answer *answer = &answers->ring[answers->first & answers->mask];

		if ((int32_t)(answers->completed - answer->end) < 0)
			return IBV_WC_SUCCESS;
		if (has_arrived(qp, answer))
			continue;
		fail(qp);
		return IBV_WC_RETRY_EXC_ERR;
	}
	return IBV_WC_SUCCESS;
}
