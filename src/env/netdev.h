/* netdev.h - network interfaces of this host: the interface of a NIC's port, and its switch. */
#ifndef HOLDFAST_ENV_NETDEV_H
#define HOLDFAST_ENV_NETDEV_H

#include <stdbool.h>
#include <stdint.h>

#define NETDEV_NAME_BYTES 16

/* As `ip link set NAME up` or `down`. -EPERM: needs CAP_NET_ADMIN; -ENODEV: no such interface. */
int netdev_set_up(const char *name, bool up);

/* Bytes of a packet of IP that it carries; 0: no such interface. */
uint32_t netdev_mtu(const char *name);

/* The interface of entry `gid_index` in the GID table of an RDMA port; -ENOENT: it has none. */
int netdev_of_gid(const char *rdma_device, unsigned port, unsigned gid_index, char name_out[NETDEV_NAME_BYTES]);

#endif
