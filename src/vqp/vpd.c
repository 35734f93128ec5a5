/* Protection domains over all rails. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "vqp/atomic/owner.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/path/pool.h"

int hf_vpd_alloc(struct hf_node *node, struct hf_vpd **pd_out)
{
	struct hf_vpd *pd;
	int rc;

	*pd_out = NULL;
	if (node->rail_count == 0)
		return -ENODEV;
	pd = calloc(1, sizeof(*pd));
	rc = pd == NULL ? -ENOMEM : 0;
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		rc = hf_pd_alloc(node->rails[i].dev, &pd->pds[i]);
	if (rc != 0) {
		for (unsigned i = 0; pd != NULL && i < node->rail_count; i++)
			(void)hf_pd_free(pd->pds[i]);
		free(pd);
		return rc;
	}
	pd->node = node;
	pd->num = ++vqps_of(node)->next_pd;
	list_init(&pd->regions);
	list_init(&pd->audiences);
	list_init(&pd->log_slabs);
	home_init(pd);
	list_push_back(&vqps_of(node)->vpds, &pd->node_link);
	*pd_out = pd;
	return 0;
}

int hf_vpd_free(struct hf_vpd *pd)
{
	if (pd == NULL)
		return 0;
	if (pd->users > 0)
		return -EBUSY;
	if (pd->uids != NULL && pd->regions.next == pd->regions.prev)
		uid_arena_close(pd); /* its region is the last */
	if (!list_empty(&pd->regions))
		return -EBUSY;
	owner_close(pd);
	pool_free_pd(pd);
	(void)path_dig(pd->node, UINT_MAX);
	log_slabs_free(pd);
	for (unsigned i = 0; i < pd->node->rail_count; i++)
		(void)hf_pd_free(pd->pds[i]);
	list_remove(&pd->node_link);
	free(pd);
	return 0;
}
