"""A Kafka client of a few requests, byte by byte, for tests that must see each error: it hides none."""
import socket
import struct
import time

LIMIT_S = 60
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, CREATE_TOPICS = 0, 1, 2, 3, 8, 9, 19
STORAGE_ERROR = 56


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _varint(n):
    n, out = (n << 1 ^ n >> 63) & (1 << 64) - 1, b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def record(i, value, delta_ms=0):
    body = b"\0" + _varint(delta_ms) + _varint(i) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def batch_of(count, records, attributes=0, producer=-1, sequence=-1, first_ms=None, last_ms=None):
    """A batch around bytes that may be anything; without a time, of now."""
    first_ms = int(time.time() * 1000) if first_ms is None else first_ms
    last_ms = first_ms if last_ms is None else last_ms
    epoch = -1 if producer < 0 else 0
    tail = struct.pack(">hiqqqhii", attributes, count - 1, first_ms, last_ms, producer, epoch, sequence, count) + records
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def batch(values, producer=-1, sequence=-1, first_ms=None):
    records = b"".join(record(i, value) for i, value in enumerate(values))
    return batch_of(len(values), records, producer=producer, sequence=sequence, first_ms=first_ms)


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def request(key, version, body, more=0):
    """`more`: bytes that are announced and do not follow."""
    message = struct.pack(">hhi", key, version, 1) + text("test") + body
    return struct.pack(">i", len(message) + more) + message


def produce_body(topic, data, partition=0):
    return (text(None) + struct.pack(">hii", -1, 20000, 1) + text(topic) + struct.pack(">iii", 1, partition, len(data))
            + data)


class Client:
    """One connection to one broker."""

    def __init__(self, address, timeout=LIMIT_S, source=None):
        self.stream = socket.create_connection(address, timeout, source and (source, 0))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def _read(self, count):
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                raise EOFError("the broker has closed the connection")
            data += more
        return data

    def call(self, key, version, body):
        self.stream.sendall(request(key, version, body))
        return self._read(struct.unpack(">i", self._read(4))[0])[4:]

    def create(self, topic, replicas=1, **configs):
        body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", 1, replicas, 0, len(configs))
        body += b"".join(text(key.replace("_", ".")) + text(str(value)) for key, value in configs.items())
        answer = self.call(CREATE_TOPICS, 2, body + struct.pack(">ib", 20000, 0))
        return struct.unpack(">h", answer[10 + len(topic):12 + len(topic)])[0]

    def produce(self, topic, data, partition=0):
        """Error and offset."""
        answer = self.call(PRODUCE, 7, produce_body(topic, data, partition))
        return struct.unpack(">hq", answer[14 + len(topic):24 + len(topic)])

    def fetch(self, topic, offset, partition=0):
        """Error, high watermark, start of the log, bytes."""
        body = struct.pack(">iiiibii", -1, 100, 1, 1 << 23, 0, 0, -1) + struct.pack(">i", 1) + text(topic)
        body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, 1 << 23) + struct.pack(">i", 0) + text("")
        answer, at = self.call(FETCH, 11, body), 20 + len(topic)
        error, hw, _, start, aborted = struct.unpack(">xxxxhqqqi", answer[at:at + 34])
        return error, hw, start, answer[at + 34 + max(aborted, 0) * 16 + 8:]

    def read(self, topic, offset=0):
        """Error, and the values of whole batches up to the high watermark; None stands for a batch whose CRC is wrong."""
        values = []
        while True:
            error, hw, start, data = self.fetch(topic, max(offset, 0))
            if error != 0:
                return error, values
            if offset >= hw:
                return 0, values
            if offset < start:
                return -1, values
            before = offset
            while len(data) >= 61:
                base, length, _, _, crc = struct.unpack(">qiibI", data[:21])
                if length + 12 > len(data):
                    break
                last, count = struct.unpack(">i", data[23:27])[0], struct.unpack(">i", data[57:61])[0]
                right = crc == crc32c(data[21:12 + length])
                values += _values(data[61:12 + length], count) if right else [None] * count
                offset, data = base + last + 1, data[12 + length:]
            if offset >= hw:  # another fetch would wait for records
                return 0, values
            if offset == before:
                return -1, values

    def offset_at(self, topic, time_ms):
        """Error, timestamp and offset of the first record that is not older."""
        body = struct.pack(">ibi", -1, 0, 1) + text(topic) + struct.pack(">iiiq", 1, 0, -1, time_ms)
        answer = self.call(LIST_OFFSETS, 5, body)
        return struct.unpack(">hqq", answer[18 + len(topic):36 + len(topic)])

    def commit(self, group, topic, offset):
        body = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1) + struct.pack(">i", 1) + text(topic)
        body += struct.pack(">iiq", 1, 0, offset) + text("")
        return struct.unpack(">h", self.call(OFFSET_COMMIT, 2, body)[-2:])[0]

    def committed(self, group, topic):
        """Error and offset."""
        answer = self.call(OFFSET_FETCH, 2, text(group) + struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, 0))
        whole = struct.unpack(">h", answer[-2:])[0]
        at = 4 + 2 + len(topic) + 4
        if whole != 0:
            return whole, -1
        _, offset, metadata = struct.unpack(">iqh", answer[at:at + 14])
        error = struct.unpack(">h", answer[at + 14 + max(metadata, 0):at + 16 + max(metadata, 0)])[0]
        return error, offset

    def topics(self):
        answer = self.call(METADATA, 1, struct.pack(">i", -1))
        names, brokers, at = [], struct.unpack(">i", answer[:4])[0], 4
        for _ in range(brokers):
            at += 4
            at += 2 + struct.unpack(">h", answer[at:at + 2])[0] + 4
            at += 2 + max(struct.unpack(">h", answer[at:at + 2])[0], 0)
        at += 4
        count, at = struct.unpack(">i", answer[at:at + 4])[0], at + 4
        for _ in range(count):
            bytes_ = struct.unpack(">h", answer[at + 2:at + 4])[0]
            names.append(answer[at + 4:at + 4 + bytes_].decode())
            at += 4 + bytes_ + 1
            partitions, at = struct.unpack(">i", answer[at:at + 4])[0], at + 4
            for _ in range(partitions):
                at += 10
                for _ in range(2):
                    at += 4 + 4 * struct.unpack(">i", answer[at:at + 4])[0]
        return names


def _unvarint(data, at):
    shift = value = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value >> 1 ^ -(value & 1), at


def _values(data, count):
    values, at = [], 0
    for _ in range(count):
        length, at = _unvarint(data, at)
        end, place = at + length, at + 1
        _, place = _unvarint(data, place)
        _, place = _unvarint(data, place)
        key, place = _unvarint(data, place)
        size, place = _unvarint(data, place + max(key, 0))
        values.append(data[place:place + size])
        at = end
    return values
