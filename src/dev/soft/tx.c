#include "dev/soft/tx.h"

#include <string.h>

#include "base/ensure.h"

static bool fits(const struct tx *tx, unsigned i, const struct hf_addr *peer, uint32_t bytes)
{
	const struct hf_dgram *run = &tx->runs[i];

	return !tx->closed[i] && bytes <= run->segment_bytes &&
	       run->bytes + bytes <= (tx->bytes_most == 0 ? TX_RUN_BYTES : tx->bytes_most) &&
	       tx->packets[i] < HF_DGRAM_MAX_SEGMENTS && hf_addr_equal(&run->peer, peer);
}

static void open_run(struct tx *tx, unsigned i, const struct hf_addr *peer, uint32_t bytes)
{
	tx->runs[i] = (struct hf_dgram){.peer = *peer,
		.data = tx->memory + (size_t)i * TX_RUN_BYTES,
		.segment_bytes = bytes,
		.pieces = tx->pieces[i]};
	tx->packets[i] = tx->own_bytes[i] = 0;
	tx->closed[i] = false;
}

uint8_t *tx_reserve(struct tx *tx, const struct hf_addr *peer, uint32_t bytes, uint32_t foreign)
{
	unsigned i = tx->count - 1;
	struct hf_dgram *run;
	uint8_t *at;

	if (tx->count == tx->first || !fits(tx, i, peer, bytes)) {
		if (tx->count == TX_RUNS || (tx->runs_most != 0 && tx->count - tx->first >= tx->runs_most))
			return NULL;
		i = tx->count++;
		open_run(tx, i, peer, bytes);
	}
	run = &tx->runs[i];
	at = (uint8_t *)run->data + tx->own_bytes[i];
	tx->closed[i] = bytes < run->segment_bytes;
	run->bytes += bytes;
	tx->own_bytes[i] += bytes - foreign;
	tx->packets[i]++;
	if (run->piece_count > 0)
		tx->pieces[i][run->piece_count - 1].iov_len += bytes - foreign;
	return at;
}

uint16_t tx_place(const struct tx *tx)
{
	return (uint16_t)(tx->packets[tx->count - 1] - 1);
}

void tx_refer(struct tx *tx, const void *data, uint32_t bytes, uint32_t trailer)
{
	unsigned i = tx->count - 1;
	struct hf_dgram *run = &tx->runs[i];
	struct iovec *next = &tx->pieces[i][run->piece_count];

	if (run->piece_count == 0) {
		*next++ = (struct iovec){.iov_base = run->data, .iov_len = tx->own_bytes[i]};
		run->piece_count = 1;
	}
	next[-1].iov_len -= trailer;
	next[0] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
	next[1] = (struct iovec){.iov_base = (uint8_t *)run->data + tx->own_bytes[i] - trailer, .iov_len = trailer};
	run->piece_count += 2;
}

void tx_cancel(struct tx *tx, uint32_t bytes)
{
	unsigned i = tx->count - 1;

	ensure(!tx_empty(tx) && tx->own_bytes[i] >= bytes);
	tx->runs[i].bytes -= bytes;
	tx->own_bytes[i] -= bytes;
	if (tx->runs[i].piece_count > 0)
		tx->pieces[i][tx->runs[i].piece_count - 1].iov_len -= bytes;
	tx->closed[i] = false;
	if (--tx->packets[i] == 0)
		tx->count--;
	if (tx_empty(tx))
		tx->first = tx->count = 0;
}

void tx_sent(struct tx *tx, unsigned n)
{
	ensure(n <= tx->count - tx->first);
	tx->first += n;
	if (tx_empty(tx))
		tx->first = tx->count = 0;
}

/* Own pieces only move towards the end of the run's memory, so going backwards nothing is overwritten too early. */
void tx_settle(struct tx *tx)
{
	for (unsigned i = tx->first; i < tx->count; i++) {
		struct hf_dgram *run = &tx->runs[i];
		uint8_t *end = (uint8_t *)run->data + run->bytes;

		if (run->piece_count == 0)
			continue;
		for (uint32_t n = run->piece_count; n-- > 0;) {
			end -= tx->pieces[i][n].iov_len;
			memmove(end, tx->pieces[i][n].iov_base, tx->pieces[i][n].iov_len);
		}
		run->piece_count = 0;
		tx->own_bytes[i] = run->bytes;
	}
}
