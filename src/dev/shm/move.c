/* R15: a process that was stopped in the middle of a copy must not write once it continues.
 *
 * Its mapping cannot be taken from it, but the pages can be taken from under it: every registration of this process
 * that shares a page with the range is withdrawn (MR_MOVING; requesters try again), a peer that is in it gets out or is
 * taken over as well, the content goes to fresh pages at the same addresses, and the registrations return with the
 * new file and another generation, so that peers map it anew. The late store lands in pages that are mapped nowhere
 * else.
 *
 * A registration must lie in one file, so the range is extended until it holds whole registrations. All devices of the
 * process take part: the same memory may be registered on several.
 *
 * Private memory that peers are to map gets its shared pages in the same way. */
#include "dev/shm/shm.h"

#include <errno.h>
#include <unistd.h>

static struct list devices = {&devices, &devices};
static atomic_flag devices_lock = ATOMIC_FLAG_INIT; /* also held where registrations come and go */

void move_lock(void)
{
	shm_lock(&devices_lock);
}

void move_unlock(void)
{
	shm_unlock(&devices_lock);
}

void move_add_dev(struct shm_dev *dev)
{
	move_lock();
	list_push_back(&devices, &dev->process_node);
	move_unlock();
}

void move_remove_dev(struct shm_dev *dev)
{
	move_lock();
	list_remove(&dev->process_node);
	move_unlock();
}

struct range {
	uint64_t begin, end; /* whole pages */
};

static struct range whole_pages(uint64_t addr, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (struct range){.begin = addr / page * page, .end = (addr + bytes + page - 1) / page * page};
}

static bool mr_in_range(const struct shm_mr *mr, const struct range *range)
{
	struct range own = whole_pages((uintptr_t)mr->mr.addr, mr->mr.bytes);

	return mr->shared && mr->mr.bytes != 0 && own.begin < range->end && range->begin < own.end;
}

static void each_mr(struct range *range, void (*visit)(struct shm_dev *dev, struct shm_mr *mr, struct range *range))
{
	list_for_each (node, &devices) {
		struct shm_dev *dev = container_of(node, struct shm_dev, process_node);

		for (uint32_t slot = 0; slot < MR_SLOTS; slot++) {
			struct shm_mr *mr = atomic_load(&dev->mrs[slot]);

			if (mr != NULL && mr_in_range(mr, range))
				visit(dev, mr, range);
		}
	}
}

static void extend(struct shm_dev *dev, struct shm_mr *mr, struct range *range)
{
	struct range own = whole_pages((uintptr_t)mr->mr.addr, mr->mr.bytes);

	(void)dev;
	if (mr->kind == MR_PRIVATE) /* needs no file */
		return;
	if (own.begin < range->begin)
		range->begin = own.begin;
	if (own.end > range->end)
		range->end = own.end;
}

static void withdraw(struct shm_dev *dev, struct shm_mr *mr, struct range *range)
{
	(void)range;
	atomic_store(&dev->shared->mrs[mr->slot].word, MR_WORD(mr->generation, MR_MOVING));
}

static void restore(struct shm_dev *dev, struct shm_mr *mr, struct range *range)
{
	struct mr_entry *entry = &dev->shared->mrs[mr->slot];
	enum mr_state state = MR_VALID;
	struct share_backing found;
	int rc = share_backing_find(mr->mr.addr, mr->mr.bytes, &found);

	(void)range;
	if (rc == 0)
		share_backing_hold(&found);
	if (mr->kind != MR_PRIVATE)
		share_backing_release(&mr->backing);
	if (rc == 0) {
		mr->kind = found.movable ? MR_MAPPED : MR_FILE;
		mr->backing = found;
	} else if (mr->kind != MR_PRIVATE) {
		log_error("%s: a region could not be shared again after its pages were moved; peers cannot reach it; "
			  "register it again",
			dev->dev.attr.name);
		mr->kind = MR_PRIVATE;
		mr->shared = false;
		state = MR_LOCAL;
	}
	mr_show_place(entry, mr);
	atomic_store(&entry->word, MR_WORD(++mr->generation, state));
}

