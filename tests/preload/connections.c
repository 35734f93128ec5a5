/* A program of librdmacm, linked with it and with nothing of ours: connections HOLDFAST [WORDS], under `holdfast run`.
 * Prints TAP. Side 0 of each test listens, side 1 connects. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "side.h"

#define PORT          7471
#define RESOLVE_MS    2000
#define REQUEST_BYTES 56 /* of private data, at most */
#define ACCEPT_BYTES  196
#define REJECT_BYTES  148
#define REJECTED      28
#define NO_LISTENER   8
#define CONNECTIONS   1000
#define DESCRIPTORS   256
#define STILL_MS      200

/* ---- an end of a connection ---- */

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
};

static struct sockaddr_in address_of(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	check(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type)
		printf("# %s (%d) in the place of %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
	check(event->event == type);
	return event;
}

static void take_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	check(rdma_ack_cm_event(next_event(channel, type)) == 0);
}

static struct end make_end(void)
{
	struct end end = {.channel = rdma_create_event_channel()};

	check(end.channel != NULL && rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP) == 0);
	return end;
}

static void close_end(struct end *end)
{
	check(rdma_destroy_id(end->id) == 0);
	rdma_destroy_event_channel(end->channel);
}

static void make_qp_of(struct rdma_cm_id *id, struct ibv_cq **cq_out)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	*cq_out = init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 2, NULL, NULL, 0);
	check(*cq_out != NULL && rdma_create_qp(id, NULL, &init) == 0);
}

static void drop_qp_of(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	rdma_destroy_qp(id);
	check(ibv_destroy_cq(cq) == 0);
}

static void start_listening(struct side *side, struct end *end)
{
	struct sockaddr_in address = address_of(PORT);

	*end = make_end();
	check(rdma_bind_addr(end->id, (struct sockaddr *)&address) == 0 && rdma_listen(end->id, 0) == 0);
	meet(side);
}

/* An id that knows its way to the listener. */
static struct end resolve(void)
{
	struct sockaddr_in address = address_of(PORT);
	struct end end = make_end();

	check(rdma_resolve_addr(end.id, NULL, (struct sockaddr *)&address, RESOLVE_MS) == 0);
	take_event(end.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_resolve_route(end.id, RESOLVE_MS) == 0);
	take_event(end.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return end;
}

static struct rdma_conn_param with(const void *data, unsigned bytes)
{
	return (struct rdma_conn_param){.private_data = data,
		.private_data_len = (uint8_t)bytes,
		.responder_resources = 3,
		.initiator_depth = 2,
		.retry_count = 15,
		.rnr_retry_count = 15};
}

/* ---- private data ---- */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static void fill(uint8_t *data, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		data[i] = (uint8_t)(bytes + i);
}

static void check_data(const struct rdma_cm_event *event, unsigned bytes)
{
	uint8_t expected[256];

	fill(expected, bytes);
	check(event->param.conn.private_data_len == bytes);
	check(bytes == 0 || memcmp(event->param.conn.private_data, expected, bytes) == 0);
}

static void answer_one(struct end *listener, unsigned bytes)
{
	struct rdma_cm_event *request = next_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = request->id;
	struct rdma_conn_param reply;
	uint8_t data[256];
	struct ibv_cq *cq;

	check_data(request, least(bytes, REQUEST_BYTES));
	check(request->param.conn.responder_resources == 2 && request->param.conn.initiator_depth == 3);
	check(rdma_ack_cm_event(request) == 0);
	if (bytes % 2 == 1) {
		fill(data, least(bytes, REJECT_BYTES));
		check(rdma_reject(id, data, REJECT_BYTES + 1) == -1 && errno == EINVAL);
		check(rdma_reject(id, data, (uint8_t)least(bytes, REJECT_BYTES)) == 0 && rdma_destroy_id(id) == 0);
		return;
	}
	make_qp_of(id, &cq);
	fill(data, bytes);
	reply = with(data, bytes);
	check(rdma_accept(id, &reply) == 0);
	take_event(listener->channel, RDMA_CM_EVENT_ESTABLISHED);
	take_event(listener->channel, RDMA_CM_EVENT_DISCONNECTED);
	check(rdma_disconnect(id) == 0);
	drop_qp_of(id, cq);
	check(rdma_destroy_id(id) == 0);
}

static void ask_one(unsigned bytes)
{
	struct end end = resolve();
	struct rdma_conn_param request;
	struct rdma_cm_event *event;
	uint8_t data[256];
	struct ibv_cq *cq;

	make_qp_of(end.id, &cq);
	fill(data, least(bytes, REQUEST_BYTES));
	request = with(data, REQUEST_BYTES + 1);
	check(rdma_connect(end.id, &request) == -1 && errno == EINVAL);
	request = with(data, least(bytes, REQUEST_BYTES));
	check(rdma_connect(end.id, &request) == 0);
	event = next_event(end.channel, bytes % 2 == 1 ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_ESTABLISHED);
	check(bytes % 2 == 0 || event->status == REJECTED);
	check_data(event, bytes % 2 == 1 ? least(bytes, REJECT_BYTES) : bytes);
	check(rdma_ack_cm_event(event) == 0);
	if (bytes % 2 == 0) {
		check(rdma_disconnect(end.id) == 0);
		take_event(end.channel, RDMA_CM_EVENT_DISCONNECTED);
	}
	drop_qp_of(end.id, cq);
	close_end(&end);
}

static void private_data_of_all_sizes_arrive(struct side *side)
{
	struct end listener;

	if (side->number == 0)
		start_listening(side, &listener);
	else
		meet(side);
	for (unsigned bytes = 0; bytes <= ACCEPT_BYTES; bytes++)
		if (side->number == 0)
			answer_one(&listener, bytes);
		else
			ask_one(bytes);
	if (side->number == 0)
		close_end(&listener);
}

/* ---- connections ---- */

/* What the accepted id gets from its channel is told apart by the id. */
static void serve_many(struct end *listener)
{
	struct rdma_conn_param reply = with(NULL, 0);
	unsigned ended = 0;

	while (ended < CONNECTIONS) {
		struct rdma_cm_event *event;
		struct rdma_cm_id *id;
		enum rdma_cm_event_type type;
		struct ibv_cq *cq;

		check(rdma_get_cm_event(listener->channel, &event) == 0);
		id = event->id;
		type = event->event;
		check(rdma_ack_cm_event(event) == 0);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp_of(id, &cq);
			id->context = cq;
			check(rdma_accept(id, &reply) == 0);
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			drop_qp_of(id, id->context);
			check(rdma_destroy_id(id) == 0);
			ended++;
		}
	}
}

