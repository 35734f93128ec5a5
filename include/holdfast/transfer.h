/* transfer.h - bulk transfers over all rails and tcp to a peer, which continue when a rail or a transport fails (TENT).
 *
 * An engine belongs to a node and its loop. It registers buffers; together they are its segment, which its peers may
 * address. A batch has requests, each READ or WRITE between local memory and a peer's segment, unordered. A request is
 * cut into slices that use every open rail. When a rail fails, its unfinished slices move to the others, and
 * when no rail is left, to tcp.
 *
 * Each request gets one terminal status, once. After it, whatever it is, nothing of the request touches memory at
 * either end (T1 to T3 of the transfer protocol); until then the memory belongs to the library.
 *
 * All calls and callbacks are on the loop's thread; none blocks, registration and hf_transfer_close excepted. */
#ifndef HOLDFAST_TRANSFER_H
#define HOLDFAST_TRANSFER_H

#include <holdfast/node.h>

struct hf_transfer; /* an engine */
struct hf_transfer_batch;
struct hf_segment; /* a peer's buffers, or our own */

enum hf_transfer_fallback {
	HF_FALLBACK_AUTO,     /* a task moves to the next transport that reaches the peer */
	HF_FALLBACK_OFF,      /* a task stays on its first transport */
	HF_FALLBACK_REQUIRED, /* as auto; a segment that fewer than two transports reach is not opened */
};

enum hf_transport {
	HF_TRANSPORT_MEMCPY, /* within our own segment */
	HF_TRANSPORT_SHM,
	HF_TRANSPORT_RDMA,
	HF_TRANSPORT_TCP,
	HF_TRANSPORTS
};
const char *hf_transport_name(enum hf_transport transport); /* "RDMA"; HF_TRANSPORTS: "UNSPEC" */

/* 0 means the default, for every member. */
struct hf_transfer_config {
	struct hf_addr listen; /* of tcp; peers connect to it, so 0.0.0.0 and [::] are refused; AF_UNSPEC: no tcp */
	enum hf_transfer_fallback fallback;
	int max_failover_attempts;       /* of a task; 0: 3; negative: none */
	unsigned rail_error_threshold;   /* errors within rail_error_window_ns that pause a rail; 0: 3 */
	uint64_t rail_error_window_ns;   /* 0: 10 s */
	uint64_t rail_cooldown_ns;       /* the first pause; 0: 30 s */
	uint64_t rail_probe_interval_ns; /* of a paused rail; 0: 1 s */
	uint64_t block_bytes;            /* of a slice; 0: 64 KiB */
	uint64_t shm_block_bytes;        /* on shm, tcp and within the engine; 0: block_bytes if given, else 1 MiB */
	unsigned max_retry_count;        /* of a slice, after which its task leaves the rails; 0: 8 */
	uint64_t window_bytes;           /* in flight on a lane; 0: 16 slices */
	/* A peer without contact for this time, an eighth of it and 50 ms is dead (hf_node_listen). Only then do
	 * WRITEs end that it may have received. 0: 2 s, or longer where the node's heartbeats need it. */
	uint64_t lease_ns;
	uint64_t max_timeout_ns;  /* a lane whose slice, a tcp stream whose next byte takes longer ends; 0: 10 s */
	uint64_t cancel_grace_ns; /* from a cancel until slices in flight are withdrawn; 0: 100 ms */
	unsigned streams;         /* of tcp to a peer; 0: 2; at most 8 */
	unsigned max_buffers;     /* that may be registered at a time; 0: 10,000; at most 16,384 */
	/* A WRITE over a rail completes when a READ behind it on its lane has completed, so that a NIC that dies with
	 * acknowledged WRITEs loses no completed one. Buffers must permit READs then. */
	bool confirm_writes;
	bool keep_requests_apart; /* adjacent requests of a submit are not merged */
	uint32_t transports_off;  /* bit per enum hf_transport: not used */
};

