/* kv.h - a leaderless store: every node has every record, answers reads locally, and coordinates writes (HEAL, Hermes).
 *
 * A store belongs to a node and its loop, and has one vqp to the store of each other member. Each key is
 * linearizable: an operation takes effect at most once, within its call (docs/kv.md has the promises and rules).
 *
 * Operations belong to flows. Operations of one flow take effect, and complete, in the order in which they were posted;
 * there is no order between flows. Redis clients reach the same store at the address `listen`; each of their
 * connections is a flow.
 *
 * All calls and callbacks are on the loop's thread. Only hf_kv_open and hf_kv_close block. */
#ifndef HOLDFAST_KV_H
#define HOLDFAST_KV_H

#include <holdfast/node.h>

struct hf_kv;
struct hf_kv_flow;

#define HF_KV_MEMBERS_MAX     8u
#define HF_KV_PATH_BYTES      256u
#define HF_KV_KEY_BYTES_MAX   (16u << 10)
#define HF_KV_VALUE_BYTES_MAX (1u << 20)
#define HF_KV_CLIENTS         10000u /* at a time, by default */

/* The recovery of a member that was excluded and kept its memory or its log. */
enum hf_kv_recovery {
	HF_KV_HEAL, /* it receives the updates that it missed; a full copy when no member has their list */
	HF_KV_COPY, /* a full copy */
	HF_KV_STOP, /* as HF_KV_HEAL, and writes wait until the end of the recovery: for comparison */
};

/* The failure that a log survives. */
enum hf_kv_medium {
	HF_KV_FILE,   /* of the machine: the log is synced before a write is acknowledged */
	HF_KV_MEMORY, /* of the process: nothing is synced; use a directory in memory (tmpfs) */
};

struct hf_kv_member {
	char name[HF_NAME_BYTES];             /* of its node */
	struct hf_addr control[HF_RAILS_MAX]; /* of its node; those after the first are further paths */
	unsigned control_count;
};

/* 0 means the default, for every member. Cluster and members are the same on every node; a node with others is
 * refused. */
struct hf_kv_config {
	char cluster[HF_NAME_BYTES];
	struct hf_kv_member members[HF_KV_MEMBERS_MAX]; /* this node among them */
	unsigned member_count;
	struct hf_addr listen; /* for Redis clients; port 0: any; family AF_UNSPEC: none */
	uint32_t clients;      /* Redis clients at a time; 0: HF_KV_CLIENTS */
	uint32_t clients_mb;   /* MiB for their buffers; the client with the largest ones is closed; 0: 256 */
	/* A directory for the log, of this member alone; made if missing, its parent must exist. "": no log, and a
	 * process that restarts has no records. */
	char log[HF_KV_PATH_BYTES];
	enum hf_kv_medium medium;
	uint64_t segment_bytes;  /* of a file of the log, about; 0: 64 MiB */
	uint32_t missed_mb;      /* MiB for the list of updates that absent members missed, at most 16383; 0: 64 */
	uint32_t missed_entries; /* changes of records in that list; 0: as many as it has room for */
	uint32_t copy_mbps; /* 10^6 bytes a second that this member sends of a full copy, at least 10; 0: no limit */
	bool unnoted;       /* there is no such list: absent members copy all records. For comparison */
	bool ordered;       /* keys are kept in order, for HFSCAN; each new key costs time */
	enum hf_kv_recovery recovery;
	uint32_t store_mb;     /* MiB for records; 0: 256. Below 32 a record of 1 MiB may find no room at a member */
	enum hf_cores cores;   /* decides the defaults of lease_ns and cold_wait_ns */
	uint64_t lease_ns;     /* a member that is silent for this long is excluded; 0: 100 ms, or 2 s (shared) */
	uint64_t suspect_ns;   /* and is suspected after this time, more than a fifth of the lease; 0: half of it */
	uint64_t cold_wait_ns; /* after the end of all members the first ones wait; 0: 20 leases; of 2 s, 2 */
	uint32_t min_members;  /* with fewer live members writes are refused; 0: 2, or 1 for one member with a log */
	uint64_t replay_ns;    /* a write that its coordinator has not completed by then is replayed; 0: 50 ms */
	uint64_t budget_ns;    /* the longest time that an operation waits; 0: 5 s */
};

/* The section "kv" of a configuration file (docs/configuration.md); fills config_out with the defaults. */
struct hf_config_section hf_kv_config_section(struct hf_kv_config *config_out);

/* Reads the log, which takes about a second for a GiB. -EINVAL: the configuration is wrong, or the log is another
 * member's; -EAGAIN: another process has the log; -EEXIST: the node has a store; -ENOMEM; other -errno: `listen`
 * cannot be bound, or the log not be read or written. `error` has the details. The configuration is copied. The node
 * outlives the store. */
int hf_kv_open(struct hf_node *node, const struct hf_kv_config *config, struct hf_kv **kv_out, struct hf_error *error);
/* For a member that ends on purpose: it gives its lease up, completes the writes that it has begun, and asks to be
 * excluded, so that the writes of the others do not wait for the end of its lease. New operations wait. Turn the loop
 * until it has left, and close it; that takes a lease at most, and as long when too few members stay. */
void hf_kv_leave(struct hf_kv *kv);
bool hf_kv_has_left(const struct hf_kv *kv);
/* Drops pending operations without calling done(); closes flows. NULL is legal. */
void hf_kv_close(struct hf_kv *kv);

/* The address for Redis clients, with its port; -ENOENT: there is none. */
int hf_kv_address(const struct hf_kv *kv, struct hf_addr *address_out);

/* ---- operations ---- */

