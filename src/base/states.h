/* states.h - state machines by table: which state may follow which.
 *
 *     static const struct state rail_states[RAIL_STATES] = {
 *             [RAIL_DOWN] = {"down", BIT(RAIL_UP) | BIT(RAIL_PAUSED)},
 *             ...
 *     };
 *     states_move("rail", rail_states, &rail->state, RAIL_UP, "%s", rail->name);
 *
 * A move that the table lacks is our own bug, and ends the process. Each move is logged, as "rail r0 to b: down -> up":
 * HOLDFAST_LOG=debug tells the course of a failover, an election or a rebalance. Without that level a move costs one
 * comparison more. */
#ifndef HOLDFAST_BASE_STATES_H
#define HOLDFAST_BASE_STATES_H

#include "base/ensure.h"
#include "base/log.h"

struct state {
	const char *name;
	unsigned next; /* the set of states that may follow */
};

/* `state` points to the state of the object; the format and its arguments name the object in the log. */
#define states_move(machine, table, state, to, ...) states_move_at(LOG_DEBUG, machine, table, state, to, __VA_ARGS__)
/* The same for what moves with each operation, message or request: HOLDFAST_LOG=trace. */
#define states_move_often(machine, table, state, to, ...)                                                              \
	states_move_at(LOG_TRACE, machine, table, state, to, __VA_ARGS__)

#define states_move_at(level, machine, table, state, to, ...)                                                          \
	do {                                                                                                           \
		ensure((unsigned)*(state) < sizeof(table) / sizeof(*(table)));                                         \
		ensure(((table)[*(state)].next & BIT(to)) != 0);                                                       \
		if (log_wants(level))                                                                                  \
			states_log(level, machine, (table)[*(state)].name, (table)[to].name, __VA_ARGS__);             \
		*(state) = (to);                                                                                       \
	} while (0)

void states_log(enum log_level level, const char *machine, const char *from, const char *to, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

#endif
