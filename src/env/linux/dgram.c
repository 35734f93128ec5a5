/* Datagrams: UDP on sockets that stay unconnected, many to a system call, cut and joined by the kernel where it can.
 *
 * Identification (HF_DGRAM_ROCE): an unconnected socket that forbids fragmenting sends identification 0. Where the
 * kernel cuts a payload it numbers the pieces 0, 1, 2, ... instead; see hf_dgram_flags in env.h. */
#include "env/linux/linux.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ensure.h"
#include "base/log.h"
#include "env/netdev.h"

#define DGRAM_BATCH        32
#define DGRAM_BUFFER_BYTES (8 << 20) /* asked for; without privilege the kernel gives net.core.*mem_max */
#define IPV4_HEADER_BYTES  20u
#define IPV6_HEADER_BYTES  40u
#define UDP_HEADER_BYTES   8u
#define DGRAM_ERRORS_MAX   16 /* errors left by peers that one receive skips */

struct linux_dgram {
	struct linux_io io;
	bool kernel_cuts; /* UDP_SEGMENT works on this socket */
	bool told_size;   /* that a datagram did not fit */
};

/* Room for one int, aligned as control messages are. */
struct control {
	_Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
};

/* Once: a requester that repeats it would fill the log. */
static void tell_size(struct linux_dgram *socket, uint32_t bytes)
{
	struct hf_addr local = {0};
	char text[HF_ADDR_TEXT];

	if (socket->told_size || linux_io_local(&socket->io.io, &local) != 0)
		return;
	socket->told_size = true;
	log_warn("UDP %s: a datagram of %u bytes is too large for its interface; such datagrams are lost; use a "
		 "smaller MTU",
		hf_addr_format(&local, text), bytes);
}

static bool is_run(const struct hf_dgram *dgram)
{
	return dgram->segment_bytes != 0 && dgram->bytes > dgram->segment_bytes;
}

static void describe(struct msghdr *message, struct iovec *iov, const struct hf_dgram *dgram)
{
	*iov = (struct iovec){.iov_base = dgram->data, .iov_len = dgram->bytes};
	*message = (struct msghdr){
		.msg_name = (void *)&dgram->peer.sa,
		.msg_namelen = addr_bytes(&dgram->peer),
		.msg_iov = iov,
		.msg_iovlen = 1,
	};
	if (dgram->piece_count > 0) {
		message->msg_iov = (struct iovec *)(uintptr_t)dgram->pieces; /* sendmsg's lacks a const */
		message->msg_iovlen = dgram->piece_count;
	}
}

static void ask_to_cut(struct msghdr *message, struct control *control, uint32_t segment_bytes)
{
	uint16_t size = (uint16_t)segment_bytes;
	struct cmsghdr *header;

	message->msg_control = control->bytes;
	message->msg_controllen = CMSG_SPACE(sizeof(size));
	header = CMSG_FIRSTHDR(message);
	header->cmsg_level = SOL_UDP;
	header->cmsg_type = UDP_SEGMENT;
	header->cmsg_len = CMSG_LEN(sizeof(size));
	memcpy(CMSG_DATA(header), &size, sizeof(size));
}

