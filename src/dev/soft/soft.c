#include "dev/soft/soft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "dev/gid.h"
#include "dev/kinds.h"
#include "dev/soft/objects.h"

#define ROCE_PORT     4791
#define QP_WR_MAX     16384u
#define INLINE_MAX    512u
#define CQE_MAX       (1u << 20)
#define MESSAGE_MAX   (1u << 30)
#define PORT_SPEED_4X 2 /* active_width and active_speed as a 4X EDR port shows them; there is no wire */
#define PORT_EDR      32

static struct soft_bus direct = {.ops = &bus_direct};

/* ---- the port ---- */

static int query_port(struct hf_dev *dev, struct ibv_port_attr *attr_out)
{
	struct soft_nic *nic = nic_of(dev);
	bool up = link_is_up(nic, HF_LINK_TX) || link_is_up(nic, HF_LINK_RX);

	*attr_out = (struct ibv_port_attr){.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = nic->mtu,
		.gid_tbl_len = 1,
		.max_msg_sz = MESSAGE_MAX,
		.pkey_tbl_len = 1,
		.active_width = PORT_SPEED_4X,
		.active_speed = PORT_EDR,
		.phys_state = up ? 5 : 3, /* LinkUp, Disabled */
		.link_layer = IBV_LINK_LAYER_ETHERNET};
	return 0;
}

static union ibv_gid gid(const struct hf_dev *dev)
{
	return gid_of_addr(&nic_of(dev)->engine.local);
}

