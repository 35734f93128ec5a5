#include "base/ensure.h"

#include <stdio.h>
#include <stdlib.h>

void ensure_failed(const char *what, const char *file, int line, const char *function)
{
	fprintf(stderr, "holdfast: %s:%d: %s: ensure(%s) failed; this is a bug, please report it\n", file, line,
		function, what);
	abort();
}
