/* kv.h - stores of three to five nodes over two rails, and clients on every one of them, under faults. Held to:
 *   linear       what clients saw of each key could have happened one operation after another (K1): registers with
 *                unique values by checkers/registers.h, counters with unique additions by checkers/linear.h
 *   refused      an operation that is told not to have taken effect did not (K1); by the same checkers
 *   replicas     all members have the same records once all is quiet
 *   budget       nothing waits beyond the operation's budget (K6)
 *   liveness     when all has healed there is progress at every member
 *   log          a process goes on where the log that it finds ends by checkers/store_log.h (R-K27)
 *   stop         with `recovery = stop` no write is begun while a member returns
 *   heals        a member whose log says that it was one does not copy all records while another one is there that was
 *                all the while; with `recovery = copy` it always does
 *   damage       a member whose log was damaged copies all records before it serves, and nobody copies from it before
 *   order        operations of a connection are in its order, those of different keys too (R-K8): kv-order
 *   failover     when a process is killed while all is well, every other member answers writes again within a lease and
 *                20 ms (K6): kv-failover
 *
 * Elsewhere: the programs of the nodes and their clients (kv_nodes.c), who is killed (kv_kills.c), older copies of logs
 * (kv_images.c), damaged ones (kv_damage.c), the run and the verdict (scenario_kv.c, scenario_kv_calm.c,
 * scenario_kv_order.c). */
#ifndef HOLDFAST_SIM_KV_KV_H
#define HOLDFAST_SIM_KV_KV_H

#include <holdfast/kv.h>

#include "sim/checkers/linear.h"
#include "sim/checkers/registers.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define KV_NODES_MAX   5u
#define KV_RAILS       2u
#define KV_CLIENTS     3u   /* of each node */
#define KV_OPS         3u   /* that a client has under way at most */
#define KV_HOT         5u   /* registers that are written all the time, */
#define KV_REGISTERS   125u /* and others, whose values stay: what a member lost of them shows in the end */
#define KV_DELETED     20u  /* of those, the last ones, and of the hot */
#define KV_DELETED_HOT 2u   /* the first: they are deleted, too */
#define KV_COUNTERS    3u
#define KV_VALUE_BYTES 40000u

struct kv_client;

/* One operation under way. */
struct kv_call {
	struct kv_client *client;
	struct hf_kv_op op;
	bool busy, counts; /* counts: of a counter */
	unsigned key;      /* of the registers, or of the counters */
	size_t index;      /* in its history */
	uint64_t value, posted_ns;
	char key_text[16];
	char text[KV_VALUE_BYTES];
};

struct kv_node;

struct kv_client {
	struct kv_node *node;
	struct hf_kv_flow *flow;
	struct kv_call calls[KV_OPS];
	uint64_t next_ns, rest_ns_max;
	unsigned depth; /* calls under way at most */
};

struct kv_cluster;

/* kv_damage.c: of the log, before its next process, below what the mark proves by then. */
enum kv_damage { KV_DAMAGE_NONE, KV_DAMAGE_OF_WRITTEN, KV_DAMAGE_OF_SYNCED };

struct kv_node {
	struct kv_cluster *all;
	unsigned index;
	struct endpoint endpoint;
	struct hf_kv *kv;
	struct kv_client clients[KV_CLIENTS];
	uint64_t done_since_quiet;
	uint64_t written_ns, gap_ns, gap_end_ns; /* the last answered write; the longest time without one */
	bool logged;                             /* it has answered a write: its log says that it was a member */
	/* kv_kills.c: it served at the last look; it copies all records, until it serves */
	bool serves, copies;
	uint8_t *tail; /* kv_images.c: its last segment as it was before the power went; NULL: none */
	size_t tail_bytes;
	uint64_t tail_position;
	enum kv_damage damage;
	bool aged;                              /* kv_images.c: its log is older than its mark, until then */
	bool lost;                              /* kv_damage.c: its log was damaged, until it has copied all records */
	bool older;                             /* kv_images.c: its next process gets the older copy of its log */
	uint64_t stopped_epoch, stopped_writes; /* kv_kills.c: begun in an epoch with a member that returns */
};

/* What the stores keep over the end of their process. */
enum kv_keep { KV_KEEP_NOTHING, KV_KEEP_MEMORY, KV_KEEP_FILE };

/* kv_images.c: an older copy of the log of a member. */
struct kv_image {
	bool wanted;
	struct kv_node *node; /* NULL: none is there */
	uint64_t taken_ns, due_ns;
	struct kv_image_file *files;
};

