#include "transfer/transport.h"

#include "base/ensure.h"

const char *transport_kind_name(enum transport_kind kind)
{
	static const char *const names[TRANSPORT_KINDS] = {
		[TRANSPORT_SHM] = "SHM", [TRANSPORT_RDMA] = "RDMA", [TRANSPORT_TCP] = "TCP"};

	ensure(kind < TRANSPORT_KINDS);
	return names[kind];
}
