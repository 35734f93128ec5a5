#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_LINE_BYTES    1024
#define LOG_LIMIT_NS      1000000000ull
#define LOG_LEVEL_UNKNOWN (-1)

static const char *const level_name[] = {"debug", "info", "warn", "error"};
static _Atomic int current_level = LOG_LEVEL_UNKNOWN;
static _Atomic uint64_t current_limit_ns = LOG_LIMIT_NS;
static log_sink *current_sink;
static void *current_context;

static int level_from_environment(void)
{
	const char *wanted = getenv("HOLDFAST_LOG");

	for (int level = LOG_DEBUG; wanted != NULL && level <= LOG_ERROR; level++)
		if (strcmp(wanted, level_name[level]) == 0)
			return level;
	return LOG_INFO;
}

void log_set_sink(log_sink *sink, void *context)
{
	current_context = context;
	current_sink = sink;
}

void log_set_level(enum log_level level)
{
	atomic_store(&current_level, (int)level);
}

void log_set_limit(uint64_t limit_ns)
{
	atomic_store(&current_limit_ns, limit_ns);
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_BYTES];
	va_list arguments;

	if (atomic_load_explicit(&current_level, memory_order_relaxed) == LOG_LEVEL_UNKNOWN)
		atomic_store(&current_level, level_from_environment());
	if ((int)level < atomic_load_explicit(&current_level, memory_order_relaxed))
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (current_sink != NULL)
		current_sink(level, line, current_context);
	else
		fprintf(stderr, "holdfast: %s: %s\n", level_name[level], line);
}

bool log_limit_allows(struct log_limit *limit, uint64_t now_ns, uint64_t *suppressed_out)
{
	if (now_ns < limit->next_ns) {
		limit->suppressed++;
		return false;
	}
	*suppressed_out = limit->suppressed;
	limit->suppressed = 0;
	limit->next_ns = now_ns + atomic_load_explicit(&current_limit_ns, memory_order_relaxed);
	return true;
}
