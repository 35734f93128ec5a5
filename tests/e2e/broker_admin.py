"""`holdfast topics` and `holdfast groups` against one broker and three: broker_admin.py HOLDFAST."""
import json
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import broker
import broker_cluster
import program

LIMIT_S = 60
METADATA, LIST_GROUPS, API_VERSIONS = 3, 16, 18


def _run(directory, command, address, *arguments, check=0):
    return program.run(directory, command, "--brokers", address, *arguments, check=check)


def _json(directory, command, address, *arguments):
    return json.loads(_run(directory, command, address, *arguments, "--json").stdout)


def _refused(directory, words, command, address, *arguments, status=1):
    """The sentence of a failure, which has these words; nothing else is printed."""
    done = _run(directory, command, address, *arguments, check=status)
    assert done.stdout == "" and done.stderr.startswith(f"holdfast {command}: "), done
    assert done.stderr.count("\n") == 1 and all(word in done.stderr for word in words), done.stderr
    return done.stderr


def _kcat(address, *arguments, text=None):
    if shutil.which("kcat") is None:
        raise program.Skip("kcat is not installed (scripts/packages.txt)")
    done = subprocess.run(["kcat", "-b", address, "-m", "60", *arguments], input=text, text=True, capture_output=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _until(find, words):
    end = time.monotonic() + LIMIT_S
    while not (found := find()):
        assert time.monotonic() < end, words if isinstance(words, str) else words()
        time.sleep(0.05)
    return found


def _settles(directory, holds, command, address, *arguments):
    """Asks until the answer is so: a broker that stands still for half a second is in no isr for a moment."""
    def ask():
        done = _run(directory, command, address, *arguments, "--json", check=None)
        found = json.loads(done.stdout) if done.returncode == 0 else None
        return found if found is not None and holds(found) else None
    return _until(ask, f"{command} {arguments} does not become what it is to be")


def topics_are_created_listed_described_and_deleted(directory):
    with broker._Broker(directory, num_partitions=2) as of:
        assert _run(directory, "topics", of.address).stdout == ""
        made = _run(directory, "topics", of.address, "create", "three", "--partitions", "3", "--replicas", "1",
                    "--config", "segment.bytes=65536", "--config", "retention.ms=60000")
        assert made.stdout == "created topic three: 3 partitions, 1 replica\n"
        assert _json(directory, "topics", of.address, "create", "default") == {
            "topic": "default", "created": True, "partitions": 2, "replicas": 1}
        assert _run(directory, "topics", of.address, "list").stdout == (
            "default: 2 partitions, 1 replica\nthree: 3 partitions, 1 replica\n")
        assert _json(directory, "topics", of.address)["topics"][1] == {
            "topic": "three", "partitions": 3, "replicas": 1, "internal": False}
        found = _json(directory, "topics", of.address, "describe", "three")
        assert found == {"topic": "three", "internal": False, "partitions": [
            {"partition": n, "leader": 1, "epoch": 0, "replicas": [1], "isr": [1], "offline": []} for n in range(3)]}
        lines = _run(directory, "topics", of.address, "describe", "three").stdout.splitlines()
        assert lines[0] == "topic three: 3 partitions, 1 replica" and len(lines) == 4
        assert lines[3] == "  partition 2: broker 1 leads in epoch 0, replicas 1, in sync 1"
        _kcat(of.address, "-P", "-t", "three", *broker.SMALL, text="".join(f"{n:0>500}\n" for n in range(1000)))
        assert any(len(list(pathlib.Path(directory, "logs", f"three-{n}").glob("*.log"))) > 1 for n in range(3)), (
            "segment.bytes is not that of the topic")
        assert _run(directory, "topics", of.address, "delete", "three").stdout == "deleted topic three\n"
        assert _json(directory, "topics", of.address, "delete", "default") == {"topic": "default", "deleted": True}
        assert _json(directory, "topics", of.address) == {"topics": []}
        program.run(directory, "consume", "--brokers", of.address, "--topic", "__consumer_offsets", "--exit", check=0)
        assert _json(directory, "topics", of.address, "describe", "__consumer_offsets")["partitions"] == [
            {"partition": 0, "leader": 1, "epoch": 0, "replicas": [1], "isr": [1], "offline": []}]


def a_group_is_described_with_its_lag_and_deleted(directory):
    with broker._Broker(directory, group_initial_rebalance_delay_ms=0) as of:
        _run(directory, "topics", of.address, "create", "numbers", "--partitions", "2")
        for partition, count in ((0, 100), (1, 50)):
            _kcat(of.address, "-P", "-t", "numbers", "-p", str(partition), text="record\n" * count)
        assert _json(directory, "groups", of.address) == {"groups": []}
        _kcat(of.address, "-G", "readers", "-X", "auto.offset.reset=earliest", "-e", "-q", "numbers")
        _kcat(of.address, "-P", "-t", "numbers", "-p", "1", text="record\n" * 7)
        assert _run(directory, "groups", of.address).stdout == "readers: Empty, coordinator broker 1\n"
        assert _json(directory, "groups", of.address, "list")["groups"][0]["group"] == "readers"
        found = _json(directory, "groups", of.address, "describe", "readers")
        assert (found["state"], found["members"]) == ("Empty", [])
        assert found["partitions"] == [
            {"topic": "numbers", "partition": 0, "committed": 100, "end": 100, "lag": 0, "member": None, "error": None},
            {"topic": "numbers", "partition": 1, "committed": 50, "end": 57, "lag": 7, "member": None, "error": None}]
        assert _run(directory, "groups", of.address, "describe", "readers").stdout == (
            "group readers: Empty, 0 members\n  numbers-0: committed 100, end 100, lag 0\n"
            "  numbers-1: committed 50, end 57, lag 7\n")
        assert _run(directory, "groups", of.address, "delete", "readers").stdout == "deleted group readers\n"
        assert _json(directory, "groups", of.address) == {"groups": []}
        _refused(directory, ["'readers'", "no group"], "groups", of.address, "describe", "readers")


def members_are_shown_with_their_partitions(directory):
    with broker._Broker(directory, group_initial_rebalance_delay_ms=0) as of:
        _run(directory, "topics", of.address, "create", "numbers", "--partitions", "3")
        members = [subprocess.Popen(["kcat", "-b", of.address, "-G", "live", "-X", "client.id=reader", "numbers"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)] if shutil.which("kcat") else []
        members.append(program.start(directory, "consume", "--brokers", of.address, "--group", "live", "numbers"))

        def both():
            listed = _json(directory, "groups", of.address)["groups"]
            if not any(group["group"] == "live" and group["state"] == "Stable" for group in listed):
                return None
            group = _json(directory, "groups", of.address, "describe", "live")
            return group if len(group["members"]) == len(members) and group["state"] == "Stable" else None

        try:
            found = _until(both, "the group does not become stable")
            read = [(part["topic"], part["partition"]) for member in found["members"] for part in member["assignment"]]
            assert sorted(read) == [("numbers", n) for n in range(3)] and found["assignor"] == "range", found
            assert all("127.0.0.1" in member["host"] for member in found["members"])
            assert len(members) == 1 or "reader" in [member["client"] for member in found["members"]]
            owners = {part["partition"]: part["member"] for part in found["partitions"]}
            assert owners == {part["partition"]: member["member"]
                              for member in found["members"] for part in member["assignment"]}
            text = _run(directory, "groups", of.address, "describe", "live").stdout
            assert re.search(r"member \S+: .*at \S*127\.0\.0\.1\S*, reads numbers-0", text), text
            assert re.search(rf"numbers-2: (nothing committed|committed 0), end 0, .*member {owners[2]}", text), text
            _refused(directory, ["'live'", "has members"], "groups", of.address, "delete", "live")
        finally:
            for member in members:
                member.kill()
                member.wait()


def what_the_broker_refuses_is_told_with_a_remedy(directory):
    with broker._Broker(directory) as of:
        _run(directory, "topics", of.address, "create", "there")
        topics = lambda words, *arguments: _refused(directory, words, "topics", of.address, *arguments)
        topics(["'there'", "already"], "create", "there")
        topics(["'missing'", "no topic of this name"], "describe", "missing")
        topics(["'missing'", "no topic of this name"], "delete", "missing")
        assert _json(directory, "topics", of.address)["topics"][0]["topic"] == "there"  # the question has made none
        topics(["'a/b'", "a-z A-Z 0-9"], "create", "a/b")
        topics(["'__consumer_offsets'", "brokers make this topic"], "create", "__consumer_offsets")
        topics(["not enough brokers", "--replicas"], "create", "wide", "--replicas", "3")
        topics(["--config is wrong", "message of the broker"], "create", "odd", "--config", "no.such.key=1")
        topics(["--config is wrong"], "create", "odd", "--config", "retention.ms=soon")
        topics(["--partitions"], "create", "long", "--partitions", "100000")
        for action in ("describe", "delete"):
            _refused(directory, ["'missing'", "no group of this name"], "groups", of.address, action, "missing")


def a_broker_that_deletes_no_topics_is_told(directory):
    with broker._Broker(directory, delete_topic_enable=False) as of:
        _run(directory, "topics", of.address, "create", "there")
        _refused(directory, ["'there'", "delete.topic.enable"], "topics", of.address, "delete", "there")


def a_wrong_command_line_is_refused(directory):
    at = ("topics", "127.0.0.1:9")
    for words, *arguments in (
            (["'topics grow'", "help topics"], *at, "grow"), (["needs a name"], *at, "describe"),
            (["needs a name"], *at, "create"), (["unexpected argument 'b'"], *at, "delete", "a", "b"),
            (["--partitions"], *at, "create", "a", "--partitions", "0"), (["--replicas"], *at, "create", "a", "--replicas", "x"),
            (["KEY=VALUE"], *at, "create", "a", "--config", "retention.ms"), (["topics create"], *at, "--partitions", "3"),
            (["--timeout"], *at, "--timeout", "0"), (["unknown option"], *at, "--frob"),
            (["HOST:PORT"], "topics", "nonsense"), (["HOST:PORT"], "groups", "127.0.0.1"),
            (["'groups create'"], "groups", "127.0.0.1:9", "create", "a")):
        _refused(directory, words, *arguments, status=2)
    for command in ("topics", "groups"):
        done = program.run(directory, command, check=2)
        assert "--brokers" in done.stderr


def nobody_or_somebody_else_at_the_address_is_told(directory):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{closed.getsockname()[1]}"
        for command in ("topics", "groups"):
            _refused(directory, [free, "cannot be reached", "check the address"], command, free)
        _refused(directory, ["none of 2 brokers", free], "topics", f"{free},{free}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        _refused(directory, [address, "has not answered within 0.3 s", "--timeout"], "topics", address, "--timeout", "0.3")
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=lambda: other.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), daemon=True).start()
        _refused(directory, ["Kafka's protocol"], "topics", f"127.0.0.1:{other.getsockname()[1]}", "create", "a")


class _OldBroker:
    """Announces keys, a list of (key, oldest version, newest version), and sends the answers {key: (version, body)}. It ends
    the connection at any other request."""

    def __init__(self, keys):
        versions = struct.pack(">hi", 0, len(keys)) + b"".join(struct.pack(">hhh", *key) for key in keys)
        self.answers = {API_VERSIONS: (0, versions)}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _serve(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            with stream:
                while len(head := stream.recv(4096)) >= 12:
                    key, version, correlation = struct.unpack(">hhi", head[4:12])
                    newest, body = self.answers.get(key, (None, b""))
                    if version != newest:
                        break
                    stream.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)


def a_broker_of_other_versions_is_told(directory):
    for keys, words in (([(METADATA, 20, 30)], ["versions 20 to 30 of Metadata"]), ([], ["does not serve Metadata"]),
                        ([(METADATA, 0, 9)], ["ended the connection", "TLS"])):
        with _OldBroker(keys) as old:
            _refused(directory, words, "topics", old.address)


def groups_of_a_broker_that_does_not_answer_are_missing(directory):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = closed.getsockname()[1]
        with _OldBroker([(METADATA, 0, 1), (LIST_GROUPS, 0, 0)]) as old:
            at = [struct.pack(">i", n) + broker._text("127.0.0.1") + struct.pack(">ih", port, -1)
                  for n, port in ((1, old.port), (2, gone))]
            old.answers |= {METADATA: (1, struct.pack(">i", 2) + b"".join(at) + struct.pack(">ii", 1, 0)),
                            LIST_GROUPS: (0, struct.pack(">hi", 0, 1) + broker._text("old\x1b[2J") + broker._text("consumer"))}
            listed = _run(directory, "groups", old.address, check=1)
            assert listed.stdout == "old?[2J, coordinator broker 1\n"  # a version without states; nothing clears a screen
            assert "1 of 2 brokers" in listed.stderr and f"127.0.0.1:{gone}" in listed.stderr
            old.answers[METADATA] = (1, struct.pack(">i", 1) + struct.pack(">i", 7) + broker._text("a.name") + struct.pack(
                ">ih", 1, -1) + struct.pack(">ii", 1, 0))
            _refused(directory, ["broker 7", "advertised.listeners"], "groups", old.address)


def three_brokers_answer_for_each_other_and_without_one(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory) as cluster:
        cluster.start_all()
        addresses = cluster.address.split(",")
        for n, address in enumerate(addresses):
            _run(directory, "topics", address, "create", f"numbers-{n}", "--partitions", "3", "--replicas", "3")
            _kcat(address, "-P", "-t", f"numbers-{n}", "-p", str(n), text="record\n" * 10)
            _kcat(address, "-G", f"readers-{n}", "-X", "auto.offset.reset=earliest", "-e", "-q", f"numbers-{n}")
        for address in addresses:
            _settles(directory, lambda found: all(
                [sorted(part[of]) for of in ("replicas", "isr", "offline")] == [[1, 2, 3], [1, 2, 3], []]
                for part in found["partitions"]), "topics", address, "describe", "numbers-2")
            _settles(directory, lambda found: [group["group"] for group in found["groups"]] == [
                f"readers-{n}" for n in range(3)], "groups", address)
            _settles(directory, lambda found: {part["partition"]: (part["committed"], part["lag"])
                                               for part in found["partitions"]}.get(1) == (10, 0),
                     "groups", address, "describe", "readers-1")
        coordinator = _settles(directory, lambda found: found["groups"], "groups", addresses[0])["groups"][0]["coordinator"]
        cluster.stop(coordinator - 1, signal.SIGKILL)
        _settles(directory, lambda found: {part["partition"]: part["lag"] for part in found["partitions"]}.get(2) == 0,
                 "groups", cluster.address, "describe", "readers-2")
        _settles(directory, lambda found: [group["state"] for group in found["groups"]] == ["Empty"] * 3,
                 "groups", cluster.address)
        assert _run(directory, "topics", cluster.address, "delete", "numbers-0").stdout == "deleted topic numbers-0\n"
        _settles(directory, lambda found: found["partitions"][0]["offline"] == [coordinator]
                 and coordinator not in found["partitions"][0]["isr"], "topics", cluster.address, "describe", "numbers-1")


def a_broker_is_ready_while_it_reaches_a_majority(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory) as cluster:
        def becomes(i, status):
            return _until(lambda: (answer := program.page(cluster.hosts[i][0], "/ready"))[0] == status and answer[1],
                          lambda: f"/ready of broker {i + 1}: {program.page(cluster.hosts[i][0], '/ready')}")

        def offline(i):
            return program.page(cluster.hosts[i][0], "/broker.json")[1]["counts"]["partitions_offline"]

        cluster.start(0)
        _until(lambda: "listens on" in cluster.log(0).read_text(), "broker 1 does not start")
        assert "has not registered this broker" in becomes(0, 503)["reason"]
        cluster.start(1)
        cluster.start(2)
        for i in range(3):
            assert becomes(i, 200)["reason"] == "it serves"
        _run(directory, "topics", cluster.address, "create", "ones", "--partitions", "3", "--replicas", "1")
        cluster.stop(2)
        _until(lambda: offline(0) == 1, "no partition is offline")  # it is none of broker 1
        assert becomes(0, 200)
        cluster.stop(1)
        assert "within its session" in becomes(0, 503)["reason"]
        alone = cluster.address.split(",")[0]
        listed = _run(directory, "topics", alone)
        assert "ones: 3 partitions" in listed.stdout and "NOT CURRENT" in listed.stderr, listed
        assert "NOT CURRENT" in _run(directory, "topics", alone, "describe", "ones").stderr
        for action in ("create", "delete"):
            _refused(directory, ["have no controller", "start a majority"], "topics", alone, action, "two", "--timeout", "1")
        told = program.run(directory, "broker", "status", f"{cluster.hosts[0][0]}:8080", check=0).stdout
        assert "no controller is known" in told and "NOT CURRENT" in told, told
        cluster.start(1)
        cluster.start(2)
        for i in range(3):
            becomes(i, 200)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
