/* real.h - the real libibverbs: it handles the handles of real devices, and what takes no handle.
 *
 * It is opened by name, because a library that was loaded with dlopen(3), as the modules of UCX are, does not stand
 * behind ours in the order of symbols. */
#ifndef HOLDFAST_PRELOAD_REAL_H
#define HOLDFAST_PRELOAD_REAL_H

#include <stdbool.h>

struct ibv_context;

/* Its function of this name; NULL when there is no libibverbs, or none with that function. */
void *real_find(const char *name);
void *real_find_version(const char *name, const char *version);
/* For a foreign handle, which only a real libibverbs can have made. */
void *real_need(const char *name);

/* Calls go like REAL(ibv_alloc_pd)(context). */
#define REAL(function) ((__typeof__(&(function)))real_need(#function))

/* device.c */
bool context_is_ours(const struct ibv_context *context);

#endif
