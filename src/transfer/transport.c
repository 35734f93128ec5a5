#include "transfer/transport.h"

#include "base/ensure.h"

const char *hf_transport_name(enum hf_transport kind)
{
	static const char *const names[HF_TRANSPORTS + 1] = {[HF_TRANSPORT_MEMCPY] = "MEMCPY",
		[HF_TRANSPORT_SHM] = "SHM",
		[HF_TRANSPORT_RDMA] = "RDMA",
		[HF_TRANSPORT_TCP] = "TCP",
		[HF_TRANSPORTS] = "UNSPEC"};

	ensure(kind <= HF_TRANSPORTS);
	return names[kind];
}
