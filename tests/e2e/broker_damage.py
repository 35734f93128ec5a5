"""Each file of a broker is damaged in each way: broker_damage.py HOLDFAST [EVERY [PEERS]].

A broker alone, killed or stopped in order, and a replica of three. What is held to: the broker names the file and does not
serve what it had, or it serves all of it; fewer acknowledged records than before are never served without an error, and an
offset is never given twice. One of EVERY cases runs (1: all), and each kind of damage with as many files as another. PEERS
0 leaves the three brokers out, `only` all else.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import broker as broker_alone
import damage
import kafka_wire
import program

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import broker_cluster

EVERY = int(sys.argv[2]) if len(sys.argv) > 2 else 1
PEERS = sys.argv[3] if len(sys.argv) > 3 else "1"
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
LIMIT_S = 60
RECORDS, OLDER_RECORDS, COMMITTED = 60, 30, 17
TOPIC, GROUP = "t", "readers"
VALUES = [b"v%05d" % i + b"x" * 600 for i in range(RECORDS)]
PRODUCER = 0


def _wait_until(holds, words):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, words
        time.sleep(0.02)


class _Alone:
    """A broker without peers, with small segments and a sync of each record."""

    def __init__(self, directory, node=None):
        self.directory, self.process = pathlib.Path(directory), None
        self.directory.mkdir(exist_ok=True)
        self.logs = self.directory / "logs"
        self.config = self.directory / "broker.json"
        section = {"node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "logs"}
        self.config.write_text(json.dumps({**(node or {}), "broker": section}))

    def start(self):
        """The words of a start that was refused; None: it runs."""
        self.said = open(self.directory / "said", "w+")
        self.process = subprocess.Popen([program.HOLDFAST, "broker", "--config", str(self.config)], cwd=self.directory,
                                        stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said,
                                        env=program.environment(self.directory))
        _wait_until(lambda: self.process.poll() is not None or "listens on" in self.words(), "the broker does not start")
        if "listens on" not in self.words():
            assert self.process.wait() > 0, self.words()
            return self.words()
        host, port = self.words().split("PLAINTEXT://")[1].split(",")[0].split()[0].rsplit(":", 1)
        self.address = (host, int(re.match(r"\d+", port)[0]))
        return None

    def words(self):
        return (self.directory / "said").read_text()

    def stop(self, how=signal.SIGTERM):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=LIMIT_S)

    def client(self):
        return kafka_wire.Client(self.address)


def _fill(client, begin, end):
    """Again where a leader is only just beginning: the sequence tells."""
    for i in range(begin, end):
        data = kafka_wire.batch([VALUES[i]], PRODUCER, i)
        _wait_until(lambda: client.produce(TOPIC, data) == (0, i), f"record {i} is not taken")


def _make(broker):
    """Records, segments, a committed offset and a deleted topic; the older copy is from half of that."""
    assert broker.start() is None, broker.words()
    with broker.client() as client:
        assert client.create(TOPIC, flush_messages=1, segment_bytes=16384) == 0
        assert client.create("other", segment_bytes=16384) == 0
        _fill(client, 0, OLDER_RECORDS)
        assert client.commit(GROUP, TOPIC, COMMITTED - 1) == 0
    broker.stop()
    older = damage.Tree(broker.logs)
    assert broker.start() is None, broker.words()
    with broker.client() as client:
        _fill(client, OLDER_RECORDS, RECORDS)
        assert client.commit(GROUP, TOPIC, COMMITTED) == 0
    return older


def _names(words, name):
    """Whether the words name the file, or the directory of its partition."""
    return name in words or (("/" in name) and name.split("/")[0] in words)


def _judge(broker, name):
    """After a start on damaged files: an error in words, or everything is there."""
    with broker.client() as client:
        if TOPIC not in client.topics():
            return "the topic is gone without a word"
        error, values = client.read(TOPIC)
        end = time.monotonic() + LIMIT_S
        while error == 0 and None in values:  # until a check of the log has come to it
            assert time.monotonic() < end, "a wrong record is neither found nor repaired"
            error, values = client.read(TOPIC)
        given = client.produce(TOPIC, kafka_wire.batch([b"new"]))
        if error != 0 and not _names(broker.words(), name):
            return f"error {error} without words"
        if error == 0 and (values[:RECORDS] != VALUES or given != (0, RECORDS)):
            return f"{len(values)} of {RECORDS} records, next {given}"
        if given[0] == 0 and given[1] < RECORDS:
            return f"offset {given[1]} is given again"
        if error == 0 and client.produce(TOPIC, kafka_wire.batch([VALUES[-1]], PRODUCER, RECORDS - 1)) != (0, RECORDS - 1):
            return "a producer's batch is in the log twice"
        end = time.monotonic() + LIMIT_S
        while True:
            fault, offset = client.committed(GROUP, TOPIC)
            if fault != 0 and not _names(broker.words(), name):
                return f"committed offsets: error {fault} without words"
            if fault == 0 and offset != COMMITTED:
                return f"the committed offset is {offset}, and was {COMMITTED}"
            if fault == 0 or time.monotonic() < end:
                return None


def _pick(names, kinds, chance, every):
    """One of `every` pairs (file, kind), by chance, with all kinds in turn."""
    rows = [chance.sample([(name, kind) for name in names], len(names)) for kind in kinds]
    pairs = [pair for column in zip(*rows) for pair in column]
    return pairs[:max(len(pairs) // every, 1)]


def _run_cases(broker, tree, older, another, state):
    wrong, ran, chance = [], 0, random.Random(SEED)
    names = [name for name in tree.files if not name.endswith(".lock")]
    for name, kind in _pick(names, damage.KINDS, chance, EVERY):
        tree.put_back()
        if not damage.damage(tree, name, kind, older, another):
            continue
        ran += 1
        before = damage.Tree(broker.logs).files
        refused = broker.start()
        if refused is not None:
            fault = None if _names(refused, name) else f"refused without naming it: {refused}"
            after = damage.Tree(broker.logs).files
            changed = [path for path in before if after.get(path) != before[path] and path != "synced"]
            fault = fault or (f"refused, and changed {changed}" if changed else None)
        else:
            fault = _judge(broker, name)
        broker.stop(signal.SIGKILL)
        if fault is not None:
            wrong.append(f"{state}, {name}, {kind}: {fault}\n{broker.words()[-1500:]}")
    assert ran > 0
    assert not wrong, f"seed {SEED}: {len(wrong)} of {ran} cases lose in silence:\n" + "\n".join(wrong)
    program.say(f"# {state}: {ran} cases, none loses in silence (seed {SEED})")


def _needs(peers):
    if PEERS == ("0" if peers else "only"):
        raise program.Skip("three brokers are left out" if peers else "a broker alone is left out")


def _alone(directory, how, state):
    _needs(False)
    broker, another = _Alone(pathlib.Path(directory) / "one"), _Alone(pathlib.Path(directory) / "another")
    try:
        older = _make(broker)
        broker.stop(how)
        _make(another)
        another.stop(how)
        _run_cases(broker, damage.Tree(broker.logs), older, damage.Tree(another.logs), state)
    finally:
        broker.stop(signal.SIGKILL)
        another.stop(signal.SIGKILL)


def a_broker_that_was_killed_loses_nothing_in_silence(directory):
    _alone(directory, signal.SIGKILL, "killed")


def a_broker_that_was_stopped_loses_nothing_in_silence(directory):
    _alone(directory, signal.SIGTERM, "stopped")


def a_record_that_changes_is_kept_and_its_offset_is_not_given_again(directory):
    _needs(False)
    broker = _Alone(directory)
    try:
        _make(broker)
        broker.stop(signal.SIGKILL)
        head = sorted((broker.logs / "t-0").glob("*.log"))[-1]
        data = head.read_bytes()
        damage.write(head, data.replace(VALUES[-2], VALUES[-2][:-1] + b"Z"))
        assert broker.start() is None, broker.words()
        assert f"{head.name} is damaged" in broker.words() and "offset 58" in broker.words()
        with broker.client() as client:
            assert client.fetch(TOPIC, 0)[0] == kafka_wire.STORAGE_ERROR
            assert client.produce(TOPIC, kafka_wire.batch([b"new"]))[0] == kafka_wire.STORAGE_ERROR
            assert client.produce("other", kafka_wire.batch([b"new"])) == (0, 0)
        broker.stop()
        assert head.read_bytes() == data.replace(VALUES[-2], VALUES[-2][:-1] + b"Z")
    finally:
        broker.stop(signal.SIGKILL)


def a_topic_without_descriptors_is_refused_and_the_broker_starts_again(directory):
    _needs(False)
    broker = _Alone(directory)

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (70, 70))

    try:
        broker.start()
        broker.stop()
        popen = subprocess.Popen
        subprocess.Popen = lambda *more, **keys: popen(*more, preexec_fn=limit, **keys)
        try:
            assert broker.start() is None, broker.words()
            made = []
            with broker.client() as client:
                while (error := client.create(f"t{len(made)}")) == 0:
                    made.append(f"t{len(made)}")
                    assert client.produce(made[-1], kafka_wire.batch([b"x"])) == (0, 0)
                assert error == kafka_wire.STORAGE_ERROR and made
            broker.stop(signal.SIGKILL)
            assert broker.start() is None, broker.words()
        finally:
            subprocess.Popen = popen
        broker.stop()
        assert broker.start() is None, broker.words()
        with broker.client() as client:
            assert sorted(client.topics()) == sorted(made)
            for topic in made:
                assert client.read(topic) == (0, [b"x"])
    finally:
        broker.stop(signal.SIGKILL)


def a_full_disk_is_served_for_reading(directory):
    _needs(False)
    if os.geteuid() != 0:
        raise program.Skip("mounting a small file system needs root")
    node = broker_alone._node("broker", 1, 18515)
    host = node["rails"][0]["address"]
    broker = _Alone(directory, node | {"http": f"{host}:8080"})
    broker.logs.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(broker.logs)], capture_output=True).returncode:
        raise program.Skip("a file system cannot be mounted here")
    try:
        assert broker.start() is None, broker.words()
        with broker.client() as client:
            assert client.create("big", segment_bytes=4 << 20) == 0
            count, large = 0, kafka_wire.batch([b"x" * 300000])
            while client.produce("big", large)[0] == 0:
                count += 1
            assert client.create("new") == kafka_wire.STORAGE_ERROR
            assert client.topics() == ["big"]
        assert program.page(host, "/ready")[0] == 503
        broker.stop(signal.SIGKILL)
        assert broker.start() is None, broker.words()
        assert "make room" in broker.words()
        with contextlib.suppress(OSError), open(broker.logs / "another's", "wb", buffering=0) as more:
            while True:  # the start may have made room: it cuts segments to their records
                more.write(bytes(4096))
        status, answer = program.page(host, "/ready")
        assert status == 503 and answer["reason"].startswith("the disk of log.dirs is full"), answer
        with broker.client() as client:
            assert client.fetch("big", 0)[:3] == (0, count, 0)
            assert client.read("big", count - 1) == (0, [b"x" * 300000])
    finally:
        broker.stop(signal.SIGKILL)
        subprocess.run(["umount", str(broker.logs)], check=False)


# ---- three brokers ----


def _status(cluster, i):
    """The partition of the topic as broker i sees it; None: the broker does not answer, or has no such topic."""
    try:
        status = program.page(cluster.hosts[i][0], "/broker.json")[1]
        found = [one for one in status["partitions"] if one["topic"] == TOPIC]
    except (OSError, ValueError):
        return None
    return found[0] if found else None


def _leader(cluster, which):
    """A client of the leader, once there is one among these brokers."""
    found = []

    def leads():
        for i in which:
            status = _status(cluster, i)
            if status and status["leader"] == i + 1:
                found.append(i)
                return True
        return False

    _wait_until(leads, "nobody leads")
    return found[0], kafka_wire.Client((cluster.hosts[found[0]][0], 9092))


def _is_whole(cluster, i):
    status = _status(cluster, i)
    return status and len(status["isr"]) == cluster.count and status["hw"] >= RECORDS and status["log"] == "ok"


def _fill_cluster(cluster, count=RECORDS, **configs):
    with kafka_wire.Client((cluster.hosts[0][0], 9092)) as client:
        assert client.create(TOPIC, 3, segment_bytes=16384, **configs) == 0
    _wait_until(lambda: all(_status(cluster, i) for i in range(3)), "the topic is not known")
    leader, client = _leader(cluster, range(3))
    with client:
        _fill(client, 0, count)
    return leader


def a_damaged_replica_is_repaired_by_its_peers(directory):
    _needs(True)
    wrong, chance, ran = [], random.Random(SEED), 0
    with broker_cluster.Cluster(program.HOLDFAST, directory) as cluster:
        cluster.start_all()
        _fill_cluster(cluster, flush_messages=1)
        names = [f"t-0/{path.name}" for path in sorted((pathlib.Path(directory) / "logs-1" / "t-0").iterdir())]
        kinds = [kind for kind in damage.KINDS if kind != "older"]
        for name, kind in _pick(names + ["synced", "meta.properties"], kinds, chance, 2 * EVERY if EVERY > 1 else 1):
            victim, how = chance.randrange(3), chance.choice((signal.SIGKILL, signal.SIGTERM))
            _wait_until(lambda: all(_is_whole(cluster, i) for i in range(3)), f"not whole before {name} {kind}")
            before, begin = cluster.joins(victim), len(cluster.log(victim).read_text())
            cluster.stop(victim, how)
            tree = damage.Tree(pathlib.Path(directory) / f"logs-{victim + 1}")
            other = damage.Tree(pathlib.Path(directory) / f"logs-{(victim + 1) % 3 + 1}")
            if name in tree.files and damage.damage(tree, name, kind, None, other):
                ran += 1
                cluster.start(victim)
                _wait_until(lambda: cluster.processes[victim].poll() is not None or cluster.joins(victim) > before,
                            "the broker neither joins nor ends")
                words = cluster.log(victim).read_text()[begin:]
                if cluster.processes[victim].poll() is not None:
                    if name not in words:
                        wrong.append(f"{name}, {kind}: it ended without words: {words}")
                    tree.put_back()
                    cluster.start(victim)
            else:
                cluster.start(victim)
            _wait_until(lambda: all(_is_whole(cluster, i) for i in range(3)),
                        f"{name}, {kind} at broker {victim + 1} is not repaired: {cluster.log(victim).read_text()[begin:]}")
            with _leader(cluster, range(3))[1] as client:
                error, values = client.read(TOPIC)
            if error != 0 or values != VALUES:
                wrong.append(f"{name}, {kind}: error {error}, {len(values)} records")
    assert not wrong, f"seed {SEED}: " + "\n".join(wrong)
    program.say(f"# a replica of three: {ran} cases, all repaired or named (seed {SEED})")


def a_damaged_last_replica_truncates_no_other(directory):
    """It is the only one in sync; the others lack its last records, and have what it has lost."""
    _needs(True)
    with broker_cluster.Cluster(program.HOLDFAST, directory, min_insync_replicas=1) as cluster:
        cluster.start_all()
        leader = _fill_cluster(cluster, RECORDS - 5, flush_messages=1)
        others = [i for i in range(3) if i != leader]
        _wait_until(lambda: all(_status(cluster, i)["end"] == RECORDS - 5 for i in others), "others lack records")
        for i in others:
            cluster.stop(i, signal.SIGKILL)
        cluster.stop(leader, signal.SIGKILL)
        logs = pathlib.Path(directory) / f"logs-{leader + 1}" / "t-0"
        newest = sorted(logs.glob("*.log"))[-1]
        data = newest.read_bytes()
        at = data.index(b"v00")
        damage.write(newest, data[:at] + b"w" + data[at + 1:])
        before = [cluster.joins(i) for i in range(3)]
        for i in range(3):
            cluster.start(i)
        for i in range(3):
            cluster.wait_until_joined([i], before=before[i])
        _wait_until(lambda: all(_status(cluster, i) for i in range(3)), "the topic is gone")
        assert "is damaged at byte" in cluster.log(leader).read_text()
        end = time.monotonic() + 2  # nothing is to happen
        while time.monotonic() < end:
            for i in others:
                status = _status(cluster, i)
                assert status["end"] >= RECORDS - 5, status
            status = _status(cluster, leader)
            assert status["log"] in ("damaged", "ok"), status
            with kafka_wire.Client((cluster.hosts[leader][0], 9092)) as client:
                error, values = client.read(TOPIC)
                assert error != 0 or values[:RECORDS - 5] == VALUES[:RECORDS - 5], (error, len(values))
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
