/* Verbs that our devices do not have: multicast, imported
 * and device memory, connection establishment extensions. Each says so by errno, and serves real devices as ever. */
#include "preload/objects.h"

#include <errno.h>

#include "preload/real.h"

static void *refuse(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/* ---- multicast ---- */

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return context_is_ours(qp->context) ? result(EOPNOTSUPP) : REAL(ibv_attach_mcast)(qp, gid, lid);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return context_is_ours(qp->context) ? result(EOPNOTSUPP) : REAL(ibv_detach_mcast)(qp, gid, lid);
}

int ibv_resolve_eth_l2_from_gid(
	struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	if (!context_is_ours(context))
		return REAL(ibv_resolve_eth_l2_from_gid)(context, attr, mac, vid);
	errno = EOPNOTSUPP;
	return -1;
}

/* ---- imported objects and device memory ---- */

struct ibv_context *ibv_import_device(int fd)
{
	__typeof__(&ibv_import_device) real = (__typeof__(&ibv_import_device))real_find("ibv_import_device");

	return real == NULL ? refuse() : real(fd); /* a descriptor of the kernel's driver: never one of ours */
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	return context_is_ours(context) ? refuse() : REAL(ibv_import_pd)(context, handle);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!context_is_ours(pd->context))
		REAL(ibv_unimport_pd)(pd);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return context_is_ours(pd->context) ? refuse() : REAL(ibv_import_mr)(pd, handle);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!context_is_ours(mr->context))
		REAL(ibv_unimport_mr)(mr);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	return context_is_ours(context) ? refuse() : REAL(ibv_import_dm)(context, handle);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (!context_is_ours(dm->context))
		REAL(ibv_unimport_dm)(dm);
}

/* ---- extensions ---- */

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return context_is_ours(qp->context) ? result(EOPNOTSUPP) : REAL(ibv_set_ece)(qp, ece);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return context_is_ours(qp->context) ? result(EOPNOTSUPP) : REAL(ibv_query_ece)(qp, ece);
}

/* A rail may be any device, and a failover may write a part of the data again: no promise. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
	return context_is_ours(qp->context) ? 0 : REAL(ibv_query_qp_data_in_order)(qp, opcode, flags);
}
