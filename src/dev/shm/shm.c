/* The shm device: ports of one host whose peers do the work themselves, on memory that all of them have mapped.
 *
 * No thread stands behind a port: a WRITE is a copy by the requester into the responder's registered memory, and the
 * responder's process may sleep through it. What a requester may touch, how it is kept out, and what remains of an
 * operation whose process died or was stopped, is in segment.h; the acknowledgement, which is a step of its own, in
 * progress.c; the fence in fence.c.
 *
 *   a port               shm.c segment.h arena.c events.c
 *   its peers            peer.c bind.c
 *   memory               mr.c move.c
 *   queue pairs          qp.c fence.c
 *   a send wr            post.c -> execute.c receive.c -> progress.c -> cq.c
 *   a receive            recv.c -> cq.c */
#include "dev/shm/shm.h"
#include "env/fault.h"
#include "dev/kinds.h"
#include "env/alarm.h"
#include "env/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MSG_BYTES (1ull << 30)
#define SLEEP_MIN_NS  20000u  /* what it takes to wake up */
#define DRAIN_LOOK_NS 100000u /* whether a requester has got out of the way */

/* ---- what dead ports left ---- */

struct sweep {
	struct share_dir *dir;
	char dead[33]; /* gid whose files go; empty: look for dead ports */
};

static void sweep_arena(const char *name, void *context)
{
	struct sweep *sweep = context;

	if (strncmp(name, sweep->dead, 32) == 0 && name[32] == '.' && strcmp(name + 33, "port") != 0)
		share_dir_remove(sweep->dir, name);
}

static void sweep_port(const char *name, void *context)
{
	struct sweep *sweep = context, files = {.dir = sweep->dir};
	struct share_segment segment;

	if (strspn(name, "0123456789abcdef") != 32 || strcmp(name + 32, ".port") != 0 ||
		share_segment_open(sweep->dir, name, &segment, NULL) != 0)
		return;
	if (segment.bytes >= sizeof(struct segment) && observe(&((struct segment *)segment.addr)->header.open) != 0 &&
		share_owner_lock(&segment)) {
		memcpy(files.dead, name, 32);
		share_dir_list(sweep->dir, sweep_arena, &files);
		share_dir_remove(sweep->dir, name);
	}
	share_segment_close(&segment);
}

/* ---- open and close ---- */

static int create_segment(struct shm_dev *dev, const struct hf_dev_config *config, struct hf_error *error)
{
	struct share_dir *dir = fabric_port_dir(dev->port);
	struct sweep sweep = {.dir = dir};
	struct port_header *header;
	char name[64];
	int rc;

	share_dir_list(dir, sweep_port, &sweep);
	hf_env_entropy(dev->dev.env, dev->gid.raw, sizeof(dev->gid.raw));
	dev->gid.raw[0] = 0xfd; /* an address that no other has */
	port_file(name, dev->gid.raw);
	if ((rc = share_segment_create(dir, name, sizeof(struct segment), &dev->segment, error)) != 0)
		return rc;
	dev->shared = dev->segment.addr;
	header = &dev->shared->header;
	header->version = SEGMENT_VERSION;
	header->pid = getpid();
	memcpy(header->gid, dev->gid.raw, 16);
	snprintf(header->node, sizeof(header->node), "%s", config->node);
	snprintf(header->rail, sizeof(header->rail), "%s", config->rail);
	header->magic = SEGMENT_MAGIC;
	if (!share_owner_lock(&dev->segment))
		return hf_error_set(error, -EIO, "shm: the lock of %s cannot be taken", name);
	publish(&header->open, 1);
	return 0;
}

static void set_attr(struct shm_dev *dev, const struct hf_dev_config *config)
{
	struct hf_dev_attr *attr = &dev->dev.attr;

	*attr = (struct hf_dev_attr){
		.caps = (HF_DEV_EXECUTED_PSN | HF_DEV_ATOMIC_RESULTS | HF_DEV_ACCESS_IN_RTS | HF_DEV_ATOMIC_GLOBAL |
				HF_DEV_SRQ | HF_DEV_FOOTER | HF_DEV_SEND_FENCE) &
			~config->caps_masked,
		.max_qp_wr = SHM_MAX_WR,
		.max_sge = MAX_SGE,
		.max_inline = SHM_MAX_INLINE,
		.max_cqe = 1u << 20,
		.max_srq_wr = SHM_MAX_WR,
		.max_qp = QP_SLOTS - 2,
		.max_cq = CQ_SLOTS,
		.max_mr = MR_SLOTS,
		.max_pd = 1u << 16,
		.max_srq = SRQ_SLOTS,
		.max_rd_atomic = RD_ATOMIC,
		.max_msg_bytes = MAX_MSG_BYTES,
	};
	snprintf(attr->name, sizeof(attr->name), "shm:%.12s/%.12s", config->node, config->rail);
}

