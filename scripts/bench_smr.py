#!/usr/bin/env python3
"""bench_smr.py BUILD [--rounds N] [--out FILE] - a replicated log beside etcd, ZooKeeper and Redis with WAIT 2, in one run.

Three members of each on this host, in memory where they can (/dev/shm). Rounds alternate:

    propose     one request of 64 B after the other: ours by `holdfast bench smr` (in the leader's process) and by
                examples/kv_store (a client that WRITEs); the others over TCP, by a client of this script that keeps its
                connection. That client's own time, some 20 us, is in their figures; TCP and their protocols are too.
    redis       redis-benchmark: a bare server, a proxy alone (one member), three members; and SET with WAIT 2
    fail-over   the leader gets SIGKILL; until the next write is answered

What cannot be had here is skipped, in words. Nobody else should use the machine's cores meanwhile.
"""
import argparse
import base64
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

VALUE = b"x" * 64
LIMIT_S = 60
NET = f"127.{random.randrange(64, 120)}.{random.randrange(256)}"
ZOOKEEPER_JARS = "/usr/share/java"


class Missing(Exception):
    pass


def _need(*programs):
    for name in programs:
        if shutil.which(name) is None:
            raise Missing(f"{name} is not installed (scripts/packages.txt, group beside)")


def _until(what, condition, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError, AssertionError):
            found = condition()
            if found is not None and found is not False:
                return found
        time.sleep(0.005)
    raise Missing(f"{what} did not happen in {limit_s} s")


class Processes:
    """Programs that end with the block."""

    def __init__(self, directory):
        self.directory, self.running = pathlib.Path(directory), {}

    def start(self, name, *command, env=None):
        log = open(self.directory / f"{name}.log", "a")
        self.running[name] = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, cwd=self.directory,
                                              stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})

    def kill(self, name):
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self):
        for name in list(self.running):
            self.kill(name)


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


# ---- the others: start(), a connection with write(), and who leads ----


class Etcd:
    name = "etcd"

    def __init__(self, processes):
        _need("etcd")
        self.processes, self.hosts = processes, [f"{NET}.{11 + i}" for i in range(3)]
        cluster = ",".join(f"e{i}=http://{host}:2380" for i, host in enumerate(self.hosts))
        for i, host in enumerate(self.hosts):
            processes.start(f"e{i}", "etcd", "--name", f"e{i}", "--data-dir", f"e{i}.data", "--initial-cluster", cluster,
                            "--initial-cluster-state", "new", "--listen-peer-urls", f"http://{host}:2380",
                            "--initial-advertise-peer-urls", f"http://{host}:2380", "--listen-client-urls",
                            f"http://{host}:2379", "--advertise-client-urls", f"http://{host}:2379")
        _until("a leader of etcd", self.leader)

    def _post(self, connection, path, body):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())

    def leader(self):
        for i, host in enumerate(self.hosts):
            if f"e{i}" not in self.processes.running:
                continue
            status = self._post(http.client.HTTPConnection(host, 2379, timeout=1), "/v3/maintenance/status", {})
            if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                return i
        return None

    def writer(self, i, timeout_s=20):
        connection = http.client.HTTPConnection(self.hosts[i], 2379, timeout=timeout_s)
        body = {"key": base64.b64encode(b"key").decode(), "value": base64.b64encode(VALUE).decode()}

        def write():
            assert "header" in self._post(connection, "/v3/kv/put", body)
        return write

    def kill(self, i):
        self.processes.kill(f"e{i}")


