/* A disk as a whole, and what is on its way to its medium: the commits of calls, which end in the order in which they
 * began. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/disk_parts.h"

#define DISK_BYTES  (1ull << 40)
#define CALL_NS_MIN (30 * NS_US)
#define CALL_NS_MAX (3 * NS_MS)

struct disk *disk_create(struct host *host)
{
	struct disk *disk = calloc(1, sizeof(*disk));

	ensure(disk != NULL);
	*disk = (struct disk){
		.host = host, .bytes = DISK_BYTES, .call_ns_min = CALL_NS_MIN, .call_ns_max = CALL_NS_MAX};
	list_init(&disk->files);
	list_init(&disk->names);
	list_init(&disk->durable);
	list_init(&disk->changes);
	list_init(&disk->commits);
	return disk;
}

struct world_waiter *disk_blocks(struct process *process)
{
	const struct disk *disk = process->host->disk;
	struct world *world = process_world(process);
	uint64_t call_ns;

	if (process->in_turn == NULL || !process->in_turn->worker)
		return NULL;
	call_ns = world_range(world, disk->call_ns_min, disk->call_ns_max);
	if (disk->hangs_until_ns > world->now_ns + call_ns)
		call_ns = disk->hangs_until_ns - world->now_ns;
	actor_blocks(process->in_turn, call_ns);
	return process->in_turn;
}

/* ---- commits ---- */

static struct disk_commit *commit_of(struct list *node)
{
	return container_of(node, struct disk_commit, node);
}

void disk_commit_drop(struct disk_commit *commit)
{
	world_cancel(commit->disk->host->world, &commit->end);
	list_remove(&commit->node);
	if (commit->file != NULL) {
		commit->file->commits--;
		disk_file_unused(commit->file);
	}
	free(commit->sectors);
	free(commit);
}

static void take_effect(struct disk_commit *commit)
{
	struct disk_file *file = commit->file;

	for (size_t i = 0; i < commit->count; i++)
		memcpy(file->durable + commit->sectors[i].at, commit->sectors[i].data, DISK_SECTOR_BYTES);
	if (file != NULL)
		file->durable_bytes = commit->bytes;
	else
		disk_names_commit(commit->disk, commit);
	disk_commit_drop(commit);
}

static void end_commit(struct world_event *event)
{
	take_effect(container_of(event, struct disk_commit, end));
}

struct disk_commit *disk_commit_create(struct disk *disk, struct disk_file *file)
{
	struct disk_commit *commit = calloc(1, sizeof(*commit));

	if (commit == NULL)
		return NULL;
	*commit = (struct disk_commit){.disk = disk, .file = file};
	commit->end.what = "commit";
	commit->end.fire = end_commit;
	if (file != NULL)
		file->commits++;
	list_push_back(&disk->commits, &commit->node);
	return commit;
}

/* Those up to this one take effect. */
static void settle_up_to(struct disk_commit *last)
{
	struct disk *disk = last->disk;
	struct disk_commit *first;

	do
		take_effect(first = commit_of(disk->commits.next));
	while (first != last);
}

void disk_commit_begin(struct process *process, struct disk_commit *commit)
{
	struct disk *disk = commit->disk;
	struct disk_commit *before = commit_of(commit->node.prev);

	commit->worker = disk_blocks(process);
	if (commit->worker == NULL) {
		settle_up_to(commit);
		return;
	}
	if (commit->node.prev != &disk->commits && before->end.at_ns > commit->worker->busy_until_ns)
		commit->worker->busy_until_ns = before->end.at_ns;
	world_schedule(disk->host->world, &commit->end, commit->worker->busy_until_ns);
}

void disk_settle(struct world_waiter *worker)
{
	struct disk *disk = worker->process->host->disk;
	struct disk_commit *last = NULL;

	list_for_each (at, &disk->commits) {
		if (commit_of(at)->worker != worker)
			continue;
		last = commit_of(at);
		last->worker = NULL;
	}
	if (last != NULL && !worker->process->muted)
		settle_up_to(last);
}

/* ---- ends ---- */

void disk_power_loss(struct disk *disk)
{
	disk->losses++;
	while (!list_empty(&disk->commits))
		disk_commit_drop(commit_of(disk->commits.next));
	list_for_each (at, &disk->files)
		disk_file_lose_power(container_of(at, struct disk_file, node));
	disk_names_lose_power(disk);
	list_for_each_safe (at, &disk->files)
		disk_file_unused(container_of(at, struct disk_file, node));
}

void disk_free(struct disk *disk)
{
	if (disk == NULL)
		return;
	while (!list_empty(&disk->commits))
		disk_commit_drop(commit_of(disk->commits.next));
	disk_names_free(disk);
	list_for_each_safe (at, &disk->files)
		disk_file_unused(container_of(at, struct disk_file, node));
	ensure(list_empty(&disk->files));
	free(disk);
}
