/* faults.h - the seeded schedule of what goes wrong.
 *
 * A plan is made before the run: so many faults of the kinds that a scenario allows, each with its time, its victim and
 * its end. All of them have ended at quiet_ns, but for a port that flaps (30 ms longer at most); from then on the world
 * is well and liveness can be demanded. */
#ifndef HOLDFAST_SIM_FAULTS_H
#define HOLDFAST_SIM_FAULTS_H

#include "sim/network.h"

#define FAULTS_MAX 24

struct fault {
	struct world_event begin, end;
	enum fault_kind kind;
	struct faults *faults;
	struct port *port, *other;
	struct process *process;
	uint64_t duration_ns;
	uint64_t amount; /* ppm or ns, as the kind has it */
	unsigned flaps_left, waited;
	bool mute; /* its port's packets are lost already */
};

struct faults {
	struct world *world;
	struct network *network;
	struct process *const *processes;
	unsigned process_count;
	struct fault plan[FAULTS_MAX];
	unsigned count;
	uint64_t quiet_ns;
	/* Asked when one is to begin; it does not where that is false. NULL: all may. */
	bool (*may_begin)(const struct faults *faults, const struct fault *fault);
	/* Told when a fault has begun, and when it has ended. NULL: nobody is told. */
	void (*changed)(struct faults *faults, const struct fault *fault, bool begins);
	/* Told when a port that flaps has been switched, between the two. NULL: nobody is told. */
	void (*flapped)(struct faults *faults);
};

#define FAULT_BIT(kind) (1u << (kind))

/* Plans `count` faults of the kinds in `allowed` on these processes and all ports, over [now, quiet_ns). `processes` is
 * kept. */
void faults_plan(struct faults *faults, struct network *network, struct process *const *processes, unsigned n,
	uint32_t allowed, unsigned count, uint64_t quiet_ns);

/* And a pause of one of the processes, with or without its NICs, or a suspension of its host: the kind. */
void faults_plan_stall(struct faults *faults, enum fault_kind kind, uint64_t least_ns);

/* And one that takes all data of all ports of one host, for at least `least_ns`, while its streams pass. */
void faults_plan_silence(struct faults *faults, uint64_t least_ns);
/* And one that holds up all data and streams that leave one host, for at least `least_ns`. It begins with the failover
 * from a port of that host which goes down. */
void faults_plan_holdup(struct faults *faults, uint64_t least_ns);
/* How often so far such a loss or holdup began or ended at a port of that host; whether one goes on. */
bool faults_is_silent(const struct faults *faults, const struct host *host, uint64_t least_ns);
unsigned faults_silences(const struct faults *faults, const struct host *host, uint64_t least_ns);

/* Pauses of that process and suspensions of its host so far, also one that goes on, planned to last so long. */
unsigned faults_stalls(const struct faults *faults, const struct process *process, uint64_t least_ns);

/* A fault that finds nothing under way shows nothing: of `total` wrs a share waits for each of them, and begins shortly
 * before it. How long whoever has posted so many waits with the next one; 0: it need not. */
uint64_t faults_wait_ns(const struct faults *faults, uint32_t posted, uint32_t total);

#endif