enum hf_kv_kind {
	HF_KV_GET,    /* value */
	HF_KV_SET,    /* with flags: a condition, and the value before it */
	HF_KV_DELETE, /* with HF_KV_RETURN the value before it */
	HF_KV_ADD,    /* `delta` to a decimal number; a missing record counts as 0 */
	HF_KV_APPEND, /* value behind the present one */
	HF_KV_KINDS,
};

enum hf_kv_flag {
	HF_KV_IF_ABSENT = 1 << 0,  /* SET: only if there is no record */
	HF_KV_IF_PRESENT = 1 << 1, /* SET: only if there is one */
	HF_KV_RETURN = 1 << 2,     /* SET, DELETE: the value before is returned */
};

enum hf_kv_result {
	HF_KV_OK,
	HF_KV_ABSENT,  /* GET, DELETE, and HF_KV_RETURN: there is, or was, no record. SET's effect is in `applied` */
	HF_KV_UNKNOWN, /* it took effect, or will, or never does */
	/* With these results the operation did not take effect, and never will: */
	HF_KV_LOADING,     /* this node is not yet a member */
	HF_KV_NO_LEASE,    /* this node is cut off from the cluster */
	HF_KV_NO_REPLICAS, /* too few members are connected */
	HF_KV_NO_MEMORY,   /* a member has no memory for the record */
	HF_KV_TRY_AGAIN,   /* the operation waited for its whole budget */
	HF_KV_NO_NUMBER,   /* ADD: the value is no decimal number, */
	HF_KV_OVERFLOW,    /* or the sum does not fit in 64 bits */
	HF_KV_TOO_LARGE,   /* APPEND, SET: the value would exceed HF_KV_VALUE_BYTES_MAX */
	HF_KV_RESULTS,
};

/* The caller's, usually within a larger struct; it, its key and its value belong to the store from hf_kv_post until
 * done(). */
struct hf_kv_op {
	enum hf_kv_kind kind;
	unsigned flags; /* enum hf_kv_flag */
	const void *key, *value;
	uint32_t key_bytes, value_bytes;
	int64_t delta;
	/* Called once, also from within hf_kv_post. May post, and free the op. */
	void (*done)(struct hf_kv_op *op);
	void *context;

	/* The result. The returned value is valid until done() returns. */
	enum hf_kv_result result;
	bool applied;         /* a SET or DELETE wrote */
	const void *returned; /* GET, HF_KV_RETURN; NULL: none */
	uint32_t returned_bytes;
	int64_t number; /* ADD: the sum; APPEND: the length */
};

/* NULL: no memory. */
struct hf_kv_flow *hf_kv_flow_open(struct hf_kv *kv);
/* done() of its operations is not called any more, and their memory is the caller's again; they may still take effect.
 * Legal within done(). NULL is legal. */
void hf_kv_flow_close(struct hf_kv_flow *flow);

/* Key: 1 to HF_KV_KEY_BYTES_MAX bytes. */
void hf_kv_post(struct hf_kv_flow *flow, struct hf_kv_op *op);

/* ---- the store as a whole ---- */

enum hf_kv_role { HF_KV_ROLE_ABSENT, HF_KV_ROLE_SHADOW, HF_KV_ROLE_MEMBER };

/* A member, from the view of this one. */
struct hf_kv_member_status {
	char name[HF_NAME_BYTES];
	enum hf_kv_role role;
	bool reached;          /* a message of it arrived recently; true for this member */
	uint32_t join;         /* epoch of its last admission; 0: it has none */
	uint64_t absent_since; /* epoch in which it was last excluded as a member; 0: it never was */
};

/* A recovery of this member, from its admission to its promotion, in the steps of HEAL's figure 8. */
struct hf_kv_recovery_status {
	uint64_t epoch; /* of the admission */
	char buddy[HF_NAME_BYTES];
	bool healed;                  /* it received the updates that it missed; false: all records */
	uint64_t records;             /* that the buddy sent */
	uint64_t start_to_ack_ns;     /* until the request to a buddy that has installed the admission */
	uint64_t catch_up_to_resp_ns; /* until the first data of its reply */
	uint64_t apply_to_end_ns;     /* until the last record was applied, and the promotion installed */
};
#define HF_KV_RECOVERIES_KEPT 16u

struct hf_kv_status {
	uint64_t epoch;
	uint32_t live;          /* members whose acknowledgement a write needs, as bits by their place in the list */
	bool serving;           /* this node serves clients */
	bool recovering;        /* it acknowledges writes, and receives missing records */
	bool copies;            /* recovering: it copies all records, not only missed updates */
	int buddy;              /* recovering: the sender, by its place in the list; -1: none at present */
	bool damaged;           /* its log was, as this process found it: it serves when it has copied all records */
	bool failed;            /* its log cannot be written: it has left; close the store */
	bool decides;           /* it leads the membership log */
	uint64_t lease_left_ns; /* the rest of its lease */
	uint64_t records, keys; /* records include deleted ones */
	uint64_t store_used_bytes, store_bytes;
	uint64_t writes, reads, replays, refusals; /* totals; refusals: restarts of RMWs */
	/* how often this member was excluded, and returned by a full copy or by missed updates */
	uint64_t excluded, copied, healed;
	uint64_t purged; /* deleted records that were removed */
	unsigned self, member_count;
	struct hf_kv_member_status members[HF_KV_MEMBERS_MAX];
	unsigned recovery_count;
	struct hf_kv_recovery_status recoveries[HF_KV_RECOVERIES_KEPT]; /* of this process, the last one first */
};
/* With an address for HTTP in the node's configuration, /kv.json there has the same. */
void hf_kv_status(const struct hf_kv *kv, struct hf_kv_status *status_out);

/* A digest of all records and their timestamps: equal on all members when no write is in flight. Reads the whole
 * store. */
uint64_t hf_kv_digest(const struct hf_kv *kv);

#endif
