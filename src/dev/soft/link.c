/* The switch of a soft NIC's port: its own. */
#include "dev/soft/nic.h"

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

/* The port is down when both directions are cut; one alone is a silent fault. Its state is told by events. */
void link_look(struct soft_nic *nic)
{
	bool was_down = nic->link_seen == 0, is_down;

	nic->link_seen =
		(link_is_up(nic, HF_LINK_TX) ? HF_LINK_TX : 0u) | (link_is_up(nic, HF_LINK_RX) ? HF_LINK_RX : 0u);
	is_down = nic->link_seen == 0;
	if (was_down != is_down)
		engine_event(&nic->engine, is_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL, NULL);
}
