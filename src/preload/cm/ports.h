/* ports.h - which process of this host has an address and a port of librdmacm.
 *
 * They are no ports of TCP: Valkey takes the same number for both. Each is a file among those of the fabric, which its
 * process has locked; what a process leaves that ends without a word is taken by the next one. A listener without an
 * address of its own has all of the host; another process may have a single address of it. */
#ifndef HOLDFAST_PRELOAD_CM_PORTS_H
#define HOLDFAST_PRELOAD_CM_PORTS_H

#include <holdfast/env.h>

struct cm_port;

/* Port 0: one of its choice, filled in. `control` is where the process is found. -EADDRINUSE. */
int cm_port_take(const char *fabric, uint16_t port_space, struct hf_addr *local, const struct hf_addr *control,
	struct cm_port **port_out);
void cm_port_listen(struct cm_port *port);  /* from now on others find it */
void cm_port_release(struct cm_port *port); /* NULL is legal */

/* Where the process is found that listens there. -ENOENT: none does. */
int cm_port_find(const char *fabric, uint16_t port_space, const struct hf_addr *at, struct hf_addr *control_out);

/* Whether a listener at `local`, an address for all, gets what is sent to `at`; ports are not compared. */
bool cm_port_covers(const struct hf_addr *local, const struct hf_addr *at);

#endif
