/* Protection domains and memory regions. Keys are 32 random bits: a peer reaches what it was told of, nothing else. */
#include <errno.h>
#include <stdlib.h>

#include "dev/soft/objects.h"

#define WRITE_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

int objects_pd_alloc(struct hf_dev *dev, struct hf_pd **pd_out)
{
	struct soft_pd *pd = calloc(1, sizeof(*pd));

	if (pd == NULL)
		return -ENOMEM;
	pd->base.dev = dev;
	*pd_out = &pd->base;
	return 0;
}

int objects_pd_free(struct hf_pd *base)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_pd *pd = (struct soft_pd *)base;
	bool used;

	pthread_mutex_lock(&nic->lock);
	used = pd->users > 0;
	pthread_mutex_unlock(&nic->lock);
	if (used)
		return -EBUSY;
	free(pd);
	return 0;
}

void objects_pd_use(struct hf_pd *base, int users)
{
	struct soft_nic *nic = nic_of(base->dev);

	pthread_mutex_lock(&nic->lock);
	((struct soft_pd *)base)->users += (unsigned)users;
	pthread_mutex_unlock(&nic->lock);
}

int objects_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error)
{
	struct soft_nic *nic = nic_of(pd->dev);
	struct soft_bus *bus = nic->engine.bus;
	struct soft_mr *mr, **bucket;
	uint32_t key;
	int rc = bus->ops->check(bus, addr, bytes, (access & WRITE_ACCESS) != 0);

	if (rc == -EACCES)
		return hf_error_set(
			error, rc, "soft: the memory is mapped read-only: register it without write access");
	if (rc != 0)
		return hf_error_set(error, rc, "soft: not all of the memory is mapped and readable");
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return hf_error_set(error, -ENOMEM, "no memory left for one more region");
	pthread_mutex_lock(&nic->lock);
	do
		hf_env_entropy(pd->dev->env, &key, sizeof(key));
	while (key == 0 || engine_find_mr(&nic->engine, key) != NULL);
	mr->base = (struct hf_mr){.dev = pd->dev,
		.pd = pd,
		.addr = addr,
		.bytes = bytes,
		.iova = iova,
		.lkey = key,
		.rkey = key,
		.access = access};
	bucket = &nic->engine.mrs[key % MR_BUCKETS];
	mr->next = *bucket;
	*bucket = mr;
	((struct soft_pd *)pd)->users++;
	pthread_mutex_unlock(&nic->lock);
	*mr_out = &mr->base;
	return 0;
}

int objects_mr_dereg(struct hf_mr *base)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_mr **at;

	pthread_mutex_lock(&nic->lock);
	for (at = &nic->engine.mrs[base->rkey % MR_BUCKETS]; *at != (struct soft_mr *)base;)
		at = &(*at)->next;
	*at = (*at)->next;
	nic->engine.bus->ops->drain(nic->engine.bus);
	((struct soft_pd *)base->pd)->users--;
	pthread_mutex_unlock(&nic->lock);
	free(base);
	return 0;
}
