/* side.h - one of the two processes of a test of `holdfast run`: its objects of libibverbs, and connecting them to the
 * other side's. Linked with libibverbs and with nothing of ours. What does not hold ends the process. */
#ifndef HOLDFAST_TESTS_PRELOAD_SIDE_H
#define HOLDFAST_TESTS_PRELOAD_SIDE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define DEPTH      64
#define BYTES      8192
#define THREADS    4
#define NODE_BYTES 32
#define CUTS       4 /* of rails, in a test */
#define EXIT_SKIP  77
#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

void check_failed(const char *what, int line);
#define check(x) ((x) ? (void)0 : check_failed(#x, __LINE__))

extern const char *side_holdfast; /* the program */

struct hello {
	union ibv_gid gid;
	uint32_t qp_num[THREADS], rkey;
	uint64_t addr;
};

struct side {
	unsigned index; /* of the test */
	int number, socket;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[THREADS];
	struct ibv_qp *qp[THREADS];
	struct ibv_mr *mr;
	struct ibv_srq *srq; /* of all queue pairs; NULL: each has receives of its own */
	char *memory;
	struct hello mine, theirs;
};

#define SIDE_TEST(function)                                                                                            \
	{                                                                                                              \
		.name = #function, .test = function                                                                    \
	}
struct side_test {
	const char *name;
	void (*test)(struct side *side);
};
/* Runs each test as sides 0 and 1, in processes of their own with a socketpair; prints TAP. The arguments of main:
 * side_holdfast, and words of the names of tests. Returns the status to leave with. */
int side_run(const struct side_test *tests, unsigned n, int argc, char **argv);
void meet(struct side *side);
void open_device(struct side *side);
struct ibv_qp *make_qp(struct side *side, struct ibv_cq *cq, enum ibv_qp_type type);
void to_init(struct ibv_qp *qp, unsigned access);
int to_rtr(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t number);
void to_rts(struct ibv_qp *qp);
void tell(int socket, const struct hello *hello);
void hear(int socket, struct hello *hello);
void connect_opened(struct side *side, unsigned n, unsigned access);
void connect_sides(struct side *side, unsigned n, unsigned access);
void close_side(struct side *side, unsigned n);
int post(struct side *side, unsigned i, enum ibv_wr_opcode opcode, uint64_t wr_id, uint64_t remote, uint32_t rkey);
void post_recv(struct side *side, unsigned i, uint64_t wr_id);
struct ibv_wc poll_one(struct ibv_cq *cq);
uint64_t take_done(struct side *side, unsigned i); /* the wr_id of the next completion, a success */
/* A link that was cut stays so for the next process of the name: each test has names of its own. */
void name_node(unsigned test, int side, char node[NODE_BYTES]);
void switch_link(const struct side *side, const char *way, int rail);

#endif
