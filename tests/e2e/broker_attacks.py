#!/usr/bin/env python3
"""broker_attacks.py PROGRAM [SECONDS] - clients that do what no client should, at a broker (attacks.py)."""
import contextlib
import gzip
import os
import pathlib
import random
import struct
import sys
import threading
import time

import attacks
import broker
import kafka_wire
import program
from kafka_wire import FETCH, METADATA, PRODUCE, batch_of, record, request

MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87
MIB = 1 << 20
ATTACKERS = 20


def _address(of):
    host, port = of.address.split(":")
    return host, int(port)


def _connect(of, source=None):
    return kafka_wire.Client(_address(of), source=source)


def _fetch(topic, wait_ms):
    return (struct.pack(">iiiibii", -1, wait_ms, 1, MIB, 0, 0, -1) + struct.pack(">i", 1) + kafka_wire.text(topic) +
            struct.pack(">iiiqqi", 1, 0, -1, 1 << 40, -1, MIB) + struct.pack(">i", 0) + kafka_wire.text(""))


def _visited(of):
    """A client that appends records of three sizes, plain and packed."""
    client, end = _connect(of), [0]
    client.create("visitor")
    values = [b"small", os.urandom(5000), os.urandom(200_000)]
    batches = [batch_of(1, pack(record(0, value)), attributes)
               for value in values for attributes, pack in ((0, bytes), (1, gzip.compress))]

    def append(batch):
        assert (answer := client.produce("visitor", batch)) == (0, end[0]), (answer, end)
        end[0] += 1

    return attacks.visited(lambda _: [lambda batch=batch: append(batch) for batch in batches], [of.process])


