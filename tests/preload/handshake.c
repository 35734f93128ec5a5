/* The handshake of connection management (src/preload/cm) over a network that loses and repeats messages. Two bonds of
 * this process talk to each other; what they send is delivered by the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/fabric.h>

#include "dev/gid.h"
#include "env/tally.h"
#include "preload/bond.h"
#include "preload/cm/cm.h"
#include "preload/datagram.h"
#include "preload/drive.h"

#define MESSAGE_BYTES 1024
#define PRIVATE_BYTES 7
#define TURN_NS       1000000u

enum kind { NONE, REQ, MRA, REP, RTU, REJ, DREQ, DREP, KINDS };

/* ---- the network ---- */

struct message {
	struct list node;
	struct bond *to;
	union ibv_gid from;
	size_t bytes;
	uint8_t data[MESSAGE_BYTES];
};

static struct hf_loop *loop;
static struct bond bonds[2]; /* asked, asks */
static struct list network = {&network, &network};
static struct message *posted;
static unsigned lose[KINDS]; /* so many of each kind yet */
static unsigned copies;      /* of each message that arrives */
static unsigned sent[KINDS];
static bool decides_late; /* the program that is asked: after its request was repeated */

static struct bond *bond_at(const struct hf_addr *address)
{
	return &bonds[hf_addr_equal(address, &bonds[1].address)];
}

void *datagram_links_room_now(struct bond *bond, const struct hf_addr *to, size_t bytes)
{
	(void)bond;
	assert_true(bytes <= MESSAGE_BYTES);
	posted = calloc(1, sizeof(*posted));
	assert_non_null(posted);
	posted->to = bond_at(to);
	posted->bytes = bytes;
	return posted->data;
}

static enum kind kind_of(const struct message *message)
{
	uint32_t kind;

	memcpy(&kind, message->data + DATAGRAM_HEAD_BYTES, sizeof(kind));
	return ntohl(kind);
}

void datagram_links_send(struct bond *bond)
{
	enum kind kind = kind_of(posted);

	sent[kind]++;
	posted->from = gid_of_addr(&bond->address);
	if (lose[kind] > 0) {
		lose[kind]--;
		free(posted);
		return;
	}
	list_push_back(&network, &posted->node);
}

static void deliver(void)
{
	struct list *at;

	while ((at = list_pop_front(&network)) != NULL) {
		struct message *message = container_of(at, struct message, node);

		for (unsigned i = 0; i < copies; i++)
			cm_arrived(message->to, &message->from, message->data + DATAGRAM_HEAD_BYTES,
				message->bytes - DATAGRAM_HEAD_BYTES);
		free(message);
	}
}

/* ---- what the manager stands on ---- */

struct hf_loop *drive_loop(void)
{
	return loop;
}

void drive_lock(void)
{
}

void drive_unlock(void)
{
}

union ibv_gid bond_gid(const struct bond *bond)
{
	return gid_of_addr(&bond->address);
}

struct hf_peer *bond_peer(const struct bond *bond, const struct hf_addr *address)
{
	(void)address;
	return (struct hf_peer *)(uintptr_t)bond; /* any but NULL */
}

int device_hold(struct bond **bond_out)
{
	*bond_out = &bonds[0];
	return 0;
}

void device_release(struct bond *bond)
{
	(void)bond;
}

/* ---- two ends ---- */

static struct cm_channel channels[2];

static void open_channel(struct cm_channel *channel)
{
	assert_int_equal(tally_open(&channel->fd), 0);
	list_init(&channel->ids);
	list_init(&channel->events);
}

static void turn(void)
{
	(void)hf_loop_turn(loop, TURN_NS);
	deliver();
}

static struct rdma_ucm_event_resp next_event(unsigned side, enum cm_event_type type)
{
	struct rdma_ucm_event_resp event;

	while (!cm_event_take(&channels[side], &event))
		turn();
	assert_int_equal(event.event, type);
	return event;
}

