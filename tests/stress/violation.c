/* What was found wrong, by any process; the first few are kept in words. */
#include <stdarg.h>
#include <stdio.h>

#include "stress.h"

void stress_violate(struct stress *stress, const char *format, ...)
{
	unsigned n = atomic_fetch_add(&stress->violations, 1);
	va_list args;

	if (n >= VIOLATIONS_SHOWN)
		return;
	va_start(args, format);
	vsnprintf(stress->shown[n], VIOLATION_BYTES, format, args);
	va_end(args);
}
