/* The env of a simulated process: clock, entropy, notifiers, and the table that names the rest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/disk.h"
#include "sim/host.h"
#include "sim/network.h"

#define WRAP_SEEDS  3u  /* of so many worlds one draws 24-bit numbers near their end, */
#define WRAP_WITHIN 64u /* so near */

static uint64_t env_now_ns(struct hf_env *env)
{
	process_step(env_process(env));
	return host_now_ns(env_process(env)->host);
}

static uint64_t env_boot_ns(struct hf_env *env)
{
	process_step(env_process(env));
	return host_boot_ns(env_process(env)->host);
}

static bool env_boot_id(struct hf_env *env, uint8_t id[HF_BOOT_ID_BYTES])
{
	id[0] = 1;
	memcpy(id + 8, &env_process(env)->host->disk->losses, 8);
	return true;
}

static uint64_t env_wall_ns(struct hf_env *env)
{
	return HOST_WALL_START_NS + env_boot_ns(env);
}

/* Numbers of 24 bits, which psns are, wrap. A few of 16 million would never come near that. */
static void env_entropy(struct hf_env *env, void *data, size_t bytes)
{
	struct process *process = env_process(env);
	uint8_t *number = data;

	rng_fill(&process->entropy, data, bytes);
	if (bytes != 3 || process_world(process)->seed % WRAP_SEEDS != 0)
		return;
	number[0] = (uint8_t)(UINT8_MAX - number[0] % WRAP_WITHIN);
	number[1] = number[2] = UINT8_MAX;
}

struct notifier {
	struct sim_io base;
	bool signalled;
};

static void notifier_close(struct hf_io *io)
{
	struct notifier *notifier = (struct notifier *)(void *)io;

	sim_io_free(&notifier->base);
	free(notifier);
}

static void notifier_signal(struct hf_io *io)
{
	struct notifier *notifier = (struct notifier *)(void *)io;

	notifier->signalled = true;
	sim_io_changed(&notifier->base);
}

static void notifier_clear(struct hf_io *io)
{
	((struct notifier *)(void *)io)->signalled = false;
}

static unsigned notifier_ready(struct sim_io *io)
{
	return ((struct notifier *)(void *)io)->signalled ? HF_READABLE : 0;
}

static void notifier_abandon(struct sim_io *io)
{
	(void)io; /* nobody else knows it */
}

static const struct world_io_ops notifier_ops = {
	.close = notifier_close,
	.signal = notifier_signal,
	.clear = notifier_clear,
};

static int notifier_open(struct hf_env *env, struct hf_io **io_out)
{
	struct notifier *notifier = calloc(1, sizeof(*notifier));

	if (notifier == NULL)
		return -ENOMEM;
	sim_io_init(&notifier->base, env_process(env), &notifier_ops, notifier_ready, notifier_abandon);
	*io_out = &notifier->base.io;
	return 0;
}

/* Several ios to wait for as one. */
#define GROUP_MAX 4u

struct group {
	struct sim_io base;
	struct sim_io *members[GROUP_MAX]; /* a closed one leaves: NULL */
};

static struct group *group_of(struct sim_io *io)
{
	return (struct group *)(void *)io;
}

static void group_close(struct hf_io *io)
{
	struct group *group = (struct group *)(void *)io;

	for (unsigned i = 0; i < GROUP_MAX; i++)
		if (group->members[i] != NULL)
			group->members[i]->group = NULL;
	sim_io_free(&group->base);
	free(group);
}

void group_leave(struct sim_io *io)
{
	for (unsigned i = 0; i < GROUP_MAX; i++)
		if (group_of(io->group)->members[i] == io)
			group_of(io->group)->members[i] = NULL;
}

static unsigned group_ready(struct sim_io *io)
{
	unsigned ready = 0;

	for (unsigned i = 0; i < GROUP_MAX; i++) {
		struct sim_io *member = group_of(io)->members[i];

		if (member != NULL)
			ready |= member->ready(member) & HF_READABLE;
	}
	return ready;
}

static const struct world_io_ops group_ops = {.close = group_close};

static int group_open(struct hf_env *env, struct hf_io *const *members, unsigned n, struct hf_io **io_out)
{
	struct group *group = calloc(1, sizeof(*group));

	if (group == NULL)
		return -ENOMEM;
	ensure(n <= GROUP_MAX);
	sim_io_init(&group->base, env_process(env), &group_ops, group_ready, notifier_abandon);
	for (unsigned i = 0; i < n; i++) {
		group->members[i] = (struct sim_io *)(void *)members[i];
		group->members[i]->group = &group->base;
	}
	*io_out = &group->base.io;
	return 0;
}

const struct world_ops sim_env_ops = {
	.spin_ns = 0,
	.now_ns = env_now_ns,
	.boot_ns = env_boot_ns,
	.boot_id = env_boot_id,
	.wall_ns = env_wall_ns,
	.entropy = env_entropy,
	.addr_is_local = sim_addr_is_local,
	.waiter_open = actor_open,
	.waiter_close = actor_close,
	.waiter_watch = actor_watch,
	.waiter_unwatch = actor_unwatch,
	.waiter_wait = actor_wait,
	.waiter_wake = actor_kick,
	.dgram_open = sim_dgram_open,
	.stream_listen = sim_stream_listen,
	.stream_connect = sim_stream_connect,
	.notifier_open = notifier_open,
	.group_open = group_open,
	.thread_start = thread_start,
	.thread_stop = thread_stop,
	.file_open = disk_open,
	.file_rename = disk_rename,
	.file_remove = disk_remove,
	.dir_make = disk_dir_make,
	.dir_list = disk_dir_list,
	.dir_remove = disk_dir_remove,
	.dir_sync = disk_dir_sync,
	.dir_space = disk_dir_space,
	.mem_alloc = memory_alloc,
	.mem_free = memory_free,
	.mem_flush = memory_flush,
	.mem_populate = memory_populate,
};