def _resident(of):  # the segments that are mapped do not count
    for line in pathlib.Path(f"/proc/{of.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def _attack(of, attack, count=ATTACKERS):
    """`count` threads that repeat attack(n) until the time is over, at least once each; errors of their connections are
    no faults. Returns the largest memory of the broker."""
    until, largest = time.monotonic() + attacks.SECONDS, 0

    def repeat(n):
        while True:
            with contextlib.suppress(EOFError, OSError):
                attack(n)
            if time.monotonic() >= until:
                return

    threads = [threading.Thread(target=repeat, args=[n], daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        largest = max(largest, _resident(of))
        time.sleep(0.02)
    return largest


LIMITS = {"socket_request_max_bytes": 32 * MIB, "queued_max_request_bytes": 64 * MIB}


def _stay(client):
    """Until the broker ends the connection, or a while."""
    client.stream.settimeout(min(attacks.SECONDS, 5) or 0.5)
    with contextlib.suppress(OSError):
        client.stream.recv(1)
    client.stream.close()


def half_of_large_requests_is_sent(directory):
    piece = bytes(MIB)
    with broker._Broker(directory, **LIMITS) as of, _visited(of):
        before = _resident(of)

        def half(n):
            client = _connect(of)
            client.stream.sendall(request(METADATA, 4, b"", 30 * MIB))
            for _ in range(16 + n % 14):
                client.stream.sendall(piece)
            _stay(client)

        largest = _attack(of, half) - before
        print(f"# {largest // MIB} MiB more at most")
        assert largest < 300 * MIB, largest


def answers_of_large_requests_are_not_read(directory):
    behind = bytes(20 * MIB)  # behind the message, and held as long as it is
    with broker._Broker(directory, **LIMITS) as of, _visited(of):
        client = _connect(of)
        client.create("empty")
        before = _resident(of)

        def unread(n):
            client = _connect(of)
            body = _fetch("empty", 1 << 30) if n % 2 == 0 else struct.pack(">ib", -1, 0)
            client.stream.sendall(request(FETCH if n % 2 == 0 else METADATA, 11 if n % 2 == 0 else 4, body + behind))
            client.stream.sendall(request(METADATA, 4, b"", 30 * MIB))
            _stay(client)

        largest = _attack(of, unread) - before
        print(f"# {largest // MIB} MiB more at most")
        assert largest < 300 * MIB, largest


def batches_unpack_to_very_much(directory):
    def bomb(mib):
        return batch_of(1, gzip.compress(record(0, bytes(mib * MIB)), 6), 1)

    large, too_large = bomb(200), bomb(300)
    with broker._Broker(directory) as of, _visited(of):
        client = _connect(of)
        client.create("bombs")
        before = _resident(of)
        assert client.produce("bombs", large) == (0, 0)
        assert client.produce("bombs", too_large)[0] == MESSAGE_TOO_LARGE

        def throw(n):
            attacker = _connect(of)
            assert attacker.produce("bombs", large if n % 2 == 0 else too_large)[0] in (0, MESSAGE_TOO_LARGE)
            attacker.stream.sendall(request(PRODUCE, 7, kafka_wire.produce_body("bombs", large)))
            attacker.stream.close()  # while it is looked into

        largest = _attack(of, throw, 4) - before
        print(f"# {largest // MIB} MiB more at most")
        assert largest < 300 * MIB, largest


def batches_are_wrong_inside(directory):
    records = b"".join(record(n, b"value %d" % n) for n in range(3))
    packed = gzip.compress(records)
    wrong = [batch_of(3, records, 1), batch_of(5, packed, 1), batch_of(1, packed, 1), batch_of(3, packed[:-9], 1),
             batch_of(3, packed + b"more", 1), batch_of(3, gzip.compress(records[:-1]), 1), batch_of(5, records),
             batch_of(3, packed, 2), batch_of(3, packed, 3), batch_of(3, packed, 4), batch_of(3, packed)]
    with broker._Broker(directory) as of, _visited(of):
        client = _connect(of)
        client.create("mixed")

        def send(_):
            attacker = _connect(of)
            answers = {attacker.produce("mixed", batch)[0] for batch in wrong}
            assert answers == {INVALID_RECORD}, answers
            attacker.stream.close()

        send(0)
        _attack(of, send, 4)
        assert client.produce("mixed", batch_of(3, packed, 1 | 8))[0] == INVALID_TIMESTAMP
        assert client.produce("mixed", batch_of(3, packed, 1)) == (0, 0)
        assert client.produce("mixed", batch_of(3, records)) == (0, 3)
        assert broker._read(of, "mixed").split("\n")[:-1] == ["value 0", "value 1", "value 2"] * 2


def bytes_are_no_requests(directory):
    with broker._Broker(directory) as of, _visited(of):
        chance = random.Random(1)

        def talk(_):
            attacker = _connect(of)
            key, version = chance.randrange(-1, 60), chance.randrange(-1, 14)
            junk = chance.randbytes(chance.randrange(3000))
            attacker.stream.sendall(chance.choice([junk, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", request(key, version, junk)]))
            attacker.stream.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                attacker.stream.recv(65536)
            attacker.stream.close()

        for _ in range(1 if attacks.SECONDS else 10):
            _attack(of, talk)


def one_address_connects_too_often(directory):
    with broker._Broker(directory, max_connections_per_ip=10) as of:
        others = [_connect(of, "127.0.0.2") for _ in range(10)]
        with _visited(of):
            for _ in attacks.rounds():
                for _ in range(30):
                    with contextlib.suppress(OSError):
                        more = _connect(of, "127.0.0.2")
                        assert more.stream.recv(1) == b"", "a connection above max.connections.per.ip is open"
                        more.stream.close()
            others[0].call(METADATA, 4, struct.pack(">ib", -1, 0))
            others.pop().stream.close()
            end = time.monotonic() + 60
            while True:  # the broker notices the end of a connection in a turn of its own
                with contextlib.suppress(EOFError, OSError):
                    _connect(of, "127.0.0.2").call(METADATA, 4, struct.pack(">ib", -1, 0))
                    break
                assert time.monotonic() < end, "no connection is allowed again"
        out = of.stop()
        assert out[0] == 0 and "max.connections.per.ip" in out[2], out


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
