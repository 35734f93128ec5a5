#include "dev/soft/tx.h"

#include "base/ensure.h"

static bool fits(const struct tx *tx, unsigned i, const struct hf_addr *peer, uint32_t bytes)
{
	const struct hf_dgram *run = &tx->runs[i];

	return !tx->closed[i] && bytes <= run->segment_bytes && run->bytes + bytes <= TX_RUN_BYTES &&
	       tx->packets[i] < HF_DGRAM_MAX_SEGMENTS && hf_addr_equal(&run->peer, peer);
}

uint8_t *tx_reserve(struct tx *tx, const struct hf_addr *peer, uint32_t bytes)
{
	unsigned i = tx->count - 1;
	uint8_t *at;

	if (tx->count == tx->first || !fits(tx, i, peer, bytes)) {
		if (tx->count == TX_RUNS)
			return NULL;
		i = tx->count++;
		tx->runs[i] = (struct hf_dgram){
			.peer = *peer, .data = tx->memory + (size_t)i * TX_RUN_BYTES, .segment_bytes = bytes};
		tx->packets[i] = 0;
		tx->closed[i] = false;
	}
	at = (uint8_t *)tx->runs[i].data + tx->runs[i].bytes;
	tx->closed[i] = bytes < tx->runs[i].segment_bytes;
	tx->runs[i].bytes += bytes;
	tx->packets[i]++;
	return at;
}

uint16_t tx_place(const struct tx *tx)
{
	return (uint16_t)(tx->packets[tx->count - 1] - 1);
}

void tx_cancel(struct tx *tx, uint32_t bytes)
{
	unsigned i = tx->count - 1;

	ensure(!tx_empty(tx) && tx->runs[i].bytes >= bytes);
	tx->runs[i].bytes -= bytes;
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