static bool is_out_of(const struct qp_slot *slot, const struct range *range)
{
	uint64_t from = atomic_load(&slot->touch_addr);

	return from >= range->end || from + atomic_load(&slot->touch_bytes) <= range->begin;
}

/* A peer that is in the range gets out within a chunk. One that does not is stopped as well, and its operation is taken
 * over; so is one that ends with a footer, which may go there. */
static void clear_out(struct shm_dev *dev, const struct range *range, uint64_t stuck_ns)
{
	uint64_t since = hf_env_now_ns(dev->dev.env);

	for (uint32_t slot = 0; slot < QP_SLOTS; slot++) {
		struct shm_qp *qp = dev->qps[slot];
		uint64_t begun = qp == NULL ? 0 : atomic_load(&qp->shared->op);

		if ((begun & OP_BUSY) == 0 || (begun & OP_TAKEN) != 0)
			continue;
		while (atomic_load(&qp->shared->op) == begun && hf_env_now_ns(dev->dev.env) - since <= stuck_ns)
			cpu_relax();
		if (atomic_load(&qp->shared->op) != begun ||
			(is_out_of(qp->shared, range) && atomic_load(&qp->shared->touch_foot) == FOOT_NONE))
			continue;
		qp_enter_error(qp, IBV_WC_SUCCESS);
		fence_take_op(qp);
		event_push(dev, (struct hf_dev_event){.type = IBV_EVENT_QP_FATAL, .qp = &qp->qp});
	}
}

static int move_pages(struct range *range, uint64_t stuck_ns,
	int (*mover)(void *addr, size_t bytes, struct hf_error *error), struct hf_error *error)
{
	int rc;

	for (struct range before = {0}; before.begin != range->begin || before.end != range->end;) {
		before = *range;
		each_mr(range, extend);
	}
	each_mr(range, withdraw);
	list_for_each (node, &devices)
		clear_out(container_of(node, struct shm_dev, process_node), range, stuck_ns);
	rc = mover((void *)(uintptr_t)range->begin, (size_t)(range->end - range->begin), error);
	each_mr(range, restore);
	return rc;
}

int move_to_shared_pages(void *addr, uint64_t bytes, struct hf_error *error)
{
	struct range range = whole_pages((uintptr_t)addr, bytes);

	return move_pages(&range, STUCK_NS, share_remap, error);
}

static int to_fresh_pages(void *addr, size_t bytes, struct hf_error *error)
{
	struct share_backing backing;

	return share_move_pages(addr, bytes, &backing, error);
}

/* The range that the peer said it touches, believed only as far as it lies in a registration of ours. */
int move_touched(struct shm_qp *qp)
{
	struct shm_dev *dev = shm_dev_of(qp->qp.dev);
	uint64_t addr = atomic_load(&qp->shared->touch_addr), bytes = atomic_load(&qp->shared->touch_bytes);
	uint32_t slot = atomic_load(&qp->shared->touch_mr);
	struct hf_error error = {0};
	struct range range;
	struct shm_mr *mr;
	int rc = -EIO;

	if (bytes == 0)
		return 0;
	move_lock();
	mr = slot < MR_SLOTS ? atomic_load(&dev->mrs[slot]) : NULL;
	if (mr != NULL && mr->kind == MR_MAPPED && addr >= (uintptr_t)mr->mr.addr && bytes <= mr->mr.bytes &&
		addr - (uintptr_t)mr->mr.addr <= mr->mr.bytes - bytes) {
		range = whole_pages(addr, bytes);
		rc = move_pages(&range, qp->stuck_ns, to_fresh_pages, &error);
		if (rc != 0)
			log_error("shm: cannot move the pages that a stopped peer may write to: %s; the fence waits "
				  "for the peer",
				error.text);
	}
	move_unlock();
	return rc;
}
