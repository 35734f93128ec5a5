/* proxy.h - an unmodified Redis or memcached under replication: each member's server has a proxy in front of it.
 *
 * Clients connect to any proxy with RESP2, or memcached's text protocol. Writes become entries of the log (hf_smr) and
 * are injected into every server in the order of the log. The leader's server answers reads, once the leader is
 * confirmed. A proxy that does not lead forwards to the leader. docs/smr-proxy.md lists the commands and their
 * semantics.
 *
 * The program starts the server empty, on a private socket, and ends it with the proxy. A proxy
 * belongs to its node's loop. */
#ifndef HOLDFAST_PROXY_PROXY_H
#define HOLDFAST_PROXY_PROXY_H

#include <holdfast/node.h>
#include <holdfast/smr.h>

struct proxy;

#define PROXY_CLIENTS 10000u /* at a time, by default */

struct proxy_config {
	struct hf_smr_config smr;
	const char *socket;    /* path of the server's */
	int server_pid;        /* of its process; 0: not known */
	bool memcached;        /* it is one; else Redis */
	struct hf_addr listen; /* for clients */
	uint32_t clients;      /* at a time; 0: PROXY_CLIENTS */
	uint32_t clients_mb;   /* MiB for their buffers; 0: 256 */
	bool scripts;          /* EVAL is taken: its author vouches that it does the same at every server */
	uint64_t silence_ns;   /* a server that does not reply for this time is ended; 0: 10 s */
};

struct proxy_events {
	void (*ready)(void *context, const struct hf_addr *listen); /* it takes clients */
	/* The replica or its server is over: close the proxy and end the server. */
	void (*failed)(void *context, const char *why);
	void (*event)(void *context, const struct hf_smr_event *event); /* of the replica */
};

int proxy_open(struct hf_node *node, const struct proxy_config *config, const struct proxy_events *events,
	void *context, struct proxy **proxy_out, struct hf_error *error);
void proxy_close(struct proxy *proxy); /* NULL is legal; not from an event. The node is closed next */

struct hf_smr *proxy_smr(struct proxy *proxy);

struct proxy_counts {
	unsigned clients;
	uint64_t accepted, evicted, commands, deadlines, server_waiting;
};
struct proxy_counts proxy_count(const struct proxy *proxy);

#endif