/* kv_aims.c: the act that is on. */
struct kv_aim {
	struct world_event event;
	const struct kv_act *act;          /* NULL: none */
	unsigned step, left;               /* left: how often it goes on from the start of its end */
	uint64_t at_ns;                    /* when the step is due */
	uint64_t epoch;                    /* the last one, as the act began */
	unsigned returns, other, third;    /* members: who is to return, and two besides */
	uint32_t cut[KV_NODES_MAX];        /* to whom nothing comes from each, as bits */
	uint64_t writes;                   /* of the one that is to return, as the act began */
	uint64_t call_ns_min, call_ns_max; /* what a call of a disk takes */
	uint32_t hushed;                   /* members whose clients post nothing, as bits */
	bool reads;                        /* clients post nothing but GETs */
	bool one;                          /* a client of each member has one call under way, all of one register */
	bool alone;                        /* nobody else hears of what it writes then */
	bool holds;                        /* who is down stays so until all others serve, when all is quiet too */
};

struct kv_cluster {
	struct world *world;
	struct network network;
	struct faults faults;
	struct outcome *outcome;
	struct kv_node nodes[KV_NODES_MAX];
	unsigned count;
	struct registers registers[KV_REGISTERS];
	struct linear counters[KV_COUNTERS];
	uint64_t values; /* given out so far */
	enum hf_cores cores;
	uint64_t node_budget_ns, op_budget_ns, replay_ns, lease_ns;
	enum kv_keep keep;
	enum hf_kv_recovery recovery;
	uint64_t segment_bytes;
	uint32_t missed_entries; /* 0: the list of what was missed is never full */
	uint64_t stands_ns;      /* turns that are torn may take so much longer, in all that an operation sees */
	bool calm;       /* nothing fails but members that are killed while all serve, and have answered writes */
	bool recoveries; /* kills are for recoveries */
	bool colds;      /* most kills are of all members at once, */
	bool damages;    /* logs are damaged while their members are down */
	bool early;      /* and the next one may be before they serve */
	bool standard;   /* nodes have their defaults; clients hardly rest, and write small values, without RMWs */
	bool stopping;
	bool (*work)(struct kv_client *client); /* posts what clients do; NULL: they do as kv_nodes.c says */
	/* kv_kills.c */
	struct world_event killer, filler;
	bool kills, disks;
	uint32_t killed; /* as bits: they are down */
	uint64_t kill_ns, revive_ns;
	struct disk *full;   /* that has no room at present */
	uint64_t full_bytes; /* and had so much */
	struct kv_image image;
	struct kv_aim aim;
	bool aims; /* kv_aims.c kills, not kv_kills.c; there are few keys */
};

/* kills: of members at work, or in recoveries; disks: theirs fail, or are full. Ends with the faults. */
void kv_kills_start(struct kv_cluster *all, bool kills, bool disks);
void kv_kills_stop(struct kv_cluster *all);
bool kv_kills_all_serve(const struct kv_cluster *all);
bool kv_kills_status(const struct kv_node *node, struct hf_kv_status *status_out); /* false: it is down */
bool kv_kills_is_one_of_all(const struct kv_node *node);                           /* all of which are members */
bool kv_kills_has_work(const struct kv_node *node);
/* power: with that of its host. */
void kv_kills_kill(struct kv_cluster *all, unsigned i, bool power);
void kv_kills_revive(struct kv_cluster *all, uint32_t members); /* of these, as bits, those that were killed */

/* ---- kv_images.c ---- */
void kv_images_look(struct kv_cluster *all);                        /* takes a copy when it is time */
void kv_images_kills(struct kv_cluster *all, struct kv_node *node); /* the copy may be put in the log's place */
/* Before its host loses power: of what is not durable all but the first entry survives. */
void kv_images_tears(struct kv_node *node);
void kv_images_put(struct kv_node *node); /* which is done when it starts */
void kv_images_free(struct kv_cluster *all);

/* ---- kv_damage.c ---- */
void kv_damage_kills(struct kv_cluster *all, struct kv_node *node, bool power); /* its log may be damaged then */
bool kv_damage_put(struct kv_node *node); /* which is done when it starts; true: it was */
void kv_damage_look(struct kv_node *node, const struct hf_kv_status *status);

/* ---- kv_aims.c ---- */
enum kv_keep kv_aims_keep(const struct world *world, enum kv_keep picked); /* as the acts of this seed need it */
void kv_aims_start(struct kv_cluster *all);
void kv_aims_stop(struct kv_cluster *all);

/* ---- scenario_kv_calm.c ---- */
/* Three or five members with the defaults, which keep at least so much. */
void kv_calm_set_up(
	struct kv_cluster *all, struct world *world, struct outcome *outcome, uint64_t lease_ns, enum kv_keep least);
bool kv_calm_begin(struct kv_cluster *all); /* until all have served for a while; false: a violation */

/* ---- kv_nodes.c ---- */
extern const struct program kv_program;     /* its context is a struct kv_node */
void kv_nodes_make(struct kv_cluster *all); /* all->count hosts, each with a process that does not run yet */
void kv_nodes_free(struct kv_cluster *all); /* and what was seen of them */

#endif
