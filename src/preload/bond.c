#include "preload/bond.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/fabric.h>

#include "base/log.h"
#include "dev/gid.h"
#include "env/share.h"
#include "preload/datagram.h"

#define BOND_CONTROL_PORT 18600
#define BOND_RAILS        2u
#define BOND_FABRIC       "verbs"
#define CONTROL_NET       0x7fa0u /* 127.160 */
#define RAIL_NET          0x7fa1u /* 127.161 */
#define SLOTS             0xfffeu
#define SLOT_TRIES        256u
#define SLOT_STRIDE       4099u /* prime to SLOTS: neighbours' retries do not meet */

static const char *wanted(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? value : otherwise;
}

/* A name has small letters, digits and "._-", and leaves room for the process's number. */
static void default_name(const struct hf_node_config *config, char name[HF_NAME_BYTES])
{
	char program[HF_NAME_BYTES - 11];
	size_t used = 0;

	if (config->name[0] != '\0') {
		memcpy(name, config->name, HF_NAME_BYTES);
		return;
	}
	for (const char *at = program_invocation_short_name; *at != '\0' && used + 1 < sizeof(program); at++)
		program[used++] = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '_';
	program[used] = '\0';
	snprintf(name, HF_NAME_BYTES, "%s-%d", used > 0 ? program : "program", (int)share_own_pid());
}

static void guid_of(struct bond *bond)
{
	uint8_t bytes[8] = {0x02, 0, 0, 0xff, 0xfe}; /* a locally administered EUI-64 */

	hf_env_entropy(hf_env_host(), bytes + 5, 3);
	memcpy(&bond->guid, bytes, sizeof(bytes));
}

int bond_configure(struct bond *bond, struct hf_error *error)
{
	const char *file = wanted("HOLDFAST_VERBS_CONFIG", NULL), *kind = wanted("HOLDFAST_VERBS_DEVICE", "shm");
	struct hf_node_config *config = &bond->config;
	int rc;

	guid_of(bond);
	if (file != NULL) {
		bond->configured = true;
		rc = hf_node_config_load(hf_env_host(), file, config, error);
		config->cores = HF_CORES_SHARED; /* a program of verbs cannot say whose its cores are */
		return rc;
	}
	*config =
		(struct hf_node_config){.policy = HF_POLICY_VARUNA, .rail_count = BOND_RAILS, .cores = HF_CORES_SHARED};
	snprintf(config->name, sizeof(config->name), "%s", wanted("HOLDFAST_VERBS_NODE", ""));
	snprintf(config->fabric, sizeof(config->fabric), "%s", wanted("HOLDFAST_VERBS_FABRIC", BOND_FABRIC));
	for (unsigned i = 0; i < config->rail_count; i++) {
		snprintf(config->rails[i].name, HF_NAME_BYTES, "r%u", i);
		snprintf(config->rails[i].kind, HF_NAME_BYTES, "%s", kind);
	}
	return 0;
}

/* ---- addresses ---- */

static struct hf_addr loopback(uint32_t net, uint32_t slot, uint16_t port)
{
	struct hf_addr addr = {.in = {.sin_family = AF_INET, .sin_port = htons(port)}};

	addr.in.sin_addr.s_addr = htonl(net << 16 | slot);
	return addr;
}

static void take_slot(struct hf_node_config *config, uint32_t slot)
{
	for (unsigned i = 0; i < config->rail_count; i++) {
		config->rails[i].address = loopback(RAIL_NET + i, slot, 0);
		config->rails[i].control = loopback(RAIL_NET + i, slot, BOND_CONTROL_PORT);
	}
	config->management[0] = loopback(CONTROL_NET, slot, BOND_CONTROL_PORT);
	config->management_count = 1;
}

union ibv_gid bond_gid(const struct bond *bond)
{
	return gid_of_addr(&bond->address);
}

