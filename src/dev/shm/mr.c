/* Registrations: an entry of the table that peers map the memory from.
 *
 * Keys are random but for their low bits, which name the entry; lkey and rkey differ, so that one does not pass for the
 * other. Memory of hf_mem_alloc and of shared file mappings is mapped by peers. Private memory gets shared pages when
 * it is registered for remote atomics (move.c), as the device's configuration may ask for all of it; into any other the
 * kernel copies for the peers (reach.c). Where the host forbids that too, it serves as the local buffer of wrs. */
#include "dev/shm/shm.h"
#include "env/fault.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t random_key(struct shm_dev *dev, uint32_t slot)
{
	uint32_t key;

	do {
		hf_env_entropy(dev->dev.env, &key, sizeof(key));
		key = (key & ~SLOT_MASK) | slot;
	} while (key <= SLOT_MASK);
	return key;
}

#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Private memory: peers map it when it has to be so, or is to be so; otherwise the kernel copies for them. */
static int admit(struct shm_dev *dev, struct shm_mr *mr, void *addr, uint64_t bytes, int access, struct hf_error *error)
{
	bool admitted = guard_admit_peers() == 0;
	bool atomics = (access & IBV_ACCESS_REMOTE_ATOMIC) != 0, remote = (access & REMOTE_ACCESS) != 0;
	struct hf_error why = {0};

	mr->kind = MR_PRIVATE;
	mr->shared = admitted;
	if (bytes == 0 || (!atomics && !dev->remap_private && (admitted || !remote)))
		return 0;
	if (move_to_shared_pages(addr, bytes, &why) == 0 &&
		share_backing_find(addr, (size_t)bytes, &mr->backing) == 0) {
		mr->kind = MR_MAPPED;
		mr->shared = true;
		return 0;
	}
	if (atomics)
		return hf_error_set(error, -EOPNOTSUPP,
			"shm: no remote atomics in this memory, since peers cannot map it: %.120s; allocate it with "
			"hf_mem_alloc",
			why.text);
	if (remote && !admitted)
		return hf_error_set(error, -EOPNOTSUPP,
			"shm: kernel.yama.ptrace_scope keeps peers out of private memory, and they cannot map it: "
			"%.120s; set it to 0 or 1, or allocate the memory with hf_mem_alloc",
			why.text);
	return 0;
}

static int find_backing(
	struct shm_dev *dev, struct shm_mr *mr, void *addr, uint64_t bytes, int access, struct hf_error *error)
{
	int rc = share_backing_find(addr, (size_t)bytes, &mr->backing);

	if (rc == -EFAULT)
		return hf_error_set(error, rc, "shm: not all of the memory is mapped and readable");
	if (bytes != 0 && rc != -EXDEV && !mr->backing.writable && (access & IBV_ACCESS_LOCAL_WRITE))
		return hf_error_set(
			error, -EACCES, "shm: the memory is mapped read-only: register it without write access");
	mr->shared = true;
	mr->kind = mr->backing.movable ? MR_MAPPED : MR_FILE;
	return rc == -ENOENT || rc == -EXDEV ? admit(dev, mr, addr, bytes, access, error) : rc;
}

static int take_slot(struct shm_dev *dev, struct shm_mr *mr)
{
	uint32_t start;
	int rc = -ENOMEM;

	hf_env_entropy(dev->dev.env, &start, sizeof(start));
	for (uint32_t i = 0; i < MR_SLOTS && rc != 0; i++) {
		uint32_t slot = (start + i) & SLOT_MASK;

		if (atomic_load(&dev->mrs[slot]) == NULL) {
			mr->slot = slot;
			rc = 0;
		}
	}
	return rc;
}

/* Where peers find it. */
void mr_show_place(struct mr_entry *entry, const struct shm_mr *mr)
{
	entry->kind = mr->kind;
	entry->fd = mr->kind == MR_PRIVATE ? -1 : mr->backing.fd;
	entry->inode = mr->backing.inode;
	entry->offset = mr->backing.offset;
}

static void show(struct shm_dev *dev, struct shm_mr *mr)
{
	struct mr_entry *entry = &dev->shared->mrs[mr->slot];

	entry->rkey = mr->mr.rkey;
	entry->lkey = mr->mr.lkey;
	entry->access = (uint32_t)mr->mr.access;
	entry->pd = ((struct shm_pd *)mr->mr.pd)->id;
	mr_show_place(entry, mr);
	entry->iova = mr->mr.iova;
	entry->addr = (uintptr_t)mr->mr.addr;
	entry->bytes = mr->mr.bytes;
	mr->generation = (atomic_load(&entry->word) >> 8) + 1;
	atomic_store(&entry->word, MR_WORD(mr->generation, mr->shared ? MR_VALID : MR_LOCAL));
}

int shm_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error)
{
	struct shm_dev *dev = shm_dev_of(pd->dev);
	struct shm_mr *mr = calloc(1, sizeof(*mr));
	int rc;

	if (mr == NULL)
		return -ENOMEM;
	fault_catch();
	move_lock(); /* pages must not move between finding and showing their file */
	rc = find_backing(dev, mr, addr, bytes, access, error);
	if (rc == 0 && (rc = take_slot(dev, mr)) != 0)
		hf_error_set(error, rc, "shm: all %u registrations of the port are taken", MR_SLOTS);
	if (rc == 0) {
		mr->mr = (struct hf_mr){.dev = pd->dev,
			.pd = pd,
			.addr = addr,
			.bytes = bytes,
			.iova = iova,
			.lkey = random_key(dev, mr->slot),
			.rkey = random_key(dev, mr->slot),
			.access = access};
		((struct shm_pd *)pd)->users++;
		if (mr->kind != MR_PRIVATE)
			share_backing_hold(&mr->backing);
		show(dev, mr);
		atomic_store(&dev->mrs[mr->slot], mr);
	}
	move_unlock();
	if (rc != 0) {
		free(mr);
		return rc;
	}
	*mr_out = &mr->mr;
	return 0;
}

int shm_mr_dereg(struct hf_mr *base)
{
	struct shm_mr *mr = (struct shm_mr *)base;
	struct shm_dev *dev = shm_dev_of(base->dev);
	_Atomic uint64_t *word = &dev->shared->mrs[mr->slot].word;
	int rc;

	atomic_store(word, MR_WORD(mr->generation, MR_REVOKED));
	if (mr->shared && (rc = fence_quiesce_all(dev)) != 0)
		return rc;
	move_lock();
	atomic_store(word, MR_WORD(mr->generation, MR_FREE));
	atomic_store(&dev->mrs[mr->slot], NULL);
	if (mr->kind != MR_PRIVATE)
		share_backing_release(&mr->backing);
	move_unlock();
	((struct shm_pd *)base->pd)->users--;
	free(mr);
	return 0;
}
