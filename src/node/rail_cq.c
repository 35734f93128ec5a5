#include "node/rail_cq.h"

#include <errno.h>

#include "base/ensure.h"

#define BATCH         32
#define FIRST_ENTRIES 1024u

static uint32_t next_size(const struct rail_cqs *cqs, uint32_t entries, bool spare)
{
	uint32_t size = FIRST_ENTRIES;

	for (unsigned i = 0; i < cqs->count; i++)
		if (cqs->cqs[i].spare == spare)
			size *= 2;
	while (size < entries)
		size *= 2;
	return size <= cqs->dev->attr.max_cqe ? size : cqs->dev->attr.max_cqe;
}

int rail_cq_reserve(struct rail_cqs *cqs, uint32_t entries, bool spare, struct rail_cq **cq_out)
{
	struct rail_cq *cq = NULL;

	for (unsigned i = 0; i < cqs->count && cq == NULL; i++)
		if (cqs->cqs[i].spare == spare && cqs->cqs[i].cq->cqe - cqs->cqs[i].reserved >= entries)
			cq = &cqs->cqs[i];
	if (cq == NULL) {
		uint32_t size = next_size(cqs, entries, spare);
		int rc = cqs->count == RAIL_CQS_MAX || size < entries ? -ENOMEM : 0;

		if (rc == 0)
			rc = hf_cq_create(cqs->dev, size, cqs, &cqs->cqs[cqs->count].cq);
		if (rc != 0)
			return rc;
		cq = &cqs->cqs[cqs->count++];
		cq->spare = spare;
	}
	cq->reserved += entries;
	*cq_out = cq;
	return 0;
}

void rail_cq_release(struct rail_cq *cq, uint32_t entries, bool gone)
{
	ensure(cq->reserved >= entries);
	if (gone)
		cq->leaving += entries;
	else
		cq->reserved -= entries;
}

static int read_batch(struct rail_cqs *cqs, struct rail_cq *cq)
{
	struct ibv_wc wc[BATCH];
	struct list told;
	uint32_t leaving = cq->leaving;
	struct wc_sink *sink = NULL;
	int n = hf_cq_poll(cq->cq, BATCH, wc);

	if (n < BATCH) {
		cq->reads++;
		cq->reserved -= leaving;
		cq->leaving -= leaving;
	}
	list_init(&told);
	for (int i = 0; i < n; i++) {
		if (i == 0 || wc[i].qp_num != wc[i - 1].qp_num)
			sink = table_get(&cqs->sinks, wc[i].qp_num);
		if (sink == NULL)
			continue; /* of a qp that is destroyed */
		if (list_empty(&sink->link))
			list_push_back(&told, &sink->link);
		sink->completed(sink, &wc[i]);
	}
	for (struct list *at = list_pop_front(&told); at != NULL; at = list_pop_front(&told))
		container_of(at, struct wc_sink, link)->settled(container_of(at, struct wc_sink, link));
	return n;
}

/* Sinks are told in the order of completion: no cq is read on while one of them is being told. */
enum hf_poll rail_cqs_read(struct rail_cqs *cqs)
{
	enum hf_poll poll = HF_IDLE;

	if (cqs->reading)
		return HF_IDLE;
	cqs->reading = true;
	for (unsigned i = 0; i < cqs->count; i++)
		if ((cqs->cqs[i].active > 0 || cqs->cqs[i].leaving > 0) && read_batch(cqs, &cqs->cqs[i]) > 0)
			poll = HF_BUSY;
	cqs->reading = false;
	return poll;
}

void rail_cqs_drain(struct rail_cqs *cqs)
{
	ensure(!cqs->reading);
	cqs->reading = true;
	for (unsigned i = 0; i < cqs->count; i++) {
		uint32_t left = cqs->cqs[i].cq->cqe;
		int n;

		do {
			n = read_batch(cqs, &cqs->cqs[i]);
			left -= n > 0 && (uint32_t)n < left ? (uint32_t)n : left;
		} while (n == BATCH && left > 0);
	}
	cqs->reading = false;
}

bool rail_cqs_arm(struct rail_cqs *cqs)
{
	for (unsigned i = 0; i < cqs->count; i++) {
		(void)hf_cq_notified(cqs->cqs[i].cq);
		if (hf_cq_req_notify(cqs->cqs[i].cq, false) != 0)
			return false;
	}
	return rail_cqs_read(cqs) == HF_IDLE;
}

void rail_cqs_close(struct rail_cqs *cqs)
{
	for (unsigned i = 0; i < cqs->count; i++)
		(void)hf_cq_destroy(cqs->cqs[i].cq);
	table_free(&cqs->sinks);
	*cqs = (struct rail_cqs){0};
}
