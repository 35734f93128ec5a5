/* endpoint.h - what each program of the scenarios over vqps has of the library: a node on a loop of its own, a cq, and
 * registered memory.
 *
 * A scenario makes the host and the process. The program opens the rest when its process starts, sets its poller to
 * work, and closes everything when the process ends, also after a start that failed half-way. */
#ifndef HOLDFAST_SIM_ENDPOINT_H
#define HOLDFAST_SIM_ENDPOINT_H

#include <holdfast/vqp.h>

#include "sim/host.h"

#define ENDPOINT_SECRET "all nodes of a simulated cluster know this" /* they are on different hosts */

struct endpoint {
	struct host host;
	struct process *process;
	struct hf_loop *loop; /* NULL: not open */
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	struct hf_poller poller;
	struct hf_timer timer; /* its firing does nothing but wake the loop */
	void *memory;
};

/* Rail `number` of the node: a soft NIC, with control at this port of the same address; 0: any. */
void endpoint_set_rail(
	struct hf_node_config *config, unsigned number, const struct hf_addr *address, uint16_t control_port);
/* 0, or -errno, which the world was told. context: of the events. */
int endpoint_open(struct endpoint *endpoint, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, uint32_t cqe);
/* Memory of zeros, and mr for it. 0, or -errno, which the world was told. */
int endpoint_register(struct endpoint *endpoint, size_t bytes, int access, enum hf_atomic_mode mode);
void endpoint_run(struct endpoint *endpoint, enum hf_poll (*poll)(struct hf_poller *poller, uint64_t now_ns),
	bool (*arm)(struct hf_poller *poller));
/* For arm: the next completion wakes the loop. */
void endpoint_arm(struct endpoint *endpoint);
/* Where no fault happened, no vqp of the node has left its path; NULL: of a program that is not running. */
void endpoint_check_calm(struct world *world, const struct hf_node *node);
/* The program's vqps are destroyed. */
void endpoint_close(struct endpoint *endpoint);

#endif
