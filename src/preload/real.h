/* real.h - the real libibverbs, with which the program is linked: it handles the handles of real devices. */
#ifndef HOLDFAST_PRELOAD_REAL_H
#define HOLDFAST_PRELOAD_REAL_H

/* The next function of this name after ours; NULL when there is no libibverbs. */
void *real_find(const char *name);
/* For a foreign handle, which only a real libibverbs can have made. */
void *real_need(const char *name);

/* Calls go like REAL(ibv_alloc_pd)(context). */
#define REAL(function) ((__typeof__(&(function)))real_need(#function))

#endif
