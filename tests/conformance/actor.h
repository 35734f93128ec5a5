/* actor.h - one end of a conformance test: a port, its objects and its memory, driven by calls that are plain data.
 *
 * A call names objects by small numbers and memory by addresses that the actor itself gave out, so the same call can
 * be carried out here or in another process (side.h decides). An actor has one device and belongs to one thread. */
#ifndef CONFORMANCE_ACTOR_H
#define CONFORMANCE_ACTOR_H

#include <holdfast/dev.h>

#define ACTOR_SLOTS 16 /* of each kind of object */
#define ACTOR_WRS   64 /* in one call */
#define ACTOR_SGES  4
#define ACTOR_WCS   64
#define ACTOR_NONE  UINT32_MAX
#define ACTOR_TEXT  48

/* What ACTOR_MEM_ALLOC gives. */
enum actor_memory {
	ACTOR_SHARED,  /* hf_mem_alloc */
	ACTOR_PRIVATE, /* malloc */
	ACTOR_FILE,    /* hf_mem_map_file */
};

enum actor_op {
	ACTOR_OPEN,
	ACTOR_CLOSE,
	ACTOR_PD_ALLOC,
	ACTOR_PD_FREE,
	ACTOR_MEM_ALLOC,
	ACTOR_MEM_PROTECT, /* n: PROT_ of whole pages */
	ACTOR_MR_REG,
	ACTOR_MR_DEREG,
	ACTOR_CQ_CREATE,
	ACTOR_CQ_DESTROY,
	ACTOR_SRQ_CREATE,
	ACTOR_SRQ_DESTROY,
	ACTOR_LEASE_OPEN,
	ACTOR_LEASE_EXTEND,
	ACTOR_LEASE_CLOSE,
	ACTOR_QP_CREATE,
	ACTOR_QP_DESTROY,
	ACTOR_QP_MODIFY,
	ACTOR_QP_QUERY,
	ACTOR_POST_SEND,
	ACTOR_POST_RECV,
	ACTOR_SRQ_POST_RECV,
	ACTOR_CQ_POLL,
	ACTOR_DEV_POLL,
	ACTOR_FENCE,
	ACTOR_EXECUTED_PSN,
	ACTOR_REFUSAL,
	ACTOR_ATOMIC_RESULTS,
	ACTOR_NEXT_PSN,
	ACTOR_DC_SOURCE,
	ACTOR_FENCE_DC,
	ACTOR_EXECUTED_PSN_DC,
	ACTOR_ATOMIC_RESULTS_DC,
	ACTOR_SET_LINK,
	ACTOR_GET_EVENT,
	ACTOR_QUERY_PORT,
	ACTOR_COUNTERS,
	ACTOR_REQ_NOTIFY,
	ACTOR_NOTIFIED,
	ACTOR_ARM,
	ACTOR_WAIT_IO,
	ACTOR_FILL,
	ACTOR_MISMATCH,
	ACTOR_DIGEST,
	ACTOR_LOAD,
	ACTOR_STORE,
	ACTOR_ADD_START,
	ACTOR_ADD_JOIN,
};

/* hf_dev_config by value. */
struct actor_config {
	char kind[ACTOR_TEXT], fabric[ACTOR_TEXT], node[ACTOR_TEXT], rail[ACTOR_TEXT], address[ACTOR_TEXT];
	uint32_t caps_masked;
};

struct actor_call {
	enum actor_op op;
	uint32_t object; /* its number */
	uint32_t pd, send_cq, recv_cq, srq;
	uint32_t n;
	uint64_t addr, bytes, value, first; /* of memory calls; see actor.c for each */
	int access, mask;
	bool flag;
	union {
		struct actor_config config;
		struct ibv_qp_attr attr;
		struct hf_dc_source dc_source;
		struct {
			struct ibv_qp_cap cap;
			uint64_t dc_key;
			uint32_t lease_plus1;
			uint64_t revoke_ns;
			int dc;
			bool sq_sig_all;
		} qp;
		struct {
			bool dc, footed;
			struct hf_dc_dest dest;
			struct hf_footer footer[ACTOR_WRS];
			struct ibv_send_wr wr[ACTOR_WRS]; /* sg_list and next are set by the actor */
			struct ibv_sge sge[ACTOR_WRS][ACTOR_SGES];
		} send;
		struct {
			struct ibv_recv_wr wr[ACTOR_WRS];
			struct ibv_sge sge[ACTOR_WRS][ACTOR_SGES];
		} recv;
	};
};

struct actor_answer {
	int rc;         /* of the function called, or a count or truth value */
	uint64_t value; /* what the call asked for */
	union {
		struct {
			struct hf_dev_attr attr;
			union ibv_gid gid;
		} opened;
		struct {
			uint32_t lkey, rkey;
		} mr;
		struct {
			uint32_t qp_num;
			struct ibv_qp_cap cap;
		} qp;
		struct ibv_qp_attr qp_attr;
		struct ibv_port_attr port_attr;
		struct ibv_wc wc[ACTOR_WCS];
		struct hf_atomic_result atomics[ACTOR_WCS];
		struct hf_refusal refusal;
		struct hf_dev_counters counters;
		struct hf_dc_source dc_source;
		struct {
			enum ibv_event_type type;
			uint32_t qp, cq, srq; /* numbers, or ACTOR_NONE */
		} event;
		struct hf_error error;
	};
};

struct actor;

/* pass: lets time go by in a world that stands still otherwise; NULL: time goes by itself. */
struct actor *actor_new(struct hf_env *env, void (*pass)(uint64_t ns));
void actor_free(struct actor *actor); /* destroys what is left in it; NULL is legal */
void actor_do(struct actor *actor, struct actor_call *call, struct actor_answer *answer);

/* The bytes that a fill with this seed puts at index i. */
static inline uint8_t actor_pattern(uint64_t seed, uint64_t i)
{
	return (uint8_t)((i * 167 + (i >> 8) * 59 + (i >> 16) * 31 + seed * 101) ^ (seed >> 3));
}

#endif
