/* log.h - one line of text per event, on standard error, from any thread.
 *
 * A line is "TIME holdfast: LEVEL: SERVICE NAME: text", with the time in UTC and milliseconds. The service and its name
 * stand there in processes that serve. Variables of the environment:
 *
 *     HOLDFAST_LOG=trace|debug|info|warn|error   the lowest level, by default info; trace: single operations
 *     HOLDFAST_LOG_TIME=off                      without the time, where the reader of standard error adds one
 *     HOLDFAST_LOG_FORMAT=json                   a JSON object a line, with time, level, service, name and text
 *
 * A line that a peer can cause often uses a struct log_limit. */
#ifndef HOLDFAST_BASE_LOG_H
#define HOLDFAST_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Where lines go instead of standard error (the simulator and tests collect them); NULL restores the default. */
typedef void log_sink(enum log_level level, const char *line, void *context);
void log_set_sink(log_sink *sink, void *context);
void log_set_level(enum log_level level);
/* The wall clock, which the environment sets; without one lines have no time. */
void log_set_clock(uint64_t (*wall_ns)(void));
/* What this process serves, and as whom ("kv", "a"); both are copied. Before other threads log. */
void log_set_service(const char *service, const char *name);

/* Whether a line of this level is printed: one comparison. */
extern _Atomic int log_lowest;
static inline bool log_wants(enum log_level level)
{
	return (int)level >= atomic_load_explicit(&log_lowest, memory_order_relaxed);
}

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

/* The simulator's checkers hear every line: with 0 no limit holds. Default: 1 s. */
void log_set_limit(uint64_t limit_ns);

/* At most one line a second; returns the number of suppressed lines. Zero-initialised; not shared between threads. */
struct log_limit {
	uint64_t next_ns;
	uint64_t suppressed;
};
bool log_limit_allows(struct log_limit *limit, uint64_t now_ns, uint64_t *suppressed_out);

#endif