static struct cm_id *make_id(unsigned side)
{
	struct cm_id *id = cm_id_make(&channels[side], RDMA_PS_TCP, false);

	assert_non_null(id);
	id->uid = 1;
	cm_id_share_bond(id, &bonds[side]);
	return id;
}

static struct cm_id *make_listener(void)
{
	struct cm_id *id = make_id(0);
	struct hf_addr at;

	assert_int_equal(hf_addr_parse("127.0.0.1:7471", &at), 0);
	assert_int_equal(cm_id_bind(id, &at), 0);
	assert_int_equal(cm_id_listen(id, 0), 0);
	return id;
}

static struct rdma_ucm_conn_param params(void)
{
	return (struct rdma_ucm_conn_param){.qp_num = 5, .private_data_len = PRIVATE_BYTES, .private_data = "private"};
}

/* One connection from request to end. */
static void connect_and_disconnect(void)
{
	struct rdma_ucm_conn_param mine = params();
	struct cm_id *listener = make_listener(), *asks = make_id(1), *asked;
	struct rdma_ucm_event_resp event;

	assert_int_equal(cm_id_resolve_addr(asks, NULL, &listener->local), 0);
	(void)next_event(1, CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(cm_id_resolve_route(asks), 0);
	(void)next_event(1, CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(cm_connect(asks, &mine), 0);
	event = next_event(0, CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event.param.conn.private_data_len, PRIVATE_BYTES);
	asked = cm_id_find(event.id);
	asked->uid = 1;
	while (decides_late && sent[MRA] == 0)
		turn();
	assert_int_equal(cm_accept(asked, &mine), 0);
	event = next_event(1, CM_EVENT_CONNECT_RESPONSE);
	assert_memory_equal(event.param.conn.private_data, "private", PRIVATE_BYTES);
	assert_int_equal(cm_accept(asks, &mine), 0);
	(void)next_event(0, CM_EVENT_ESTABLISHED);
	assert_int_equal(cm_disconnect(asks), 0);
	(void)next_event(0, CM_EVENT_DISCONNECTED);
	(void)next_event(1, CM_EVENT_DISCONNECTED);
	deliver();
	assert_true(list_empty(&channels[0].events) && list_empty(&channels[1].events));
	(void)cm_id_free(asked);
	(void)cm_id_free(asks);
	(void)cm_id_free(listener);
}

/* ---- tests ---- */

static void a_message_that_is_lost_is_sent_again(void **state)
{
	static const enum kind each[] = {REQ, REP, RTU, DREQ, DREP};

	(void)state;
	for (unsigned i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		unsigned before = sent[each[i]];

		lose[each[i]] = 1;
		connect_and_disconnect();
		assert_int_equal(lose[each[i]], 0);
		assert_true(sent[each[i]] > before);
	}
}

static void a_message_that_comes_twice_has_one_effect(void **state)
{
	(void)state;
	copies = 2;
	connect_and_disconnect();
}

static void a_program_that_decides_late_is_waited_for(void **state)
{
	(void)state;
	decides_late = true;
	connect_and_disconnect();
	assert_true(sent[MRA] > 0);
}

static int set_up(void **state)
{
	(void)state;
	copies = 1;
	decides_late = false;
	for (unsigned i = 0; i < 2; i++) {
		open_channel(&channels[i]);
		if (hf_addr_parse(i == 0 ? "127.160.0.1:18600" : "127.160.0.2:18600", &bonds[i].address) != 0)
			return -1;
		snprintf(bonds[i].config.fabric, sizeof(bonds[i].config.fabric), "test-handshake");
	}
	return hf_loop_create(hf_env_host(), &loop);
}

static int tear_down(void **state)
{
	(void)state;
	hf_loop_destroy(loop);
	for (unsigned i = 0; i < 2; i++)
		tally_close(channels[i].fd);
	return hf_fabric_remove("test-handshake");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_message_that_is_lost_is_sent_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_program_that_decides_late_is_waited_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_message_that_comes_twice_has_one_effect, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
