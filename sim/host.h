/* host.h - hosts and their processes, whose loops are the world's actors.
 *
 * A process is an hf_env: product code that is given it runs in this world. Each of its loops, its threads' ones too,
 * is an actor: the world runs one turn of it at a time and schedules the next by what the turn reported.
 *
 * A program is what a process runs. Crashing a process mutes it (nothing that it does is seen by anybody) and then
 * lets the program take its objects apart, so that a crash leaks nothing of the test's own memory.
 *
 * A turn may be torn: between two of its steps, which are its calls of env, its posts to a device and its changes of
 * queue pairs, time passes and other processes go on. Its own process stands still meanwhile, and what arrives for it
 * waits. In every second tear at a device its NICs go on.
 *
 * Invariants: an actor never runs inside another one's turn of the same process; a paused process runs NIC actors at
 * most; nothing of a dead process runs. */
#ifndef HOLDFAST_SIM_HOST_H
#define HOLDFAST_SIM_HOST_H

#include "base/list.h"
#include "env/world.h"
#include "sim/world.h"

#define SIM_NAME_BYTES 16
#define HOST_DRIFT_PPM 450 /* two hosts differ by less than 1 in 1000 */

struct network;
struct process;

struct host {
	struct world *world;
	struct network *network;
	char name[SIM_NAME_BYTES];
	/* Its clock begins so far ahead of the world's, gains so much on it, and has stood still for so long. */
	uint64_t skew_ns;
	int32_t drift_ppm; /* at most HOST_DRIFT_PPM either way */
	uint64_t suspended_ns, suspended_since_ns;
	bool suspended;
	uint32_t caps_masked; /* enum hf_dev_cap that its NICs have not */
	uint8_t rd_atomic;    /* READs and atomics that its NICs keep track of; 0: as many as the engine can */
	uint32_t qp_wr;       /* wrs that a queue of theirs holds; likewise */
	bool stopped;
	struct list processes;
	struct disk *disk;
};

struct program {
	const char *name;
	int (*start)(struct process *process, void *context); /* 0, or -errno: the process dies at once */
	void (*stop)(struct process *process, void *context); /* frees; also after a start that failed */
};

struct process {
	struct hf_env env; /* first */
	struct host *host;
	const struct program *program;
	void *context; /* the program's */
	char name[SIM_NAME_BYTES];
	unsigned incarnation;
	bool running, paused, muted;
	bool nics_paused;                    /* with it, as a SIGSTOP stops the threads that drive them */
	uint64_t paused_ns, paused_since_ns; /* in all, but for the pause that goes on since then */
	struct list node;                    /* of the host */
	struct list actors, ios, threads, memory, nics;
	struct rng entropy;
	enum hf_thread_kind opening;  /* of the thread whose loop is being made */
	struct world_waiter *in_turn; /* the actor of this process that runs now, if one does */
	bool torn, nics_go_on;        /* that actor's turn; meanwhile */
};

/* One loop of a process: what waiter_open makes. */
struct world_waiter {
	struct process *process;
	struct hf_loop *loop;
	struct list node;    /* of the process */
	struct list watched; /* struct sim_io */
	struct world_event turn;
	uint64_t sleep_ns;      /* what the loop asked for in its last wait */
	uint64_t busy_until_ns; /* when the call that blocks a worker returns, or a core is free */
	uint64_t core_until_ns; /* then another program gets it */
	bool nic, worker, in_turn, deferred;
	unsigned number;
};

/* What every io of this world starts with. */
struct sim_io {
	struct hf_io io; /* first */
	struct process *process;
	struct list node;         /* of the process */
	struct list watched_node; /* of the waiter */
	struct world_waiter *waiter;
	struct hf_watch *watch;
	struct sim_io *group;                 /* that it is a member of */
	unsigned (*ready)(struct sim_io *io); /* enum hf_ready that hold now */
	void (*abandon)(struct sim_io *io);   /* its process died: unlink from the network, keep the memory */
};

void host_init(struct host *host, struct world *world, struct network *network, const char *name);
void host_free(struct host *host);

/* The process is made once and started, crashed and restarted in place. */
struct process *process_create(struct host *host, const char *name, const struct program *program, void *context);
void process_start(struct process *process);
void process_crash(struct process *process);
/* Nothing of the process runs until it is resumed; its NICs go on unless they stop too. What arrives meanwhile waits in
 * its sockets. */
void process_pause(struct process *process, bool nics_too);
void process_resume(struct process *process);
uint64_t process_paused_ns(const struct process *process); /* in this and all former incarnations */
void process_free(struct process *process);
/* Power off: every process dies, what was not synced or flushed is lost; nobody hears of it. */
void host_stop(struct host *host);
void host_start(struct host *host);
/* Nothing of the host runs, its NICs neither, and its clock stands; only hf_env_boot_ns goes on. It was neither stopped
 * nor suspended before. */
void host_suspend(struct host *host);
void host_resume(struct host *host);
uint64_t host_now_ns(const struct host *host);    /* by its clock */
#define HOST_WALL_START_NS 1700000000000000000ull /* any fixed day: runs must not differ by when they are made */
uint64_t host_boot_ns(const struct host *host);   /* the same, suspensions included */
uint64_t host_suspended_ns(const struct host *host);

static inline struct process *env_process(struct hf_env *env)
{
	return (struct process *)(void *)env;
}

static inline struct world *process_world(const struct process *process)
{
	return process->host->world;
}

/* ---- for the parts of the env ---- */

extern const struct world_ops sim_env_ops; /* env.c */

void sim_io_init(struct sim_io *io, struct process *process, const struct world_io_ops *ops,
	unsigned (*ready)(struct sim_io *io), void (*abandon)(struct sim_io *io));
void group_leave(struct sim_io *io);    /* env.c */
void sim_io_free(struct sim_io *io);    /* unlinks; the memory stays the caller's */
void sim_io_changed(struct sim_io *io); /* something may have become ready */

void actor_kick(struct world_waiter *actor); /* runs soon */
int actor_open(struct hf_env *env, struct hf_loop *loop, struct world_waiter **actor_out);
void actor_close(struct world_waiter *actor);
int actor_watch(struct world_waiter *actor, struct hf_watch *watch);
void actor_unwatch(struct world_waiter *actor, struct hf_watch *watch);
unsigned actor_wait(struct world_waiter *actor, uint64_t max_ns);

/* Between two steps of a turn: tears it by chance, as the world has it. Not while the caller holds what an event of
 * another process could change. */
void process_step(struct process *process);
void process_device_step(struct process *process); /* likewise; the caller is in no code of a device */
/* Tears the turn that the process is in. */
void process_tear(struct process *process, uint64_t ns);

/* A worker's call takes so long: its next turn comes behind that. For other actors time stands still within a turn. */
void actor_blocks(struct world_waiter *worker, uint64_t ns);

int thread_start(struct hf_env *env, const char *name, enum hf_thread_kind kind,
	void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out);
void thread_stop(struct hf_thread *thread);

/* memory.c */
int memory_alloc(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error);
void memory_free(struct hf_env *env, void *addr);
int memory_flush(struct hf_env *env, void *addr, size_t bytes);
int memory_populate(struct hf_env *env, void *addr, size_t bytes);
/* What the files that it has mapped have now; stores behind that are undone. */
struct memory_kept;
struct memory_kept *memory_keep(const struct process *process);
void memory_put_back(struct memory_kept *kept);
void memory_abandon(struct process *process);
void memory_reset(void); /* before the first world of a run of the program and after each */

#endif
