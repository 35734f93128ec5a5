#include "dev/verbs/port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/gid.h"

#define MS          1000000ull
#define RETRY_CNT   7 /* the field's largest */
#define GIDS_LOOKED 256
#define HOP_LIMIT   64
#define NAMES_BYTES 128 /* in an error */

/* Soft-RoCE of the kernel. A packet that is being executed lands after the call that moved its qp to ERR, which markers
 * tell of, and after the one that took away its permission, which nothing tells of; so access does not change in RTS. A
 * reset under fire kills the device; seven retries never end. Its requester, which goes to sleep before a wr that is to
 * wait for READs, may miss that its completer, on another processor, sees the last of them end (Linux 6.1). */
static const struct verbs_model rxe = {.vendor_id = 0xffffff,
	.name = "rxe",
	.caps = HF_DEV_EXECUTED_PSN,
	.settle_ns = 20 * MS,
	.flushes_end = true,
	.quiet_ns = 25 * MS,
	.believes_acks = true,
	.oversleeps = true,
	.retry_most = 6,
	.tried = true};
static const struct verbs_model mellanox = {
	.vendor_id = 0x2c9, .name = "mellanox", .settle_ns = 1 * MS, .retry_most = RETRY_CNT};
static const struct verbs_model unknown = {.name = "unknown", .settle_ns = 1 * MS, .quiet_ns = 5 * MS, .retry_most = 6};
static const struct verbs_model *const models[] = {&rxe, &mellanox};

static const struct verbs_model *model_of(const struct ibv_device_attr *attr)
{
	for (unsigned i = 0; i < sizeof(models) / sizeof(models[0]); i++)
		if (models[i]->vendor_id == attr->vendor_id)
			return models[i];
	return &unknown;
}

struct hf_addr verbs_port_address(const union ibv_gid *gid)
{
	struct hf_addr addr = {0};

	gid_put_host(gid, &addr);
	return addr;
}

static bool has_address(const union ibv_gid *gid, const struct hf_addr *wanted)
{
	struct hf_addr addr = verbs_port_address(gid), host = *wanted;

	hf_addr_set_port(&host, 0);
	return hf_addr_equal(&addr, &host);
}

const char *verbs_port_format(const struct verbs_port *port, char text_out[HF_NIC_BYTES])
{
	if (port->number == 0)
		snprintf(text_out, HF_NIC_BYTES, "%s", port->name);
	else
		snprintf(text_out, HF_NIC_BYTES, "%s/%u", port->name, port->number);
	return text_out;
}

uint64_t verbs_port_resent(const struct verbs_port *port, struct hf_env *env)
{
	char path[128], text[32] = {0};
	struct hf_file *file;
	ssize_t got;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/hw_counters/completer_retry_err", port->name,
		port->number);
	if (hf_file_open(env, path, 0, &file) != 0)
		return VERBS_RESENT_UNKNOWN;
	got = hf_file_read_at(file, text, sizeof(text) - 1, 0);
	hf_file_close(file);
	return got > 0 ? strtoull(text, NULL, 10) : VERBS_RESENT_UNKNOWN;
}

/* False: the entry is empty, or of another kind. */
static bool rocev2_gid(const struct verbs_lib *lib, struct ibv_context *context, const struct verbs_port *port,
	uint32_t index, struct ibv_gid_entry *entry_out)
{
	return lib->query_gid_ex(context, port->number, index, entry_out, 0, sizeof(*entry_out)) == 0 &&
	       entry_out->gid_type == IBV_GID_TYPE_ROCE_V2;
}

/* The GID that packets carry: of the address that was asked for, else of the first IPv4 address, else the first one. */
static bool find_gid(const struct verbs_lib *lib, struct ibv_context *context, const struct hf_addr *wanted, int gids,
	struct verbs_port *port)
{
	bool found = false;

	for (int i = 0; i < gids && i < GIDS_LOOKED; i++) {
		struct ibv_gid_entry entry;

		if (!rocev2_gid(lib, context, port, (uint32_t)i, &entry))
			continue;
		if (wanted->sa.sa_family != AF_UNSPEC && !has_address(&entry.gid, wanted))
			continue;
		if (found && (gid_is_ipv4(&port->gid) || !gid_is_ipv4(&entry.gid)))
			continue;
		found = true;
		port->gid = entry.gid;
		port->gid_index = (uint8_t)i;
	}
	return found;
}

