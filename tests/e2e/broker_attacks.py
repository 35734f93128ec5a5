#!/usr/bin/env python3
"""broker_attacks.py PROGRAM [SECONDS] - clients that do what no client should, each beside a well-behaved one. With SECONDS
each attack lasts that long, and the well-behaved client must be served within one of them; without, it must be served."""
import contextlib
import gzip
import os
import pathlib
import random
import socket
import struct
import sys
import threading
import time

import broker
import program

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0
PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87
MIB = 1 << 20
ATTACKERS = 20
CRC = [0] * 256
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82F63B78 if _c & 1 else 0)
    CRC[_i] = _c


def _crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _varint(n):
    n, out = n << 1 if n >= 0 else ~(n << 1), b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def _record(n, value):
    body = b"\0" + _varint(n) + _varint(n) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _batch(count, records, attributes=0):
    now = int(time.time() * 1000)
    rest = struct.pack(">hiqqqhii", attributes, count - 1, now, now, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, _crc32c(rest)) + rest


def _text(text):
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def _request(key, version, body, more=0):
    """`more`: bytes that are announced and do not follow."""
    message = struct.pack(">hhi", key, version, 1) + _text("attacks") + body
    return struct.pack(">i", len(message) + more) + message


class _Client:
    def __init__(self, of, source="127.0.0.1"):
        host, port = of.address.split(":")
        self.stream = socket.create_connection((host, int(port)), 60, (source, 0))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _read(self, n):
        data = b""
        while len(data) < n:
            piece = self.stream.recv(n - len(data))
            if not piece:
                raise EOFError("the broker closed the connection")
            data += piece
        return data

    def ask(self, key, version, body):
        self.stream.sendall(_request(key, version, body))
        return self._read(struct.unpack(">i", self._read(4))[0])[4:]

    def create(self, topic):
        self.ask(CREATE_TOPICS, 2, struct.pack(">i", 1) + _text(topic) + struct.pack(">ihiiib", 1, 1, 0, 0, 20000, 0))

    def produce(self, topic, batch):
        """Error and offset."""
        answer = self.ask(PRODUCE, 7, _produce(topic, batch))
        return struct.unpack(">hq", answer[14 + len(topic):24 + len(topic)])

    def close(self):
        self.stream.close()


def _produce(topic, batch):
    return _text(None) + struct.pack(">hii", -1, 20000, 1) + _text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch


def _fetch(topic, wait_ms):
    return (struct.pack(">iiiibii", -1, wait_ms, 1, MIB, 0, 0, -1) + struct.pack(">i", 1) + _text(topic) +
            struct.pack(">iiiqqi", 1, 0, -1, 1 << 40, -1, MIB) + struct.pack(">i", 0) + _text(""))


class _Visitor(threading.Thread):
    """A client that appends records of three sizes, plain and packed."""

    def __init__(self, of):
        super().__init__(daemon=True)
        self.client, self.ended, self.wrong, self.worst, self.rounds = _Client(of), threading.Event(), None, 0, 0
        self.client.create("visitor")
        values = [b"small", os.urandom(5000), os.urandom(200_000)]
        self.batches = [_batch(1, pack(_record(0, value)), attributes)
                        for value in values for attributes, pack in ((0, bytes), (1, gzip.compress))]

    def run(self):
        end = None
        try:
            while not self.ended.is_set():
                for batch in self.batches:
                    begun = time.monotonic()
                    error, offset = self.client.produce("visitor", batch)
                    self.worst = max(self.worst, time.monotonic() - begun)
                    assert error == 0 and end in (None, offset), (error, offset, end)
                    end = offset + 1
                self.rounds += 1
                self.ended.wait(0.01)
        except (AssertionError, EOFError, OSError) as error:
            self.wrong = error


@contextlib.contextmanager
def _visited(of):
    """While this lasts, and for a further round, a well-behaved client is served."""
    visitor = _Visitor(of)
    visitor.start()
    try:
        yield
        rounds, end = visitor.rounds, time.monotonic() + 60
        while visitor.rounds <= rounds + 1 and visitor.wrong is None and time.monotonic() < end:
            time.sleep(0.02)
        assert visitor.wrong is not None or visitor.rounds > rounds + 1, "a visitor is not served"
    finally:
        visitor.ended.set()
        visitor.join()
    print(f"# {visitor.rounds} rounds of the visitor, the longest reply took {visitor.worst * 1000:.0f} ms")
    assert visitor.wrong is None, visitor.wrong
    assert of.process.poll() is None, "the broker has ended"
    assert SECONDS == 0 or visitor.worst < 1, visitor.worst


