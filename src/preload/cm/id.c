/* Ids: what they are bound to, which states they may have, and how the manager finds them. */
#include "preload/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"
#include "dev/gid.h"
#include "preload/bond.h"
#include "preload/cm/ports.h"
#include "preload/drive.h"

#define BACKLOG_MAX 1024u /* the kernel's */
#define HANDLES     0x7fffffffu

static const struct state states[CM_STATES] = {
	[CM_IDLE] = {"idle", BIT(CM_BOUND) | BIT(CM_REQ_RECEIVED)},
	[CM_BOUND] = {"bound", BIT(CM_LISTENING) | BIT(CM_ADDR_RESOLVED)},
	[CM_LISTENING] = {"listening", 0},
	[CM_ADDR_RESOLVED] = {"address resolved", BIT(CM_ROUTE_RESOLVED)},
	[CM_ROUTE_RESOLVED] = {"route resolved", BIT(CM_REQ_SENT)},
	[CM_REQ_SENT] = {"request sent", BIT(CM_REP_RECEIVED) | BIT(CM_ESTABLISHED) | BIT(CM_ENDED)},
	[CM_REQ_RECEIVED] = {"request received", BIT(CM_REP_SENT) | BIT(CM_ENDED)},
	[CM_REP_SENT] = {"accepted", BIT(CM_ESTABLISHED) | BIT(CM_ENDED)},
	[CM_REP_RECEIVED] = {"acceptance received", BIT(CM_ESTABLISHED) | BIT(CM_ENDED)},
	[CM_ESTABLISHED] = {"established", BIT(CM_DREQ_SENT) | BIT(CM_ENDED)},
	[CM_DREQ_SENT] = {"disconnecting", BIT(CM_ENDED)},
	[CM_ENDED] = {"ended", 0},
};

static struct {
	struct table by_handle, by_number;
	uint32_t last_handle;
	unsigned bond_users;
} ids;

void cm_move(struct cm_id *id, enum cm_state state)
{
	states_move("rdma_cm id", states, &id->state, state, "%u", id->handle);
}

/* ---- life ---- */

static uint32_t unguessable(void)
{
	uint32_t number;

	do
		hf_env_entropy(hf_env_host(), &number, sizeof(number));
	while (number == 0 || table_get(&ids.by_number, number) != NULL);
	return number;
}

static uint32_t unused_handle(void)
{
	do
		ids.last_handle = ids.last_handle % HANDLES + 1;
	while (table_get(&ids.by_handle, ids.last_handle) != NULL);
	return ids.last_handle;
}

struct cm_id *cm_id_make(struct cm_channel *channel, uint16_t port_space, bool datagrams)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (id == NULL)
		return NULL;
	id->channel = channel;
	id->port_space = port_space;
	id->datagrams = datagrams;
	id->handle = unused_handle();
	id->number = unguessable();
	if (table_put(&ids.by_handle, id->handle, id) != 0) {
		free(id);
		return NULL;
	}
	if (table_put(&ids.by_number, id->number, id) != 0) {
		table_remove(&ids.by_handle, id->handle);
		free(id);
		return NULL;
	}
	list_push_back(&channel->ids, &id->channel_link);
	return id;
}

int cm_id_use_bond(struct cm_id *id)
{
	struct bond *bond, *spare = NULL;
	int rc;

	if (id->bond != NULL)
		return 0;
	rc = device_hold(&bond);
	if (rc != 0)
		return rc;
	drive_lock();
	if (id->bond != NULL || ids.bond_users > 0)
		spare = bond; /* one use is that of all ids */
	if (id->bond == NULL)
		cm_id_share_bond(id, bond);
	drive_unlock();
	if (spare != NULL)
		device_release(spare);
	return 0;
}

void cm_id_share_bond(struct cm_id *id, struct bond *bond)
{
	static const struct bond_cm cm = {.arrived = cm_arrived, .peer_ended = cm_peer_ended};

	ensure(id->bond == NULL);
	bond->cm = &cm;
	id->bond = bond;
	ids.bond_users++;
}

static void request_dropped(struct cm_id *request)
{
	cm_leave(request);
	ensure(cm_id_free(request) == NULL); /* its listener uses the bond */
}

struct bond *cm_id_free(struct cm_id *id)
{
	struct bond *bond = id->bond;

	cm_event_drop(id, request_dropped);
	if (bond != NULL)
		hf_loop_cancel_timer(drive_loop(), &id->resend);
	cm_port_release(id->port);
	list_remove(&id->channel_link);
	table_remove(&ids.by_handle, id->handle);
	table_remove(&ids.by_number, id->number);
	free(id);
	return bond != NULL && --ids.bond_users == 0 ? bond : NULL;
}

/* ---- finding ---- */

