/* brokers.h - one broker, or three that replicate, with producers and readers over TCP, while processes are killed,
 * hosts lose their power, and links and streams break.
 * Segments are rolled every few batches. Held to the claims of checkers/partition.h, and to
 *   liveness   when all has healed every producer goes on, and every reader reads to the end
 *   replicas   among three: the logs on the disks are the same in the end (checkers/replica_files.h)
 *
 * Clients of three brokers ask one after another for the leader. Elsewhere: the client's side of the protocol (wire.c),
 * the clients (broker_nodes.c), a consumer group beside them (groups.c), a leader that one follower does not reach
 * (split.c), the brokers (broker_hosts.c), the runs (broker_scenario.c). */
#ifndef HOLDFAST_SIM_BROKER_BROKERS_H
#define HOLDFAST_SIM_BROKER_BROKERS_H

#include "broker/broker.h"
#include "sim/broker/apart.h"
#include "sim/broker/wire.h"
#include "sim/checkers/partition.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define SIM_BROKER_PARTITIONS 2u
#define SIM_BROKER_PRODUCERS  3u
#define SIM_BROKER_READERS    2u
#define SIM_BROKER_CLIENTS    (SIM_BROKER_PRODUCERS + SIM_BROKER_READERS)
#define SIM_BROKER_TOPIC      "t"
#define SIM_BROKER_BATCH_MAX  5u
#define SIM_BROKERS_MAX       3u
#define SIM_BROKER_RAILS      2u

struct broker_sim;
struct sim_group;
struct split;

struct sim_client {
	struct broker_sim *all;
	unsigned index;
	bool reads;
	struct host host;
	struct process *process;
	struct wire wire;
	int32_t partition;
	unsigned broker; /* that it asks now */
	/* a producer */
	bool idempotent, in_doubt; /* in_doubt: a batch was sent and is not answered */
	bool all_replicas;         /* the batch under way asks for acks=all */
	int64_t producer_id;       /* -1: none yet */
	int32_t sequence;
	uint64_t number, done_since_quiet;
	uint32_t count;  /* records of the batch under way */
	unsigned losses; /* of power, when the request under way was sent */
	/* a reader */
	uint64_t offset;
	bool anew;   /* it begins at 0 again with its next request */
	bool at_end; /* it found nothing more, after producers had stopped */
};

struct sim_broker {
	struct broker_sim *all;
	unsigned index;
	struct host host;
	struct process *process;
	struct hf_loop *loop;
	struct hf_node *node;
	struct broker *broker;
	struct broker_config config;
	struct hf_timer timer; /* until the topic is there */
	bool host_stopped, killed;
};

struct broker_sim {
	struct world *world;
	struct outcome *outcome;
	struct network network;
	struct faults faults;
	struct sim_broker brokers[SIM_BROKERS_MAX];
	unsigned count;
	struct sim_client clients[SIM_BROKER_CLIENTS];
	struct partition_account accounts[SIM_BROKER_PARTITIONS];
	struct sim_group *group; /* groups.h; NULL: none */
	struct split *split;     /* split.h; NULL: all kinds of faults instead */
	struct world_event killer;
	struct apart apart;
	unsigned losses; /* of power, of all brokers there are */
	bool flushes;    /* with flush.messages=1: a loss of power loses nothing */
	bool splits;     /* leaders are split from a follower */
	bool shared;     /* with the defaults for shared cores */
	bool rails;      /* brokers are nodes: more than one always are */
	bool down;       /* brokers are */
	bool nic_dead;   /* of a broker, which is to be started anew */
	bool stopping, settling;
	uint64_t led, truncations; /* of brokers that are gone */
};

extern const struct program sim_client_program; /* broker_nodes.c; its context is a struct sim_client */
extern const struct program broker_program;     /* broker_hosts.c; its context is a struct sim_broker */

/* broker_hosts.c */
void sim_brokers_set_up(struct broker_sim *all, unsigned count); /* after `flushes` and `rails` are set */
/* Of the host with this number, which is the end of its addresses: its node, and a port on a rail. */
void sim_rails_configure(const struct host *host, unsigned number, struct hf_node_config *config);
void sim_rails_add_port(struct host *host, unsigned number, unsigned rail);
/* What its counters say before it goes. */
void sim_broker_count(struct sim_broker *broker);
/* Whether every replica of the topic is in sync, as every broker knows it, and all name one leader of the controller:
 * what an earlier one has proposed may yet make an isr smaller. NULL: it is down. */
bool sim_brokers_are_whole(const struct broker *const *brokers, unsigned count, const char *topic);
/* Which of them leads the topic's first partition; -1: none that is up. */
int sim_brokers_leading(const struct broker *const *brokers, unsigned count, const char *topic);
void sim_client_address(unsigned index, char text[HF_ADDR_TEXT]);

#endif
