"""Leaders of three brokers are killed under idempotent producers, a stock one and ours: broker_kills.py HOLDFAST [KILLS [KIND]].

kcat writes numbers with acks=all while the broker that leads is killed with SIGKILL, again and again; another kcat reads
them in a group. What is in the log in the end is what was written: nothing lost, doubled or out of order.
"""
import json
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import broker_cluster
import program

KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
KIND = sys.argv[3] if len(sys.argv) > 3 else "shm"
TOPIC = "numbers"
LIMIT_S = 60
LIST_OFFSETS = 2


def _run_kcat(cluster, *arguments):
    return subprocess.run(["kcat", "-b", cluster.address, "-m", str(LIMIT_S), *arguments], text=True, capture_output=True,
                          timeout=2 * LIMIT_S)


def _kcat(cluster, *arguments):
    done = _run_kcat(cluster, *arguments)
    assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stdout[-500:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _wait_until(holds, words):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, words
        time.sleep(0.05)


def _partition(cluster):
    """What a broker says of it; one that has not heard of the new topic yet lists no partition."""
    found = []

    def is_listed():
        topics = json.loads(_kcat(cluster, "-L", "-J", "-t", TOPIC))["topics"]
        found.extend(topics[0]["partitions"] if topics else [])
        return found

    _wait_until(is_listed, f"no broker lists the partition of {TOPIC}")
    return found[0]


def _high_watermark(address):
    """What this broker says as the leader; -1: it is not, or is gone."""
    body = struct.pack(">iih", -1, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">iiq", 1, 0, -1)
    head = struct.pack(">hhih", LIST_OFFSETS, 1, 7, -1)
    try:
        with socket.create_connection(address, timeout=1) as stream:
            stream.sendall(struct.pack(">i", len(head + body)) + head + body)
            answer = b""
            while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
                more = stream.recv(4096)
                if not more:
                    return -1
                answer += more
    except OSError:
        return -1
    error, _, offset = struct.unpack(">hqq", answer[-18:])
    return offset if error == 0 else -1


def _read_back(cluster, expected, way):
    """Until all is read: a broker that led before it stood still, or that leads only just, ends earlier, and one that has
    not heard of the topic fails. `way(n)`: what kcat is to do at the n-th try."""
    end, n = time.monotonic() + LIMIT_S, 0
    while True:
        done = _run_kcat(cluster, *way(n))
        if done.returncode == 0 and done.stdout == expected:
            return
        assert time.monotonic() < end, f"kcat {way(n)}: {_differences(done.stdout, expected)} {done.stderr[-2000:]}"
        n += 1
        time.sleep(0.2)


def _everything(_):
    return ["-C", "-t", TOPIC, "-o", "beginning", "-e", "-q"]


def _time_to_progress(cluster, killed, begun, check):
    """From the kill until a leader has acknowledged more than it began with."""
    first = {}
    while time.monotonic() < begun + LIMIT_S:
        for i, hosts in enumerate(cluster.hosts):
            offset = _high_watermark((hosts[0], 9092)) if i != killed else -1
            if offset > first.setdefault(i, offset if offset >= 0 else 1 << 62):
                return time.monotonic() - begun
            first[i] = min(first[i], offset) if offset >= 0 else first[i]
        check()
        time.sleep(0.002)
    raise AssertionError(f"no acknowledgement within {LIMIT_S} s after the leader was killed")


class _Writer(threading.Thread):
    """Gives a program one number a line, until it is told to end."""

    def __init__(self, command):
        super().__init__()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.count, self.ending = 0, False

    def run(self):
        try:
            while not self.ending:
                self.process.stdin.write("".join(f"{n}\n" for n in range(self.count, self.count + 50)))
                self.process.stdin.flush()
                self.count += 50
                time.sleep(0.005)
        except BrokenPipeError:
            pass  # it has ended, as its status and its errors say

    def check(self):
        status = self.process.poll()
        assert status is None, f"the producer ended with status {status}: {self.process.stderr.read()[-2000:]}"

    def end(self):
        self.ending = True
        self.join()
        _, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, err[-2000:]
        return err


def _kcat_producer(cluster):
    return ["kcat", "-b", cluster.address, "-P", "-t", TOPIC, "-q", "-X", "enable.idempotence=true", "-X", "linger.ms=2",
            "-X", "message.timeout.ms=120000", "-X", "reconnect.backoff.max.ms=200",
            "-X", "retry.backoff.ms=20", "-X", "topic.metadata.refresh.fast.interval.ms=20"]


def _leader_is_lost(cluster, how, check=lambda: None):
    """Kills it, or stops it until another leads; returns the time to the next acknowledgement. `check` fails when the
    producer has ended."""
    _wait_until(lambda: len(_partition(cluster)["isrs"]) == 3, "not all replicas are in sync")
    leader = _partition(cluster)["leader"] - 1
    joins = cluster.joins(leader)
    if how == signal.SIGKILL:
        cluster.stop(leader, how)
    else:
        cluster.processes[leader].send_signal(how)
    taken = _time_to_progress(cluster, leader, time.monotonic(), check)
    if how == signal.SIGKILL:
        cluster.start(leader)
        cluster.wait_until_joined([leader], before=joins)
    else:
        cluster.processes[leader].send_signal(signal.SIGCONT)
    return taken


def leaders_are_killed_and_nothing_is_lost(directory):
    if shutil.which("kcat") is None:
        raise program.Skip("kcat is not installed (scripts/packages.txt)")
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND, log_segment_bytes=1 << 20) as cluster:
        cluster.start_all()
        _kcat(cluster, "-L", "-t", TOPIC)
        writer = _Writer(_kcat_producer(cluster))
        writer.start()
        times = [_leader_is_lost(cluster, signal.SIGKILL, writer.check) for _ in range(KILLS)]
        writer.end()
        expected = "".join(f"{n}\n" for n in range(writer.count))
        _read_back(cluster, expected, _everything)
        _read_back(cluster, expected, lambda n: ["-G", f"readers-{n}", "-X", "auto.offset.reset=earliest", "-e", "-q", TOPIC])
        for i in range(3):
            assert cluster.stop(i) == 0
        program.say(f"# {KILLS} kills, {writer.count} records; to the next acknowledgement: median "
                    f"{statistics.median(times):.2f} s, longest {max(times):.2f} s")


