#include "vqp/data/request_log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "dev/qp_rules.h"

#define CACHE_LINE 64u

int request_log_init(struct request_log *log, uint32_t capacity, uint32_t max_sge, uint32_t max_inline)
{
	uint32_t slots = 1;
	size_t sges_bytes;

	while (slots < capacity)
		slots *= 2;
	*log = (struct request_log){
		.capacity = capacity, .mask = slots - 1, .max_sge = max_sge, .max_inline = max_inline};
	sges_bytes = (size_t)slots * (max_sge > 0 ? max_sge : 1) * sizeof(*log->sges);
	log->slots = malloc(slots * sizeof(*log->slots) + sges_bytes + (size_t)slots * max_inline);
	if (log->slots == NULL)
		return -ENOMEM;
	log->sges = (struct ibv_sge *)(void *)(log->slots + slots);
	log->inlines = (uint8_t *)log->sges + sges_bytes;
	return 0;
}

void request_log_free(struct request_log *log)
{
	free(log->slots);
	*log = (struct request_log){0};
}

size_t request_log_bytes(const struct request_log *log)
{
	size_t slots = log->mask + 1;

	return slots *
	       (sizeof(*log->slots) + (log->max_sge > 0 ? log->max_sge : 1) * sizeof(*log->sges) + log->max_inline);
}

static void copy_inline(struct request_log *log, struct request_log_wr *entry, struct ibv_sge *sges, uint8_t *at)
{
	uint32_t used = 0;

	for (int i = 0; i < entry->wr.num_sge; i++) {
		memcpy(at + used, (void *)(uintptr_t)entry->wr.sg_list[i].addr, entry->wr.sg_list[i].length);
		used += entry->wr.sg_list[i].length;
	}
	sges[0] = (struct ibv_sge){.addr = (uintptr_t)at, .length = used};
	entry->wr.num_sge = log->max_sge == 0 ? 0 : 1;
}

static struct ibv_sge *sges_at(const struct request_log *log, uint64_t position)
{
	return log->sges + (position & log->mask) * (log->max_sge > 0 ? log->max_sge : 1);
}

static void own(struct request_log *log, struct request_log_wr *entry)
{
	struct ibv_sge *sges = sges_at(log, log->tail);
	const struct ibv_send_wr *wr = &entry->wr;

	if (wr->send_flags & IBV_SEND_INLINE)
		copy_inline(log, entry, sges, log->inlines + (log->tail & log->mask) * (size_t)log->max_inline);
	else if (wr->num_sge > 0 && wr->sg_list != sges)
		memcpy(sges, wr->sg_list, (size_t)wr->num_sge * sizeof(*sges));
	entry->wr.sg_list = sges;
	entry->wr.next = NULL;
}

/* All but the wr, which comes before it. */
static inline void clear(struct request_log_wr *entry)
{
	_Static_assert(offsetof(struct request_log_wr, message) == sizeof(entry->wr), "nothing is left out");
	memset(&entry->message, 0, sizeof(*entry) - offsetof(struct request_log_wr, message));
}

struct request_log_wr *request_log_copy(struct request_log *log, const struct ibv_send_wr *wr)
{
	struct request_log_wr *entry = request_log_at(log, log->tail);

	entry->wr = *wr;
	clear(entry);
	own(log, entry);
	return entry;
}

struct ibv_send_wr *request_log_lend(struct request_log *log)
{
	uint64_t position = log->tail + log->lent;
	struct request_log_wr *entry = request_log_at(log, position);

	if (position - log->head >= log->capacity)
		return NULL;
	entry->wr = (struct ibv_send_wr){.sg_list = sges_at(log, position)};
	clear(entry);
	log->lent++;
	return &entry->wr;
}

struct request_log_wr *request_log_adopt(struct request_log *log)
{
	struct request_log_wr *entry = request_log_at(log, log->tail);

	ensure(log->lent > 0);
	log->lent--;
	own(log, entry);
	return entry;
}

void request_log_empty(struct request_log *log)
{
	log->head = log->next = log->tail;
	log->lent = 0;
}

/* ---- what a wr reads into ---- */

