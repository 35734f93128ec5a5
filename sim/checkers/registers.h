/* registers.h - whether what clients saw of one register could have happened one operation after another.
 *
 * Every value is written once, so each read tells which write it follows. The operations of one value, its write and
 * its reads, are a cluster; the history is linearizable exactly if the clusters can be put in an order that agrees with
 * real time (Gibbons and Korach): no read ends before its write begins; a cluster that spans time by itself (its first
 * end lies before its last beginning) overlaps no other such cluster, and none lies within it that does not.
 *
 * Where the register is also deleted, a deletion is a write too; it must have been asked for what it took away. Reading
 * nothing then tells only that some deletion, or the beginning, was the last before it.
 *
 * A write of unknown outcome may take effect at any time from its beginning on, or never: it counts only when its value
 * was read. A write that was refused must never be read. A write that also returns the value before it counts as a read
 * of that value too, and no two of them may have found the same one. So does one that is found behind another value, as
 * an APPEND is. Nothing lies between such a write and the value that it found: their clusters are one block.
 *
 * This looks at requests and answers only. */
#ifndef HOLDFAST_SIM_CHECKERS_REGISTERS_H
#define HOLDFAST_SIM_CHECKERS_REGISTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum registers_outcome { REGISTERS_UNKNOWN, REGISTERS_DONE, REGISTERS_REFUSED };

struct registers_op {
	bool writes, reads; /* at least one */
	bool follows;       /* `found` is known from the value that it made, whatever became of it */
	bool deletes;       /* it writes that there is nothing; `value` stands for it */
	enum registers_outcome outcome;
	uint64_t value, found; /* written; read. 0: there was nothing yet */
	uint64_t from_ns, to_ns;
};

struct registers {
	struct registers_op *ops;
	size_t count, capacity;
	bool deletes; /* some operation did */
	bool twice;   /* a write was found behind two values */
};

/* Returns the operation's index. */
size_t registers_post(struct registers *registers, bool writes, bool reads, uint64_t value, uint64_t now_ns);
/* The operation deletes what there is, and reads it: registers_end with 0 says that there was nothing. */
void registers_post_deletion(struct registers *registers, size_t index);
void registers_end(
	struct registers *registers, size_t index, enum registers_outcome outcome, uint64_t found, uint64_t now_ns);
/* A read found `value` behind `before` (0: behind nothing). */
void registers_follows(struct registers *registers, uint64_t value, uint64_t before);
/* NULL: it could. Otherwise what is wrong, in words. */
const char *registers_check(const struct registers *registers);
void registers_free(struct registers *registers);

#endif
