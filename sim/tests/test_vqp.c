/* What the scenario of virtual queue pairs shows about the paper's baselines. */
#include "sim/tests/fixture.h"

#include "sim/device.h"
#include "sim/runner.h"

#define SEEDS_MAX 200u

/* Varuna's argument (section 2): whoever resends without evidence executes twice what had executed, when only the
 * acknowledgement was lost. That nothing is lost besides is what the scenario's own checkers say. */
static void blind_resending_executes_additions_twice(void **state)
{
	uint64_t doubled = 0, seed;

	(void)state;
	for (seed = 1; seed <= SEEDS_MAX && doubled == 0; seed++) {
		struct run_result result;

		run_seed(seed, &scenario_vqp, false, &result);
		if (result.violations > 0)
			fail_msg("seed %u: %s", (unsigned)seed, result.violation);
		doubled += result.outcome.doubled;
	}
	print_message("seed %u doubles\n", (unsigned)seed - 1);
	assert_true(doubled > 0);
}

static void rails_fail_and_come_back_in_these_runs(void **state)
{
	uint64_t failovers = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct run_result result;

		run_seed(seed, &scenario_vqp, false, &result);
		failovers += result.outcome.failovers;
	}
	assert_true(failovers > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blind_resending_executes_additions_twice),
		cmocka_unit_test(rails_fail_and_come_back_in_these_runs),
	};

	device_register();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
