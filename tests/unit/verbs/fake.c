/* The shared object of fake.h: libibverbs and libmlx5 in one. */
#include "fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port

struct fake fake;

struct context {
	struct ibv_context context;
	const struct fake_nic *nic;
};
struct device {
	struct ibv_device device;
	const struct fake_nic *nic;
};

struct qp {
	struct ibv_qp_ex ex;
	struct mlx5dv_qp_ex mlx5;
	bool target;
};
static struct device devices[FAKE_NICS];
static uint32_t last_number;

static const struct fake_port *port_of(const struct ibv_context *context, unsigned number)
{
	const struct fake_nic *nic = ((const struct context *)(const void *)context)->nic;

	return number >= 1 && number <= nic->ports ? &nic->port[number - 1] : NULL;
}

/* ---- NICs ---- */

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list;

	if (fake.list_error != 0) {
		errno = fake.list_error;
		return NULL;
	}
	list = calloc(fake.nic_count + 1, sizeof(struct ibv_device *));
	for (unsigned i = 0; list != NULL && i < fake.nic_count; i++) {
		devices[i] =
			(struct device){.device = {.transport_type = fake.nics[i].transport}, .nic = &fake.nics[i]};
		snprintf(devices[i].device.name, sizeof(devices[i].device.name), "%s", fake.nics[i].name);
		list[i] = &devices[i].device;
	}
	*count = (int)fake.nic_count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	unsigned taken = (unsigned)n < fake.wc_count ? (unsigned)n : fake.wc_count;

	(void)cq;
	memcpy(wc, fake.wcs, taken * sizeof(*wc));
	fake.wc_count -= taken;
	memmove(fake.wcs, fake.wcs + taken, fake.wc_count * sizeof(*wc));
	return (int)taken;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq, (void)solicited_only;
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	(void)qp;
	for (; wr != NULL; wr = wr->next) {
		if (fake.send_room == 0 || fake.sent_count == FAKE_KEPT) {
			*bad_wr = wr;
			return ENOMEM;
		}
		fake.send_room--;
		fake.sent[fake.sent_count++] = *wr;
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)qp, (void)wr, (void)bad_wr;
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)srq, (void)wr, (void)bad_wr;
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *context;
	const struct fake_nic *nic = ((struct device *)(void *)device)->nic;

	if (nic->unopenable) {
		errno = EACCES;
		return NULL;
	}
	context = calloc(1, sizeof(*context));
	if (context == NULL)
		return NULL;
	context->nic = nic;
	context->context.device = device;
	context->context.cmd_fd = fake.doorbell != 0 ? fake.doorbell : -1;
	context->context.async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	context->context.ops.poll_cq = poll_cq;
	context->context.ops.req_notify_cq = req_notify_cq;
	context->context.ops.post_send = post_send;
	context->context.ops.post_recv = post_recv;
	context->context.ops.post_srq_recv = post_srq_recv;
	fake.contexts++;
	return &context->context;
}

int ibv_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	free(context);
	fake.contexts--;
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct fake_nic *nic = ((struct context *)(void *)context)->nic;

	*attr = (struct ibv_device_attr){.vendor_id = nic->vendor_id,
		.phys_port_cnt = nic->ports,
		.max_qp_wr = 1024,
		.max_sge = 30,
		.max_cqe = 1 << 22,
		.max_srq = 16,
		.max_srq_wr = 1024,
		.max_qp = 1000,
		.max_cq = 1000,
		.max_mr = 1000,
		.max_pd = 1000,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 8,
		.atomic_cap = IBV_ATOMIC_HCA};
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *attr_out)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)attr_out;
	const struct fake_port *port = port_of(context, number);

	if (port == NULL)
		return EINVAL;
	attr->state = port->state;
	attr->max_mtu = IBV_MTU_4096;
	attr->max_msg_sz = port->max_msg_bytes;
	attr->active_mtu = port->mtu;
	attr->gid_tbl_len = FAKE_GIDS;
	attr->link_layer = port->link_layer;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t number, uint32_t index, struct ibv_gid_entry *entry,
	uint32_t flags, size_t entry_size)
{
	const struct fake_port *port = port_of(context, number);
	const char *address = port == NULL || index >= FAKE_GIDS ? NULL : port->gids[index].address;

	(void)flags, (void)entry_size;
	if (address == NULL)
		return ENODATA;
	*entry = (struct ibv_gid_entry){.gid_index = index, .port_num = number, .gid_type = port->gids[index].type};
	if (inet_pton(AF_INET6, address, entry->gid.raw) == 1)
		return 0;
	entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
	return inet_pton(AF_INET, address, entry->gid.raw + 12) == 1 ? 0 : EINVAL;
}

