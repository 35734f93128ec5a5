/* node.h - one process on its rails: devices, control channel, peers.
 *
 * A node opens the device of each of its rails and a control channel that runs over all of them and survives as long
 * as one path is left. Peers are other nodes; a restarted process is another incarnation and a new peer.
 *
 * Owned by one loop, on whose thread all callbacks come and all calls are made. A callback may connect, post and poll;
 * it closes neither the node nor the peer that it is about. Recovery is an exchange, and needs turns of both sides'
 * loops: a program that computes for long between turns delays its peers' recovery by as much, and its paths are down
 * after heartbeat_misses heartbeats. `holdfast run` has a thread that turns the loop meanwhile. */
#ifndef HOLDFAST_NODE_H
#define HOLDFAST_NODE_H

#include <holdfast/config.h>
#include <holdfast/dev.h>
#include <holdfast/loop.h>

#define HF_RAILS_MAX    8
#define HF_PATH_BYTES   256
#define HF_SECRET_BYTES 128

/* What is done about wrs in flight when their rail fails (Varuna, section 5.1). */
enum hf_policy {
	HF_POLICY_NONE,         /* nothing: they complete in error, as on a plain qp */
	HF_POLICY_RESEND,       /* a qp is made on another rail and all of them are sent again, executed or not */
	HF_POLICY_RESEND_CACHE, /* the same, with a qp made beforehand on every rail */
	HF_POLICY_VARUNA,       /* what executed is completed, the rest is sent again: exactly once */
};

/* By what `varuna` tells which wrs in flight executed. */
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
	struct hf_addr control;   /* where this rail's control streams are bound; port 0: any, for who only connects */
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
	/* What every peer must know as well, at least 16 bytes: in a file that only its owner may read, or as text.
	 * Neither, and no TLS: only nodes of this host are connected with. */
	char secret_file[HF_PATH_BYTES];
	char secret[HF_SECRET_BYTES];
	struct hf_tls_files tls;    /* of control streams */
	enum hf_policy policy;      /* the same at both ends: connecting is refused otherwise */
	enum hf_evidence evidence;  /* likewise */
	uint64_t heartbeat_ns;      /* between heartbeats on each control path; 0: 50 ms */
	unsigned heartbeat_misses;  /* this many without an answer and the path is down; 0: 4 */
	uint64_t failback_ns;       /* the primary must have been up for so long before traffic returns; 0: 200 ms */
	uint64_t budget_ns;         /* without any path, wrs complete in error after so long; 0: 10 s */
	uint64_t lease_ns;          /* without contact for so long a peer's qps are fenced; 0: half the budget */
	unsigned pool_size;         /* standby qps on each rail: for all peers on DC, else for each; 0: 1 */
	unsigned pool_vqps;         /* and one for so many vqps at least; 0: their number does not follow the vqps */
	uint8_t timeout, retry_cnt; /* of the qps, as in ibv_qp_attr; 0: 10 (4 ms) and 3 */
	uint32_t caps_masked;       /* hf_dev_config */
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

struct hf_node_events {
	void (*peer_up)(struct hf_peer *peer, void *context); /* either side connected; it can be used */
	/* Gone for good, and closed after. Its vqps are in error, unless hf_vqp_connect_num says otherwise. */
	void (*peer_down)(struct hf_peer *peer, void *context);
	void (*rail_changed)(struct hf_node *node, unsigned rail, bool up, void *context);
};

int hf_node_open(struct hf_loop *loop, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, struct hf_node **node_out, struct hf_error *error);
void hf_node_close(struct hf_node *node); /* closes peers and destroys what was left; NULL is legal */

struct hf_loop *hf_node_loop(struct hf_node *node);
unsigned hf_node_rails(const struct hf_node *node);
struct hf_dev *hf_node_dev(struct hf_node *node, unsigned rail); /* for its link switch and counters */
const char *hf_node_rail_name(const struct hf_node *node, unsigned rail);
bool hf_node_rail_up(const struct hf_node *node, unsigned rail);

/* Connects to the node whose control addresses these are, one or more; retries until hf_peer_close. -EACCES: there is
 * neither secret nor TLS, and none of the addresses is on this host. */
int hf_peer_connect(struct hf_node *node, const struct hf_addr *addresses, unsigned n, struct hf_peer **peer_out,
	struct hf_error *error);
/* The peer that listens at this control address, whichever side connected, or that hf_peer_connect is looking for
 * there; NULL. Of two nodes that connect to each other one may find that it is connected already. */
struct hf_peer *hf_peer_find(struct hf_node *node, const struct hf_addr *address);
void hf_peer_close(struct hf_peer *peer);
/* For a program that keeps no peers: closes those that nobody has answered for and that no vqp is to connect to. */
void hf_peer_close_unanswered(struct hf_node *node);

/* What a program's own detectors know. A rail (ours, by its number) that is reported bad is not used with that peer
 * until the report is revoked, and traffic leaves it at once, as if a port had gone down; a trigger does the same for
 * a moment, after which the rail may be chosen again. -EINVAL: no such rail. */
int hf_peer_report(struct hf_peer *peer, unsigned rail);
int hf_peer_trigger(struct hf_peer *peer, unsigned rail);
int hf_peer_revoke(struct hf_peer *peer, unsigned rail);

const char *hf_peer_name(const struct hf_peer *peer); /* "" until it is up */
void hf_peer_set_context(struct hf_peer *peer, void *context);
void *hf_peer_context(const struct hf_peer *peer);

#endif