def _follow_leaders(directory, rails):
    """`holdfast produce` and `holdfast consume` while leaders are killed, and stopped for a while."""
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND, log_segment_bytes=1 << 20) as cluster:
        cluster.start_all()
        _kcat(cluster, "-L", "-t", TOPIC)
        sides = {}
        for number, side in enumerate(("produce", "consume")):
            sides[side] = [program.HOLDFAST, side, "--brokers", cluster.address, "--topic", TOPIC]
            if rails:
                path = pathlib.Path(directory, f"{side}.json")
                path.write_text(json.dumps(cluster.client(side, number)))
                sides[side] += ["--config", str(path)]
        reader = subprocess.Popen(sides["consume"], stdout=open(pathlib.Path(directory, "read"), "w"), stderr=subprocess.PIPE,
                                  text=True)
        writer = _Writer(sides["produce"])
        try:
            writer.start()
            times = [_leader_is_lost(cluster, how, writer.check) for _ in range(KILLS)
                     for how in (signal.SIGKILL, signal.SIGSTOP)]
            said = writer.end()
            expected = "".join(f"{n}\n" for n in range(writer.count))

            def got():
                return pathlib.Path(directory, "read").read_text()

            _wait_until(lambda: len(got()) >= len(expected) or reader.poll() is not None, "not all is read")
            reader.send_signal(signal.SIGTERM)
            _, err = reader.communicate(timeout=LIMIT_S)
            assert reader.returncode == 0, err[-2000:]
            # Nothing waits for all that a vqp tries (R-B27).
            assert "within the budget" not in said + err, said + err
            assert got() == expected, _differences(got(), expected)
            _read_back(cluster, expected, _everything)
        finally:
            writer.ending = True
            for process in (reader, writer.process):
                process.kill()
        program.say(f"# {2 * KILLS} leaders lost, {writer.count} records, over {KIND if rails else 'tcp'}; to the next "
                    f"acknowledgement: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


def our_clients_follow_leaders_over_rails(directory):
    _follow_leaders(directory, rails=True)


def our_clients_follow_leaders_over_tcp(directory):
    _follow_leaders(directory, rails=False)


def _shows_all(directory, cluster):
    done = program.run(directory, "broker", "status", f"{cluster.hosts[0][0]}:8080", "--json", check=None)
    if done.returncode != 0:
        return False
    status = json.loads(done.stdout)
    known = [each for each in status["partitions"] if each["topic"] == TOPIC]
    return ([broker["alive"] for broker in status["brokers"]] == [True] * 3 and status["member"] and known != []
            and sorted(known[0]["isr"]) == [1, 2, 3] and known[0]["end"] == 2)


def _status_text(directory, cluster):
    return program.run(directory, "broker", "status", f"{cluster.hosts[0][0]}:8080", check=None).stdout


def topics_and_status_outlive_the_stop_of_all(directory):
    if shutil.which("kcat") is None:
        raise program.Skip("kcat is not installed (scripts/packages.txt)")
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND) as cluster:
        for round in range(2):
            joins = [cluster.joins(i) for i in range(3)]
            for i in range(3):
                cluster.start(i)
            for i in range(3):
                cluster.wait_until_joined([i], before=joins[i])
            if round == 0:
                kcat_in = subprocess.run(["kcat", "-b", cluster.address, "-P", "-t", TOPIC], input="0\n1\n", text=True,
                                         timeout=LIMIT_S)
                assert kcat_in.returncode == 0
            _wait_until(lambda: len(_partition(cluster)["isrs"]) == 3, "not all replicas are in sync")
            _read_back(cluster, "0\n1\n", _everything)
            _wait_until(lambda: _shows_all(directory, cluster), "broker 1 does not show a whole cluster")
            _wait_until(lambda: "NOT CURRENT" not in _status_text(directory, cluster), "broker 1 has no majority")
            for i in (2, 1):
                assert cluster.stop(i) == 0
            _wait_until(lambda: "NOT CURRENT: for " in _status_text(directory, cluster), "broker 1 shows a majority that has ended")
            assert cluster.stop(0) == 0


def of_one_replica_one_in_sync_is_enough(directory):
    if shutil.which("kcat") is None:
        raise program.Skip("kcat is not installed (scripts/packages.txt)")
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND, default_replication_factor=1) as cluster:
        cluster.start_all()
        done = subprocess.run(["kcat", "-b", cluster.address, "-P", "-t", TOPIC, "-X", "message.timeout.ms=30000"],
                              input="0\n", text=True, timeout=LIMIT_S)
        assert done.returncode == 0
        _read_back(cluster, "0\n", _everything)


def _differences(got, expected):
    seen = [int(line) for line in got.split()]
    known = set(seen)
    lost = [n for n in range(len(expected.split())) if n not in known]
    return f"{len(lost)} lost ({lost[:3]}), {len(seen) - len(known)} doubled, {sum(a > b for a, b in zip(seen, seen[1:]))} out of order"


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
