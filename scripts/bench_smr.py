#!/usr/bin/env python3
"""bench_smr.py BUILD [--rounds N] [--out FILE] - a replicated log beside etcd, ZooKeeper and Redis with WAIT 2, in one run.

Three members of each on this host, in memory where they can (/dev/shm). Rounds alternate:

    propose     one request of 64 B after the other: ours by `holdfast bench smr` (in the leader's process) and by
                examples/kv_store (a client that WRITEs); the others over TCP, by a client of this script that keeps its
                connection. That client's own time, some 20 us, is in their figures; TCP and their protocols are too.
    durable     the same on the disk that BUILD is on, ours and etcd's
    redis       redis-benchmark: a bare server, a proxy alone (one member), three members; and SET with WAIT 2; with the
                medians, what replication adds to the proxy, and its throughput against WAIT 2
    fail-over   the leader gets SIGKILL; until the next write is answered

What cannot be had here is skipped, in words. Nobody else should use the machine's cores meanwhile.
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
import statistics
import subprocess
import sys
import tempfile
import time

import beside


def _measure(write, n, warm=200):
    for _ in range(warm):
        write()
    times = []
    for _ in range(n):
        begin = time.perf_counter_ns()
        write()
        times.append(time.perf_counter_ns() - begin)
    times.sort()
    return {"median_us": times[n // 2] / 1e3, "p99_us": times[n * 99 // 100] / 1e3}


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
    return _measure(other.writer(other.leader()), 2000)


def _ours(build, rounds):
    done = subprocess.run([build / "holdfast", "bench", "smr", "--json", "--rounds", str(rounds), "--failovers", "20"],
                          text=True, capture_output=True, timeout=500, check=False)
    if done.returncode != 0:
        raise beside.Missing("holdfast bench smr came to no figures: " + done.stderr[-300:])
    return json.loads(done.stdout)


def _durable(build):
    """One proposal after the other, each synced by a majority, below BUILD, as etcd's are there."""
    with tempfile.TemporaryDirectory(prefix="holdfast-durable-", dir=build) as directory:
        done = subprocess.run([build / "holdfast", "bench", "smr", "--json", "--durable", directory], text=True,
                              capture_output=True, timeout=300, check=False)
    if done.returncode != 0:
        raise beside.Missing("holdfast bench smr --durable came to no figures: " + done.stderr[-300:])
    return {key.replace("_ns", "_us"): json.loads(done.stdout)[0][key] / 1e3 for key in ("median_ns", "p99_ns")}


def _ratios(medians):
    """What is asked of these figures, from the medians of the rounds; a row for each that can be had."""
    def of(kind, name, key):
        return medians.get((kind, name, key))

    alone, three = (of("one client", f"holdfast, {n} before Redis", "median_us") for n in (1, 3))
    if alone and three:
        yield f"replication adds {three - alone:.1f} us to the proxy's median at one client, {three / alone:.2f} times it"
    ours = of("16 by 16", "holdfast, 3 before Redis", "requests_a_second")
    wait = of("16 by 16", "Redis WAIT 2, pipelines", "requests_a_second")
    if ours and wait:
        yield f"16 clients, pipeline 16: {ours / wait:.2f} times the throughput of WAIT 2"
    durable, etcd = (of("durable", name, "median_us") for name in ("holdfast, durable", "etcd, on disk"))
    if durable and etcd:
        yield f"durable proposals: etcd takes {etcd / durable:.2f} times as long"


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
        if name in skipped:
            return
        try:
            figures = work()
        except (beside.Missing, AssertionError, OSError, subprocess.SubprocessError) as why:
            skipped[name] = str(why)
            print(f"  skipped: {name}: {why}", flush=True)
            return
        found.append({"name": name, "kind": kind, **figures})
        print(f"  {kind:10} {name:24} " + ", ".join(
            f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, float)), flush=True)

    def redis(name, work):
        run(name, "one client", lambda: work()["one"])
        run(name, "16 by 16", lambda: work()["many"])

    for _ in range(options.rounds):
        run("holdfast, propose", "propose", lambda: {
            key.replace("_ns", "_us"): value / 1e3 for key, value in _ours(build, 1)[0].items() if key in ("median_ns", "p99_ns")})
        run("holdfast, kv_store", "propose", lambda: _kv_store(build))
        for other in (beside.Etcd, beside.ZooKeeper, beside.RedisWait):
            run(other.name, "propose", lambda: beside.run_with(other, _propose_of))
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
    summary = {}
    for point in found:
        for key, value in point.items():
            if isinstance(value, float):
                summary.setdefault((point["kind"], point["name"], key), []).append(value)
    print("medians of the rounds:")
    for (kind, name, key), values in sorted(summary.items()):
        print(f"  {kind:10} {name:26} {key:18} {statistics.median(values):12.4g}   ({min(values):.4g} to {max(values):.4g})")
    for row in _ratios({key: statistics.median(values) for key, values in summary.items()}):
        print("  " + row)
    if options.out is not None:
        options.out.write_text(json.dumps({"points": found, "skipped": skipped}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
