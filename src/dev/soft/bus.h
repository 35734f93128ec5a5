/* bus.h - the access of a soft NIC to host memory and the completion queues in it.
 *
 * On a host it is the CPU's own loads and stores (bus_direct). The simulator's bus behaves like PCIe and a real NIC:
 * writes are posted and become visible later and in pieces, an acknowledgement may be sent before, atomics are a
 * read...write window against CPU and other NICs, completions are separate from data and are lost with the NIC.
 * Order that every bus keeps: reads see this bus's earlier writes; a completion is visible after the writes before
 * it. */
#ifndef HOLDFAST_DEV_SOFT_BUS_H
#define HOLDFAST_DEV_SOFT_BUS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_bus {
	const struct soft_bus_ops *ops;
};

/* False of an access: the memory is not there any more, or may not be accessed so. A part may have been accessed. */
struct soft_bus_ops {
	/* Of memory that is being registered: 0, or -EFAULT or -EACCES where an access of that kind would fail now. */
	int (*check)(struct soft_bus *bus, const void *host, size_t bytes, bool writes);
	bool (*read)(struct soft_bus *bus, void *to, const void *host, size_t bytes);
	/* Host memory that may be looked at in place for a moment, as read would find it; NULL: it has to be read. */
	const void *(*view)(struct soft_bus *bus, const void *host, size_t bytes);
	bool (*write)(struct soft_bus *bus, void *host, const void *from, size_t bytes);
	/* `host` is 8-byte aligned. */
	bool (*cas)(struct soft_bus *bus, uint64_t *host, uint64_t compare, uint64_t swap, uint64_t *original_out);
	bool (*faa)(struct soft_bus *bus, uint64_t *host, uint64_t add, uint64_t *original_out);
	/* Calls deliver(cq, wc) once the writes before it are visible: at once, or later. */
	void (*complete)(struct soft_bus *bus, void (*deliver)(void *cq, const struct ibv_wc *wc), void *cq,
		const struct ibv_wc *wc);
	/* Everything written is visible when it returns: part of a fence and of deregistration. */
	void (*drain)(struct soft_bus *bus);
};

extern const struct soft_bus_ops bus_direct;

#endif
