#include "dev/soft/nic.h"

#include "env/pause.h"

#define RECV_ROUNDS 1u    /* of one drive: a stream's sender waits for acknowledgements */
#define HOLD_BYTES  4096u /* after more than this no answer is likely to come along soon */
#define SEND_ROUNDS 4u

#define BYTES_PER_MB_MS    1000u /* of 1 MB/s in a millisecond */
#define RATE_RUN_BYTES_MIN 8192u
#define RATE_BURST_NS      200000u
#define RECV_GAP_NS        20000u /* an application that posts and never polls looks for what arrived every so often */

/* The clock of leases is read for each packet: this thread may have been stopped before it for longer than they last
 * (D9). */
static void receive_run(struct soft_nic *nic, const struct hf_dgram *run, uint64_t now_ns)
{
	uint8_t *data = run->data;
	uint32_t segment = run->segment_bytes == 0 ? run->bytes : run->segment_bytes;

	for (uint32_t at = 0; at < run->bytes; at += segment) {
		uint32_t left = run->bytes - at;

		nic->engine.boot_ns = hf_env_boot_ns(nic->base.env);
		if ((nic->link_seen & HF_LINK_RX) == 0)
			nic->engine.counters.dropped_link_down++;
		else
			engine_receive(&nic->engine, &run->peer, (uint16_t)(at / segment), data + at,
				left < segment ? left : segment, now_ns);
	}
}

static bool receive(struct soft_nic *nic, uint64_t now_ns)
{
	bool any = false;

	for (unsigned round = 0; round < RECV_ROUNDS; round++) {
		int n;

		for (unsigned i = 0; i < RECV_RUNS; i++)
			nic->received[i].bytes = HF_DGRAM_MAX_BYTES;
		n = hf_dgram_recv(nic->socket, nic->received, RECV_RUNS);
		for (int i = 0; i < n; i++)
			receive_run(nic, &nic->received[i], now_ns);
		any = any || n > 0;
		if (n < (int)RECV_RUNS)
			break;
	}
	return any;
}

/* How many of the runs may leave now. With a rate one run of a millisecond or so waits at a time, so that its packets
 * are not retransmitted before they have left. */
static unsigned runs_due(const struct soft_nic *nic, uint64_t now_ns)
{
	const struct tx *tx = &nic->engine.tx;

	if (tx->runs_most == 0 || (nic->link_seen & HF_LINK_TX) == 0)
		return tx->count - tx->first;
	return now_ns < nic->free_ns ? 0 : 1;
}

static void apply_rate(struct soft_nic *nic)
{
	uint32_t rate = atomic_load_explicit(nic->rate, memory_order_relaxed);
	uint64_t bytes = (uint64_t)rate * BYTES_PER_MB_MS;

	nic->engine.tx.runs_most = rate == 0 ? 0 : 1;
	nic->engine.tx.bytes_most = bytes < RATE_RUN_BYTES_MIN ? RATE_RUN_BYTES_MIN
				    : bytes < TX_RUN_BYTES     ? (uint32_t)bytes
							       : TX_RUN_BYTES;
	if (rate == 0)
		nic->engine.tx.bytes_most = 0;
}

/* When the wire is free again. What was not used before is lost, but for a moment's worth. */
static void note_sent(struct soft_nic *nic, uint32_t bytes, uint64_t now_ns)
{
	uint32_t rate = atomic_load_explicit(nic->rate, memory_order_relaxed);

	if (rate == 0)
		return;
	if (nic->free_ns + RATE_BURST_NS < now_ns)
		nic->free_ns = now_ns - RATE_BURST_NS;
	nic->free_ns += bytes * 1000ull / rate;
}

/* False: the socket, or the rate of the link, takes no more for now. */
static bool send_runs(struct soft_nic *nic, uint64_t now_ns)
{
	struct tx *tx = &nic->engine.tx;
	struct hf_dev_counters *counters = &nic->engine.counters;
	unsigned n = tx->count - tx->first, due = runs_due(nic, now_ns), sent = due;

	if (due > 0 && (nic->link_seen & HF_LINK_TX) != 0) {
		int rc = hf_dgram_send(nic->socket, tx->runs + tx->first, due);

		sent = rc > 0 ? (unsigned)rc : 0;
	}
	for (unsigned i = tx->first; i < tx->first + sent; i++) {
		if ((nic->link_seen & HF_LINK_TX) == 0) {
			counters->dropped_link_down += tx->packets[i];
			continue;
		}
		counters->packets_sent += tx->packets[i];
		counters->bytes_sent += tx->runs[i].bytes;
		note_sent(nic, tx->runs[i].bytes, now_ns);
	}
	tx_sent(tx, sent);
	tx_settle(tx);
	return sent == n;
}

static bool transmit(struct soft_nic *nic, bool hold_acks, uint64_t now_ns)
{
	bool any = false;

	apply_rate(nic);
	for (unsigned round = 0; round < SEND_ROUNDS; round++) {
		bool more = engine_transmit(&nic->engine, hold_acks, now_ns), went;

		if (tx_empty(&nic->engine.tx))
			break;
		went = send_runs(nic, now_ns);
		any = any || went || nic->engine.tx.runs_most == 0;
		if (!went || !more)
			break;
	}
	return any;
}

enum hf_poll nic_drive(struct soft_nic *nic, enum nic_reason reason, uint64_t now_ns)
{
	struct engine *engine = &nic->engine;
	uint64_t received = engine->counters.bytes_received;
	bool busy, hold_acks;

	link_look(nic);
	busy = engine_answer_doorbells(engine);
	if (reason != NIC_POSTED || now_ns - nic->received_ns > RECV_GAP_NS) {
		nic->received_ns = now_ns;
		busy = receive(nic, now_ns) || busy;
	}
	engine_tick(engine, now_ns);
	hold_acks = reason == NIC_POLLED && !nic->acks_held && engine->counters.bytes_received - received < HOLD_BYTES;
	busy = transmit(nic, hold_acks, now_ns) || busy;
	nic->acks_held = hold_acks && !list_empty(&engine->busy_responders);
	return busy || nic->acks_held ? HF_BUSY : HF_IDLE;
}

enum hf_poll nic_borrow(struct soft_nic *nic, enum nic_reason reason)
{
	uint64_t now_ns = hf_env_now_ns(nic->base.env);
	enum hf_poll result;
	bool waits;

	atomic_store_explicit(&nic->last_poll_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&nic->app_sleeps, false, memory_order_relaxed);
	if (pthread_mutex_trylock(&nic->lock) != 0) {
		env_relax(nic->base.env); /* its holder may wait for this core */
		return HF_IDLE;
	}
	result = nic_drive(nic, reason, now_ns);
	waits = nic->acks_held || !tx_empty(&nic->engine.tx) || nic->engine.deadline_ns != ENGINE_NO_TIMER;
	pthread_mutex_unlock(&nic->lock);
	/* Should no poll follow, the thread must see to what is left. When it sleeps it has to be told. */
	if (waits && atomic_load_explicit(&nic->thread_due_ns, memory_order_relaxed) > now_ns + NIC_TAKEOVER_MAX_NS)
		nic_thread_ring(nic);
	return result;
}
