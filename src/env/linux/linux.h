/* linux.h - the parts of the world of a Linux host; host.c combines them. */
#ifndef HOLDFAST_ENV_LINUX_LINUX_H
#define HOLDFAST_ENV_LINUX_LINUX_H

#include "base/list.h"
#include "env/world.h"

/* An io is a descriptor. */
struct linux_io {
	struct hf_io io;
	int fd;
	bool polled;      /* it is in the epoll set of its watch's loop */
	struct list node; /* in the list of its waiter while it is watched */
};

static inline int io_fd(const struct hf_io *io)
{
	return container_of(io, const struct linux_io, io)->fd;
}

static inline void linux_io_init(struct linux_io *io, int fd, const struct world_io_ops *ops)
{
	io->io.ops = ops;
	io->fd = fd;
	list_init(&io->node);
}

/* Takes the descriptor: on failure (-ENOMEM) it is closed. */
int linux_io_new(int fd, const struct world_io_ops *ops, struct hf_io **io_out);
void linux_io_close(struct hf_io *io);
int linux_io_local(struct hf_io *io, struct hf_addr *addr_out);

static inline socklen_t addr_bytes(const struct hf_addr *addr)
{
	return addr->sa.sa_family == AF_INET6 ? sizeof(addr->in6) : sizeof(addr->in);
}

/* Words for what bind() answered. */
int linux_bind_error(const struct hf_addr *local, const char *what, int code, struct hf_error *error);

uint64_t linux_now_ns(struct hf_env *env);
uint64_t linux_boot_ns(struct hf_env *env);
bool linux_boot_id(struct hf_env *env, uint8_t id[HF_BOOT_ID_BYTES]);
uint64_t linux_wall_ns(struct hf_env *env);
void linux_pause(struct hf_env *env, uint64_t ns);
void linux_entropy(struct hf_env *env, void *data, size_t bytes);
bool linux_addr_is_local(struct hf_env *env, const struct hf_addr *addr);

int linux_waiter_open(struct hf_env *env, struct hf_loop *loop, struct world_waiter **waiter_out);
void linux_waiter_close(struct world_waiter *waiter);
int linux_waiter_watch(struct world_waiter *waiter, struct hf_watch *watch);
void linux_waiter_unwatch(struct world_waiter *waiter, struct hf_watch *watch);
unsigned linux_waiter_wait(struct world_waiter *waiter, uint64_t max_ns);
void linux_waiter_wake(struct world_waiter *waiter);
void linux_waiter_slack(struct world_waiter *waiter, uint64_t slack_ns);
void linux_waiter_sleep(struct world_waiter *waiter, uint64_t max_ns);

int linux_dgram_open(
	struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out, struct hf_error *error);

int linux_stream_listen(struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error);
int linux_stream_connect(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
	struct hf_io **io_out, struct hf_error *error);
int linux_stream_connect_path(struct hf_env *env, const char *path, struct hf_io **io_out, struct hf_error *error);

int linux_notifier_open(struct hf_env *env, struct hf_io **io_out);
int linux_group_open(struct hf_env *env, struct hf_io *const *members, unsigned n, struct hf_io **io_out);

int linux_thread_start(struct hf_env *env, const char *name, enum hf_thread_kind kind,
	void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out);
void linux_thread_stop(struct hf_thread *thread);

int linux_file_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out);
int linux_file_rename(struct hf_env *env, const char *from, const char *to);
int linux_file_remove(struct hf_env *env, const char *path);

int linux_dir_make(struct hf_env *env, const char *path);
int linux_dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context);
int linux_dir_remove(struct hf_env *env, const char *path);
int linux_dir_sync(struct hf_env *env, const char *path);
int linux_dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out);

int linux_mem_alloc(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error);
void linux_mem_free(struct hf_env *env, void *addr);
int linux_mem_flush(struct hf_env *env, void *addr, size_t bytes);
int linux_mem_populate(struct hf_env *env, void *addr, size_t bytes);
/* Maps the file open as `fd`, which stays the caller's. */
int linux_mem_map(int fd, uint64_t offset, size_t bytes, enum hf_map how, void **addr_out, struct hf_error *error);

#endif
