/* The switch of a soft NIC's port: its own. */
#include "dev/soft/nic.h"

#define DROP_ROUNDS 4096u /* more than a socket holds */

int link_open(struct soft_nic *nic, const struct hf_dev_config *config, struct hf_error *error)
{
	(void)config, (void)error;
	atomic_init(&nic->link, HF_LINK_BOTH);
	nic->link_seen = HF_LINK_BOTH;
	return 0;
}

void link_close(struct soft_nic *nic)
{
	(void)nic;
}

bool link_is_up(const struct soft_nic *nic, enum hf_link direction)
{
	uint32_t link = atomic_load_explicit(&nic->link, memory_order_acquire);

	return (link & (uint32_t)direction) == (uint32_t)direction;
}

void link_set(struct soft_nic *nic, enum hf_link direction, bool up)
{
	if (up)
		atomic_fetch_or(&nic->link, (uint32_t)direction);
	else
		atomic_fetch_and(&nic->link, ~(uint32_t)direction);
}

/* What came while the port did not listen is lost, although it lies in the socket. */
static void drop_arrivals(struct soft_nic *nic)
{
	for (unsigned round = 0; round < DROP_ROUNDS; round++) {
		int n;

		for (unsigned i = 0; i < RECV_RUNS; i++)
			nic->received[i].bytes = HF_DGRAM_MAX_BYTES;
		n = hf_dgram_recv(nic->socket, nic->received, RECV_RUNS);
		if (n > 0)
			nic->engine.counters.dropped_link_down += (unsigned)n;
		if (n < (int)RECV_RUNS)
			break;
	}
}

/* The port is down when both directions are cut; one alone is a silent fault. Its state is told by events. */
void link_look(struct soft_nic *nic)
{
	bool was_down = nic->link_seen == 0, is_down;
	bool was_deaf = (nic->link_seen & HF_LINK_RX) == 0;

	nic->link_seen =
		(link_is_up(nic, HF_LINK_TX) ? HF_LINK_TX : 0u) | (link_is_up(nic, HF_LINK_RX) ? HF_LINK_RX : 0u);
	is_down = nic->link_seen == 0;
	if (was_deaf && (nic->link_seen & HF_LINK_RX) != 0)
		drop_arrivals(nic);
	if (was_down != is_down)
		engine_event(&nic->engine, is_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL, NULL);
}
