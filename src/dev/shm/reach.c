/* Memory of a peer that is reached otherwise than by a plain copy to its mapping.
 *
 * A file's pages cannot be moved from under a stopped requester, and a program's private memory has no mapping here at
 * all: the kernel copies for us (process_vm_writev and process_vm_readv). Either way a store is guarded (SEG-4): the op
 * word is the gate, so that once the owner has taken the operation over nothing more is stored. The look at the state,
 * the registration and the links came before, as with any other copy (SEG-1).
 *
 * In private memory eight bytes are not promised to be seen at once, and there are no atomics: memory registered for
 * remote atomics is always mapped (mr.c). */
#include "dev/shm/shm.h"
#include "dev/shm/cursor.h"

#include <errno.h>

/* What it takes to see whether a process lives is little beside a copy by the kernel, and a number of a process that
 * has died may be another's. */
static bool peer_lives(struct peer *peer)
{
	return !peer_is_gone(peer);
}

static enum wr_outcome outcome_of(int rc)
{
	if (rc == 0)
		return WR_DONE;
	/* Not there, or its process cannot be reached: the program's error, which another path would not mend. */
	return rc == -EFAULT || rc == -EPERM ? WR_FAILED : WR_NO_ANSWER;
}

static unsigned local_pieces(struct cursor *cursor, size_t bytes, struct iovec pieces[MAX_SGE])
{
	unsigned n = 0;

	while (bytes > 0 && n < MAX_SGE) {
		size_t part;

		pieces[n].iov_base = cursor_at(cursor, bytes, &part);
		pieces[n].iov_len = part;
		n += part != 0;
		bytes -= part;
		cursor_pass(cursor, part);
	}
	return n;
}

static struct guard guard_of(const struct shm_qp *qp)
{
	return (struct guard){.word = &qp->remote->op, .open = qp->op | OP_BUSY};
}

static enum wr_outcome store_mapped(struct shm_qp *qp, uint8_t *to, struct cursor *from, size_t bytes)
{
	while (bytes > 0) {
		size_t part;
		const uint8_t *local = cursor_at(from, bytes, &part);
		int rc = part == 0 ? 0 : guard_store(guard_of(qp), to, local, part);

		if (rc != 0)
			return outcome_of(rc);
		to += part;
		bytes -= part;
		cursor_pass(from, part);
	}
	return WR_DONE;
}

enum wr_outcome reach_store(
	struct shm_qp *qp, const struct region *region, uint64_t offset, struct cursor *from, size_t bytes)
{
	struct iovec pieces[MAX_SGE];
	unsigned n;

	if (bytes == 0)
		return WR_DONE;
	if (region->at != NULL)
		return store_mapped(qp, region->at + offset, from, bytes);
	if (!peer_lives(qp->peer))
		return WR_NO_ANSWER;
	n = local_pieces(from, bytes, pieces);
	return outcome_of(
		guard_write(guard_of(qp), qp->peer->shared->header.pid, pieces, n, region->addr + offset, bytes));
}

enum wr_outcome reach_load(
	struct shm_qp *qp, const struct region *region, uint64_t offset, struct cursor *to, size_t bytes)
{
	struct iovec pieces[MAX_SGE];
	unsigned n;

	if (bytes == 0)
		return WR_DONE;
	if (!peer_lives(qp->peer))
		return WR_NO_ANSWER;
	n = local_pieces(to, bytes, pieces);
	return outcome_of(guard_read(qp->peer->shared->header.pid, pieces, n, region->addr + offset, bytes));
}
