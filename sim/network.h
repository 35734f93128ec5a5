/* network.h - ports of hosts and the paths between them.
 *
 * A path is what a packet passes from one port to another: a chain of small stages (cut, clog, loss, delay, reorder,
 * late, duplicate), each of which looks at the path's conditions and chance and changes the packet's fate. A packet on
 * its way is an event; whether its port is still reachable is asked again when it arrives.
 *
 * Conditions nest: cuts are counted, so that overlapping faults heal only when the last one has. */
#ifndef HOLDFAST_SIM_NETWORK_H
#define HOLDFAST_SIM_NETWORK_H

#include <holdfast/env.h>

#include "base/list.h"
#include "sim/host.h"

#define PORTS_MAX 24 /* a path keeps the order of its packets, as switches do, unless a fault or the world does not */

struct port {
	struct host *host;
	struct hf_addr address; /* its port number is 0 */
	unsigned index, rail;
	unsigned cut_tx, cut_rx;              /* faults that hold it cut */
	unsigned data_lost;                   /* and that take its datagrams, either way */
	unsigned writes_lost;                 /* and that take the WRITEs it sends: it is read, and hears */
	unsigned downs;                       /* of them, those that the NIC knows of */
	bool dark;                            /* its NIC is dead */
	uint64_t nic_crashes, fence_failures; /* of the NICs that were here, so far */
	struct list sockets;                  /* datagram sockets bound here: dgram.c */
	struct list listeners;                /* and listeners, */
	struct list streams;                  /* and ends of streams: stream.c */
};

struct conditions {
	unsigned cuts;
	uint64_t delay_ns, jitter_ns;
	uint64_t clogged_until_ns;
	uint64_t held_until_ns; /* streams only */
	uint64_t last_ns;       /* when the last packet that nothing delayed arrives */
	uint64_t bits_per_s;    /* 0: as many as are sent */
	uint64_t wire_free_ns;  /* when what waits for its turn on the wire has been sent */
	uint32_t loss_ppm, duplicate_ppm, reorder_ppm, late_ppm;
	uint32_t acks_lost_ppm, responses_lost_ppm;
};

/* Sees what streams move between processes and their kernels: where it is stored, and where it is taken from. */
struct stream_observer {
	void (*stored)(struct stream_observer *observer, const void *at, size_t bytes);
	void (*taken)(struct stream_observer *observer, const void *at, size_t bytes);
};

struct network {
	struct world *world;
	struct stream_observer *streams; /* NULL: nobody looks */
	struct port ports[PORTS_MAX];
	unsigned port_count;
	struct conditions paths[PORTS_MAX][PORTS_MAX]; /* [from][to] */
	uint64_t stream_limit_ns;                      /* a stream that is cut for longer breaks */
	bool unordered; /* jitter lets packets overtake each other also where no fault is */
	uint64_t datagrams, dropped;
	struct list packets; /* on their way */
	uint16_t last_port;  /* given to a socket that asked for any */
};

/* What becomes of one packet. */
struct fate {
	size_t bytes;
	bool lost;
	uint64_t delay_ns;
	uint64_t copy_delay_ns; /* 0: no second copy */
};

void network_init(struct network *network, struct world *world);
void network_free(struct network *network);
bool network_busy(const struct network *network); /* packets are on their way */
struct port *network_add_port(struct network *network, struct host *host, unsigned rail, const char *address);
struct port *network_find(struct network *network, const struct hf_addr *address); /* by host part; NULL */

/* Whether a datagram is one of a kind that this path loses. */
bool network_loses(
	struct network *network, const struct port *from, const struct port *to, const uint8_t *data, size_t bytes);
/* With 0 bytes, its turn on the wire left out. */
struct fate network_fate(struct network *network, const struct port *from, const struct port *to, size_t bytes);
/* How long so many bytes wait for their turn on a path of limited bandwidth and then are on its wire; their sender goes
 * on. UINT64_MAX: the queue before the wire is full. */
uint64_t network_wire_ns(struct network *network, const struct port *from, const struct port *to, size_t bytes);
/* Nothing holds this direction cut. */
bool network_open(const struct network *network, const struct port *from, const struct port *to);
struct conditions *network_path(struct network *network, const struct port *from, const struct port *to);
/* Something healed: stalled streams try again soon. */
void network_healed(struct network *network);
/* Breaks every stream between the two ports, as a middlebox would. Returns how many there were. */
unsigned network_reset_streams(struct network *network, struct port *a, const struct port *b);

/* ---- for the parts of the env ---- */

/* The port that `local` names on this process's host, and the address with a port number of its own when it had 0;
 * -EADDRNOTAVAIL otherwise. */
int network_bind(struct process *process, const struct hf_addr *local, struct port **port_out, struct hf_addr *bound,
	struct hf_error *error);
bool sim_addr_is_local(struct hf_env *env, const struct hf_addr *addr);
int sim_dgram_open(
	struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out, struct hf_error *error);
int sim_stream_listen(struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error);
int sim_stream_connect(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
	struct hf_io **io_out, struct hf_error *error);
void streams_healed(struct port *port);
unsigned streams_reset(struct port *port, const struct port *other);
void streams_free(struct port *port);       /* at the end of the world */
void packets_free(struct network *network); /* likewise */

#endif
