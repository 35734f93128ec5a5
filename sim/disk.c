/* Files on the simulated disk; see disk.h for what survives what. */
#include "sim/disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define SECTOR_BYTES   512u
#define PATH_BYTES     256
#define CAPACITY_FIRST (64u << 10)
#define CAPACITY_MAPS  (16u << 20) /* reserved for a file when it is first mapped: it can grow under its mappings */

struct disk_file {
	struct list node; /* of the host's disk */
	char path[PATH_BYTES];
	uint8_t *cache, *durable; /* both have `capacity` bytes */
	size_t capacity, bytes, durable_bytes;
	unsigned handles, mappings;
	int mode;
	bool removed;
};

struct handle {
	struct hf_file file; /* first */
	struct process *process;
	struct disk_file *on;
	bool writable;
};

static struct disk_file *look_up(struct host *host, const char *path)
{
	list_for_each (at, &host->disk) {
		struct disk_file *file = container_of(at, struct disk_file, node);

		if (strcmp(file->path, path) == 0)
			return file;
	}
	return NULL;
}

static void drop_if_unused(struct disk_file *file)
{
	if (!file->removed || file->handles > 0 || file->mappings > 0)
		return;
	list_remove(&file->node);
	free(file->durable);
	free(file); /* the cache is arena memory */
}

static void unlink_file(struct disk_file *file)
{
	list_remove(&file->node);
	file->removed = true;
	drop_if_unused(file);
}

static int grow(struct disk_file *file, size_t capacity)
{
	uint8_t *cache, *durable;

	if (capacity <= file->capacity)
		return 0;
	if (file->mappings > 0)
		return -ENOSPC;
	cache = memory_take(capacity);
	durable = realloc(file->durable, capacity);
	if (durable != NULL)
		file->durable = durable;
	if (cache == NULL || durable == NULL)
		return -ENOSPC;
	memset(durable + file->capacity, 0, capacity - file->capacity);
	if (file->bytes > 0)
		memcpy(cache, file->cache, file->bytes);
	file->cache = cache;
	file->capacity = capacity;
	return 0;
}

static int resize(struct disk_file *file, size_t bytes)
{
	size_t capacity = CAPACITY_FIRST;
	int rc;

	while (capacity < bytes)
		capacity *= 2;
	if ((rc = grow(file, capacity)) != 0)
		return rc;
	if (bytes < file->bytes)
		memset(file->cache + bytes, 0, file->bytes - bytes);
	file->bytes = bytes;
	return 0;
}

static void file_close(struct hf_file *file)
{
	struct handle *handle = (struct handle *)(void *)file;

	handle->on->handles--;
	drop_if_unused(handle->on);
	free(handle);
}

static int64_t file_bytes(struct hf_file *file)
{
	return (int64_t)((struct handle *)(void *)file)->on->bytes;
}

static int file_mode(struct hf_file *file)
{
	return ((struct handle *)(void *)file)->on->mode;
}

static ssize_t file_read_at(struct hf_file *file, void *data, size_t bytes, uint64_t offset)
{
	struct disk_file *on = ((struct handle *)(void *)file)->on;

	if (offset >= on->bytes)
		return 0;
	if (bytes > on->bytes - offset)
		bytes = on->bytes - offset;
	memcpy(data, on->cache + offset, bytes);
	return (ssize_t)bytes;
}

static ssize_t file_write_at(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	struct handle *handle = (struct handle *)(void *)file;
	int rc;

	if (!handle->writable)
		return -EBADF;
	if (handle->process->muted)
		return -EIO;
	if (offset + bytes > handle->on->bytes && (rc = resize(handle->on, offset + bytes)) != 0)
		return rc;
	memcpy(handle->on->cache + offset, data, bytes);
	return (ssize_t)bytes;
}

static int file_resize(struct hf_file *file, uint64_t bytes)
{
	struct handle *handle = (struct handle *)(void *)file;

	return !handle->writable ? -EBADF : handle->process->muted ? -EIO : resize(handle->on, bytes);
}

static int file_sync(struct hf_file *file)
{
	struct handle *handle = (struct handle *)(void *)file;

	if (handle->process->muted)
		return -EIO;
	if (handle->on->bytes > 0)
		memcpy(handle->on->durable, handle->on->cache, handle->on->bytes);
	handle->on->durable_bytes = handle->on->bytes;
	return 0;
}

static int file_map(
	struct hf_file *file, uint64_t offset, size_t bytes, bool writable, void **addr_out, struct hf_error *error)
{
	struct handle *handle = (struct handle *)(void *)file;
	struct disk_file *on = handle->on;

