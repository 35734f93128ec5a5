/* share.h - objects shared by processes of one host: named segments, memory of a peer, doorbells, live processes.
 *
 * The one-host part of env: the shm device and the fabric use it, the simulator has none of it. Named objects
 * are in a directory of mode 0700 below /dev/shm. A process that dies leaves files behind but no lock: the next
 * process finds the lock free (share_owner_lock) and removes them. */
#ifndef HOLDFAST_ENV_SHARE_H
#define HOLDFAST_ENV_SHARE_H

#include <holdfast/env.h>

/* Opens, or makes, /dev/shm/holdfast-UID-NAME; names (of files too) have [a-z0-9._-] only, do not begin with a dot and
 * have at most SHARE_NAME_MAX bytes: -EINVAL. -EACCES when another user owns it or has access to it. */
#define SHARE_NAME_MAX 96
bool share_name_valid(const char *name);
struct share_dir;
int share_dir_open(const char *name, struct share_dir **dir_out, struct hf_error *error);
/* -ENOENT unless it is there. */
int share_dir_find(const char *name, struct share_dir **dir_out, struct hf_error *error);
/* Calls found(name, context) for every directory of this user. */
int share_dir_each(void (*found)(const char *name, void *context), void *context);
void share_dir_close(struct share_dir *dir);
/* Calls found(name, context) for every file. */
int share_dir_list(struct share_dir *dir, void (*found)(const char *name, void *context), void *context);
int share_dir_remove(struct share_dir *dir, const char *file);
/* Removes the directory: -ENOTEMPTY while it has files. Its handle is closed as before; it makes no files any more. */
int share_dir_delete(struct share_dir *dir);

/* A file of the directory, mapped shared and writable, zeroed when new. */
struct share_segment {
	void *addr;
	size_t bytes;
	int fd;
	bool owned; /* share_owner_lock succeeded on it */
};
/* Its memory is there when it returns (-ENOSPC with words otherwise, never a SIGBUS later), and others see it whole. */
int share_segment_create(struct share_dir *dir, const char *file, size_t bytes, struct share_segment *out,
	struct hf_error *error); /* -EEXIST: it is there */
int share_segment_open(struct share_dir *dir, const char *file, struct share_segment *out, struct hf_error *error);
void share_segment_close(struct share_segment *segment);
bool share_segment_has_name(const struct share_segment *segment); /* its file was not removed */
/* A lock that the kernel drops with its owner. True: this process holds it now, and an earlier owner has ended. */
bool share_owner_lock(struct share_segment *segment);
/* True when a live process, this one included, holds it. */
bool share_owner_alive(struct share_segment *segment);

/* More locks of that kind, by number from 0. They belong to the opened segment, so two openings exclude one another,
 * in one process too; closing it or dying releases them. A child that forks without exec keeps them held. */
bool share_slot_lock(struct share_segment *segment, unsigned slot);
void share_slot_unlock(struct share_segment *segment, unsigned slot);
/* True when another opening holds it. */
bool share_slot_locked(struct share_segment *segment, unsigned slot);
/* Waits for a short critical section of others; -ETIMEDOUT after about two seconds (its holder was stopped). */
int share_slot_wait(struct share_segment *segment, unsigned slot);

/* Memory that can be shared: the file that backs [addr, addr + bytes). -ENOENT: private memory, at least in part, with
 * only `writable` filled. -EFAULT: not all of it is mapped, and readable. -EXDEV: shared, but in several files since a
 * part was moved (share_move_pages of the whole makes it one again). fd is ours. For hf_mem_alloc and hf_mem_map_file
 * it is open as long as the memory exists; for other memory until the next one is found, and while it is held. */
struct share_backing {
	int fd;
	uint64_t offset;
	uint64_t inode; /* lets a peer check that it opened the same file */
	bool writable;
	bool movable; /* share_move_pages can move it: it is not a file's */
	bool opened;  /* a file's, and fd was opened for this */
};
int share_backing_find(const void *addr, size_t bytes, struct share_backing *out);
/* Behind the last holder fd is closed. Nothing to do for memory of hf_mem_alloc and hf_mem_map_file. */
void share_backing_hold(const struct share_backing *backing);
void share_backing_release(const struct share_backing *backing);
/* Maps a peer's file fd as seen through its process; -ESTALE when that is not the inode any more (it died). */
int share_peer_map(pid_t pid, int fd, uint64_t inode, uint64_t offset, size_t bytes, bool writable, void **addr_out);
void share_peer_unmap(void *addr, size_t bytes);
/* Gives [addr, addr + bytes) (whole pages of private memory, or of memory that was remapped before) shared pages with
 * the same content, so that share_backing_find finds them. No store of our own threads is lost, as in
 * share_move_pages. From then on, for the rest of the mapping's life, a forked child shares these pages with us, and
 * MADV_DONTNEED does not zero them. -EOPNOTSUPP with words: a stack, reserved huge pages, not writable, or no
 * userfaultfd. */
int share_remap(void *addr, size_t bytes, struct hf_error *error);
/* Moves [addr, addr + bytes) (whole pages, of one hf_mem_alloc; others are remapped) to fresh pages with the same
 * content: stores through older mappings of peers land in orphaned pages. Our own threads' stores are not lost: they
 * wait meanwhile (milliseconds for megabytes). Without privilege a system call of ours that stores into the range
 * meanwhile fails with EFAULT. Fills the new backing. Nothing has moved unless it returns 0. -EOPNOTSUPP: memory of a
 * file, which must stay the file's, or of a stack; or the kernel (or a container's seccomp filter) has no userfaultfd,
 * and this process has several threads, whose stores could be lost. */
int share_move_pages(void *addr, size_t bytes, struct share_backing *out, struct hf_error *error);

/* This process, by the number that others know it by. */
pid_t share_own_pid(void);

/* A process, safely against reuse of its number. */
struct share_process;
int share_process_open(pid_t pid, struct share_process **process_out); /* -ESRCH: gone */
bool share_process_exited(struct share_process *process);
void share_process_close(struct share_process *process);

/* A doorbell that any process of the directory's owner can ring by name; ours is an io that becomes readable. */
int share_bell_create(struct hf_env *env, struct share_dir *dir, const char *file, struct hf_io **io_out);
int share_bell_open(struct share_dir *dir, const char *file, int *fd_out);
void share_bell_ring(int fd);
void share_bell_clear(struct hf_io *io);

#endif
