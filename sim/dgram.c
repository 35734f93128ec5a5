/* Datagram sockets of simulated processes. A segmented payload travels as the datagrams that it consists of. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/ensure.h"
#include "sim/network.h"

#define INBOX_MAX 4096 /* datagrams; what comes on top is dropped, as by a full socket buffer */

struct sim_socket {
	struct sim_io base;
	struct port *port;
	struct hf_addr local;
	struct list node; /* of the port */
	struct list inbox;
	unsigned inbox_count;
};

struct packet {
	struct list node; /* of the network, then of an inbox */
	struct world_event arrival;
	struct network *network;
	struct port *from, *to;
	struct hf_addr sender, receiver;
	uint32_t bytes;
	uint8_t data[];
};

static struct sim_socket *socket_of(struct hf_io *io)
{
	return (struct sim_socket *)(void *)io;
}

static void drop(struct packet *packet)
{
	packet->network->dropped++;
	list_remove(&packet->node);
	free(packet);
}

static void arrive(struct world_event *event)
{
	struct packet *packet = container_of(event, struct packet, arrival);

	if (!network_open(packet->network, packet->from, packet->to)) {
		drop(packet);
		return;
	}
	list_for_each (at, &packet->to->sockets) {
		struct sim_socket *receiver = container_of(at, struct sim_socket, node);

		if (!hf_addr_equal(&receiver->local, &packet->receiver) || receiver->inbox_count == INBOX_MAX)
			continue;
		list_remove(&packet->node);
		list_push_back(&receiver->inbox, &packet->node);
		receiver->inbox_count++;
		sim_io_changed(&receiver->base);
		return;
	}
	drop(packet);
}

static void launch(struct sim_socket *from, struct port *to, const struct hf_addr *receiver, const void *data,
	uint32_t bytes, uint64_t delay_ns)
{
	struct packet *packet = malloc(sizeof(*packet) + bytes);

	ensure(packet != NULL);
	*packet = (struct packet){.network = from->port->host->network,
		.from = from->port,
		.to = to,
		.sender = from->local,
		.receiver = *receiver,
		.bytes = bytes};
	memcpy(packet->data, data, bytes);
	packet->arrival.what = "packet";
	packet->arrival.detail = (uint64_t)crc32c(bytes, data, bytes) << 8 | from->port->index << 4 | to->index;
	packet->arrival.fire = arrive;
	list_push_back(&packet->network->packets, &packet->node);
	world_schedule(packet->network->world, &packet->arrival, packet->network->world->now_ns + delay_ns);
}

static void send_one(struct sim_socket *from, const struct hf_addr *receiver, const void *data, uint32_t bytes)
{
	struct network *network = from->port->host->network;
	struct port *to = network_find(network, receiver);
	struct fate fate;

	network->datagrams++;
	if (to == NULL)
		return;
	fate = network_fate(network, from->port, to, bytes);
	if (fate.lost || network_loses(network, from->port, to, data, bytes)) {
		network->dropped++;
		return;
	}
	launch(from, to, receiver, data, bytes, fate.delay_ns);
	if (fate.copy_delay_ns != 0)
		launch(from, to, receiver, data, bytes, fate.copy_delay_ns);
}

/* Of a payload in pieces: joined in `room`. */
static const uint8_t *payload_of(const struct hf_dgram *dgram, uint8_t room[HF_DGRAM_MAX_BYTES])
{
	uint32_t at = 0;

	if (dgram->piece_count == 0)
		return dgram->data;
	for (uint32_t i = 0; i < dgram->piece_count; i++) {
		memcpy(room + at, dgram->pieces[i].iov_base, dgram->pieces[i].iov_len);
		at += (uint32_t)dgram->pieces[i].iov_len;
	}
	return room;
}

static int dgram_send(struct hf_io *io, const struct hf_dgram *dgrams, unsigned n)
{
	static uint8_t room[HF_DGRAM_MAX_BYTES];
	struct sim_socket *from = socket_of(io);

	process_step(from->base.process);
	if (from->base.process->muted)
		return (int)n;
	for (unsigned i = 0; i < n; i++) {
		const struct hf_dgram *d = &dgrams[i];
		uint32_t step = d->segment_bytes == 0 ? d->bytes : d->segment_bytes;
		const uint8_t *data = payload_of(d, room);

		if (d->bytes == 0)
			send_one(from, &d->peer, data, 0);
		for (uint32_t at = 0; at < d->bytes; at += step)
			send_one(from, &d->peer, data + at, d->bytes - at < step ? d->bytes - at : step);
	}
	return (int)n;
}

static int dgram_recv(struct hf_io *io, struct hf_dgram *dgrams, unsigned n)
{
	struct sim_socket *to = socket_of(io);
	unsigned filled = 0;

	process_step(to->base.process);
	for (; filled < n && !list_empty(&to->inbox); filled++) {
		struct packet *packet = container_of(list_pop_front(&to->inbox), struct packet, node);
		struct hf_dgram *d = &dgrams[filled];

		to->inbox_count--;
		d->peer = packet->sender;
		if (packet->bytes < d->bytes)
			d->bytes = packet->bytes; /* else: the rest is cut off, as recvmsg does */
		d->segment_bytes = 0;
		memcpy(d->data, packet->data, d->bytes);
		free(packet);
	}
	return filled == 0 ? -EAGAIN : (int)filled;
}

static int dgram_local(struct hf_io *io, struct hf_addr *addr_out)
{
	*addr_out = socket_of(io)->local;
	return 0;
}

static unsigned dgram_ready(struct sim_io *io)
{
	return HF_WRITABLE | (list_empty(&socket_of(&io->io)->inbox) ? 0 : HF_READABLE);
}

static void dgram_abandon(struct sim_io *io)
{
	struct sim_socket *gone = socket_of(&io->io);

	list_remove(&gone->node);
	while (!list_empty(&gone->inbox))
		free(container_of(list_pop_front(&gone->inbox), struct packet, node));
	gone->inbox_count = 0;
}

static void dgram_close(struct hf_io *io)
{
	dgram_abandon(&socket_of(io)->base);
	sim_io_free(&socket_of(io)->base);
	free(socket_of(io));
}

static const struct world_io_ops dgram_ops = {
	.close = dgram_close,
	.local = dgram_local,
	.dgram_send = dgram_send,
	.dgram_recv = dgram_recv,
};

int sim_dgram_open(
	struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out, struct hf_error *error)
{
	struct process *process = env_process(env);
	struct sim_socket *made;
	struct hf_addr bound;
	struct port *port;
	char text[HF_ADDR_TEXT];
	int rc;

	(void)flags; /* identification 0 is what this network always uses; nothing is ever coalesced */
	*io_out = NULL;
	if ((rc = network_bind(process, local, &port, &bound, error)) != 0)
		return rc;
	list_for_each (at, &port->sockets)
		if (hf_addr_equal(&container_of(at, struct sim_socket, node)->local, &bound))
			return hf_error_set(error, -EADDRINUSE, "%s is taken", hf_addr_format(&bound, text));
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->port = port;
	made->local = bound;
	list_init(&made->inbox);
	list_push_back(&port->sockets, &made->node);
	sim_io_init(&made->base, process, &dgram_ops, dgram_ready, dgram_abandon);
	*io_out = &made->base.io;
	return 0;
}

void packets_free(struct network *network)
{
	while (!list_empty(&network->packets)) {
		struct packet *packet = container_of(list_pop_front(&network->packets), struct packet, node);

		world_cancel(network->world, &packet->arrival);
		free(packet);
	}
}
