/* fabric.h - a named set of ports and links on one host, and the operator's switch for each link.
 *
 * A fabric is a directory of mode 0700 below /dev/shm. Every port that joins it has a line on its link board; the
 * board outlives the processes, and lines of dead processes are reused. Any process of the same user may switch a
 * link; the port's device sees it at its next poll, or is woken.
 *
 * How long a switch lasts: as long as hf_fabric_links shows the link. A port that is closed takes its line along, and
 * opens again with its link up. The line of a process that died stays, as a cable stays unplugged when the machine
 * at its end crashes: the next process that opens the same node and rail finds the link as it was switched. Whoever
 * wants it up whatever happened before switches it up, or removes the fabric first.
 *
 * For the same reason nobody removes a fabric because its last process died: it stays, and what that process left in
 * it, registered memory too, is cleaned up by the next one that opens a fabric of that name. Whoever makes up a name
 * for each run removes what runs that were killed have left (hf_fabric_each, hf_fabric_remove), as the demo does.
 *
 * Names of fabrics, nodes and rails have [a-z0-9._-] only, do not begin with a dot, and end before HF_NAME_BYTES. */
#ifndef HOLDFAST_FABRIC_H
#define HOLDFAST_FABRIC_H

#include <holdfast/dev.h>

struct hf_fabric;

/* Opens a fabric, which must exist unless `create`; -ENOENT with words otherwise. NULL is closed harmlessly. */
int hf_fabric_open(const char *name, bool create, struct hf_fabric **fabric_out, struct hf_error *error);
void hf_fabric_close(struct hf_fabric *fabric);
/* Calls found(name, context) for each fabric of this user. */
int hf_fabric_each(void (*found)(const char *name, void *context), void *context);

struct hf_link_info {
	char node[HF_NAME_BYTES], rail[HF_NAME_BYTES], kind[HF_NAME_BYTES];
	char address[HF_ADDR_TEXT]; /* soft: of the NIC; shm: empty */
	int pid;                    /* of the owner */
	bool alive;                 /* the owner runs */
	bool tx_up, rx_up;
};
/* Fills at most n, returns how many links there are; -ENOENT: the fabric was removed. */
int hf_fabric_links(struct hf_fabric *fabric, struct hf_link_info *links_out, unsigned n);
/* -ENOENT, with the links there are in `error`. Takes effect at once; returns before the port's owner has seen it. */
int hf_fabric_set_link(struct hf_fabric *fabric, const char *node, const char *rail, enum hf_link direction, bool up,
	struct hf_error *error);

/* Removes a fabric with all that its ports left. -EBUSY when a live process has a port on it; -ENOENT. */
int hf_fabric_remove(const char *name);

#endif