static int set_link(struct hf_dev *dev, enum hf_link direction, bool up)
{
	struct soft_nic *nic = nic_of(dev);

	if (((unsigned)direction & ~(unsigned)HF_LINK_BOTH) != 0 || direction == 0)
		return -EINVAL;
	link_set(nic, direction, up);
	pthread_mutex_lock(&nic->lock);
	nic_drive(nic, NIC_DUE, hf_env_now_ns(dev->env));
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

static int set_rate(struct hf_dev *dev, uint32_t mb_per_s)
{
	struct soft_nic *nic = nic_of(dev);

	atomic_store(nic->rate, mb_per_s);
	pthread_mutex_lock(&nic->lock);
	nic_drive(nic, NIC_DUE, hf_env_now_ns(dev->env));
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

static void counters(struct hf_dev *dev, struct hf_dev_counters *counters_out)
{
	struct soft_nic *nic = nic_of(dev);

	pthread_mutex_lock(&nic->lock);
	*counters_out = nic->engine.counters;
	pthread_mutex_unlock(&nic->lock);
}

/* ---- driving and waiting ---- */

/* A notifier that stays readable would keep the loop busy for ever. Before the next sleep arm looks for what came. */
static void quench(struct soft_nic *nic)
{
	if (atomic_load_explicit(&nic->notified, memory_order_relaxed) && atomic_exchange(&nic->notified, false))
		hf_notifier_clear(nic->notifier);
}

static enum hf_poll drive(struct hf_dev *dev, uint64_t now_ns)
{
	(void)now_ns; /* possibly of an earlier turn; retransmission wants the present */
	quench(nic_of(dev));
	return nic_borrow(nic_of(dev), NIC_POLLED);
}

static struct hf_io *io(struct hf_dev *dev)
{
	return nic_of(dev)->notifier;
}

static bool something_pends(struct soft_nic *nic)
{
	if (observe(&nic->engine.event_count) > 0)
		return true;
	list_for_each (at, &nic->engine.cqs)
		if (observe(&container_of(at, struct soft_cq, node)->notified))
			return true;
	return false;
}

static bool arm(struct hf_dev *dev)
{
	struct soft_nic *nic = nic_of(dev);
	bool pends;

	quench(nic);
	if (nic_borrow(nic, NIC_ARMED) == HF_BUSY)
		return false;
	pthread_mutex_lock(&nic->lock);
	pends = something_pends(nic);
	pthread_mutex_unlock(&nic->lock);
	if (pends)
		return false;
	atomic_store(&nic->app_sleeps, true);
	nic_thread_ring(nic);
	return true;
}

static int get_event(struct hf_dev *dev, struct hf_dev_event *event_out)
{
	struct soft_nic *nic = nic_of(dev);
	int got;

	if (observe(&nic->engine.event_count) == 0)
		return 0;
	pthread_mutex_lock(&nic->lock);
	got = engine_take_event(&nic->engine, event_out);
	pthread_mutex_unlock(&nic->lock);
	return got;
}

static void wake(struct engine *engine)
{
	struct soft_nic *nic = container_of(engine, struct soft_nic, engine);

	hf_notifier_signal(nic->notifier);
	atomic_store(&nic->notified, true); /* behind the signal: a clear in between would leave it readable */
}

/* ---- opening and closing ---- */

static void close_nic(struct hf_dev *dev)
{
	struct soft_nic *nic = nic_of(dev);

	nic_thread_stop(nic);
	link_close(nic);
	hf_io_close(nic->socket);
	hf_io_close(nic->notifier);
	free(nic->engine.tx.memory);
	free(nic->receive_memory);
	pthread_mutex_destroy(&nic->lock);
	free(nic);
}

const struct hf_dev_ops soft_ops = {
	.close = close_nic,
	.query_port = query_port,
	.gid = gid,
	.poll = drive,
	.io = io,
	.arm = arm,
	.get_event = get_event,
	.set_link = set_link,
	.set_rate = set_rate,
	.counters = counters,
	.pd_alloc = objects_pd_alloc,
	.pd_free = objects_pd_free,
	.mr_reg = objects_mr_reg,
	.mr_dereg = objects_mr_dereg,
	.cq_create = objects_cq_create,
	.cq_destroy = objects_cq_destroy,
	.cq_poll = objects_cq_poll,
	.cq_req_notify = objects_cq_req_notify,
	.cq_notified = objects_cq_notified,
	.srq_create = objects_srq_create,
	.srq_destroy = objects_srq_destroy,
	.srq_post_recv = objects_srq_post_recv,
	.lease_open = objects_lease_open,
	.lease_extend = objects_lease_extend,
	.lease_close = objects_lease_close,
	.qp_create = objects_qp_create,
	.qp_destroy = objects_qp_destroy,
	.qp_modify = objects_qp_modify,
	.qp_query = objects_qp_query,
	.qp_post_send = objects_qp_post_send,
	.qp_post_send_ud = objects_qp_post_send_ud,
	.qp_post_recv = objects_qp_post_recv,
	.qp_fence = objects_qp_fence,
	.qp_executed_psn = objects_qp_executed_psn,
	.qp_atomic_results = objects_qp_atomic_results,
	.qp_refusal = objects_qp_refusal,
	.qp_next_psn = objects_qp_next_psn,
	.qp_post_send_dc = objects_qp_post_send_dc,
	.qp_post_send_footed = objects_qp_post_send_footed,
	.qp_dc_source = objects_qp_dc_source,
	.qp_fence_dc = objects_qp_fence_dc,
	.qp_executed_psn_dc = objects_qp_executed_psn_dc,
	.qp_atomic_results_dc = objects_qp_atomic_results_dc,
	.qp_refusal_dc = objects_qp_refusal_dc,
};

static bool is_wildcard(const struct hf_addr *addr)
{
	return (addr->sa.sa_family != AF_INET && addr->sa.sa_family != AF_INET6) || hf_addr_is_any(addr);
}

static void describe(struct soft_nic *nic, struct hf_env *env, const struct hf_dev_config *config)
{
	struct hf_dev_attr *attr = &nic->base.attr;
	const uint32_t caps = HF_DEV_EXECUTED_PSN | HF_DEV_ATOMIC_RESULTS | HF_DEV_ACCESS_IN_RTS | HF_DEV_DC |
			      HF_DEV_ATOMIC_GLOBAL | HF_DEV_SRQ | HF_DEV_DC_EVIDENCE | HF_DEV_FOOTER |
			      HF_DEV_SEND_FENCE | HF_DEV_LEASE | HF_DEV_UD;

	nic->base.ops = &soft_ops;
	nic->base.env = env;
	*attr = (struct hf_dev_attr){.caps = caps & ~config->caps_masked,
		.max_qp_wr = QP_WR_MAX,
		.max_sge = RECV_SGE_MAX,
		.max_inline = INLINE_MAX,
		.max_cqe = CQE_MAX,
		.max_srq_wr = QP_WR_MAX,
		.max_qp = QP_MAX - 2,
		.max_cq = QP_MAX,
		.max_mr = 1u << 20,
		.max_pd = QP_MAX,
		.max_srq = QP_MAX,
		.max_rd_atomic = RD_ATOMIC_MAX,
		.max_msg_bytes = MESSAGE_MAX};
	if (config->node != NULL && config->rail != NULL)
		snprintf(attr->name, sizeof(attr->name), "soft:%.12s/%.12s", config->node, config->rail);
	else
		snprintf(attr->name, sizeof(attr->name), "soft:%.24s", nic->address_text);
}

static int open_socket(struct soft_nic *nic, struct hf_env *env, struct hf_addr *addr, struct hf_error *error)
{
	if (is_wildcard(addr))
		return hf_error_set(error, -EINVAL,
			"a soft NIC needs an address of its own, such as 127.0.0.2: peers send to this address");
	if (hf_addr_port(addr) == 0)
		hf_addr_set_port(addr, ROCE_PORT);
	hf_addr_format(addr, nic->address_text);
	return hf_dgram_open(env, addr, HF_DGRAM_ROCE | HF_DGRAM_GRO, &nic->socket, error);
}

/* The largest whose packets leave in one piece. */
static enum ibv_mtu largest_mtu(struct hf_io *socket)
{
	uint32_t most = hf_dgram_fits(socket);
	enum ibv_mtu mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && (128u << mtu) + PACKET_HEADER_BYTES_MAX + PACKET_ICRC_BYTES > most)
		mtu--;
	return mtu;
}

static int choose_mtu(struct soft_nic *nic, enum ibv_mtu configured, struct hf_error *error)
{
	enum ibv_mtu largest = largest_mtu(nic->socket);

	nic->mtu = configured == 0 ? largest : configured;
	if (nic->mtu <= largest)
		return 0;
	return hf_error_set(error, -EINVAL,
		"%s: an MTU of %u is too large for its interface, which carries at most %u: set that, or omit the mtu",
		nic->address_text, 128u << configured, 128u << largest);
}

static int allocate(struct soft_nic *nic)
{
	nic->engine.tx.memory = aligned_alloc(64, (size_t)TX_RUNS * TX_RUN_BYTES);
	nic->receive_memory = aligned_alloc(64, (size_t)RECV_RUNS * 65536);
	if (nic->engine.tx.memory == NULL || nic->receive_memory == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < RECV_RUNS; i++)
		nic->received[i].data = nic->receive_memory + (size_t)i * 65536;
	return 0;
}

int soft_open(struct hf_env *env, const struct hf_dev_config *config, struct soft_bus *bus, struct hf_dev **dev_out,
	struct hf_error *error)
{
	struct soft_nic *nic = calloc(1, sizeof(*nic));
	struct hf_addr local = config->address;
	int rc = -ENOMEM;

	*dev_out = NULL;
	if (nic == NULL)
		return hf_error_set(error, rc, "no memory left for a soft NIC");
	pthread_mutex_init(&nic->lock, NULL);
	if ((rc = open_socket(nic, env, &local, error)) != 0 || (rc = choose_mtu(nic, config->mtu, error)) != 0)
		goto fail;
	describe(nic, env, config);
	engine_init(&nic->engine, &nic->base, bus, &local);
	nic->engine.wake = wake;
	hf_env_entropy(env, &nic->engine.qp_salt, sizeof(nic->engine.qp_salt));
	if ((rc = allocate(nic)) != 0 || (rc = hf_notifier_open(env, &nic->notifier)) != 0 ||
		(rc = link_open(nic, env, config, error)) != 0 || (rc = nic_thread_start(nic)) != 0)
		goto fail;
	*dev_out = &nic->base;
	return 0;
fail:
	close_nic(&nic->base);
	return rc;
}

static int open_soft(
	struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error)
{
	return soft_open(env, config, &direct, dev_out, error);
}

const struct dev_kind soft_kind = {.name = "soft",
	.what = "a RoCEv2 NIC in user space over UDP, for hosts without RDMA hardware",
	.open = open_soft};
