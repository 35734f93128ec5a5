/* Private memory of a program that peers are to map (remote atomics): the heap, .bss, mappings, huge pages; what lies
 * beside it, what overlaps it, what may not be remapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <holdfast/dev.h>
#include <holdfast/fabric.h>

#include "base/order.h"
#include "env/share.h"
#include "shm/end.h"

#define PAGE       4096u
#define MIB        (1u << 20)
#define NO_ATOMICS (ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC)

static struct end a, b;
static uint64_t results[2]; /* where originals land, of `a` */
static struct hf_mr *results_mr;
static char fabric[HF_NAME_BYTES];

static void open_pair(bool remap_private)
{
	struct hf_error error;

	end_open(&a, hf_env_host(), fabric, "a", false);
	end_open(&b, hf_env_host(), fabric, "b", remap_private);
	end_connect(&a, &b);
	end_connect(&b, &a);
	assert_int_equal(hf_mr_reg(a.pd, results, sizeof(results), 0, IBV_ACCESS_LOCAL_WRITE, &results_mr, &error), 0);
}

static int setup(void **state)
{
	(void)state;
	open_pair(false);
	return 0;
}

static int setup_remapping(void **state)
{
	(void)state;
	open_pair(true);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hf_mr_dereg(results_mr);
	end_close(&a);
	end_close(&b);
	return 0;
}

static struct hf_mr *reg(void *addr, uint64_t bytes, int access)
{
	struct hf_error error = {0};
	struct hf_mr *mr = NULL;

	if (hf_mr_reg(b.pd, addr, bytes, (uintptr_t)addr, access, &mr, &error) != 0)
		fail_msg("%s", error.text);
	return mr;
}

static enum ibv_wc_status carry_out(enum ibv_wr_opcode opcode, const struct hf_mr *mr, void *at, uint64_t add)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&results[0], .length = 8, .lkey = results_mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)at;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = add;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)at;
		wr.wr.rdma.rkey = mr->rkey;
	}
	assert_int_equal(hf_qp_post_send(a.qp, &wr, &bad), 0);
	while (hf_cq_poll(a.cq, 1, &wc) == 0)
		cpu_relax();
	return wc.status;
}

static void add_and_check(const struct hf_mr *mr, uint64_t *word)
{
	uint64_t before = *word;

	assert_int_equal(carry_out(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, word, 5), IBV_WC_SUCCESS);
	assert_int_equal(results[0], before);
	assert_int_equal(*word, before + 5);
	*word = 100; /* its owner's stores are the peer's as well */
	assert_int_equal(carry_out(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, word, 1), IBV_WC_SUCCESS);
	assert_int_equal(results[0], 100);
}

/* ---- every kind of memory ---- */

static uint64_t in_bss[3 * PAGE / 8];

static void check_memory(uint64_t *words, size_t n)
{
	struct hf_mr *mr;

	for (size_t i = 0; i < n; i++)
		words[i] = i;
	mr = reg(words, n * 8, ALL_ACCESS);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(words[i], i);
	add_and_check(mr, &words[0]);
	add_and_check(mr, &words[n - 1]);
	assert_int_equal(hf_mr_dereg(mr), 0);
	words[1] = 7;
	assert_int_equal(words[1], 7);
}

static void atomics_reach_the_heap_bss_and_mappings(void **state)
{
	size_t bytes = 4u * MIB;
	uint64_t *small = malloc(64 * 8), *big = malloc(bytes), *brk = sbrk(5 * (intptr_t)PAGE);
	uint64_t *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *huge;

	(void)state;
	assert_ptr_not_equal(brk, (void *)-1);
	assert_ptr_not_equal(mapping, MAP_FAILED);
	check_memory(small, 64);
	check_memory(big, bytes / 8);
	check_memory(brk, 5 * PAGE / 8);
	check_memory(in_bss, sizeof(in_bss) / 8);
	check_memory(mapping, bytes / 8);
	assert_int_equal(posix_memalign((void **)&huge, 2 * MIB, bytes), 0);
	madvise(huge, bytes, MADV_HUGEPAGE);
	check_memory(huge, bytes / 8);
	free(small);
	free(big);
	free(huge);
	munmap(mapping, bytes);
}