bool verbs_port_find_gid_again(const struct verbs_lib *lib, struct ibv_context *context, struct verbs_port *port)
{
	for (uint32_t i = 0; i < GIDS_LOOKED; i++) {
		struct ibv_gid_entry entry;

		if (!rocev2_gid(lib, context, port, i, &entry) ||
			memcmp(&entry.gid, &port->gid, sizeof(entry.gid)) != 0)
			continue;
		port->gid_index = (uint8_t)i;
		return true;
	}
	return false;
}

/* False: it is not the one that is looked for. */
static bool describe(
	const struct verbs_lib *lib, struct ibv_context *context, const struct hf_addr *wanted, struct verbs_port *port)
{
	struct ibv_port_attr attr = {0};

	if (lib->query_port(context, port->number, (struct _compat_ibv_port_attr *)(void *)&attr) != 0)
		return false;
	port->state = attr.state;
	port->mtu = attr.active_mtu;
	port->max_msg_bytes = attr.max_msg_sz;
	if (context->device->transport_type == IBV_TRANSPORT_IWARP) {
		snprintf(port->refused, sizeof(port->refused),
			"iWARP completes what it sent, not what executed: no queue pair over it can promise anything");
		return wanted->sa.sa_family == AF_UNSPEC;
	}
	if (attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
		snprintf(
			port->refused, sizeof(port->refused), "its link layer is InfiniBand; only RoCEv2 is supported");
		return wanted->sa.sa_family == AF_UNSPEC;
	}
	port->has_gid = find_gid(lib, context, wanted, attr.gid_tbl_len, port);
	if (!port->has_gid)
		snprintf(port->refused, sizeof(port->refused),
			"it has no RoCEv2 GID: give its network interface an address");
	return port->has_gid || wanted->sa.sa_family == AF_UNSPEC;
}

void verbs_port_begin_path(const struct verbs_port *port, struct ibv_ah_attr *path)
{
	path->is_global = 1;
	path->port_num = port->number;
	path->grh.sgid_index = port->gid_index;
	if (path->grh.hop_limit == 0)
		path->grh.hop_limit = HOP_LIMIT;
}

/* ---- all of them ---- */

/* What to do with a port; true: enough. `context` is closed afterwards unless it was taken (set to NULL), and is NULL
 * where the NIC cannot be opened. */
struct visitor {
	bool (*visit)(struct visitor *visitor, struct ibv_context **context, const struct verbs_port *port);
	struct hf_addr wanted; /* AF_UNSPEC: any */
	char nic[HF_NAME_BYTES];
	unsigned number; /* 0: any */
	int visited;
};

/* Its addresses are not known. */
static bool visit_closed(struct visitor *visitor, const char *name, int why)
{
	struct verbs_port port = {.model = &unknown};
	struct ibv_context *none = NULL;

	if (visitor->wanted.sa.sa_family != AF_UNSPEC)
		return false;
	snprintf(port.name, sizeof(port.name), "%.31s", name);
	snprintf(port.refused, sizeof(port.refused), "libibverbs cannot open it: %s", strerror(why));
	visitor->visited++;
	return visitor->visit(visitor, &none, &port);
}

static bool visit_nic(const struct verbs_lib *lib, struct ibv_device *device, struct visitor *visitor)
{
	const char *name = lib->get_device_name(device);
	struct verbs_port port = {0};
	struct ibv_context *context;
	bool enough = false;

	if (visitor->nic[0] != '\0' && strcmp(visitor->nic, name) != 0)
		return false;
	errno = 0;
	context = lib->open_device(device);
	if (context == NULL)
		return visit_closed(visitor, name, errno == 0 ? ENODEV : errno);
	if (lib->query_device(context, &port.attr) != 0)
		port.attr.phys_port_cnt = 0;
	for (unsigned n = 1; n <= port.attr.phys_port_cnt && !enough && context != NULL; n++) {
		struct verbs_port one = {.number = (uint8_t)n, .attr = port.attr, .model = model_of(&port.attr)};

		if (visitor->number != 0 && visitor->number != n)
			continue;
		snprintf(one.name, sizeof(one.name), "%.31s", name);
		if (!describe(lib, context, &visitor->wanted, &one))
			continue;
		visitor->visited++;
		enough = visitor->visit(visitor, &context, &one);
	}
	if (context != NULL)
		lib->close_device(context);
	return enough;
}

