/* Looks up functions of libibverbs as NCCL does: names LIST [LIBRARY]. LIST has lines "NAME VERSION"; each is looked up
 * by name and version in LIBRARY, which this program opens; without one in libibverbs, under `holdfast run`. Prints
 * "NAME VERSION FILE" for each, the library that has it or "none", and then the same of the default version. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *file_of(const void *function)
{
	Dl_info info;
	const char *slash;

	if (function == NULL || dladdr(function, &info) == 0)
		return "none";
	slash = strrchr(info.dli_fname, '/');
	return slash == NULL ? info.dli_fname : slash + 1;
}

int main(int argc, char **argv)
{
	void *handle = dlopen(argc == 3 ? argv[2] : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	FILE *list = argc >= 2 ? fopen(argv[1], "r") : NULL;
	char name[100], version[100];

	if (handle == NULL || list == NULL)
		return 1;
	while (fscanf(list, "%99s %99s", name, version) == 2) {
		printf("%s %s %s\n", name, version, file_of(dlvsym(handle, name, version)));
		printf("%s default %s\n", name, file_of(dlsym(handle, name)));
	}
	return 0;
}