class ZooKeeper:
    name = "ZooKeeper"

    def __init__(self, processes):
        _need("java")
        jars = [str(path) for path in pathlib.Path(ZOOKEEPER_JARS).glob("*.jar")]
        if not any("/zookeeper" in jar for jar in jars):
            raise Missing("zookeeper is not installed (scripts/packages.txt, group beside)")
        self.processes, self.hosts = processes, [f"{NET}.{21 + i}" for i in range(3)]
        servers = "".join(f"server.{i + 1}={host}:2888:3888\n" for i, host in enumerate(self.hosts))
        for i, host in enumerate(self.hosts):
            data = processes.directory / f"z{i}.data"
            data.mkdir()
            (data / "myid").write_text(f"{i + 1}\n")
            (processes.directory / f"z{i}.cfg").write_text(
                f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort=2181\nclientPortAddress={host}\n"
                f"admin.enableServer=false\n4lw.commands.whitelist=*\n{servers}")
            processes.start(f"z{i}", "java", "-Xmx256m", "-cp", ":".join(jars),
                            "org.apache.zookeeper.server.quorum.QuorumPeerMain", f"z{i}.cfg")
        _until("a leader of ZooKeeper", self.leader)
        write = _until("a session of ZooKeeper", lambda: self._connect(0))
        self._create(write)

    def leader(self):
        for i, host in enumerate(self.hosts):
            if f"z{i}" not in self.processes.running:
                continue
            with contextlib.suppress(OSError), socket.create_connection((host, 2181), timeout=1) as stream:
                stream.sendall(b"srvr")
                if b"Mode: leader" in stream.makefile("rb").read():
                    return i
        return None

    def _connect(self, i, timeout_s=20):
        stream = socket.create_connection((self.hosts[i], 2181), timeout=timeout_s)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(stream, struct.pack(">iqiqi16s", 0, 0, 30000, 0, 16, b"\0" * 16))
        assert len(self._hear(stream)) >= 20
        return stream

    @staticmethod
    def _send(stream, message):
        stream.sendall(struct.pack(">i", len(message)) + message)

    @staticmethod
    def _hear(stream):
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
            more = stream.recv(4096)
            if not more:
                raise OSError("the connection ended")
            data += more
        return data[4:]

    def _create(self, stream):
        acl = struct.pack(">ii", 1, 31) + struct.pack(">i", 5) + b"world" + struct.pack(">i", 6) + b"anyone"
        self._send(stream, struct.pack(">iii", 1, 1, 4) + b"/key" + struct.pack(">i", 64) + VALUE + acl + struct.pack(">i", 0))
        assert struct.unpack(">i", self._hear(stream)[12:16])[0] == 0, "create"

    def writer(self, i, timeout_s=20):
        stream = self._connect(i, timeout_s)
        message = struct.pack(">iii", 2, 5, 4) + b"/key" + struct.pack(">i", 64) + VALUE + struct.pack(">i", -1)

        def write():
            self._send(stream, message)
            assert struct.unpack(">i", self._hear(stream)[12:16])[0] == 0
        return write

    def kill(self, i):
        self.processes.kill(f"z{i}")


