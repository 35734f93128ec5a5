/* Names of libibverbs that a program looks up with dlsym(3) or dlvsym(3) in a libibverbs that it opened itself: NCCL,
 * sideway, bindings of Rust and ctypes do so. They get ours, where ours has that name in that version. Every other
 * look-up goes on to the C library by a jump, because it uses the return address to find the library that asks.
 *
 * The C library's own functions are found in the tables of the loaded libraries: no dlsym can find dlsym. */
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)

#define REAL_NAME "libibverbs" /* begins the name of each copy of it; those in wheels of Python have a hash behind it */
#define OWN_NAME  "libholdfast-verbs.so" /* beside this library */
#define HIDDEN    __attribute__((visibility("hidden")))
#define HASH_SEED 5381u
#define HASH_STEP 33u

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlvsym_fn(void *handle, const char *name, const char *version);

HIDDEN extern dlsym_fn *names_next_dlsym;
HIDDEN extern dlvsym_fn *names_next_dlvsym;
HIDDEN void *names_find(void *handle, const char *name, const char *version, const void *caller);

dlsym_fn *names_next_dlsym;
dlvsym_fn *names_next_dlvsym;

/* ---- the C library's ---- */

struct tables {
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *hash; /* as of DT_GNU_HASH: 4 words, the bloom filter, the buckets, the chains */
};

struct search {
	const char *name;
	void *found;
};

static uintptr_t address_of(const struct dl_phdr_info *info, const ElfW(Dyn) * entry)
{
	return entry->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
}

static bool find_tables(const struct dl_phdr_info *info, struct tables *tables_out)
{
	const ElfW(Dyn) *at = NULL;

	*tables_out = (struct tables){0};
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			at = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (at == NULL || at == _DYNAMIC)
		return false;
	for (; at->d_tag != DT_NULL; at++) {
		if (at->d_tag == DT_SYMTAB)
			tables_out->symbols = (const ElfW(Sym) *)address_of(info, at);
		else if (at->d_tag == DT_STRTAB)
			tables_out->strings = (const char *)address_of(info, at);
		else if (at->d_tag == DT_GNU_HASH)
			tables_out->hash = (const uint32_t *)address_of(info, at);
	}
	return tables_out->symbols != NULL && tables_out->strings != NULL && tables_out->hash != NULL;
}

static int look(struct dl_phdr_info *info, size_t bytes, void *context)
{
	struct search *search = context;
	struct tables tables;
	const uint32_t *buckets, *chains;
	uint32_t hash = HASH_SEED, first;

	(void)bytes;
	if (!find_tables(info, &tables) || tables.hash[0] == 0)
		return 0;
	for (const char *at = search->name; *at != '\0'; at++)
		hash = hash * HASH_STEP + (unsigned char)*at;
	first = tables.hash[1];
	buckets = tables.hash + 4 + tables.hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	chains = buckets + tables.hash[0];
	for (uint32_t i = buckets[hash % tables.hash[0]]; i >= first && i != 0; i++) {
		const ElfW(Sym) *symbol = &tables.symbols[i];

		if ((chains[i - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
			strcmp(tables.strings + symbol->st_name, search->name) == 0) {
			search->found = (void *)(info->dlpi_addr + symbol->st_value);
			return 1;
		}
		if (chains[i - first] & 1)
			return 0;
	}
	return 0;
}

static void *find_next(const char *name)
{
	struct search search = {.name = name};

	(void)dl_iterate_phdr(look, &search);
	return search.found;
}

/* At the first call, which may come before any constructor of ours. Two threads may do it: they find the same. */
static void find_both(void)
{
	void *plain = find_next("dlsym"), *versioned = find_next("dlvsym");

	__atomic_store_n(&names_next_dlvsym, (dlvsym_fn *)versioned, __ATOMIC_RELEASE);
	__atomic_store_n(&names_next_dlsym, (dlsym_fn *)plain, __ATOMIC_RELEASE);
}

/* ---- ours ---- */

static bool of_verbs(const char *name)
{
	return strncmp(name, "ibv_", 4) == 0 || strncmp(name, "_ibv_", 5) == 0 || strstr(name, "_to_ibv_rate") != NULL;
}

static bool of_libibverbs(void *handle)
{
	struct link_map *map = NULL;
	const char *slash;

	if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
		return false;
	slash = strrchr(map->l_name, '/');
	return strncmp(slash == NULL ? map->l_name : slash + 1, REAL_NAME, strlen(REAL_NAME)) == 0;
}

static void *own_library(void)
{
	static void *library;
	char path[4096];
	Dl_info info;
	const char *slash;
	void *found = __atomic_load_n(&library, __ATOMIC_ACQUIRE);

	if (found != NULL || dladdr(_DYNAMIC, &info) == 0 || (slash = strrchr(info.dli_fname, '/')) == NULL)
		return found;
	if (snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, OWN_NAME) <
		(int)sizeof(path))
		found = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	__atomic_store_n(&library, found, __ATOMIC_RELEASE);
	return found;
}

/* Our library itself looks for the real functions. */
static bool asked_by(void *library, const void *caller)
{
	struct link_map *map = NULL;
	Dl_info info;

	return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && dladdr(caller, &info) != 0 &&
	       (uintptr_t)info.dli_fbase == map->l_addr;
}

/* NULL: the C library's function answers. */
void *names_find(void *handle, const char *name, const char *version, const void *caller)
{
	void *library;

	if (__atomic_load_n(&names_next_dlsym, __ATOMIC_ACQUIRE) == NULL)
		find_both();
	if (name == NULL || !of_verbs(name) || !of_libibverbs(handle) || (library = own_library()) == NULL ||
		asked_by(library, caller))
		return NULL;
	return version == NULL ? names_next_dlsym(library, name) : names_next_dlvsym(library, name, version);
}

/* The arguments stay in their registers and the return address on the stack for the jump. */
#define LOOK_UP(function, version)                                                                                     \
	__asm__(".pushsection .text\n.globl " #function "\n"                                                           \
		".type " #function ", @function\n" #function ": push %rdi\n"                                           \
		"push %rsi\n"                                                                                          \
		"push %rdx\n" version "mov 24(%rsp), %rcx\n"                                                           \
		"call names_find\n"                                                                                    \
		"pop %rdx\n"                                                                                           \
		"pop %rsi\n"                                                                                           \
		"pop %rdi\n"                                                                                           \
		"test %rax, %rax\n"                                                                                    \
		"jne 1f\n"                                                                                             \
		"jmp *names_next_" #function "(%rip)\n"                                                                \
		"1: ret\n"                                                                                             \
		".size " #function ", . - " #function "\n.popsection\n")

LOOK_UP(dlsym, "xor %edx, %edx\n");
LOOK_UP(dlvsym, "");

#endif