/* The contents of transfer-engine.json (docs/transfer.md has its keys). */
struct hf_transfer_file {
	struct hf_transfer_config engine;
	char node_path[HF_PATH_BYTES]; /* its key "node": the configuration of the node and its rails */
	/* hf_transfer_config_load: the contents of that file. `cores` is this file's key; default: HF_CORES_SHARED. */
	struct hf_node_config node;
};
/* Reads the file and the file of its node. tcp listens at the address in the file, else at the first address of the
 * node's `management`, else of its rails' `control`, at a free port. -EINVAL: refused; another -errno: a file cannot be
 * read; the error names file, line and key. Blocks for the reads. */
int hf_transfer_config_load(
	struct hf_env *env, const char *path, struct hf_transfer_file *file_out, struct hf_error *error);
/* The same of text in memory, without the node. */
int hf_transfer_config_parse(const char *text, size_t bytes, struct hf_transfer_file *file_out, struct hf_error *error);

struct hf_transfer_events {
	/* The registered buffers of a peer have changed: hf_transfer_segment. May be NULL. */
	void (*segment)(struct hf_transfer *transfer, struct hf_peer *peer, void *context);
	/* hf_transfer_notify of a peer. `data` is the library's and not aligned. NULL: notifications are dropped. */
	void (*notified)(
		struct hf_transfer *transfer, struct hf_peer *peer, const void *data, size_t bytes, void *context);
};

/* The node outlives the engine. -EEXIST: the node has an engine; -EINVAL: the configuration is refused. */
int hf_transfer_open(struct hf_node *node, const struct hf_transfer_config *config,
	const struct hf_transfer_events *events, void *context, struct hf_transfer **transfer_out,
	struct hf_error *error);
/* -EBUSY while a batch exists; NULL is legal. Memory within an operation of a stopped process of this host is named in
 * the log: keep it until that process has ended. */
int hf_transfer_close(struct hf_transfer *transfer);

enum hf_transfer_permission {
	HF_TRANSFER_REMOTE_READ = 1 << 0,
	HF_TRANSFER_REMOTE_WRITE = 1 << 1,
};
/* Local memory of requests is registered, too; with permission 0 no peer reaches it. -EEXIST: it overlaps with another
 * buffer, or one that is being unregistered. */
int hf_transfer_register(
	struct hf_transfer *transfer, void *addr, uint64_t bytes, unsigned permission, struct hf_error *error);
/* Begins to unregister a buffer. From now on no new request may name it, here or at peers; slices that peers have not
 * sent yet fail as an error of the program. The memory stays in use until `done` (may be NULL) is called in a later
 * turn: when the requests of this engine that name it have ended, and each peer has confirmed that none of its slices
 * to it is in flight, or has not replied for 1 s; later while a process of this host stands still within an operation
 * on it (hf_vmr_dereg). hf_transfer_close unregisters the remaining buffers, without a call.
 * -ENOENT: no buffer begins there; -EALREADY. */
int hf_transfer_unregister(struct hf_transfer *transfer, void *addr,
	void (*done)(struct hf_transfer *transfer, void *addr, void *context), void *context);

/* The registered buffers of the peer. Valid until hf_transfer_close_segment, but requests to a peer that is gone fail.
 * -EAGAIN: the peer has not sent them yet, events.segment follows; -ENETUNREACH: fewer than two transports reach it,
 * and fallback is required. */
int hf_transfer_open_segment(
	struct hf_transfer *transfer, struct hf_peer *peer, struct hf_segment **segment_out, struct hf_error *error);
/* The same; NULL: it cannot be opened. */
struct hf_segment *hf_transfer_segment(struct hf_transfer *transfer, struct hf_peer *peer);
/* The pointer becomes invalid; no request to it is pending. The segment may be opened again while the peer lives. */
void hf_transfer_close_segment(struct hf_segment *segment);
/* Segment 0: the buffers of this engine, with the permissions of peers. Its requests are copies; one whose source and
 * target overlap is refused (-EINVAL). */
struct hf_segment *hf_transfer_own_segment(struct hf_transfer *transfer);
/* The i-th buffer of the segment: its address there; false: no such buffer. */
bool hf_segment_buffer(const struct hf_segment *segment, unsigned i, uint64_t *addr_out, uint64_t *bytes_out);

/* ---- batches ---- */

enum hf_transfer_opcode { HF_TRANSFER_READ, HF_TRANSFER_WRITE };