def _resident(of):  # the segments that are mapped do not count
    for line in pathlib.Path(f"/proc/{of.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def _attack(of, attack, count=ATTACKERS):
    """`count` threads that repeat attack(n) until the time is over, at least once each; errors of their connections are
    no faults. Returns the largest memory of the broker."""
    until, largest = time.monotonic() + SECONDS, 0

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
    client.stream.settimeout(min(SECONDS, 5) or 0.5)
    with contextlib.suppress(OSError):
        client.stream.recv(1)
    client.close()


def half_of_large_requests_is_sent(directory):
    piece = bytes(MIB)
    with broker._Broker(directory, **LIMITS) as of, _visited(of):
        before = _resident(of)

        def half(n):
            client = _Client(of)
            client.stream.sendall(_request(METADATA, 4, b"", 30 * MIB))
            for _ in range(16 + n % 14):
                client.stream.sendall(piece)
            _stay(client)

        largest = _attack(of, half) - before
        print(f"# {largest // MIB} MiB more at most")
        assert largest < 300 * MIB, largest


def answers_of_large_requests_are_not_read(directory):
    behind = bytes(20 * MIB)  # behind the message, and held as long as it is
    with broker._Broker(directory, **LIMITS) as of, _visited(of):
        client = _Client(of)
        client.create("empty")
        before = _resident(of)

        def unread(n):
            client = _Client(of)
            body = _fetch("empty", 1 << 30) if n % 2 == 0 else struct.pack(">ib", -1, 0)
            client.stream.sendall(_request(FETCH if n % 2 == 0 else METADATA, 11 if n % 2 == 0 else 4, body + behind))
            client.stream.sendall(_request(METADATA, 4, b"", 30 * MIB))
            _stay(client)

        largest = _attack(of, unread) - before
        print(f"# {largest // MIB} MiB more at most")
        assert largest < 300 * MIB, largest


def batches_unpack_to_very_much(directory):
    def bomb(mib):
        return _batch(1, gzip.compress(_record(0, bytes(mib * MIB)), 6), 1)

    large, too_large = bomb(200), bomb(300)
    with broker._Broker(directory) as of, _visited(of):
        client = _Client(of)
        client.create("bombs")
        before = _resident(of)
        assert client.produce("bombs", large) == (0, 0)
        assert client.produce("bombs", too_large)[0] == MESSAGE_TOO_LARGE

        def throw(n):
            attacker = _Client(of)
            assert attacker.produce("bombs", large if n % 2 == 0 else too_large)[0] in (0, MESSAGE_TOO_LARGE)
            attacker.stream.sendall(_request(PRODUCE, 7, _produce("bombs", large)))
            attacker.close()  # while it is looked into

        largest = _attack(of, throw, 4) - before
        print(f"# {largest // MIB} MiB more at most")
        assert largest < 300 * MIB, largest


def batches_are_wrong_inside(directory):
    records = b"".join(_record(n, b"value %d" % n) for n in range(3))
    packed = gzip.compress(records)
    wrong = [_batch(3, records, 1), _batch(5, packed, 1), _batch(1, packed, 1), _batch(3, packed[:-9], 1),
             _batch(3, packed + b"more", 1), _batch(3, gzip.compress(records[:-1]), 1), _batch(5, records), _batch(3, packed, 2),
             _batch(3, packed, 3), _batch(3, packed, 4), _batch(3, packed)]
    with broker._Broker(directory) as of, _visited(of):
        client = _Client(of)
        client.create("mixed")

        def send(_):
            attacker = _Client(of)
            answers = {attacker.produce("mixed", batch)[0] for batch in wrong}
            assert answers == {INVALID_RECORD}, answers
            attacker.close()

        send(0)
        _attack(of, send, 4)
        assert client.produce("mixed", _batch(3, packed, 1 | 8))[0] == INVALID_TIMESTAMP
        assert client.produce("mixed", _batch(3, packed, 1)) == (0, 0)
        assert client.produce("mixed", _batch(3, records)) == (0, 3)
        assert broker._read(of, "mixed").split("\n")[:-1] == ["value 0", "value 1", "value 2"] * 2


def bytes_are_no_requests(directory):
    with broker._Broker(directory) as of, _visited(of):
        chance = random.Random(1)

        def talk(_):
            attacker = _Client(of)
            key, version = chance.randrange(-1, 60), chance.randrange(-1, 14)
            junk = chance.randbytes(chance.randrange(3000))
            attacker.stream.sendall(chance.choice([junk, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", _request(key, version, junk)]))
            attacker.stream.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                attacker.stream.recv(65536)
            attacker.close()

        for _ in range(10):
            _attack(of, talk)


def one_address_connects_too_often(directory):
    with broker._Broker(directory, max_connections_per_ip=10) as of:
        others = [_Client(of, "127.0.0.2") for _ in range(10)]
        with _visited(of):
            for _ in range(30):
                with contextlib.suppress(OSError):
                    more = _Client(of, "127.0.0.2")
                    assert more.stream.recv(1) == b"", "a connection above max.connections.per.ip is open"
            others[0].ask(METADATA, 4, struct.pack(">ib", -1, 0))
            others.pop().close()
            end = time.monotonic() + 60
            while True:  # the broker notices the end of a connection in a turn of its own
                with contextlib.suppress(EOFError, OSError):
                    _Client(of, "127.0.0.2").ask(METADATA, 4, struct.pack(">ib", -1, 0))
                    break
                assert time.monotonic() < end, "no connection is allowed again"
        out = of.stop()
        assert out[0] == 0 and "max.connections.per.ip" in out[2], out


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
