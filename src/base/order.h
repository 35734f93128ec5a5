/* order.h - memory ordering by the name of its use; protocol code contains no bare fence.
 *
 *   publish(p, v)   a thread that observes v sees v and everything written before it
 *   observe(p)      the counterpart: everything written before the publish is visible after it
 *   announce()      a store before it is visible to other threads before any load after it is done (Dekker)
 *   confirm()       a load before it is done before any load after it: read, then check that nothing has changed */
#ifndef HOLDFAST_BASE_ORDER_H
#define HOLDFAST_BASE_ORDER_H

#include <stdatomic.h>

#define publish(pointer, value) atomic_store_explicit((pointer), (value), memory_order_release)
#define observe(pointer)        atomic_load_explicit((pointer), memory_order_acquire)
#define announce()              atomic_thread_fence(memory_order_seq_cst)
#define confirm()               atomic_thread_fence(memory_order_acquire)

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
