/* A libibverbs for the program itself (tests/e2e/nics.py): the fake one of a machine with a NIC of every sort. */
#include "fake.h"

static const struct fake_port ethernet = {.state = IBV_PORT_ACTIVE,
	.mtu = IBV_MTU_4096,
	.link_layer = IBV_LINK_LAYER_ETHERNET,
	.max_msg_bytes = 1u << 31,
	.gids = {{.address = "fe80::1", .type = IBV_GID_TYPE_ROCE_V2},
		{.address = "10.0.0.1", .type = IBV_GID_TYPE_ROCE_V1},
		{.address = "10.0.0.1", .type = IBV_GID_TYPE_ROCE_V2}}};

extern struct fake fake;

__attribute__((constructor)) static void describe(void)
{
	fake.nic_count = 5;
	fake.nics[0] =
		(struct fake_nic){.name = "mlx5_0", .vendor_id = 0x2c9, .ports = 2, .port = {ethernet, ethernet}};
	fake.nics[0].port[1].state = IBV_PORT_DOWN;
	fake.nics[0].port[1].gids[2].address = "10.0.1.1";
	fake.nics[1] = (struct fake_nic){.name = "rxe0", .vendor_id = 0xffffff, .ports = 1, .port = {ethernet}};
	fake.nics[2] =
		(struct fake_nic){.name = "siw0", .transport = IBV_TRANSPORT_IWARP, .ports = 1, .port = {ethernet}};
	fake.nics[3] = (struct fake_nic){.name = "ib0", .ports = 1, .port = {ethernet}};
	fake.nics[3].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
	fake.nics[4] = (struct fake_nic){.name = "mine", .unopenable = true};
}
