/* fake.h - a libibverbs without hardware: a shared object that the device's loader is pointed at.
 *
 * The test describes the NICs in `struct fake` (the object's only data symbol, "fake") before it opens one, and finds
 * there what the device asked of them. Everything succeeds unless it is told not to; nothing happens by itself: the
 * test puts completions and events where the device will look for them. */
#ifndef HOLDFAST_TEST_FAKE_H
#define HOLDFAST_TEST_FAKE_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

#define FAKE_NICS   5u
#define FAKE_PORTS  2u
#define FAKE_GIDS   6u
#define FAKE_KEPT   32u
#define FAKE_VENDOR 0x4242u /* nobody's */

struct fake_gid {
	const char *address; /* "10.0.0.1", "fe80::1"; NULL: the entry is empty */
	enum ibv_gid_type type;
};

struct fake_port {
	enum ibv_port_state state;
	enum ibv_mtu mtu;
	uint8_t link_layer;
	uint32_t max_msg_bytes;
	struct fake_gid gids[FAKE_GIDS];
};

struct fake_nic {
	const char *name;
	uint32_t vendor_id;
	enum ibv_transport_type transport;
	uint8_t ports;
	bool unopenable;
	struct fake_port port[FAKE_PORTS];
};

struct fake_mr {
	struct ibv_mr mr;
	uint64_t iova;
	unsigned access;
};

struct fake {
	struct fake_nic nics[FAKE_NICS];
	unsigned nic_count;
	int list_error;       /* errno of ibv_get_device_list */
	uint32_t inline_most; /* a qp that wants more is refused */

	int doorbell; /* not 0: where what rings without libibverbs is written to */

	unsigned contexts, qps, cqs, mrs, srqs; /* that there are now */
	struct ibv_qp_attr attr[FAKE_KEPT];     /* of ibv_modify_qp, in order */
	int mask[FAKE_KEPT];
	unsigned modified;
	int modify_error;
	uint32_t rq_psn; /* of ibv_query_qp */

	struct ibv_send_wr sent[FAKE_KEPT];
	unsigned sent_count, send_room; /* send_room: then the queue is full */
	struct fake_mr registered[FAKE_KEPT];
	unsigned registered_count;

	struct ibv_wc wcs[FAKE_KEPT]; /* for whoever polls next, of any cq */
	unsigned wc_count;
	struct ibv_async_event events[FAKE_KEPT];
	unsigned event_count, acked_events;
	struct ibv_cq *notified; /* what ibv_get_cq_event returns next */
	unsigned acked_cq_events;
	/* libmlx5. The trace has what was called to make qps of DC and to post on them, a word each. */
	bool mlx5, no_dc; /* mlx5: the NICs are its; no_dc: but make no such qp */
	int complete_error;
	unsigned ways, ways_made; /* address handles */
	char trace[2048];

	struct ibv_qp *last_qp;
	struct ibv_srq *last_srq;
};

#endif
