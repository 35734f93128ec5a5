/* The layer between product code and the soft engine's operations. */
#include "sim/device.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "dev/kinds.h"
#include "dev/soft/soft.h"

#define FENCE_PATIENCE_NS (50 * NS_MS) /* nobody has to wait longer than that for a fence */
#define FENCE_MOMENT_PPM  300000u      /* of calls that find it still in progress */

struct nic *nic_of(const struct hf_dev *dev)
{
	list_for_each (at, &env_process(dev->env)->nics) {
		struct nic *nic = container_of(at, struct nic, node);

		if (nic->dev == dev)
			return nic;
	}
	ensure(false);
	return NULL;
}

struct nic *nic_at(const struct port *port)
{
	list_for_each (p, &port->host->processes) {
		struct process *process = container_of(p, struct process, node);

		list_for_each (n, &process->nics) {
			struct nic *nic = container_of(n, struct nic, node);

			if (nic->port == port)
				return nic;
		}
	}
	return NULL;
}

static void nic_free(struct nic *nic)
{
	bus_free(&nic->bus);
	table_free(&nic->unfenced);
	list_remove(&nic->node);
	free(nic);
}

static void nic_close(struct hf_dev *dev)
{
	struct nic *nic = nic_of(dev);

	nic->engine->close(dev);
	nic_free(nic);
}

static int nic_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error)
{
	struct nic *nic = nic_of(pd->dev);
	int rc = nic->engine->mr_reg(pd, addr, bytes, iova, access, mr_out, error);

	if (rc == 0)
		bus_grant(&nic->bus, addr, bytes);
	return rc;
}

static int nic_mr_dereg(struct hf_mr *mr)
{
	struct nic *nic = nic_of(mr->dev);
	void *addr = mr->addr;
	uint64_t bytes = mr->bytes;
	int rc = nic->engine->mr_dereg(mr);

	if (rc == 0)
		bus_revoke(&nic->bus, addr, bytes);
	return rc;
}

static int nic_cq_destroy(struct hf_cq *cq)
{
	struct nic *nic = nic_of(cq->dev);
	int rc = nic->engine->cq_destroy(cq);

	if (rc == 0)
		bus_forget(&nic->bus, cq);
	return rc;
}

static int fence_failed(struct nic *nic)
{
	nic->port->fence_failures++;
	return -EIO;
}

/* One of the engine's two fences: of a qp, or of one source at a DC target. */
static int try_fence(struct nic *nic, struct hf_qp *qp, const struct hf_dc_source *source)
{
	uint64_t now_ns = nic->bus.world->now_ns;
	int rc;

	if (nic->dead || now_ns < nic->fence_fails_until_ns)
		return fence_failed(nic);
	if (nic->fence_slow_until_ns > now_ns + FENCE_PATIENCE_NS ||
		nic->drain_hangs_until_ns > now_ns + FENCE_PATIENCE_NS)
		nic->port->fence_failures++;
	/* The psn may go on for a moment after ERR. */
	if (now_ns < nic->fence_slow_until_ns || world_chance(nic->bus.world, FENCE_MOMENT_PPM))
		return -EINPROGRESS;
	nic->bus.stuck = now_ns < nic->drain_hangs_until_ns || now_ns < nic->drain_fails_until_ns;
	rc = source == NULL ? nic->engine->qp_fence(qp) : nic->engine->qp_fence_dc(qp, source);
	if (rc == 0 && nic->bus.stuck)
		rc = now_ns < nic->drain_fails_until_ns ? fence_failed(nic) : -EINPROGRESS;
	nic->bus.stuck = false;
	return rc;
}

/* Whoever cannot wait any longer ends a qp whose fence goes on, and with it what it could have told. */
static int fence_on_bus(struct hf_qp *qp, const struct hf_dc_source *source)
{
	struct nic *nic = nic_of(qp->dev);
	uint64_t now_ns = nic->bus.world->now_ns;
	int rc = try_fence(nic, qp, source);

	table_remove(&nic->unfenced, qp->qp_num);
	if (rc == -EINPROGRESS && (now_ns < nic->fence_slow_until_ns || now_ns < nic->drain_hangs_until_ns))
		ensure(table_put(&nic->unfenced, qp->qp_num, qp) == 0);
	return rc;
}

static int nic_qp_destroy(struct hf_qp *qp)
{
	struct nic *nic = nic_of(qp->dev);

	nic->port->fence_failures += table_get(&nic->unfenced, qp->qp_num) != NULL;
	table_remove(&nic->unfenced, qp->qp_num);
	return nic->engine->qp_destroy(qp);
}

static int nic_qp_fence(struct hf_qp *qp)
{
	return fence_on_bus(qp, NULL);
}