/* Pages that nobody has touched before are stored to by us and seen by peers as well. */
static void untouched_memory_is_remapped_too(void **state)
{
	uint64_t *words = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hf_mr *mr;

	(void)state;
	assert_ptr_not_equal(words, MAP_FAILED);
	mr = reg(words, 16 * PAGE, ALL_ACCESS);
	add_and_check(mr, &words[9 * PAGE / 8]);
	assert_int_equal(hf_mr_dereg(mr), 0);
	munmap(words, 16 * PAGE);
}

/* ---- neighbours ---- */

#define COUNTERS 512u

struct neighbour {
	_Atomic uint64_t counters[COUNTERS];
	_Atomic bool stop;
	uint64_t stores;
};

static void *count_on(void *context)
{
	struct neighbour *neighbour = context;

	while (!atomic_load(&neighbour->stop)) {
		for (unsigned i = 0; i < COUNTERS; i++) {
			uint64_t seen = atomic_load_explicit(&neighbour->counters[i], memory_order_relaxed);

			if (seen != neighbour->stores)
				return (void *)1; /* the store before was lost */
			atomic_store_explicit(&neighbour->counters[i], seen + 1, memory_order_relaxed);
		}
		neighbour->stores++;
	}
	return NULL;
}

/* The registered bytes begin in the page that a thread counts in, and end where it goes on. */
static void a_thread_that_writes_beside_registered_memory_loses_nothing(void **state)
{
	struct neighbour *neighbour = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *inside = (uint8_t *)neighbour + 16;
	void *lost = NULL;
	pthread_t thread;

	(void)state;
	assert_ptr_not_equal(neighbour, MAP_FAILED);
	assert_int_equal(pthread_create(&thread, NULL, count_on, neighbour), 0);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(hf_mr_dereg(reg(inside, 6 * PAGE, ALL_ACCESS)), 0);
	atomic_store(&neighbour->stop, true);
	pthread_join(thread, &lost);
	assert_null(lost);
	for (unsigned i = 0; i < COUNTERS; i++)
		assert_int_equal(atomic_load(&neighbour->counters[i]), neighbour->stores);
	munmap(neighbour, 8 * PAGE);
}

static void registrations_may_overlap_and_share_pages(void **state)
{
	uint64_t *words = malloc(8 * PAGE);
	struct hf_mr *first, *second, *third, *copied;

	(void)state;
	assert_non_null(words);
	memset(words, 0, 8 * PAGE);
	copied = reg(words, 8 * PAGE, NO_ATOMICS); /* by the kernel, until somebody wants atomics there */
	first = reg(words, 3 * PAGE, ALL_ACCESS);
	second = reg(&words[2 * PAGE / 8], 4 * PAGE, ALL_ACCESS);
	third = reg(&words[7 * PAGE / 8], 64, ALL_ACCESS);
	add_and_check(first, &words[3 * PAGE / 8 - 1]);
	add_and_check(second, &words[3 * PAGE / 8 - 1]);
	add_and_check(second, &words[6 * PAGE / 8 - 1]);
	add_and_check(third, &words[7 * PAGE / 8]);
	results[0] = 77;
	assert_int_equal(carry_out(IBV_WR_RDMA_WRITE, copied, &words[2 * PAGE / 8], 0), IBV_WC_SUCCESS);
	assert_int_equal(words[2 * PAGE / 8], 77);
	assert_int_equal(hf_mr_dereg(first), 0);
	add_and_check(second, &words[2 * PAGE / 8]);
	assert_int_equal(hf_mr_dereg(second), 0);
	add_and_check(third, &words[7 * PAGE / 8]);
	first = reg(words, 8 * PAGE, ALL_ACCESS);
	add_and_check(first, &words[2 * PAGE / 8]);
	add_and_check(third, &words[7 * PAGE / 8]);
	assert_int_equal(hf_mr_dereg(first), 0);
	assert_int_equal(hf_mr_dereg(third), 0);
	assert_int_equal(hf_mr_dereg(copied), 0);
	free(words);
}

