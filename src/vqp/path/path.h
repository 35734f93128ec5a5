/* path.h - a device's qp that a vqp uses, or may use: one of its own, or a standby qp (pool.h), which others use too.
 * A vqp names the one in use by reference, and so do all vqps on a standby qp. */
#ifndef HOLDFAST_VQP_PATH_PATH_H
#define HOLDFAST_VQP_PATH_PATH_H

#include <holdfast/vqp.h>

#include "node/rail_cq.h"
#include "vqp/kinds.h"
#include "vqp/recovery/fence.h"

struct standby;
struct path;

/* What differs between a qp of the vqp's own and a standby qp, off the way of wrs. After the fence those
 * that ask what executed answer as hf_qp_executed_psn, hf_qp_refusal and hf_qp_atomic_results. */
struct path_ops {
	enum fence (*fence)(struct hf_vqp *vqp, struct path *path, uint64_t now_ns);
	uint64_t (*fence_retry_ns)(const struct path *path);
	int (*end)(struct path *path);                 /* destroys what cannot be fenced */
	bool (*sender_ended)(const struct path *path); /* what our wrs were posted to was destroyed, or never was */
	bool (*tells)(const struct path *path);        /* false: what could tell was destroyed */
	int (*executed_psn)(const struct path *path, uint32_t *psn_out);
	int (*refusal)(const struct path *path, struct hf_refusal *refusal_out);
	int (*atomic_results)(const struct path *path, struct hf_atomic_result *results_out, unsigned n);
	void (*stop)(struct hf_vqp *vqp);  /* now, and it may block: nothing of the vqp happens there any more */
	void (*leave)(struct hf_vqp *vqp); /* the vqp has no path then */
};

#define RNR_RETRY_FOR_EVER 7 /* the receiver decides when it is ready */

/* A device's qp of a vqp, or of all vqps on it. */
struct path {
	const struct path_ops *ops; /* NULL: those of a qp of its own */
	struct hf_qp *qp;           /* NULL: none */
	struct standby *shared;     /* the standby qp that this is of; NULL: a dedicated one */
	struct rail_cqs *cqs;
	struct rail_cq *cq; /* where `cqes` entries are reserved */
	uint32_t cqes;
	struct rail_cq *completes; /* where its wrs complete: that, or of a standby qp, its carrier's */
	unsigned rail;
	uint32_t psn;
	/* By what evidence names the wrs on it: ours, and the peer's. It is the number of the qp that posts them; on
	 * DC, where that has many destinations, of the target that they go to. */
	uint32_t our_key, their_key;
	uint32_t mtu_bytes; /* once connected */
	uint32_t grant;     /* in which it was connected; 0: not yet */
	int access;         /* what it grants */
	bool ready;         /* both sides can send */
	bool footers;       /* both devices know them: see wr_translation.h */
	/* A backup that is not usable any more; the picker may move to it before it receives the report. */
	bool withdrawn;
	bool active;                             /* in use, or was: its completions are polled for */
	uint64_t fence_since_ns, fence_retry_ns; /* the fence has failed since; is tried again then; 0: neither */
};

/* What the picker goes to. */
enum path_source {
	PATH_BUILT,  /* a qp still to be matched */
	PATH_BACKUP, /* the vqp's own, made beforehand on that rail */
	PATH_POOL,   /* of the pool: qp_num is its our_key of the picker */
	PATH_SOURCES,
};

/* What one side has, to be connected with. */
struct path_offer {
	uint8_t rail;   /* of the sender */
	uint8_t cached; /* enum path_source */
	uint8_t rd_atomic, mtu, footers;
	uint32_t qp_num, psn;
};
extern const struct fields path_offer_layout;

/* GO, QP, BACKUP, BACKUP_QP; answers say in about_qp to what. */
struct path_message {
	struct message_head head;
	struct path_offer offer;
	uint32_t about_qp;
};
#define PATH_MESSAGE_FIELDS                                                                                            \
	FIELD_STRUCT(struct path_message, offer, &path_offer_layout), FIELD_MAX(struct path_message, about_qp, NUM_MASK)

/* Sends that path to the other side, in a message of that kind and of the current epoch. */
void path_say(struct hf_vqp *vqp, const struct vqp_kind *kind, const struct path *path, enum path_source cached);
bool path_has_footers(const struct hf_node *node, unsigned rail); /* the device of that rail supports them */
int path_create(struct hf_vqp *vqp, struct path *path, unsigned rail);
struct path_need {
	const struct hf_qp_init *init; /* but for its queues, which come from the rail */
	uint32_t cqes;
	int access;
	bool spare; /* nothing is posted to it until another path fails */
};
/* A qp in INIT. */
int path_make(struct hf_vpd *pd, unsigned rail, const struct path_need *need, struct wc_sink *sink, struct path *path);
int path_connect(struct hf_vqp *vqp, struct path *path, const struct path_offer *theirs);
int path_connect_self(const struct hf_node *node, struct path *path, int access); /* both ends are this one */
int path_post_recvs(struct hf_vqp *vqp, struct path *path);
/* It is the vqp's path in use; own_path, while that is empty: the vqp has none. */
void path_join(struct hf_vqp *vqp, struct path *path, bool broken);
void path_activate(struct path *path); /* traffic is on it from now */
int path_end_qp(struct path *path);    /* destroys the qp alone */
/* False: the qp cannot be destroyed yet, because its peer is stopped in an operation; that is tried again later. */
bool path_destroy(struct hf_node *node, struct path *path);
/* As path_destroy, for one that is fenced and drained; the device's work is left for later, off the way of traffic. */
void path_bury(struct hf_node *node, struct path *path);
bool path_dig(struct hf_node *node, unsigned most); /* does some of that work; true: some was done */
void path_forget_graves(struct hf_node *node);      /* the devices are about to close */
/* As hf_qp_post_send, or with footers (NULL: none) as hf_qp_post_send_footed, with wr_ids that find their way back to
 * this vqp. */
int path_post_send(struct hf_vqp *vqp, struct path *path, struct ibv_send_wr *wr, const struct hf_footer *footers,
	struct ibv_send_wr **bad_wr);
void path_deactivate(struct path *path);
/* Packets that became unretired, of the vqp and, on a shared qp, of all on it. */
void path_count(struct path *path, uint32_t *packets, int64_t more);
struct path_offer path_attributes(const struct hf_node *node, const struct path *path);

extern const struct path_ops path_own_ops;
static inline const struct path_ops *path_ops(const struct path *path)
{
	return path->ops != NULL ? path->ops : &path_own_ops;
}

#endif
