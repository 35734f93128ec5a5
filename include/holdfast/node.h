/* node.h - one process on its rails: devices, control channel, peers.
 *
 * A node opens the device of each of its rails and a control channel that runs over all of them and survives as long
 * as one path is left. Peers are other nodes; a restarted process is another incarnation and a new peer.
 *
 * A node belongs to one loop; all calls and callbacks are made on the thread of the loop. A callback may connect,
 * post and poll; it must close neither the node nor its peer argument. Recovery is an exchange and needs turns of
 * the loops of both ends: a program that computes for long between two turns delays the recovery of its peers, and
 * its paths count as down after heartbeat_misses heartbeats. Under `holdfast run` a thread of the library turns the
 * loop. */
#ifndef HOLDFAST_NODE_H
#define HOLDFAST_NODE_H

#include <holdfast/config.h>
#include <holdfast/dev.h>
#include <holdfast/loop.h>

#define HF_RAILS_MAX    8
#define HF_PATH_BYTES   256
#define HF_SECRET_BYTES 128

/* What a node does with the wrs in flight when their rail fails (Varuna, section 5.1). */
enum hf_policy {
	HF_POLICY_NONE,         /* completes them in error, like a plain qp */
	HF_POLICY_RESEND,       /* makes a qp on another rail and sends all of them again, executed or not */
	HF_POLICY_RESEND_CACHE, /* the same, with a qp made beforehand on every rail */
	HF_POLICY_VARUNA,       /* completes those that executed and sends the others again: exactly once */
};

/* The evidence by which HF_POLICY_VARUNA decides which wrs in flight executed. */
enum hf_evidence {
	HF_EVIDENCE_BOTH, /* either of the two; the default */
	HF_EVIDENCE_PSN,  /* the responder's device: exact and free, gone with the device */
	HF_EVIDENCE_LOG,  /* the completion log: 8 bytes written behind each wr, survives the device */
};

struct hf_rail_config {
	char name[HF_NAME_BYTES]; /* "r0"; pairs with the peer's rail of the same name */
	char kind[HF_NAME_BYTES]; /* "shm", "soft", "verbs" */
	char nic[HF_NIC_BYTES];   /* verbs: as hf_dev_config.nic; empty: the one with that address */
	struct hf_addr address;   /* of the NIC; soft: port 0 means 4791; verbs: needed unless `nic` is given */
	struct hf_addr control;   /* to which control streams of this rail bind; port 0: the node only connects */
	enum ibv_mtu mtu;         /* 0: the device's best */
};

/* Files in PEM; all empty: no TLS. */
struct hf_tls_files {
	char cert[HF_PATH_BYTES]; /* of this node, and what links it with an authority of its peers' ca */
	char key[HF_PATH_BYTES];  /* of that certificate; only its owner may have access to it */
	char ca[HF_PATH_BYTES];   /* the authorities that sign the certificates of peers */
};

struct hf_node_config {
	char name[HF_NAME_BYTES];
	char fabric[HF_NAME_BYTES];                /* empty: none */
	struct hf_rail_config rails[HF_RAILS_MAX]; /* in order of preference: the first that is up is the primary */
	unsigned rail_count;
	struct hf_addr management[HF_RAILS_MAX]; /* control streams over networks that are no rails */
	unsigned management_count;
	/* A secret of at least 16 bytes that every peer must have too: in a file that only its owner may read, or as
	 * text. Without it and without TLS the node connects with nodes of this host only. */
	char secret_file[HF_PATH_BYTES];
	char secret[HF_SECRET_BYTES];
	struct hf_tls_files tls;   /* of control streams */
	struct hf_addr http;       /* where status and metrics are served; no family: nowhere */
	enum hf_policy policy;     /* the same at both ends: connecting is refused otherwise */
	enum hf_evidence evidence; /* likewise */
	enum hf_cores cores;       /* decides the defaults of heartbeat_ns, timeout and retry_cnt */
	uint64_t heartbeat_ns;     /* between heartbeats on each control path; 0: 50 ms, with HF_CORES_SHARED 250 ms */
	unsigned heartbeat_misses; /* this many without an answer and the path is down; 0: 4 */
	uint64_t failback_ns;      /* traffic returns to the primary after it was up for this time; 0: 200 ms */
	uint64_t budget_ns;        /* without any path, wrs complete in error after this time; 0: 10 s */
	uint64_t lease_ns;         /* a peer's qps are fenced after this time without contact; 0: half the budget */
	unsigned pool_size;        /* standby qps on each rail: for all peers on DC, else for each; 0: 1 */
	unsigned pool_vqps;        /* at least one standby qp for so many vqps; 0: pool_size alone counts */
	/* Of the qps, as in ibv_qp_attr; 0: 10 (4 ms) and 3, on soft and shm with HF_CORES_SHARED 14 (67 ms) and 7. */
	uint8_t timeout, retry_cnt;
	uint32_t caps_masked; /* hf_dev_config */
};