class RedisWait:
    """One master, two replicas; a write counts when both have it. Sentinels for the fail-over, where there are any."""
    name = "Redis WAIT 2"

    def __init__(self, processes, sentinels=False):
        _need("redis-server")
        self.processes, self.hosts, self.sentinels = processes, [f"{NET}.{31 + i}" for i in range(3)], sentinels
        for i, host in enumerate(self.hosts):
            more = ["--replicaof", self.hosts[0], "6379"] if i > 0 else []
            processes.start(f"r{i}", "redis-server", "--bind", host, "--port", 6379, "--save", "", "--appendonly", "no",
                            "--protected-mode", "no", "--repl-diskless-sync-delay", 0, "--replica-announce-ip", host, "--dir", processes.directory, *more)
        _until("two replicas of Redis", lambda: b"connected_slaves:2" in self._ask(0, b"INFO replication\r\n", 65536))
        for i, host in enumerate(self.hosts if sentinels else []):
            (processes.directory / f"s{i}.conf").write_text(
                f"port 26379\nbind {host}\nprotected-mode no\nsentinel announce-ip {host}\nsentinel monitor m {self.hosts[0]} 6379 2\n"
                "sentinel down-after-milliseconds m 500\nsentinel failover-timeout m 3000\n")
            processes.start(f"s{i}", "redis-server", f"s{i}.conf", "--sentinel")
        if sentinels:
            _until("three sentinels", lambda: b"sentinels=3" in self._ask(0, b"INFO sentinel\r\n", 65536, 26379))

    def _ask(self, i, line, most, port=6379):
        with socket.create_connection((self.hosts[i], port), timeout=1) as stream:
            stream.sendall(line)
            time.sleep(0.002)
            return stream.recv(most)

    def leader(self):
        for i in range(3):
            with contextlib.suppress(OSError):
                if f"r{i}" in self.processes.running and b"role:master" in self._ask(i, b"INFO replication\r\n", 65536):
                    return i
        return None

    def writer(self, i, timeout_s=20):
        stream = socket.create_connection((self.hosts[i], 6379), timeout=timeout_s)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        replicas = 1 if self.sentinels else 2

        def write():
            stream.sendall(b"SET key " + VALUE + b"\r\nWAIT %d 20000\r\n" % replicas)
            heard = b""
            while heard.count(b"\n") < 2:
                heard += stream.recv(4096) or b"-the connection ended\r\n\n"
            assert heard.startswith(b"+OK") and int(heard.split(b":")[1]) >= replicas, heard
        return write

    def pipelines(self, clients, pipeline, seconds):
        """SETs a second: each client sends so many with one WAIT behind them, which is kind to Redis."""
        import selectors
        selector = selectors.DefaultSelector()
        message = (b"SET key " + VALUE + b"\r\n") * pipeline + b"WAIT 2 20000\r\n"
        answer, done = 5 * pipeline + 4, 0
        for _ in range(clients):
            stream = socket.create_connection((self.hosts[0], 6379))
            selector.register(stream, selectors.EVENT_READ, [0])
            stream.sendall(message)
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            for key, _ in selector.select(1):
                key.data[0] += len(key.fileobj.recv(65536))
                if key.data[0] >= answer:
                    key.data[0] -= answer
                    done += pipeline
                    key.fileobj.sendall(message)
        return done / (time.monotonic() - begin)

    def kill(self, i):
        self.processes.kill(f"r{i}")


class Sentinel(RedisWait):
    name = "Redis with Sentinel"

    def __init__(self, processes):
        super().__init__(processes, sentinels=True)


class Proxy:
    """Ours before Redis, `calm`."""

    def __init__(self, processes, holdfast, members):
        _need("redis-server", "redis-benchmark")
        self.name = f"proxy, {members} member{'s' if members > 1 else ''}"
        self.processes, self.hosts = processes, [f"{NET}.{41 + 10 * members + i}" for i in range(members)]
        for i, host in enumerate(self.hosts):
            config = {"name": f"p{i}", "fabric": f"beside-{os.getpid()}-{members}", "http": f"{host}:8080",
                      "rails": [{"name": "r0", "kind": "shm", "control": f"{host}:18515"}],
                      "smr-proxy": {"cluster": "beside", "listen": f"{host}:6379", "members": [
                          {"id": k, "name": f"p{k}", "control": [f"{at}:18515"]} for k, at in enumerate(self.hosts)]}}
            (processes.directory / f"p{i}.json").write_text(json.dumps(config))
            processes.start(f"p{i}", holdfast, "smr-proxy", "--config", f"p{i}.json")
        _until(f"a leader of the {self.name}", lambda: self.leader() is not None)

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
            stream.sendall(b"SET key " + VALUE + b"\r\n")
            assert stream.recv(4096) == b"+OK\r\n"
        return write

    def kill(self, i):
        self.processes.kill(f"p{i}")


# ---- what is measured ----