/* What the program maps at the same place later is other memory. */
static void memory_that_was_unmapped_after_its_use_can_be_registered_again(void **state)
{
	uint64_t *words = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hf_mr *mr;

	(void)state;
	assert_ptr_not_equal(words, MAP_FAILED);
	mr = reg(words, 4 * PAGE, ALL_ACCESS);
	add_and_check(mr, words);
	assert_int_equal(hf_mr_dereg(mr), 0);
	assert_ptr_equal(
		mmap(words, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), words);
	assert_int_equal(words[0], 0);
	mr = reg(words, 4 * PAGE, ALL_ACCESS);
	add_and_check(mr, words);
	assert_int_equal(hf_mr_dereg(mr), 0);
	munmap(words, 4 * PAGE);
}

/* ---- what may not be ---- */

static void execute_refuse(void *addr, uint64_t bytes, const char *words)
{
	struct hf_error error = {0};
	struct hf_mr *mr;

	assert_int_equal(hf_mr_reg(b.pd, addr, bytes, 0, ALL_ACCESS, &mr, &error), -EOPNOTSUPP);
	if (strstr(error.text, words) == NULL)
		fail_msg("'%s' does not say '%s'", error.text, words);
	assert_int_equal(hf_mr_reg(b.pd, addr, bytes, (uintptr_t)addr, NO_ATOMICS, &mr, &error), 0);
	results[0] = 11;
	assert_int_equal(carry_out(IBV_WR_RDMA_WRITE, mr, addr, 0), IBV_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)addr, 11);
	assert_int_equal(hf_mr_dereg(mr), 0);
}

struct sleeper {
	_Atomic(uint64_t *) word;
	pthread_mutex_t leave;
};

static void *sleep_on_its_stack(void *context)
{
	struct sleeper *sleeper = context;
	uint64_t word = 0;

	atomic_store(&sleeper->word, &word);
	pthread_mutex_lock(&sleeper->leave);
	pthread_mutex_unlock(&sleeper->leave);
	return NULL;
}

static void stacks_are_reached_without_atomics_only(void **state)
{
	struct sleeper sleeper = {.leave = PTHREAD_MUTEX_INITIALIZER};
	uint64_t own = 0;
	pthread_t thread;

	(void)state;
	execute_refuse(&own, 8, "on a stack");
	pthread_mutex_lock(&sleeper.leave);
	assert_int_equal(pthread_create(&thread, NULL, sleep_on_its_stack, &sleeper), 0);
	while (atomic_load(&sleeper.word) == NULL)
		cpu_relax();
	execute_refuse(atomic_load(&sleeper.word), 8, "on a stack");
	pthread_mutex_unlock(&sleeper.leave);
	pthread_join(thread, NULL);
}

/* ---- by option ---- */

static void a_device_may_ask_for_all_private_memory_to_be_mapped(void **state)
{
	uint64_t *words = calloc(1, 4 * PAGE);
	struct share_backing backing;
	struct hf_mr *mr;

	(void)state;
	assert_int_equal(share_backing_find(words, 4 * PAGE, &backing), -ENOENT);
	mr = reg(words, 4 * PAGE, NO_ATOMICS);
	assert_int_equal(share_backing_find(words, 4 * PAGE, &backing), 0);
	assert_int_equal(carry_out(IBV_WR_RDMA_WRITE, mr, words, 0), IBV_WC_SUCCESS);
	assert_int_equal(words[0], results[0]);
	assert_int_equal(hf_mr_dereg(mr), 0);
	assert_int_equal(share_backing_find(words, 4 * PAGE, &backing), -ENOENT); /* nobody holds its file any more */
	free(words);
}

static int remove_fabric(void **state)
{
	(void)state;
	hf_fabric_remove(fabric);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(atomics_reach_the_heap_bss_and_mappings),
		TEST(untouched_memory_is_remapped_too),
		TEST(a_thread_that_writes_beside_registered_memory_loses_nothing),
		TEST(registrations_may_overlap_and_share_pages),
		TEST(memory_that_was_unmapped_after_its_use_can_be_registered_again),
		TEST(stacks_are_reached_without_atomics_only),
		cmocka_unit_test_setup_teardown(
			a_device_may_ask_for_all_private_memory_to_be_mapped, setup_remapping, teardown),
	};

	snprintf(fabric, sizeof(fabric), "test-memory-%d", (int)getpid());
	return cmocka_run_group_tests(tests, NULL, remove_fabric);
}
