"""Damaged files of a store: an error in words, or full repair; never fewer acknowledged records (R-D1, R-D2, R-D5)."""
import subprocess
import sys

import damage
import program
from kv_cluster import Cluster

RECORDS = 300


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


def _end(cluster, member, in_order):
    if not in_order:
        cluster.kill(member)
        return
    process = cluster.processes[member]
    process.terminate()
    process.wait(timeout=60)
    process.stdout.close()
    cluster.processes[member] = None


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
        for in_order in (True, False):
            _end(cluster, 0, in_order)
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
        for in_order, kind in ((False, "tail"), (True, "head"), (False, "missing")):
            _end(cluster, 2, in_order)
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


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
