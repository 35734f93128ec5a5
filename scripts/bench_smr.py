#!/usr/bin/env python3
"""bench_smr.py BUILD [--rounds N] [--out FILE] - a replicated log beside etcd, ZooKeeper and Redis with WAIT 2, in one run.

Three members of each on this host, in memory where they can (/dev/shm). Rounds alternate:

    propose     one request of 64 B after the other: ours by `holdfast bench smr` (in the leader's process) and by
                examples/kv_store (a client that WRITEs); the others over TCP, by a client of this script that keeps its
                connection. That client's own time, some 20 us, is in their figures; TCP and their protocols are too.
                Redis with WAIT 2 once more while a process of the lowest class keeps each core from sleeping
    durable     the same on the disk that BUILD is on, ours and etcd's
    redis       redis-benchmark: a bare server, a proxy alone (one member), three members; and SET with WAIT 2; with the
                medians, what replication adds to the proxy, and its throughput against WAIT 2
    fail-over   the leader gets SIGKILL; until the next write is answered

bench_page.py draws what this script writes beside ours. What cannot be had here is skipped, in words. Nobody else
should use the machine's cores meanwhile.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import beside


class Proxy:
    """Ours before Redis, `calm`."""

    def __init__(self, processes, holdfast, members):
        beside.need("redis-server", "redis-benchmark")
        self.name = f"proxy, {members} member{'s' if members > 1 else ''}"
        self.processes, self.hosts = processes, [f"{beside.NET}.{41 + 10 * members + i}" for i in range(members)]
        for i, host in enumerate(self.hosts):
            config = {"name": f"p{i}", "fabric": f"beside-{os.getpid()}-{members}", "http": f"{host}:8080",
                      "rails": [{"name": "r0", "kind": "shm", "control": f"{host}:18515"}],
                      "smr-proxy": {"cluster": "beside", "listen": f"{host}:6379", "members": [
                          {"id": k, "name": f"p{k}", "control": [f"{at}:18515"]} for k, at in enumerate(self.hosts)]}}
            (processes.directory / f"p{i}.json").write_text(json.dumps(config))
            processes.start(f"p{i}", holdfast, "smr-proxy", "--config", f"p{i}.json")
        beside.until(f"a leader of the {self.name}", lambda: self.leader() is not None)

    def leader(self):
        for i, host in enumerate(self.hosts):
            if f"p{i}" not in self.processes.running:
                continue
            connection = http.client.HTTPConnection(host, 8080, timeout=1)
            connection.request("GET", "/smr.json")
            if json.loads(connection.getresponse().read()).get("role") == "leader":
                return i
        return None

    def writer(self, i, timeout_s=40):
        stream = socket.create_connection((self.hosts[i], 6379), timeout=timeout_s)

        def write():
            stream.sendall(b"SET key " + beside.VALUE + b"\r\n")
            assert stream.recv(4096) == b"+OK\r\n"
        return write

    def kill(self, i):
        self.processes.kill(f"p{i}")


# ---- what is measured ----


def _propose_of(other):
    return beside.measure(other.writer(other.leader()), 2000)


def _busy(work):
    """No core sleeps, so that no thread is woken from deep sleep."""
    with beside.busy_cores():
        return work()


def _bench_smr(build, part, *words):
    done = subprocess.run([build / "holdfast", "bench", "smr", "--json", *words], text=True, capture_output=True, timeout=500,
                          check=False)
    if done.returncode != 0:
        raise beside.Missing(f"holdfast bench smr {' '.join(words)} came to no figures: " + done.stderr[-300:])
    row = json.loads(done.stdout)[part][0]
    return {key.replace("_ns", "_us"): row[key] / 1e3 for key in ("median_ns", "p99_ns")}


def _ours(build):
    return _bench_smr(build, "propose", "--rounds", "1", "--failovers", "0", "--cuts", "0")


def _durable(build):
    """One proposal after the other, each synced by a majority, below BUILD, as etcd's are there."""
    with tempfile.TemporaryDirectory(prefix="holdfast-durable-", dir=build) as directory:
        return _bench_smr(build, "durable", "--durable", directory)


def _ratios(medians):
    """What is asked of these figures, from the medians of the rounds; a row for each that can be had."""
    found = {(row["kind"], row["name"], key): value for row in medians for key, value in row.items()}

    def row(words, value, verdict=""):
        return {"kind": "ratio", "name": words, "value": value, "verdict": verdict}

    def at_least(words, value, least):
        return row(words, value, f"at least {least}: {'met' if value >= least else 'missed'}")

    others = [found[key] for key in found if key[0] == "propose" and key[2] == "median_us" and not key[1].startswith("holdfast")]
    for name, words, least in (("propose", "a proposal, times faster than the best of the others", 60),
                               ("kv_store", "examples/kv_store from client to reply, likewise", 15)):
        ours = found.get(("propose", f"holdfast, {name}", "median_us"))
        if ours and others:
            yield at_least(words, min(others) / ours, least)
    alone, three = (found.get(("one client", f"holdfast, {n} before Redis", "median_us")) for n in (1, 3))
    if alone and three:
        yield row("us that replication adds to the proxy's median at one client", three - alone,
                  f"at most 15: {'met' if three - alone <= 15 else 'missed'}")
    ours = found.get(("16 by 16", "holdfast, 3 before Redis", "requests_a_second"))
    wait = found.get(("16 by 16", "Redis WAIT 2, pipelines", "requests_a_second"))
    if ours and wait:
        yield at_least("16 clients, pipeline 16: times the throughput of WAIT 2", ours / wait, 1)
    durable, etcd = (found.get(("durable", name, "median_us")) for name in ("holdfast, durable", "etcd, on disk"))
    if durable and etcd:
        yield row("durable proposals: etcd's time divided by ours", etcd / durable)


