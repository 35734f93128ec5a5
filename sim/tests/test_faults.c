/* The plan of faults, on processes that have a NIC each and do nothing with it. */
#include "sim/tests/fixture.h"

#include "sim/device.h"
#include "sim/faults.h"

#define QUIET_NS (20 * NS_MS)
#define SEEDS    200u
#define FAULTS   8u

static struct hf_dev *devices[2]; /* of the processes "a" and "b" */

static unsigned number_of(const struct process *process)
{
	return process->name[0] == 'b';
}

static int open_nic(struct process *process, void *context)
{
	struct hf_dev_config config = {.kind = "soft", .node = process->name, .rail = "r0"};
	struct hf_error error = {0};

	(void)context;
	config.address = fixture_addr(number_of(process) == 0 ? "10.0.0.1" : "10.0.0.2");
	return hf_dev_open(&process->env, &config, &devices[number_of(process)], &error);
}

static void close_nic(struct process *process, void *context)
{
	(void)context;
	hf_dev_close(devices[number_of(process)]);
	devices[number_of(process)] = NULL;
}

/* Also one that waits for a moment to begin. */
static void every_fault_has_ended_when_all_is_to_be_quiet(void **state)
{
	static const struct program program = {.name = "nic", .start = open_nic, .stop = close_nic};
	uint64_t crashes = 0;

	(void)state;
	device_register();
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct faults faults;
		struct fixture f;

		fixture_open(&f, seed, &program, NULL);
		assert_non_null(devices[0]);
		faults_plan(&faults, &f.network, f.processes, 2, ~FAULT_BIT(FAULT_FLAP), FAULTS, QUIET_NS);
		fixture_run(&f, QUIET_NS);
		for (unsigned i = 0; i < FAULTS; i++) {
			assert_int_equal(faults.plan[i].begin.slot, 0);
			assert_int_equal(faults.plan[i].end.slot, 0);
		}
		for (unsigned i = 0; i < 2; i++) {
			assert_false(f.ports[i]->dark);
			crashes += f.ports[i]->nic_crashes;
		}
		fixture_close(&f);
	}
	assert_true(crashes > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fault_has_ended_when_all_is_to_be_quiet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
