/* The content of files on the simulated disk; see disk.h for what survives what. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/ensure.h"
#include "sim/disk_parts.h"

#define CAPACITY_FIRST (64u << 10)
#define CAPACITY_MAPS  (16u << 20) /* reserved for a file when it is first mapped: it can grow under its mappings */

struct handle {
	struct hf_file file; /* first */
	struct process *process;
	struct disk_file *on;
	bool writable;
};

static struct handle *handle_of(struct hf_file *file)
{
	return (struct handle *)(void *)file;
}

/* Zeros that cost nothing until they are touched. Those of calloc() are written where MALLOC_PERTURB_ is set, which
 * meson does for tests. */
static uint8_t *zeros_take(size_t bytes)
{
	void *zeros = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return zeros == MAP_FAILED ? NULL : zeros;
}

static void zeros_free(uint8_t *zeros, size_t bytes)
{
	if (zeros != NULL)
		munmap(zeros, bytes);
}

void disk_file_unused(struct disk_file *file)
{
	if (file->names > 0 || file->handles > 0 || file->mappings > 0 || file->commits > 0)
		return;
	list_remove(&file->node);
	zeros_free(file->durable, file->capacity);
	zeros_free(file->believed, file->capacity);
	free(file); /* the cache is arena memory */
}

struct disk_file *disk_file_create(struct disk *disk, unsigned flags)
{
	struct disk_file *file = calloc(1, sizeof(*file));

	if (file == NULL)
		return NULL;
	file->disk = disk;
	file->id = ++disk->files_made;
	file->mode = flags & HF_FILE_PUBLIC ? 0644 : 0600;
	list_push_back(&disk->files, &file->node);
	return file;
}

uint64_t disk_used_bytes(const struct disk *disk)
{
	uint64_t bytes = 0;

	list_for_each (at, &disk->files)
		bytes += container_of(at, struct disk_file, node)->bytes;
	return bytes;
}

