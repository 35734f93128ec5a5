/* The world's front: every call goes to the ops of the world, io or file that it is made on.
 *
 * An operation that an io has not (reading from a listener, say) is answered with -EOPNOTSUPP. */
#include "env/world.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "env/group.h"
#include "env/pause.h"

uint64_t hf_env_now_ns(struct hf_env *env)
{
	return env->ops->now_ns(env);
}

void env_pause(struct hf_env *env, uint64_t ns)
{
	if (env->ops->pause != NULL)
		env->ops->pause(env, ns);
}

void env_relax(struct hf_env *env)
{
	if (env->ops->relax != NULL)
		env->ops->relax(env);
}

uint64_t hf_env_boot_ns(struct hf_env *env)
{
	return env->ops->boot_ns(env);
}

bool hf_env_boot_id(struct hf_env *env, uint8_t id[HF_BOOT_ID_BYTES])
{
	memset(id, 0, HF_BOOT_ID_BYTES);
	return env->ops->boot_id(env, id);
}

uint64_t hf_env_wall_ns(struct hf_env *env)
{
	return env->ops->wall_ns(env);
}

void hf_env_entropy(struct hf_env *env, void *data, size_t bytes)
{
	env->ops->entropy(env, data, bytes);
}

bool hf_addr_is_local(struct hf_env *env, const struct hf_addr *addr)
{
	return env->ops->addr_is_local(env, addr);
}

/* ---- any io ---- */

void hf_io_close(struct hf_io *io)
{
	if (io == NULL)
		return;
	if (io->watch != NULL)
		hf_loop_unwatch(io->watch);
	io->ops->close(io);
}

int hf_io_local(struct hf_io *io, struct hf_addr *addr_out)
{
	return io->ops->local == NULL ? -EOPNOTSUPP : io->ops->local(io, addr_out);
}

int env_io_group_open(struct hf_env *env, struct hf_io *const *members, unsigned n, struct hf_io **io_out)
{
	*io_out = NULL;
	return env->ops->group_open == NULL ? -EOPNOTSUPP : env->ops->group_open(env, members, n, io_out);
}

/* ---- datagrams ---- */

int hf_dgram_open(
	struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out, struct hf_error *error)
{
	*io_out = NULL;
	return env->ops->dgram_open(env, local, flags, io_out, error);
}

int hf_dgram_send(struct hf_io *io, const struct hf_dgram *dgrams, unsigned n)
{
	return io->ops->dgram_send == NULL ? -EOPNOTSUPP : io->ops->dgram_send(io, dgrams, n);
}

uint32_t hf_dgram_fits(struct hf_io *io)
{
	return io->ops->dgram_fits == NULL ? HF_DGRAM_MAX_BYTES : io->ops->dgram_fits(io);
}

int hf_dgram_recv(struct hf_io *io, struct hf_dgram *dgrams, unsigned n)
{
	return io->ops->dgram_recv == NULL ? -EOPNOTSUPP : io->ops->dgram_recv(io, dgrams, n);
}

/* ---- streams ---- */

int hf_stream_listen(struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error)
{
	*io_out = NULL;
	return env->ops->stream_listen(env, local, io_out, error);
}

int hf_stream_accept(struct hf_io *listener, struct hf_io **io_out, struct hf_addr *peer_out)
{
	*io_out = NULL;
	return listener->ops->accept == NULL ? -EOPNOTSUPP : listener->ops->accept(listener, io_out, peer_out);
}

int hf_stream_connect(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
	struct hf_io **io_out, struct hf_error *error)
{
	*io_out = NULL;
	return env->ops->stream_connect(env, local, peer, io_out, error);
}

int hf_stream_connect_path(struct hf_env *env, const char *path, struct hf_io **io_out, struct hf_error *error)
{
	*io_out = NULL;
	if (env->ops->stream_connect_path == NULL)
		return hf_error_set(error, -EOPNOTSUPP, "sockets with a path are not supported here");
	return env->ops->stream_connect_path(env, path, io_out, error);
}

ssize_t hf_stream_read(struct hf_io *io, void *data, size_t bytes)
{
	return io->ops->read == NULL ? -EOPNOTSUPP : io->ops->read(io, data, bytes);
}

ssize_t hf_stream_write(struct hf_io *io, const void *data, size_t bytes)
{
	struct iovec piece = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};

	return hf_stream_writev(io, &piece, 1);
}

ssize_t hf_stream_writev(struct hf_io *io, const struct iovec *pieces, unsigned n)
{
	if (io->ops->writev == NULL)
		return -EOPNOTSUPP;
	return io->ops->writev(io, pieces, n > HF_STREAM_MAX_PIECES ? HF_STREAM_MAX_PIECES : n);
}

ssize_t hf_stream_writev_kept(struct hf_io *io, const struct iovec *pieces, unsigned n)
{
	if (io->ops->writev_kept == NULL)
		return -EOPNOTSUPP;
	return io->ops->writev_kept(io, pieces, n > HF_STREAM_MAX_PIECES ? HF_STREAM_MAX_PIECES : n);
}

