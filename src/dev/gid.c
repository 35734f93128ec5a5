#include "dev/gid.h"

#include <string.h>

#include "base/bytes.h"

#define MAPPED_BYTES 12u /* before an IPv4 address */
#define IPV4_AT      20u /* of the header in place of a GRH */
#define IPV4_BYTES   20u
#define VERSION_IHL  0x45u
#define VERSION_IPV6 0x60u
#define TTL          64u
#define UDP          17u

static const uint8_t mapped[MAPPED_BYTES] = {[10] = 0xff, [11] = 0xff};

union ibv_gid gid_of_addr(const struct hf_addr *addr)
{
	union ibv_gid gid = {0};

	if (addr->sa.sa_family == AF_INET6) {
		memcpy(gid.raw, &addr->in6.sin6_addr, sizeof(gid.raw));
	} else {
		memcpy(gid.raw, mapped, MAPPED_BYTES);
		memcpy(gid.raw + MAPPED_BYTES, &addr->in.sin_addr, 4);
	}
	return gid;
}

bool gid_is_ipv4(const union ibv_gid *gid)
{
	return memcmp(gid->raw, mapped, MAPPED_BYTES) == 0;
}

void gid_put_host(const union ibv_gid *gid, struct hf_addr *addr)
{
	if (gid_is_ipv4(gid)) {
		addr->in.sin_family = AF_INET;
		memcpy(&addr->in.sin_addr, gid->raw + MAPPED_BYTES, 4);
	} else {
		addr->in6.sin6_family = AF_INET6;
		memcpy(&addr->in6.sin6_addr, gid->raw, sizeof(gid->raw));
	}
}

void gid_fill_grh(uint8_t grh[GRH_BYTES], const union ibv_gid *from, const union ibv_gid *to, size_t bytes)
{
	uint8_t *ip = grh + IPV4_AT;

	memset(grh, 0, GRH_BYTES);
	if (gid_is_ipv4(from)) {
		ip[0] = VERSION_IHL;
		put_be16(ip + 2, (uint16_t)(bytes + IPV4_BYTES));
		ip[8] = TTL;
		ip[9] = UDP;
		memcpy(ip + 12, from->raw + MAPPED_BYTES, 4);
		memcpy(ip + 16, to->raw + MAPPED_BYTES, 4);
		return;
	}
	grh[0] = VERSION_IPV6;
	put_be16(grh + 4, (uint16_t)bytes);
	grh[6] = UDP;
	grh[7] = TTL;
	memcpy(grh + 8, from->raw, sizeof(from->raw));
	memcpy(grh + 24, to->raw, sizeof(to->raw));
}
