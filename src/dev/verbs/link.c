/* The switch of a port: its network interface goes down, as `ip link set` does it. On the board of a fabric other
 * processes may ask for that. A single direction has no switch. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "dev/verbs/verbs.h"

static int switch_netdev(struct verbs_dev *dev, bool up)
{
	int rc = dev->netdev[0] == '\0' ? -ENODEV : netdev_set_up(dev->netdev, up);

	if (rc == 0)
		dev->cut = !up;
	return rc;
}

/* What the board says is done; what cannot be done is said once. */
void verbs_link_look(struct verbs_dev *dev)
{
	uint32_t link, before = dev->link_seen;
	int rc;

	if (dev->fabric == NULL)
		return;
	link = atomic_load_explicit(&fabric_port_line(dev->fabric)->link, memory_order_acquire) & HF_LINK_BOTH;
	if (link == before)
		return;
	fabric_port_bell_clear(dev->fabric);
	dev->link_seen = link;
	if ((link == HF_LINK_BOTH) == (before == HF_LINK_BOTH) && link != 0)
		return;
	rc = link == 0 || link == HF_LINK_BOTH ? switch_netdev(dev, link != 0) : -EOPNOTSUPP;
	if (rc == -EOPNOTSUPP)
		log_warn("%s: a NIC's link cannot be cut in one direction; switch both", dev->base.attr.name);
	else if (rc != 0)
		log_warn("%s: cannot switch %s: %s", dev->base.attr.name,
			dev->netdev[0] == '\0' ? "a port without network interface" : dev->netdev, strerror(-rc));
}

int verbs_set_link(struct hf_dev *base, enum hf_link direction, bool up)
{
	struct verbs_dev *dev = verbs_of(base);
	int rc;

	if (direction != HF_LINK_BOTH)
		return ((unsigned)direction & ~(unsigned)HF_LINK_BOTH) != 0 || direction == 0 ? -EINVAL : -EOPNOTSUPP;
	rc = switch_netdev(dev, up);
	if (rc != 0 || dev->fabric == NULL)
		return rc;
	dev->link_seen = up ? HF_LINK_BOTH : 0;
	atomic_store(&fabric_port_line(dev->fabric)->link, dev->link_seen);
	return 0;
}

int verbs_link_open(struct verbs_dev *dev, const struct hf_dev_config *config, struct hf_error *error)
{
	struct hf_addr addr = verbs_port_address(&dev->port.gid);
	char text[HF_ADDR_TEXT];
	int rc;

	(void)netdev_of_gid(dev->port.name, dev->port.number, dev->port.gid_index, dev->netdev); /* empty: no switch */
	dev->link_seen = HF_LINK_BOTH;
	if (config->fabric == NULL)
		return 0;
	rc = fabric_join(dev->base.env, config, hf_addr_format(&addr, text), &dev->fabric, error);
	if (rc == 0)
		verbs_link_look(dev); /* the board may remember that it is switched down */
	return rc;
}

/* The next user finds the port as it was before. */
void verbs_link_close(struct verbs_dev *dev)
{
	if (dev->cut)
		(void)switch_netdev(dev, true);
	if (dev->fabric != NULL)
		fabric_leave(dev->fabric);
}
