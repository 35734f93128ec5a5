/* What a device says about itself: the least of what its rails can do. */
#include "preload/objects.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "preload/bond.h"
#include "preload/drive.h"
#include "preload/real.h"

#undef ibv_query_port

#define VENDOR_ID     0xffffffu /* no vendor's, and that of soft RoCE: a program must find no NIC that it knows */
#define PKEY_DEFAULT  0xffffu
#define RD_ATOMIC_MAX 16
#define COUNT_MAX     65536
#define SHARED_WR_MAX 32768
#define PORT_WIDTH_4X 2
#define PORT_EDR      32
#define PORT_SPEED    1000u /* of four such lanes, in 100 Mb/s */
#define PHYS_LINK_UP  5
#define PHYS_POLLING  2

static const struct bond *bond_of(const struct ibv_context *context)
{
	return container_of(context->device, struct bond, device);
}

/* ---- the device ---- */

static int least(uint32_t a, uint32_t b)
{
	return (int)(a < b ? a : b);
}

static void narrow(struct ibv_device_attr *attr, const struct hf_dev_attr *rail)
{
	attr->max_qp = least((uint32_t)attr->max_qp, rail->max_qp);
	/* A vqp has more wrs on each of its qps: what is written into the completion log behind each, and a probe. */
	attr->max_qp_wr = least((uint32_t)attr->max_qp_wr, rail->max_qp_wr / 2 - 1);
	attr->max_sge = least((uint32_t)attr->max_sge, rail->max_sge);
	attr->max_cq = least((uint32_t)attr->max_cq, rail->max_cq);
	attr->max_cqe = least((uint32_t)attr->max_cqe, rail->max_cqe);
	attr->max_mr = least((uint32_t)attr->max_mr, rail->max_mr);
	attr->max_pd = least((uint32_t)attr->max_pd, rail->max_pd);
	attr->max_qp_rd_atom = least((uint32_t)attr->max_qp_rd_atom, rail->max_rd_atomic);
}

static void fill_device(const struct bond *bond, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){.node_guid = bond->guid,
		.sys_image_guid = bond->guid,
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000u,
		.vendor_id = VENDOR_ID,
		.max_qp = COUNT_MAX,
		.max_qp_wr = COUNT_MAX,
		.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID,
		.max_sge = COUNT_MAX,
		.max_cq = COUNT_MAX,
		.max_cqe = INT32_MAX,
		.max_mr = COUNT_MAX - 1,
		.max_pd = COUNT_MAX,
		.max_ah = COUNT_MAX,
		.max_srq = COUNT_MAX,
		.max_srq_wr = SHARED_WR_MAX,
		.max_qp_rd_atom = RD_ATOMIC_MAX,
		.atomic_cap = IBV_ATOMIC_HCA, /* also where more is true: UCX takes IBV_ATOMIC_GLOB for none */
		.max_pkeys = 1,
		.phys_port_cnt = 1};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "holdfast");
	for (unsigned i = 0; i < hf_node_rails(bond->node); i++)
		narrow(attr, &hf_node_dev(bond->node, i)->attr);
	attr->max_sge_rd = attr->max_sge;
	attr->max_srq_sge = attr->max_sge;
	attr->max_qp_init_rd_atom = attr->max_qp_rd_atom;
	attr->max_res_rd_atom = attr->max_qp_rd_atom * attr->max_qp;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!context_is_ours(context))
		return REAL(ibv_query_device)(context, attr);
	drive_lock();
	fill_device(bond_of(context), attr);
	drive_unlock();
	return 0;
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t bytes)
{
	struct ibv_device_attr_ex whole = {.phys_port_cnt_ex = 1};

	if ((input != NULL && input->comp_mask != 0) || bytes < sizeof(whole.orig_attr))
		return result(EINVAL);
	(void)ibv_query_device(context, &whole.orig_attr);
	memset(attr, 0, bytes);
	memcpy(attr, &whole, bytes < sizeof(whole) ? bytes : sizeof(whole));
	return 0;
}

/* ---- the port ---- */

