#include "dev/verbs/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libibverbs.so.1"
#define MLX5    "libmlx5.so.1"

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

static const struct symbol mlx5_symbols[] = {
	{"mlx5dv_is_supported", offsetof(struct verbs_mlx5, is_supported)},
	{"mlx5dv_create_qp", offsetof(struct verbs_mlx5, create_qp)},
	{"mlx5dv_qp_ex_from_ibv_qp_ex", offsetof(struct verbs_mlx5, qp_ex)},
};

/* NULL, or the first one that is missing. */
static const char *find_symbols(void *handle, const struct symbol *wanted, size_t n, void *table_out)
{
	for (size_t i = 0; i < n; i++) {
		void *found = dlsym(handle, wanted[i].name);

		if (found == NULL)
			return wanted[i].name;
		memcpy((char *)table_out + wanted[i].offset, &found, sizeof(found));
	}
	return NULL;
}

/* By its own names: a program under `holdfast run` has our own ibv_* in front of them. */
int verbs_lib_load_from(const char *file, struct verbs_lib *lib_out, struct hf_error *error)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const char *missing;

	*lib_out = (struct verbs_lib){0};
	if (handle == NULL)
		return hf_error_set(error, -ENODEV,
			"RDMA NICs need libibverbs (apt-get install libibverbs1 ibverbs-providers), which cannot be "
			"loaded here: %.140s",
			dlerror());
	missing = find_symbols(handle, symbols, sizeof(symbols) / sizeof(symbols[0]), lib_out);
	if (missing == NULL)
		return 0;
	dlclose(handle);
	return hf_error_set(error, -ENOSYS,
		"%.80s has no %s: install rdma-core 44 or later (apt-get install libibverbs1)", file, missing);
}

void verbs_lib_load_mlx5_from(const char *file, struct verbs_lib *lib)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	size_t n = sizeof(mlx5_symbols) / sizeof(mlx5_symbols[0]);

	lib->has_mlx5 = handle != NULL && find_symbols(handle, mlx5_symbols, n, &lib->mlx5) == NULL;
	if (handle != NULL && !lib->has_mlx5)
		dlclose(handle);
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
	if (!loaded && rc == 0)
		verbs_lib_load_mlx5_from(MLX5, &lib);
	loaded = rc == 0;
	pthread_mutex_unlock(&lock);
	*lib_out = rc == 0 ? &lib : NULL;
	return rc;
}