/* ---- events ---- */

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	if (fake.event_count == 0) {
		errno = EAGAIN;
		return -1;
	}
	*event = fake.events[0];
	memmove(fake.events, fake.events + 1, --fake.event_count * sizeof(fake.events[0]));
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	fake.acked_events++;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	if (channel == NULL)
		return NULL;
	channel->context = context;
	channel->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	(void)channel;
	if (fake.notified == NULL) {
		errno = EAGAIN;
		return -1;
	}
	*cq = fake.notified;
	*cq_context = fake.notified->cq_context;
	fake.notified = NULL;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	(void)cq;
	fake.acked_cq_events += count;
}

/* ---- objects ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (pd != NULL)
		pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova, unsigned int access)
{
	struct fake_mr *mr = &fake.registered[fake.registered_count % FAKE_KEPT];

	*mr = (struct fake_mr){.mr = {.context = pd->context, .pd = pd, .addr = addr, .length = bytes},
		.iova = iova,
		.access = access};
	mr->mr.lkey = mr->mr.rkey = 1000 + fake.registered_count++;
	fake.mrs++;
	return &mr->mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	fake.mrs--;
	return 0;
}

struct ibv_cq *ibv_create_cq(
	struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)vector;
	if (cq == NULL)
		return NULL;
	cq->context = context;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->cqe = cqe;
	fake.cqs++;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	fake.cqs--;
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = calloc(1, sizeof(*srq));

	if (srq == NULL)
		return NULL;
	srq->context = pd->context;
	srq->srq_context = attr->srq_context;
	fake.srqs++;
	return fake.last_srq = srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	fake.srqs--;
	return 0;
}

static struct qp *new_qp(struct ibv_context *context, uint32_t number)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	if (qp == NULL)
		return NULL;
	qp->ex.qp_base.context = context;
	qp->ex.qp_base.qp_num = number;
	fake.qps++;
	fake.last_qp = &qp->ex.qp_base;
	return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct qp *qp;

	if (attr->cap.max_inline_data > fake.inline_most) {
		errno = EINVAL;
		return NULL;
	}
	qp = new_qp(pd->context, ++last_number);
	return qp == NULL ? NULL : &qp->ex.qp_base;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	fake.qps--;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (fake.modify_error != 0)
		return fake.modify_error;
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	if (((struct qp *)(void *)qp)->target && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR)
		qp->qp_num = ++last_number;
	fake.attr[fake.modified % FAKE_KEPT] = *attr;
	fake.mask[fake.modified++ % FAKE_KEPT] = mask;
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init_attr)
{
	(void)mask, (void)init_attr;
	*attr = (struct ibv_qp_attr){.qp_state = qp->state, .rq_psn = fake.rq_psn};
	return 0;
}

/* ---- libmlx5 ---- */

static void trace(const char *format, ...)
{
	size_t used = strlen(fake.trace);
	va_list arguments;

	if (used > 0)
		fake.trace[used++] = ' ';
	va_start(arguments, format);
	vsnprintf(fake.trace + used, sizeof(fake.trace) - used, format, arguments);
	va_end(arguments);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = calloc(1, sizeof(*ah));

	if (ah == NULL)
		return NULL;
	ah->pd = pd;
	ah->handle = attr->grh.dgid.raw[15];
	trace("ah(%u,port %u,sgid %u)", ah->handle, attr->port_num, attr->grh.sgid_index);
	fake.ways++;
	fake.ways_made++;
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	fake.ways--;
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return &((struct qp *)(void *)qp)->ex;
}

