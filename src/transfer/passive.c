/* The vqps that lanes of peers end in: made when a peer asks, destroyed when they have ended. */
#include "transfer/engine.h"

#include <stdlib.h>

struct passive {
	struct list link;
	struct hf_vqp *vqp;
};

struct hf_vqp *passive_accept(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct hf_transfer *engine = context;
	struct hf_vqp_init init = {.send_cq = engine->passive_cq,
		.recv_cq = engine->passive_cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.hand_back = true,
		.rail = (unsigned)request->lane};
	struct passive *passive;

	(void)reply;
	*reply_bytes = 0;
	if (request->lane < 0)
		return NULL;
	passive = calloc(1, sizeof(*passive));
	if (passive == NULL || hf_vqp_create(engine->pd, &init, &passive->vqp) != 0) {
		free(passive);
		return NULL;
	}
	list_push_back(&engine->passives, &passive->link);
	return passive->vqp;
}

static void passive_free(struct passive *passive)
{
	list_remove(&passive->link);
	hf_vqp_destroy(passive->vqp);
	free(passive);
}

bool passive_turn(struct hf_transfer *engine)
{
	bool any = false;

	list_for_each_safe (at, &engine->passives) {
		struct passive *passive = container_of(at, struct passive, link);

		if (hf_vqp_state(passive->vqp) != HF_VQP_ERROR)
			continue;
		passive_free(passive);
		any = true;
	}
	return any;
}

void passive_close(struct hf_transfer *engine)
{
	while (!list_empty(&engine->passives))
		passive_free(container_of(engine->passives.next, struct passive, link));
}