def _with(make, work):
    """work(the cluster), in a directory and with processes of its own."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-beside-", dir=base) as directory:
        processes = Processes(directory)
        try:
            return work(make(processes))
        finally:
            processes.close()


def _propose_of(other):
    return _measure(other.writer(other.leader()), 2000)


def _failover_of(other):
    """From the kill until a write is answered anywhere."""
    leader = other.leader()
    other.writer(leader)()
    time.sleep(1)
    begin = time.monotonic()
    other.kill(leader)

    def answered():
        for i in range(len(other.hosts)):
            if i != leader:
                with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, ValueError, IndexError):
                    other.writer(i, 1)()
                    return True
        return False
    _until("a write after the kill", answered)
    return {"seconds": time.monotonic() - begin}


def _ours(build, rounds):
    done = subprocess.run([build / "holdfast", "bench", "smr", "--json", "--rounds", str(rounds), "--failovers", "20"],
                          text=True, capture_output=True, timeout=500, check=False)
    if done.returncode != 0:
        raise Missing("holdfast bench smr came to no figures: " + done.stderr[-300:])
    return json.loads(done.stdout)


def _kv_store(build):
    program = build / "examples" / "example-kv-store"
    addresses = [f"{NET}.{131 + i}:18515" for i in range(3)]
    fabric = f"beside-kv-{os.getpid()}-{random.randrange(10**6)}"

    def work(processes):
        for i in range(3):
            processes.start(f"m{i}", program, "member", i, fabric, *addresses)
        done = subprocess.run([str(word) for word in [program, "client", fabric, f"{NET}.141:18515", *addresses, "--",
                                                      "measure", 20000]], text=True, capture_output=True, timeout=100,
                              check=False)
        found = re.search(r"median (\d+) ns, p99 (\d+) ns", done.stdout)
        if found is None:
            raise Missing("examples/kv_store came to no figures: " + done.stderr[-300:])
        return {"median_us": int(found[1]) / 1e3, "p99_us": int(found[2]) / 1e3}
    try:
        return _with(lambda processes: processes, work)
    finally:
        shutil.rmtree(f"/dev/shm/holdfast-{os.getuid()}-{fabric}", ignore_errors=True)


def _redis_benchmark(host, clients, pipeline, requests):
    done = subprocess.run(["redis-benchmark", "-h", host, "-p", "6379", "-t", "set", "-d", "64", "-c", str(clients), "-P",
                           str(pipeline), "-n", str(requests), "--csv"], text=True, capture_output=True, timeout=300,
                          check=True)
    row = [cell.strip('"') for cell in done.stdout.strip().split("\n")[-1].split(",")]
    return {"requests_a_second": float(row[1]), "median_us": float(row[4]) * 1e3, "p99_us": float(row[6]) * 1e3}


def _bare(processes):
    _need("redis-server", "redis-benchmark")
    host = f"{NET}.30"
    processes.start("bare", "redis-server", "--bind", host, "--port", 6379, "--save", "", "--appendonly", "no",
                    "--protected-mode", "no")
    _until("a bare Redis", lambda: socket.create_connection((host, 6379)).close() or True)
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
        except (Missing, AssertionError, OSError, subprocess.SubprocessError) as why:
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
        for other in (Etcd, ZooKeeper, RedisWait):
            run(other.name, "propose", lambda: _with(other, _propose_of))
        redis("Redis, bare", lambda: _with(_bare, _redis_of))
        for members in (1, 3):
            redis(f"holdfast, {members} before Redis", lambda: _with(
                lambda processes: Proxy(processes, holdfast, members), lambda proxy: _redis_of(proxy.hosts[proxy.leader()])))
        run("Redis WAIT 2, pipelines", "16 by 16", lambda: {
            "requests_a_second": _with(RedisWait, lambda it: it.pipelines(16, 16, 3.0))})
        run("holdfast, proxy", "fail-over", lambda: _with(lambda processes: Proxy(processes, holdfast, 3), _failover_of))
        for other in (Etcd, ZooKeeper, Sentinel):
            run(f"{other.name}, fail-over", "fail-over", lambda: _with(other, _failover_of))
    summary = {}
    for point in found:
        for key, value in point.items():
            if isinstance(value, float):
                summary.setdefault((point["kind"], point["name"], key), []).append(value)
    print("medians of the rounds:")
    for (kind, name, key), values in sorted(summary.items()):
        print(f"  {kind:10} {name:26} {key:18} {statistics.median(values):12.4g}   ({min(values):.4g} to {max(values):.4g})")
    if options.out is not None:
        options.out.write_text(json.dumps({"points": found, "skipped": skipped}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