struct cm_id *cm_id_find(uint32_t handle)
{
	return handle == 0 ? NULL : table_get(&ids.by_handle, handle);
}

struct cm_id *cm_id_numbered(uint32_t number)
{
	return number == 0 ? NULL : table_get(&ids.by_number, number);
}

void cm_id_each(void (*each)(struct cm_id *id, void *context), void *context)
{
	for (uint32_t i = 0; ids.by_handle.slots != NULL && i <= ids.by_handle.mask; i++)
		if (ids.by_handle.slots[i].key != 0)
			each(ids.by_handle.slots[i].value, context);
}

struct sought {
	uint16_t port_space;
	const struct hf_addr *at;
	uint32_t peer_number;
	struct cm_id *found;
};

/* An address of its own goes before all addresses. */
static void match_listener(struct cm_id *id, void *context)
{
	struct sought *sought = context;

	if (id->state != CM_LISTENING || id->port_space != sought->port_space ||
		hf_addr_port(&id->local) != hf_addr_port(sought->at))
		return;
	if (hf_addr_equal(&id->local, sought->at) || (sought->found == NULL && cm_port_covers(&id->local, sought->at)))
		sought->found = id;
}

struct cm_id *cm_id_listening(uint16_t port_space, const struct hf_addr *at)
{
	struct sought sought = {.port_space = port_space, .at = at};

	cm_id_each(match_listener, &sought);
	return sought.found;
}

static void match_request(struct cm_id *id, void *context)
{
	struct sought *sought = context;

	if (id->asked && id->peer_number == sought->peer_number && hf_addr_equal(&id->peer, sought->at))
		sought->found = id;
}

struct cm_id *cm_id_requested(const struct hf_addr *peer, uint32_t peer_number)
{
	struct sought sought = {.at = peer, .peer_number = peer_number};

	cm_id_each(match_request, &sought);
	return sought.found;
}

/* ---- addresses ---- */

static bool is_local(const struct hf_addr *addr)
{
	return hf_addr_is_any(addr) || hf_addr_is_local(hf_env_host(), addr);
}

int cm_id_bind(struct cm_id *id, const struct hf_addr *local)
{
	int rc;

	if (id->state != CM_IDLE)
		return -EINVAL;
	if (!is_local(local))
		return -EADDRNOTAVAIL;
	id->local = *local;
	rc = cm_port_take(id->bond->config.fabric, id->port_space, &id->local, &id->bond->address, &id->port);
	if (rc == 0)
		cm_move(id, CM_BOUND);
	return rc;
}

/* As the kernel does: an id that is not bound listens at a port of its choice. */
int cm_id_listen(struct cm_id *id, unsigned backlog)
{
	const struct hf_addr any = {.in = {.sin_family = AF_INET}};
	int rc = id->state == CM_IDLE ? cm_id_bind(id, &any) : 0;
	char text[HF_ADDR_TEXT];

	if (rc != 0)
		return rc;
	if (id->state != CM_BOUND)
		return -EINVAL;
	log_debug("rdma_cm id %u: listens at %s", id->handle, hf_addr_format(&id->local, text));
	id->backlog = backlog == 0 || backlog > BACKLOG_MAX ? BACKLOG_MAX : backlog;
	cm_port_listen(id->port);
	cm_move(id, CM_LISTENING);
	return 0;
}

/* The address that the id has towards `remote`, without a port: on one host the peer's own, else the device's. */
static struct hf_addr source_for(const struct cm_id *id, const struct hf_addr *remote)
{
	struct hf_addr source = is_local(remote) ? *remote : id->bond->address;

	hf_addr_set_port(&source, 0);
	return source;
}

int cm_id_resolve_addr(struct cm_id *id, const struct hf_addr *local, const struct hf_addr *remote)
{
	struct hf_addr source = source_for(id, remote);
	int rc = 0;

	if (hf_addr_is_any(remote))
		return -EINVAL;
	if (id->state == CM_IDLE)
		rc = cm_id_bind(id, local != NULL && !hf_addr_is_any(local) ? local : &source);
	if (rc != 0)
		return rc;
	if (id->state != CM_BOUND)
		return -EINVAL;
	if (hf_addr_is_any(&id->local)) {
		hf_addr_set_port(&source, hf_addr_port(&id->local));
		id->local = source;
	}
	id->remote = *remote;
	cm_move(id, CM_ADDR_RESOLVED);
	cm_event(id, CM_EVENT_ADDR_RESOLVED, 0, NULL);
	return 0;
}

int cm_id_resolve_route(struct cm_id *id)
{
	if (id->state != CM_ADDR_RESOLVED)
		return -EINVAL;
	cm_move(id, CM_ROUTE_RESOLVED);
	cm_event(id, CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	return 0;
}