/* The node's section of a configuration file (docs/configuration.md), for a program that reads further sections from
 * the same file; fills config_out with the defaults. */
struct hf_config_section hf_node_config_section(struct hf_node_config *config_out);
/* Reads a file, or a text, that has the section of a node alone: hf_config_load, hf_config_parse. */
int hf_node_config_load(
	struct hf_env *env, const char *path, struct hf_node_config *config_out, struct hf_error *error);
int hf_node_config_parse(const char *text, size_t bytes, struct hf_node_config *config_out, struct hf_error *error);

struct hf_node;
struct hf_peer;

/* The state of a rail to a peer, or the reason why it cannot be used. The first that holds, in this order. */
enum hf_rail_cause {
	HF_RAIL_UP,         /* usable */
	HF_RAIL_PEER,       /* the peer has no rail of that name and kind, or is not up */
	HF_RAIL_PORT_HERE,  /* this node's port is down, or its device died */
	HF_RAIL_PORT_THERE, /* the peer's port is down, or the peer's program excluded the rail */
	HF_RAIL_ASKED,      /* this node's program excluded it: hf_peer_report, hf_peer_trigger */
	HF_RAIL_PATH,       /* heartbeats are missing there, or a wr failed with an error of the path */
};

struct hf_node_events {
	void (*peer_up)(struct hf_peer *peer, void *context); /* connected, by either end */
	/* The peer died or left; it is closed after the call. Its vqps are in error; hf_vqp_connect_num describes the
	 * exception. */
	void (*peer_down)(struct hf_peer *peer, void *context);
	/* The peer's process has ended: it closed every control path, and refuses connections (R-G5). Its leases run
	 * on, and nothing of it ends here: peer_down follows. Should a path come up again, the process lives. */
	void (*peer_died)(struct hf_peer *peer, void *context);
	/* The value of hf_peer_rail: after peer_up for each rail, and then at each change that lasts until the end of a
	 * turn. Not called after peer_down. */
	void (*peer_rail)(struct hf_peer *peer, unsigned rail, enum hf_rail_cause cause, void *context);
	void (*rail_changed)(struct hf_node *node, unsigned rail, bool up, void *context); /* this node's port */
	/* The device of a rail has failed for good. What it had acknowledged may be lost; the rail stays down. */
	void (*device_died)(struct hf_node *node, unsigned rail, void *context);
};

int hf_node_open(struct hf_loop *loop, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, struct hf_node **node_out, struct hf_error *error);
/* Closes its peers and destroys its vqps, queues and regions. A peer that is stopped in an operation may still write to
 * a region for which hf_vmr_dereg has not returned 0 before. NULL is legal. */
void hf_node_close(struct hf_node *node);

/* A layer above, beside the program that opened the node: it receives the same events, after the program, and may
 * set a lease. A peer without contact for `lease_ns`, an eighth of that and 50 ms more is dead: its
 * channels and vqps end and peer_down is called. The shortest lease of the layers at both ends counts, also for the
 * fence of the other end's qps (lease_ns of the configuration, docs/protocol.md, R5). If no layer has a lease, a
 * peer is dead when no path to it was up for the budget and 1 s.
 * The struct must stay valid until hf_node_unlisten or hf_node_close. */
