/* listeners.h - layers that receive the events of a node, its peers and its rails (hf_node_listen). The program that
 * opened the node is the first of them. */
#ifndef HOLDFAST_NODE_LISTENERS_H
#define HOLDFAST_NODE_LISTENERS_H

#include <holdfast/node.h>

void listeners_peer_up(struct hf_peer *peer);
void listeners_peer_down(struct hf_peer *peer);
void listeners_peer_died(struct hf_peer *peer);
void listeners_peer_rail(struct hf_peer *peer, unsigned rail, enum hf_rail_cause cause);
void listeners_rail_changed(struct hf_node *node, unsigned rail, bool up);
void listeners_device_died(struct hf_node *node, unsigned rail);
uint64_t listeners_lease_ns(const struct hf_node *node);       /* the shortest that a layer wants; 0: none does */
uint64_t listeners_least_lease_ns(const struct hf_node *node); /* that a layer may want */

#endif