static void shm_close(struct hf_dev *base)
{
	struct shm_dev *dev = shm_dev_of(base);
	char name[64];

	if (!list_empty(&dev->process_node))
		move_remove_dev(dev);
	if (dev->shared != NULL) {
		atomic_store(&dev->shared->header.open, 0);
		arena_close(dev);
		port_file(name, dev->gid.raw);
		share_dir_remove(fabric_port_dir(dev->port), name);
		share_segment_close(&dev->segment);
	}
	hf_io_close(dev->io);
	hf_io_close(dev->alarm);
	if (dev->own_bell >= 0)
		close(dev->own_bell);
	if (dev->port != NULL)
		fabric_leave(dev->port);
	free(dev->events);
	free(dev);
}

static const struct hf_dev_ops shm_ops;

static struct shm_dev *new_dev(struct hf_env *env, const struct hf_dev_config *config)
{
	struct shm_dev *dev = aligned_alloc(64, (sizeof(*dev) + 63) / 64 * 64);

	if (dev == NULL)
		return NULL;
	fault_catch(); /* also for those that register nothing: memory of peers */
	memset(dev, 0, sizeof(*dev));
	dev->dev.ops = &shm_ops;
	dev->dev.env = env;
	dev->events = malloc(SHM_EVENTS * sizeof(*dev->events)); /* not cleared: untouched, it takes no memory */
	if (dev->events == NULL) {
		free(dev);
		return NULL;
	}
	dev->own_bell = -1;
	dev->remap_private = config->remap_private;
	dev->mtu = config->mtu == 0 ? IBV_MTU_4096 : config->mtu;
	atomic_flag_clear(&dev->lock);
	list_init(&dev->stalled);
	list_init(&dev->peers);
	list_init(&dev->process_node);
	for (unsigned i = 0; i < BLOCK_LOGS; i++)
		list_init(&dev->free_blocks[i]);
	set_attr(dev, config);
	return dev;
}

static int open_io(struct shm_dev *dev)
{
	struct hf_io *members[] = {fabric_port_bell(dev->port), NULL};
	int rc = alarm_io_open(&dev->alarm);

	members[1] = dev->alarm;
	return rc != 0 ? rc : env_io_group_open(dev->dev.env, members, 2, &dev->io);
}

static int shm_open_dev(
	struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error)
{
	struct shm_dev *dev;
	int rc;

	if (config->fabric == NULL || config->node == NULL || config->rail == NULL)
		return hf_error_set(error, -EINVAL, "shm: a port needs the names of its fabric, node and rail");
	if ((dev = new_dev(env, config)) == NULL)
		return -ENOMEM;
	if ((rc = fabric_join(env, config, "", &dev->port, error)) != 0 ||
		(rc = fabric_port_open_bell(dev->port, config->node, config->rail, &dev->own_bell)) != 0 ||
		(rc = open_io(dev)) != 0 || (rc = create_segment(dev, config, error)) != 0) {
		shm_close(&dev->dev);
		return rc;
	}
	dev->line = fabric_port_line(dev->port);
	dev->seen_switches = atomic_load(&dev->line->switches);
	dev->port_down = (atomic_load(&dev->line->link) & HF_LINK_BOTH) == 0;
	move_add_dev(dev);
	*dev_out = &dev->dev;
	return 0;
}

/* ---- the port ---- */

