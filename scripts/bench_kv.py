#!/usr/bin/env python3
"""bench_kv.py BUILD [--rounds N] [--missed N] [--absence S] [--only KIND] [--out FILE] - the store beside ZooKeeper, etcd
and Redis when members fail and return, in one run.

Three members of each on this host, in memory (/dev/shm). Rounds alternate:

    fail-over  the leader gets SIGKILL (of ours the member that decides who is one); until a write is answered, ours at
               every survivor, the others' at any
    recovery   a member is killed, misses 100,000 updates of 100 B, and is started again
                   sync_ms   ours: from ADMIT to PROMOTE, as it tells; ZooKeeper: from "Getting a diff" or "Getting a
                             snapshot from leader" in its own log to its first answer with the last zxid; Redis: from
                             "Trying a partial resynchronization" to its first answer with the last value
                   exec_ms   from exec to that first answer; ours: until it serves
               Redis forgets where it was when it is killed: it is told to save and to end instead
    set        a SET, set or put at a time, by the same kind of client of one connection, at the leader; ours at any member
    loss       a closed loop of clients at the survivors, one write in five; what they get done from 1 s before a member is
               killed to 2 s after it serves again, against as long a time without a failure

Ours is `holdfast bench kv`, whose JSON has more. bench_page.py draws what this script writes beside it.
"""
import argparse
import collections
import contextlib
import datetime
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

import beside

VALUE = b"v" * 100
PATHS = 1000  # of ZooKeeper in the closed loop
CLIENTS = 4   # of the closed loop, at each survivor
BEFORE_S, AFTER_S = 1, 2
SETS = 2000   # timed, one after the other


def _ours(build, *arguments):
    done = subprocess.run([build / "holdfast", "bench", "kv", *arguments, "--rounds", "1", "--json"], text=True,
                          capture_output=True, timeout=500, check=False)
    if done.returncode != 0:
        raise beside.Missing("holdfast bench kv came to no figures: " + done.stderr[-300:])
    return json.loads(done.stdout)


# ---- fail-over ----


def _failover_of_ours(build):
    return {"ms": [row["median_ms"] for row in _ours(build, "kill")["kill"] if row["victim"] == "decides"][0]}


def _failover_of(other):
    return {"ms": beside.failover_of(other)["seconds"] * 1e3}


# ---- recovery ----


def _recovery_of_ours(build, missed):
    row, = _ours(build, "recovery", "--missed", str(missed))["recovery"]
    return {"sync_ms": row["total_ms"], "exec_ms": row["exec_ms"], "way": row["recovery"]}


def _first(answers):
    """The time of day of the first right answer."""
    def condition():
        return time.time() if answers() else None
    return beside.until("an answer of the member that returned", condition, 300)


def _said(log, pattern, layout):
    """When the line came that has the pattern."""
    found = re.search(rf"^(.*?\d\d:\d\d:\d\d[.,]\d+) .*({pattern})", log, re.M)
    if found is None:
        raise beside.Missing(f"no line has '{pattern}'")
    said = re.search(layout[0], found[1])[0].replace(",", ".")
    return datetime.datetime.strptime(said, layout[1]).timestamp(), found[2]


def _recovery_of_zookeeper(zookeeper, missed):
    leader = zookeeper.leader()
    victim = next(i for i in range(3) if i != leader)
    stream = zookeeper.connect(leader)
    paths = [f"/k{i}" for i in range(missed)]  # as ours: each update of another record
    zookeeper.create(stream, paths)
    zookeeper.kill(victim)
    last = zookeeper.set_all(stream, paths, VALUE)
    before, begin = len(zookeeper.log(victim)), time.time()
    zookeeper.start(victim)
    end = _first(lambda: zookeeper.get(zookeeper.connect(victim, 2), paths[-1])[0] >= last)
    since, way = _said(zookeeper.log(victim)[before:], "Getting a diff|Getting a snapshot from leader",
                       (r"\d{4}-\S+ \S+", "%Y-%m-%d %H:%M:%S.%f"))
    return {"sync_ms": (end - since) * 1e3, "exec_ms": (end - begin) * 1e3, "way": way}


