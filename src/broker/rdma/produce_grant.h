/* produce_grant.h - exclusive produce: one holder writes batches into an extent of the head by one-sided WRITEs.
 *
 *   holder                                   broker
 *     | WRITE_WITH_IMM order, extent id -------> the batch is at the tail: check, base offset, epoch, index
 *     | <-------- ANSWER order, base offset       at once (acks=1), or when hw has passed it (acks=all)
 *     | OVERRUN: the next one does not fit ----> commits the batches before it; another extent
 *     | <-------- EXTENT
 *     | <-------- END                             another producer appends, a batch was wrong, or too few are in sync
 *
 * The holder counts orders itself, so the vqp's order is the order of the log, without holes (R-B1).
 * A compressed batch is looked into first, on a helper thread if that takes long; what arrives meanwhile waits (R-B42).
 * A batch that is wrong, a duplicate, or out of order ends the grant: nothing is appended behind it (R-B11). The end of
 * a grant deregisters the extent, on every rail; only then are the bytes behind the tail zeroed and other appends
 * accepted (R-B3, R-B9). The holder continues over TCP or requests another grant; sequences show what is in the log.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_PRODUCE_GRANT_H
#define HOLDFAST_BROKER_PRODUCE_GRANT_H

#include "broker/rdma/rdma.h"

#define PRODUCE_GRANT_SENDS 16u

enum produce_grant_state {
	PRODUCE_GRANT_OPEN, /* its holder writes */
	PRODUCE_GRANT_OVER, /* nothing of it lands; what was committed is still answered, and END */
	PRODUCE_GRANT_STATES,
};

struct produce_answer {
	uint16_t order, id;
	int16_t error;
	int64_t base_offset, append_time_ms;
	int64_t due_offset; /* answered when what is below has settled (partition.h); 0: at once */
};

/* A batch that was written, or an OVERRUN. */
struct produce_notice {
	bool is_batch;
	uint32_t imm, bytes;
	uint8_t overrun[RDMA_OVERRUN_BYTES];
};

struct grant_look;

struct produce_grant {
	struct rdma_end end;
	struct rdma_client *client;
	struct list node; /* the client's */
	enum produce_grant_state state;
	struct partition_holder holder;
	struct partition *partition; /* NULL when it is over */
	struct token token;
	struct log_extent extent;
	struct hf_vmr *extent_mr;
	uint16_t id, order; /* of the extent; of the batch that is expected */
	uint32_t overruns;  /* of the holder so far */
	uint8_t *memory;    /* of receives, then of sends */
	struct hf_vmr *mr;
	uint32_t free_sends[PRODUCE_GRANT_SENDS], free_count;
	struct produce_answer answers[RDMA_CREDITS]; /* a ring */
	uint32_t answered, committed;
	struct grant_look *look; /* the batch at the tail is compressed, and is looked into; NULL: there is none */
	struct produce_notice waiting[RDMA_CREDITS]; /* a ring: what arrived behind it */
	uint32_t waiting_from, waiting_to;
	bool tell_extent, tell_end;
	uint64_t over_ns; /* when it was over */
};

/* For a client with that token, of the present epoch; takes a grant that another has of the partition back. NULL:
 * refused. */
struct hf_vqp *produce_grant_open(
	struct rdma_client *client, const struct token *token, uint8_t *reply, size_t *reply_bytes);
bool produce_grant_turn(struct produce_grant *grant, uint64_t now_ns);
void produce_grant_close(struct produce_grant *grant);

#endif
