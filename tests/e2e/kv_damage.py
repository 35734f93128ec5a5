#!/usr/bin/env python3
"""kv_damage.py PROGRAM [ROUNDS] - damaged files of a store: an error in words, or full repair; never fewer acknowledged records
(R-D1, R-D2, R-D5). ROUNDS members with peers get older or another's files; 0: each file in each way. SEED=N repeats a choice."""
import os
import random
import signal
import subprocess
import sys
import time

import damage
import program
from kv_cluster import Closed, Cluster

ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 0
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
FILES = ("log-", "synced", "members/wal.", "members/identity", "members/synced")
RECORDS = 300
LEASE_S = 1  # of kv_cluster.py


def _fill(cluster, first, last):
    client = cluster.client(0)
    for n in range(first, last):
        assert client.ask("SET", f"k{n}", f"v{n}" + "x" * 200) == "+OK"
    client.close()


def _check(cluster, member, last=RECORDS):
    client = cluster.client(member)
    lost = [n for n in range(last) if client.ask("GET", f"k{n}") is None]
    client.close()
    assert not lost, f"{len(lost)} records are lost, from {lost[0]} on"


def _log(cluster, member):
    return cluster.directory / f"log-{Cluster.made}-n{member}"


def _segments(directory):
    return sorted(path.name for path in directory.glob("log-*"))


def _refuses(cluster, directory, name="log-0000000000000000"):
    """The member ends with words, and its log keeps every byte."""
    before = damage.Tree(_log(cluster, 0)).files
    done = subprocess.run([program.HOLDFAST, "kv", "--config", cluster.path(0)], cwd=directory, text=True,
                          env=program.environment(directory), capture_output=True, timeout=120, check=False)
    after = damage.Tree(_log(cluster, 0)).files
    assert done.returncode > 0, done.stderr
    assert name in done.stderr and "the log is damaged" in done.stderr, done.stderr
    assert {name: data for name, data in after.items() if name.startswith("log-")} == \
        {name: data for name, data in before.items() if name.startswith("log-")}


def a_member_alone_says_which_file_is_damaged_and_changes_none(directory):
    with Cluster(directory, "shm", 1, log=True) as cluster:
        _fill(cluster, 0, RECORDS)
        older = damage.Tree(_log(cluster, 0))
        _fill(cluster, RECORDS, RECORDS + 50)
        for how in (signal.SIGTERM, signal.SIGKILL):
            _fill(cluster, 0, 1)  # then no flush of the start is under way, whose end would be torn
            cluster.stop(0, how)
            tree = damage.Tree(_log(cluster, 0))
            tried = 0
            for name in _segments(_log(cluster, 0)):
                for kind in damage.KINDS:
                    tree.put_back()
                    if damage.damage(tree, name, kind, older, None):
                        _refuses(cluster, directory)
                        tried += 1
            assert tried == len(damage.CHANGES) + 1, tried
            tree.put_back()
            cluster.start(0)
            cluster.wait_serving(0)
            _check(cluster, 0, RECORDS + 50)


def a_member_alone_without_its_mark_does_not_start(directory):
    with Cluster(directory, "shm", 1, log=True) as cluster:
        _fill(cluster, 0, RECORDS)
        cluster.kill(0)
        tree = damage.Tree(_log(cluster, 0))
        for kind in ("missing", "truncated"):
            tree.put_back()
            (_log(cluster, 0) / "synced").write_bytes(b"")  # both of its records
            if kind == "missing":
                (_log(cluster, 0) / "synced").unlink()
            _refuses(cluster, directory, "synced")


def a_member_with_peers_copies_all_records_and_keeps_the_damaged_files(directory):
    with Cluster(directory, "shm", 3, log=True) as cluster:
        _fill(cluster, 0, RECORDS)
        last = RECORDS
        for how, kind in ((signal.SIGKILL, "tail"), (signal.SIGTERM, "head"), (signal.SIGKILL, "missing")):
            cluster.stop(2, how)
            tree = damage.Tree(_log(cluster, 2))
            assert damage.damage(tree, _segments(_log(cluster, 2))[-1], kind, None, None)
            _fill(cluster, last, last + 20)
            last += 20
            cluster.start(2)
            cluster.wait_serving(2)
            assert "the log is damaged" in cluster.log(2), kind
            cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)
            _check(cluster, 2, last)
        assert list(_log(cluster, 2).glob("damaged-*"))


