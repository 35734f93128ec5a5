/* The chain of values: from the initial one, each change leads to the next. */
#include "sim/checkers/linear.h"

#include <stdlib.h>

#include "base/ensure.h"

size_t linear_post(struct linear *linear, bool is_cas, uint64_t argument, uint64_t compare, uint64_t now_ns)
{
	if (linear->count == linear->capacity) {
		linear->capacity = linear->capacity == 0 ? 64 : linear->capacity * 2;
		linear->ops = realloc(linear->ops, linear->capacity * sizeof(*linear->ops));
		ensure(linear->ops != NULL);
	}
	linear->ops[linear->count] = (struct linear_op){.is_cas = is_cas,
		.argument = argument,
		.compare = compare,
		.posted_ns = now_ns,
		.completed_ns = UINT64_MAX};
	return linear->count++;
}

void linear_complete(struct linear *linear, size_t index, uint64_t original, uint64_t completed_ns)
{
	linear->ops[index].known = true;
	linear->ops[index].original = original;
	linear->ops[index].completed_ns = completed_ns;
}

void linear_doubt(struct linear *linear, size_t index, uint64_t completed_ns)
{
	linear->ops[index].completed_ns = completed_ns;
}

void linear_withdraw(struct linear *linear, size_t index)
{
	linear->ops[index].placed = true; /* so it explains nothing */
}

static bool changes(const struct linear_op *op)
{
	return !op->is_cas || op->original == op->compare;
}

static uint64_t result_of(const struct linear_op *op, uint64_t value)
{
	return op->is_cas ? op->argument : value + op->argument;
}

/* The known operation that found this value and changed it. */
static struct linear_op *known_from(struct linear *linear, uint64_t value)
{
	for (size_t i = linear->first; i < linear->count; i++) {
		struct linear_op *op = &linear->ops[i];

		if (op->known && !op->placed && op->original == value && changes(op))
			return op;
	}
	return NULL;
}

static bool somebody_found(struct linear *linear, uint64_t value)
{
	for (size_t i = linear->first; i < linear->count; i++)
		if (linear->ops[i].known && !linear->ops[i].placed && linear->ops[i].original == value)
			return true;
	return false;
}

/* An operation of unknown outcome after which the value is one that somebody found. */
static struct linear_op *unknown_from(struct linear *linear, uint64_t value)
{
	for (size_t i = linear->first; i < linear->count; i++) {
		struct linear_op *op = &linear->ops[i];

		if (op->known || op->placed || (op->is_cas && op->compare != value))
			continue;
		if (somebody_found(linear, result_of(op, value)))
			return op;
	}
	return NULL;
}

/* Two of unknown outcome between two known ones; more than two are not looked for: then nothing is claimed. */
static struct linear_op *unknown_pair_from(struct linear *linear, uint64_t value)
{
	for (size_t i = linear->first; i < linear->count; i++) {
		struct linear_op *op = &linear->ops[i];
		bool leads;

		if (op->known || op->placed || (op->is_cas && op->compare != value))
			continue;
		op->placed = true;
		leads = unknown_from(linear, result_of(op, value)) != NULL;
		op->placed = false;
		if (leads)
			return op;
	}
	return NULL;
}

static size_t unknown_left(const struct linear *linear)
{
	size_t n = 0;

	for (size_t i = linear->first; i < linear->count; i++)
		n += !linear->ops[i].known && !linear->ops[i].placed;
	return n;
}

/* Those that found `value` and left it (failed CASes) overlap with the time in which it stood: it came at *at_ns, and
 * stands until the last of them was posted, *at_ns from then on. */
static const char *place_failed(struct linear *linear, uint64_t value, uint64_t *at_ns)
{
	uint64_t since_ns = *at_ns;

	for (size_t i = linear->first; i < linear->count; i++) {
		struct linear_op *op = &linear->ops[i];

		if (!op->known || op->placed || op->original != value || changes(op))
			continue;
		op->placed = true;
		if (op->completed_ns < since_ns)
			return "a CAS returned a value before it could have been there";
		if (op->posted_ns > *at_ns)
			*at_ns = op->posted_ns;
	}
	return NULL;
}

const char *linear_check(struct linear *linear)
{
	uint64_t value = linear->initial, at_ns = 0;
	struct linear_op *next;
	const char *wrong;

	for (;;) {
		while (linear->first < linear->count && linear->ops[linear->first].placed)
			linear->first++;
		if ((wrong = place_failed(linear, value, &at_ns)) != NULL)
			return wrong;
		next = known_from(linear, value);
		if (next == NULL)
			next = unknown_from(linear, value);
		if (next == NULL)
			next = unknown_pair_from(linear, value);
		if (next == NULL)
			break;
		next->placed = true;
		if (at_ns < next->posted_ns)
			at_ns = next->posted_ns;
		if (at_ns > next->completed_ns)
			return "an operation completed before those that stand before it were posted";
		value = result_of(next, value);
	}
	for (size_t i = linear->first; i < linear->count; i++)
		if (linear->ops[i].known && !linear->ops[i].placed && unknown_left(linear) < 3)
			return "an operation returned a value that no order of the others explains";
	return NULL;
}

void linear_free(struct linear *linear)
{
	free(linear->ops);
	*linear = (struct linear){0};
}