static int nic_qp_fence_dc(struct hf_qp *target, const struct hf_dc_source *source)
{
	return fence_on_bus(target, source);
}

/* The operations of the engine, behind a step at which the turn may be torn. */
static const struct hf_dev_ops *engine_behind_step(const struct hf_qp *qp)
{
	struct nic *nic = nic_of(qp->dev);

	process_device_step(nic->process);
	return nic->engine;
}

static int nic_qp_modify(struct hf_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return engine_behind_step(qp)->qp_modify(qp, attr, mask);
}

static int nic_qp_post_send(struct hf_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return engine_behind_step(qp)->qp_post_send(qp, wr, bad_wr);
}

static int nic_qp_post_send_dc(
	struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return engine_behind_step(qp)->qp_post_send_dc(qp, dest, wr, bad_wr);
}

static int nic_qp_post_send_ud(
	struct hf_qp *qp, const struct hf_ud_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return engine_behind_step(qp)->qp_post_send_ud(qp, dest, wr, bad_wr);
}

static int nic_qp_post_send_footed(struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	return engine_behind_step(qp)->qp_post_send_footed(qp, dest, wr, footers, bad_wr);
}

static int nic_get_event(struct hf_dev *dev, struct hf_dev_event *event_out)
{
	struct nic *nic = nic_of(dev);

	if (!nic->fatal_pending)
		return nic->engine->get_event(dev, event_out);
	nic->fatal_pending = false;
	*event_out = (struct hf_dev_event){.type = IBV_EVENT_DEVICE_FATAL};
	return 1;
}

static int open_on_bus(
	struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error)
{
	struct process *process = env_process(env);
	struct hf_dev_config simulated = *config;
	struct nic *nic = calloc(1, sizeof(*nic));
	int rc;

	if (nic == NULL)
		return -ENOMEM;
	nic->process = process;
	nic->port = network_find(process->host->network, &config->address);
	simulated.fabric = NULL; /* links are switched by faults here, not by other processes */
	simulated.caps_masked |= process->host->caps_masked;
	list_push_back(&process->nics, &nic->node);
	bus_init(&nic->bus, nic, process_world(process), (simulated.caps_masked & HF_DEV_ATOMIC_GLOBAL) == 0);
	rc = soft_open(env, &simulated, &nic->bus.base, dev_out, error);
	if (rc != 0 || nic->port == NULL) {
		nic_free(nic);
		return rc != 0 ? rc : -EADDRNOTAVAIL;
	}
	nic->dev = *dev_out;
	if (process->host->rd_atomic != 0)
		nic->dev->attr.max_rd_atomic = process->host->rd_atomic;
	if (process->host->qp_wr != 0)
		nic->dev->attr.max_qp_wr = process->host->qp_wr;
	nic->engine = nic->dev->ops;
	nic->ops = *nic->engine;
	nic->ops.close = nic_close;
	nic->ops.mr_reg = nic_mr_reg;
	nic->ops.mr_dereg = nic_mr_dereg;
	nic->ops.cq_destroy = nic_cq_destroy;
	nic->ops.qp_destroy = nic_qp_destroy;
	nic->ops.qp_fence = nic_qp_fence;
	nic->ops.qp_fence_dc = nic_qp_fence_dc;
	nic->ops.qp_modify = nic_qp_modify;
	nic->ops.qp_post_send = nic_qp_post_send;
	nic->ops.qp_post_send_dc = nic_qp_post_send_dc;
	nic->ops.qp_post_send_ud = nic_qp_post_send_ud;
	nic->ops.qp_post_send_footed = nic_qp_post_send_footed;
	nic->ops.get_event = nic_get_event;
	nic->dev->ops = &nic->ops;
	nic->port->dark = false;
	if (nic->port->downs > 0)
		nic_set_link(nic, false);
	return 0;
}

void device_register(void)
{
	static const struct dev_kind kind = {
		.name = "soft", .what = "RoCEv2 in user space, on a simulated bus", .open = open_on_bus};

	dev_kind_add(&kind);
}

void device_abandon(struct process *process)
{
	list_for_each (at, &process->nics)
		bus_kill(&container_of(at, struct nic, node)->bus);
}

void nic_crash(struct nic *nic, bool with_events)
{
	if (nic->dead)
		return;
	if (with_events) {
		nic->fatal_pending = true;
		nic->engine->set_link(nic->dev, HF_LINK_BOTH, false); /* wakes whoever waits for events */
	}
	nic->dead = true;
	nic->port->nic_crashes++;
	nic->port->dark = true;
	bus_kill(&nic->bus);
}

void nic_set_link(struct nic *nic, bool up)
{
	if (!nic->dead)
		nic->engine->set_link(nic->dev, HF_LINK_BOTH, up);
}
