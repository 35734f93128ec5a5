/* What `holdfast devices` tells of the RDMA NICs of this host. */
#include "dev/verbs/nics.h"

#include <stdio.h>
#include <string.h>

struct teller {
	void (*found)(const struct hf_nic *nic, void *context);
	void *context;
};

static bool tell(const struct verbs_port *port, void *context)
{
	const struct teller *teller = context;
	struct hf_nic nic = {.mtu = port->mtu, .up = port->state == IBV_PORT_ACTIVE, .tried = port->model->tried};

	verbs_port_format(port, nic.name);
	snprintf(nic.model, sizeof(nic.model), "%s", port->model->name);
	snprintf(nic.refused, sizeof(nic.refused), "%s", port->refused);
	if (port->has_gid)
		nic.address = verbs_port_address(&port->gid);
	teller->found(&nic, teller->context);
	return false;
}

int verbs_nics_through(const struct verbs_lib *lib, void (*found)(const struct hf_nic *nic, void *context),
	void *context, struct hf_error *error)
{
	struct teller teller = {.found = found, .context = context};
	int n = verbs_port_each(lib, tell, &teller);

	return n >= 0 ? n : hf_error_set(error, n, "the RDMA NICs cannot be listed: %s", strerror(-n));
}

int verbs_nics(void (*found)(const struct hf_nic *nic, void *context), void *context, struct hf_error *error)
{
	const struct verbs_lib *lib;
	int rc = verbs_lib_load(&lib, error);

	return rc == 0 ? verbs_nics_through(lib, found, context, error) : rc;
}