def _recovery_of_redis(redis, missed):
    redis.end(2)
    for at in range(0, missed, 1000):
        redis.set_all(0, [f"key{i}" for i in range(at, min(at + 1000, missed))], VALUE)
    redis.set_all(0, ["last"], b"last")
    before, begin = len(redis.log(2)), time.time()
    redis.start(2)
    end = _first(lambda: b"last" in redis.get(2, "last"))
    said = redis.log(2)[before:]
    since, _ = _said(said, "Trying a partial resynchronization|Partial resynchronization not possible", (r"\d+ \w+ \d{4} \S+", "%d %b %Y %H:%M:%S.%f"))
    return {"sync_ms": (end - since) * 1e3, "exec_ms": (end - begin) * 1e3,
            "way": "partial" if "Successful partial resynchronization" in said else "full"}


# ---- throughput lost ----


def _loss_of_ours(build, absence_s):
    row, = _ours(build, "loss", "--recovery", "heal", "--absence", str(absence_s))["loss"]
    return {"lost_percent": row["lost_percent"]}


class Loop(threading.Thread):
    """A client in a closed loop."""

    def __init__(self, zookeeper, i, paths):
        super().__init__(daemon=True)
        self.zookeeper, self.i, self.paths, self.done, self.stopping = zookeeper, i, paths, 0, False

    def run(self):
        while not self.stopping:
            with contextlib.suppress(OSError):
                stream = self.zookeeper.connect(self.i)
                while not self.stopping:
                    path = self.paths[self.done * 7919 % PATHS]
                    if self.done % 5 == 0:
                        self.zookeeper.set_all(stream, [path], VALUE)
                    else:
                        self.zookeeper.get(stream, path)
                    self.done += 1


