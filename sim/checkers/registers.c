#include "sim/checkers/registers.h"

#include <stdlib.h>

#include "base/ensure.h"

/* From the first end of operations to the last beginning. */
struct zone {
	uint64_t first_end_ns, last_begin_ns;
};

/* The operations of one value. */
struct cluster {
	uint64_t value, write_from_ns;
	struct zone zone, block;        /* block: with those behind it */
	struct cluster *before;         /* whose value its write found; NULL: that is not known */
	unsigned writes, reads, takers; /* takers: writes that found it */
};

size_t registers_post(struct registers *registers, bool writes, bool reads, uint64_t value, uint64_t now_ns)
{
	if (registers->count == registers->capacity) {
		registers->capacity = registers->capacity == 0 ? 64 : registers->capacity * 2;
		registers->ops = realloc(registers->ops, registers->capacity * sizeof(*registers->ops));
		ensure(registers->ops != NULL);
	}
	registers->ops[registers->count] = (struct registers_op){
		.writes = writes, .reads = reads, .value = value, .from_ns = now_ns, .to_ns = UINT64_MAX};
	return registers->count++;
}

void registers_post_deletion(struct registers *registers, size_t index)
{
	registers->ops[index].deletes = registers->deletes = true;
}

void registers_end(
	struct registers *registers, size_t index, enum registers_outcome outcome, uint64_t found, uint64_t now_ns)
{
	struct registers_op *op = &registers->ops[index];

	op->outcome = outcome;
	if (!op->follows)
		op->found = found;
	if (op->deletes && outcome == REGISTERS_DONE && found == 0)
		op->writes = false;
	op->to_ns = outcome == REGISTERS_UNKNOWN ? UINT64_MAX : now_ns;
}

void registers_follows(struct registers *registers, uint64_t value, uint64_t before)
{
	for (size_t i = 0; i < registers->count; i++) {
		struct registers_op *op = &registers->ops[i];

		if (!op->writes || op->deletes || op->value != value)
			continue;
		registers->twice |= op->follows && op->found != before;
		op->reads = op->follows = true;
		op->found = before;
		return;
	}
}

static struct cluster *find(struct cluster *clusters, size_t count, uint64_t value)
{
	for (size_t i = 0; i < count; i++)
		if (clusters[i].value == value)
			return &clusters[i];
	return NULL;
}

static void widen(struct zone *zone, uint64_t first_end_ns, uint64_t last_begin_ns)
{
	if (first_end_ns < zone->first_end_ns)
		zone->first_end_ns = first_end_ns;
	if (last_begin_ns > zone->last_begin_ns)
		zone->last_begin_ns = last_begin_ns;
}

/* Of every write that was not refused, and of the value before all of them. */
static size_t add_writes(const struct registers *registers, struct cluster *clusters)
{
	size_t count = 1;

	clusters[0] = (struct cluster){.writes = 1};
	for (size_t i = 0; i < registers->count; i++) {
		const struct registers_op *op = &registers->ops[i];

		if (!op->writes || op->outcome == REGISTERS_REFUSED)
			continue;
		clusters[count] = (struct cluster){.value = op->value,
			.write_from_ns = op->from_ns,
			.zone = {op->to_ns, op->from_ns},
			.writes = 1,
			.reads = op->outcome == REGISTERS_DONE};
		count++;
	}
	return count;
}

static const char *add_reads(const struct registers *registers, struct cluster *clusters, size_t count)
{
	for (size_t i = 0; i < registers->count; i++) {
		const struct registers_op *op = &registers->ops[i];
		struct cluster *cluster;

		if (op->follows && op->outcome == REGISTERS_REFUSED)
			return "a write that was refused was read";
		if (!op->reads || (op->outcome != REGISTERS_DONE && !op->follows) ||
			(registers->deletes && op->found == 0))
			continue;
		cluster = find(clusters, count, op->found);
		if (cluster == NULL)
			return "a read returned a value that no write can have written";
		if (op->to_ns < cluster->write_from_ns)
			return "a read returned a value before its write began";
		if (op->writes && cluster->takers++ > 0)
			return "two operations followed the same value";
		cluster->reads++;
		widen(&cluster->zone, op->to_ns, op->from_ns);
		if (op->writes)
			find(clusters, count, op->value)->before = cluster;
	}
	return NULL;
}