int disk_dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out)
{
	const struct disk *disk = env_process(env)->host->disk;
	uint64_t used = disk_used_bytes(disk);

	(void)path; /* a host has one file system */
	*free_bytes_out = used > disk->bytes ? 0 : disk->bytes - used;
	*bytes_out = disk->bytes;
	return 0;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int grow_copy(const struct disk_file *file, uint8_t **copy, size_t capacity)
{
	uint8_t *grown = zeros_take(capacity);

	if (grown == NULL)
		return -ENOSPC;
	if (file->touched > 0)
		memcpy(grown, *copy, file->touched);
	zeros_free(*copy, file->capacity);
	*copy = grown;
	return 0;
}

static void touch(struct disk_file *file, size_t end)
{
	file->changed_ns = HOST_WALL_START_NS + host_boot_ns(file->disk->host);
	file->touched = end > file->touched ? end : file->touched;
}

static int grow(struct disk_file *file, size_t capacity)
{
	uint8_t *cache;

	if (capacity <= file->capacity)
		return 0;
	if (file->mappings > 0)
		return -ENOSPC;
	cache = memory_take(capacity);
	if (cache == NULL || grow_copy(file, &file->durable, capacity) != 0 ||
		(file->believed != NULL && grow_copy(file, &file->believed, capacity) != 0))
		return -ENOSPC;
	if (file->touched > 0)
		memcpy(cache, file->cache, smaller(file->bytes, file->touched));
	file->cache = cache;
	file->capacity = capacity;
	return 0;
}

static int resize(struct disk_file *file, size_t bytes)
{
	size_t capacity = CAPACITY_FIRST;
	int rc;

	if (bytes > file->bytes && disk_used_bytes(file->disk) + (bytes - file->bytes) > file->disk->bytes)
		return -ENOSPC;
	while (capacity < bytes)
		capacity *= 2;
	if ((rc = grow(file, capacity)) != 0)
		return rc;
	if (bytes < smaller(file->bytes, file->touched))
		memset(file->cache + bytes, 0, smaller(file->bytes, file->touched) - bytes);
	file->bytes = bytes;
	file->changed_ns = HOST_WALL_START_NS + host_boot_ns(file->disk->host);
	return 0;
}

/* ---- sync ---- */

/* The sectors of [from, end) that the kernel would write: those that differ from what it takes for durable. */
static int collect(struct disk_file *file, size_t from, size_t end, struct disk_commit *commit)
{
	const uint8_t *written = file->believed != NULL ? file->believed : file->durable;

	commit->bytes = file->bytes;
	end = smaller(end, file->touched);
	for (size_t at = from / DISK_SECTOR_BYTES * DISK_SECTOR_BYTES; at < end; at += DISK_SECTOR_BYTES) {
		struct disk_sector *sectors;

		if (memcmp(file->cache + at, written + at, DISK_SECTOR_BYTES) == 0)
			continue;
		sectors = realloc(commit->sectors, (commit->count + 1) * sizeof(*sectors));
		if (sectors == NULL)
			return -ENOMEM;
		commit->sectors = sectors;
		sectors[commit->count].at = at;
		memcpy(sectors[commit->count++].data, file->cache + at, DISK_SECTOR_BYTES);
		if (file->believed != NULL)
			memcpy(file->believed + at, file->cache + at, DISK_SECTOR_BYTES);
	}
	return 0;
}

/* As Linux does: of what was to be written some is, and all of it counts as clean from now on. */
static int fail(struct disk_file *file, struct disk_commit *commit)
{
	uint8_t *believed = file->believed;

	if (believed == NULL) {
		believed = zeros_take(file->capacity);
		if (believed == NULL)
			return -ENOMEM;
		memcpy(believed, file->durable, file->touched);
		file->believed = believed;
	}
	for (size_t i = 0; i < commit->count; i++) {
		const struct disk_sector *sector = &commit->sectors[i];

		memcpy(believed + sector->at, sector->data, DISK_SECTOR_BYTES);
		if (world_chance(file->disk->host->world, 500000))
			memcpy(file->durable + sector->at, sector->data, DISK_SECTOR_BYTES);
	}
	return -EIO;
}

static int sync_range(struct process *process, struct disk_file *file, size_t from, size_t end)
{
	struct disk *disk = file->disk;
	struct disk_commit *commit;
	int rc;

	process_step(process);
	if (process->muted)
		return -EIO;
	if (disk->sync_lies) {
		disk_blocks(process);
		return 0;
	}
	commit = disk_commit_create(disk, file);
	if (commit == NULL)
		return -ENOMEM;
	rc = collect(file, from, end, commit);
	if (rc == 0 && world_chance(process_world(process), disk->sync_fails_ppm)) {
		disk_blocks(process);
		rc = fail(file, commit);
	}
	if (rc == 0)
		disk_commit_begin(process, commit);
	else
		disk_commit_drop(commit);
	return rc;
}

int disk_flush(struct process *process, struct disk_file *file, const void *at, size_t bytes)
{
	size_t from = (size_t)((const uint8_t *)at - file->cache);

	return sync_range(process, file, from, from + bytes);
}

void disk_file_write_back(struct disk_file *file, const void *at, const void *data, size_t bytes)
{
	size_t from = (size_t)((const uint8_t *)at - file->cache);

	memcpy(file->durable + from, data, bytes);
	if (file->believed != NULL)
		memcpy(file->believed + from, data, bytes);
}

void disk_file_lose_power(struct disk_file *file)
{
	static const size_t pieces[] = {8, 64, DISK_SECTOR_BYTES};
	struct world *world = file->disk->host->world;
	size_t both = file->bytes > file->durable_bytes ? file->bytes : file->durable_bytes;
	size_t n = file->disk->piece_bytes, touched = smaller(both, file->touched);

	if (n == 0)
		n = pieces[world_range(world, 0, 2)];
	for (size_t at = 0; at < touched; at += n) {
		bool clean = file->believed != NULL && memcmp(file->cache + at, file->believed + at, n) == 0;

		if (memcmp(file->cache + at, file->durable + at, n) != 0 && !clean && world_chance(world, 500000))
			memcpy(file->durable + at, file->cache + at, n);
	}
	if (world_chance(world, 500000))
		file->durable_bytes = file->bytes;
	file->bytes = file->durable_bytes;
	if (touched > file->bytes)
		memset(file->durable + file->bytes, 0, touched - file->bytes);
	if (touched > 0)
		memcpy(file->cache, file->durable, touched);
	zeros_free(file->believed, file->capacity);
	file->believed = NULL;
}

/* ---- the operations of env ---- */

static void file_close(struct hf_file *file)
{
	struct handle *handle = handle_of(file);

	if (handle->on->lock_by == handle)
		handle->on->lock_by = NULL;
	handle->on->handles--;
	disk_file_unused(handle->on);
	free(handle);
}

static int64_t file_bytes(struct hf_file *file)
{
	return (int64_t)handle_of(file)->on->bytes;
}

static int64_t file_changed_ns(struct hf_file *file)
{
	return (int64_t)handle_of(file)->on->changed_ns;
}

static int file_mode(struct hf_file *file)
{
	return handle_of(file)->on->mode;
}

static int file_identity(struct hf_file *file, uint64_t *device_out, uint64_t *inode_out)
{
	*device_out = 0;
	*inode_out = handle_of(file)->on->id;
	return 0;
}

static int file_next_data(struct hf_file *file, uint64_t from, uint64_t *begin_out, uint64_t *end_out)
{
	struct disk_file *on = handle_of(file)->on;

	if (from >= on->bytes || from >= on->touched)
		return -ENXIO;
	*begin_out = from;
	*end_out = smaller(on->bytes, on->touched);
	return 0;
}

static ssize_t file_read_at(struct hf_file *file, void *data, size_t bytes, uint64_t offset)
{
	struct disk_file *on = handle_of(file)->on;

	if (offset >= on->bytes)
		return 0;
	if (bytes > on->bytes - offset)
		bytes = on->bytes - offset;
	memcpy(data, on->cache + offset, bytes);
	return (ssize_t)bytes;
}

/* What is written is dirty, also where it is what a failed sync took for clean. */
static void soil(struct disk_file *on, size_t from, size_t end)
{
	for (size_t at = from / DISK_SECTOR_BYTES * DISK_SECTOR_BYTES; on->believed != NULL && at < end;
		at += DISK_SECTOR_BYTES)
		memcpy(on->believed + at, on->durable + at, DISK_SECTOR_BYTES);
}

static ssize_t file_write_at(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	struct handle *handle = handle_of(file);
	struct disk_file *on = handle->on;
	uint64_t fits = on->disk->bytes - (disk_used_bytes(on->disk) - on->bytes); /* up to this offset */
	int rc;

	process_step(handle->process);
	if (!handle->writable)
		return -EBADF;
	if (handle->process->muted)
		return -EIO;
	if (offset >= fits)
		return -ENOSPC;
	if (bytes > fits - offset)
		bytes = fits - offset;
	if (offset + bytes > on->bytes && (rc = resize(on, offset + bytes)) != 0)
		return rc;
	if (bytes > 0)
		memcpy(on->cache + offset, data, bytes);
	touch(on, offset + bytes);
	soil(on, offset, offset + bytes);
	return (ssize_t)bytes;
}

static int file_resize(struct hf_file *file, uint64_t bytes)
{
	struct handle *handle = handle_of(file);

	return !handle->writable ? -EBADF : handle->process->muted ? -EIO : resize(handle->on, bytes);
}

static int file_sync(struct hf_file *file, bool data_only)
{
	struct disk_file *on = handle_of(file)->on;

	(void)data_only; /* the size is needed to read the data, and times survive in any case */
	return sync_range(
		handle_of(file)->process, on, 0, on->bytes > on->durable_bytes ? on->bytes : on->durable_bytes);
}

static int file_lock(struct hf_file *file)
{
	struct handle *handle = handle_of(file);

	if (handle->process->muted)
		return -EIO;
	if (handle->on->lock_by != NULL && handle->on->lock_by != handle)
		return -EAGAIN;
	handle->on->lock_by = handle;
	return 0;
}

static int file_map(
	struct hf_file *file, uint64_t offset, size_t bytes, enum hf_map how, void **addr_out, struct hf_error *error)
{
	struct handle *handle = handle_of(file);
	struct disk_file *on = handle->on;

	(void)how; /* the hosts' protection is not modelled: a checker watches who writes what */
	if (offset + bytes > on->bytes)
		return hf_error_set(error, -EINVAL, "the file has only %zu bytes", on->bytes);
	if (on->mappings == 0 && grow(on, on->bytes * 4 > CAPACITY_MAPS ? on->bytes * 4 : CAPACITY_MAPS) != 0)
		return hf_error_set(error, -ENOMEM, "the simulated host has no memory left to map a file");
	on->mappings++;
	touch(on, offset + bytes);
	*addr_out = on->cache + offset;
	memory_add_mapping(handle->process, *addr_out, bytes, on);
	disk_blocks(handle->process);
	return 0;
}

static const struct world_file_ops file_ops = {
	.close = file_close,
	.bytes = file_bytes,
	.changed_ns = file_changed_ns,
	.mode = file_mode,
	.identity = file_identity,
	.next_data = file_next_data,
	.read_at = file_read_at,
	.write_at = file_write_at,
	.resize = file_resize,
	.sync = file_sync,
	.lock = file_lock,
	.map = file_map,
};

int disk_file_open(struct process *process, struct disk_file *file, unsigned flags, struct hf_file **file_out)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	if (handle == NULL)
		return -ENOMEM;
	*handle = (struct handle){.file.ops = &file_ops, .process = process, .on = file};
	handle->writable = (flags & HF_FILE_WRITE) != 0;
	file->handles++;
	if (flags & HF_FILE_TRUNCATE)
		resize(file, 0);
	*file_out = &handle->file;
	return 0;
}

void disk_abandon(struct process *process)
{
	list_for_each (at, &process->host->disk->files) {
		struct disk_file *file = container_of(at, struct disk_file, node);

		if (file->lock_by != NULL && ((const struct handle *)file->lock_by)->process == process)
			file->lock_by = NULL;
	}
}

void disk_unmapped(struct disk_file *file)
{
	file->mappings--;
	disk_file_unused(file);
}
