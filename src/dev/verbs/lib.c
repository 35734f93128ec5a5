#include "dev/verbs/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libibverbs.so.1"

struct symbol {
	const char *name;
	size_t offset;
};
static const struct symbol symbols[] = {
#define VERBS_LIB_SYMBOL(result, name, arguments) {"ibv_" #name, offsetof(struct verbs_lib, name)},
	VERBS_LIB_CALLS(VERBS_LIB_SYMBOL)
#undef VERBS_LIB_SYMBOL
		{"_ibv_query_gid_ex", offsetof(struct verbs_lib, query_gid_ex)},
};

static int find_symbols(void *handle, const char *file, struct verbs_lib *lib_out, struct hf_error *error)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(handle, symbols[i].name);

		if (found == NULL)
			return hf_error_set(error, -ENOSYS,
				"%.80s has no %s: install rdma-core 44 or later (apt-get install libibverbs1)", file,
				symbols[i].name);
		memcpy((char *)lib_out + symbols[i].offset, &found, sizeof(found));
	}
	return 0;
}

/* By its own names: a program under `holdfast run` has our own ibv_* in front of them. */
int verbs_lib_load_from(const char *file, struct verbs_lib *lib_out, struct hf_error *error)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	int rc;

	if (handle == NULL)
		return hf_error_set(error, -ENODEV,
			"RDMA NICs need %.80s, which is not on this host: apt-get install libibverbs1 "
			"ibverbs-providers",
			file);
	rc = find_symbols(handle, file, lib_out, error);
	if (rc != 0)
		dlclose(handle);
	return rc;
}

int verbs_lib_load(const struct verbs_lib **lib_out, struct hf_error *error)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct verbs_lib lib;
	static bool loaded;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!loaded)
		rc = verbs_lib_load_from(LIBRARY, &lib, error);
	loaded = rc == 0;
	pthread_mutex_unlock(&lock);
	*lib_out = rc == 0 ? &lib : NULL;
	return rc;
}
