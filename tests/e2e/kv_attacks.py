#!/usr/bin/env python3
"""kv_attacks.py PROGRAM [SECONDS] - clients that do what no client should, at a store (attacks.py)."""
import contextlib
import pathlib
import socket
import sys

import attacks
import program
from kv_cluster import Cluster

PIPELINE = 300_000
CLIENTS_MB = 64


def _visited(cluster):
    """A client that writes and reads one record, at each member in turn."""
    clients = [cluster.client(i) for i in range(cluster.count)]

    def check(client, words, right):
        assert (answer := client.ask(*words)) == right, (words, answer)

    def round_of(n):
        for i, client in enumerate(clients):
            value = b"%d.%d" % (n, i)
            yield lambda: check(client, ("SET", "visitor", value), "+OK")
            yield lambda: check(client, ("GET", "visitor"), value)

    return attacks.visited(round_of, cluster.processes)


def _raw(cluster, timeout=60):
    stream = socket.create_connection(cluster.address(0), timeout=timeout)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def _read_to_end(stream):
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := stream.recv(65536):
            data += piece
    return data


def _resident_mb(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmRSS")


def a_web_page_writes_nothing(directory):
    body = "SET stolen yes\r\n" * 3
    requests = [f"{method} / HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}"
                for method in ("POST", "GET", "PUT", "OPTIONS") for head in ("Host: 127.0.0.1\r\n", "")]
    with Cluster(directory, "shm") as cluster, _visited(cluster):
        for _ in attacks.rounds():
            for request in requests:
                with _raw(cluster) as stream:
                    stream.sendall(request.encode())
                    answer = _read_to_end(stream)
                assert b"OK" not in answer, answer
        client = cluster.client(0)
        assert client.ask("GET", "stolen") is None
        assert client.ask("SET", "host:", "HTTP/1.1") == "+OK" and client.ask("GET", "host:") == b"HTTP/1.1"
    assert "HTTP" in cluster.log(0), cluster.log(0)


def a_pipeline_is_written_before_anything_is_read(directory):
    with Cluster(directory, "shm") as cluster, _visited(cluster):
        value = b"v" * 100
        client = cluster.client(0)
        assert client.ask("SET", "key", value) == "+OK"
        for _ in attacks.rounds():
            client.stream.sendall(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n" * PIPELINE)
            for _ in range(PIPELINE):
                assert client.reply() == value
            large = b"w" * (1 << 20)
            assert client.ask("SET", "large", large) == "+OK"
            client.stream.sendall(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n" * 1000)  # their replies are 1 GiB
            for _ in range(1000):
                assert client.reply() == large
        assert client.ask("PING") == "+PONG"


def nothing_of_a_refused_transaction_executes(directory):
    with Cluster(directory, "shm") as cluster, _visited(cluster):
        client = cluster.client(0)
        for _ in attacks.rounds():
            for end in ("EXEC", "DISCARD"):
                for words in (["MULTI"], ["SET", "a", "1"], ["GET", "a"], ["MULTI"], ["INCR", "a"], ["DEL", "b"], [end]):
                    client.send(*words)
                answers = [client.reply() for _ in range(7)]
                assert all(isinstance(answer, str) and answer.startswith("-") for answer in answers), answers
                assert end != "EXEC" or answers[-1].startswith("-EXECABORT "), answers
                assert client.ask("GET", "a") is None
            for alone in ("EXEC", "DISCARD"):
                assert client.ask(alone) == f"-ERR {alone} without MULTI"
            assert client.ask("SET", "b", "2") == "+OK"


def clients_that_never_read_are_ended(directory):
    with Cluster(directory, "shm", clients_mb=CLIENTS_MB) as cluster, _visited(cluster):
        assert cluster.client(0).ask("SET", "key", b"v" * 1000) == "+OK"
        request = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n" * 50_000
        for _ in attacks.rounds():
            with _raw(cluster) as stream:
                try:
                    while True:
                        stream.sendall(request)
                except ConnectionError:
                    pass
        assert _resident_mb(cluster.processes[0]) < 4 * CLIENTS_MB + 200
        assert int(_info(cluster.client(0))["evicted_clients"]) >= 1
    assert "clients_mb" in cluster.log(0), cluster.log(0)


def requests_that_never_end_hold_bounded_memory(directory):
    half = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8000000\r\n" + b"v" * 7_000_000
    with Cluster(directory, "shm", clients_mb=CLIENTS_MB) as cluster, _visited(cluster):
        for _ in attacks.rounds():
            streams = [_raw(cluster) for _ in range(20)]
            for stream in streams:
                with contextlib.suppress(ConnectionError):
                    stream.sendall(half)
            assert _resident_mb(cluster.processes[0]) < 4 * CLIENTS_MB + 200
            for stream in streams:
                stream.close()


def one_client_more_than_may_be_is_refused(directory):
    with Cluster(directory, "shm", clients=20) as cluster, _visited(cluster):
        for _ in attacks.rounds():
            streams = [_raw(cluster) for _ in range(40)]
            answers = []
            for stream in streams:
                with contextlib.suppress(ConnectionError):
                    stream.sendall(b"PING\r\n")
                    answers.append(stream.recv(100))
            refused = [a for a in answers if a != b"+PONG\r\n"]
            assert refused and set(refused) <= {b"-ERR max number of clients reached\r\n", b""}, answers
            for stream in streams:
                stream.close()
            cluster.wait("clients come again", lambda: _takes_a_client(cluster))
    with Cluster(directory, "shm", clients=3000) as cluster, _visited(cluster):
        streams = [_raw(cluster) for _ in range(2000)]
        for stream in streams:
            stream.sendall(b"PING\r\n")
        assert all(stream.recv(100) == b"+PONG\r\n" for stream in streams)
        for stream in streams:
            stream.close()


def _takes_a_client(cluster):
    with _raw(cluster) as stream, contextlib.suppress(ConnectionError):
        stream.sendall(b"PING\r\n")
        return stream.recv(100) == b"+PONG\r\n"
    return False


def scans_that_cost_much_leave_time_for_others(directory):
    pattern = b"*" + b"a" * 1000 + b"b"
    with Cluster(directory, "shm") as cluster, _visited(cluster):
        client = cluster.client(0)
        for i in range(300):
            client.send("SET", b"a" * 8000 + b"%d" % i, "v")
        assert all(client.reply() == "+OK" for _ in range(300))
        for _ in attacks.rounds():
            streams = [_raw(cluster) for _ in range(4)]
            for stream in streams:
                stream.sendall(b"*6\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nMATCH\r\n$%d\r\n%s\r\n$5\r\nCOUNT\r\n$5\r\n10000\r\n"
                               % (len(pattern), pattern) * 20)
            for stream in streams:
                answer = stream.recv(4)
                assert answer == b"*2\r\n", answer
                stream.close()
    assert "suspected" not in cluster.log(1)


def _info(client):
    return dict(line.split(":", 1) for line in client.ask("INFO").decode().splitlines() if ":" in line)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
