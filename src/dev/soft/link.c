/* The switch of a soft NIC's port: on the board of its fabric, where any process of the user can reach it, or its
 * own. */
#include "dev/soft/nic.h"

#define DROP_ROUNDS 4096u /* more than a socket holds */

int link_open(struct soft_nic *nic, struct hf_env *env, const struct hf_dev_config *config, struct hf_error *error)
{
	int rc = 0;

	atomic_init(&nic->own_link, HF_LINK_BOTH);
	nic->link = &nic->own_link;
	nic->rate = &nic->own_rate;
	if (config->fabric != NULL)
		rc = fabric_join(env, config, nic->address_text, &nic->port, error);
	if (nic->port != NULL) {
		nic->link = &fabric_port_line(nic->port)->link;
		nic->rate = &fabric_port_line(nic->port)->mb_per_s;
		nic->switches_seen = observe(&fabric_port_line(nic->port)->switches);
	}
	nic->link_seen = atomic_load(nic->link) & HF_LINK_BOTH; /* the board may remember that it is switched down */
	return rc;
}

void link_close(struct soft_nic *nic)
{
	if (nic->port != NULL)
		fabric_leave(nic->port);
}

bool link_is_up(const struct soft_nic *nic, enum hf_link direction)
{
	uint32_t link = atomic_load_explicit(nic->link, memory_order_acquire);

	return (link & (uint32_t)direction) == (uint32_t)direction;
}

void link_set(struct soft_nic *nic, enum hf_link direction, bool up)
{
	uint32_t before, after;

	if (up)
		before = atomic_fetch_or(nic->link, (uint32_t)direction);
	else
		before = atomic_fetch_and(nic->link, ~(uint32_t)direction);
	after = up ? before | (uint32_t)direction : before & ~(uint32_t)direction;
	if (nic->port != NULL &&
		((before & HF_LINK_BOTH) == 0) != ((after & HF_LINK_BOTH) == 0)) /* else it is silent */
		atomic_fetch_add(&fabric_port_line(nic->port)->switches, 1);
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

/* Down and up again, or the other way, between two looks. */
static bool flapped(struct soft_nic *nic)
{
	uint32_t switches, before = nic->switches_seen;

	if (nic->port == NULL)
		return false;
	switches = observe(&fabric_port_line(nic->port)->switches);
	nic->switches_seen = switches;
	return switches - before > 1;
}

/* The port is down when both directions are cut; one alone is a silent fault. Its state is told by events. */
void link_look(struct soft_nic *nic)
{
	bool was_down = nic->link_seen == 0, is_down, was_deaf = (nic->link_seen & HF_LINK_RX) == 0;
	bool twice = flapped(nic);

	nic->link_seen = atomic_load_explicit(nic->link, memory_order_acquire) & HF_LINK_BOTH;
	is_down = nic->link_seen == 0;
	if (was_deaf && (nic->link_seen & HF_LINK_RX) != 0)
		drop_arrivals(nic);
	if (was_down != is_down) {
		engine_event(&nic->engine, is_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL, NULL);
	} else if (twice && !is_down) {
		engine_event(&nic->engine, IBV_EVENT_PORT_ERR, NULL, NULL);
		engine_event(&nic->engine, IBV_EVENT_PORT_ACTIVE, NULL, NULL);
	}
}
