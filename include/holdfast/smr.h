/* smr.h - a replicated log: the program's state machine is replicated at every member (Mu).
 *
 * The leader writes each entry into the logs of the other members with one one-sided WRITE, and the entry is decided
 * when a majority has it. Every member applies the entries in order. When the leader fails, another member takes its
 * place: each member gives write access to its log to one other at a time. docs/smr.md has the protocol.
 *
 *   program --- propose, read ---> hf_smr --- apply, snapshot, restore, event ---> program
 *
 * A replica belongs to a node and its loop, on whose thread all calls and callbacks are made. Only hf_smr_start and
 * hf_smr_stop block, because they register memory. One node may have several replicas of different clusters,
 * beside other layers. Arguments of callbacks are valid until the callback returns. */
#ifndef HOLDFAST_SMR_H
#define HOLDFAST_SMR_H

#include <holdfast/node.h>

struct hf_smr;
struct hf_smr_event;

#define HF_SMR_MEMBERS_MAX   16u
#define HF_SMR_ADDRESSES_MAX 4u
#define HF_SMR_RESULT_BYTES  1024u /* of one request */
#define HF_SMR_BATCH_MAX     128u  /* requests in an entry */
#define HF_SMR_CLUSTER_MAX   15u   /* bytes of a cluster's name */
#define HF_SMR_WINDOW_MAX    8u    /* entries that are not decided */

struct hf_smr_member {
	uint8_t id; /* 0 to HF_SMR_MEMBERS_MAX - 1; of the member's place, also when a new machine takes it */
	char name[HF_NAME_BYTES];                       /* for display */
	struct hf_addr addresses[HF_SMR_ADDRESSES_MAX]; /* control addresses of its node: hf_peer_connect */
	unsigned address_count;
};

/* Values that go together; each can be set beside it. */
enum hf_smr_preset {
	HF_SMR_CALM, /* pulse 2 ms, silent 100 ms, stuck 100 ms, patience 500 ms: detection 30 ms */
	HF_SMR_FAST, /* pulse 30 us, silent 10 ms, stuck 10 ms, patience 100 ms: detection 0.5 ms; wants a core */
};

/* 0 means the default, for every member. slots, slot_bytes and sessions are the same at all members, and all have a
 * directory or none; a member that differs is refused.
 *
 * In durable mode an entry is decided when a majority of the members has synced it to its disk: decided requests
 * survive the loss of all members at once. A replica that starts with the files of an earlier one continues as that
 * one: the program starts empty, its state is restored from the snapshot, and entries decided since are applied again.
 * stuck_ns is 1 s by default, because disks may be slow. A replica whose disk is full or
 * fails steps out (HF_SMR_FAILED). Each member reads its disk on its loop while it starts, and never again. */
struct hf_smr_config {
	const char *cluster;                 /* its name, at most 15 bytes */
	uint8_t id;                          /* this member's */
	const struct hf_smr_member *members; /* the founding members, with this one; or the known members */
	unsigned member_count;
	enum hf_smr_preset preset;
	enum hf_cores cores; /* HF_CORES_SHARED: HF_SMR_CALM has a pulse of 50 ms, silent and stuck 1 s, patience 2 s */
	uint64_t pulse_ns;   /* interval of the READs of the other members' public words */
	uint64_t silent_ns;  /* a member that does not answer for this long has failed */
	/* A leader lets others lead when it, or its own disk, has not got on with a proposal for this long. */
	uint64_t stuck_ns;
	uint64_t patience_ns; /* a follower that stands still for this long, and holds others up, is left behind */
	uint64_t idle_ns;     /* interval in which an idle leader proves its lead; 0: 1 ms, 10 ms with HF_SMR_CALM */
	/* Of the ring; a power of two, 16 to 2^20; 0: 4096. A configuration has 1 + 124 bytes for each member, in slots
	 * with 48 bytes less, and at most a quarter of the ring: 16 slots of 128 bytes suffice for two members. */
	uint32_t slots;
	uint32_t slot_bytes; /* a power of two, 128 to 65536; 0: 256. A large request takes several slots */
	uint32_t window;     /* entries in flight, 1 to HF_SMR_WINDOW_MAX; 0: 8 */
	uint32_t
		sessions; /* kept at a time, at most 2^20; 0: 1024. A further session ends the one unused for longest */
	/* Durable mode: a directory of this member's own; made if it is missing. NULL: the log is in memory. */
	const char *directory;
	/* The size of the WAL at which a snapshot is taken; 0: 64 MiB. While leading: four times as many. */
	uint64_t wal_bytes;
	uint64_t tail_bytes; /* of entries that are kept for a member that takes a snapshot; 0: 64 MiB. Writers slow
			      * down as they fill up */
	/* The program does not serve while a snapshot is read. So a leader does not take one at that size: it hands
	 * leadership on, and takes it as a follower. When no other member leads at twice the size, it takes one. */
	bool snapshots_pause;
};