static void a_thousand_connections_are_made_and_ended(struct side *side)
{
	struct rdma_conn_param request = with(NULL, 0);
	struct end listener;

	if (side->number == 0) {
		start_listening(side, &listener);
		serve_many(&listener);
		close_end(&listener);
		return;
	}
	meet(side);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct end end = resolve();
		struct ibv_cq *cq;

		make_qp_of(end.id, &cq);
		check(rdma_connect(end.id, &request) == 0);
		take_event(end.channel, RDMA_CM_EVENT_ESTABLISHED);
		if (i % 2 == 0) { /* the others are ended by destroying them */
			check(rdma_disconnect(end.id) == 0);
			take_event(end.channel, RDMA_CM_EVENT_DISCONNECTED);
		}
		drop_qp_of(end.id, cq);
		close_end(&end);
	}
}

static void fails_with(struct end end, enum rdma_cm_event_type type, int status)
{
	struct rdma_conn_param request = with(NULL, 0);
	struct rdma_cm_event *event;

	request.qp_num = 1;
	check(rdma_connect(end.id, &request) == 0);
	event = next_event(end.channel, type);
	check(event->status == status);
	check(rdma_ack_cm_event(event) == 0);
	close_end(&end);
}

static struct rdma_cm_id *take_request(struct end *listener)
{
	struct rdma_cm_event *event = next_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	check(rdma_ack_cm_event(event) == 0);
	return id;
}

/* Messages of two processes come in their order: when the second request is there, the first was withdrawn. */
static void an_id_that_goes_withdraws_its_request(struct side *side)
{
	struct rdma_conn_param param = with(NULL, 0);
	struct rdma_cm_id *first, *second;
	struct end end, other;
	struct ibv_cq *cq;

	if (side->number == 0) {
		start_listening(side, &end);
		first = take_request(&end);
		meet(side);
		second = take_request(&end);
		make_qp_of(first, &cq);
		check(rdma_accept(first, &param) == -1 && errno == EINVAL);
		drop_qp_of(first, cq);
		check(rdma_destroy_id(first) == 0);
		check(rdma_destroy_id(second) == 0); /* that rejects it */
		close_end(&end);
		return;
	}
	meet(side);
	other = resolve(); /* the device stays open */
	end = resolve();
	param.qp_num = 1;
	check(rdma_connect(end.id, &param) == 0);
	meet(side);
	close_end(&end);
	fails_with(other, RDMA_CM_EVENT_REJECTED, REJECTED);
}

