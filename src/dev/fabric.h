/* fabric.h - a device's side of a fabric: its line on the link board, its doorbell.
 *
 * The port's owner alone creates and removes the line; every process of the user may switch the link
 * (holdfast/fabric.h). */
#ifndef HOLDFAST_DEV_FABRIC_H
#define HOLDFAST_DEV_FABRIC_H

#include <holdfast/fabric.h>

#include <stdatomic.h>

#include "env/share.h"

/* A line of the board, in shared memory (layout: board.h). */
struct fabric_line {
	_Atomic uint32_t state;    /* 0 free, 1 used; changed under the board's lock */
	_Atomic uint32_t link;     /* enum hf_link bits that are UP */
	_Atomic uint32_t switches; /* counts changes of `link`: a flap between two polls is not missed */
	int32_t pid;
	char node[HF_NAME_BYTES], rail[HF_NAME_BYTES], kind[HF_NAME_BYTES];
	char address[HF_ADDR_TEXT];
	_Atomic uint32_t takings;  /* counts owners: distinguishes a port from the earlier owner of its line */
	_Atomic uint32_t mb_per_s; /* of what leaves; 0: no bound */
	uint32_t reserved[2];
};

struct fabric_port; /* ours on the board */

/* Takes a line, up in both directions; but the line that a dead process left under the same name is taken as it was
 * switched. -EADDRINUSE: node/rail is taken by a live process; -EINVAL: bad names; -ENOSPC: /dev/shm or the board is
 * full. The names in config are copied. */
int fabric_join(struct hf_env *env, const struct hf_dev_config *config, const char *address,
	struct fabric_port **port_out, struct hf_error *error);
void fabric_leave(struct fabric_port *port);
struct fabric_line *fabric_port_line(struct fabric_port *port);
struct share_dir *fabric_port_dir(struct fabric_port *port);
/* Rung when the link was switched, and by peers of a shm port; readable then. */
struct hf_io *fabric_port_bell(struct fabric_port *port);
void fabric_port_bell_clear(struct fabric_port *port);

/* The line of any port of the fabric, ours included. A requester checks its link before each operation. NULL when there
 * is none. Valid until fabric_leave, but reused for another port once its owner has left. */
struct fabric_line *fabric_port_find(struct fabric_port *port, const char *node, const char *rail);
/* The bell of any port, ours included, for share_bell_ring; the caller closes it. -ENOENT: no such port. */
int fabric_port_open_bell(struct fabric_port *port, const char *node, const char *rail, int *fd_out);

#endif
