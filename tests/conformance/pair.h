/* pair.h - two sides with everything that most tests need, and how tests speak of wrs and wcs.
 *
 * Before each test both ports are opened, with pd 0, a send cq 0, a receive cq 1, and memory 0 of PAIR_BYTES in mr 0
 * with all access; iova is not the address. Tests connect as many qps as they want: number i of a with number i of b.
 *
 * Waiting is done by polling both sides until something is true; the limit only ends a test that has failed. */
#ifndef CONFORMANCE_PAIR_H
#define CONFORMANCE_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bed.h"

#define PAIR_BYTES (4u << 20)
#define SEND_CQ    0
#define RECV_CQ    1
#define ALL_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define PSN_MASK      0xffffffu
#define MS            1000000ull
#define LIMIT_NS      (30000 * MS) /* a test that waits so long has failed */

struct pair {
	const struct bed *bed;
	struct hf_env *env; /* a's, or this process's when a is elsewhere */
	struct side *a, *b;
};

/* How a qp pair is connected; zero means the default in brackets. */
struct link_options {
	enum ibv_mtu mtu;        /* [1024] */
	uint32_t psn_a, psn_b;   /* where their requests start [1000, 2000] */
	uint8_t timeout;         /* [14: 67 ms] */
	uint8_t retry_cnt;       /* [7] */
	uint8_t min_rnr_timer;   /* [1: 10 us] */
	uint8_t rnr_retry_plus1; /* [8: 7, for ever] */
	uint8_t rd_atomic;       /* [4] */
	int no_access;           /* of the qps, taken away from REMOTE_ACCESS */
	uint32_t send_wr;        /* [64] */
	uint32_t srq_plus1;      /* a's and b's srq of that number, plus one [none] */
	uint32_t lease_plus1;    /* b's qp has its lease of that number, plus one [none] */
	uint32_t pd;
	bool sq_sig_all;
	uint64_t revoke_ns;
};
/* Gives up soon: for tests that cut a link for good. */
extern const struct link_options impatient;

int pair_setup(void **state);
int pair_teardown(void **state);
/* The pair of this test, not connected; with qp 0 connected; with qp 0 connected as told. */
struct pair *pair_of(void **state);
struct pair *connected(void **state);
struct pair *connected_with(void **state, struct link_options options);

void pair_create_qp(struct pair *pair, uint32_t qp, struct link_options options);
void pair_connect_qp(struct pair *pair, uint32_t qp, struct link_options options); /* both from RESET to RTS */
void pair_connect(struct pair *pair, uint32_t qp, struct link_options options);    /* both of the above */
/* The moves of one side; return what modify returned. */
int qp_to_init(struct side *side, uint32_t qp, int access);
int qp_to_rtr(struct side *side, uint32_t qp, const struct side *peer, struct link_options options);
int qp_to_rts(struct side *side, uint32_t qp, uint32_t sq_psn, struct link_options options);
int qp_to(struct side *side, uint32_t qp, enum ibv_qp_state to);
enum ibv_qp_state qp_state(struct side *side, uint32_t qp);
int qp_access(struct side *side, uint32_t qp, int access);

/* Skips the test, with the reason on the line above cmocka's. */
void skip_because(const char *reason) __attribute__((noreturn));
void require_cap(struct pair *pair, uint32_t cap, const char *reason);

/* ---- time ---- */
uint64_t pair_now_ns(struct pair *pair);
void turn(struct pair *pair);                   /* polls both sides once */
void turns_for(struct pair *pair, uint64_t ns); /* polls both for so long */
/* Polls until the word at addr of a side has a value; fails the test when that never happens. */
void until_word(struct pair *pair, struct side *side, uint64_t addr, uint64_t value);
/* The next completion on a cq. */
struct ibv_wc next_wc(struct pair *pair, struct side *side, uint32_t cq);
void expect_wc(struct pair *pair, struct side *side, uint32_t cq, uint64_t wr_id, enum ibv_wc_status status);
bool status_is(const struct pair *pair, enum ibv_wc_status status, enum ibv_wc_status expected);
void expect_no_wc(struct pair *pair, struct side *side, uint32_t cq);
void fence(struct pair *pair, struct side *side, uint32_t qp); /* until it is done */

/* ---- wrs: one sge in mr 0 at `local` bytes into memory 0, to `remote` bytes into the peer's memory 0 ---- */
struct wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge[ACTOR_SGES];
};
struct recv {
	struct ibv_recv_wr wr;
	struct ibv_sge sge[ACTOR_SGES];
};
uint64_t iova_of(const struct side *side, uint64_t offset); /* of mr 0 */
struct wr *wr_write(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint32_t bytes);
struct wr *wr_read(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint32_t bytes);
struct wr *wr_send(struct wr *wr, struct side *from, uint64_t local, uint32_t bytes);
struct wr *wr_faa(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint64_t add);
struct wr *wr_cas(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint64_t compare,
	uint64_t swap);
struct wr *wr_imm(struct wr *wr, uint32_t imm); /* makes a SEND or WRITE one with an immediate */
struct recv *recv_into(struct recv *recv, struct side *side, uint64_t local, uint32_t bytes);

/* Posts one wr, signaled, with this id. */
void post(struct side *side, uint32_t qp, struct wr *wr, uint64_t wr_id);
void post_quiet(struct side *side, uint32_t qp, struct wr *wr, uint64_t wr_id); /* unsignaled */
void post_receive(struct side *side, uint32_t qp, struct recv *recv, uint64_t wr_id);

/* Lists of tests; main.c joins them. */
#define TEST_LIST(name)                                                                                                \
	extern const struct CMUnitTest name[];                                                                         \
	extern const size_t name##_count
TEST_LIST(transfer_tests);
TEST_LIST(order_tests);
TEST_LIST(receive_tests);
TEST_LIST(fault_tests);
TEST_LIST(gone_tests);
TEST_LIST(fence_tests);
TEST_LIST(access_tests);
TEST_LIST(atomic_tests);
TEST_LIST(qp_tests);
TEST_LIST(event_tests);
TEST_LIST(dc_tests);
TEST_LIST(footer_tests);
TEST_LIST(lease_tests);
TEST_LIST(process_tests);

#define CONFORMS(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

#endif
