/* Streams: TCP and sockets with a path, never blocking, small writes sent at once (TCP_NODELAY).
 *
 * A connect that fails before it returns (loopback refuses at once) is reported like one that fails later: by each
 * read and write. The kernel reports it to the first one only, which may be of a layer that has no use for it.
 * The descriptor of such a stream is ready at once, because a socket that is not connected is.
 *
 * A peer whose host has vanished ends an accepted stream by keep-alive, after the times of Redis. */
#include "env/linux/linux.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

#define LISTEN_BACKLOG 128
#define KEEP_IDLE_S    300
#define KEEP_AGAIN_S   100
#define KEEP_TRIES     3

#define KEPT_MOST 64u

struct linux_stream {
	struct linux_io io;
	int connect_error;         /* by every read and write */
	bool keeps;                /* SO_ZEROCOPY is set */
	uint32_t kept, first_kept; /* calls of writev_kept: how many, and the first that is not over */
	uint64_t over;             /* bit per call from that one on */
};

static struct linux_stream *stream_of(struct hf_io *io)
{
	return container_of(io, struct linux_stream, io.io);
}

/* What recv or send answered. */
static ssize_t outcome(struct hf_io *io, ssize_t moved)
{
	ssize_t rc = moved < 0 ? -errno : moved;

	if (rc == -ECONNREFUSED)
		stream_of(io)->connect_error = (int)rc;
	return rc;
}

static ssize_t stream_read(struct hf_io *io, void *data, size_t bytes)
{
	int error = stream_of(io)->connect_error;
	ssize_t got;

	if (error != 0)
		return error;
	do
		got = recv(io_fd(io), data, bytes, 0);
	while (got < 0 && errno == EINTR);
	return outcome(io, got);
}

static ssize_t write_pieces(struct hf_io *io, const struct iovec *pieces, unsigned n, int flags)
{
	struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = n}; /* only read */
	int error = stream_of(io)->connect_error;
	ssize_t sent;

	if (error != 0)
		return error;
	do
		sent = sendmsg(io_fd(io), &message, MSG_NOSIGNAL | flags);
	while (sent < 0 && errno == EINTR);
	return outcome(io, sent);
}

static ssize_t stream_writev(struct hf_io *io, const struct iovec *pieces, unsigned n)
{
	return write_pieces(io, pieces, n, 0);
}

/* ---- writes without a copy ---- */

