/* The device to which librdmacm writes its commands. A command that fails sets errno, as write(2) does. */
#include "preload/cm/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "dev/gid.h"
#include "env/tally.h"
#include "preload/bond.h"
#include "preload/datagram.h"
#include "preload/drive.h"

#define PKEY             0xffffu
#define HOP_LIMIT        64u
#define RNR_TIMER        12u
#define TIMEOUT          14u
#define RETRIES_FOR_EVER 7u
#define PATH_RATE        3u /* 10 Gb/s, as the kernel has it for a device that it does not know */
#define PATH_EXACTLY     0x80u
#define PATH_ONE         0x81u /* reversible, the first of one */
#define CM_AF_IB         27

static struct table channels; /* by descriptor */

static int failed(int rc)
{
	errno = -rc;
	return -1;
}

static struct cm_channel *channel_at(int fd)
{
	return fd <= 0 ? NULL : table_get(&channels, (uint32_t)fd);
}

/* Of the last id: what the managers sent last is often a rejection or the end of a connection, and the process may
 * exit now. Without the lock. */
static void release(struct bond *bond)
{
	drive_lock();
	datagram_links_flush(bond);
	drive_unlock();
	device_release(bond);
}

/* ---- channels ---- */

int holdfast_cm_open(void)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));
	int rc = channel == NULL ? -ENOMEM : tally_open(&channel->fd);

	if (rc == 0 && channel->fd == 0) { /* no key of a table; a program has closed its standard input */
		channel->fd = fcntl(0, F_DUPFD_CLOEXEC, 1);
		rc = channel->fd < 0 ? -errno : 0;
		tally_close(0);
	}
	if (rc != 0) {
		free(channel);
		return failed(rc);
	}
	holdfast_cm_close(channel->fd); /* one whose descriptor went by other means than close(2) */
	list_init(&channel->ids);
	list_init(&channel->events);
	drive_lock();
	rc = table_put(&channels, (uint32_t)channel->fd, channel);
	drive_unlock();
	if (rc == 0)
		return channel->fd;
	tally_close(channel->fd);
	free(channel);
	return failed(rc);
}

/* As the kernel does: the peers of its ids get to know. */
void holdfast_cm_close(int fd)
{
	struct cm_channel *channel;
	struct bond *bond = NULL;
	bool waiting = false;

	drive_lock();
	channel = channel_at(fd);
	while (channel != NULL && !list_empty(&channel->ids)) {
		struct cm_id *id = container_of(channel->ids.next, struct cm_id, channel_link);
		struct bond *unused;

		cm_leave(id);
		unused = cm_id_free(id);
		bond = unused != NULL ? unused : bond;
	}
	table_remove(&channels, (uint32_t)fd);
	if (channel != NULL) {
		channel->closed = true;
		waiting = channel->waiting > 0;
	}
	drive_unlock();
	if (!waiting)
		free(channel);
	if (bond != NULL)
		release(bond);
}

/* ---- commands ---- */

struct call {
	struct cm_channel *channel;
	struct cm_id *id; /* that the command names */
	const void *command;
	size_t room;         /* of the response */
	struct bond *unused; /* to be released without the lock */
};

static void respond(struct call *call, uint64_t response, const void *data, size_t bytes)
{
	memcpy((void *)(uintptr_t)response, data, bytes < call->room ? bytes : call->room);
}

