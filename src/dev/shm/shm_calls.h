/* shm_calls.h - functions between the files of the shm device; included by shm.h. */
#ifndef HOLDFAST_DEV_SHM_CALLS_H
#define HOLDFAST_DEV_SHM_CALLS_H

/* arena.c: memory that peers map, for rings */
int arena_alloc(struct shm_dev *dev, size_t bytes, struct ring_place *place, uint8_t **at_out, struct hf_error *error);
void arena_free(struct shm_dev *dev, const struct ring_place *place);
void arena_close(struct shm_dev *dev);
void arena_file(char name[64], const uint8_t gid[16], uint32_t arena);
void port_file(char name[64], const uint8_t gid[16]);

/* peer.c: ports and regions of others, mapped */
struct peer *peer_get(struct shm_dev *dev, const uint8_t gid[16]); /* NULL: there is no such live port */
void peer_put(struct shm_dev *dev, struct peer *peer);
/* A ring of the peer with `elements` of at least `bytes` each; NULL when its place makes no sense. */
uint8_t *peer_ring(struct shm_dev *dev, struct peer *peer, const struct ring_place *place, size_t bytes);
void peers_look_now(struct shm_dev *dev, uint64_t now_ns); /* marks peers of exited processes as gone, at intervals */
bool peer_is_gone(struct peer *peer);                      /* queries the kernel: a system call */
bool peer_was_gone(const struct peer *peer);
void peer_ring_bell(struct peer *peer);
/* A use of the region of a key, which is an rkey or an lkey. WR_DONE, or WR_FAILED: no such registration. */
enum wr_outcome peer_region_get(
	struct shm_dev *dev, struct peer *peer, uint32_t key, bool is_rkey, struct region **region_out);
void peer_region_put(struct region *region);
void peer_region_forget(struct shm_dev *dev, struct peer *peer, struct region *region);

/* bind.c: the connection of a requester */
bool bind_requester(struct shm_qp *qp, uint64_t now_ns);
void bind_ahead(struct shm_qp *qp);          /* maps what it will need */
void bind_undo_requester(struct shm_qp *qp); /* keeps the peer mapped */
void bind_release_requester(struct shm_qp *qp);

/* receive.c: taking a receive of the responder */
enum wr_outcome receive_take(struct shm_qp *qp, struct recv_slot **slot_out);
void receive_complete(struct shm_qp *qp, struct recv_slot *slot, const struct sqe *sqe, enum ibv_wc_status status);
void receive_signal(struct shm_qp *qp, bool solicited); /* behind the commit */

/* execute.c */
bool execute_refuse(struct shm_qp *qp, enum ibv_event_type event); /* moves the responder's qp to ERR */
enum wr_outcome execute_wr(struct shm_qp *qp, struct sqe *sqe);
bool execute_read_again(struct shm_qp *qp, struct sqe *sqe);

/* reach.c: memory of a peer that is not plainly mapped; with OP_BUSY up. WR_FAILED: it is not there. */
struct cursor;
enum wr_outcome reach_store(
	struct shm_qp *qp, const struct region *region, uint64_t offset, struct cursor *from, size_t bytes);
enum wr_outcome reach_load(
	struct shm_qp *qp, const struct region *region, uint64_t offset, struct cursor *to, size_t bytes);

/* footer.c: of a wr that has one */
enum wr_outcome footer_find(struct shm_qp *qp, const struct sqe *sqe);  /* WR_FAILED: it may not go there */
void footer_drop(struct shm_qp *qp);                                    /* what was found is not true any more */
void footer_show(struct shm_qp *qp, const struct sqe *sqe);             /* to the owner, before OP_BUSY; also: none */
enum wr_outcome footer_store(struct shm_qp *qp, const struct sqe *sqe); /* as reach_store */