unsigned hf_stream_let_go(struct hf_io *io, bool *copied_out)
{
	*copied_out = false;
	return io->ops->let_go == NULL ? 0 : io->ops->let_go(io, copied_out);
}

/* ---- notifiers ---- */

int hf_notifier_open(struct hf_env *env, struct hf_io **io_out)
{
	*io_out = NULL;
	return env->ops->notifier_open(env, io_out);
}

void hf_notifier_signal(struct hf_io *io)
{
	ensure(io->ops->signal != NULL);
	io->ops->signal(io);
}

void hf_notifier_clear(struct hf_io *io)
{
	ensure(io->ops->clear != NULL);
	io->ops->clear(io);
}

/* ---- threads ---- */

int hf_thread_start(struct hf_env *env, const char *name, enum hf_thread_kind kind,
	void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out)
{
	*thread_out = NULL;
	return env->ops->thread_start(env, name, kind, start, context, thread_out);
}

void hf_thread_stop(struct hf_thread *thread)
{
	if (thread != NULL)
		thread->env->ops->thread_stop(thread);
}

/* ---- files ---- */

int hf_file_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out)
{
	*file_out = NULL;
	return env->ops->file_open(env, path, flags, file_out);
}

void hf_file_close(struct hf_file *file)
{
	if (file != NULL)
		file->ops->close(file);
}

int64_t hf_file_bytes(struct hf_file *file)
{
	return file->ops->bytes(file);
}

int64_t hf_file_changed_ns(struct hf_file *file)
{
	return file->ops->changed_ns(file);
}

int hf_file_mode(struct hf_file *file)
{
	return file->ops->mode(file);
}

int hf_file_identity(struct hf_file *file, uint64_t *device_out, uint64_t *inode_out)
{
	return file->ops->identity(file, device_out, inode_out);
}

int hf_file_next_data(struct hf_file *file, uint64_t from, uint64_t *begin_out, uint64_t *end_out)
{
	return file->ops->next_data(file, from, begin_out, end_out);
}

ssize_t hf_file_read_at(struct hf_file *file, void *data, size_t bytes, uint64_t offset)
{
	return file->ops->read_at(file, data, bytes, offset);
}

ssize_t hf_file_write_at(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	return file->ops->write_at(file, data, bytes, offset);
}

int hf_file_resize(struct hf_file *file, uint64_t bytes)
{
	return file->ops->resize(file, bytes);
}

int hf_file_sync(struct hf_file *file)
{
	return file->ops->sync(file, false);
}

int hf_file_sync_data(struct hf_file *file)
{
	return file->ops->sync(file, true);
}

int hf_file_sync_all(struct hf_file *file)
{
	return file->ops->sync_all != NULL ? file->ops->sync_all(file, false) : -EOPNOTSUPP;
}

bool hf_file_can_sync_all(struct hf_file *file)
{
	return file->ops->sync_all != NULL && file->ops->sync_all(file, true) == 0;
}

int hf_file_lock(struct hf_file *file)
{
	return file->ops->lock(file);
}

int hf_file_rename(struct hf_env *env, const char *from, const char *to)
{
	return env->ops->file_rename(env, from, to);
}

int hf_file_remove(struct hf_env *env, const char *path)
{
	return env->ops->file_remove(env, path);
}

/* ---- directories ---- */

int hf_dir_make(struct hf_env *env, const char *path)
{
	return env->ops->dir_make(env, path);
}

int hf_dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context)
{
	return env->ops->dir_list(env, path, found, context);
}

int hf_dir_remove(struct hf_env *env, const char *path)
{
	return env->ops->dir_remove(env, path);
}

int hf_dir_sync(struct hf_env *env, const char *path)
{
	return env->ops->dir_sync(env, path);
}

int hf_dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out)
{
	return env->ops->dir_space(env, path, free_bytes_out, bytes_out);
}

/* ---- memory ---- */

int hf_mem_alloc(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error)
{
	*addr_out = NULL;
	if (bytes == 0)
		return hf_error_set(error, -EINVAL, "cannot allocate 0 bytes of shared memory");
	return env->ops->mem_alloc(env, bytes, addr_out, error);
}

void hf_mem_free(struct hf_env *env, void *addr)
{
	if (addr != NULL)
		env->ops->mem_free(env, addr);
}

int hf_mem_map_file(struct hf_env *env, struct hf_file *file, uint64_t offset, size_t bytes, enum hf_map how,
	void **addr_out, struct hf_error *error)
{
	(void)env; /* the file knows its world */
	*addr_out = NULL;
	if (bytes == 0)
		return hf_error_set(error, -EINVAL, "cannot map 0 bytes of a file");
	return file->ops->map(file, offset, bytes, how, addr_out, error);
}

int hf_mem_flush(struct hf_env *env, void *addr, size_t bytes)
{
	return env->ops->mem_flush(env, addr, bytes);
}

int hf_mem_populate(struct hf_env *env, void *addr, size_t bytes)
{
	return env->ops->mem_populate(env, addr, bytes);
}