/* Its requests wait in the channel when it goes to another one, and twice to that. */
static void a_listener_that_moves_keeps_its_requests(struct side *side)
{
	struct rdma_conn_param param = with(NULL, 0);
	struct rdma_event_channel *first;
	struct rdma_cm_event *event;
	struct rdma_cm_id *requests[2];
	struct pollfd ready;
	struct end ends[2];

	if (side->number == 0) {
		start_listening(side, &ends[0]);
		first = ends[0].channel;
		meet(side); /* both asked */
		ready = (struct pollfd){.fd = first->fd, .events = POLLIN};
		check(poll(&ready, 1, -1) == 1);
		ends[0].channel = rdma_create_event_channel();
		check(rdma_migrate_id(ends[0].id, ends[0].channel) == 0);
		check(rdma_migrate_id(ends[0].id, ends[0].channel) == 0);
		rdma_destroy_event_channel(first);
		for (unsigned i = 0; i < 2; i++)
			requests[i] = take_request(&ends[0]);
		for (unsigned i = 0; i < 2; i++)
			check(rdma_reject(requests[i], NULL, 0) == 0 && rdma_destroy_id(requests[i]) == 0);
		close_end(&ends[0]);
		return;
	}
	meet(side);
	param.qp_num = 1;
	for (unsigned i = 0; i < 2; i++) {
		ends[i] = resolve();
		check(rdma_connect(ends[i].id, &param) == 0);
	}
	meet(side);
	for (unsigned i = 0; i < 2; i++) {
		event = next_event(ends[i].channel, RDMA_CM_EVENT_REJECTED);
		check(event->status == REJECTED && rdma_ack_cm_event(event) == 0);
		close_end(&ends[i]);
	}
}

/* As programs do before they start another program. */
static void close_all_in_a_child(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		for (int fd = 3; fd < DESCRIPTORS; fd++)
			close(fd);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child && status == 0);
}

static void a_child_that_closes_its_descriptors_ends_no_connection(struct side *side)
{
	struct rdma_conn_param param = with(NULL, 0);
	struct pollfd ready;
	struct rdma_cm_id *id;
	struct end end;
	struct ibv_cq *cq;

	if (side->number == 0) {
		start_listening(side, &end);
		id = take_request(&end);
		make_qp_of(id, &cq);
		check(rdma_accept(id, &param) == 0);
		take_event(end.channel, RDMA_CM_EVENT_ESTABLISHED);
		meet(side);
		ready = (struct pollfd){.fd = end.channel->fd, .events = POLLIN};
		meet(side); /* the child has ended */
		check(poll(&ready, 1, 0) == 0);
		meet(side);
		take_event(end.channel, RDMA_CM_EVENT_DISCONNECTED);
	} else {
		meet(side);
		end = resolve();
		id = end.id;
		make_qp_of(id, &cq);
		check(rdma_connect(id, &param) == 0);
		take_event(end.channel, RDMA_CM_EVENT_ESTABLISHED);
		meet(side);
		close_all_in_a_child();
		meet(side);
		meet(side);
		check(rdma_disconnect(id) == 0);
		take_event(end.channel, RDMA_CM_EVENT_DISCONNECTED);
	}
	drop_qp_of(id, cq);
	if (side->number == 0)
		check(rdma_destroy_id(id) == 0);
	close_end(&end);
}

/* ---- peers that are gone ---- */

static void a_listener_that_died_rejects(struct side *side)
{
	struct end listener;

	if (side->number == 0) {
		start_listening(side, &listener);
		_exit(0); /* and closes nothing */
	}
	meet(side);
	check(read(side->socket, &listener, 1) == 0); /* it is gone */
	fails_with(resolve(), RDMA_CM_EVENT_REJECTED, NO_LISTENER);
}