static int visit_all(const struct verbs_lib *lib, struct visitor *visitor)
{
	int count = 0;
	struct ibv_device **list = lib->get_device_list(&count);

	if (list == NULL)
		return errno == ENOSYS ? 0 : -errno; /* no RDMA in this kernel */
	for (int i = 0; i < count; i++)
		if (visit_nic(lib, list[i], visitor))
			break;
	lib->free_device_list(list);
	return visitor->visited;
}

struct lister {
	struct visitor visitor;
	bool (*found)(const struct verbs_port *port, void *context);
	void *context;
};

static bool list_one(struct visitor *visitor, struct ibv_context **context, const struct verbs_port *port)
{
	struct lister *lister = (struct lister *)visitor;

	(void)context;
	return lister->found(port, lister->context);
}

int verbs_port_each(
	const struct verbs_lib *lib, bool (*found)(const struct verbs_port *port, void *context), void *context)
{
	struct lister lister = {.visitor = {.visit = list_one}, .found = found, .context = context};

	return visit_all(lib, &lister.visitor);
}

/* ---- one of them ---- */

struct taker {
	struct visitor visitor;
	struct ibv_context *context;
	struct verbs_port *port;
};

/* The first that can be a rail; else the last, to say why not. */
static bool take(struct visitor *visitor, struct ibv_context **context, const struct verbs_port *port)
{
	struct taker *taker = (struct taker *)visitor;

	*taker->port = *port;
	if (port->refused[0] != '\0')
		return false;
	taker->context = *context;
	*context = NULL;
	return true;
}

static bool name_one(const struct verbs_port *port, void *context)
{
	char *names = context, text[HF_NIC_BYTES];
	size_t used = strlen(names);

	snprintf(names + used, NAMES_BYTES - used, "%s%s%s", used == 0 ? "" : ", ", verbs_port_format(port, text),
		port->number == 0 ? " (which cannot be opened)" : "");
	return false;
}

static int refuse(const struct verbs_lib *lib, const struct hf_dev_config *config, struct hf_error *error)
{
	char names[NAMES_BYTES] = "", address[HF_ADDR_TEXT] = "";

	verbs_port_each(lib, name_one, names);
	if (names[0] == '\0')
		return hf_error_set(error, -ENODEV, "this host has no RDMA NIC that libibverbs can open");
	if (config->address.sa.sa_family != AF_UNSPEC)
		hf_addr_format(&config->address, address);
	if (config->nic == NULL)
		return hf_error_set(
			error, -ENODEV, "no RDMA port has the address %s (as RoCEv2); there are %s", address, names);
	return hf_error_set(error, -ENODEV, "no RDMA port is \"%.40s\"%s%s; there are %s", config->nic,
		address[0] == '\0' ? "" : " with the address ", address, names);
}

int verbs_port_open(const struct verbs_lib *lib, const struct hf_dev_config *config, struct ibv_context **context_out,
	struct verbs_port *port_out, struct hf_error *error)
{
	struct taker taker = {.visitor = {.visit = take, .wanted = config->address}, .port = port_out};
	char text[HF_NIC_BYTES];
	int rc;

	*context_out = NULL;
	if (config->nic == NULL && config->address.sa.sa_family == AF_UNSPEC)
		return hf_error_set(error, -EINVAL,
			"a verbs rail needs \"nic\" (such as mlx5_0; see `holdfast devices`) or the \"address\" of "
			"one");
	if (config->nic != NULL) {
		const char *slash = strchr(config->nic, '/');
		size_t length = slash == NULL ? strlen(config->nic) : (size_t)(slash - config->nic);

		if (length >= HF_NAME_BYTES)
			return refuse(lib, config, error);
		memcpy(taker.visitor.nic, config->nic, length);
		taker.visitor.number = slash == NULL ? 0 : (unsigned)strtoul(slash + 1, NULL, 10);
	}
	rc = visit_all(lib, &taker.visitor);
	if (rc < 0)
		return hf_error_set(error, rc, "cannot list the RDMA NICs: %s", strerror(-rc));
	if (rc == 0)
		return refuse(lib, config, error);
	if (taker.context == NULL)
		return hf_error_set(error, -EOPNOTSUPP, "%s cannot be a rail: %s", verbs_port_format(port_out, text),
			port_out->refused);
	*context_out = taker.context;
	return 0;
}
