/* direct_end.h - a client's end of a one-sided connection: a vqp, its queue, and the memory of its messages. */
#ifndef HOLDFAST_BROKER_CLIENT_DIRECT_END_H
#define HOLDFAST_BROKER_CLIENT_DIRECT_END_H

#include <holdfast/vqp.h>

struct direct_end { /* zeroed: closed */
	struct hf_env *env;
	struct hf_vqp *vqp;
	struct hf_vcq *cq;
	uint8_t *memory;
	struct hf_vmr *mr;
};

/* Makes `bytes` of memory, a completion queue of `cqe` entries, and a vqp from `init`, which uses that queue. After a
 * negative errno, direct_end_close frees the objects that were made. */
int direct_end_open(struct direct_end *end, struct hf_node *node, struct hf_vpd *pd, uint32_t bytes, uint32_t cqe,
	struct hf_vqp_init *init);
void direct_end_close(struct direct_end *end);
/* Posts a receive into the memory at that offset; false: the vqp refused it. */
bool direct_end_post_receive(struct direct_end *end, uint64_t wr_id, size_t offset, uint32_t bytes);

#endif
