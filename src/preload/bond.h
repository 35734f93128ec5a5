/* bond.h - the rails of a program's device, and the addresses by which its peers find it.
 *
 * With a configuration file (HOLDFAST_VERBS_CONFIG) the bond is the node of that file. Without one it is generated at
 * each opening, so that programs of one host find one another by the addresses that they exchange anyway:
 *
 *   slot     16 bits, taken by binding its addresses; the port's lid
 *   control  127.160.HI.LO, port BOND_CONTROL_PORT: a network that is no rail; as ::ffff:127.160.HI.LO the port's gid
 *   rail i   127.(161 + i).HI.LO, its NIC (soft) and control streams
 *
 * So a gid or a lid determines a peer's control address: a gid is the IPv4 (or IPv6) address itself, a lid replaces the
 * low 16 bits of our own; the port is our own. */
#ifndef HOLDFAST_PRELOAD_BOND_H
#define HOLDFAST_PRELOAD_BOND_H

#include "preload/objects.h"

/* The settings of the environment. -EINVAL, ... with a text. */
int bond_configure(struct bond *bond, struct hf_error *error);
/* Opens bond->node. */
int bond_open(struct bond *bond, struct hf_loop *loop, struct hf_error *error);
void bond_close(struct bond *bond);

union ibv_gid bond_gid(const struct bond *bond);
uint16_t bond_lid(const struct bond *bond);
/* Where the peer of that address handle listens; -EINVAL: no address can be made of it; -EISCONN: it is our own. */
int bond_address_of(const struct bond *bond, const struct ibv_ah_attr *ah, struct hf_addr *address_out);
/* The peer that listens there, connected or being connected. NULL: it cannot be connected to, and why was logged. */
struct hf_peer *bond_peer(const struct bond *bond, const struct hf_addr *address);

#endif
