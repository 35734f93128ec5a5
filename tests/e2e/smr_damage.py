#!/usr/bin/env python3
"""smr_damage.py PROGRAM [EVERY [ROUNDS]] - each file of a proxy's directory is damaged in each way: of a member alone, and of one
of three, killed or stopped in order. What is held to: the member names the file, changes no byte of it, and ends; or it has
all that was acknowledged, after it has copied it from the others if need be. Every EVERYth case runs alone (1: all), and ROUNDS
of them with peers (0: all). SEED=N repeats a choice."""
import os
import pathlib
import random
import signal
import socket
import sys
import time

import damage
import program
import smr_proxy

EVERY = int(sys.argv[2]) if len(sys.argv) > 2 else 1
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 0
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
WAIT_S = 120
PORT = 6379
VALUE = b"v" * 8000
RECORDS, OLDER = 1500, 700  # beyond 8 MiB a member alone takes a snapshot
PEERS_RECORDS = 250  # beyond 1 MiB members that follow do


class _Cluster(smr_proxy._Cluster):
    def __init__(self, directory, count):
        self.count, self.records, self.first = count, 0, []
        directory = pathlib.Path(directory)
        directory.mkdir(exist_ok=True)
        super().__init__(directory, settings={"wal_mib": 1}, count=count)

    def configure(self, i):
        self.settings["directory"] = str(self.files(i))
        super().configure(i)

    def files(self, i):
        return self.directory / f"{smr_proxy.NAMES[i]}.files"

    def stop(self, i, how=signal.SIGTERM):
        if self.processes[i] is not None:
            self.processes[i].send_signal(how)
            self.processes[i].wait(WAIT_S)
            self.processes[i] = None

    def client(self, i):
        """Once the proxy listens; None: it has ended."""
        while self.processes[i].poll() is None:
            try:
                stream = socket.create_connection((self.hosts[i], PORT), timeout=WAIT_S)
                return stream, stream.makefile("rb")
            except OSError:
                time.sleep(0.02)
        return None, None

    def has_ended(self, i):
        return self.client(i)[0] is None

    def fill(self, i, count):
        stream, replies = self.client(i)
        begin, self.records = self.records, self.records + count
        for n in range(begin, self.records, 50):
            last = min(self.records, n + 50)
            stream.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$6\r\nk%05d\r\n$%d\r\n%s\r\n" % (k, len(VALUE), VALUE)
                                    for k in range(n, last)))
            for k in range(n, last):
                said = replies.readline()
                assert said == b"+OK\r\n", (k, said)
        stream.close()

    def more(self):
        self.fill(self.leader(), 10)

    def olders(self, i):
        return [self.first[i]]

    def wait_back(self, i):
        super().wait_back(i)
        self.wait_alike()

    def lost(self, i):
        """Why a client of this member does not find all records; None: it does."""
        stream, replies = self.client(i)
        stream.sendall(b"".join(b"STRLEN k%05d\r\n" % k for k in range(self.records)))
        for k in range(self.records):
            said = replies.readline()
            if said != b":%d\r\n" % len(VALUE):
                return f"record {k} of {self.records}: {said}"
        stream.close()
        return None


def _cases(tree, older, another):
    for name in tree.files:
        if name == "lock" or name.startswith("damaged."):
            continue
        for kind in damage.KINDS:
            tree.put_back()
            if damage.damage(tree, name, kind, older, another):
                yield name, kind


def _alone_case(cluster, name):
    """Of a start on damaged files: what is wrong with it; None: nothing."""
    begin, before = len(cluster.log(0)), damage.Tree(cluster.files(0)).files
    cluster.start(0)
    if cluster.client(0)[0] is not None:
        return cluster.lost(0)
    words, after = cluster.log(0)[begin:], damage.Tree(cluster.files(0)).files
    changed = [path for path in before if after.get(path) != before[path] and path not in ("synced", "lock")]
    if cluster.processes[0].wait(WAIT_S) == 0 or changed or (name not in words and str(cluster.files(0)) not in words):
        return f"it ended with {cluster.processes[0].returncode}, changed {changed}: {words[-500:]}"
    return None


def _make(cluster):
    """Returns the files as they were when it had less."""
    cluster.fill(0, OLDER)
    cluster.stop(0)
    older = damage.Tree(cluster.files(0))
    cluster.start(0)
    cluster.fill(0, RECORDS - OLDER)
    return older


def _run_cases(cluster, older, another, skip):
    tree, wrong, ran = damage.Tree(cluster.files(0)), [], 0
    assert any(name.startswith("snapshot.") for name in tree.files), sorted(tree.files)
    for number, (name, kind) in enumerate(_cases(tree, older, another)):
        if number % EVERY != skip:
            continue
        ran += 1
        fault = _alone_case(cluster, name)
        cluster.stop(0, signal.SIGKILL)
        if fault is not None:
            wrong.append(f"{name}, {kind}: {fault}")
    tree.put_back()
    assert ran > 0 and not wrong, f"seed {SEED}: {len(wrong)} of {ran} cases:\n" + "\n".join(wrong)
    return ran


def a_member_alone_loses_nothing_in_silence(directory):
    cluster, other = _Cluster(pathlib.Path(directory) / "one", 1), _Cluster(pathlib.Path(directory) / "another", 1)
    ran, chance = 0, random.Random(SEED)
    try:
        _make(other)
        other.stop(0)
        another, older = damage.Tree(other.files(0)), _make(cluster)
        for how in (signal.SIGKILL, signal.SIGTERM):
            cluster.stop(0, how)
            ran += _run_cases(cluster, older, another, chance.randrange(EVERY))
            cluster.start(0)
            assert cluster.lost(0) is None
    finally:
        cluster.close()
        other.close()
    program.say(f"# alone: {ran} cases, none loses in silence (seed {SEED})")


def a_member_with_peers_comes_back_with_all_records(directory):
    cluster = _Cluster(directory, 3)
    try:
        cluster.leader()
        cluster.fill(0, PEERS_RECORDS)
        cluster.first = [damage.Tree(cluster.files(i)) for i in range(3)]
        cluster.fill(0, PEERS_RECORDS)
        damage.run_with_peers(cluster, ("wal.", "snapshot.", "identity", "synced"), damage.KINDS, ROUNDS, SEED)
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
