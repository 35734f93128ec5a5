/* fabric.h - a named set of ports and links on one host, and the operator's switch for each link.
 *
 * A fabric is a directory of mode 0700 below /dev/shm. Every port that joins it has a line on its link board; the
 * board outlives the processes, and lines of dead processes are reused. Any process of the same user may switch a
 * link; the port's device sees it at its next poll, or is woken.
 *
 * A switched link stays switched while hf_fabric_links lists it. Closing a port removes its line, and the port opens
 * again with its link up. The line of a process that died stays: the next process that opens the same node and rail
 * finds the link as it was switched. To start with the link up, switch it up or remove the fabric first.
 *
 * A fabric stays when its last process died. The next process that opens a fabric of that name cleans up what dead
 * processes left in it, registered memory included. A program that makes up a name for each run removes the fabrics
 * of killed runs itself (hf_fabric_each, hf_fabric_remove), as the demo does.
 *
 * Names of fabrics, nodes and rails have [a-z0-9._-] only, do not begin with a dot, and end before HF_NAME_BYTES. */
#ifndef HOLDFAST_FABRIC_H
#define HOLDFAST_FABRIC_H

#include <holdfast/dev.h>

struct hf_fabric;

/* Opens a fabric. -ENOENT: it does not exist, and `create` is false. Closing NULL is legal. */
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
	uint32_t mb_per_s; /* the limit of sending; 0: none */
};
/* Fills at most n, returns the number of links; -ENOENT: the fabric was removed. */
int hf_fabric_links(struct hf_fabric *fabric, struct hf_link_info *links_out, unsigned n);
/* Takes effect at once, and may return before the owner of the port has seen it. -ENOENT: no such link; `error`
 * lists the links of the fabric. */
int hf_fabric_set_link(struct hf_fabric *fabric, const char *node, const char *rail, enum hf_link direction, bool up,
	struct hf_error *error);

/* hf_dev_set_rate. -EOPNOTSUPP: the kind of the port has no limit; -ENOENT. */
int hf_fabric_set_rate(
	struct hf_fabric *fabric, const char *node, const char *rail, uint32_t mb_per_s, struct hf_error *error);

/* Removes a fabric and the remaining files of its ports. -EBUSY: a live process has a port on it; -ENOENT. */
int hf_fabric_remove(const char *name);

#endif