/* ---- callbacks of the program ---- */

/* A request that is applied. */
struct hf_smr_applied {
	uint64_t index;    /* of its entry */
	uint32_t position; /* in its entry: (index, position) is unique and grows */
	const void *data;
	uint32_t bytes;
	uint64_t session; /* 0: none */
	uint32_t sequence;
};

/* All but apply may be NULL for a program without snapshots: members that are behind or new cannot join then. */
struct hf_smr_app {
	/* Every request once and in order, at every member: it reads no clock and draws no random number. Puts at most
	 * HF_SMR_RESULT_BYTES into result and returns their number. May propose and read; must not stop the replica. */
	uint32_t (*apply)(void *context, const struct hf_smr_applied *request, void *result);

	/* The state as it is now; apply goes on while it is read. 0, or -errno: no snapshot at present. */
	int (*snapshot_open)(void *context, void **snapshot_out);
	/* Up to `bytes` further bytes; 0: the end; -EAGAIN: not yet, it is called again soon; -errno: it failed. */
	ssize_t (*snapshot_read)(void *context, void *snapshot, void *data, size_t bytes);
	void (*snapshot_close)(void *context, void *snapshot); /* also of a snapshot that was not read to its end */

	/* Drops the state; the snapshot follows in pieces. No snapshot is open, and nothing is applied until
	 * restore_close. 0; -EAGAIN: it is called again soon; -errno: it failed. */
	int (*restore_open)(void *context);
	/* 0; -EAGAIN: the same piece is given again soon; -errno: it failed, and restore_close follows. */
	int (*restore_write)(void *context, const void *data, size_t bytes);
	/* whole: the state is complete. False: drop it; another restore_open follows. 0; -EAGAIN as above. */
	int (*restore_close)(void *context, bool whole);

	/* May be NULL. Must not stop the replica: a later turn of the loop does. */
	void (*event)(void *context, const struct hf_smr_event *event);

	/* May be NULL. True: the program has taken less than was applied, by more than it keeps. A replica that reads
	 * its own disk waits; it asks again in each turn of the loop. */
	bool (*busy)(void *context);
};

enum hf_smr_event_kind {
	HF_SMR_LEADING,   /* this member leads; all requests decided before are applied here */
	HF_SMR_FOLLOWING, /* this member does not lead, or the leader changed: `leader` */
	HF_SMR_WRITABLE,  /* after hf_smr_propose returned -EAGAIN: there is room */
	HF_SMR_BEHIND,    /* entries that it lacks were overwritten: it takes a snapshot, and the entries after it */
	HF_SMR_RESTORED,  /* from a snapshot, or from its disk: `index` is the next one that is applied */
	HF_SMR_MEMBERS,   /* the configuration of `index` holds: hf_smr_status */
	HF_SMR_REMOVED,   /* this member was removed, or another process took its place: stop the replica */
	HF_SMR_FAILED,    /* this member steps out: `reason`; stop the replica */
};
struct hf_smr_event {
	enum hf_smr_event_kind kind;
	int leader; /* id; -1: not known */
	/* Of the leader; grows with every change. A member that stood still may report a past leader late. */
	uint64_t number;
	/* LEADING: when a majority had granted (hf_env_boot_ns): no older leader decides later. */
	uint64_t granted_ns;
	uint64_t index;
	const char *reason;
	/* FAILED: of a device, not of its disk: another replica may take the place of this one. */
	bool device_died;
};

