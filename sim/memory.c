/* Memory of simulated processes: one arena at a fixed address, handed out upwards and never twice in a world.
 *
 * Fixed addresses make packets (which carry them) the same in every run; memory that is not handed out again makes a
 * late store into freed memory visible to checkers instead of corrupting something. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/ensure.h"
#include "sim/disk.h"
#include "sim/host.h"

#define ARENA_AT    ((void *)0x200000000000ull)
#define ARENA_BYTES (8ull << 30)
#define PAGE_BYTES  4096u

struct region {
	struct list node; /* of the process */
	void *addr;
	size_t bytes;
	struct disk_file *file; /* NULL: anonymous */
};

struct memory_kept {
	struct memory_kept *next;
	void *addr;
	size_t bytes;
	uint8_t data[];
};

static char *arena;
static size_t arena_used;

void memory_reset(void)
{
	if (arena == NULL) {
		arena = mmap(ARENA_AT, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);
		ensure(arena != MAP_FAILED);
	}
	if (arena_used > 0)
		ensure(madvise(arena, arena_used, MADV_DONTNEED) == 0);
	arena_used = 0;
}

void *memory_take(size_t bytes)
{
	void *addr;

	bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	if (bytes > ARENA_BYTES - PAGE_BYTES - arena_used)
		return NULL;
	addr = arena + arena_used;
	arena_used += bytes + PAGE_BYTES; /* a page between: overruns hit nothing of anybody's */
	return addr;
}

void memory_add_mapping(struct process *process, void *addr, size_t bytes, struct disk_file *file)
{
	struct region *region = calloc(1, sizeof(*region));

	ensure(region != NULL);
	*region = (struct region){.addr = addr, .bytes = bytes, .file = file};
	list_push_back(&process->memory, &region->node);
}

int memory_alloc(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error)
{
	*addr_out = memory_take(bytes);
	if (*addr_out == NULL)
		return hf_error_set(error, -ENOMEM, "the simulated host has no %zu bytes left", bytes);
	memory_add_mapping(env_process(env), *addr_out, bytes, NULL);
	disk_blocks(env_process(env));
	return 0;
}

static void forget(struct region *region)
{
	if (region->file != NULL)
		disk_unmapped(region->file);
	list_remove(&region->node);
	free(region);
}

static struct region *find(struct process *process, const void *addr)
{
	list_for_each (at, &process->memory) {
		struct region *region = container_of(at, struct region, node);

		if ((const char *)addr >= (char *)region->addr &&
			(const char *)addr < (char *)region->addr + region->bytes)
			return region;
	}
	return NULL;
}

void memory_free(struct hf_env *env, void *addr)
{
	struct region *region = find(env_process(env), addr);

	ensure(region != NULL && region->addr == addr);
	forget(region);
}

int memory_flush(struct hf_env *env, void *addr, size_t bytes)
{
	struct region *region = find(env_process(env), addr);

	if (region == NULL || region->file == NULL)
		return -EINVAL;
	return disk_flush(env_process(env), region->file, addr, bytes);
}

void disk_write_back(struct process *process, const void *at, const void *data, size_t bytes)
{
	const struct region *region = find(process, at);

	if (region != NULL && region->file != NULL)
		disk_file_write_back(region->file, at, data, bytes);
}

int memory_populate(struct hf_env *env, void *addr, size_t bytes)
{
	/* Mappings of one file have one address, and an earlier one, which is held yet, may be shorter. */
	list_for_each (at, &env_process(env)->memory) {
		const struct region *region = container_of(at, const struct region, node);

		if ((char *)addr < (char *)region->addr || (char *)addr + bytes > (char *)region->addr + region->bytes)
			continue;
		disk_blocks(env_process(env));
		return 0;
	}
	return -ENOMEM;
}

struct memory_kept *memory_keep(const struct process *process)
{
	struct memory_kept *first = NULL;

	list_for_each (at, &process->memory) {
		const struct region *region = container_of(at, const struct region, node);
		struct memory_kept *kept;

		if (region->file == NULL)
			continue;
		kept = malloc(sizeof(*kept) + region->bytes);
		ensure(kept != NULL);
		*kept = (struct memory_kept){.next = first, .addr = region->addr, .bytes = region->bytes};
		memcpy(kept->data, region->addr, region->bytes);
		first = kept;
	}
	return first;
}

void memory_put_back(struct memory_kept *kept)
{
	while (kept != NULL) {
		struct memory_kept *next = kept->next;

		memcpy(kept->addr, kept->data, kept->bytes);
		free(kept);
		kept = next;
	}
}

void memory_abandon(struct process *process)
{
	list_for_each_safe (at, &process->memory)
		forget(container_of(at, struct region, node));
}
