#include "base/states.h"

#include <stdarg.h>
#include <stdio.h>

#define OBJECT_BYTES 256

void states_log(enum log_level level, const char *machine, const char *from, const char *to, const char *format, ...)
{
	char object[OBJECT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(object, sizeof(object), format, arguments);
	va_end(arguments);
	log_line(level, "%s %s: %s -> %s", machine, object, from, to);
}