struct hf_node_listener {
	struct hf_node_events events;
	void *context;
	uint64_t lease_ns;             /* 0: none */
	struct hf_node_listener *next; /* the node's */
};
/* -EINVAL: the lease is shorter than 2 x heartbeat_ns x heartbeat_misses, the time to detect a lost path. */
int hf_node_listen(struct hf_node *node, struct hf_node_listener *listener, struct hf_error *error);
void hf_node_unlisten(struct hf_node *node, struct hf_node_listener *listener); /* also from its own callback */

struct hf_loop *hf_node_loop(struct hf_node *node);
unsigned hf_node_rails(const struct hf_node *node);
struct hf_dev *hf_node_dev(struct hf_node *node, unsigned rail); /* for its link switch and counters */
/* The addresses for peers: the control addresses of rails and of the management, at most `most`; returns their number.
 * Addresses with port 0, from which the node only connects, are left out. */
unsigned hf_node_addresses(const struct hf_node *node, struct hf_addr *addresses_out, unsigned most);
const char *hf_node_rail_name(const struct hf_node *node, unsigned rail);
const char *hf_node_rail_kind(const struct hf_node *node, unsigned rail); /* "shm", "soft", "verbs" */
bool hf_node_rail_up(const struct hf_node *node, unsigned rail);

/* Connects to the node with these control addresses, at least one; retries until hf_peer_close. -EACCES: the node
 * has neither a secret nor TLS, and none of the addresses is on this host. */
int hf_peer_connect(struct hf_node *node, const struct hf_addr *addresses, unsigned n, struct hf_peer **peer_out,
	struct hf_error *error);
/* The peer with this control address, connected by either end, or still being connected; or NULL. When two nodes
 * connect to each other, one of them may find that it is connected already. */
struct hf_peer *hf_peer_find(struct hf_node *node, const struct hf_addr *address);
/* This node as its own peer, for two of its vqps that are connected to each other by hf_vqp_connect_num: one of them
 * takes end 0, the other end 1. Both ends live until the node is closed. NULL: no memory, or there is no such end. */
struct hf_peer *hf_peer_own(struct hf_node *node, unsigned end);
/* Ends the connection and its vqps: nothing of the peer executes here any more when this returns, and wrs of ours that
 * have not completed fail. Those that may be under way to it complete, as HF_WC_UNKNOWN, when its lease is over (V4);
 * `changed` of their vqps is called then. NULL is legal. */
void hf_peer_close(struct hf_peer *peer);
/* Closes peers that have not answered and that no vqp connects to. For programs that keep no peers of their own. */
void hf_peer_close_unanswered(struct hf_node *node);

/* Detectors of the program. After a report, traffic to that peer leaves the rail (of this node, by its number) at once,
 * as if a port had gone down, and does not use it until the report is revoked. A trigger does the same once; the rail
 * may be chosen again afterwards. -EINVAL: no such rail. */
int hf_peer_report(struct hf_peer *peer, unsigned rail);
int hf_peer_trigger(struct hf_peer *peer, unsigned rail);
int hf_peer_revoke(struct hf_peer *peer, unsigned rail);

enum hf_rail_cause hf_peer_rail(const struct hf_peer *peer, unsigned rail); /* ours, by its number */
const char *hf_rail_cause_name(enum hf_rail_cause cause);                   /* "up", "port here", ... */
/* Whether a control path to the peer is up. The paths of a killed process end at once, the paths of a lost host
 * when heartbeats are missed. False proves nothing: the peer may run, and new paths to it may come up soon. */
bool hf_peer_reached(const struct hf_peer *peer);

/* Whether the process of the peer has ended: peer_died was called, and no path has come up since. */
bool hf_peer_died(const struct hf_peer *peer);

const char *hf_peer_name(const struct hf_peer *peer); /* "" until it is up */
void hf_peer_set_context(struct hf_peer *peer, void *context);
void *hf_peer_context(const struct hf_peer *peer);

#endif
