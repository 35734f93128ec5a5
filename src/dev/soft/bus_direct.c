/* The bus of a host: the NIC is a thread or the caller, and reaches memory with the CPU's own loads and stores.
 *
 * A store that fits into one aligned word, and the last word of a longer one, is a single release store: a reader that
 * polls that word sees it whole, and everything stored before it. Atomics are atomic with each other, with other NICs
 * and with the CPU (D7 global). Each access is one that may fail (env/fault.h). */
#include "dev/soft/bus.h"

#include "base/copy.h"
#include "env/fault.h"

#include <string.h>

#define PAGE_BYTES 4096u

struct access {
	void *host;
	const void *from;
	void *to;
	size_t bytes;
	uint64_t compare, argument, original;
};

static int check_direct(struct soft_bus *bus, const void *host, size_t bytes, bool writes)
{
	(void)bus;
	fault_catch();
	return fault_check(host, bytes, writes);
}

static void load(void *context)
{
	struct access *access = context;

	if (access->bytes == sizeof(uint64_t) && ((uintptr_t)access->from & 7) == 0) {
		uint64_t word = __atomic_load_n((const uint64_t *)access->from, __ATOMIC_ACQUIRE);

		memcpy(access->to, &word, sizeof(word));
		return;
	}
	memcpy(access->to, access->from, access->bytes);
}

static bool read_direct(struct soft_bus *bus, void *to, const void *host, size_t bytes)
{
	(void)bus;
	return fault_try(load, &(struct access){.from = host, .to = to, .bytes = bytes});
}

/* A byte of each page. */
static void touch(void *context)
{
	const struct access *access = context;
	const volatile uint8_t *at = access->from;

	for (size_t i = 0; i < access->bytes; i += PAGE_BYTES)
		(void)at[i];
	(void)at[access->bytes - 1];
}

static const void *view_direct(struct soft_bus *bus, const void *host, size_t bytes)
{
	(void)bus;
	return fault_try(touch, &(struct access){.from = host, .bytes = bytes}) ? host : NULL;
}

static void store(void *context)
{
	struct access *access = context;
	uint32_t half;

	if (access->bytes == sizeof(half) && ((uintptr_t)access->host & 3) == 0) {
		memcpy(&half, access->from, sizeof(half));
		__atomic_store_n((uint32_t *)access->host, half, __ATOMIC_RELEASE);
	} else if (access->bytes == 1) {
		__atomic_store_n((uint8_t *)access->host, *(const uint8_t *)access->from, __ATOMIC_RELEASE);
	} else {
		copy_shown(access->host, access->from, access->bytes);
	}
}

static bool write_direct(struct soft_bus *bus, void *host, const void *from, size_t bytes)
{
	(void)bus;
	return fault_try(store, &(struct access){.host = host, .from = from, .bytes = bytes});
}

static void compare_and_swap(void *context)
{
	struct access *access = context;

	access->original = access->compare;
	__atomic_compare_exchange_n((uint64_t *)access->host, &access->original, access->argument, false,
		__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static bool cas_direct(struct soft_bus *bus, uint64_t *host, uint64_t compare, uint64_t swap, uint64_t *original_out)
{
	struct access access = {.host = host, .compare = compare, .argument = swap};
	bool there = fault_try(compare_and_swap, &access);

	(void)bus;
	*original_out = access.original;
	return there;
}

static void fetch_and_add(void *context)
{
	struct access *access = context;

	access->original = __atomic_fetch_add((uint64_t *)access->host, access->argument, __ATOMIC_SEQ_CST);
}

static bool faa_direct(struct soft_bus *bus, uint64_t *host, uint64_t add, uint64_t *original_out)
{
	struct access access = {.host = host, .argument = add};
	bool there = fault_try(fetch_and_add, &access);

	(void)bus;
	*original_out = access.original;
	return there;
}

static void complete_direct(
	struct soft_bus *bus, void (*deliver)(void *cq, const struct ibv_wc *wc), void *cq, const struct ibv_wc *wc)
{
	(void)bus;
	deliver(cq, wc);
}

static void drain_direct(struct soft_bus *bus)
{
	(void)bus; /* a store has happened when it returns */
}

const struct soft_bus_ops bus_direct = {
	.check = check_direct,
	.read = read_direct,
	.view = view_direct,
	.write = write_direct,
	.cas = cas_direct,
	.faa = faa_direct,
	.complete = complete_direct,
	.drain = drain_direct,
};