	(void)writable; /* the hosts' protection is not modelled: a checker watches who writes what */
	if (offset + bytes > on->bytes)
		return hf_error_set(error, -EINVAL, "%s has only %zu bytes", on->path, on->bytes);
	if (on->mappings == 0 && grow(on, on->capacity * 4 > CAPACITY_MAPS ? on->capacity * 4 : CAPACITY_MAPS) != 0)
		return hf_error_set(error, -ENOMEM, "the simulated host has no memory left to map %s", on->path);
	on->mappings++;
	*addr_out = on->cache + offset;
	memory_add_mapping(handle->process, *addr_out, bytes, on);
	return 0;
}

static const struct world_file_ops file_ops = {
	.close = file_close,
	.bytes = file_bytes,
	.mode = file_mode,
	.read_at = file_read_at,
	.write_at = file_write_at,
	.resize = file_resize,
	.sync = file_sync,
	.map = file_map,
};

static struct disk_file *create_file(struct host *host, const char *path, unsigned flags)
{
	struct disk_file *file = calloc(1, sizeof(*file));

	if (file == NULL)
		return NULL;
	snprintf(file->path, sizeof(file->path), "%s", path);
	file->mode = flags & HF_FILE_PUBLIC ? 0644 : 0600;
	list_push_back(&host->disk, &file->node);
	return file;
}

int disk_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out)
{
	struct process *process = env_process(env);
	struct disk_file *file = look_up(process->host, path);
	struct handle *handle;

	*file_out = NULL;
	if (strlen(path) >= PATH_BYTES)
		return -ENAMETOOLONG;
	if (file != NULL && (flags & HF_FILE_CREATE) && (flags & HF_FILE_EXCLUSIVE))
		return -EEXIST;
	if (file == NULL && !(flags & HF_FILE_CREATE))
		return -ENOENT;
	handle = calloc(1, sizeof(*handle));
	if (handle == NULL || (file == NULL && (file = create_file(process->host, path, flags)) == NULL)) {
		free(handle);
		return -ENOMEM;
	}
	*handle = (struct handle){.file.ops = &file_ops, .process = process, .on = file};
	handle->writable = (flags & HF_FILE_WRITE) != 0;
	file->handles++;
	if (flags & HF_FILE_TRUNCATE)
		resize(file, 0);
	*file_out = &handle->file;
	return 0;
}

int disk_rename(struct hf_env *env, const char *from, const char *to)
{
	struct process *process = env_process(env);
	struct disk_file *file = look_up(process->host, from);
	struct disk_file *replaced = look_up(process->host, to);

	if (process->muted)
		return -EIO;
	if (file == NULL)
		return -ENOENT;
	if (strlen(to) >= PATH_BYTES)
		return -ENAMETOOLONG;
	if (replaced != NULL && replaced != file)
		unlink_file(replaced);
	snprintf(file->path, sizeof(file->path), "%s", to);
	return 0;
}

int disk_remove(struct hf_env *env, const char *path)
{
	struct process *process = env_process(env);
	struct disk_file *file = look_up(process->host, path);

	if (process->muted)
		return -EIO;
	if (file == NULL)
		return -ENOENT;
	unlink_file(file);
	return 0;
}

static void lose_power(struct world *world, struct disk_file *file)
{
	size_t both = file->bytes > file->durable_bytes ? file->bytes : file->durable_bytes;

	for (size_t at = 0; at < both; at += SECTOR_BYTES) {
		size_t n = file->capacity - at < SECTOR_BYTES ? file->capacity - at : SECTOR_BYTES;

		if (memcmp(file->cache + at, file->durable + at, n) != 0 && world_chance(world, 500000))
			memcpy(file->durable + at, file->cache + at, n);
	}
	if (world_chance(world, 500000))
		file->durable_bytes = file->bytes;
	file->bytes = file->durable_bytes;
	if (both > file->bytes)
		memset(file->durable + file->bytes, 0, both - file->bytes);
	if (both > 0)
		memcpy(file->cache, file->durable, both);
}

void disk_power_loss(struct host *host)
{
	list_for_each (at, &host->disk)
		lose_power(host->world, container_of(at, struct disk_file, node));
}

void disk_free(struct host *host)
{
	list_for_each_safe (at, &host->disk)
		unlink_file(container_of(at, struct disk_file, node));
}

void disk_unmapped(struct disk_file *file)
{
	file->mappings--;
	drop_if_unused(file);
}

void disk_flush(struct disk_file *file, const void *at, size_t bytes)
{
	size_t offset = (size_t)((const uint8_t *)at - file->cache);

	memcpy(file->durable + offset, at, bytes);
	if (file->durable_bytes < offset + bytes)
		file->durable_bytes = offset + bytes;
}
