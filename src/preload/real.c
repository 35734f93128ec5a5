#include "preload/real.h"

#include <dlfcn.h>
#include <stddef.h>

#include "base/ensure.h"

void *real_find(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

void *real_need(const char *name)
{
	void *function = real_find(name);

	ensure(function != NULL);
	return function;
}
