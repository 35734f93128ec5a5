/* judge - whether what clients saw could have happened one operation after another: histories of real processes, for
 * the checkers of the simulator (sim/checkers/registers.h, linear.h).
 *
 * Input: a line for each operation, those of a key together.
 *
 *   KEY KIND OUTCOME VALUE FOUND FROM_NS TO_NS
 *
 * KIND of a register, whose values are all different: get, set, swap (a set that returns the value before it), take
 * (the register is deleted, and its value returned). Of a counter, whose additions are all different: read, add (FOUND
 * is the value before it). OUTCOME: done, refused, unknown.
 * Exit status: 0 it could, 1 it could not, 2 that is no history. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/checkers/linear.h"
#include "sim/checkers/registers.h"

#define NAME_BYTES 64
#define NEVER      UINT64_MAX /* what no value is: a CAS from it is a read */

struct line {
	char key[NAME_BYTES], kind[NAME_BYTES], outcome[NAME_BYTES];
	uint64_t value, found, from_ns, to_ns;
};

struct judge {
	char key[NAME_BYTES];
	struct registers registers;
	struct linear counter;
	unsigned keys, operations, unknown;
	bool wrong;
};

static bool is(const char *text, const char *word)
{
	return strcmp(text, word) == 0;
}

static void complain(struct judge *judge, const char *words)
{
	if (words == NULL)
		return;
	judge->wrong = true;
	printf("%s: %s\n", judge->key, words);
}

static void end_key(struct judge *judge)
{
	complain(judge, registers_check(&judge->registers));
	complain(judge, linear_check(&judge->counter));
	registers_free(&judge->registers);
	linear_free(&judge->counter);
}

static void begin_key(struct judge *judge, const char *key)
{
	end_key(judge);
	judge->keys++;
	snprintf(judge->key, sizeof(judge->key), "%s", key);
}

static bool take_register(struct judge *judge, const struct line *line)
{
	bool writes = !is(line->kind, "get"), reads = !is(line->kind, "set");
	size_t index = registers_post(&judge->registers, writes, reads, line->value, line->from_ns);

	if (is(line->kind, "take"))
		registers_post_deletion(&judge->registers, index);
	registers_end(&judge->registers, index,
		is(line->outcome, "done")      ? REGISTERS_DONE
		: is(line->outcome, "refused") ? REGISTERS_REFUSED
					       : REGISTERS_UNKNOWN,
		line->found, line->to_ns);
	return is(line->kind, "get") || is(line->kind, "set") || is(line->kind, "swap") || is(line->kind, "take");
}

static void take_counter(struct judge *judge, const struct line *line)
{
	size_t index = linear_post(&judge->counter, is(line->kind, "read"), line->value, NEVER, line->from_ns);

	if (is(line->outcome, "done"))
		linear_complete(&judge->counter, index, line->found, line->to_ns);
	else if (is(line->outcome, "refused"))
		linear_withdraw(&judge->counter, index);
}

static bool take(struct judge *judge, const struct line *line)
{
	if (!is(line->outcome, "done") && !is(line->outcome, "refused") && !is(line->outcome, "unknown"))
		return false;
	if (!is(line->key, judge->key))
		begin_key(judge, line->key);
	judge->operations++;
	judge->unknown += is(line->outcome, "unknown");
	if (!is(line->kind, "read") && !is(line->kind, "add"))
		return take_register(judge, line);
	take_counter(judge, line);
	return true;
}

int main(void)
{
	struct judge judge = {0};
	struct line line;
	int fields;

	while ((fields = scanf("%63s %63s %63s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, line.key, line.kind,
			line.outcome, &line.value, &line.found, &line.from_ns, &line.to_ns)) == 7)
		if (!take(&judge, &line))
			break;
	if (fields != EOF) {
		fprintf(stderr, "judge: operation %u is none\n", judge.operations + 1);
		return 2;
	}
	end_key(&judge);
	printf("%u operations on %u keys, %u of unknown outcome: %s\n", judge.operations, judge.keys, judge.unknown,
		judge.wrong ? "not linearizable" : "linearizable");
	return judge.wrong ? 1 : 0;
}
