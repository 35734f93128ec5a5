#include "transfer/transport.h"

#include "base/ensure.h"

const char *hf_transport_name(enum hf_transport kind)
{
	static const char *const names[HF_TRANSPORTS] = {
		[HF_TRANSPORT_SHM] = "SHM", [HF_TRANSPORT_RDMA] = "RDMA", [HF_TRANSPORT_TCP] = "TCP"};

	ensure(kind < HF_TRANSPORTS);
	return names[kind];
}