static void put(const struct ibv_qp_ex *qp, const char *what, uint32_t rkey, uint64_t addr)
{
	trace("%s(%u,%llx)id%llu,flags%u", what, rkey, (unsigned long long)addr, (unsigned long long)qp->wr_id,
		qp->wr_flags);
}

static void wr_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	put(qp, "write", rkey, addr);
}

static void wr_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm)
{
	put(qp, "write-imm", rkey, addr);
	trace("imm%u", imm);
}

static void wr_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	put(qp, "read", rkey, addr);
}

static void wr_send(struct ibv_qp_ex *qp)
{
	put(qp, "send", 0, 0);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	put(qp, "send-imm", 0, 0);
	trace("imm%u", imm);
}

static void wr_cas(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	put(qp, "cas", rkey, addr);
	trace("%llu->%llu", (unsigned long long)compare, (unsigned long long)swap);
}

static void wr_faa(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t add)
{
	put(qp, "faa", rkey, addr);
	trace("+%llu", (unsigned long long)add);
}

static void wr_dc(struct mlx5dv_qp_ex *qp, struct ibv_ah *ah, uint32_t number, uint64_t key)
{
	(void)qp;
	trace("dc(%u,%u,%llx)", ah->handle, number, (unsigned long long)key);
}

static void wr_sges(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *sges)
{
	(void)qp;
	trace("sges%zu,%u", n, n > 0 ? sges[0].lkey : 0);
}

static void wr_inline(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *buffers)
{
	(void)qp;
	trace("inline%zu,%zu", n, n > 0 ? buffers[0].length : 0);
}

static void wr_start(struct ibv_qp_ex *qp)
{
	(void)qp;
	trace("start");
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	(void)qp;
	trace("complete");
	return fake.complete_error;
}

bool mlx5dv_is_supported(struct ibv_device *device)
{
	(void)device;
	return fake.mlx5;
}

struct ibv_qp *mlx5dv_create_qp(
	struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, struct mlx5dv_qp_init_attr *mlx5)
{
	bool target = mlx5->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
	struct qp *qp;

	if (fake.no_dc || attr->qp_type != IBV_QPT_DRIVER || mlx5->comp_mask != MLX5DV_QP_INIT_ATTR_MASK_DC ||
		(attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = new_qp(context, target ? 0 : ++last_number);
	if (qp == NULL)
		return NULL;
	qp->target = target;
	if (target)
		trace("dct(key %llx,srq %d,ops %d)", (unsigned long long)mlx5->dc_init_attr.dct_access_key,
			attr->srq != NULL, (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0);
	else
		trace("dci(wr %u/%u,ops %llx)", attr->cap.max_send_wr, attr->cap.max_recv_wr,
			(unsigned long long)attr->send_ops_flags);
	qp->ex.wr_rdma_write = wr_write;
	qp->ex.wr_rdma_write_imm = wr_write_imm;
	qp->ex.wr_rdma_read = wr_read;
	qp->ex.wr_send = wr_send;
	qp->ex.wr_send_imm = wr_send_imm;
	qp->ex.wr_atomic_cmp_swp = wr_cas;
	qp->ex.wr_atomic_fetch_add = wr_faa;
	qp->ex.wr_set_sge_list = wr_sges;
	qp->ex.wr_set_inline_data_list = wr_inline;
	qp->ex.wr_start = wr_start;
	qp->ex.wr_complete = wr_complete;
	qp->mlx5.wr_set_dc_addr = wr_dc;
	return &qp->ex.qp_base;
}

struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp)
{
	return &((struct qp *)(void *)qp)->mlx5;
}
