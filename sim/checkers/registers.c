#include "sim/checkers/registers.h"

#include <stdlib.h>

#include "base/ensure.h"

/* The operations of one value. */
struct cluster {
	uint64_t value, write_from_ns;
	uint64_t first_end_ns, last_begin_ns;
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
	op->found = found;
	if (op->deletes && outcome == REGISTERS_DONE && found == 0)
		op->writes = false;
	op->to_ns = outcome == REGISTERS_UNKNOWN ? UINT64_MAX : now_ns;
}

static struct cluster *find(struct cluster *clusters, size_t count, uint64_t value)
{
	for (size_t i = 0; i < count; i++)
		if (clusters[i].value == value)
			return &clusters[i];
	return NULL;
}

static void widen(struct cluster *cluster, const struct registers_op *op)
{
	if (op->to_ns < cluster->first_end_ns)
		cluster->first_end_ns = op->to_ns;
	if (op->from_ns > cluster->last_begin_ns)
		cluster->last_begin_ns = op->from_ns;
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
			.first_end_ns = UINT64_MAX,
			.writes = 1,
			.reads = op->outcome == REGISTERS_DONE};
		widen(&clusters[count++], op);
	}
	return count;
}

static const char *add_reads(const struct registers *registers, struct cluster *clusters, size_t count)
{
	for (size_t i = 0; i < registers->count; i++) {
		const struct registers_op *op = &registers->ops[i];
		struct cluster *cluster;

		if (!op->reads || op->outcome != REGISTERS_DONE || (registers->deletes && op->found == 0))
			continue;
		cluster = find(clusters, count, op->found);
		if (cluster == NULL)
			return "a read returned a value that no write can have written";
		if (op->to_ns < cluster->write_from_ns)
			return "a read returned a value before its write began";
		if (op->writes && cluster->takers++ > 0)
			return "two operations followed the same value";
		cluster->reads++;
		widen(cluster, op);
	}
	return NULL;
}

static bool spans(const struct cluster *cluster)
{
	return cluster->first_end_ns < cluster->last_begin_ns;
}

/* Whether both cannot be put one behind the other. */
static bool clash(const struct cluster *a, const struct cluster *b)
{
	if (spans(a) && spans(b))
		return a->first_end_ns < b->last_begin_ns && b->first_end_ns < a->last_begin_ns;
	if (!spans(a) && !spans(b))
		return false;
	if (spans(b))
		return clash(b, a);
	return a->first_end_ns < b->last_begin_ns && b->first_end_ns < a->last_begin_ns;
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
			if (clusters[k].reads > 0 && clusters[k].first_end_ns < op->from_ns &&
				op->to_ns < clusters[k].last_begin_ns)
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
	wrong = add_reads(registers, clusters, count);
	for (size_t i = 0; i < count && wrong == NULL; i++)
		for (size_t k = 0; k < i && wrong == NULL; k++)
			if ((clusters[i].reads > 0 || i == 0) && (clusters[k].reads > 0 || k == 0) &&
				clash(&clusters[i], &clusters[k]))
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
