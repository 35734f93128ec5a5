/* bed.h - a world to test in: the tests of this folder are built with the host's (bed_host.c) and with the simulator's
 * (sim/tests/bed.c), and must pass in both. */
#ifndef HOLDFAST_TESTS_WORLDS_BED_H
#define HOLDFAST_TESTS_WORLDS_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <holdfast/loop.h>

struct bed {
	struct hf_env *env;
	struct hf_loop *loop;
	const char *directory; /* empty at the start of a test; what a test leaves there is removed */
	const char *address;   /* of this host */
};
extern struct bed bed;

/* For cmocka: before and after each test. */
int bed_open(void **state);
int bed_close(void **state);

/* Turns the loop until this holds. What never holds fails the test, on a host by its time-out. */
void bed_until(bool (*holds)(void));

#define IN_BED(test) cmocka_unit_test_setup_teardown(test, bed_open, bed_close)

#endif