def _loss_of_zookeeper(zookeeper, absence_s):
    leader = zookeeper.leader()
    victim = next(i for i in range(3) if i != leader)
    paths = [f"/k{i}" for i in range(PATHS)]
    zookeeper.create(zookeeper.connect(leader), paths)
    clients = [Loop(zookeeper, i, paths) for i in range(3) if i != victim for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(1)
    start, begin = sum(client.done for client in clients), time.monotonic()
    time.sleep(BEFORE_S)
    zookeeper.kill(victim)
    time.sleep(absence_s)
    zookeeper.start(victim)
    _first(lambda: zookeeper.get(zookeeper.connect(victim, 2), paths[-1])[0] > 0)
    time.sleep(AFTER_S)
    window_s = time.monotonic() - begin
    failing = sum(client.done for client in clients) - start
    start, begin = sum(client.done for client in clients), time.monotonic()
    time.sleep(window_s)
    calm = (sum(client.done for client in clients) - start) / (time.monotonic() - begin)
    for client in clients:
        client.stopping = True
    for client in clients:
        client.join(30)
    return {"lost_percent": 100 * (1 - failing / window_s / calm)}


# ---- set ----


class Holdfast:
    """A store of three members, with logs in memory."""
    def __init__(self, processes, build):
        self.hosts = [[f"{beside.NET}.{61 + 2 * i + rail}" for rail in range(2)] for i in range(3)]
        members = [{"name": f"h{i}", "control": [f"{host}:18515" for host in hosts]} for i, hosts in enumerate(self.hosts)]
        for i, hosts in enumerate(self.hosts):
            rails = [{"name": f"r{rail}", "kind": "shm", "control": f"{host}:18515"} for rail, host in enumerate(hosts)]
            path = processes.directory / f"h{i}.json"
            path.write_text(json.dumps({
                "name": f"h{i}", "fabric": f"bench-kv-{os.getpid()}", "rails": rails,
                "kv": {"members": members, "listen": f"{hosts[0]}:7600", "log": f"h{i}", "medium": "memory"}}))
            processes.start(f"h{i}", build / "holdfast", "kv", "--config", path)
        beside.until("a store that serves", self.leader)

    def leader(self):
        with contextlib.suppress(OSError, AssertionError):
            self.writer(0)()
            return True
        return None

    def writer(self, i):
        stream = socket.create_connection((self.hosts[i][0], 7600), timeout=20)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$%d\r\n%s\r\n" % (len(beside.VALUE), beside.VALUE)

        def write():
            stream.sendall(message)
            assert stream.recv(4096) == b"+OK\r\n"
        return write


def _set_of(other, i):
    found = beside.measure(other.writer(i), SETS)
    return {"p50_us": found["median_us"], "p99_us": found["p99_us"]}


# ---- rounds ----


def _plan(build, options):
    """(kind, name, work) in the order of a round."""
    def apart(make, work, *more):
        return lambda: beside.run_with(make, lambda other: work(other, *more))

    return [("fail-over", "holdfast", lambda: _failover_of_ours(build)),
            ("fail-over", "ZooKeeper", apart(beside.ZooKeeper, _failover_of)),
            ("fail-over", "etcd", apart(beside.Etcd, _failover_of)),
            ("fail-over", "Sentinel", apart(beside.Sentinel, _failover_of)),
            ("recovery", "holdfast", lambda: _recovery_of_ours(build, options.missed)),
            ("recovery", "ZooKeeper", apart(beside.ZooKeeper, _recovery_of_zookeeper, options.missed)),
            ("recovery", "Redis", apart(beside.RedisWait, _recovery_of_redis, options.missed)),
            ("set", "holdfast", lambda: beside.run_with(lambda at: Holdfast(at, build), lambda ours: _set_of(ours, 0))),
            ("set", "ZooKeeper", apart(beside.ZooKeeper, lambda other: _set_of(other, other.leader()))),
            ("set", "etcd", apart(beside.Etcd, lambda other: _set_of(other, other.leader()))),
            ("loss", "holdfast", lambda: _loss_of_ours(build, options.absence)),
            ("loss", "ZooKeeper", apart(beside.ZooKeeper, _loss_of_zookeeper, options.absence))]


def _medians(points):
    """With the ways that a recovery took."""
    ways = collections.defaultdict(set)
    for point in points:
        ways[point["kind"], point["name"]].add(point.get("way", ""))
    return [row | {"way": ", ".join(sorted(ways[row["kind"], row["name"]]))} for row in beside.medians_of(points)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--missed", type=int, default=100000)
    parser.add_argument("--absence", type=float, default=6)
    parser.add_argument("--only", choices=["fail-over", "recovery", "set", "loss"])
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    points, skipped = [], {}
    plan = [step for step in _plan(options.build.resolve(), options) if options.only in (None, step[0])]

    for _ in range(options.rounds):
        for kind, name, work in plan:
            if f"{kind} {name}" in skipped:
                continue
            try:
                points.append({"kind": kind, "name": name, "load": os.getloadavg()[0]} | work())
            except (beside.Missing, AssertionError, OSError, subprocess.SubprocessError) as why:
                skipped[f"{kind} {name}"] = str(why)
                print(f"  skipped: {kind} {name}: {why}", flush=True)
                continue
            print(f"  {kind:10} {name:10} " + ", ".join(
                f"{key} {value:.1f}" if isinstance(value, float) else value for key, value in list(points[-1].items())[2:]),
                flush=True)
    medians = _medians(points)
    print("medians of the rounds:")
    for row in medians:
        print("  " + ", ".join(f"{key} {value:.1f}" if isinstance(value, float) else value for key, value in row.items()))
    if options.out is not None:
        options.out.write_text(json.dumps({"points": points, "medians": medians, "skipped": skipped}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
