/* Protection domains and regions. */
#include "preload/objects.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "preload/drive.h"
#include "preload/real.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define ACCESS_KNOWN                                                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_IGNORED ((unsigned)IBV_ACCESS_HUGETLB) /* a hint about pages */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct pd *pd;
	int rc;

	if (!context_is_ours(context))
		return REAL(ibv_alloc_pd)(context);
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	pd->pd.context = context;
	drive_lock();
	rc = hf_vpd_alloc(node_of(context), &pd->vpd);
	drive_unlock();
	if (rc == 0)
		return &pd->pd;
	free(pd);
	errno = -rc;
	return NULL;
}

int ibv_dealloc_pd(struct ibv_pd *base)
{
	struct pd *pd = container_of(base, struct pd, pd);
	int rc;

	if (!context_is_ours(base->context))
		return REAL(ibv_dealloc_pd)(base);
	drive_lock();
	rc = hf_vpd_free(pd->vpd);
	drive_unlock();
	if (rc == 0)
		free(pd);
	return result(-rc);
}

/* ---- regions ---- */

static struct ibv_mr *refuse(int error)
{
	errno = error;
	return NULL;
}

static struct ibv_mr *reg(struct ibv_pd *base, void *addr, size_t bytes, uint64_t iova, unsigned access)
{
	struct pd *pd = container_of(base, struct pd, pd);
	struct hf_error error = {0};
	struct region *region;
	int rc;

	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE & ~ACCESS_IGNORED;
	if ((access & ~(unsigned)ACCESS_KNOWN) != 0 || iova != (uintptr_t)addr)
		return refuse(EOPNOTSUPP);
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return refuse(ENOMEM);
	drive_lock();
	rc = hf_vmr_reg(pd->vpd, addr, bytes, (int)access, &region->vmr, &error);
	drive_again();
	drive_unlock();
	if (rc != 0) {
		if (error.text[0] != '\0')
			log_warn("ibv_reg_mr: %s", error.text);
		free(region);
		return refuse(-rc);
	}
	region->mr = (struct ibv_mr){.context = base->context,
		.pd = base,
		.addr = addr,
		.length = bytes,
		.lkey = region->vmr->lkey,
		.rkey = region->vmr->rkey};
	return &region->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
	if (!context_is_ours(pd->context))
		return REAL(ibv_reg_mr)(pd, addr, bytes, access);
	return reg(pd, addr, bytes, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova, int access)
{
	if (!context_is_ours(pd->context))
		return REAL(ibv_reg_mr_iova)(pd, addr, bytes, iova, access);
	return reg(pd, addr, bytes, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova, unsigned int access)
{
	if (!context_is_ours(pd->context))
		return REAL(ibv_reg_mr_iova2)(pd, addr, bytes, iova, access);
	return reg(pd, addr, bytes, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access)
{
	if (!context_is_ours(pd->context))
		return REAL(ibv_reg_dmabuf_mr)(pd, offset, bytes, iova, fd, access);
	return refuse(EOPNOTSUPP);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
	if (!context_is_ours(mr->context))
		return REAL(ibv_rereg_mr)(mr, flags, pd, addr, bytes, access);
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct region *region = container_of(mr, struct region, mr);
	int rc;

	if (!context_is_ours(mr->context))
		return REAL(ibv_dereg_mr)(mr);
	drive_lock();
	rc = hf_vmr_dereg(region->vmr);
	drive_again();
	drive_unlock();
	if (rc == 0)
		free(region);
	return result(-rc);
}
