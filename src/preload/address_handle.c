/* Address handles: each names the process that it leads to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/bond.h"
#include "preload/datagram.h"
#include "preload/drive.h"
#include "preload/real.h"

#define GRH_IPV4_AT 20u

static struct ibv_ah *refuse(int error)
{
	errno = error;
	return NULL;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct datagram_ah *ah;
	int rc;

	if (!context_is_ours(pd->context))
		return REAL(ibv_create_ah)(pd, attr);
	if (attr->port_num != 1)
		return refuse(EINVAL);
	if (attr->is_global && attr->grh.dgid.raw[0] == 0xff) /* multicast */
		return refuse(EOPNOTSUPP);
	ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		return refuse(ENOMEM);
	ah->ah = (struct ibv_ah){.context = pd->context, .pd = pd};
	rc = bond_address_of(context_of(pd->context)->bond, attr, &ah->address);
	ah->own = rc == -EISCONN;
	if (rc == 0 || ah->own)
		return &ah->ah;
	free(ah);
	return refuse(-rc);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!context_is_ours(ah->context))
		return REAL(ibv_destroy_ah)(ah);
	free(container_of(ah, struct datagram_ah, ah));
	return 0;
}

/* To the sender of a datagram, whose header is in front of it. */
int ibv_init_ah_from_wc(
	struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const uint8_t *header = (const uint8_t *)grh;

	if (!context_is_ours(context))
		return REAL(ibv_init_ah_from_wc)(context, port, wc, grh, attr);
	if ((wc->wc_flags & IBV_WC_GRH) == 0) {
		errno = EINVAL;
		return -1;
	}
	*attr = (struct ibv_ah_attr){.is_global = 1, .port_num = port, .grh = {.hop_limit = 0xff}};
	if (header[0] >> 4 == 6) {
		attr->grh.dgid = grh->sgid;
	} else {
		memset(&attr->grh.dgid.raw[10], 0xff, 2);
		memcpy(&attr->grh.dgid.raw[12], header + GRH_IPV4_AT + 12, 4);
	}
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (!context_is_ours(pd->context))
		return REAL(ibv_create_ah_from_wc)(pd, wc, grh, port);
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? ibv_create_ah(pd, &attr) : NULL;
}