/* shm.c: a thread that sleeps at the port looks by then at the latest; another one has posted something that waits */
void shm_wake_by(struct shm_dev *dev, uint64_t at_ns);
/* post.c */
int shm_qp_post_send(struct hf_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int shm_qp_post_send_footed(struct hf_qp *base, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr);
/* progress.c: acknowledgements, retries, time */
void progress_take_acks(struct shm_qp *qp);
enum wr_outcome progress_pump(struct shm_qp *qp); /* executes what is posted, in order */
void progress_run(struct shm_qp *qp, uint64_t now_ns);
void progress_stall(struct shm_qp *qp);
void progress_unstall(struct shm_qp *qp);
bool progress_all(struct shm_dev *dev, uint64_t now_ns);
uint64_t progress_due_ns(struct shm_dev *dev, uint64_t now_ns); /* when a stalled qp wants to be run */

/* recv.c: the owner's side of receives */
int shm_qp_post_recv(struct hf_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int shm_srq_create(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out);
int shm_srq_destroy(struct hf_srq *base);
int shm_srq_post_recv(struct hf_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int recv_ring_create(struct shm_qp *qp);
void recv_ring_destroy(struct shm_qp *qp);
int recv_poll(struct shm_qp *qp, int n, struct ibv_wc *wc);
bool recv_idle(struct shm_qp *qp);     /* nothing to complete now */
bool recv_drains(struct shm_qp *qp);   /* in ERR: its receives wait for a requester to get out of the way */
void recv_forget(struct shm_qp *qp);   /* reset: completions that were not polled, claims in an srq */
void recv_last_wqe(struct shm_qp *qp); /* in ERR: reports it once it is drained */

/* cq.c */
int shm_cq_create(struct hf_dev *dev, uint32_t cqe, void *context, struct hf_cq **cq_out);
int shm_cq_destroy(struct hf_cq *base);
int shm_cq_poll(struct hf_cq *base, int n, struct ibv_wc *wc);
int shm_cq_req_notify(struct hf_cq *base, bool solicited_only);
bool shm_cq_notified(struct hf_cq *base);
bool cq_has_work(struct shm_cq *cq);
bool cq_drains(const struct shm_cq *cq);
void cq_announce(struct shm_cq *cq, bool solicited); /* a completion of our own doing */
void cq_expect(struct shm_qp *qp);                   /* it may have wrs to complete */
void cq_forget(struct shm_qp *qp);

/* qp.c */
int shm_qp_create(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out);
int shm_qp_destroy(struct hf_qp *base);
int shm_qp_modify(struct hf_qp *base, struct ibv_qp_attr *attr, int mask);
int shm_qp_query(struct hf_qp *base, struct ibv_qp_attr *attr_out, int mask);
uint32_t shm_qp_next_psn(struct hf_qp *base);
void qp_enter_error(struct shm_qp *qp, enum ibv_wc_status status); /* IBV_WC_SUCCESS: no wr of ours failed */

/* fence.c */
int shm_qp_fence(struct hf_qp *base);
int shm_qp_executed_psn(struct hf_qp *base, uint32_t *psn_out);
int shm_qp_atomic_results(struct hf_qp *base, struct hf_atomic_result *results_out, unsigned n);
bool fence_drain_try(struct shm_qp *qp);    /* in ERR or RESET: true once no requester touches anything */
int fence_drain_wait(struct shm_qp *qp);    /* blocks, for at most LATE_NS and a move of pages */
int fence_quiesce_all(struct shm_dev *dev); /* -EBUSY: an operation of a stopped process cannot be ended */
/* Access was taken away. 0: the operation that was under way, if any, has ended. -EINPROGRESS: it goes on; the fence
 * takes it over after revoke_ns. */
int fence_quiesce_access(struct shm_qp *qp);
bool fence_take_op(struct shm_qp *qp); /* true: an operation was under way and is ours now */

/* move.c: the pages under a stopped requester */
int move_touched(struct shm_qp *qp); /* waits for others in that range, for qp->stuck_ns at most */
void move_lock(void);                /* held where registrations of any device come and go */
/* With that lock: private memory to pages that peers can map. */
int move_to_shared_pages(void *addr, uint64_t bytes, struct hf_error *error);
void move_unlock(void);
void move_add_dev(struct shm_dev *dev);
void move_remove_dev(struct shm_dev *dev);

/* mr.c */
int shm_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error);
int shm_mr_dereg(struct hf_mr *base);
void mr_show_place(struct mr_entry *entry, const struct shm_mr *mr);

/* events.c */
bool events_look(struct shm_dev *dev); /* link switches and faults: true when there were any */
void events_clear_bell(struct shm_dev *dev, bool surely);
void event_push(struct shm_dev *dev, struct hf_dev_event event);
void events_forget_qp(struct shm_dev *dev, const struct hf_qp *qp);
int shm_get_event(struct hf_dev *base, struct hf_dev_event *event_out);
bool events_pending(struct shm_dev *dev);
int shm_set_link(struct hf_dev *base, enum hf_link direction, bool up);
void events_ring_own_bell(struct shm_dev *dev);

static inline bool link_has(struct fabric_line *line, uint32_t direction)
{
	return line != NULL && (atomic_load(&line->link) & direction) != 0;
}

static inline bool request_path_up(struct shm_qp *qp)
{
	return link_has(shm_dev_of(qp->qp.dev)->line, HF_LINK_TX) && link_has(qp->peer->line, HF_LINK_RX) &&
	       !atomic_load_explicit(&qp->peer->gone, memory_order_relaxed);
}

static inline bool response_path_up(struct shm_qp *qp)
{
	return qp->peer != NULL && link_has(qp->peer->line, HF_LINK_TX) &&
	       link_has(shm_dev_of(qp->qp.dev)->line, HF_LINK_RX);
}

#endif
