/* env.h - the world: the services of an operating system, as an interface.
 *
 * Product code reads no clock, opens no socket or file, starts no thread and draws no random number except through
 * this header. There are two worlds: the host's (hf_env_host) and the simulator's, which runs the same code in
 * virtual time. No function blocks unless its comment states it.
 *
 * Loops, timers and readiness are in loop.h; objects shared by processes of one host are internal (env/share.h). */
#ifndef HOLDFAST_ENV_H
#define HOLDFAST_ENV_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <holdfast/error.h>

struct hf_env;  /* the world of one process */
struct hf_loop; /* loop.h */
struct hf_io;   /* a socket, listener or notifier; loop.h reports its readiness */

/* The world of this host; one per process, never destroyed. */
struct hf_env *hf_env_host(void);

/* Monotonic time since an arbitrary start. */
uint64_t hf_env_now_ns(struct hf_env *env);

/* The same, including the time in which the machine was suspended (CLOCK_BOOTTIME): for leases that other nodes rely
 * on. Do not compare it with hf_env_now_ns, which the timers of a loop use. */
uint64_t hf_env_boot_ns(struct hf_env *env);

#define HF_BOOT_ID_BYTES 16u
/* Which boot of this host's kernel it is: what an ended process has written to a file, synced or not, the next one of
 * the same boot finds there. False: it is not known, and id is zero. */
bool hf_env_boot_id(struct hf_env *env, uint8_t id[HF_BOOT_ID_BYTES]);

/* Time of day, nanoseconds since 1970; for display and file formats, never for protocols. */
uint64_t hf_env_wall_ns(struct hf_env *env);

/* Fills with unguessable bytes. */
void hf_env_entropy(struct hf_env *env, void *data, size_t bytes);

/* ---- addresses ---- */

/* An IPv4 or IPv6 address with its port; the port is 0 where only the host is meant. */
struct hf_addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	};
};

/* "127.0.0.2", "127.0.0.2:18515", "[::1]:18515"; -EINVAL when it is none of these. */
int hf_addr_parse(const char *text, struct hf_addr *addr_out);

#define HF_ADDR_TEXT 64
/* The same notation; always terminated; returns `text`. */
const char *hf_addr_format(const struct hf_addr *addr, char text[HF_ADDR_TEXT]);

bool hf_addr_equal(const struct hf_addr *a, const struct hf_addr *b); /* host and port */
bool hf_addr_is_any(const struct hf_addr *addr);                      /* 0.0.0.0 or ::, whatever the port */
uint16_t hf_addr_port(const struct hf_addr *addr);
void hf_addr_set_port(struct hf_addr *addr, uint16_t port);

/* Whether its host part is a loopback address or belongs to an interface of this host; queries the kernel. */
bool hf_addr_is_local(struct hf_env *env, const struct hf_addr *addr);

/* ---- any io ---- */

/* Closes; NULL is legal. An io that is watched is unwatched first. */
void hf_io_close(struct hf_io *io);
int hf_io_local(struct hf_io *io, struct hf_addr *addr_out);

/* ---- datagrams ---- */

/* The payload of one call to or from one peer. When segment_bytes is not 0 the payload is a run of datagrams of
 * that many bytes each, the last of which may be shorter (the kernel segments it by UDP_SEGMENT and UDP_GRO; without
 * them, env does). */
struct hf_dgram {
	struct hf_addr peer;
	void *data;
	uint32_t bytes;         /* send: to send. recv: in, capacity of data; out, received */
	uint32_t segment_bytes; /* 0: a single datagram */
	uint32_t
		piece_count; /* send: not 0: the payload lies in these pieces, which have `bytes` in all, not in data */
	const struct iovec *pieces;
};

#define HF_DGRAM_MAX_BYTES    65507u /* of one payload, segmented or not, over IPv4 */
#define HF_DGRAM_MAX_SEGMENTS 64u    /* of one payload */
#define HF_DGRAM_MAX_PIECES   256u   /* of one payload */

enum hf_dgram_flags {
	/* Send with "don't fragment" and IPv4 identification 0, which is part of the ICRC. In a payload with
	 * segment_bytes datagram i gets identification 0 or, where the kernel or NIC segments, i. */
	HF_DGRAM_ROCE = 1 << 0,
	HF_DGRAM_GRO = 1 << 1, /* may deliver several datagrams as one payload with segment_bytes set */
};