/* An IPv4 address in the form of IPv6 is that IPv4 address. */
static bool to_addr(const void *from, struct hf_addr *addr_out)
{
	const struct sockaddr *sa = from;
	union ibv_gid gid;
	uint16_t port;

	*addr_out = (struct hf_addr){0};
	if (sa->sa_family == AF_INET) {
		memcpy(&addr_out->in, from, sizeof(addr_out->in));
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	memcpy(&addr_out->in6, from, sizeof(addr_out->in6));
	gid = gid_of_addr(addr_out);
	if (gid_is_ipv4(&gid)) {
		port = hf_addr_port(addr_out);
		*addr_out = (struct hf_addr){0};
		gid_put_host(&gid, addr_out);
		hf_addr_set_port(addr_out, port);
	}
	return true;
}

static size_t addr_bytes(const struct hf_addr *addr)
{
	return addr->sa.sa_family == AF_INET6  ? sizeof(addr->in6)
	       : addr->sa.sa_family == AF_INET ? sizeof(addr->in)
					       : 0;
}

static int create_id(struct call *call)
{
	const struct rdma_ucm_create_id *command = call->command;
	struct rdma_ucm_create_id_resp resp;
	struct cm_id *id;

	if (command->ps != RDMA_PS_TCP && command->ps != RDMA_PS_UDP && command->ps != RDMA_PS_IB)
		return command->ps == RDMA_PS_IPOIB ? -EOPNOTSUPP : -EINVAL;
	id = cm_id_make(call->channel, command->ps, command->ps == RDMA_PS_UDP || command->qp_type == IBV_QPT_UD);
	if (id == NULL)
		return -ENOMEM;
	id->uid = command->uid;
	resp.id = id->handle;
	respond(call, command->response, &resp, sizeof(resp));
	return 0;
}

static int destroy_id(struct call *call)
{
	const struct rdma_ucm_destroy_id *command = call->command;
	struct rdma_ucm_destroy_id_resp resp = {.events_reported = call->id->events_given};

	cm_leave(call->id);
	call->unused = cm_id_free(call->id);
	respond(call, command->response, &resp, sizeof(resp));
	return 0;
}

static int bind_id(struct call *call)
{
	const struct rdma_ucm_bind *command = call->command;
	struct hf_addr local;

	if (((const struct sockaddr *)(const void *)&command->addr)->sa_family == CM_AF_IB)
		return 0; /* librdmacm asks so whether the newer commands are there */
	return to_addr(&command->addr, &local) ? cm_id_bind(call->id, &local) : -EAFNOSUPPORT;
}

static int listen_id(struct call *call)
{
	const struct rdma_ucm_listen *command = call->command;

	return cm_id_listen(call->id, command->backlog);
}

static int resolve_addr(struct call *call)
{
	const struct rdma_ucm_resolve_addr *command = call->command;
	struct hf_addr local, remote;

	if (!to_addr(&command->dst_addr, &remote))
		return -EAFNOSUPPORT;
	return cm_id_resolve_addr(
		call->id, command->src_size > 0 && to_addr(&command->src_addr, &local) ? &local : NULL, &remote);
}

static int resolve_route(struct call *call)
{
	return cm_id_resolve_route(call->id);
}

/* ---- queries ---- */

/* An id with an address of its own is at the device. */
static bool is_at_device(const struct cm_id *id)
{
	return id->bond != NULL && addr_bytes(&id->local) > 0 && !hf_addr_is_any(&id->local);
}

static void query_addr(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	*resp = (struct rdma_ucm_query_addr_resp){.pkey = PKEY,
		.src_size = (uint16_t)addr_bytes(&id->local),
		.dst_size = (uint16_t)addr_bytes(&id->remote),
		.ibdev_index = UINT32_MAX};
	if (is_at_device(id)) {
		resp->node_guid = id->bond->guid;
		resp->port_num = 1;
	}
	memcpy(&resp->src_addr, &id->local, addr_bytes(&id->local));
	memcpy(&resp->dst_addr, &id->remote, addr_bytes(&id->remote));
}

/* sockaddr_ib of the kernel. */
struct addr_ib {
	uint16_t family, pkey;
	uint32_t flow;
	uint8_t gid[16];
	uint64_t sid, sid_mask, scope;
};

static void put_gid(void *out, const union ibv_gid *gid)
{
	struct addr_ib addr = {.family = CM_AF_IB, .pkey = PKEY};

	memcpy(addr.gid, gid->raw, sizeof(addr.gid));
	memcpy(out, &addr, sizeof(addr));
}

static union ibv_gid own_gid(const struct cm_id *id)
{
	return is_at_device(id) ? bond_gid(id->bond) : (union ibv_gid){0};
}

/* Before it is connected an id does not know the peer's process, but its address. */
static union ibv_gid peer_gid(const struct cm_id *id)
{
	return gid_of_addr(id->peer.sa.sa_family != AF_UNSPEC ? &id->peer : &id->remote);
}

static void query_gid(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	union ibv_gid own = own_gid(id), peer = peer_gid(id);

	*resp = (struct rdma_ucm_query_addr_resp){.pkey = PKEY,
		.src_size = sizeof(struct addr_ib),
		.dst_size = sizeof(struct addr_ib),
		.ibdev_index = UINT32_MAX};
	put_gid(&resp->src_addr, &own);
	put_gid(&resp->dst_addr, &peer);
}

/* ibv_path_record of rdma-core. */
struct path_record {
	__be64 service_id;
	uint8_t dgid[16], sgid[16];
	__be16 dlid, slid;
	__be32 flowlabel_hoplimit;
	uint8_t tclass, reversible_numpath;
	__be16 pkey, qosclass_sl;
	uint8_t mtu, rate, packetlifetime, preference;
	uint8_t reserved[6];
};

struct path_resp {
	struct rdma_ucm_query_path_resp head;
	struct ib_path_rec_data data;
};

static void query_path(const struct cm_id *id, struct path_resp *resp)
{
	union ibv_gid own = own_gid(id), peer = peer_gid(id);
	struct path_record path = {.flowlabel_hoplimit = htonl(HOP_LIMIT),
		.reversible_numpath = PATH_ONE,
		.pkey = htons(PKEY),
		.mtu = PATH_EXACTLY | IBV_MTU_4096,
		.rate = PATH_EXACTLY | PATH_RATE};

	_Static_assert(sizeof(path) == sizeof(resp->data.path_rec), "librdmacm's layout");
	memcpy(path.dgid, peer.raw, sizeof(path.dgid));
	memcpy(path.sgid, own.raw, sizeof(path.sgid));
	*resp = (struct path_resp){
		.head = {.num_paths = 1}, .data = {.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL}};
	memcpy(resp->data.path_rec, &path, sizeof(path));
}

static int query(struct call *call)
{
	const struct rdma_ucm_query *command = call->command;
	struct rdma_ucm_query_addr_resp addr;
	struct path_resp path;

	switch (command->option) {
	case RDMA_USER_CM_QUERY_ADDR:
		query_addr(call->id, &addr);
		break;
	case RDMA_USER_CM_QUERY_GID:
		query_gid(call->id, &addr);
		break;
	case RDMA_USER_CM_QUERY_PATH:
		query_path(call->id, &path);
		respond(call, command->response, &path, sizeof(path));
		return 0;
	default:
		return -EOPNOTSUPP;
	}
	respond(call, command->response, &addr, sizeof(addr));
	return 0;
}

/* ---- queue pairs ---- */

static void fill_init(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	attr->port_num = 1;
	if (id->datagrams) {
		attr->qp_attr_mask |= IBV_QP_QKEY;
		attr->qkey = CM_QKEY;
	} else {
		attr->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
		attr->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_ATOMIC;
	}
}

static void fill_rtr(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	union ibv_gid gid = gid_of_addr(&id->peer);

	attr->qp_attr_mask = IBV_QP_STATE;
	if (id->datagrams)
		return;
	attr->qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	attr->path_mtu = IBV_MTU_4096;
	attr->dest_qp_num = id->theirs.qp_num;
	attr->max_dest_rd_atomic = id->theirs.responder_resources;
	attr->min_rnr_timer = RNR_TIMER;
	attr->ah_attr = (struct ib_uverbs_ah_attr){.grh = {.hop_limit = HOP_LIMIT}, .is_global = 1, .port_num = 1};
	memcpy(attr->ah_attr.grh.dgid, gid.raw, sizeof(gid.raw));
}

static void fill_rts(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (id->datagrams)
		return;
	attr->qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->timeout = id->ack_timeout != 0 ? id->ack_timeout : TIMEOUT;
	attr->retry_cnt = id->theirs.retry_count;
	/* The kernel's manager has 655 ms between retries, so programs that name a few mean seconds. Our queue pairs
	 * have far less. */
	attr->rnr_retry = id->theirs.rnr_retry_count > 0 ? RETRIES_FOR_EVER : 0;
	attr->max_rd_atomic = id->theirs.initiator_depth;
}

static int init_qp_attr(struct call *call)
{
	const struct rdma_ucm_init_qp_attr *command = call->command;
	struct ib_uverbs_qp_attr attr = {.qp_state = command->qp_state};

	if (!is_at_device(call->id))
		return -EINVAL;
	if (command->qp_state == IBV_QPS_INIT)
		fill_init(call->id, &attr);
	else if (command->qp_state == IBV_QPS_RTR)
		fill_rtr(call->id, &attr);
	else if (command->qp_state == IBV_QPS_RTS)
		fill_rts(call->id, &attr);
	else
		return -EINVAL;
	respond(call, command->response, &attr, sizeof(attr));
	return 0;
}

/* ---- connecting ---- */

static int connect_id(struct call *call)
{
	const struct rdma_ucm_connect *command = call->command;

	return cm_connect(call->id, &command->conn_param);
}

static int accept_id(struct call *call)
{
	const struct rdma_ucm_accept *command = call->command;

	if (call->id->asked)
		call->id->uid = command->uid;
	return cm_accept(call->id, &command->conn_param);
}

static int reject_id(struct call *call)
{
	const struct rdma_ucm_reject *command = call->command;

	return cm_reject(call->id, command->private_data, command->private_data_len);
}

static int disconnect_id(struct call *call)
{
	return cm_disconnect(call->id);
}

static int notify_id(struct call *call)
{
	const struct rdma_ucm_notify *command = call->command;

	return command->event == IBV_EVENT_COMM_EST ? cm_established(call->id) : -EINVAL;
}

/* The others concern the network and ports of a NIC. */
static int set_option(struct call *call)
{
	const struct rdma_ucm_set_option *command = call->command;

	if (command->level != RDMA_OPTION_ID || command->optname > RDMA_OPTION_ID_ACK_TIMEOUT)
		return -EOPNOTSUPP;
	if (command->optname != RDMA_OPTION_ID_ACK_TIMEOUT)
		return 0;
	if (command->optlen != sizeof(call->id->ack_timeout))
		return -EINVAL;
	memcpy(&call->id->ack_timeout, (const void *)(uintptr_t)command->optval, sizeof(call->id->ack_timeout));
	return 0;
}

static int migrate_id(struct call *call)
{
	const struct rdma_ucm_migrate_id *command = call->command;
	struct rdma_ucm_migrate_resp resp = {.events_reported = call->id->events_given};

	cm_event_migrate(call->id, call->channel);
	respond(call, command->response, &resp, sizeof(resp));
	return 0;
}

static int refuse_multicast(struct call *call)
{
	log_error("rdma_cm id %u: multicast is not supported; the join fails", call->id->handle);
	return -EOPNOTSUPP;
}

/* ---- the table ---- */

#define COMMAND(name, function, ...)                                                                                   \
	{                                                                                                              \
		.run = function, .id_at = offsetof(struct name, id), __VA_ARGS__                                       \
	}
#define COMMAND_BYTES_MAX 512u

static const struct command {
	int (*run)(struct call *call);
	size_t id_at;
	bool has_no_id;
	bool needs_bond; /* the device is opened before it */
	bool moves;      /* the id is of another channel */
} commands[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = {.run = create_id, .has_no_id = true},
	[RDMA_USER_CM_CMD_DESTROY_ID] = COMMAND(rdma_ucm_destroy_id, destroy_id),
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = COMMAND(rdma_ucm_resolve_route, resolve_route),
	[RDMA_USER_CM_CMD_CONNECT] = COMMAND(rdma_ucm_connect, connect_id),
	[RDMA_USER_CM_CMD_LISTEN] = COMMAND(rdma_ucm_listen, listen_id, .needs_bond = true),
	[RDMA_USER_CM_CMD_ACCEPT] = COMMAND(rdma_ucm_accept, accept_id),
	[RDMA_USER_CM_CMD_REJECT] = COMMAND(rdma_ucm_reject, reject_id),
	[RDMA_USER_CM_CMD_DISCONNECT] = COMMAND(rdma_ucm_disconnect, disconnect_id),
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = COMMAND(rdma_ucm_init_qp_attr, init_qp_attr),
	[RDMA_USER_CM_CMD_SET_OPTION] = COMMAND(rdma_ucm_set_option, set_option),
	[RDMA_USER_CM_CMD_NOTIFY] = COMMAND(rdma_ucm_notify, notify_id),
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = COMMAND(rdma_ucm_join_ip_mcast, refuse_multicast),
	[RDMA_USER_CM_CMD_MIGRATE_ID] = COMMAND(rdma_ucm_migrate_id, migrate_id, .moves = true),
	[RDMA_USER_CM_CMD_QUERY] = COMMAND(rdma_ucm_query, query),
	[RDMA_USER_CM_CMD_BIND] = COMMAND(rdma_ucm_bind, bind_id, .needs_bond = true),
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = COMMAND(rdma_ucm_resolve_addr, resolve_addr, .needs_bond = true),
	[RDMA_USER_CM_CMD_JOIN_MCAST] = COMMAND(rdma_ucm_join_mcast, refuse_multicast),
};

/* The command's id, of this channel; NULL: there is none. */
static struct cm_id *id_of(const struct command *command, const struct cm_channel *channel, const uint8_t *body)
{
	struct cm_id *id;
	uint32_t handle;

	memcpy(&handle, body + command->id_at, sizeof(handle));
	id = cm_id_find(handle);
	return id != NULL && (id->channel == channel || command->moves) ? id : NULL;
}

static bool is_probe(const struct command *command, const uint8_t *body)
{
	return command->run == bind_id &&
	       ((const struct sockaddr *)(const void *)(body + offsetof(struct rdma_ucm_bind, addr)))->sa_family ==
		       CM_AF_IB;
}

static int run(int fd, const struct command *command, const uint8_t *body, size_t room)
{
	struct call call = {.command = body, .room = room};
	int rc = -EINVAL;

	if (command->needs_bond && !is_probe(command, body)) {
		struct cm_id *id;

		drive_lock();
		call.channel = channel_at(fd);
		id = call.channel == NULL ? NULL : id_of(command, call.channel, body);
		drive_unlock();
		rc = id == NULL ? -EINVAL : cm_id_use_bond(id);
		if (rc != 0)
			return rc;
	}
	drive_lock();
	call.channel = channel_at(fd);
	if (call.channel != NULL && !command->has_no_id)
		call.id = id_of(command, call.channel, body);
	rc = call.channel != NULL && (call.id != NULL || command->has_no_id) ? command->run(&call) : -EINVAL;
	drive_again();
	drive_unlock();
	if (call.unused != NULL)
		release(call.unused);
	return rc;
}

static void wait_end(void *context)
{
	struct cm_channel *channel = context;
	bool last;

	drive_wait_end(NULL);
	drive_lock();
	last = --channel->waiting == 0 && channel->closed;
	drive_unlock();
	if (last)
		free(channel);
}

static bool take_event(struct cm_channel *channel, struct rdma_ucm_event_resp *event_out, bool *closed_out)
{
	bool got;

	drive_lock();
	*closed_out = channel->closed;
	got = !channel->closed && cm_event_take(channel, event_out);
	drive_unlock();
	return got;
}

/* A thread whose descriptor is closed by another one meanwhile waits on, as it does for the kernel's device: programs
 * end that way. */
static void wait_without_end(void)
{
	for (;;)
		pause();
}

static int wait_for_event(struct cm_channel *channel, struct rdma_ucm_event_resp *event_out)
{
	bool closed = false;
	int rc;

	do {
		if (closed)
			wait_without_end();
		rc = tally_take(channel->fd);
	} while (rc == 0 && !take_event(channel, event_out, &closed));
	return rc;
}

static int get_event(int fd, uint64_t response, size_t room)
{
	struct rdma_ucm_event_resp event;
	struct cm_channel *channel;
	int rc;

	drive_lock();
	channel = channel_at(fd);
	if (channel != NULL)
		channel->waiting++;
	drive_unlock();
	if (channel == NULL)
		wait_without_end();
	drive_wait_begin();
	pthread_cleanup_push(wait_end, channel);
	rc = wait_for_event(channel, &event);
	pthread_cleanup_pop(1);
	if (rc == 0)
		memcpy((void *)(uintptr_t)response, &event, room < sizeof(event) ? room : sizeof(event));
	return rc;
}

/* Older versions of librdmacm write less of a command: the rest is zeros. Newer ones write no more. */
ssize_t holdfast_cm_command(int fd, const void *data, size_t bytes)
{
	_Alignas(uint64_t) uint8_t body[COMMAND_BYTES_MAX] = {0};
	struct rdma_ucm_cmd_hdr head;
	uint64_t response;
	int rc = -EOPNOTSUPP;

	if (bytes < sizeof(head))
		return failed(-EINVAL);
	memcpy(&head, data, sizeof(head));
	if (bytes - sizeof(head) < head.in || head.in > sizeof(body))
		return failed(-EINVAL);
	memcpy(body, (const uint8_t *)data + sizeof(head), head.in);
	memcpy(&response, body, sizeof(response));
	if (head.cmd == RDMA_USER_CM_CMD_GET_EVENT)
		rc = get_event(fd, response, head.out);
	else if (head.cmd < sizeof(commands) / sizeof(commands[0]) && commands[head.cmd].run != NULL)
		rc = run(fd, &commands[head.cmd], body, head.out);
	return rc == 0 ? (ssize_t)bytes : failed(rc);
}
