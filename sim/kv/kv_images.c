/* Older copies of logs: one of a member is taken while all serve, and takes the place of its log after a kill. And torn
 * logs: of what is not durable at a power loss, the first entry is lost and the others survive, which is rare by
 * chance. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "sim/checkers/store_log.h"
#include "sim/kv/kv.h"

#define DIRECTORY        "kv"
#define PREFIX           "log-"
#define PATH_BYTES       64u
#define HEAD_BYTES       256u
#define ENTRY_HEAD_BYTES 48u
#define AGE_LEASES       3u /* a younger one may have all that its member had reported */
#define USED_PPM         600000u

/* One of its segments. */
struct kv_image_file {
	struct kv_image_file *next;
	char path[PATH_BYTES];
	size_t bytes;
	uint8_t data[];
};

struct listing {
	struct hf_env *env;
	struct kv_image *image; /* NULL: the files go */
};

static bool is_segment(const char *name, char path[PATH_BYTES])
{
	return strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
	       snprintf(path, PATH_BYTES, "%s/%s", DIRECTORY, name) < (int)PATH_BYTES;
}

static void forget(struct kv_image *image)
{
	while (image->files != NULL) {
		struct kv_image_file *file = image->files;

		image->files = file->next;
		free(file);
	}
}

static void take_file(const char *name, void *context)
{
	struct listing *listing = context;
	struct kv_image_file *file;
	char path[PATH_BYTES];
	struct hf_file *from;
	size_t bytes;

	if (!is_segment(name, path) || hf_file_open(listing->env, path, 0, &from) != 0)
		return;
	bytes = (size_t)hf_file_bytes(from);
	file = malloc(sizeof(*file) + bytes);
	ensure(file != NULL);
	memcpy(file->path, path, sizeof(path));
	file->bytes = bytes;
	ensure(hf_file_read_at(from, file->data, bytes, 0) == (ssize_t)bytes);
	hf_file_close(from);
	file->next = listing->image->files;
	listing->image->files = file;
}

void kv_images_look(struct kv_cluster *all)
{
	struct kv_image *image = &all->image;
	struct listing listing = {.image = image};
	struct kv_node *node;

	if (!image->wanted || image->node != NULL || all->world->now_ns < image->due_ns || !kv_kills_all_serve(all))
		return;
	forget(image);
	node = &all->nodes[world_range(all->world, 0, all->count - 1)];
	listing.env = &node->endpoint.process->env;
	if (hf_dir_list(listing.env, DIRECTORY, take_file, &listing) != 0)
		return;
	image->node = node;
	image->taken_ns = all->world->now_ns;
}

void kv_images_kills(struct kv_cluster *all, struct kv_node *node)
{
	struct kv_image *image = &all->image;

	if (image->node != node || !kv_kills_is_one_of_all(node) ||
		all->world->now_ns < image->taken_ns + AGE_LEASES * all->lease_ns ||
		!world_chance(all->world, USED_PPM))
		return;
	node->older = true;
	node->logged = node->copies = false; /* this log is not what it was: it copies all records */
	all->calm = false;
	all->outcome->older_logs++;
}

/* ---- torn ends ---- */

static void find_last(const char *name, void *context)
{
	uint64_t *last = context, position;

	if (sscanf(name, PREFIX "%" SCNx64, &position) == 1 && (*last == UINT64_MAX || position > *last))
		*last = position;
}

static void path_of(uint64_t position, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, DIRECTORY "/" PREFIX "%016" PRIx64, position);
}

void kv_images_tears(struct kv_node *node)
{
	struct hf_env *env = &node->endpoint.process->env;
	uint64_t last = UINT64_MAX;
	char path[PATH_BYTES];
	struct hf_file *file;

	free(node->tail);
	node->tail = NULL;
	if (hf_dir_list(env, DIRECTORY, find_last, &last) != 0 || last == UINT64_MAX)
		return;
	path_of(last, path);
	if (hf_file_open(env, path, 0, &file) != 0)
		return;
	node->tail_position = last;
	node->tail_bytes = (size_t)hf_file_bytes(file);
	node->tail = malloc(node->tail_bytes + 1);
	ensure(node->tail != NULL);
	ensure(hf_file_read_at(file, node->tail, node->tail_bytes, 0) == (ssize_t)node->tail_bytes);
	hf_file_close(file);
}

static void put_tail(struct kv_node *node)
{
	struct hf_env *env = &node->endpoint.process->env;
	struct store_log_end end = store_log_find_end(env, DIRECTORY);
	size_t at = (size_t)(HEAD_BYTES + end.position - node->tail_position), length;
	char path[PATH_BYTES];
	struct hf_file *file;

	path_of(node->tail_position, path);
	if (end.position < node->tail_position || at + ENTRY_HEAD_BYTES > node->tail_bytes)
		return;
	length = get_le32(node->tail + at + 4);
	if (length == 0 || at + length >= node->tail_bytes || hf_file_open(env, path, HF_FILE_WRITE, &file) != 0)
		return;
	(void)hf_file_write_at(file, node->tail + at + length, node->tail_bytes - at - length, at + length);
	(void)hf_file_sync(file);
	hf_file_close(file);
	node->all->outcome->torn_logs++;
}

/* ---- before the next process ---- */

static void remove_file(const char *name, void *context)
{
	struct listing *listing = context;
	char path[PATH_BYTES];

	if (is_segment(name, path))
		(void)hf_file_remove(listing->env, path);
}

/* A disk that is full or fails keeps a part of it. */
static void put_file(struct hf_env *env, const struct kv_image_file *file)
{
	struct hf_file *to;

	if (hf_file_open(env, file->path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &to) != 0)
		return;
	(void)hf_file_write_at(to, file->data, file->bytes, 0);
	(void)hf_file_sync(to);
	hf_file_close(to);
}

static void put_older(struct kv_node *node)
{
	struct kv_image *image = &node->all->image;
	struct listing listing = {.env = &node->endpoint.process->env};

	node->older = false;
	node->aged = true;
	if (hf_dir_list(listing.env, DIRECTORY, remove_file, &listing) != 0)
		return;
	for (const struct kv_image_file *file = image->files; file != NULL; file = file->next)
		put_file(listing.env, file);
	(void)hf_dir_sync(listing.env, DIRECTORY);
	image->node = NULL;
	image->due_ns =
		node->all->world->now_ns + world_range(node->all->world, NS_MS, AGE_LEASES * node->all->lease_ns);
}

void kv_images_put(struct kv_node *node)
{
	if (node->older)
		put_older(node);
	else if (node->tail != NULL)
		put_tail(node);
	free(node->tail);
	node->tail = NULL;
}

void kv_images_free(struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		free(all->nodes[i].tail);
	forget(&all->image);
}