/* Binds; -EADDRINUSE, -EADDRNOTAVAIL and -EACCES set `error`. The socket stays unconnected. */
int hf_dgram_open(
	struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out, struct hf_error *error);

/* Returns the number of datagrams passed to the network, or -EAGAIN when none was because its queue is full.
 * Errors that concern one peer only (unreachable, refused, too big) count as sent: the network loses datagrams. */
int hf_dgram_send(struct hf_io *io, const struct hf_dgram *dgrams, unsigned n);

/* The largest datagram that the interface with the socket's address sends without fragmentation; HF_DGRAM_MAX_BYTES
 * when that is not known. */
uint32_t hf_dgram_fits(struct hf_io *io);

/* Returns the number of filled entries; -EAGAIN when there is no datagram. Bytes beyond the capacity are lost. */
int hf_dgram_recv(struct hf_io *io, struct hf_dgram *dgrams, unsigned n);

/* ---- streams ---- */

int hf_stream_listen(struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error);
/* -EAGAIN: no connection is waiting. */
int hf_stream_accept(struct hf_io *listener, struct hf_io **io_out, struct hf_addr *peer_out);
/* Starts to connect from `local` (its port may be 0) and returns. The stream becomes writable when it is connected; a
 * failure is an error of the first read or write. */
int hf_stream_connect(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
	struct hf_io **io_out, struct hf_error *error);
/* The same to a socket of this host that has a path (AF_UNIX). -EOPNOTSUPP in the simulator. */
int hf_stream_connect_path(struct hf_env *env, const char *path, struct hf_io **io_out, struct hf_error *error);
/* Bytes moved, at least 1; 0 from read at the end of the stream; -EAGAIN when it would block; -errno when broken. */
ssize_t hf_stream_read(struct hf_io *io, void *data, size_t bytes);
ssize_t hf_stream_write(struct hf_io *io, const void *data, size_t bytes);
/* The same for the bytes of n pieces, one behind the other; the write may end within a piece. Only the first
 * HF_STREAM_MAX_PIECES pieces are written. 0 when the pieces have no bytes. */
#define HF_STREAM_MAX_PIECES 256u
ssize_t hf_stream_writev(struct hf_io *io, const struct iovec *pieces, unsigned n);
/* The same without a copy (MSG_ZEROCOPY): the written bytes must not change until hf_stream_let_go has counted the
 * call, or the stream is closed, which resets it then. -EOPNOTSUPP: not supported by this stream, as in the simulator;
 * -ENOBUFS: not at present, use hf_stream_writev. */
ssize_t hf_stream_writev_kept(struct hf_io *io, const struct iovec *pieces, unsigned n);
/* The number of further calls, in their order, that are complete. The stream is readable when there are some.
 * *copied_out: the kernel copied the bytes after all, as it does over loopback. */
unsigned hf_stream_let_go(struct hf_io *io, bool *copied_out);

/* ---- notifiers: wake a loop of another thread ---- */

int hf_notifier_open(struct hf_env *env, struct hf_io **io_out);
void hf_notifier_signal(struct hf_io *io); /* any thread; many signals may make one readiness */
void hf_notifier_clear(struct hf_io *io);  /* the watching thread, before it checks for work */

/* ---- threads ---- */

enum hf_thread_kind {
	HF_THREAD_HELPER, /* of the process: stops when the process is paused */
	HF_THREAD_NIC,    /* represents hardware: the simulator keeps it running while its process is paused */
	HF_THREAD_WORKER, /* a helper that makes blocking calls (work.h): in the simulator they take time */
};
struct hf_thread;

/* Runs start(loop, context) on a new thread, then its loop until hf_thread_stop. In the simulator a thread is
 * one more actor of the host, and its loop is interleaved with the others. */
int hf_thread_start(struct hf_env *env, const char *name, enum hf_thread_kind kind,
	void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out);
/* Blocks until the thread has left its loop, which is then destroyed. NULL is legal. */
void hf_thread_stop(struct hf_thread *thread);

/* ---- files: these block for as long as the disk takes, and any thread may call them (work.h) ---- */

struct hf_file;
enum hf_file_flags {
	HF_FILE_WRITE = 1 << 0,
	HF_FILE_CREATE = 1 << 1,    /* with mode 0600, if it does not exist */
	HF_FILE_EXCLUSIVE = 1 << 2, /* with CREATE: -EEXIST if it exists */
	HF_FILE_TRUNCATE = 1 << 3,
	HF_FILE_PUBLIC = 1 << 4, /* with CREATE: mode 0666 less the umask, for reports and the like */
};

