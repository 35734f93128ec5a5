/* nic.h - a soft NIC: an engine, its socket, its thread, and the choice of the thread that drives it.
 *
 * The thread that polls or posts drives the engine under a try-lock (the NIC is borrowed); its own thread sleeps
 * meanwhile and takes over 100 us after the last poll, some 500 us after the last of many, and at once when the
 * application blocks for events. All of the engine is guarded by `lock`; only control operations wait for it. */
#ifndef HOLDFAST_DEV_SOFT_NIC_H
#define HOLDFAST_DEV_SOFT_NIC_H

#include <pthread.h>

#include "dev/fabric.h"
#include "dev/soft/engine.h"
#include "dev/soft/soft.h"

#define RECV_RUNS           4u
#define NIC_TAKEOVER_MAX_NS 400000u /* after the last poll of an application that has polled for long */

struct soft_nic {
	struct hf_dev base;
	struct engine engine;
	pthread_mutex_t lock;
	struct hf_io *socket;
	struct hf_io *notifier; /* for the application: hf_dev_io */
	_Atomic bool notified;  /* it was signalled and not cleared since */
	struct hf_dgram received[RECV_RUNS];
	uint8_t *receive_memory;
	bool acks_held;       /* by the last drive; the next one sends them */
	uint64_t received_ns; /* when the socket was last looked at */
	enum ibv_mtu mtu;
	char address_text[HF_ADDR_TEXT];

	struct fabric_port *port; /* NULL: without a fabric */
	_Atomic uint32_t *link;   /* enum hf_link bits that are up: on the board, or own_link */
	_Atomic uint32_t own_link;
	uint32_t link_seen, switches_seen; /* by the engine */
	_Atomic uint32_t *rate;            /* MB/s that may leave, 0: no bound; on the board, or own_rate */
	_Atomic uint32_t own_rate;
	uint64_t free_ns; /* with a rate: when the next run may leave */

	_Atomic uint64_t last_poll_ns;  /* of the application */
	_Atomic uint64_t polls;         /* that found their cq empty and drove the NIC */
	_Atomic bool app_sleeps;        /* it called hf_dev_arm and has not polled since */
	_Atomic uint64_t thread_due_ns; /* when the thread will look by itself */
	_Atomic uint64_t vain_looks;    /* of the thread, while another thread drove the NIC */
	struct hf_thread *thread;
	struct hf_io *thread_bell;
	struct hf_loop *thread_loop;
	struct hf_watch socket_watch, bell_watch, board_watch;
	struct hf_timer thread_timer;
	uint64_t patience_ns; /* until the thread looks again at an application that polls */
};

static inline struct soft_nic *nic_of(const struct hf_dev *dev)
{
	return (struct soft_nic *)dev;
}

/* The reason to drive the NIC, which determines the work that can wait. */
enum nic_reason {
	NIC_POSTED, /* what was posted leaves; what arrived waits for the next poll, unless there was none for long */
	NIC_POLLED, /* acknowledgements can wait for what the application may be about to post */
	NIC_ARMED,  /* it is about to sleep */
	NIC_DUE,    /* everything, now */
};
/* For an application that polls or posts; does nothing when another thread is at it. */
enum hf_poll nic_borrow(struct soft_nic *nic, enum nic_reason reason);
/* With the lock held. */
enum hf_poll nic_drive(struct soft_nic *nic, enum nic_reason reason, uint64_t now_ns);

/* link.c: the operator's switch. */
int link_open(struct soft_nic *nic, struct hf_env *env, const struct hf_dev_config *config, struct hf_error *error);
void link_close(struct soft_nic *nic);
bool link_is_up(const struct soft_nic *nic, enum hf_link direction);
void link_set(struct soft_nic *nic, enum hf_link direction, bool up);
void link_look(struct soft_nic *nic); /* notices what was switched; with the lock held */

int nic_thread_start(struct soft_nic *nic);
void nic_thread_stop(struct soft_nic *nic);
void nic_thread_ring(struct soft_nic *nic);

/* Objects: objects.c, queues.c */
extern const struct hf_dev_ops soft_ops;

#endif
