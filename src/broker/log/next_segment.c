#include "broker/log/next_segment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"

#define PREFIX      "next-"
#define PIECE_BYTES (1u << 20)  /* a call keeps others of the process from mapping memory */
#define FIRST_BYTES (16u << 20) /* with pages; those behind are made as for any head */

static const struct state next_segment_states[NEXT_SEGMENT_STATES] = {
	[NEXT_SEGMENT_MAKING] = {"making",
		BIT(NEXT_SEGMENT_READY) | BIT(NEXT_SEGMENT_FAILED) | BIT(NEXT_SEGMENT_DROPPED)},
	[NEXT_SEGMENT_READY] = {"ready", 0},
	[NEXT_SEGMENT_FAILED] = {"failed", 0},
	[NEXT_SEGMENT_DROPPED] = {"dropped", 0},
};

static void next_segment_move(struct next_segment *next, enum next_segment_state state)
{
	states_move("next segment", next_segment_states, &next->state, state, "%s", next->path);
}

static void next_segment_free(struct next_segment *next)
{
	if (next->map != NULL)
		hf_mem_free(next->env, next->map);
	if (next->file != NULL) {
		hf_file_close(next->file);
		(void)hf_file_remove(next->env, next->path); /* the next start removes it otherwise */
	}
	free(next);
}

static int make_file(struct next_segment *next)
{
	struct hf_error error;
	int rc = hf_file_open(next->env, next->path, HF_FILE_WRITE | HF_FILE_CREATE, &next->file);

	if (rc == 0)
		rc = hf_file_resize(next->file, next->capacity);
	if (rc == 0)
		rc = hf_mem_map_file(next->env, next->file, 0, next->capacity, HF_MAP_SPARSE, &next->map, &error);
	return rc;
}

/* On a helper thread. */
static int make(struct hf_work *work)
{
	struct next_segment *next = container_of(work, struct next_segment, work);
	uint32_t first = next->capacity < FIRST_BYTES ? next->capacity : FIRST_BYTES;
	int rc = make_file(next);

	while (rc == 0 && next->populated < first) {
		uint32_t left = first - next->populated, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

		rc = hf_mem_populate(next->env, (uint8_t *)next->map + next->populated, bytes);
		next->populated += bytes;
	}
	return rc;
}

static void made(struct hf_work *work, int rc)
{
	struct next_segment *next = container_of(work, struct next_segment, work);

	if (next->state == NEXT_SEGMENT_DROPPED)
		next_segment_free(next);
	else
		next_segment_move(next, rc == 0 ? NEXT_SEGMENT_READY : NEXT_SEGMENT_FAILED);
}

static struct next_segment *next_segment_new(struct hf_env *env, const char *directory, uint32_t capacity)
{
	struct next_segment *next = calloc(1, sizeof(*next));
	uint64_t id;

	if (next == NULL)
		return NULL;
	*next = (struct next_segment){.work = {.run = make, .done = made}, .env = env, .capacity = capacity};
	/* A log of the same directory that was closed may still have one on its way. */
	hf_env_entropy(env, &id, sizeof(id));
	snprintf(next->path, sizeof(next->path), "%s/" PREFIX "%016llx.tmp", directory, (unsigned long long)id);
	return next;
}

struct next_segment *next_segment_make(
	struct hf_env *env, const char *directory, uint32_t capacity, struct hf_workers *workers)
{
	struct next_segment *next = next_segment_new(env, directory, capacity);

	if (next != NULL)
		ensure(hf_work_submit(workers, &next->work) == 0);
	return next;
}

int next_segment_make_now(struct hf_env *env, const char *directory, uint32_t capacity, struct next_segment **next_out)
{
	struct next_segment *next = next_segment_new(env, directory, capacity);
	int rc = next == NULL ? -ENOMEM : make_file(next);

	*next_out = next;
	if (rc == 0) {
		next_segment_move(next, NEXT_SEGMENT_READY);
		return 0;
	}
	if (next != NULL)
		next_segment_free(next);
	*next_out = NULL;
	return rc;
}

struct segment *next_segment_take(struct next_segment *next, const char *directory, int64_t base_offset,
	uint32_t capacity, uint32_t index_interval)
{
	struct segment *segment;

	if (next->state != NEXT_SEGMENT_READY || next->capacity != capacity)
		return NULL;
	segment = segment_adopt(next->env, directory, base_offset, index_interval, next->path, next->file);
	if (segment == NULL)
		return NULL;
	segment->map = next->map;
	segment->capacity = capacity;
	segment->populated = next->populated;
	free(next);
	return segment;
}

void next_segment_drop(struct next_segment *next)
{
	if (next == NULL)
		return;
	if (next->state == NEXT_SEGMENT_MAKING)
		next_segment_move(next, NEXT_SEGMENT_DROPPED);
	else
		next_segment_free(next);
}

bool next_segment_is_name(const char *name)
{
	return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}