static void fill_port(const struct bond *bond, struct ibv_port_attr *attr)
{
	*attr = (struct ibv_port_attr){.state = bond->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.pkey_tbl_len = 1,
		.lid = bond_lid(bond),
		.max_msg_sz = UINT32_MAX,
		.max_vl_num = 1,
		.active_width = PORT_WIDTH_4X,
		.active_speed = PORT_EDR,
		.phys_state = bond->up ? PHYS_LINK_UP : PHYS_POLLING,
		.link_layer = IBV_LINK_LAYER_ETHERNET};
	for (unsigned i = 0; i < hf_node_rails(bond->node); i++) {
		struct hf_dev *dev = hf_node_dev(bond->node, i);
		struct ibv_port_attr rail = {0};

		if (dev->attr.max_msg_bytes < attr->max_msg_sz)
			attr->max_msg_sz = (uint32_t)dev->attr.max_msg_bytes;
		if (hf_dev_query_port(dev, &rail) == 0 && rail.active_mtu != 0 && rail.active_mtu < attr->active_mtu)
			attr->active_mtu = rail.active_mtu;
	}
}

/* The structure grew over time: `bytes` is how much of it the program knows. */
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
	struct ibv_port_attr whole;

	if (port != 1)
		return result(EINVAL);
	drive_lock();
	fill_port(bond_of(context), &whole);
	drive_unlock();
	memset(attr, 0, bytes);
	memcpy(attr, &whole, bytes < sizeof(whole) ? bytes : sizeof(whole));
	return 0;
}

#define COMPAT_PORT_BYTES offsetof(struct ibv_port_attr, port_cap_flags2) /* of libibverbs before 1.3 */

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	if (!context_is_ours(context))
		return REAL(ibv_query_port)(context, port, attr);
	return query_port(context, port, (struct ibv_port_attr *)attr, COMPAT_PORT_BYTES);
}

static int fail(int error)
{
	errno = error;
	return -1;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	if (!context_is_ours(context))
		return REAL(ibv_query_gid)(context, port, index, gid);
	if (port != 1 || index != 0)
		return fail(EINVAL);
	*gid = bond_gid(bond_of(context));
	return 0;
}

static void fill_gid(const struct ibv_context *context, void *entry, size_t bytes)
{
	struct ibv_gid_entry whole = {
		.gid = bond_gid(bond_of(context)), .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};

	memset(entry, 0, bytes);
	memcpy(entry, &whole, bytes < sizeof(whole) ? bytes : sizeof(whole));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
	uint32_t flags, size_t bytes)
{
	if (!context_is_ours(context))
		return REAL(_ibv_query_gid_ex)(context, port, index, entry, flags, bytes);
	if (port != 1 || flags != 0)
		return result(EINVAL);
	if (index != 0)
		return result(ENODATA);
	fill_gid(context, entry, bytes);
	return 0;
}

ssize_t _ibv_query_gid_table(
	struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t bytes)
{
	if (!context_is_ours(context))
		return REAL(_ibv_query_gid_table)(context, entries, max, flags, bytes);
	if (flags != 0 || max == 0)
		return -EINVAL;
	fill_gid(context, entries, bytes);
	return 1;
}

/* Of rdma-core 62 and later; in 100 Mb/s. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed_out);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed_out)
{
	__typeof__(&ibv_query_port_speed) real;

	if (context_is_ours(context)) {
		if (port != 1)
			return result(EINVAL);
		*speed_out = PORT_SPEED;
		return 0;
	}
	real = (__typeof__(&ibv_query_port_speed))real_find("ibv_query_port_speed");
	return real == NULL ? result(EOPNOTSUPP) : real(context, port, speed_out);
}

/* Of libibverbs' private interface, but used by its own ibv_devinfo: 0 is RoCE v1 or InfiniBand, 1 is RoCE v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type)
{
	if (!context_is_ours(context))
		return REAL(ibv_query_gid_type)(context, port, index, type);
	if (port != 1 || index != 0)
		return fail(EINVAL);
	*type = 1;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (!context_is_ours(context))
		return REAL(ibv_query_pkey)(context, port, index, pkey);
	if (port != 1 || index != 0)
		return fail(EINVAL);
	*pkey = PKEY_DEFAULT;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (!context_is_ours(context))
		return REAL(ibv_get_pkey_index)(context, port, pkey);
	if (port != 1 || pkey != PKEY_DEFAULT)
		return fail(EINVAL);
	return 0;
}
