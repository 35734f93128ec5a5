#include "preload/real.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/ensure.h"

#define LIBRARY  "libibverbs.so.1"
#define BASENAME "libibverbs" /* wheels of Python bring copies whose names have a hash behind it */

static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int find_loaded(struct dl_phdr_info *info, size_t bytes, void *path_out)
{
	const char *slash = strrchr(info->dlpi_name, '/');

	(void)bytes;
	if (strncmp(slash == NULL ? info->dlpi_name : slash + 1, BASENAME, strlen(BASENAME)) != 0)
		return 0;
	*(const char **)path_out = info->dlpi_name;
	return 1;
}

/* The one that the program has already: its providers and their libraries belong to it. */
static void open_once(void)
{
	const char *path = NULL;

	if (dl_iterate_phdr(find_loaded, &path) != 0)
		library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (library == NULL)
		library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
}

void *real_find(const char *name)
{
	pthread_once(&once, open_once);
	return library == NULL ? NULL : dlsym(library, name);
}

void *real_find_version(const char *name, const char *version)
{
	pthread_once(&once, open_once);
	return library == NULL ? NULL : dlvsym(library, name, version);
}

void *real_need(const char *name)
{
	void *function = real_find(name);

	ensure(function != NULL);
	return function;
}
