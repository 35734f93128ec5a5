#include "cli/installed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256

bool installed_find(const char *folder, const char *name, char path[PATH_MAX])
{
	const char *const places[] = {"", folder};
	char own[PATH_MAX], candidate[2 * PATH_MAX + NAME_BYTES];
	char *slash;

	if (realpath("/proc/self/exe", own) == NULL || (slash = strrchr(own, '/')) == NULL)
		return false;
	*slash = '\0';
	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(candidate, sizeof(candidate), "%s/%s/%s", own, places[i], name);
		if (realpath(candidate, path) != NULL)
			return true;
	}
	return false;
}