/* A block is that of the cluster which has none before it. */
static const char *join_blocks(struct cluster *clusters, size_t count)
{
	for (size_t i = 0; i < count; i++)
		clusters[i].block = clusters[i].zone;
	for (size_t i = 0; i < count; i++) {
		struct cluster *first = &clusters[i];

		for (size_t steps = 0; first->before != NULL; steps++) {
			first = first->before;
			if (steps == count)
				return "values follow each other in a circle";
			if (clusters[i].zone.first_end_ns < first->zone.last_begin_ns)
				return "a value was read after another one had been put behind it";
		}
		widen(&first->block, clusters[i].zone.first_end_ns, clusters[i].zone.last_begin_ns);
	}
	return NULL;
}

/* Whether neither can be put before the other one: no operation of the later one ends before one of the earlier
 * begins. */
static bool clash(const struct zone *a, const struct zone *b)
{
	return a->first_end_ns < b->last_begin_ns && b->first_end_ns < a->last_begin_ns;
}

static bool stands_alone(const struct cluster *cluster, bool initial)
{
	return cluster->before == NULL && (cluster->reads > 0 || initial);
}

static bool is_done_write(const struct registers_op *op)
{
	return op->writes && op->outcome == REGISTERS_DONE;
}

/* Whether the deletion may be the last write before the read. NULL: the beginning may. */
static bool may_follow(
	const struct registers *registers, const struct registers_op *read, const struct registers_op *deletion)
{
	uint64_t since_ns = deletion == NULL ? 0 : deletion->to_ns;

	if (deletion != NULL && deletion->from_ns > read->to_ns)
		return false;
	for (size_t i = 0; i < registers->count; i++) {
		const struct registers_op *op = &registers->ops[i];

		if (is_done_write(op) && !op->deletes && op->from_ns > since_ns && op->to_ns < read->from_ns)
			return false;
	}
	return true;
}

static bool may_find_nothing(const struct registers *registers, const struct registers_op *read)
{
	bool may = may_follow(registers, read, NULL);

	for (size_t i = 0; i < registers->count && !may; i++) {
		const struct registers_op *op = &registers->ops[i];

		may = op->deletes && op->writes && op->outcome != REGISTERS_REFUSED && may_follow(registers, read, op);
	}
	return may;
}

/* Each read of nothing stands alone between the clusters: which deletion it follows is not known. */
static const char *check_nothing(const struct registers *registers, const struct cluster *clusters, size_t count)
{
	for (size_t i = 0; registers->deletes && i < registers->count; i++) {
		const struct registers_op *op = &registers->ops[i];

		if (!op->reads || op->outcome != REGISTERS_DONE || op->found != 0)
			continue;
		if (!may_find_nothing(registers, op))
			return "a value was lost: nothing was read, and nobody had deleted it";
		for (size_t k = 1; k < count; k++)
			if (clusters[k].reads > 0 && clusters[k].zone.first_end_ns < op->from_ns &&
				op->to_ns < clusters[k].zone.last_begin_ns)
				return "nothing was read, and an older value after it";
	}
	return NULL;
}

const char *registers_check(const struct registers *registers)
{
	struct cluster *clusters = calloc(registers->count + 1, sizeof(*clusters));
	size_t count;
	const char *wrong;

	ensure(clusters != NULL);
	count = add_writes(registers, clusters);
	wrong = registers->twice ? "an operation took effect behind two values" : add_reads(registers, clusters, count);
	if (wrong == NULL)
		wrong = join_blocks(clusters, count);
	for (size_t i = 0; i < count && wrong == NULL; i++)
		for (size_t k = 0; k < i && wrong == NULL; k++)
			if (stands_alone(&clusters[i], i == 0) && stands_alone(&clusters[k], k == 0) &&
				clash(&clusters[i].block, &clusters[k].block))
				wrong = "a value was read after another one had taken its place, or before it could";
	if (wrong == NULL)
		wrong = check_nothing(registers, clusters, count);
	free(clusters);
	return wrong;
}

void registers_free(struct registers *registers)
{
	free(registers->ops);
	*registers = (struct registers){0};
}
