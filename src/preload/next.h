/* next.h - the C library's functions behind those that the libraries of this folder define anew. */
#ifndef HOLDFAST_PRELOAD_NEXT_H
#define HOLDFAST_PRELOAD_NEXT_H

#include <dlfcn.h>

/* The next library's function of that name: found at the start, or by a call before that. */
#define NEXT(type, name, declared)                                                                                     \
	type name declared;                                                                                            \
	static type(*next_##name) declared;                                                                            \
	__attribute__((constructor)) static void find_##name(void)                                                     \
	{                                                                                                              \
		*(void **)&next_##name = dlsym(RTLD_NEXT, #name);                                                      \
	}

/* Calls it. */
#define CALL_NEXT(name, ...) (next_##name == NULL ? find_##name() : (void)0, next_##name(__VA_ARGS__))

#endif
