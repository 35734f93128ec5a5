/* broker_rdma.h - brokers with rails, one or three, and clients of the library: producers and readers over RDMA, and
 * one of each over TCP on the same partitions. Brokers and clients are killed and stopped while work is in doubt,
 * hosts lose their power, rails are cut. Held to the claims of checkers/partition.h, and to
 *   reach      no NIC writes into a log but behind its tail, within the extent that its producer, or its leader, is
 *              granted at that moment (B7, R-B3, R-B17)
 *   scrub      where nobody may write, there are zeros behind the tail (R-B9)
 *   slot       what a slot says to be complete is readable to its end (R-B12)
 *   registered a file that readers have registered keeps its length, and has its pages (R-B14)
 *   told       no producer is told that a record failed
 *   liveness   when all has healed every producer goes on, and every reader reads to the end
 *   replicas   among three: the logs on the disks are the same in the end (checkers/replica_files.h), and every
 *              follower knows the high watermark (R-B20), and deletes the records that its leader has deleted
 *
 * Elsewhere: the programs (rdma_nodes.c), what the memory of brokers must be (rdma_checks.c), producers that fail while
 * all else is well (holders.h), the run (rdma_scenario.c). */
#ifndef HOLDFAST_SIM_BROKER_BROKER_RDMA_H
#define HOLDFAST_SIM_BROKER_BROKER_RDMA_H

#include <holdfast/consumer.h>

#include "broker/broker.h"
#include "sim/broker/apart.h"
#include "sim/checkers/partition.h"
#include "sim/device.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define RDMA_SIM_RAILS      2u
#define RDMA_SIM_PARTITIONS 2u
#define RDMA_SIM_PRODUCERS  3u /* the last one over TCP */
#define RDMA_SIM_READERS    3u /* likewise */
#define RDMA_SIM_CLIENTS    (RDMA_SIM_PRODUCERS + RDMA_SIM_READERS)
#define RDMA_SIM_TOPIC      "t"
#define RDMA_SIM_NUMBERS    16384u /* of a producer */
#define RDMA_SIM_BROKERS    3u     /* at most */

struct rdma_sim;
struct rdma_liar;
struct holders;

/* A node on a loop, of the broker or of a client. */
struct rdma_sim_end {
	struct rdma_sim *all;
	unsigned index; /* of its addresses: brokers come first */
	struct host host;
	struct process *process;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_poller poller;
	struct hf_timer timer;
};

struct rdma_sim_broker {
	struct rdma_sim_end end;
	struct broker *broker; /* NULL: it is down */
	struct broker_config config;
	struct bus_observer observers[RDMA_SIM_RAILS];
};

struct rdma_sim_sent {
	struct rdma_sim_client *client;
	uint64_t number, sent_ns;
	unsigned losses; /* of power, when it was sent */
};

struct rdma_sim_client {
	struct rdma_sim_end end;
	bool reads, over_tcp;
	int32_t partition;
	unsigned losses;  /* of power, when it looked last */
	uint64_t next_ns; /* when it does something again */
	/* a producer */
	struct hf_producer *producer;
	uint64_t number, done_since_quiet, depth;
	struct rdma_sim_sent sent[RDMA_SIM_NUMBERS];
	/* a reader */
	struct hf_consumer *consumer;
	bool anew;
};

struct rdma_sim {
	struct world *world;
	struct outcome *outcome;
	struct network network;
	struct faults faults;
	struct rdma_sim_broker brokers[RDMA_SIM_BROKERS];
	unsigned count; /* of brokers */
	struct rdma_sim_client clients[RDMA_SIM_CLIENTS];
	struct partition_account accounts[RDMA_SIM_PARTITIONS];
	struct world_event killer, looker;
	struct rdma_sim_end *down; /* what is to start again */
	struct apart apart;
	uint64_t rdma_batches, rdma_records, settled, writes;
	struct rdma_liar *liar; /* liar.h; NULL: all are honest */
	uint64_t lies;
	struct holders *holders;   /* holders.h; NULL: all kinds of faults instead */
	uint64_t led, truncations; /* of brokers that are gone */
	unsigned losses;           /* of power */
	bool flushes;              /* with flush.messages=1: a loss of power loses nothing */
	bool writes_back;          /* disks have what a NIC writes before it is committed, and lose small pieces */
	bool power, stopping, settling;
};

/* rdma_nodes.c */
extern const struct program rdma_sim_broker_program, rdma_sim_client_program;
int rdma_sim_open_node(struct rdma_sim_end *end);
void rdma_sim_close_node(struct rdma_sim_end *end);
void rdma_sim_configure(struct rdma_sim_broker *broker);
/* What its counters say before it goes. */
void rdma_sim_count(struct rdma_sim_broker *broker);

/* rdma_checks.c */
void rdma_sim_observe(struct rdma_sim_broker *broker); /* whose node is open */
void rdma_sim_look(struct rdma_sim *all);              /* from now on, again and again */
/* Whether every replica knows that all of its log may be read. */
bool rdma_sim_knows_hw(const struct rdma_sim *all);
/* Leaders delete all records; whether no replica has any. */
void rdma_sim_delete_records(const struct rdma_sim *all);
bool rdma_sim_has_deleted(const struct rdma_sim *all);

#endif