struct hf_transfer_request {
	enum hf_transfer_opcode opcode;
	void *source; /* local, also of a READ */
	struct hf_segment *segment;
	uint64_t target_offset; /* an address in the peer's segment */
	uint64_t length;
	uint64_t deadline_ns; /* of hf_env_now_ns; 0: none */
	bool hinted;
	enum hf_transport hint; /* hinted: the transport that is tried first */
};

enum hf_transfer_status {
	HF_TRANSFER_INITIAL,
	HF_TRANSFER_PENDING,
	HF_TRANSFER_INVALID,
	HF_TRANSFER_CANCELED,
	HF_TRANSFER_COMPLETED,
	HF_TRANSFER_TIMEOUT,
	HF_TRANSFER_FAILED,
};

/* `idle` (may be NULL) is called whenever the last pending task of the batch has ended; it may submit, free, and close
 * peers and segments. */
int hf_transfer_batch_alloc(struct hf_transfer *transfer, unsigned tasks,
	void (*idle)(struct hf_transfer_batch *batch, void *context), void *context,
	struct hf_transfer_batch **batch_out);
int hf_transfer_batch_free(struct hf_transfer_batch *batch); /* -EBUSY while a task is pending; NULL is legal */

/* Adds n tasks, the first of which is number *first_out. -EINVAL: a request names memory that is not registered, or
 * beyond the segment's buffers, and nothing was submitted; -ENOSPC: the batch has no room; -ENOMEM. */
int hf_transfer_submit(struct hf_transfer_batch *batch, const struct hf_transfer_request *requests, unsigned n,
	unsigned *first_out, struct hf_error *error);
/* The same with a result for each request: tasks_out[i] is the task of request i, or -EINVAL if that request is
 * refused, independent of the others. `error` describes the first refusal. -ENOSPC, -ENOMEM: nothing was submitted, and
 * each result has this error. */
int hf_transfer_submit_each(struct hf_transfer_batch *batch, const struct hf_transfer_request *requests, unsigned n,
	int *tasks_out, struct hf_error *error);
int hf_transfer_cancel(struct hf_transfer_batch *batch, unsigned task); /* -EINVAL: no such task */
/* The transport that a request would use now: with priority 0 the first, then those it would move to. HF_TRANSPORTS:
 * none is left. Uses only segment and hint of the request, and has no effect. */
enum hf_transport hf_transfer_resolve(
	const struct hf_transfer *transfer, const struct hf_transfer_request *request, unsigned priority);
/* bytes_out (NULL is legal): of the request, in place. */
int hf_transfer_task_status(
	const struct hf_transfer_batch *batch, unsigned task, enum hf_transfer_status *status_out, uint64_t *bytes_out);
/* PENDING while a task is; INVALID when a request of the last submission was refused; INITIAL when none was submitted;
 * COMPLETED when all tasks are, else the status of the first that ended otherwise. */
enum hf_transfer_status hf_transfer_batch_status(const struct hf_transfer_batch *batch);

/* ---- notifications ---- */

/* Sends a notification to the peer of a segment at once; in order, at most HF_CHANNEL_MESSAGE_BYTES. If the status of a
 * request was COMPLETED before, the notification arrives when its bytes are in place. -EAGAIN: too many wait, try
 * again; -ENOTCONN: the peer is gone; -EMSGSIZE; -ENOMEM. */
int hf_transfer_notify(struct hf_transfer *transfer, struct hf_segment *segment, const void *data, size_t bytes);
/* The same when the last pending task of the batch has ended, before `idle`, if all are COMPLETED; else it is dropped.
 * One for a batch: a second call replaces the first. The data is copied. -EINVAL: no task is pending; -EMSGSIZE;
 * -ENOMEM. A failure to send it later is reported in the log. */
int hf_transfer_batch_notify(
	struct hf_transfer_batch *batch, struct hf_segment *segment, const void *data, size_t bytes);

/* ---- for operators ---- */

struct hf_transfer_counters {
	uint64_t failovers[HF_TRANSPORTS][HF_TRANSPORTS]; /* tent_transport_failover_total{from,to} */
	uint64_t rail_bytes[HF_RAILS_MAX];                /* that completed, to all peers */
	uint64_t tcp_bytes;
};
void hf_transfer_counters(const struct hf_transfer *transfer, struct hf_transfer_counters *counters_out);

#endif
