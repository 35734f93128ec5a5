/* The shared object of fake.h. */
#include "fake.h"

#include <arpa/inet.h>
#include <errno.h>
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

static struct device devices[FAKE_NICS];

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

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static uint32_t last;
	struct ibv_qp *qp;

	if (attr->cap.max_inline_data > fake.inline_most) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return NULL;
	qp->context = pd->context;
	qp->qp_num = ++last;
	fake.qps++;
	return fake.last_qp = qp;
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