int hf_file_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out);
void hf_file_close(struct hf_file *file);
int64_t hf_file_bytes(struct hf_file *file);
/* Time of day of the last change of its content or size, through a mapping too; or -errno. */
int64_t hf_file_changed_ns(struct hf_file *file);
int hf_file_mode(struct hf_file *file); /* its permission bits, as chmod(2) has them; or -errno */
/* Of the file itself, whatever its name: a copy has another one, unless this one is gone. */
int hf_file_identity(struct hf_file *file, uint64_t *device_out, uint64_t *inode_out);
/* The next part of the file, at or behind `from`, that is no hole. -ENXIO: there is none before the end. */
int hf_file_next_data(struct hf_file *file, uint64_t from, uint64_t *begin_out, uint64_t *end_out);
/* Bytes moved; fewer than requested only at the end of the file or when the disk is full. */
ssize_t hf_file_read_at(struct hf_file *file, void *data, size_t bytes, uint64_t offset);
ssize_t hf_file_write_at(struct hf_file *file, const void *data, size_t bytes, uint64_t offset);
int hf_file_resize(struct hf_file *file, uint64_t bytes);
/* Data, size and times are durable on return; the name of a new file is durable after hf_dir_sync of its directory.
 * After an error it is unknown which data is durable, and the next sync succeeds without writing the rest: stop using
 * the file. */
int hf_file_sync(struct hf_file *file);
/* The same without metadata that reading does not need, such as times. */
int hf_file_sync_data(struct hf_file *file);
/* All that was written to its file system since the file was opened is durable on return, files, names and directories;
 * it waits for what others write there, too. -EOPNOTSUPP: that file system or kernel would not report each error. */
int hf_file_sync_all(struct hf_file *file);
bool hf_file_can_sync_all(struct hf_file *file);
/* Locks the file against every other opening, in this process too, until this one is closed or its process dies.
 * -EAGAIN: another one holds the lock. Locks do not prevent others from reading and writing. */
int hf_file_lock(struct hf_file *file);
/* Of a file, also over another one; atomic, and durable on return. */
int hf_file_rename(struct hf_env *env, const char *from, const char *to);
int hf_file_remove(struct hf_env *env, const char *path); /* durable after hf_dir_sync of its directory */

/* ---- directories, likewise ---- */

int hf_dir_make(struct hf_env *env, const char *path); /* mode 0700; durable after hf_dir_sync of its parent */
/* Calls found() for every name in the directory, in no order. found() may remove that name, and no other. */
int hf_dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context);
int hf_dir_remove(struct hf_env *env, const char *path); /* -ENOTEMPTY */
int hf_dir_sync(struct hf_env *env, const char *path);   /* names made and removed in it are durable on return */
/* Of the file system of this file or directory: the bytes that this user may still write, and the size. */
int hf_dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out);

/* ---- memory ---- */

/* Zeroed memory, page aligned, that can be shared with processes of this host: every device can register it.
 * *addr_out is NULL on failure; -ENOMEM sets `error` (limits, /dev/shm). */
int hf_mem_alloc(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error);
void hf_mem_free(struct hf_env *env, void *addr);

enum hf_map {
	HF_MAP_READ,
	HF_MAP_WRITE,  /* holes of the file are filled first: in memory (tmpfs) 0.3 s for a GiB */
	HF_MAP_SPARSE, /* the same, and holes stay: hf_mem_populate comes before the first store or load there */
};
/* A file as memory. Stores are durable after hf_mem_flush; the offset into the file is a multiple of the page size.
 * Shared with every process that maps the same file, so every device can register it. Unmapped by hf_mem_free. Access
 * to a page of a hole raises SIGBUS when the disk is full. */
int hf_mem_map_file(struct hf_env *env, struct hf_file *file, uint64_t offset, size_t bytes, enum hf_map how,
	void **addr_out, struct hf_error *error);
int hf_mem_flush(struct hf_env *env, void *addr, size_t bytes);
/* Allocates the pages of mapped memory now, not when they are first touched; those of a file are read. Contents stay.
 * Blocks: 0.3 to 3 s for a GiB. -ENOMEM: not all of it is mapped, or no memory is left; -EFAULT: the disk of the
 * file is full; -EOPNOTSUPP: a kernel older than 5.14. */
int hf_mem_populate(struct hf_env *env, void *addr, size_t bytes);

#endif
