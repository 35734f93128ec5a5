/* Protection domains and memory regions. Keys are the NIC's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/verbs/verbs.h"

int verbs_pd_alloc(struct hf_dev *base, struct hf_pd **pd_out)
{
	struct verbs_dev *dev = verbs_of(base);
	struct verbs_pd *pd = calloc(1, sizeof(*pd));

	if (pd == NULL)
		return -ENOMEM;
	pd->base.dev = base;
	pd->pd = dev->lib->alloc_pd(dev->context);
	if (pd->pd == NULL) {
		free(pd);
		return -ENOMEM;
	}
	*pd_out = &pd->base;
	return 0;
}

int verbs_pd_free(struct hf_pd *base)
{
	struct verbs_pd *pd = (struct verbs_pd *)base;
	struct verbs_dev *dev = verbs_of(base->dev);
	int rc;

	verbs_bury_all(dev);
	rc = dev->lib->dealloc_pd(pd->pd);
	if (rc != 0)
		return rc == EINVAL ? -EBUSY : -rc; /* rdma-core says EINVAL or EBUSY while objects of it exist */
	free(pd);
	return 0;
}

static int explain(int rc, uint64_t bytes, struct hf_error *error)
{
	if (rc == -EFAULT)
		return hf_error_set(error, rc, "not all of the memory is mapped, or it cannot be written");
	if (rc == -ENOMEM)
		return hf_error_set(error, rc,
			"the NIC cannot pin %llu bytes: raise the limit of locked memory (ulimit -l), or register less",
			(unsigned long long)bytes);
	return hf_error_set(error, rc, "the NIC refuses the memory: %s", strerror(-rc));
}

/* Both keys of verbs count from the iova; here local wrs use addresses, so that they are the same on every rail. Where
 * the two differ there are two registrations. */
static int reg_both(struct verbs_pd *pd, struct verbs_mr *mr, int access)
{
	const struct verbs_lib *lib = verbs_of(pd->base.dev)->lib;
	const struct hf_mr *base = &mr->base;
	uint64_t addr = (uintptr_t)base->addr;
	int rc;

	mr->mr = lib->reg_mr_iova2(pd->pd, base->addr, base->bytes, addr, (unsigned)access);
	if (mr->mr == NULL)
		return errno == 0 ? -ENOMEM : -errno;
	if (base->iova == addr)
		return 0;
	mr->remote = lib->reg_mr_iova2(pd->pd, base->addr, base->bytes, base->iova, (unsigned)access);
	if (mr->remote != NULL)
		return 0;
	rc = errno == 0 ? -ENOMEM : -errno;
	lib->dereg_mr(mr->mr);
	return rc;
}

static int dereg_both(struct verbs_mr *mr)
{
	const struct verbs_lib *lib = verbs_of(mr->base.dev)->lib;
	int rc = mr->remote == NULL ? 0 : lib->dereg_mr(mr->remote);

	if (rc != 0)
		return -rc;
	mr->remote = NULL;
	return -lib->dereg_mr(mr->mr);
}

int verbs_mr_reg(struct hf_pd *base, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int rc;

	if (mr == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	mr->base = (struct hf_mr){
		.dev = base->dev, .pd = base, .addr = addr, .bytes = bytes, .iova = iova, .access = access};
	rc = reg_both((struct verbs_pd *)base, mr, access);
	if (rc != 0) {
		free(mr);
		return explain(rc, bytes, error);
	}
	rc = table_put(&verbs_of(base->dev)->by_lkey, mr->mr->lkey, mr);
	if (rc != 0) {
		dereg_both(mr);
		free(mr);
		return hf_error_set(error, rc, "out of memory");
	}
	mr->base.lkey = mr->mr->lkey;
	mr->base.rkey = mr->remote != NULL ? mr->remote->rkey : mr->mr->rkey;
	*mr_out = &mr->base;
	return 0;
}

int verbs_mr_dereg(struct hf_mr *base)
{
	struct verbs_mr *mr = (struct verbs_mr *)base;
	int rc = dereg_both(mr);

	if (rc != 0)
		return rc;
	table_remove(&verbs_of(base->dev)->by_lkey, base->lkey);
	free(mr);
	return 0;
}