uint16_t bond_lid(const struct bond *bond)
{
	return bond->address.sa.sa_family == AF_INET ? (uint16_t)ntohl(bond->address.in.sin_addr.s_addr) : 0;
}

int bond_address_of(const struct bond *bond, const struct ibv_ah_attr *ah, struct hf_addr *address_out)
{
	*address_out = ah->is_global ? (struct hf_addr){0} : bond->address;
	if (ah->is_global)
		gid_put_host(&ah->grh.dgid, address_out);
	else if (bond->address.sa.sa_family == AF_INET && ah->dlid != 0)
		address_out->in.sin_addr.s_addr =
			htonl((ntohl(bond->address.in.sin_addr.s_addr) & 0xffff0000u) | ah->dlid);
	else
		return -EINVAL;
	hf_addr_set_port(address_out, hf_addr_port(&bond->address));
	return hf_addr_equal(address_out, &bond->address) ? -EISCONN : 0;
}

struct hf_peer *bond_peer(const struct bond *bond, const struct hf_addr *address)
{
	struct hf_error error = {0};
	struct hf_peer *peer = hf_peer_find(bond->node, address);

	if (peer == NULL && hf_peer_connect(bond->node, address, 1, &peer, &error) != 0) {
		log_warn("a peer cannot be connected to: %s", error.text);
		return NULL;
	}
	return peer;
}

/* ---- opening ---- */

static void rail_changed(struct hf_node *node, unsigned rail, bool up, void *context)
{
	struct bond *bond = context;
	bool any = false;

	(void)rail, (void)up;
	for (unsigned i = 0; i < hf_node_rails(node); i++)
		any = any || hf_node_rail_up(node, i);
	if (any == bond->up)
		return;
	bond->up = any;
	async_port_changed(bond, any);
}

static void peer_ended(struct hf_peer *peer, void *context)
{
	struct bond *bond = context;

	if (bond->cm != NULL)
		bond->cm->peer_ended(bond, peer);
}

static int open_as(struct bond *bond, struct hf_loop *loop, const struct hf_node_config *config, struct hf_error *error)
{
	static const struct hf_node_events events = {
		.rail_changed = rail_changed, .peer_died = peer_ended, .peer_down = peer_ended};
	int rc;

	bond->address = config->management_count > 0 ? config->management[0] : config->rails[0].control;
	if (bond->address.sa.sa_family == AF_UNSPEC || hf_addr_port(&bond->address) == 0)
		return hf_error_set(error, -EINVAL,
			"node %s needs a \"management\" address, or a \"control\" address of its first rail, with a "
			"port: "
			"peers find it there",
			config->name);
	rc = hf_node_open(loop, config, &events, bond, &bond->node, error);
	bond->up = false;
	for (unsigned i = 0; rc == 0 && i < hf_node_rails(bond->node); i++)
		bond->up = bond->up || hf_node_rail_up(bond->node, i);
	if (rc == 0 && (rc = datagram_links_open(bond)) != 0)
		hf_node_close(bond->node);
	return rc;
}

int bond_open(struct bond *bond, struct hf_loop *loop, struct hf_error *error)
{
	struct hf_node_config config = bond->config;
	uint32_t slot = (uint32_t)share_own_pid() % SLOTS;
	int rc = -EADDRINUSE;

	if (bond->configured)
		return open_as(bond, loop, &config, error);
	default_name(&bond->config, config.name);
	for (unsigned i = 0; i < SLOT_TRIES && rc == -EADDRINUSE; i++) {
		take_slot(&config, slot + 1);
		rc = open_as(bond, loop, &config, error);
		slot = (slot + SLOT_STRIDE) % SLOTS;
	}
	return rc;
}

void bond_close(struct bond *bond)
{
	datagram_links_close(bond);
	hf_node_close(bond->node);
	bond->node = NULL;
	if (!bond->configured)
		(void)hf_fabric_remove(bond->config.fabric); /* by the last of its programs; busy otherwise */
}