static void copy_word(const struct request_log_wr *entry, uint64_t offset, uint8_t *word, bool put)
{
	uint64_t done = 0;

	for (int i = 0; i < entry->wr.num_sge && done < sizeof(uint64_t); i++) {
		const struct ibv_sge *sge = &entry->wr.sg_list[i];
		uint64_t skip = offset < sge->length ? offset : sge->length;
		uint64_t left = sge->length - skip, n = left < sizeof(uint64_t) - done ? left : sizeof(uint64_t) - done;
		uint8_t *at = (uint8_t *)(uintptr_t)sge->addr + skip;

		memcpy(put ? at : word + done, put ? word + done : at, n);
		offset -= skip;
		done += n;
	}
}

uint64_t request_log_word(const struct request_log_wr *entry, uint64_t offset)
{
	uint64_t word = 0;

	copy_word(entry, offset, (uint8_t *)&word, false);
	return word;
}

void request_log_put_word(const struct request_log_wr *entry, uint64_t offset, uint64_t value)
{
	copy_word(entry, offset, (uint8_t *)&value, true);
}

/* By the promise of HF_ATOMIC_PLAIN no other write has that value. */
static uint64_t found_first(const struct request_log_wr *entry, uint64_t original)
{
	return entry->compares && original == entry->wr.wr.atomic.swap ? entry->wr.wr.atomic.compare_add : original;
}

void request_log_answer(const struct request_log_wr *entry, uint64_t original)
{
	request_log_put_word(entry, 0, found_first(entry, original));
}

/* ---- how wrs end ---- */

uint32_t request_log_retire(struct request_log *log, uint64_t position)
{
	uint32_t n = 0;

	for (uint64_t at = log->head; at <= position && at < log->next; at++) {
		struct request_log_wr *entry = request_log_at(log, at);

		if (entry->done)
			continue;
		entry->done = true;
		entry->status = IBV_WC_SUCCESS;
		if (entry->compares)
			request_log_answer(entry, request_log_word(entry, 0));
		if (log->answered.entry != 0) { /* it was posted before this one (D1) */
			log->last = log->answered;
			log->answered.entry = 0;
		}
		if (entry->log_entry != 0 && !entry->footed && qp_rules_is_atomic(entry->wr.opcode))
			log->answered = (struct log_place){entry->log_entry, entry->log_number};
		else if (entry->log_entry != 0)
			log->last = (struct log_place){entry->log_entry, entry->log_number};
		n++;
	}
	return n;
}

void request_log_fetch(const struct request_log *log)
{
	for (uint64_t at = log->head; at < log->next; at++) {
		const uint8_t *entry = (const uint8_t *)request_log_at(log, at);

		for (size_t line = 0; line < sizeof(struct request_log_wr); line += CACHE_LINE)
			__builtin_prefetch(entry + line, 1);
	}
	for (uint64_t at = log->head; at < log->next; at++) {
		const struct ibv_send_wr *wr = &request_log_at(log, at)->wr;

		if (wr->num_sge > 0)
			__builtin_prefetch((const void *)(uintptr_t)wr->sg_list[0].addr, 1);
	}
}

enum ibv_wc_status request_log_refused(const struct request_log *log)
{
	for (uint64_t at = log->head; at < log->tail; at++)
		if (!request_log_at(log, at)->done)
			return request_log_at(log, at)->refused;
	return IBV_WC_SUCCESS;
}

void request_log_take_back(struct request_log *log, uint64_t position)
{
	for (uint64_t at = position; at < log->next; at++)
		request_log_at(log, at)->qp_num = 0;
}

enum hf_wc_outcome request_log_outcome(const struct request_log_wr *entry)
{
	return entry->qp_num == 0 && entry->landed == 0 && !entry->doubted ? HF_WC_NOT_EXECUTED : HF_WC_UNKNOWN;
}

static enum hf_wc_outcome outcome(const struct request_log_wr *entry, bool oldest, bool refused)
{
	/* The receive that a WRITE_WITH_IMM did not find is looked for after its data were written. */
	bool written = oldest && (entry->psns > 1 || entry->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);

	if (refused && !written && entry->landed == 0 && !entry->doubted)
		return HF_WC_NOT_EXECUTED;
	return request_log_outcome(entry);
}

void request_log_fail(struct request_log *log, const struct request_log_end *end)
{
	bool oldest = true;

	for (uint64_t at = log->head; at < log->tail; at++) {
		struct request_log_wr *entry = request_log_at(log, at);

		if (entry->done)
			continue;
		entry->done = true;
		entry->status = oldest ? end->first : end->rest;
		entry->outcome = outcome(entry, oldest, end->refused);
		oldest = false;
	}
	log->next = log->tail;
}
