/* stand.h - what tests of the device on libibverbs have in common: the fake library, a clock, and one NIC to begin
 * with, rxe_a0 with the addresses fe80::1 and 10.0.0.1. */
#ifndef HOLDFAST_TEST_STAND_H
#define HOLDFAST_TEST_STAND_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dev/verbs/verbs.h"
#include "env/world.h"
#include "fake.h"

#define MS        1000000ull
#define SOFT_ROCE 0xffffffu
#define MELLANOX  0x2c9u

extern const char *stand_library; /* the shared object; set it first */
extern struct fake *fake;
extern struct verbs_lib lib; /* its functions, without libmlx5 */
extern struct world_ops ops; /* this host's, but for the clock; a test may change them */
extern struct hf_env env;
extern uint64_t time_ns;      /* what that says; it does not go by itself */
extern struct hf_error words; /* of the last open_dev() */

int stand_set_up(void **state); /* of every test */
#define TEST(name) cmocka_unit_test_setup(name, stand_set_up)
/* What main() of a program of tests returns, whose arguments are the library and nothing else. */
#define STAND_RUN(argc, argv, tests)                                                                                   \
	((argc) != 2 ? 2 : (stand_library = (argv)[1], cmocka_run_group_tests(tests, NULL, NULL)))

/* A port with both of an address's RoCE GIDs, behind those of fe80::1. */
struct fake_port ethernet(const char *address);

int open_dev(struct hf_dev **dev_out, const char *nic, const char *address);
struct hf_dev *opened(void); /* rxe_a0, whatever that is */
/* An RC qp in RTS on such a NIC, and what it stands on. */
struct bed {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_srq *srq; /* NULL: it has none */
	struct hf_qp *qp;
};
struct bed connected(bool with_srq);
void disconnect(struct bed *bed); /* destroys all that there is of it, and then nothing may be left */
int modify(struct hf_qp *qp, struct ibv_qp_attr attr, int mask);

#endif
