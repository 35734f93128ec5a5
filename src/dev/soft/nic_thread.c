/* The NIC's own thread: drives the engine when the application does not.
 *
 * While the application polls, the thread only looks from time to time whether it still does: TAKEOVER_NS after its
 * last poll at first, and half as often each time that it was found polling, down to once in NIC_TAKEOVER_MAX_NS. On a
 * small machine a thread that wakes takes its core from another one, for some 5 us each time. */
#include "dev/soft/nic.h"

#define TAKEOVER_NS 100000u /* after the last poll */

static void set_due(struct soft_nic *nic, uint64_t due_ns)
{
	atomic_store_explicit(&nic->thread_due_ns, due_ns, memory_order_relaxed);
	if (due_ns == ENGINE_NO_TIMER)
		hf_loop_cancel_timer(nic->thread_loop, &nic->thread_timer);
	else
		hf_loop_set_timer(nic->thread_loop, &nic->thread_timer, due_ns);
}

static void watch_socket(struct soft_nic *nic, bool wanted)
{
	unsigned ready = wanted ? HF_READABLE : 0;

	if (nic->socket_watch.io == NULL || nic->socket_watch.wanted != ready)
		hf_loop_watch(nic->thread_loop, &nic->socket_watch, nic->socket, ready);
}

static void look(struct soft_nic *nic)
{
	uint64_t now_ns = hf_env_now_ns(nic->base.env);
	uint64_t last_ns = atomic_load_explicit(&nic->last_poll_ns, memory_order_relaxed), due_ns;
	bool sending;

	if (!atomic_load(&nic->app_sleeps) && now_ns < last_ns + TAKEOVER_NS) {
		watch_socket(nic, false);
		set_due(nic, last_ns + nic->patience_ns);
		nic->patience_ns =
			nic->patience_ns * 2 < NIC_TAKEOVER_MAX_NS ? nic->patience_ns * 2 : NIC_TAKEOVER_MAX_NS;
		return;
	}
	nic->patience_ns = TAKEOVER_NS;
	/* Another thread drives it. Again soon, in case that one stops; not as long as there is something to read,
	 * which would be a spin, on the core that it may be waiting for. */
	if (pthread_mutex_trylock(&nic->lock) != 0) {
		watch_socket(nic, false);
		set_due(nic, now_ns + TAKEOVER_NS);
		atomic_fetch_add(&nic->vain_looks, 1);
		return;
	}
	watch_socket(nic, true);
	nic_drive(nic, NIC_DUE, now_ns);
	sending = !tx_empty(&nic->engine.tx) || !list_empty(&nic->engine.busy_requesters) ||
		  !list_empty(&nic->engine.busy_responders);
	due_ns = nic->engine.deadline_ns;
	if (sending && (nic->engine.tx.runs_most == 0 || nic->free_ns < due_ns)) /* a rate lets none leave before */
		due_ns = nic->engine.tx.runs_most == 0 || nic->free_ns < now_ns ? now_ns : nic->free_ns;
	pthread_mutex_unlock(&nic->lock);
	set_due(nic, due_ns);
}

static void socket_ready(struct hf_watch *watch, unsigned ready)
{
	(void)ready;
	look(container_of(watch, struct soft_nic, socket_watch));
}

static void bell_ready(struct hf_watch *watch, unsigned ready)
{
	struct soft_nic *nic = container_of(watch, struct soft_nic, bell_watch);

	(void)ready;
	hf_notifier_clear(nic->thread_bell);
	look(nic);
}

static void board_ready(struct hf_watch *watch, unsigned ready)
{
	struct soft_nic *nic = container_of(watch, struct soft_nic, board_watch);

	(void)ready;
	fabric_port_bell_clear(nic->port);
	pthread_mutex_lock(&nic->lock); /* for others that drive: the port event is due now */
	nic_drive(nic, NIC_DUE, hf_env_now_ns(nic->base.env));
	pthread_mutex_unlock(&nic->lock);
	look(nic);
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	look(container_of(timer, struct soft_nic, thread_timer));
}

static void start(struct hf_loop *loop, void *context)
{
	struct soft_nic *nic = context;

	nic->thread_loop = loop;
	nic->patience_ns = TAKEOVER_NS;
	nic->socket_watch.ready = socket_ready;
	nic->bell_watch.ready = bell_ready;
	nic->board_watch.ready = board_ready;
	nic->thread_timer.fire = timer_fired;
	hf_loop_watch(loop, &nic->bell_watch, nic->thread_bell, HF_READABLE);
	if (nic->port != NULL)
		hf_loop_watch(loop, &nic->board_watch, fabric_port_bell(nic->port), HF_READABLE);
	look(nic);
}

int nic_thread_start(struct soft_nic *nic)
{
	int rc = hf_notifier_open(nic->base.env, &nic->thread_bell);

	if (rc != 0)
		return rc;
	return hf_thread_start(nic->base.env, nic->base.attr.name, HF_THREAD_NIC, start, nic, &nic->thread);
}

void nic_thread_stop(struct soft_nic *nic)
{
	hf_thread_stop(nic->thread); /* its loop, and with it what it watched, is gone */
	hf_io_close(nic->thread_bell);
}

void nic_thread_ring(struct soft_nic *nic)
{
	/* Once is enough: it looks at everything when it wakes. */
	atomic_store_explicit(&nic->thread_due_ns, 0, memory_order_relaxed);
	hf_notifier_signal(nic->thread_bell);
}
