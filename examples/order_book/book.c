#include "book.h"

#include <string.h>

static struct book_order *slot_of(struct book *book, uint64_t number)
{
	return &book->orders[number % BOOK_ORDERS];
}

static struct book_order *find(struct book *book, uint64_t number)
{
	struct book_order *order = slot_of(book, number);

	return number != 0 && order->number == number ? order : NULL;
}

static struct book_order *at(struct book *book, uint32_t link)
{
	return link == 0 ? NULL : &book->orders[link - 1];
}

static uint32_t link_of(const struct book *book, const struct book_order *order)
{
	return (uint32_t)(order - book->orders) + 1;
}

/* ---- levels ---- */

static bool is_better(enum book_side side, uint32_t price, uint32_t than)
{
	return side == BOOK_BUY ? price > than : price < than;
}

/* The best level is empty: the next one that is not. */
static void find_best(struct book *book, enum book_side side)
{
	uint32_t price = book->best[side] - 1;

	while (book->levels[side][price].first == 0) {
		if (price == (side == BOOK_BUY ? 0 : BOOK_PRICES - 1)) {
			book->best[side] = 0;
			return;
		}
		price = side == BOOK_BUY ? price - 1 : price + 1;
	}
	book->best[side] = price + 1;
}

static void rest(struct book *book, struct book_order *order)
{
	enum book_side side = (enum book_side)order->side;
	struct book_order *last = at(book, book->levels[side][order->price].last);

	order->next = 0;
	order->previous = book->levels[side][order->price].last;
	if (last != NULL)
		last->next = link_of(book, order);
	else
		book->levels[side][order->price].first = link_of(book, order);
	book->levels[side][order->price].last = link_of(book, order);
	if (book->best[side] == 0 || is_better(side, order->price, book->best[side] - 1))
		book->best[side] = order->price + 1;
	book->resting++;
}

static void take_out(struct book *book, struct book_order *order)
{
	enum book_side side = (enum book_side)order->side;
	struct book_order *next = at(book, order->next), *previous = at(book, order->previous);

	if (next != NULL)
		next->previous = order->previous;
	else
		book->levels[side][order->price].last = order->previous;
	if (previous != NULL)
		previous->next = order->next;
	else
		book->levels[side][order->price].first = order->next;
	order->number = 0;
	book->resting--;
	if (book->best[side] == order->price + 1)
		find_best(book, side);
}

/* ---- requests ---- */

static void execute(struct book *book, struct book_order *with, uint32_t quantity, struct book_result *result)
{
	if (result->fills < BOOK_FILLS)
		result->list[result->fills] =
			(struct book_fill){.with = with->number, .price = with->price, .quantity = quantity};
	result->fills++;
	result->executed += quantity;
	with->quantity -= quantity;
	if (with->quantity == 0)
		take_out(book, with);
}

static void enter(struct book *book, uint64_t number, enum book_side side, uint32_t price, uint32_t quantity,
	struct book_result *result)
{
	const enum book_side other = side == BOOK_BUY ? BOOK_SELL : BOOK_BUY;
	struct book_order *order = slot_of(book, number);

	result->number = number;
	while (quantity > 0 && book->best[other] != 0 && !is_better(other, price, book->best[other] - 1)) {
		struct book_order *with = at(book, book->levels[other][book->best[other] - 1].first);
		uint32_t both = with->quantity < quantity ? with->quantity : quantity;

		execute(book, with, both, result);
		quantity -= both;
	}
	result->rests = quantity;
	if (quantity == 0)
		return;
	*order = (struct book_order){.number = number, .price = price, .quantity = quantity, .side = (uint32_t)side};
	rest(book, order);
}

/* Numbers go round: one whose place an old order has is not given. */
static bool give_number(struct book *book, uint64_t *number_out)
{
	if (book->resting == BOOK_ORDERS)
		return false;
	do
		book->last++;
	while (slot_of(book, book->last)->number != 0);
	*number_out = book->last;
	return true;
}

static void modify(struct book *book, const struct book_request *request, struct book_result *result)
{
	struct book_order *order = find(book, request->number);
	enum book_side side;

	if (order == NULL) {
		result->outcome = BOOK_UNKNOWN;
	} else if (request->price == order->price && request->quantity <= order->quantity) {
		order->quantity = result->rests = request->quantity;
	} else {
		side = (enum book_side)order->side;
		take_out(book, order);
		enter(book, request->number, side, request->price, request->quantity, result);
	}
}

void book_apply(struct book *book, const struct book_request *request, struct book_result *result)
{
	struct book_order *order;
	uint64_t number;

	memset(result, 0, sizeof(*result));
	result->number = request->number;
	if (request->op > BOOK_MODIFY ||
		(request->op != BOOK_CANCEL &&
			(request->side >= BOOK_SIDES || request->price >= BOOK_PRICES || request->quantity == 0))) {
		result->outcome = BOOK_REFUSED;
	} else if (request->op == BOOK_ENTER) {
		if (give_number(book, &number))
			enter(book, number, (enum book_side)request->side, request->price, request->quantity, result);
		else
			result->outcome = BOOK_FULL;
	} else if (request->op == BOOK_MODIFY) {
		modify(book, request, result);
	} else {
		order = find(book, request->number);
		result->outcome = order == NULL ? BOOK_UNKNOWN : BOOK_DONE;
		if (order != NULL)
			take_out(book, order);
	}
}
