"""Producers over RDMA that are killed or stopped, and rails that are cut: broker_faults.py HOLDFAST [CLIENTS [CUTS [KIND]]].

Three brokers. What is held to: a holder that fails costs its partition no leader and no record; one that was stopped and goes
on changes no byte of what was committed meanwhile, on no replica; a rail that is cut costs no leader and no grant.
"""
import hashlib
import json
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

import broker_kills as kills
import program

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import broker_cluster

CLIENTS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
CUTS = int(sys.argv[3]) if len(sys.argv) > 3 else 6
KIND = sys.argv[4] if len(sys.argv) > 4 else "soft"
TOPIC = kills.TOPIC
PATIENT = {"broker_session_timeout_ms": 10000}  # a busy machine makes no broker late
ADDRESSES = 8  # of clients' nodes, in turn
LIMIT_S = 60


class _Client:
    """`holdfast produce` over rails, which is given numbered lines for as long as it takes them."""

    def __init__(self, cluster, directory, number, name):
        path = pathlib.Path(directory, f"{name}.json")
        path.write_text(json.dumps(cluster.client(name, number)))
        self.name, self.ending, self.count = name, False, 0
        self.process = subprocess.Popen(
            [program.HOLDFAST, "produce", "-b", cluster.address, "-t", TOPIC, "-p", "0", "--config", str(path)],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self._feed)
        self.thread.start()

    def _feed(self):
        try:
            while not self.ending:
                lines = "".join(f"{self.name} {n}\n" for n in range(self.count, self.count + 20))
                self.process.stdin.write(lines)
                self.process.stdin.flush()
                self.count += 20
                time.sleep(0.005)
        except BrokenPipeError:
            pass

    def finish(self):
        """Until all its lines are acknowledged."""
        self.ending = True
        self.thread.join()
        _, self.log = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, self.log[-2000:]

    def kill(self):
        self.ending = True
        self.process.kill()
        self.process.wait()
        self.thread.join()


def _total(cluster, name):
    return sum(program.metrics(cluster.hosts[i][0])[f"holdfast_broker_{name}"] for i in range(3))


def _leader(cluster):
    return kills._partition(cluster)["leader"] - 1


def _grows(cluster, leader, by):
    """Until so many more records are replicated."""
    begun = _end(cluster, leader)
    kills._wait_until(lambda: kills._high_watermark((cluster.hosts[leader][0], 9092)) >= begun + by,
                      f"fewer than {by} records are written")


def _end(cluster, leader):
    """The high watermark, also of a leader that is slow to answer."""
    found = []

    def is_said():
        found.append(kills._high_watermark((cluster.hosts[leader][0], 9092)))
        return found[-1] >= 0

    kills._wait_until(is_said, "the leader does not say its high watermark")
    return found[-1]


def _committed(directory, i, end):
    """A digest of the batches below the offset `end` in the log of broker i."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(directory, f"logs-{i + 1}", f"{TOPIC}-0").glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + 61 <= len(data):
            base, length = struct.unpack_from(">qi", data, at)
            if length <= 0 or base >= end:
                break
            digest.update(data[at:at + 12 + length])
            at += 12 + length
    return digest.hexdigest()


def _mark(cluster, number):
    """Another client writes over TCP, which takes the grant back, and has its answer; returns how long it took."""
    begun = time.monotonic()
    done = subprocess.run([program.HOLDFAST, "produce", "-b", cluster.address, "-t", TOPIC, "-p", "0"],
                          input=f"mark {number}\n", text=True, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begun


def _all_in_order(cluster, marks):
    """Of each client the lines 0, 1, 2, ... once and in this order, and every mark; how many lines there are."""
    text = kills._kcat(cluster, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q")
    seen = {}
    for line in text.splitlines():
        name, number = line.split()
        assert int(number) == seen.get(name, 0), f"{line} where {seen.get(name, 0)} is due"
        seen[name] = int(number) + 1
    assert seen.get("mark", 0) == marks, seen.get("mark")
    return seen


def producers_that_are_killed_or_stopped_hold_nothing_up(directory):
    seed = random.randrange(2**32)
    random.seed(seed)
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND, log_segment_bytes=1 << 20, **PATIENT,
                                rdma_extent_bytes=65536) as cluster:
        cluster.start_all()
        kills._kcat(cluster, "-L", "-t", TOPIC)
        kills._wait_until(lambda: len(kills._partition(cluster)["isrs"]) == 3, "not all replicas are in sync")
        leader, times = _leader(cluster), []
        for i in range(CLIENTS):
            grants = _total(cluster, "grants_total")
            client = _Client(cluster, directory, i % ADDRESSES, f"client-{i}")
            try:
                kills._wait_until(lambda: _total(cluster, "grants_total") > grants, "no grant begins")
                _grows(cluster, leader, random.randrange(1, 400))
                how = random.choice((signal.SIGKILL, signal.SIGSTOP))
                client.process.send_signal(how)
                times.append(_mark(cluster, i))
                if how == signal.SIGSTOP:
                    end = _end(cluster, leader)
                    before = [_committed(directory, k, end) for k in range(3)]
                    client.process.send_signal(signal.SIGCONT)
                    _grows(cluster, leader, 50)  # it goes on
                    after = [_committed(directory, k, end) for k in range(3)]
                    assert before == after and len(set(after)) == 1, (before, after)
            finally:
                client.kill()
        seen = _all_in_order(cluster, CLIENTS)
        assert len(seen) == CLIENTS + 1, seen
        after = (_leader(cluster), _total(cluster, "elections_total"))
        assert after == (leader, 1), (leader, after, cluster.log(leader).read_text()[-3000:])
    program.say(f"# seed {seed}: {CLIENTS} clients on {KIND} killed or stopped, {sum(seen.values())} records; another client's "
                f"record, with the start of its program: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


def rails_that_are_cut_cost_no_leader_and_no_grant(directory):
    seed = random.randrange(2**32)
    random.seed(seed)
    patient = {"heartbeat_misses": 40}  # it makes no client late either: 4 s, not 0.4
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND, node=patient, log_segment_bytes=1 << 20,
                                **PATIENT) as cluster:
        cluster.start_all()
        kills._kcat(cluster, "-L", "-t", TOPIC)
        kills._wait_until(lambda: len(kills._partition(cluster)["isrs"]) == 3, "not all replicas are in sync")
        leader = _leader(cluster)
        client = _Client(cluster, directory, 0, "client")
        try:
            kills._wait_until(lambda: _total(cluster, "grants_total") == 1, "no grant begins")
            _grows(cluster, leader, 100)
            before = {"grants_total": 1, "elections_total": 1, "isr_shrinks_total": 0}
            for i in range(CUTS):
                node = random.choice(["client"] + [f"broker-{k + 1}" for k in range(3)])
                for way, rest_s in (("down", random.uniform(0.1, 0.5)), ("up", random.uniform(0.5, 0.9))):
                    program.run(directory, "link", way, f"{node}/r{i % 2}", "--fabric", cluster.fabric, check=0)
                    _grows(cluster, leader, 20)
                    time.sleep(rest_s)
            client.finish()
        finally:
            client.kill()
        after = {name: _total(cluster, name) for name in before}
        assert after == before and _leader(cluster) == leader, (
            before, after, seed, client.log[-2000:], cluster.log(leader).read_text()[-3000:])
        seen = _all_in_order(cluster, 0)
        assert seen == {"client": client.count}, (seen, client.count)
    program.say(f"# seed {seed}: {CUTS} cuts on {KIND}, {client.count} records, 1 grant")


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