static bool queue_is_full(int error)
{
	return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

/* Sends `n` messages; whatever concerns one peer only is skipped. How many are gone; less when the queue is full. */
static unsigned send_messages(struct linux_dgram *socket, struct mmsghdr *messages, unsigned n)
{
	unsigned gone = 0;

	while (gone < n) {
		int sent = sendmmsg(socket->io.fd, messages + gone, n - gone, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent > 0) {
			gone += (unsigned)sent;
			continue;
		}
		if (sent < 0 && errno == EINTR)
			continue;
		if (queue_is_full(errno))
			break;
		if (errno == EMSGSIZE)
			tell_size(socket, (uint32_t)messages[gone].msg_hdr.msg_iov->iov_len);
		gone++;
	}
	return gone;
}

/* Cuts a run here. 1: it is gone; pieces that found the queue full in its middle are lost, as the network may lose
 * them. 0: the queue was full before the first. */
static unsigned send_pieces(struct linux_dgram *socket, const struct hf_dgram *dgram)
{
	struct mmsghdr messages[DGRAM_BATCH];
	struct iovec iov[DGRAM_BATCH];
	uint32_t at = 0;

	while (at < dgram->bytes) {
		uint32_t first = at;
		unsigned n = 0, gone;

		for (; n < DGRAM_BATCH && at < dgram->bytes; n++) {
			struct hf_dgram piece = *dgram;
			uint32_t left = dgram->bytes - at;

			piece.data = (char *)dgram->data + at;
			piece.bytes = left < dgram->segment_bytes ? left : dgram->segment_bytes;
			describe(&messages[n].msg_hdr, &iov[n], &piece);
			messages[n].msg_hdr.msg_name = (void *)&dgram->peer.sa;
			at += piece.bytes;
		}
		gone = send_messages(socket, messages, n);
		if (gone < n)
			return first > 0 || gone > 0;
	}
	return 1;
}

/* The same for a payload in pieces, which are joined first: this is the slow way anyhow. */
static unsigned send_gathered(struct linux_dgram *socket, const struct hf_dgram *dgram)
{
	static _Thread_local char joined[HF_DGRAM_MAX_BYTES];
	struct hf_dgram whole = *dgram;

	whole.data = joined;
	whole.bytes = 0;
	for (uint32_t i = 0; i < dgram->piece_count; i++) {
		const struct iovec *piece = &dgram->pieces[i];

		ensure(piece->iov_len <= sizeof(joined) - whole.bytes);
		memcpy(joined + whole.bytes, piece->iov_base, piece->iov_len);
		whole.bytes += (uint32_t)piece->iov_len;
	}
	whole.piece_count = 0;
	return send_pieces(socket, &whole);
}

static unsigned cut_and_send(struct linux_dgram *socket, const struct hf_dgram *dgram)
{
	return dgram->piece_count > 0 ? send_gathered(socket, dgram) : send_pieces(socket, dgram);
}

/* Sends a batch from the start of dgrams; how many are gone, 0 when the queue is full. */
static unsigned send_some(struct linux_dgram *socket, const struct hf_dgram *dgrams, unsigned n)
{
	struct mmsghdr messages[DGRAM_BATCH];
	struct iovec iov[DGRAM_BATCH];
	struct control controls[DGRAM_BATCH];
	unsigned count = 0;
	int sent;

	if (is_run(&dgrams[0]) && !socket->kernel_cuts)
		return cut_and_send(socket, &dgrams[0]);
	for (; count < n && count < DGRAM_BATCH; count++) {
		if (is_run(&dgrams[count]) && !socket->kernel_cuts)
			break;
		describe(&messages[count].msg_hdr, &iov[count], &dgrams[count]);
		if (is_run(&dgrams[count]))
			ask_to_cut(&messages[count].msg_hdr, &controls[count], dgrams[count].segment_bytes);
	}
	do
		sent = sendmmsg(socket->io.fd, messages, count, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent > 0)
		return (unsigned)sent;
	if (queue_is_full(errno))
		return 0;
	if (!is_run(&dgrams[0])) {
		if (errno == EMSGSIZE)
			tell_size(socket, dgrams[0].bytes);
		return 1; /* lost on the way to its peer: refused, unreachable, too big */
	}
	if (errno == EIO)
		socket->kernel_cuts = false; /* the way out cannot checksum, which cutting needs */
	return cut_and_send(socket, &dgrams[0]);
}

static int dgram_send(struct hf_io *io, const struct hf_dgram *dgrams, unsigned n)
{
	struct linux_dgram *socket = container_of(io, struct linux_dgram, io.io);
	unsigned done = 0;

	while (done < n) {
		unsigned gone = send_some(socket, dgrams + done, n - done);

		if (gone == 0)
			return done > 0 ? (int)done : -EAGAIN;
		done += gone;
	}
	return (int)done;
}

/* What UDP_GRO says: the size of the datagrams that were joined; 0 when there was one. */
static uint32_t joined_size(struct msghdr *message, uint32_t bytes)
{
	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
		int size;

		if (header->cmsg_level != SOL_UDP || header->cmsg_type != UDP_GRO)
			continue;
		memcpy(&size, CMSG_DATA(header), sizeof(size));
		return size > 0 && (uint32_t)size < bytes ? (uint32_t)size : 0;
	}
	return 0;
}

static int receive_some(int fd, struct hf_dgram *dgrams, unsigned n)
{
	struct mmsghdr messages[DGRAM_BATCH];
	struct iovec iov[DGRAM_BATCH];
	struct control controls[DGRAM_BATCH];
	unsigned errors = 0;
	int got;

	for (unsigned i = 0; i < n; i++) {
		describe(&messages[i].msg_hdr, &iov[i], &dgrams[i]);
		messages[i].msg_hdr.msg_namelen = sizeof(dgrams[i].peer);
		messages[i].msg_hdr.msg_control = controls[i].bytes;
		messages[i].msg_hdr.msg_controllen = sizeof(controls[i].bytes);
	}
	do
		got = recvmmsg(fd, messages, n, MSG_DONTWAIT, NULL);
	while (got < 0 && errno != EAGAIN && errors++ < DGRAM_ERRORS_MAX); /* refusals of peers wait in front of data */
	if (got < 0)
		return -errno;
	for (int i = 0; i < got; i++) {
		dgrams[i].bytes = messages[i].msg_len;
		dgrams[i].segment_bytes = joined_size(&messages[i].msg_hdr, messages[i].msg_len);
	}
	return got;
}

