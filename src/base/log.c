#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#define LOG_LINE_BYTES    1024
#define LOG_TIME_BYTES    32
#define LOG_NAME_BYTES    64
#define NS_PER_S          1000000000ull
#define NS_PER_MS         1000000ull
#define LOG_LIMIT_NS      1000000000ull
#define LOG_LEVEL_UNKNOWN (-1)

static const char *const level_name[] = {"trace", "debug", "info", "warn", "error"};
_Atomic int log_lowest = LOG_LEVEL_UNKNOWN;
static _Atomic uint64_t current_limit_ns = LOG_LIMIT_NS;
static log_sink *current_sink;
static void *current_context;
static uint64_t (*wall_clock_ns)(void);
static char service_name[LOG_NAME_BYTES], member_name[LOG_NAME_BYTES];

static int level_from_environment(void)
{
	const char *wanted = getenv("HOLDFAST_LOG");

	for (int level = LOG_TRACE; wanted != NULL && level <= LOG_ERROR; level++)
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
	atomic_store(&log_lowest, (int)level);
}

void log_set_limit(uint64_t limit_ns)
{
	atomic_store(&current_limit_ns, limit_ns);
}

void log_set_clock(uint64_t (*wall_ns)(void))
{
	wall_clock_ns = wall_ns;
}

void log_set_service(const char *service, const char *name)
{
	snprintf(service_name, sizeof(service_name), "%s", service);
	snprintf(member_name, sizeof(member_name), "%s", name);
}

static bool environment_is(const char *variable, const char *value)
{
	const char *set = getenv(variable);

	return set != NULL && strcmp(set, value) == 0;
}

/* "2026-11-28T06:12:00.123Z", or nothing. */
static void format_time(char text[LOG_TIME_BYTES])
{
	uint64_t now_ns = wall_clock_ns == NULL ? 0 : wall_clock_ns();
	time_t seconds = (time_t)(now_ns / NS_PER_S);
	struct tm utc;
	size_t bytes;

	text[0] = '\0';
	if (wall_clock_ns == NULL || gmtime_r(&seconds, &utc) == NULL)
		return;
	bytes = strftime(text, LOG_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(text + bytes, LOG_TIME_BYTES - bytes, ".%03uZ", (unsigned)(now_ns % NS_PER_S / NS_PER_MS));
}

static void print_json(const char *when, enum log_level level, const char *line)
{
	json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s}", "time", when, "level", level_name[level], "service",
		service_name, "name", member_name, "text", line);
	char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);

	fprintf(stderr, "%s\n", text == NULL ? line : text); /* the line alone when it is no UTF-8 */
	free(text);
	json_decref(object);
}

static void print_line(enum log_level level, const char *line)
{
	char when[LOG_TIME_BYTES];

	format_time(when);
	if (environment_is("HOLDFAST_LOG_FORMAT", "json")) {
		print_json(when, level, line);
		return;
	}
	if (environment_is("HOLDFAST_LOG_TIME", "off"))
		when[0] = '\0';
	fprintf(stderr, "%s%sholdfast: %s: %s%s%s%s%s\n", when, when[0] == '\0' ? "" : " ", level_name[level],
		service_name, member_name[0] == '\0' ? "" : " ", member_name, service_name[0] == '\0' ? "" : ": ",
		line);
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_BYTES];
	va_list arguments;

	if (atomic_load_explicit(&log_lowest, memory_order_relaxed) == LOG_LEVEL_UNKNOWN)
		atomic_store(&log_lowest, level_from_environment());
	if (!log_wants(level))
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (current_sink != NULL)
		current_sink(level, line, current_context);
	else
		print_line(level, line);
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
