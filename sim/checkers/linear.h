/* linear.h - whether the atomics that clients saw on one word could have happened one after another.
 *
 * Every operation is a CAS or FAA with an operand of its own, so the values that the word takes are all different and
 * the order of the changes follows from the values returned. What is left to check is real time: nothing takes effect
 * before it was posted or after it completed. Operations whose outcome the client never learned may have taken effect
 * or not; whichever explains the others is assumed.
 *
 * This looks at requests and answers only, not at the bus; but whoever runs it may ask the bus what became of those
 * that nobody was told of, and complete or withdraw them: with many of them little could be claimed. */
#ifndef HOLDFAST_SIM_CHECKERS_LINEAR_H
#define HOLDFAST_SIM_CHECKERS_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct linear_op {
	bool is_cas, known; /* known: it took effect, and found `original` */
	uint64_t argument, compare, original;
	uint64_t posted_ns, completed_ns;
	bool placed;
};

struct linear {
	uint64_t initial;
	struct linear_op *ops;
	size_t count, capacity;
	size_t first; /* those before it are placed */
};

/* Returns the operation's index. */
size_t linear_post(struct linear *linear, bool is_cas, uint64_t argument, uint64_t compare, uint64_t now_ns);
/* completed_ns: UINT64_MAX when nobody was told. */
void linear_complete(struct linear *linear, size_t index, uint64_t original, uint64_t completed_ns);
/* Its client was told that the outcome is unknown: it had taken effect by then, or never does. */
void linear_doubt(struct linear *linear, size_t index, uint64_t completed_ns);
/* It did not take effect. */
void linear_withdraw(struct linear *linear, size_t index);
/* NULL: it could. Otherwise what is wrong, in words. */
const char *linear_check(struct linear *linear);
void linear_free(struct linear *linear);

#endif
