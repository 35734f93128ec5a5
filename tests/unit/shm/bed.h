/* bed.h - one end of a connection, with memory, for what may have its other end in another process. */
#ifndef HOLDFAST_TEST_SHM_BED_H
#define HOLDFAST_TEST_SHM_BED_H

#include <holdfast/dev.h>

#include "dev/shm/segment.h"
#include "env/share.h"

#define BIG   (64u << 20)
#define SMALL 65536u
#define ALL_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_srq *srq;
	struct hf_qp *qp;
	struct hf_mr *mr;
	uint8_t *mem;
};

/* What one end tells the other. */
struct card {
	union ibv_gid gid;
	uint32_t qp_num, rkey;
	uint64_t addr;
};

extern char fabric[HF_NAME_BYTES];
extern uint64_t revoke_ns; /* of qps that are made from now on */

void open_end(struct end *end, const char *node, size_t bytes, bool shared_receives);
void close_end(struct end *end);
struct card card_of(const struct end *end);
void to_rtr(struct end *end, const struct card *peer);
void to_rts(struct end *end);
void connect_end(struct end *end, const struct card *peer);
void open_pair(struct end pair[2]);
void close_pair(struct end pair[2]);
int post(struct end *end, enum ibv_wr_opcode opcode, const struct ibv_sge *sge, uint64_t addr, uint32_t rkey);
struct ibv_sge sge_of(const struct end *end, uint32_t bytes);
struct ibv_wc next_wc(struct end *end);
enum ibv_wc_status write_status(struct end *from, const struct end *to, uint32_t rkey);
struct segment *segment_of(const struct end *end, struct share_segment *mapped);

#endif
