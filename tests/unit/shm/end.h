/* end.h - one end of a connection between two shm devices of this process. */
#ifndef HOLDFAST_TEST_SHM_END_H
#define HOLDFAST_TEST_SHM_END_H

#include <holdfast/dev.h>

#define ALL_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_qp *qp;
};

void end_open(struct end *end, struct hf_env *env, const char *fabric, const char *node, bool remap_private);
void end_connect(struct end *end, const struct end *peer); /* INIT to RTS */
void end_close(struct end *end);

#endif