/* ---- running ---- */

/* The node and the memory that config points to outlive the replica, as do app and context; config itself is copied.
 * Members connect by their addresses. The members in config found the cluster when all are connected and none has been
 * a member before. -EEXIST: the node has a replica of that cluster; -EINVAL; -ENOMEM; with a directory, also -EBADMSG:
 * a file is damaged, the error has its name, the offset and the remedy; -EBUSY: another process uses it; -ENOSPC and
 * other errors of files. `error` has the details. */
int hf_smr_start(struct hf_node *node, const struct hf_smr_config *config, const struct hf_smr_app *app, void *context,
	struct hf_smr **smr_out, struct hf_error *error);
/* Pending calls end as HF_SMR_UNKNOWN or HF_SMR_NOT_LEADER before this returns. NULL is legal. */
void hf_smr_stop(struct hf_smr *smr);

enum hf_smr_outcome {
	HF_SMR_DECIDED,      /* it is applied here, and stays applied; `result` is the result of apply */
	HF_SMR_NOT_LEADER,   /* nothing was written, and it is not applied anywhere */
	HF_SMR_UNKNOWN,      /* leadership ended: applied once, or not at all. In a session: propose it again */
	HF_SMR_SESSION_OVER, /* decided and not applied: its session has ended, or the sequence is older than is kept */
};

/* A proposal or a read: the caller's memory, usually within a larger struct, and the library's until done(). done() is
 * called once, in a turn of the loop or in hf_smr_flush, never within hf_smr_propose or hf_smr_read; it may propose and
 * read, also with the same struct; it must not stop the replica. Proposals end in the order in which they were made. */
struct hf_smr_call {
	void (*done)(struct hf_smr_call *call);
	/* Set before hf_smr_propose. The bytes stay until done(). */
	const void *data;
	uint32_t bytes;
	uint64_t session; /* 0: none */
	uint32_t sequence;
	/* Set before done(). */
	enum hf_smr_outcome outcome;
	int leader;         /* NOT_LEADER: the leader's id; -1: not known */
	uint64_t index;     /* DECIDED: of its entry. A read: everything below is applied */
	const void *result; /* DECIDED: until done() returns */
	uint32_t result_bytes;
	/* The library's. */
	uint64_t wait;
	struct hf_smr_call *next;
};

/* Calls of one turn form entries of up to HF_SMR_BATCH_MAX requests, which are sent at the end of the turn, or in
 * hf_smr_flush. Evaluate conditions in apply: all members evaluate them at the same place in the log.
 *   -ENOTCONN   this member does not lead: hf_smr_leader. The call was not accepted
 *   -EAGAIN     too many calls wait already: HF_SMR_WRITABLE follows
 *   -EMSGSIZE   more than hf_smr_request_bytes_max
 *   -EINVAL     a session without a sequence, or a sequence without a session */
int hf_smr_propose(struct hf_smr *smr, struct hf_smr_call *call);
/* A read barrier: at done() with HF_SMR_DECIDED every request is applied here that was decided anywhere before the
 * call. The program then reads its own state. The barrier is part of the next entry, or a WRITE of 8 bytes to each
 * follower. Returns as hf_smr_propose. */
int hf_smr_read(struct hf_smr *smr, struct hf_smr_call *call);
/* Sends pending calls now, and completes decided ones: for programs that poll for latency. Within apply, and within
 * done() of a proposal, it does nothing: the turn goes on behind that. */
void hf_smr_flush(struct hf_smr *smr);

/* For a program that cannot serve for a while, for example in front of a server that hangs: while not well, this member
 * does not lead, and another one takes its place. It continues to follow. A member is well at first. */
void hf_smr_set_well(struct hf_smr *smr, bool well);

uint32_t hf_smr_request_bytes_max(const struct hf_smr *smr);
bool hf_smr_is_leader(const struct hf_smr *smr);
int hf_smr_leader(const struct hf_smr *smr); /* from this member's view; -1: not known */

#include <holdfast/smr_members.h>

#endif
