/* A NIC of the host: what switches between two of its looks tells it, and which polls drive it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include <holdfast/fabric.h>

#include "dev/soft/nic.h"
#include "env/world.h"

static char fabric[HF_NAME_BYTES];

static struct soft_nic *open_nic_in(struct hf_env *env)
{
	struct hf_dev_config config = {.kind = "soft", .fabric = fabric, .node = "a", .rail = "r0"};
	struct hf_error error;
	struct hf_dev *dev;
	char address[HF_ADDR_TEXT];

	snprintf(fabric, sizeof(fabric), "test-link-%d", (int)getpid());
	snprintf(address, sizeof(address), "127.90.%d.%d", (int)getpid() / 250 % 250, 1 + (int)getpid() % 250);
	assert_int_equal(hf_addr_parse(address, &config.address), 0);
	assert_int_equal(hf_dev_open(env, &config, &dev, &error), 0);
	return nic_of(dev);
}

static struct soft_nic *open_nic(void)
{
	return open_nic_in(hf_env_host());
}

static void close_nic(struct soft_nic *nic)
{
	hf_dev_close(&nic->base);
	hf_fabric_remove(fabric);
}

/* The lock keeps the NIC's own thread from looking meanwhile. */
static void flap(struct soft_nic *nic, enum hf_link direction)
{
	pthread_mutex_lock(&nic->lock);
	link_set(nic, direction, false);
	link_set(nic, direction, true);
	link_look(nic);
	pthread_mutex_unlock(&nic->lock);
}

static void a_flap_that_nobody_saw_is_told(void **state)
{
	struct soft_nic *nic = open_nic();
	struct hf_dev_event event;

	(void)state;
	flap(nic, HF_LINK_BOTH);
	assert_int_equal(hf_dev_get_event(&nic->base, &event), 1);
	assert_int_equal(event.type, IBV_EVENT_PORT_ERR);
	assert_int_equal(hf_dev_get_event(&nic->base, &event), 1);
	assert_int_equal(event.type, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(hf_dev_get_event(&nic->base, &event), 0);
	close_nic(nic);
}

static void a_flap_of_one_direction_is_silent(void **state)
{
	struct soft_nic *nic = open_nic();
	struct hf_dev_event event;

	(void)state;
	flap(nic, HF_LINK_TX);
	flap(nic, HF_LINK_RX);
	assert_int_equal(hf_dev_get_event(&nic->base, &event), 0);
	close_nic(nic);
}

/* The state of the link is told when it changes, and then no more. */
static void events_that_nobody_reads_do_not_hide_those_of_the_port(void **state)
{
	struct soft_nic *nic = open_nic();
	struct hf_dev_event event;
	enum ibv_event_type last = IBV_EVENT_PORT_ACTIVE;
	unsigned others = 0, ports = 0;

	(void)state;
	for (unsigned i = 0; i < 2 * EVENTS_MAX; i++) {
		pthread_mutex_lock(&nic->lock);
		engine_event(&nic->engine, IBV_EVENT_CQ_ERR, NULL, NULL);
		pthread_mutex_unlock(&nic->lock);
	}
	for (unsigned i = 0; i < 10; i++)
		flap(nic, HF_LINK_BOTH);
	while (hf_dev_get_event(&nic->base, &event) == 1) {
		if (event.type == IBV_EVENT_CQ_ERR) {
			others++;
			continue;
		}
		assert_int_equal(
			event.type, last == IBV_EVENT_PORT_ACTIVE ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
		last = event.type;
		ports++;
	}
	assert_int_equal(last, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(ports, PORT_EVENTS_MAX);
	assert_int_equal(others, EVENTS_MAX - PORT_EVENTS_MAX);
	close_nic(nic);
}

static void cqs_polled_in_turn_drive_the_nic_once_a_round(void **state)
{
	struct soft_nic *nic = open_nic();
	struct hf_cq *cqs[2];
	struct ibv_wc wc;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(hf_cq_create(&nic->base, 16, NULL, &cqs[i]), 0);
	for (unsigned round = 1; round <= 3; round++) {
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(hf_cq_poll(cqs[i], 1, &wc), 0);
		assert_int_equal(atomic_load(&nic->polls), round);
	}
	for (unsigned more = 1; more <= 3; more++) {
		assert_int_equal(hf_cq_poll(cqs[1], 1, &wc), 0); /* the other is not polled any more */
		assert_int_equal(atomic_load(&nic->polls), 3 + more);
	}
	for (unsigned i = 0; i < 2; i++)
		hf_cq_destroy(cqs[i]);
	close_nic(nic);
}

static _Atomic unsigned boot_reads;

static uint64_t count_boot_ns(struct hf_env *env)
{
	(void)env;
	boot_reads++;
	return hf_env_boot_ns(hf_env_host());
}

/* A NIC that was stopped behind a receive executes nothing of the rest when its leases are over (D9). */
static void the_clock_of_leases_is_read_for_each_packet(void **state)
{
	struct world_ops ops = *hf_env_host()->ops;
	struct hf_env env = *hf_env_host();
	struct hf_dgram packets[RECV_RUNS];
	struct hf_addr local = {0};
	struct soft_nic *nic;
	struct hf_io *socket;
	uint8_t data[64] = {0};

	(void)state;
	ops.boot_ns = count_boot_ns;
	env.ops = &ops;
	nic = open_nic_in(&env);
	assert_int_equal(hf_addr_parse("127.0.0.1:0", &local), 0);
	assert_int_equal(hf_dgram_open(hf_env_host(), &local, 0, &socket, NULL), 0);
	for (unsigned i = 0; i < RECV_RUNS; i++)
		packets[i] = (struct hf_dgram){.peer = nic->engine.local, .data = data, .bytes = sizeof(data)};
	pthread_mutex_lock(&nic->lock); /* all wait for one receive */
	boot_reads = 0;
	assert_int_equal(hf_dgram_send(socket, packets, RECV_RUNS), RECV_RUNS);
	while (nic->engine.counters.packets_received < RECV_RUNS)
		(void)nic_drive(nic, NIC_POLLED, hf_env_now_ns(&env));
	assert_int_equal(boot_reads, RECV_RUNS);
	pthread_mutex_unlock(&nic->lock);
	hf_io_close(socket);
	close_nic(nic);
}

/* Whoever holds it may have been preempted, by the NIC's thread even. */
static void a_nic_that_somebody_holds_is_not_waited_for_by_its_socket(void **state)
{
	struct soft_nic *nic = open_nic();
	uint64_t looks;

	(void)state;
	pthread_mutex_lock(&nic->lock);
	looks = atomic_load(&nic->vain_looks);
	nic_thread_ring(nic);
	while (atomic_load(&nic->vain_looks) == looks)
		sched_yield();
	assert_int_equal(nic->socket_watch.wanted, 0);
	pthread_mutex_unlock(&nic->lock);
	close_nic(nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flap_that_nobody_saw_is_told),
		cmocka_unit_test(a_flap_of_one_direction_is_silent),
		cmocka_unit_test(events_that_nobody_reads_do_not_hide_those_of_the_port),
		cmocka_unit_test(the_clock_of_leases_is_read_for_each_packet),
		cmocka_unit_test(a_nic_that_somebody_holds_is_not_waited_for_by_its_socket),
		cmocka_unit_test(cqs_polled_in_turn_drive_the_nic_once_a_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