def members_that_all_lost_their_logs_found_no_empty_store(directory):
    with Cluster(directory, "shm", 3, log=True) as cluster:
        _fill(cluster, 0, 50)
        for member in range(3):
            cluster.kill(member)
        for member in range(2):
            assert damage.damage(damage.Tree(_log(cluster, member)), _segments(_log(cluster, member))[0], "middle", None, None)
        for member in range(3):
            cluster.start(member)
        for member in range(3):
            cluster.wait_serving(member)
            _check(cluster, member, 50)  # the third one has all of them


class _Members(Cluster):
    """With records that are written again and deleted, while they have copies of what their logs were."""

    def begin(self):
        self.known, self.serial = {}, 0  # of each key its value; None: it was deleted
        self._write(range(RECORDS // 2))
        self.copies = [[damage.Tree(self.files(i))] for i in range(self.count)]
        self.outgrow(1)

    def files(self, i):
        return _log(self, i)

    def start(self, i):
        self.launch(i)  # it may end

    def has_ended(self, i):
        self.wait(f"n{i} serves, or ends", lambda: self.processes[i].poll() is not None or self.serves(i))
        return self.processes[i].poll() is not None

    def _try(self, i, requests):
        """Nothing where the member was excluded meanwhile: a machine under load stops it for longer than a lease."""
        try:
            client = self.client(i)
            for request in requests:
                client.send(*request)
            answers = [client.reply() for _ in requests]
            client.close()
        except (OSError, Closed):
            return []
        return [] if any(isinstance(answer, str) and answer != "+OK" for answer in answers) else answers

    def _ask(self, i, requests):
        answers = []
        self.wait(f"n{i} answers", lambda: answers or answers.extend(self._try(i, requests)) or answers)
        return answers

    def _write(self, numbers, deletes=()):
        self.serial += 1
        new = {f"k{n}": f"{self.serial}-{n}".encode() + b"x" * 200 for n in numbers} | {f"k{n}": None for n in deletes}
        lives = next(i for i in range(self.count) if self.processes[i])
        self._ask(lives, [("DEL", key) if value is None else ("SET", key, value) for key, value in new.items()])
        self.known |= new

    def more(self):
        last = len(self.known)
        self._write([*range(last % 7, last, 7), *range(last, last + 20)], range(last % 11, last, 11))

    def outgrow(self, leases):
        """Then all have heard that all have more than before (R-K25)."""
        until = time.monotonic() + leases * LEASE_S
        while time.monotonic() < until:
            self.more()

    def olders(self, i):
        """Of the same incarnation in the membership log: one that was replaced comes back as a newcomer, and may be told later
        that it is an older copy."""
        self.copies[i].append(damage.Tree(self.files(i)))
        identities = [copy.files["members/identity"] for copy in self.copies[i]]
        self.outgrow(1)
        return [copy for copy, identity in zip(self.copies[i], identities) if identity == identities[-1]]

    def wait_back(self, _):
        for member in range(self.count):
            self.wait_serving(member)
        self.wait("equal members", lambda: len(set(self.digests())) == 1)

    def lost(self, _):
        for i in range(self.count):
            values = self._ask(i, [("GET", key) for key in self.known])
            wrong = [key for key, value in zip(self.known, values) if value != self.known[key]]
            if wrong:
                return f"n{i} has other values of {len(wrong)} of {len(self.known)} records: {wrong[:9]}"
        return None


def a_member_with_older_files_or_those_of_another_comes_back_with_all_records(directory):
    with _Members(directory, "shm", 3, log=True) as cluster:
        cluster.begin()
        damage.run_with_peers(cluster, 3 * (damage.ALL,) + FILES, damage.COPIES, ROUNDS, SEED)


def an_older_log_begins_no_store_when_all_members_ended(directory):
    program.say(f"# all end: seed {SEED}")
    chance = random.Random(SEED)
    victim, how, begin = chance.randrange(3), (signal.SIGKILL, signal.SIGTERM), chance.sample(range(3), 3)
    with _Members(directory, "shm", 3, log=True) as cluster:
        cluster.begin()
        older = chance.choice(cluster.olders(victim))
        cluster.outgrow(2)  # a copy may be believed that is as new as an exclusion is long
        for member in chance.sample(range(3), 3):
            cluster.stop(member, chance.choice(how))
        tree = damage.Tree(cluster.files(victim))
        older.put_back()
        fault = damage.come_back(cluster, begin, victim, tree, str(tree.directory))
        assert fault is None, f"the older log is that of n{victim}: {fault}"


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
