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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_lib loaded;
static void *handle;

static int find_symbols(struct verbs_lib *lib, struct hf_error *error)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(handle, symbols[i].name);

		if (found == NULL)
			return hf_error_set(error, -ENOSYS,
				"the %s of this host has no %s: install rdma-core 44 or later (apt-get install "
				"libibverbs1)",
				LIBRARY, symbols[i].name);
		memcpy((char *)lib + symbols[i].offset, &found, sizeof(found));
	}
	return 0;
}

/* By its own names: a program under `holdfast run` has our own ibv_* in front of them. */
static int load(struct hf_error *error)
{
	struct verbs_lib lib;
	int rc;

	handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL)
		return hf_error_set(error, -ENODEV,
			"RDMA NICs need %s, which is not on this host: apt-get install libibverbs1 ibverbs-providers",
			LIBRARY);
	rc = find_symbols(&lib, error);
	if (rc == 0) {
		loaded = lib;
		return 0;
	}
	dlclose(handle);
	handle = NULL;
	return rc;
}

const struct verbs_lib *verbs_lib_load(struct hf_error *error)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (handle == NULL)
		rc = load(error);
	pthread_mutex_unlock(&lock);
	return rc == 0 ? &loaded : NULL;
}
