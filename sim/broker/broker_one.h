/* broker_one.h - one broker, producers and readers over TCP, while its process is killed, its host loses its power, and
 * streams break.
 * Segments are rolled every few batches. Held to the claims of checkers/partition.h, and to
 *   liveness   when all has healed every producer goes on, and every reader reads to the end
 *
 * Elsewhere: the client's side of the protocol (wire.c), the programs (broker_nodes.c), the run (broker_scenario.c). */
#ifndef HOLDFAST_SIM_BROKER_BROKER_ONE_H
#define HOLDFAST_SIM_BROKER_BROKER_ONE_H

#include "broker/broker.h"
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

struct broker_sim;

struct sim_client {
	struct broker_sim *all;
	unsigned index;
	bool reads;
	struct host host;
	struct process *process;
	struct wire wire;
	int32_t partition;
	/* a producer */
	bool idempotent, in_doubt; /* in_doubt: a batch was sent and is not answered */
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

struct broker_sim {
	struct world *world;
	struct outcome *outcome;
	struct network network;
	struct faults faults;
	struct host host;
	struct process *process;
	struct hf_loop *loop;
	struct broker *broker;
	struct broker_config config;
	struct sim_client clients[SIM_BROKER_CLIENTS];
	struct partition_account accounts[SIM_BROKER_PARTITIONS];
	struct world_event killer;
	unsigned losses; /* of power */
	bool host_stopped, down, stopping, settling;
};

extern const struct program broker_program, sim_client_program; /* broker_nodes.c */

#endif