static ssize_t stream_writev_kept(struct hf_io *io, const struct iovec *pieces, unsigned n)
{
	struct linux_stream *stream = stream_of(io);
	int on = 1;
	ssize_t sent;

	if (!stream->keeps && setsockopt(io_fd(io), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
		return -EOPNOTSUPP;
	stream->keeps = true;
	if (stream->kept - stream->first_kept == KEPT_MOST)
		return -ENOBUFS;
	sent = write_pieces(io, pieces, n, MSG_ZEROCOPY);
	if (sent >= 0)
		stream->kept++;
	return sent;
}

/* Calls [first, last] are over. */
static void note_over(struct linux_stream *stream, uint32_t first, uint32_t last)
{
	for (uint32_t call = first; call != last + 1; call++)
		if (call - stream->first_kept < KEPT_MOST)
			stream->over |= 1ull << (call - stream->first_kept);
}

static bool take_over(struct linux_stream *stream, bool *copied)
{
	union {
		struct cmsghdr head;
		uint8_t bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
	} control;
	struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};

	if (recvmsg(stream->io.fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
		return false;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at != NULL; at = CMSG_NXTHDR(&message, at)) {
		struct sock_extended_err told;

		if (!(at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR) &&
			!(at->cmsg_level == SOL_IPV6 && at->cmsg_type == IPV6_RECVERR))
			continue;
		memcpy(&told, CMSG_DATA(at), sizeof(told));
		if (told.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
			continue;
		note_over(stream, told.ee_info, told.ee_data);
		*copied = *copied || (told.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0;
	}
	return true;
}

static unsigned stream_let_go(struct hf_io *io, bool *copied_out)
{
	struct linux_stream *stream = stream_of(io);
	unsigned n = 0;

	while (stream->kept != stream->first_kept && take_over(stream, copied_out))
		;
	for (; (stream->over & 1) != 0; n++) {
		stream->over >>= 1;
		stream->first_kept++;
	}
	return n;
}

/* Closed with a reset, the kernel drops what it has not sent; else it would send that from memory that is the caller's
 * again. */
static void stream_close(struct hf_io *io)
{
	const struct linger reset = {.l_onoff = 1};
	const struct linux_stream *stream = stream_of(io);
	bool copied = false;

	(void)stream_let_go(io, &copied);
	if (stream->kept != stream->first_kept)
		setsockopt(io_fd(io), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	linux_io_close(io);
}

static const struct world_io_ops stream_ops = {
	.close = stream_close,
	.local = linux_io_local,
	.read = stream_read,
	.writev = stream_writev,
	.writev_kept = stream_writev_kept,
	.let_go = stream_let_go,
};

/* Takes the descriptor. */
static int new_stream(int fd, int connect_error, struct hf_io **io_out)
{
	struct linux_stream *stream = calloc(1, sizeof(*stream));
	int on = 1;

	if (stream == NULL) {
		close(fd);
		return -ENOMEM;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	linux_io_init(&stream->io, fd, &stream_ops);
	stream->connect_error = connect_error;
	*io_out = &stream->io.io;
	return 0;
}

struct linux_listener {
	struct linux_io io;
	int spare; /* a descriptor, to be given up when there are no others; -1: none */
	struct log_limit refusals;
};

/* A listener that cannot accept stays readable, and its loop would never sleep. So the client is accepted with the
 * spare descriptor, and sees its connection closed. */
static int refuse_one(struct linux_listener *listener)
{
	struct hf_addr local = {0};
	char text[HF_ADDR_TEXT];
	uint64_t left_out;
	bool refused;

	if (listener->spare >= 0)
		close(listener->spare);
	listener->spare = accept4(listener->io.fd, NULL, NULL, SOCK_CLOEXEC);
	refused = listener->spare >= 0; /* else there was no connection: the kernel looks for a descriptor first */
	if (refused && log_limit_allows(&listener->refusals, linux_now_ns(NULL), &left_out) &&
		linux_io_local(&listener->io.io, &local) == 0)
		log_warn("TCP %s: a connection is refused because this process has no descriptor left; raise its limit "
			 "(ulimit -n) (%llu lines suppressed)",
			hf_addr_format(&local, text), (unsigned long long)left_out);
	if (listener->spare >= 0)
		close(listener->spare);
	listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return refused ? -EMFILE : -EAGAIN;
}

static int accept_stream(struct hf_io *io, struct hf_io **io_out, struct hf_addr *peer_out)
{
	struct hf_addr peer;
	socklen_t bytes;
	int fd;

	do {
		bytes = sizeof(peer);
		memset(&peer, 0, sizeof(peer));
		fd = accept4(io_fd(io), &peer.sa, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return refuse_one(container_of(io, struct linux_listener, io.io));
	if (fd < 0)
		return -errno;
	if (peer_out != NULL)
		*peer_out = peer;
	return new_stream(fd, 0, io_out);
}

static void listener_close(struct hf_io *io)
{
	struct linux_listener *listener = container_of(io, struct linux_listener, io.io);

	if (listener->spare >= 0)
		close(listener->spare);
	linux_io_close(io);
}

static const struct world_io_ops listener_ops = {
	.close = listener_close,
	.local = linux_io_local,
	.accept = accept_stream,
};

static int listener_new(int fd, struct hf_io **io_out)
{
	struct linux_listener *listener = calloc(1, sizeof(*listener));

	if (listener == NULL) {
		close(fd);
		return -ENOMEM;
	}
	linux_io_init(&listener->io, fd, &listener_ops);
	listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	*io_out = &listener->io.io;
	return 0;
}

/* Accepted streams inherit it. */
static void keep_alive(int fd)
{
	const int on = 1, idle_s = KEEP_IDLE_S, again_s = KEEP_AGAIN_S, tries = KEEP_TRIES;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again_s, sizeof(again_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
}

int linux_stream_listen(struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error)
{
	int fd = socket(local->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1, code;

	(void)env;
	if (fd < 0)
		return linux_bind_error(local, "listening on", -errno, error);
	/* A restarted process must not wait for the connections of the one before it to leave TIME_WAIT. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (local->sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	keep_alive(fd);
	if (bind(fd, &local->sa, addr_bytes(local)) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
		return listener_new(fd, io_out);
	code = -errno;
	close(fd);
	return linux_bind_error(local, "listening on", code, error);
}

int linux_stream_connect(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
	struct hf_io **io_out, struct hf_error *error)
{
	int fd = socket(peer->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1, code;

	(void)env;
	if (fd < 0)
		return linux_bind_error(peer, "connecting to", -errno, error);
	if (local != NULL) {
		if (hf_addr_port(local) == 0)
			setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
		if (bind(fd, &local->sa, addr_bytes(local)) != 0) {
			code = -errno;
			close(fd);
			return linux_bind_error(local, "connecting from", code, error);
		}
	}
	code = connect(fd, &peer->sa, addr_bytes(peer)) == 0 ? 0 : -errno;
	return new_stream(fd, code == -EINPROGRESS || code == -EINTR ? 0 : code, io_out);
}

int linux_stream_connect_path(struct hf_env *env, const char *path, struct hf_io **io_out, struct hf_error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = strlen(path);
	int fd, code;

	(void)env;
	if (bytes >= sizeof(address.sun_path))
		return hf_error_set(error, -ENAMETOOLONG, "%s: the path of a socket has at most %zu bytes", path,
			sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, bytes);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return hf_error_set(error, -errno, "%s: no socket: %s", path, strerror(errno));
	code = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
	if (code != 0) {
		close(fd);
		return hf_error_set(error, code, "%s: cannot connect: %s", path, strerror(-code));
	}
	return new_stream(fd, 0, io_out);
}
