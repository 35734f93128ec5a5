"""A broker and a stock Kafka client, kcat, as a user runs them: broker.py HOLDFAST."""
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import kafka_wire
import program

SMALL = ["-X", "batch.size=16384"]  # batches that fit a small segment
FETCH, METADATA, OFFSET_COMMIT, JOIN_GROUP, LIST_GROUPS = 1, 3, 8, 11, 16
OFFSET_METADATA_TOO_LARGE, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID = 12, 23, 24
NUMBERS = "".join(f"{n}\n" for n in range(1000))


def _node(name, number, port):
    """The keys of a node with two soft rails, on loopback addresses of this test's own."""
    network = f"127.{40 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
    return {"name": name, "rails": [
        {"name": f"r{rail}", "kind": "soft", "address": f"{network}.{2 * number + rail}",
         "control": f"{network}.{2 * number + rail}:{port}"} for rail in range(2)]}


class _Broker:
    """A broker in `directory` on a port that the system chooses; `more` are keys of its section, `node` of its node."""

    def __init__(self, directory, node=None, **more):
        self.directory = directory
        config = {"node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "logs"}
        config.update({key.replace("_", "."): value for key, value in more.items()})
        (pathlib.Path(directory) / "broker.json").write_text(json.dumps({**(node or {}), "broker": config}))
        self.start()

    def start(self):
        self.process = program.start(self.directory, "broker", "--config", "broker.json")
        line = program.read_until(self.process, ["listens on"])
        self.address = line.split("PLAINTEXT://")[1].split(",")[0]

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=program.RUN_LIMIT_S)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def _kcat(broker, *arguments, text=None):
    if shutil.which("kcat") is None:
        raise program.Skip("kcat is not installed (scripts/packages.txt)")
    done = subprocess.run(["kcat", "-b", broker.address, "-m", "60", *arguments], input=text, text=True, capture_output=True,
                          timeout=60)
    assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stdout[-500:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _read(broker, topic):
    return _kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q")


def kcat_produces_and_consumes(directory):
    with _Broker(directory) as broker:
        _kcat(broker, "-P", "-t", "numbers", text=NUMBERS)
        assert _read(broker, "numbers") == NUMBERS
        listed = json.loads(_kcat(broker, "-L", "-J"))
        assert [(topic["topic"], len(topic["partitions"])) for topic in listed["topics"]] == [("numbers", 1)]
        assert _kcat(broker, "-Q", "-t", "numbers:0:-1").split() == ["numbers", "[0]", "offset", "1000"]


def a_broker_with_rails_serves_all_the_same(directory):
    node = _node("broker", 1, 18515)
    with _Broker(directory, node=node) as broker:
        _kcat(broker, "-P", "-t", "numbers", text=NUMBERS)
        assert _read(broker, "numbers") == NUMBERS
        for rail in node["rails"]:
            host, port = rail["control"].split(":")
            socket.create_connection((host, int(port)), timeout=60).close()
        status, _, err = broker.stop()
        assert status == 0, err


def lines_are_produced_and_consumed_over_rails_and_without(directory):
    with _Broker(directory, node=_node("broker", 1, 18515)) as broker:
        (pathlib.Path(directory) / "client.json").write_text(json.dumps(_node("client", 2, 18515)))
        for topic, more in (("rails", ["--config", "client.json"]), ("tcp", [])):
            to = ["--brokers", broker.address, "--topic", topic, *more]
            made = subprocess.run([program.HOLDFAST, "produce", *to], cwd=directory, input=NUMBERS, text=True,
                                  capture_output=True, timeout=60)
            assert made.returncode == 0, made.stderr
            assert program.run(directory, "consume", *to, "--exit", check=0).stdout == NUMBERS
            assert program.run(directory, "consume", *to, "--exit", "--from", "998", check=0).stdout == "998\n999\n"
            assert _read(broker, topic) == NUMBERS
        wrong = program.run(directory, "consume", *to, "--partition", "7", check=2)
        assert "the topic tcp has 1 partitions, numbered from 0" in wrong.stderr, wrong.stderr


def a_wait_without_a_record_ends(directory):
    with _Broker(directory) as broker:
        client = _Client(broker)
        client.ask(METADATA, 4, struct.pack(">i", 1) + _text("empty") + b"\x01")
        for option in ("--brokers", "--broker"):  # the earlier spelling
            done = program.run(directory, "consume", option, broker.address, "--topic", "empty", "--timeout", "0.2", check=1)
            assert "no record came within --timeout" in done.stderr, done.stderr
        broker.stop()
        done = subprocess.run([program.HOLDFAST, "produce", "--brokers", broker.address, "--topic", "empty", "--timeout", "0.2"],
                              cwd=directory, input=NUMBERS, text=True, capture_output=True, timeout=60)
        assert done.returncode == 1 and "no record was acknowledged within --timeout" in done.stderr, done
        program.run(directory, "consume", "--brokers", broker.address, "--topic", "empty", "--timeout", "x", check=2)


def every_codec_and_an_idempotent_producer_work(directory):
    with _Broker(directory) as broker:
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            _kcat(broker, "-P", "-t", codec, "-z", codec, text=NUMBERS)
            assert _read(broker, codec) == NUMBERS, codec
        _kcat(broker, "-P", "-t", "once", "-X", "enable.idempotence=true", text=NUMBERS)
        assert _read(broker, "once") == NUMBERS


def records_outlive_a_stop_and_a_kill(directory):
    with _Broker(directory, log_segment_bytes=65536) as broker:
        big = "".join(f"{n:0>500}\n" for n in range(1000))
        _kcat(broker, "-P", "-t", "big", *SMALL, text=big)
        assert len(list(pathlib.Path(directory, "logs", "big-0").glob("*.log"))) > 3
        for how in (signal.SIGTERM, signal.SIGKILL):
            status, _, err = broker.stop(how)
            assert status == (0 if how == signal.SIGTERM else -signal.SIGKILL), err
            broker.start()
            assert _read(broker, "big") == big
        _kcat(broker, "-P", "-t", "big", text=NUMBERS)
        assert _read(broker, "big") == big + NUMBERS


def records_without_a_timestamp_age_by_the_time_of_their_file(directory):
    week_ms, now_ms = 7 * 86_400_000, int(time.time() * 1000)  # by default records live a week
    with _Broker(directory, log_retention_check_interval_ms=1000) as broker:
        with _wire(broker) as client:
            assert client.create("none") == client.create("old") == 0
            assert client.produce("none", kafka_wire.batch([b"a", b"b"], first_ms=-1)) == (0, 0)
            for offset in range(2):  # the second is gone: each log was looked at in between
                assert client.produce("old", kafka_wire.batch([b"c"], first_ms=now_ms - week_ms - 60_000)) == (0, offset)
                _wait_for_start(client, "old", offset + 1)
            assert client.fetch("none", 0)[1:3] == (2, 0)
        broker.stop()
        for path in pathlib.Path(directory, "logs", "none-0").glob("*.log"):
            os.utime(path, times=(now_ms / 1000 - 8 * 86_400,) * 2)
        broker.start()
        with _wire(broker) as client:
            _wait_for_start(client, "none", 2)


def _wire(broker):
    host, port = broker.address.split(":")
    return kafka_wire.Client((host, int(port)))


def _wait_for_start(client, topic, offset):
    end = time.monotonic() + 60
    while client.fetch(topic, offset)[2] != offset:
        assert time.monotonic() < end, f"{topic} does not begin at {offset}"
        time.sleep(0.05)


def a_waiting_consumer_gets_what_is_produced(directory):
    with _Broker(directory) as broker:
        _kcat(broker, "-P", "-t", "tail", text="first\n")
        reader = subprocess.Popen(["kcat", "-b", broker.address, "-C", "-t", "tail", "-q", "-u", "-c", "2"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert reader.stdout.readline() == "first\n"
        _kcat(broker, "-P", "-t", "tail", text="second\n")
        assert reader.stdout.readline() == "second\n"
        assert reader.wait(timeout=60) == 0


def lines_that_cannot_be_written_are_not_committed(directory):
    with _Broker(directory, group_initial_rebalance_delay_ms=0) as broker:
        _kcat(broker, "-P", "-t", "numbers", text=NUMBERS)
        group = [program.HOLDFAST, "consume", "--brokers", broker.address, "--topic", "numbers", "--group", "g"]
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(group, cwd=directory, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and "standard output cannot be written" in done.stderr, done
        assert program.run(directory, *group[1:], "--count", "1000", check=0).stdout == NUMBERS


def a_group_goes_on_where_it_was(directory):
    def read_in_group(broker):
        return _kcat(broker, "-G", "readers", "-X", "auto.offset.reset=earliest", "-e", "-q", "numbers")

    with _Broker(directory, group_initial_rebalance_delay_ms=0) as broker:
        _kcat(broker, "-P", "-t", "numbers", text=NUMBERS)
        assert read_in_group(broker) == NUMBERS
        for how in (signal.SIGTERM, signal.SIGKILL):
            broker.stop(how)
            broker.start()
            _kcat(broker, "-P", "-t", "numbers", text="more\n")
            assert read_in_group(broker) == "more\n"


def a_new_topic_has_nothing_of_a_deleted_one(directory):
    with _Broker(directory) as broker:
        _kcat(broker, "-P", "-t", "old", text=NUMBERS)
        broker.stop(signal.SIGKILL)
        # As if the broker had been killed while it deleted the topic `new`.
        shutil.copytree(pathlib.Path(directory, "logs", "old-0"), pathlib.Path(directory, "logs", "new-0"))
        broker.start()
        _kcat(broker, "-P", "-t", "new", text="first\n")
        assert _read(broker, "new") == "first\n"


def a_directory_serves_one_broker(directory):
    with _Broker(directory):
        done = program.run(directory, "broker", "--config", "broker.json")
        assert done.returncode == 2 and "in use by another broker" in done.stderr, done.stderr


def a_directory_of_another_node_is_refused(directory):
    with _Broker(directory) as broker:
        broker.stop()
    text = pathlib.Path(directory, "broker.json").read_text().replace('"node.id": 1', '"node.id": 2')
    pathlib.Path(directory, "broker.json").write_text(text)
    done = program.run(directory, "broker", "--config", "broker.json")
    assert done.returncode == 2 and "belongs to node.id 1" in done.stderr, done.stderr


def a_wrong_configuration_is_refused_with_its_line(directory):
    path = pathlib.Path(directory, "broker.json")
    for text, words in (
            ('{"broker": {"node.id": 1,\n"log.dir": "logs"}}', ["line 2", "log.dir"]),
            ('{"broker": {"node.id": 1,\n"log.dirs": "l",\n"listeners": "SSL://[::1]:9"}}', ["line 3", "PLAINTEXT"]),
            ('{"broker": {"listeners": "PLAINTEXT://127.0.0.1:9", "log.dirs": "l"}}', ["node.id"]),
            ('{}', ["broker"])):
        path.write_text(text)
        done = program.run(directory, "broker", "--config", "broker.json")
        assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr
    done = program.run(directory, "broker")
    assert done.returncode == 2 and "--config" in done.stderr


def a_damaged_log_is_not_served_until_its_loss_is_accepted(directory):
    text = "".join(f"{n:0>500}\n" for n in range(1000))
    with _Broker(directory, log_segment_bytes=65536) as broker:
        _kcat(broker, "-P", "-t", "big", *SMALL, text=text)
        _kcat(broker, "-P", "-t", "numbers", text=NUMBERS)
        broker.stop(signal.SIGKILL)
        second = sorted(pathlib.Path(directory, "logs", "big-0").glob("*.log"))[1]
        with open(second, "r+b") as log:
            log.seek(8)  # the length of the first batch: what is in it is verified later
            log.write(b"damaged")
        before = second.read_bytes()
        broker.start()
        assert _read(broker, "numbers") == NUMBERS
        done = program.run(directory, "consume", "-b", broker.address, "-t", "big", "-p", "0", "--timeout", "3", check=1)
        assert done.stdout == "", done
        _, _, err = broker.stop()
    assert f"{second.name} is damaged" in err and f"offset {int(second.stem)} cannot be read" in err, err
    assert second.read_bytes() == before
    with _Broker(directory, log_segment_bytes=65536, unclean_leader_election_enable=True) as broker:
        left = _read(broker, "big")
        assert text.startswith(left) and len(left.splitlines()) == int(second.stem)
        _, _, err = broker.stop()
    assert "*.damaged" in err, err
    assert list(second.parent.glob("*.log.damaged"))


def a_broker_is_ready_while_all_of_its_logs_serve(directory):
    node = _node("broker", 1, 18515)
    host = node["rails"][0]["address"]
    with _Broker(directory, node=node | {"http": f"{host}:8080"}) as broker:
        with _wire(broker) as client:
            assert client.create("numbers", flush_messages=1) == 0
            for n in range(3):
                assert client.produce("numbers", kafka_wire.batch([b"%d" % n])) == (0, n)
        assert program.page(host, "/ready") == (200, {"node": "broker", "ready": True, "reason": "it serves"})
        broker.stop(signal.SIGKILL)
        log = next(pathlib.Path(directory, "logs", "numbers-0").glob("*.log"))
        data = log.read_bytes()
        log.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
        broker.start()
        status, answer = program.page(host, "/ready")
        assert status == 503 and answer["reason"] == "1 logs are damaged, and are not served", answer
        assert program.page(host, "/health")[0] == 200


def strangers_cost_the_broker_nothing(directory):
    with _Broker(directory) as broker:
        host, port = broker.address.split(":")
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02ab", b"\x00\x00\x00\x0a" + b"\x7f" * 10,
                     b"\x00\x00\x00\x10\x00\x03\x00\x01\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff\x00\x00"):
            with socket.create_connection((host, int(port)), timeout=60) as stream:
                stream.sendall(sent)
                assert stream.recv(100) == b"", sent
        slow = [socket.create_connection((host, int(port))) for _ in range(50)]
        for stream in slow:
            stream.sendall(b"\x05\x00\x00\x00\x00\x00")  # 80 MiB announced, two bytes sent
        _kcat(broker, "-P", "-t", "numbers", text=NUMBERS)
        resident = int(pathlib.Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        assert resident < 256 << 20, resident
        for stream in slow:
            stream.close()


def _text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


class _Client:
    """A client of its own making, for requests that no library sends. `key` and `version` as in Kafka's protocol."""

    def __init__(self, broker):
        host, port = broker.address.split(":")
        self.stream = socket.create_connection((host, int(port)), timeout=60)

    def ask(self, key, version, body):
        return self.ask_all(key, version, [body])[0]

    def ask_all(self, key, version, bodies):
        requests = [struct.pack(">hhi", key, version, n) + _text("raw") + body for n, body in enumerate(bodies)]
        self.stream.sendall(b"".join(struct.pack(">i", len(request)) + request for request in requests))
        answers = [self._take(struct.unpack(">i", self._take(4))[0]) for _ in bodies]
        assert [answer[:4] for answer in answers] == [struct.pack(">i", n) for n in range(len(bodies))]
        return [answer[4:] for answer in answers]

    def _take(self, size):
        data = b""
        while len(data) < size:
            more = self.stream.recv(size - len(data))
            assert more, "the broker ended the connection"
            data += more
        return data


def a_long_fetch_that_waits_keeps_its_request(directory):
    partitions = 80000
    with _Broker(directory) as broker:
        client = _Client(broker)
        client.ask(METADATA, 4, struct.pack(">i", 1) + _text("numbers") + b"\x01")
        body = struct.pack(">iiiibi", -1, 300, 1, 1 << 20, 0, 1) + _text("numbers") + struct.pack(">i", partitions)
        answer = client.ask(FETCH, 4, body + struct.pack(">iqi", 0, 0, 1 << 20) * partitions)
        start = struct.pack(">ii", 0, 1) + _text("numbers") + struct.pack(">iih", partitions, 0, 0)
        assert answer.startswith(start), answer[:40]
        assert broker.stop()[0] == 0


def a_group_id_with_a_nul_is_refused(directory):
    with _Broker(directory) as broker:
        client = _Client(broker)
        for group in ("a\0b", ""):
            commit = _text(group) + struct.pack(">i", -1) + _text("") + struct.pack(">qi", -1, 0)
            client.ask(OFFSET_COMMIT, 2, commit)
            join = _text(group) + struct.pack(">i", 10000) + _text("") + _text("consumer") + struct.pack(">i", 0)
            assert client.ask(JOIN_GROUP, 0, join)[:2] == struct.pack(">h", INVALID_GROUP_ID)
        assert client.ask(LIST_GROUPS, 0, b"") == struct.pack(">hi", 0, 0)


def metadata_of_a_commit_has_a_limit(directory):
    with _Broker(directory, offsets_topic_replication_factor=1) as broker:
        client = _Client(broker)
        client.ask(METADATA, 4, struct.pack(">i", 1) + _text("numbers") + b"\x01")
        for size, error in ((4096, 0), (4097, OFFSET_METADATA_TOO_LARGE)):
            commit = (_text("readers") + struct.pack(">i", -1) + _text("") + struct.pack(">qi", -1, 1) + _text("numbers")
                      + struct.pack(">iiq", 1, 0, 7) + _text("x" * size))
            answer = client.ask(OFFSET_COMMIT, 2, commit)
            assert answer == struct.pack(">i", 1) + _text("numbers") + struct.pack(">iih", 1, 0, error), (size, answer)


def groups_that_nobody_uses_take_no_room(directory):
    most, at_once = 100000, 1000
    with _Broker(directory) as broker:
        client = _Client(broker)
        for first in range(0, most, at_once):
            client.ask_all(OFFSET_COMMIT, 2, [_text(f"group-{n:06}") + struct.pack(">i", -1) + _text("")
                                              + struct.pack(">qi", -1, 0) for n in range(first, first + at_once)])
        join = _text("one-more") + struct.pack(">i", 10000) + _text("") + _text("consumer") + struct.pack(">i", 0)
        assert client.ask(JOIN_GROUP, 0, join)[:2] == struct.pack(">h", INCONSISTENT_GROUP_PROTOCOL)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
