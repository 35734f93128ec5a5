/* Memory that cannot be let go of yet: a stopped process of this host is within an operation on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>

#include <cmocka.h>

#include <holdfast/vqp.h>

#include "engines.h"

#define BYTES 65536u
#define LIMIT 10000000u /* turns */

static unsigned busy; /* so many calls find such a process */
static unsigned calls, unregistered;

int __real_hf_vmr_dereg(struct hf_vmr *mr);
int __wrap_hf_vmr_dereg(struct hf_vmr *mr);

int __wrap_hf_vmr_dereg(struct hf_vmr *mr)
{
	calls++;
	if (busy == 0)
		return __real_hf_vmr_dereg(mr);
	busy--;
	return -EBUSY;
}

static void on_unregistered(struct hf_transfer *engine, void *addr, void *context)
{
	(void)engine, (void)addr, (void)context;
	unregistered++;
}

static void memory_stays_registered_until_the_operation_has_ended(void **state)
{
	static struct engines engines;

	(void)state;
	engines_open(&engines, BYTES, NULL, NULL);
	busy = 1;
	calls = 0;
	assert_int_equal(hf_transfer_unregister(engines.a, engines.from, on_unregistered, NULL), 0);
	for (unsigned i = 0; i < LIMIT && calls == 0; i++)
		engines_turn(&engines);
	assert_int_equal(calls, 1);
	assert_int_equal(unregistered, 0);
	assert_int_equal(hf_transfer_register(engines.a, engines.from, BYTES, 0, NULL), -EEXIST);
	for (unsigned i = 0; i < LIMIT && unregistered == 0; i++)
		engines_turn(&engines);
	assert_int_equal(calls, 2); /* each may block: not at each turn */
	assert_int_equal(unregistered, 1);
	assert_int_equal(hf_transfer_register(engines.a, engines.from, BYTES, 0, NULL), 0);
	engines_close(&engines);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_stays_registered_until_the_operation_has_ended),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
