/* The bus of a host: the NIC is a thread or the caller, and reaches memory with the CPU's own loads and stores.
 *
 * A store that fits into one aligned word, and the last word of a longer one, is a single release store: a reader that
 * polls that word sees it whole, and everything stored before it. Atomics are atomic with each other, with other NICs
 * and with the CPU (D7 global). */
#include "dev/soft/bus.h"

#include "base/copy.h"

#include <stdbool.h>
#include <string.h>

static void read_direct(struct soft_bus *bus, void *to, const void *host, size_t bytes)
{
	(void)bus;
	if (bytes == sizeof(uint64_t) && ((uintptr_t)host & 7) == 0) {
		uint64_t word = __atomic_load_n((const uint64_t *)host, __ATOMIC_ACQUIRE);

		memcpy(to, &word, sizeof(word));
		return;
	}
	memcpy(to, host, bytes);
}

static const void *view_direct(struct soft_bus *bus, const void *host, size_t bytes)
{
	(void)bus;
	(void)bytes;
	return host;
}

static void write_direct(struct soft_bus *bus, void *host, const void *from, size_t bytes)
{
	uint32_t half;

	(void)bus;
	if (bytes == sizeof(half) && ((uintptr_t)host & 3) == 0) {
		memcpy(&half, from, sizeof(half));
		__atomic_store_n((uint32_t *)host, half, __ATOMIC_RELEASE);
	} else if (bytes == 1) {
		__atomic_store_n((uint8_t *)host, *(const uint8_t *)from, __ATOMIC_RELEASE);
	} else {
		copy_shown(host, from, bytes);
	}
}

static uint64_t cas_direct(struct soft_bus *bus, uint64_t *host, uint64_t compare, uint64_t swap)
{
	(void)bus;
	__atomic_compare_exchange_n(host, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare;
}

static uint64_t faa_direct(struct soft_bus *bus, uint64_t *host, uint64_t add)
{
	(void)bus;
	return __atomic_fetch_add(host, add, __ATOMIC_SEQ_CST);
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
	.read = read_direct,
	.view = view_direct,
	.write = write_direct,
	.cas = cas_direct,
	.faa = faa_direct,
	.complete = complete_direct,
	.drain = drain_direct,
};