def _kv_store(build):
    program = build / "examples" / "example-kv-store"
    addresses = [f"{beside.NET}.{131 + i}:18515" for i in range(3)]
    fabric = f"beside-kv-{os.getpid()}-{random.randrange(10**6)}"

    def work(processes):
        for i in range(3):
            processes.start(f"m{i}", program, "member", i, fabric, *addresses)
        done = subprocess.run([str(word) for word in [program, "client", fabric, f"{beside.NET}.141:18515", *addresses, "--",
                                                      "measure", 20000]], text=True, capture_output=True, timeout=100,
                              check=False)
        found = re.search(r"median (\d+) ns, p99 (\d+) ns", done.stdout)
        if found is None:
            raise beside.Missing("examples/kv_store came to no figures: " + done.stderr[-300:])
        return {"median_us": int(found[1]) / 1e3, "p99_us": int(found[2]) / 1e3}
    try:
        return beside.run_with(lambda processes: processes, work)
    finally:
        shutil.rmtree(f"/dev/shm/holdfast-{os.getuid()}-{fabric}", ignore_errors=True)


def _redis_benchmark(host, clients, pipeline, requests):
    done = subprocess.run(["redis-benchmark", "-h", host, "-p", "6379", "-t", "set", "-d", "64", "-c", str(clients), "-P",
                           str(pipeline), "-n", str(requests), "--csv"], text=True, capture_output=True, timeout=300,
                          check=True)
    row = [cell.strip('"') for cell in done.stdout.strip().split("\n")[-1].split(",")]
    return {"requests_a_second": float(row[1]), "median_us": float(row[4]) * 1e3, "p99_us": float(row[6]) * 1e3}


def _bare(processes):
    beside.need("redis-server", "redis-benchmark")
    host = f"{beside.NET}.30"
    processes.start("bare", "redis-server", "--bind", host, "--port", 6379, "--save", "", "--appendonly", "no",
                    "--protected-mode", "no")
    beside.until("a bare Redis", lambda: socket.create_connection((host, 6379)).close() or True)
    return host


def _redis_of(host):
    return {"one": _redis_benchmark(host, 1, 1, 20000), "many": _redis_benchmark(host, 16, 16, 400000)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    build, found, skipped = options.build.resolve(), [], {}
    holdfast = build / "holdfast"

    def run(name, kind, work):
        if isinstance(skipped.get(name), beside.Missing):
            return
        try:
            figures = work()
        except (beside.Missing, AssertionError, OSError, subprocess.SubprocessError) as why:
            skipped[name] = why  # the next round tries again, unless a program is missing
            print(f"  skipped: {name}: {why}", flush=True)
            return
        skipped.pop(name, None)
        found.append({"name": name, "kind": kind, **figures})
        print(f"  {kind:10} {name:24} " + ", ".join(
            f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, float)), flush=True)

    def redis(name, work):
        run(name, "one client", lambda: work()["one"])
        run(name, "16 by 16", lambda: work()["many"])

    for _ in range(options.rounds):
        run("holdfast, propose", "propose", lambda: _ours(build))
        run("holdfast, kv_store", "propose", lambda: _kv_store(build))
        for other in (beside.Etcd, beside.ZooKeeper, beside.RedisWait):
            run(other.name, "propose", lambda: beside.run_with(other, _propose_of))
        run("Redis WAIT 2, busy cores", "propose", lambda: _busy(lambda: beside.run_with(beside.RedisWait, _propose_of)))
        run("holdfast, durable", "durable", lambda: _durable(build))
        run("etcd, on disk", "durable", lambda: beside.run_with(beside.Etcd, _propose_of, build))
        redis("Redis, bare", lambda: beside.run_with(_bare, _redis_of))
        for members in (1, 3):
            redis(f"holdfast, {members} before Redis", lambda: beside.run_with(
                lambda processes: Proxy(processes, holdfast, members), lambda proxy: _redis_of(proxy.hosts[proxy.leader()])))
        run("Redis WAIT 2, pipelines", "16 by 16", lambda: {
            "requests_a_second": beside.run_with(beside.RedisWait, lambda it: it.pipelines(16, 16, 3.0))})
        run("holdfast, proxy", "fail-over", lambda: beside.run_with(lambda processes: Proxy(processes, holdfast, 3), beside.failover_of))
        for other in (beside.Etcd, beside.ZooKeeper, beside.Sentinel):
            run(f"{other.name}, fail-over", "fail-over", lambda: beside.run_with(other, beside.failover_of))
    medians = beside.medians_of(found)
    print("medians of the rounds:")
    for row in medians + (ratios := list(_ratios(medians))):
        print("  " + ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else value for key, value in row.items()))
    if options.out is not None:
        options.out.write_text(json.dumps({"points": found, "medians": medians + ratios,
                                           "skipped": {name: str(why) for name, why in skipped.items()}}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
