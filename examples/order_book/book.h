/* book.h - an order-matching engine: limit orders of one instrument, matched by price, then by time.
 *
 * A state machine: it reads no clock and draws no number, so that every member of a replicated log comes to the same
 * executions. All of its state is one struct without pointers, which is its own snapshot.
 *
 *   buy, sell   executed against the best orders of the other side, at their prices; what is left rests
 *   cancel      takes a resting order out
 *   modify      less at the same price keeps its place; else it is taken out and enters again, under its number */
#ifndef EXAMPLE_ORDER_BOOK_H
#define EXAMPLE_ORDER_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#define BOOK_PRICES 65536u /* ticks: 0 to this */
#define BOOK_ORDERS 65536u /* that rest; a power of two */
#define BOOK_FILLS  40u    /* executions that a result lists; further ones are counted */

enum book_side { BOOK_BUY, BOOK_SELL, BOOK_SIDES };
enum book_op { BOOK_ENTER, BOOK_CANCEL, BOOK_MODIFY };
enum book_outcome { BOOK_DONE, BOOK_UNKNOWN, BOOK_REFUSED /* price or quantity */, BOOK_FULL };

struct book_request {
	uint32_t op, side;
	uint64_t number; /* CANCEL, MODIFY */
	uint32_t price, quantity;
};

struct book_fill {
	uint64_t with; /* the resting order */
	uint32_t price, quantity;
};
struct book_result {
	uint32_t outcome, fills; /* fills: executions, also those that are not listed */
	uint64_t number;         /* of the order */
	uint32_t executed, rests;
	struct book_fill list[BOOK_FILLS];
};

struct book_order {
	uint64_t number; /* 0: free */
	uint32_t price, quantity, side;
	uint32_t next, previous; /* of its level, by time; slot + 1, 0: none */
};
struct book {
	uint64_t last; /* number given */
	uint32_t resting;
	uint32_t best[BOOK_SIDES]; /* price + 1; 0: none */
	struct {
		uint32_t first, last; /* slot + 1 */
	} levels[BOOK_SIDES][BOOK_PRICES];
	struct book_order orders[BOOK_ORDERS];
};

void book_apply(struct book *book, const struct book_request *request, struct book_result *result);

#endif
