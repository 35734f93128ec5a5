/* world.h - the operations that a world implements for env.h and loop.h: the host's in env/linux, the simulator's in
 * sim/.
 *
 * env.c checks arguments and dispatches; loop.c is the same in every world and calls it only to wait. */
#ifndef HOLDFAST_ENV_WORLD_H
#define HOLDFAST_ENV_WORLD_H

#include <holdfast/loop.h>

struct hf_env {
	const struct world_ops *ops;
};

/* Every io starts with this; the rest is the world's. */
struct hf_io {
	const struct world_io_ops *ops;
	struct hf_watch *watch; /* its watch, or NULL */
};

struct hf_file {
	const struct world_file_ops *ops;
};

/* Every thread starts with this. */
struct hf_thread {
	struct hf_env *env;
};

struct world_io_ops {
	void (*close)(struct hf_io *io);
	int (*local)(struct hf_io *io, struct hf_addr *addr_out);
	int (*dgram_send)(struct hf_io *io, const struct hf_dgram *dgrams, unsigned n);
	int (*dgram_recv)(struct hf_io *io, struct hf_dgram *dgrams, unsigned n);
	uint32_t (*dgram_fits)(struct hf_io *io); /* NULL: HF_DGRAM_MAX_BYTES */
	int (*accept)(struct hf_io *io, struct hf_io **io_out, struct hf_addr *peer_out);
	ssize_t (*read)(struct hf_io *io, void *data, size_t bytes);
	ssize_t (*writev)(struct hf_io *io, const struct iovec *pieces, unsigned n);
	ssize_t (*writev_kept)(struct hf_io *io, const struct iovec *pieces, unsigned n); /* NULL: cannot */
	unsigned (*let_go)(struct hf_io *io, bool *copied_out);
	void (*signal)(struct hf_io *io);
	void (*clear)(struct hf_io *io);
};

struct world_file_ops {
	void (*close)(struct hf_file *file);
	int64_t (*bytes)(struct hf_file *file);
	int64_t (*changed_ns)(struct hf_file *file);
	int (*mode)(struct hf_file *file);
	int (*identity)(struct hf_file *file, uint64_t *device_out, uint64_t *inode_out);
	int (*next_data)(struct hf_file *file, uint64_t from, uint64_t *begin_out, uint64_t *end_out);
	ssize_t (*read_at)(struct hf_file *file, void *data, size_t bytes, uint64_t offset);
	ssize_t (*write_at)(struct hf_file *file, const void *data, size_t bytes, uint64_t offset);
	int (*resize)(struct hf_file *file, uint64_t bytes);
	int (*sync)(struct hf_file *file, bool data_only);
	int (*sync_all)(struct hf_file *file, bool only_ask); /* NULL: -EOPNOTSUPP */
	int (*lock)(struct hf_file *file);
	int (*map)(struct hf_file *file, uint64_t offset, size_t bytes, enum hf_map how, void **addr_out,
		struct hf_error *error);
};

/* How one loop waits: an epoll descriptor, or an actor of the simulator. */
struct world_waiter;

struct world_ops {
	/* How long an idle loop continues to poll before it sleeps, unless hf_loop_set_spin changes it; 0: every loop
	 * sleeps at once, and calls the waiter in every turn (as the simulator needs it). */
	uint64_t spin_ns;
	/* Lets other threads run between two such turns; NULL when spin_ns is 0. */
	void (*relax)(struct hf_env *env);

	uint64_t (*now_ns)(struct hf_env *env);
	/* NULL: time stands still within a turn. */
	void (*pause)(struct hf_env *env, uint64_t ns);
	uint64_t (*boot_ns)(struct hf_env *env);
	bool (*boot_id)(struct hf_env *env, uint8_t id[HF_BOOT_ID_BYTES]);
	uint64_t (*wall_ns)(struct hf_env *env);
	void (*entropy)(struct hf_env *env, void *data, size_t bytes);

	bool (*addr_is_local)(struct hf_env *env, const struct hf_addr *addr);

	int (*waiter_open)(struct hf_env *env, struct hf_loop *loop, struct world_waiter **waiter_out);
	/* Watches that are left are forgotten: their io and the io's watch become NULL. */
	void (*waiter_close)(struct world_waiter *waiter);
	int (*waiter_watch)(struct world_waiter *waiter, struct hf_watch *watch); /* new or changed `wanted` */
	void (*waiter_unwatch)(struct world_waiter *waiter, struct hf_watch *watch);
	/* Calls ready() of what is ready, after waiting for at most max_ns (0: not at all); returns how many, a wake-up
	 * included. When that is not 0 the loop wants another turn at once. A ready() may unwatch and close any io.
	 * The simulator never waits: it notes max_ns as the time when the loop wants to run again. */
	unsigned (*waiter_wait)(struct world_waiter *waiter, uint64_t max_ns);
	void (*waiter_wake)(struct world_waiter *waiter); /* from any thread */
	/* hf_loop_set_slack; NULL: sleeps end when they should. */
	void (*waiter_slack)(struct world_waiter *waiter, uint64_t slack_ns);
	/* Returns when waiter_wait would find something, after max_ns at the latest; any thread. The simulator has
	 * none. */
	void (*waiter_sleep)(struct world_waiter *waiter, uint64_t max_ns);

	int (*dgram_open)(struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out,
		struct hf_error *error);
	int (*stream_listen)(
		struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error);
	int (*stream_connect)(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
		struct hf_io **io_out, struct hf_error *error);
	/* NULL: -EOPNOTSUPP. */
	int (*stream_connect_path)(struct hf_env *env, const char *path, struct hf_io **io_out, struct hf_error *error);
	int (*notifier_open)(struct hf_env *env, struct hf_io **io_out);
	int (*group_open)(struct hf_env *env, struct hf_io *const *members, unsigned n, struct hf_io **io_out);

	int (*thread_start)(struct hf_env *env, const char *name, enum hf_thread_kind kind,
		void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out);
	void (*thread_stop)(struct hf_thread *thread);

	int (*file_open)(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out);
	int (*file_rename)(struct hf_env *env, const char *from, const char *to);
	int (*file_remove)(struct hf_env *env, const char *path);

	int (*dir_make)(struct hf_env *env, const char *path);
	int (*dir_list)(
		struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context);
	int (*dir_remove)(struct hf_env *env, const char *path);
	int (*dir_sync)(struct hf_env *env, const char *path);
	int (*dir_space)(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out);

	int (*mem_alloc)(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error);
	void (*mem_free)(struct hf_env *env, void *addr);
	int (*mem_flush)(struct hf_env *env, void *addr, size_t bytes);
	int (*mem_populate)(struct hf_env *env, void *addr, size_t bytes);
};

#endif
