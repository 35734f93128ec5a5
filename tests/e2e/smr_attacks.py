#!/usr/bin/env python3
"""smr_attacks.py PROGRAM [SECONDS] - clients that do what no client should, at proxies of Redis and memcached
(attacks.py)."""
import contextlib
import socket
import sys

import attacks
import program
import smr_memcached
import smr_proxy

CLIENTS_MB = 64
PIPELINE = 100_000  # more bytes of requests and of replies than any buffer of a socket has
PORT = 6379


class _Redis:
    cluster = smr_proxy._cluster

    @staticmethod
    def put(key, value):
        return b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value), b"+OK\r\n"

    @staticmethod
    def get(key, value):
        return b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key), b"$%d\r\n%s\r\n" % (len(value), value)

    nothing = b"*2\r\n$3\r\nGET\r\n$6\r\nstolen\r\n", b"$-1\r\n"
    line = b"SET stolen yes\r\n"
    half = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000\r\n" + b"v" * 50_000


class _Memcached:
    cluster = smr_memcached._cluster

    @staticmethod
    def put(key, value):
        return b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value), b"STORED\r\n"

    @staticmethod
    def get(key, value):
        return b"get %s\r\n" % key, b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value)

    nothing = b"get stolen\r\n", b"END\r\n"
    line = b"set stolen 0 0 3\r\nyes\r\n"
    half = b"set k 0 0 900000\r\n" + b"v" * 890_000


def _connect(host):
    stream = socket.create_connection((host, PORT), timeout=attacks.LIMIT_S)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def _ask(stream, request, right):
    stream.sendall(request)
    answer = b""
    while len(answer) < len(right) and (piece := stream.recv(len(right) - len(answer))):
        answer += piece
    assert answer == right, (request[:80], answer[:200])


@contextlib.contextmanager
def _visited(kind, directory, **settings):
    """A cluster, and a client that writes and reads one record, at each proxy in turn."""
    def round_of(n):
        for i, stream in enumerate(streams):
            for ask in (kind.put, kind.get):
                yield lambda: _ask(stream, *ask(b"visitor", b"%d.%d" % (n, i)))

    with kind.cluster(directory, **settings) as cluster:
        streams = [_connect(host) for host in cluster.hosts]
        with attacks.visited(round_of, cluster.processes):
            yield cluster


def _web_page(kind, directory):
    with _visited(kind, directory) as cluster:
        for _ in attacks.rounds():
            for method in (b"POST", b"GET", b"PUT"):
                with _connect(cluster.hosts[0]) as stream:
                    stream.sendall(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n" + kind.line)
                    with contextlib.suppress(ConnectionError):
                        while stream.recv(4096):
                            pass
        with _connect(cluster.hosts[0]) as stream:
            _ask(stream, *kind.nothing)
        assert "sends HTTP" in cluster.log(0)


def _pipeline(kind, directory):
    with _visited(kind, directory) as cluster:
        stream, key, value = _connect(cluster.hosts[0]), b"k" * 200, b"v" * 200
        _ask(stream, *kind.put(key, value))
        request, answer = kind.get(key, value)
        for _ in attacks.rounds():
            stream.sendall(request * PIPELINE)
            got = 0
            while got < PIPELINE * len(answer):
                piece = stream.recv(1 << 20)
                assert piece, "closed"
                got += len(piece)
        stream.close()


def _no_reader(kind, directory):
    with _visited(kind, directory, clients_mb=CLIENTS_MB) as cluster:
        value = b"v" * 1000
        request, _ = kind.get(b"key", value)
        with _connect(cluster.hosts[0]) as stream:
            _ask(stream, *kind.put(b"key", value))
        for _ in attacks.rounds():
            with _connect(cluster.hosts[0]) as stream, contextlib.suppress(ConnectionError):
                while True:
                    stream.sendall(request * 50_000)
        assert "clients_mb" in cluster.log(0)


def _half_requests(kind, directory):
    with _visited(kind, directory, clients_mb=CLIENTS_MB) as cluster:
        for _ in attacks.rounds():
            streams = [_connect(cluster.hosts[0]) for _ in range(150)]
            for stream in streams:
                with contextlib.suppress(ConnectionError):
                    stream.sendall(kind.half)
            for stream in streams:
                stream.close()


def _crowd(kind, directory):
    with _visited(kind, directory, clients=20) as cluster:
        for _ in attacks.rounds():
            streams, answers = [_connect(cluster.hosts[0]) for _ in range(40)], []
            for stream in streams:
                with contextlib.suppress(ConnectionError):
                    stream.sendall(kind.nothing[0])
                    answers.append(stream.recv(100))
            assert any(b"max number of clients reached" in answer for answer in answers), answers
            for stream in streams:
                stream.close()


def a_web_page_writes_nothing_into_redis(directory):
    _web_page(_Redis, directory)


def a_web_page_writes_nothing_into_memcached(directory):
    _web_page(_Memcached, directory)


def a_pipeline_at_redis_is_written_before_anything_is_read(directory):
    _pipeline(_Redis, directory)


def a_pipeline_at_memcached_is_written_before_anything_is_read(directory):
    _pipeline(_Memcached, directory)


def clients_of_redis_that_never_read_are_ended(directory):
    _no_reader(_Redis, directory)


def clients_of_memcached_that_never_read_are_ended(directory):
    _no_reader(_Memcached, directory)


def requests_to_redis_that_never_end_hold_bounded_memory(directory):
    _half_requests(_Redis, directory)


def requests_to_memcached_that_never_end_hold_bounded_memory(directory):
    _half_requests(_Memcached, directory)


def one_client_more_of_redis_is_refused(directory):
    _crowd(_Redis, directory)


def one_client_more_of_memcached_is_refused(directory):
    _crowd(_Memcached, directory)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