static int shm_query_port(struct hf_dev *base, struct ibv_port_attr *attr_out)
{
	struct shm_dev *dev = shm_dev_of(base);
	bool down = (atomic_load(&dev->line->link) & HF_LINK_BOTH) == 0;

	*attr_out = (struct ibv_port_attr){
		.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = dev->mtu,
		.gid_tbl_len = 1,
		.pkey_tbl_len = 1,
		.max_msg_sz = (uint32_t)MAX_MSG_BYTES,
		.active_width = 1,
		.active_speed = 1,
		.phys_state = down ? 3 : 5, /* Disabled, LinkUp */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}

static union ibv_gid shm_gid(const struct hf_dev *base)
{
	return shm_dev_of(base)->gid;
}

static void set_alarm(struct shm_dev *dev, uint64_t at_ns)
{
	if (dev->alarm_ns != at_ns)
		alarm_io_set(dev->alarm, at_ns);
	dev->alarm_ns = at_ns;
}

void shm_wake_by(struct shm_dev *dev, uint64_t at_ns)
{
	if (atomic_load(&dev->shared->header.armed) != 0 && (dev->alarm_ns == 0 || dev->alarm_ns > at_ns))
		set_alarm(dev, at_ns);
}

static enum hf_poll shm_poll(struct hf_dev *base, uint64_t now_ns)
{
	struct shm_dev *dev = shm_dev_of(base);
	bool look = now_ns >= dev->look_after_peers_ns, busy;

	if (dev->alarm_ns != 0 && now_ns >= dev->alarm_ns)
		set_alarm(dev, 0);
	events_clear_bell(dev, look);
	busy = events_look(dev);
	if (look)
		peers_look_now(dev, now_ns);
	if (!list_empty(&dev->stalled))
		busy = progress_all(dev, now_ns) || busy;
	return busy ? HF_BUSY : HF_IDLE;
}

static struct hf_io *shm_io(struct hf_dev *base)
{
	return shm_dev_of(base)->io;
}

static bool has_work(struct shm_dev *dev)
{
	struct port_header *header = &dev->shared->header;

	if (qp_bitmap_any(&header->faults) || events_pending(dev) ||
		atomic_load(&dev->line->switches) != dev->seen_switches)
		return true;
	for (uint32_t slot = 0; slot < CQ_SLOTS; slot++)
		if (dev->cqs[slot] != NULL && cq_has_work(dev->cqs[slot]))
			return true;
	return false;
}

/* When something is due without an event; UINT64_MAX: nothing is. */
static uint64_t next_due_ns(struct shm_dev *dev, uint64_t now_ns)
{
	uint64_t due_ns = list_empty(&dev->stalled) ? UINT64_MAX : progress_due_ns(dev, now_ns);

	for (uint32_t slot = 0; slot < CQ_SLOTS; slot++)
		if (dev->cqs[slot] != NULL && cq_drains(dev->cqs[slot]) && due_ns > now_ns + DRAIN_LOOK_NS)
			due_ns = now_ns + DRAIN_LOOK_NS;
	return due_ns;
}

/* Something that is due soon is not worth a sleep. */
static bool arm_alarm(struct shm_dev *dev)
{
	uint64_t now_ns = hf_env_now_ns(dev->dev.env);
	uint64_t due_ns = next_due_ns(dev, now_ns);

	if (due_ns <= now_ns + SLEEP_MIN_NS)
		return false;
	set_alarm(dev, due_ns == UINT64_MAX ? 0 : due_ns);
	return true;
}

static bool shm_arm(struct hf_dev *base)
{
	struct shm_dev *dev = shm_dev_of(base);

	events_clear_bell(dev, true);
	atomic_store(&dev->shared->header.armed, 1);
	if (!has_work(dev) && arm_alarm(dev))
		return true;
	atomic_store(&dev->shared->header.armed, 0);
	return false;
}

static void shm_counters(struct hf_dev *base, struct hf_dev_counters *counters_out)
{
	struct shm_dev *dev = shm_dev_of(base);

	shm_lock(&dev->lock);
	*counters_out = dev->counters;
	for (uint32_t slot = 0; slot < QP_SLOTS; slot++) {
		const struct shm_qp *qp = dev->qps[slot];

		if (qp == NULL)
			continue;
		counters_out->packets_sent += qp->packets;
		counters_out->bytes_sent += qp->bytes;
		counters_out->packets_received += atomic_load(&qp->shared->packets);
		counters_out->bytes_received += atomic_load(&qp->shared->bytes);
		counters_out->retransmitted += qp->retransmitted;
		counters_out->dropped_link_down += qp->dropped;
	}
	counters_out->executed_bytes = counters_out->bytes_received; /* what arrives is what was executed */
	shm_unlock(&dev->lock);
}

/* ---- protection domains ---- */

static int shm_pd_alloc(struct hf_dev *base, struct hf_pd **pd_out)
{
	struct shm_dev *dev = shm_dev_of(base);
	struct shm_pd *pd = calloc(1, sizeof(*pd));

	if (pd == NULL)
		return -ENOMEM;
	pd->pd.dev = base;
	shm_lock(&dev->lock);
	pd->id = ++dev->next_pd;
	shm_unlock(&dev->lock);
	*pd_out = &pd->pd;
	return 0;
}

static int shm_pd_free(struct hf_pd *base)
{
	struct shm_pd *pd = (struct shm_pd *)base;

	if (pd->users != 0)
		return -EBUSY;
	free(pd);
	return 0;
}

static const struct hf_dev_ops shm_ops = {
	.close = shm_close,
	.query_port = shm_query_port,
	.gid = shm_gid,
	.poll = shm_poll,
	.io = shm_io,
	.arm = shm_arm,
	.get_event = shm_get_event,
	.set_link = shm_set_link,
	.counters = shm_counters,
	.pd_alloc = shm_pd_alloc,
	.pd_free = shm_pd_free,
	.mr_reg = shm_mr_reg,
	.mr_dereg = shm_mr_dereg,
	.cq_create = shm_cq_create,
	.cq_destroy = shm_cq_destroy,
	.cq_poll = shm_cq_poll,
	.cq_req_notify = shm_cq_req_notify,
	.cq_notified = shm_cq_notified,
	.srq_create = shm_srq_create,
	.srq_destroy = shm_srq_destroy,
	.srq_post_recv = shm_srq_post_recv,
	.qp_create = shm_qp_create,
	.qp_destroy = shm_qp_destroy,
	.qp_modify = shm_qp_modify,
	.qp_query = shm_qp_query,
	.qp_post_send = shm_qp_post_send,
	.qp_post_send_footed = shm_qp_post_send_footed,
	.qp_post_recv = shm_qp_post_recv,
	.qp_fence = shm_qp_fence,
	.qp_executed_psn = shm_qp_executed_psn,
	.qp_atomic_results = shm_qp_atomic_results,
	.qp_next_psn = shm_qp_next_psn,
};

const struct dev_kind shm_kind = {
	.name = "shm",
	.what = "processes of one host: the requester performs the operation on the memory of its peer",
	.open = shm_open_dev,
};
