/* Which addresses are this host's. */
#include "env/linux/linux.h"

#include <ifaddrs.h>
#include <string.h>

/* "::ffff:a.b.c.d" is what a socket for both families calls a.b.c.d. */
static struct hf_addr without_mapping(const struct hf_addr *addr)
{
	struct hf_addr plain = {0};

	if (addr->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr))
		return *addr;
	plain.in.sin_family = AF_INET;
	memcpy(&plain.in.sin_addr, &addr->in6.sin6_addr.s6_addr[12], sizeof(plain.in.sin_addr));
	return plain;
}

static bool is_loopback(const struct hf_addr *addr)
{
	if (addr->sa.sa_family == AF_INET)
		return ntohl(addr->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&addr->in6.sin6_addr);
}

static bool is_of(const struct ifaddrs *interface, const struct hf_addr *addr)
{
	struct hf_addr theirs = {0};

	if (interface->ifa_addr == NULL || interface->ifa_addr->sa_family != addr->sa.sa_family)
		return false;
	if (addr->sa.sa_family != AF_INET && addr->sa.sa_family != AF_INET6)
		return false;
	memcpy(&theirs, interface->ifa_addr, addr_bytes(addr));
	hf_addr_set_port(&theirs, hf_addr_port(addr));
	/* Hosts of two links may have the same link-local address. */
	if (addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr) &&
		theirs.in6.sin6_scope_id != addr->in6.sin6_scope_id)
		return false;
	return hf_addr_equal(&theirs, addr);
}

bool linux_addr_is_local(struct hf_env *env, const struct hf_addr *addr)
{
	struct hf_addr plain = without_mapping(addr);
	struct ifaddrs *interfaces;
	bool found = false;

	(void)env;
	if (is_loopback(&plain))
		return true;
	if (getifaddrs(&interfaces) != 0)
		return false;
	for (const struct ifaddrs *at = interfaces; at != NULL && !found; at = at->ifa_next)
		found = is_of(at, &plain);
	freeifaddrs(interfaces);
	return found;
}
