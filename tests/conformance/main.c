/* The conformance suite: every promise of dev.h, on the bed that the command line names.
 *
 *   conformance BED [PATTERN]     runs the tests whose names match
 *   conformance --serve FD        is the other process of a bed of two processes */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/fabric.h>

#define TESTS_MAX 256

static struct CMUnitTest tests[TESTS_MAX];
static size_t test_count;

static void add(const struct CMUnitTest *list, size_t n, const struct bed *bed)
{
	for (size_t i = 0; i < n && test_count < TESTS_MAX; i++) {
		tests[test_count] = list[i];
		tests[test_count++].initial_state = (void *)(uintptr_t)bed;
	}
}

#define ADD(name) add(name, name##_count, bed)

static int run(const struct bed *bed)
{
	int failed;

	ADD(transfer_tests);
	ADD(order_tests);
	ADD(receive_tests);
	ADD(fault_tests);
	ADD(fence_tests);
	ADD(access_tests);
	ADD(gone_tests);
	ADD(atomic_tests);
	ADD(qp_tests);
	ADD(event_tests);
	ADD(dc_tests);
	ADD(footer_tests);
	ADD(lease_tests);
	ADD(process_tests);
	failed = _cmocka_run_group_tests(bed->name, tests, test_count, NULL, NULL);
	hf_fabric_remove(bed_fabric());
	return failed;
}

int main(int argc, char **argv)
{
	const struct bed *bed;

	if (argc == 3 && strcmp(argv[1], "--serve") == 0)
		return side_serve((int)strtol(argv[2], NULL, 10));
	if (argc < 2 || (bed = bed_find(argv[1])) == NULL) {
		fprintf(stderr, "usage: conformance BED [PATTERN]; beds:");
		for (unsigned i = 0; i < bed_count; i++)
			fprintf(stderr, " %s", beds[i].name);
		fputc('\n', stderr);
		return 2;
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return run(bed);
}