static int dgram_recv(struct hf_io *io, struct hf_dgram *dgrams, unsigned n)
{
	unsigned done = 0;

	while (done < n) {
		unsigned batch = n - done < DGRAM_BATCH ? n - done : DGRAM_BATCH;
		int got = receive_some(io_fd(io), dgrams + done, batch);

		if (got < 0)
			return done > 0 ? (int)done : got;
		done += (unsigned)got;
		if ((unsigned)got < batch)
			break;
	}
	return (int)done;
}

static bool has_address(const struct ifaddrs *entry, const struct hf_addr *addr)
{
	struct hf_addr own = {0};

	if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != addr->sa.sa_family)
		return false;
	memcpy(&own, entry->ifa_addr, addr_bytes(addr));
	hf_addr_set_port(&own, hf_addr_port(addr));
	if (addr->sa.sa_family == AF_INET6)
		return memcmp(&own.in6.sin6_addr, &addr->in6.sin6_addr, sizeof(own.in6.sin6_addr)) == 0;
	if (own.in.sin_addr.s_addr == addr->in.sin_addr.s_addr)
		return true;
	return strcmp(entry->ifa_name, "lo") == 0 && ntohl(addr->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static uint32_t dgram_fits(struct hf_io *io)
{
	uint32_t mtu = 0, headers;
	struct ifaddrs *all = NULL;
	struct hf_addr local;

	if (linux_io_local(io, &local) != 0 || getifaddrs(&all) != 0)
		return HF_DGRAM_MAX_BYTES;
	for (const struct ifaddrs *at = all; at != NULL && mtu == 0; at = at->ifa_next)
		if (has_address(at, &local))
			mtu = netdev_mtu(at->ifa_name);
	freeifaddrs(all);
	headers = (local.sa.sa_family == AF_INET6 ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES) + UDP_HEADER_BYTES;
	return mtu <= headers || mtu - headers > HF_DGRAM_MAX_BYTES ? HF_DGRAM_MAX_BYTES : mtu - headers;
}

static const struct world_io_ops dgram_ops = {
	.close = linux_io_close,
	.local = linux_io_local,
	.dgram_send = dgram_send,
	.dgram_recv = dgram_recv,
	.dgram_fits = dgram_fits,
};

static void enlarge(int fd, int forced, int asked)
{
	int bytes = DGRAM_BUFFER_BYTES;

	if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, asked, &bytes, sizeof(bytes));
}

static int set_options(struct linux_dgram *socket, int family, unsigned flags)
{
	int fd = socket->io.fd, on = 1, none = 0, probe = IP_PMTUDISC_PROBE, probe6 = IPV6_PMTUDISC_PROBE;

	enlarge(fd, SO_SNDBUFFORCE, SO_SNDBUF);
	enlarge(fd, SO_RCVBUFFORCE, SO_RCVBUF);
	socket->kernel_cuts = setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof(none)) == 0;
	if ((flags & HF_DGRAM_GRO) != 0)
		setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)); /* refused by old kernels: then nothing is joined */
	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0)
		return -errno;
	if ((flags & HF_DGRAM_ROCE) == 0)
		return 0;
	/* PROBE rather than DO: "fragmentation needed" from a router on the way must not stop the traffic. */
	if (family == AF_INET6)
		return setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe6, sizeof(probe6)) == 0 ? 0 : -errno;
	return setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)) == 0 ? 0 : -errno;
}

int linux_dgram_open(
	struct hf_env *env, const struct hf_addr *local, unsigned flags, struct hf_io **io_out, struct hf_error *error)
{
	struct linux_dgram *opened = calloc(1, sizeof(*opened));
	int code;

	(void)env;
	if (opened == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	opened->io.io.ops = &dgram_ops;
	list_init(&opened->io.node);
	opened->io.fd = socket(local->sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (opened->io.fd < 0) {
		code = -errno;
		free(opened);
		return linux_bind_error(local, "UDP port", code, error);
	}
	code = set_options(opened, local->sa.sa_family, flags);
	if (code == 0 && bind(opened->io.fd, &local->sa, addr_bytes(local)) != 0)
		code = -errno;
	if (code != 0) {
		linux_io_close(&opened->io.io);
		return linux_bind_error(local, "UDP port", code, error);
	}
	*io_out = &opened->io.io;
	return 0;
}
