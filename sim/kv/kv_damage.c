/* Damage of a member's log while its process is down: a byte that changes or a page that is zeroed, below what the mark
 * beside the log proves (R-D1, R-D2). The layout of the mark is stated here once more, apart from the product's code.
 * The next process may not take that for a torn end: it copies all records before it serves, and nobody copies from
 * it before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "sim/kv/kv.h"

#define DIRECTORY    "kv"
#define PATH_BYTES   64u
#define HEAD_BYTES   256u
#define RECORD_BYTES 256u /* of the mark, which has two */
#define SERIAL_AT    4u
#define FIRST_AT     72u
#define SYNCED_AT    80u
#define WRITTEN_AT   88u
#define PAGE_BYTES   512u
#define DAMAGED_PPM  600000u
#define ZEROED_PPM   300000u
#define LAST_PPM     600000u
#define LAST_BYTES   1024u

struct place {
	uint64_t wanted, segment; /* positions; segment: the one that begins last, and not behind `wanted` */
	bool found;
};

/* Only one at a time, of a member that has a log; all others have every record then. */
void kv_damage_kills(struct kv_cluster *all, struct kv_node *node, bool power)
{
	if (!all->damages || !node->logged || !kv_kills_is_one_of_all(node) || !world_chance(all->world, DAMAGED_PPM))
		return;
	for (unsigned i = 0; i < all->count; i++)
		if (all->nodes[i].lost || all->nodes[i].damage != KV_DAMAGE_NONE)
			return;
	node->damage = power ? KV_DAMAGE_OF_SYNCED : KV_DAMAGE_OF_WRITTEN;
	node->logged = node->copies = false; /* it copies all records */
	all->calm = false;
}

/* ---- below the mark ---- */

static bool is_whole(const uint8_t record[RECORD_BYTES])
{
	return crc32c(0, record + SERIAL_AT, RECORD_BYTES - SERIAL_AT) == get_le32(record);
}

/* [first, end) of the log is proven to have been there. */
static bool read_mark(struct kv_node *node, uint64_t *first_out, uint64_t *end_out)
{
	uint8_t records[2 * RECORD_BYTES] = {0};
	const uint8_t *last = records, *other = records + RECORD_BYTES;
	struct hf_file *file;

	if (hf_file_open(&node->endpoint.process->env, DIRECTORY "/synced", 0, &file) != 0)
		return false;
	(void)hf_file_read_at(file, records, sizeof(records), 0);
	hf_file_close(file);
	if (!is_whole(last) ||
		(is_whole(other) && (int32_t)(get_le32(other + SERIAL_AT) - get_le32(last + SERIAL_AT)) > 0))
		last = other;
	if (!is_whole(last))
		return false;
	*first_out = get_le64(last + FIRST_AT);
	*end_out = get_le64(last + (node->damage == KV_DAMAGE_OF_WRITTEN ? WRITTEN_AT : SYNCED_AT));
	return *end_out > *first_out;
}

static void find_segment(const char *name, void *context)
{
	struct place *place = context;
	uint64_t position;

	if (sscanf(name, "log-%" SCNx64, &position) != 1 || position > place->wanted)
		return;
	if (!place->found || position > place->segment)
		place->segment = position;
	place->found = true;
}

static void change(struct kv_node *node, struct hf_file *file, uint64_t offset)
{
	struct world *world = node->all->world;
	uint8_t page[PAGE_BYTES], zeros[PAGE_BYTES] = {0};
	uint64_t begin = offset / PAGE_BYTES * PAGE_BYTES;
	ssize_t n = hf_file_read_at(file, page, sizeof(page), begin);
	size_t at = (size_t)(offset - begin);

	ensure(n > (ssize_t)at);
	if (page[at] != 0 && world_chance(world, ZEROED_PPM))
		ensure(hf_file_write_at(file, zeros, (size_t)n, begin) == n);
	else {
		page[at] ^= (uint8_t)world_range(world, 1, 255);
		ensure(hf_file_write_at(file, page + at, 1, offset) == 1);
	}
	ensure(hf_file_sync(file) == 0);
}

bool kv_damage_put(struct kv_node *node)
{
	struct hf_env *env = &node->endpoint.process->env;
	struct place place = {0};
	char path[PATH_BYTES];
	struct hf_file *file;
	uint64_t first, end;
	bool some = node->damage != KV_DAMAGE_NONE && read_mark(node, &first, &end);

	node->damage = KV_DAMAGE_NONE;
	if (!some)
		return false;
	/* What the others have been told of the log (R-K25) does not reach to its last entries. */
	if (end - first > LAST_BYTES && world_chance(node->all->world, LAST_PPM))
		first = end - LAST_BYTES;
	place.wanted = world_range(node->all->world, first, end - 1);
	if (hf_dir_list(env, DIRECTORY, find_segment, &place) != 0 || !place.found)
		return false;
	snprintf(path, sizeof(path), DIRECTORY "/log-%016" PRIx64, place.segment);
	ensure(hf_file_open(env, path, HF_FILE_WRITE, &file) == 0);
	change(node, file, HEAD_BYTES + place.wanted - place.segment);
	hf_file_close(file);
	node->lost = true;
	node->all->outcome->damaged_logs++;
	return true;
}

/* ---- afterwards ---- */

void kv_damage_look(struct kv_node *node, const struct hf_kv_status *status)
{
	if (node->all->damages && status->recovering && status->buddy >= 0 && node->all->nodes[status->buddy].lost)
		world_violate(node->all->world, "damage", "%u copies from %d, which has lost records", node->index,
			status->buddy);
	node->lost = node->lost && status->copied == 0;
	node->aged = node->aged && status->copied == 0;
	if (node->lost && (status->serving || status->healed > 0))
		world_violate(node->all->world, "damage",
			"the log of %u was damaged, and it returns without a copy of all records", node->index);
}