static void a_peer_that_never_answers_is_unreachable(struct side *side)
{
	struct hello own = {.qp_num = {(uint32_t)getpid()}}, other;
	struct end listener;

	if (side->number == 0) {
		start_listening(side, &listener);
		tell(side->socket, &own);
		raise(SIGSTOP);
		_exit(0);
	}
	meet(side);
	hear(side->socket, &other);
	fails_with(resolve(), RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	check(kill((pid_t)other.qp_num[0], SIGCONT) == 0);
}

/* ---- one process ---- */

static void a_port_has_one_listener(struct side *side)
{
	struct sockaddr_in address = address_of(PORT), foreign = address_of(PORT);
	struct end first, second;

	if (side->number != 0)
		return;
	first = make_end();
	second = make_end();
	check(rdma_bind_addr(first.id, (struct sockaddr *)&address) == 0 && first.id->verbs != NULL);
	check(rdma_bind_addr(second.id, (struct sockaddr *)&address) == -1 && errno == EADDRINUSE);
	foreign.sin_addr.s_addr = htonl(0xcb007101); /* 203.0.113.1, for documents */
	check(rdma_bind_addr(second.id, (struct sockaddr *)&foreign) == -1 && errno == EADDRNOTAVAIL);
	close_end(&first);
	check(rdma_bind_addr(second.id, (struct sockaddr *)&address) == 0);
	check(rdma_get_src_port(second.id) == htons(PORT));
	close_end(&second);
}

static void a_channel_can_be_polled(struct side *side)
{
	struct sockaddr_in address = address_of(PORT);
	struct rdma_cm_event *event;
	struct pollfd ready;
	struct end end;

	if (side->number != 0)
		return;
	end = make_end();
	ready = (struct pollfd){.fd = end.channel->fd, .events = POLLIN};
	check(fcntl(end.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	check(rdma_get_cm_event(end.channel, &event) == -1 && errno == EAGAIN && poll(&ready, 1, 0) == 0);
	check(rdma_resolve_addr(end.id, NULL, (struct sockaddr *)&address, RESOLVE_MS) == 0);
	check(poll(&ready, 1, -1) == 1 && ready.revents == POLLIN);
	take_event(end.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_get_cm_event(end.channel, &event) == -1 && errno == EAGAIN && poll(&ready, 1, 0) == 0);
	close_end(&end);
}

static void a_program_without_standard_input_has_a_channel(struct side *side)
{
	struct end end;

	if (side->number != 0)
		return;
	check(close(0) == 0);
	end = make_end();
	check(end.channel->fd > 0);
	close_end(&end);
}

static void a_process_connects_to_itself(struct side *side)
{
	struct rdma_conn_param param = with(NULL, 0);
	struct end listener, end;
	struct rdma_cm_id *id;
	struct ibv_cq *cq, *asked_cq;

	if (side->number != 0) {
		meet(side);
		return;
	}
	start_listening(side, &listener);
	end = resolve();
	make_qp_of(end.id, &cq);
	check(rdma_connect(end.id, &param) == 0);
	id = take_request(&listener);
	make_qp_of(id, &asked_cq);
	check(rdma_accept(id, &param) == 0);
	take_event(end.channel, RDMA_CM_EVENT_ESTABLISHED);
	take_event(listener.channel, RDMA_CM_EVENT_ESTABLISHED);
	check(rdma_disconnect(end.id) == 0);
	take_event(end.channel, RDMA_CM_EVENT_DISCONNECTED);
	take_event(listener.channel, RDMA_CM_EVENT_DISCONNECTED);
	drop_qp_of(id, asked_cq);
	check(rdma_destroy_id(id) == 0);
	drop_qp_of(end.id, cq);
	close_end(&end);
	close_end(&listener);
}

int main(int argc, char **argv)
{
	static const struct side_test tests[] = {SIDE_TEST(private_data_of_all_sizes_arrive),
		SIDE_TEST(a_thousand_connections_are_made_and_ended), SIDE_TEST(an_id_that_goes_withdraws_its_request),
		SIDE_TEST(a_listener_that_moves_keeps_its_requests),
		SIDE_TEST(a_child_that_closes_its_descriptors_ends_no_connection),
		SIDE_TEST(a_program_without_standard_input_has_a_channel), SIDE_TEST(a_listener_that_died_rejects),
		SIDE_TEST(a_peer_that_never_answers_is_unreachable), SIDE_TEST(a_port_has_one_listener),
		SIDE_TEST(a_channel_can_be_polled), SIDE_TEST(a_process_connects_to_itself)};

	return side_run(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
