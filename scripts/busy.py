#!/usr/bin/env python3
"""busy.py BUILD [SERVICE:KIND ...] [--seconds S] [--kills N] [--hogs N] [--cores shared|owned] [--out FILE] - services on a
machine that others keep busy (R-G1 to R-G6): three members each, with the defaults, beside programs that compute.

SERVICE is redis, memcached, kv, broker or transfer; KIND is shm or soft; all of them by default. For each:

    quiet   clients write for S seconds. No fault happens: exclusions, epochs, changes of leader, isr shrinks, ends of sessions,
            failovers of vqps, pauses of rails and falls to tcp should all be 0
    kills   N times a member is ended with SIGKILL, and started again: the time until the others have noticed its end,
            and until a write that began after it is acknowledged. Nobody notices the end of a copy's receiver

Prints a table on stderr, and one JSON object. Other work on the machine is in the figures: `load` tells how much."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "e2e")]
import beside  # noqa: E402
import kafka_wire  # noqa: E402

MEMBERS = range(3)
PAUSE_S = 0.005       # of a client between two writes
WRITE_LIMIT_S = 15    # then it connects again
AGAIN_S = 120         # until a member that was killed is whole again
COPY_MIB = 32
LINES = {  # of the logs, each of which is a fault that was seen
    "leaders": r"member \d+ leads, number", "exclusions": r"was excluded from", "epochs": r"kv: epoch \d+: ",
    "isr_shrinks": r"leave the isr", "sessions_ended": r"its session ends", "paths_lost": r"no control path for",
    "rail_pauses": r"Rail paused", "falls_to_tcp": r"Transport failover: \w+ -> tcp"}


class Service:
    """Three members as processes, with a directory and addresses of their own."""
    section, port, command = "", 0, ()

    def __init__(self, build, directory, kind, cores):
        self.build, self.kind, self.directory = build, kind, pathlib.Path(directory)
        self.processes = beside.Processes(directory)
        net = f"127.{random.randrange(130, 250)}.{random.randrange(256)}"
        self.hosts, self.fabric = [f"{net}.{i + 1}" for i in MEMBERS], f"busy-{net.replace('.', '-')}"
        for i in MEMBERS:
            rails = [{"name": f"r{rail}", "kind": kind, "control": f"{net}.{i + 1 + 16 * rail}:18515"} |
                     ({"address": f"{net}.{i + 1 + 16 * rail}"} if kind == "soft" else {}) for rail in range(2)]
            section = self.settings(i) | ({"cores": cores} if cores else {})
            (self.directory / f"m{i}.json").write_text(json.dumps(
                {"name": f"m{i}", "fabric": self.fabric, "rails": rails, "http": f"{self.hosts[i]}:8080", self.section: section}))
            self.start(i)
        beside.until("a write of each member", self.whole, AGAIN_S)

    def control(self, i):
        net = self.hosts[i].rsplit(".", 1)[0]
        return [f"{net}.{i + 1 + 16 * rail}:18515" for rail in range(2)]

    def start(self, i):
        self.processes.start(f"m{i}", self.build / "holdfast", *self.command, "--config", self.directory / f"m{i}.json")

    def whole(self):
        """All members serve."""
        for i in MEMBERS:
            self.writer(i)()
        return True

    def log(self, i):
        return (self.directory / f"m{i}.log").read_text(errors="replace")

    def metrics(self, i):
        found = {}
        with urllib.request.urlopen(f"http://{self.hosts[i]}:8080/metrics", timeout=WRITE_LIMIT_S) as answer:
            for line in answer.read().decode().splitlines():
                words = re.match(r"(\w+)(?:\{.*\})? (\d+)$", line)
                if words:
                    found[words[1]] = found.get(words[1], 0) + int(words[2])
        return found

    def counts(self):
        logs = "".join(self.log(i) for i in MEMBERS)
        failovers = sum(self.metrics(i).get("holdfast_vqp_failovers_total", 0) for i in MEMBERS)
        return {name: len(re.findall(words, logs)) for name, words in LINES.items()} | {"vqp_failovers": failovers}

    def close(self):
        self.processes.close()
        shutil.rmtree(f"/dev/shm/holdfast-{os.getuid()}-{self.fabric}", ignore_errors=True)


class Resp(Service):
    def writer(self, i):
        stream = beside.socket.create_connection((self.hosts[i], self.port), timeout=WRITE_LIMIT_S)

        def write():
            stream.sendall(self.line)
            answer = stream.recv(4096)
            assert answer == self.answer, answer
        return write


class Kv(Resp):
    section, port, command = "kv", 7600, ("kv",)
    line, answer = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n", b"+OK\r\n"

    def settings(self, i):
        members = [{"name": f"m{k}", "control": self.control(k)} for k in MEMBERS]
        return {"cluster": "busy", "members": members, "listen": f"{self.hosts[i]}:{self.port}", "log": f"log-{i}"}


class Redis(Resp):
    section, port, command, program = "smr-proxy", 6379, ("smr-proxy",), "redis-server"
    line, answer = b"SET key value\r\n", b"+OK\r\n"

    def __init__(self, *words):
        beside.need(self.program)
        super().__init__(*words)

    def settings(self, i):
        members = [{"id": k, "name": f"m{k}", "control": self.control(k)} for k in MEMBERS]
        return {"cluster": "busy", "members": members, "listen": f"{self.hosts[i]}:{self.port}"}

    def whole(self):
        for i in MEMBERS:
            with urllib.request.urlopen(f"http://{self.hosts[i]}:8080/smr.json", timeout=WRITE_LIMIT_S) as answer:
                seen = json.load(answer)
            if seen["leader"] < 0 or sum(member["voter"] and member["alive"] for member in seen["members"]) < len(MEMBERS):
                return False
        return super().whole()


class Memcached(Redis):
    command, program = ("smr-proxy", "--memcached", "memcached"), "memcached"
    line, answer = b"set key 0 0 5\r\nvalue\r\n", b"STORED\r\n"


class Broker(Service):
    section, command, topic = "broker", ("broker",), "busy"

    def settings(self, i):
        voters = ",".join(f"{k + 1}@{address}" for k in MEMBERS for address in self.control(k))
        return {"node.id": i + 1, "listeners": f"PLAINTEXT://{self.hosts[i]}:9092", "log.dirs": f"logs-{i}",
                "controller.quorum.voters": voters, "default.replication.factor": 3, "min.insync.replicas": 2}

    def _client(self, i):
        return kafka_wire.Client((self.hosts[i], 9092), WRITE_LIMIT_S)

    def whole(self):
        for i in MEMBERS:
            with self._client(i) as client:
                assert client.create(self.topic, replicas=3) in (0, 36)
        seen = [self.metrics(i) for i in MEMBERS]
        assert sum(one["holdfast_broker_partitions_led"] for one in seen) > 0
        assert sum(one["holdfast_broker_partitions_under_replicated"] for one in seen) == 0
        self.writer(0)()
        return True

    def writer(self, i):
        """To the leader, whichever it is: as a client does, it asks each broker in turn."""
        clients, turn = {}, [i]

        def write():
            begin = time.monotonic()
            while time.monotonic() - begin < WRITE_LIMIT_S:
                k = turn[0] % len(MEMBERS)
                try:
                    if k not in clients:
                        clients[k] = self._client(k)
                    error, _ = clients[k].produce(self.topic, kafka_wire.batch([b"value"]))
                except (OSError, EOFError):
                    clients.pop(k, None)
                    error = -1
                if error == 0:
                    return
                turn[0] += 1
                time.sleep(PAUSE_S)
            raise TimeoutError
        return write


class Copies:
    """A file that one process sends to another, again and again."""

    def __init__(self, build, directory, kind, cores):
        self.build, self.directory, self.processes = build, pathlib.Path(directory), beside.Processes(directory)
        net = f"127.{random.randrange(130, 250)}.{random.randrange(256)}"
        self.fabric = f"busy-{net.replace('.', '-')}"
        for name, first in (("a", 16), ("b", 32)):
            rails = [{"name": f"r{i}", "kind": kind, "control": f"{net}.{first + i}:18515"} |
                     ({"address": f"{net}.{first + i}"} if kind == "soft" else {}) for i in range(2)]
            config = {"name": name, "fabric": self.fabric, "rails": rails, "management": [f"{net}.{first + 8}:18515"]}
            (self.directory / f"{name}.json").write_text(json.dumps(config))
            (self.directory / f"engine-{name}.json").write_text(
                json.dumps({"node": f"{name}.json"} | ({"cores": cores} if cores else {})))
        self.to = ",".join([f"{net}.{32 + i}:18515" for i in range(2)] + [f"{net}.40:18515"])
        (self.directory / "into").mkdir()
        (self.directory / "file").write_bytes(os.urandom(COPY_MIB << 20))
        self.processes.start("b", build / "holdfast", "transfer", "receive", "into", "--engine", "engine-b.json")
        self.tcp_bytes = self.failovers = 0

    def writer(self, _):
        def write():
            shutil.rmtree(self.directory / "into")
            (self.directory / "into").mkdir()
            with open(self.directory / "a.log", "a") as log:
                done = subprocess.run([self.build / "holdfast", "transfer", "send", "file", self.to, "--engine", "engine-a.json",
                                       "--json"], cwd=self.directory, stdout=subprocess.PIPE, stderr=log, check=True, timeout=AGAIN_S)
            self.tcp_bytes += json.loads(done.stdout)["tcp_bytes"]
        return write

    def counts(self):
        logs = "".join(path.read_text(errors="replace") for path in self.directory.glob("*.log"))
        return {name: len(re.findall(LINES[name], logs)) for name in ("rail_pauses", "falls_to_tcp")} | {"tcp_bytes": self.tcp_bytes}

    def close(self):
        self.processes.close()
        shutil.rmtree(f"/dev/shm/holdfast-{os.getuid()}-{self.fabric}", ignore_errors=True)


SERVICES = {"redis": Redis, "memcached": Memcached, "kv": Kv, "broker": Broker, "transfer": Copies}


@contextlib.contextmanager
def hogs(count):
    """Programs that compute, at the priority of all others."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


class Load(threading.Thread):
    """A client that writes through one member, one write after the other."""

    def __init__(self, service, member):
        super().__init__(daemon=True)
        self.service, self.member, self.going, self.done = service, member, True, []  # done: (begin, end)
        self.failed, self.why = 0, ""
        self.start()

    def run(self):
        write = None
        while self.going:
            begin = time.time()
            try:
                write = write or self.service.writer(self.member)
                write()
                self.done.append((begin, time.time()))
            except (OSError, AssertionError, EOFError, subprocess.SubprocessError) as why:
                write, self.why = None, str(why)
                self.failed += 1
            time.sleep(PAUSE_S)

    def first_after(self, since):
        return next((end for begin, end in reversed(self.done) if begin >= since), None) and \
            min(end for begin, end in self.done if begin >= since)

    def stop(self):
        self.going = False
        self.join(AGAIN_S)


def quiet(service, seconds):
    before = service.counts()
    loads = [Load(service, i) for i in (MEMBERS if isinstance(service, Service) else [0])]
    time.sleep(seconds)
    for load in loads:
        load.stop()
    after, took = service.counts(), [end - begin for load in loads for begin, end in load.done]
    for load in loads:
        if load.failed:
            print(f"{load.failed} writes through {load.member} failed, the last one: {load.why}", file=sys.stderr)
    return {"seconds": seconds, "writes": len(took), "failed": sum(load.failed for load in loads),
            "longest_write_ms": round(max(took, default=0) * 1e3, 1)} | \
        {name: after[name] - before[name] for name in after}


def noticed(service, survivor, name, since):
    """When the survivor logged the end of the process."""
    for line in service.log(survivor).splitlines():
        words = re.match(r"(\S+Z) .*the process of peer (\S+) has ended", line)
        if words and words[2] == name:
            at = datetime.datetime.fromisoformat(words[1].replace("Z", "+00:00")).timestamp()
            if at >= since - 0.001:  # lines have milliseconds
                return at
    return None


def kill_once(service, victim):
    survivors = [i for i in MEMBERS if i != victim]
    loads = [Load(service, i) for i in survivors]
    try:
        time.sleep(random.uniform(0.2, 0.5))
        at = time.time()
        service.processes.kill(f"m{victim}")
        ends = [beside.until("a write after the kill", lambda load=load: load.first_after(at), AGAIN_S) for load in loads]
        seen = [beside.until("the end is noticed", lambda i=i: noticed(service, i, f"m{victim}", at), AGAIN_S) for i in survivors]
    finally:
        for load in loads:
            load.stop()
    service.start(victim)
    beside.until("all members again", service.whole, AGAIN_S)
    return max(seen) - at, max(ends) - at


def percentiles(name, values):
    values = sorted(values)
    return {f"{name}_{part}_ms": round(max(0, values[min(len(values) - 1, len(values) * share // 100)]) * 1e3, 1)
            for part, share in (("p50", 50), ("p99", 99))} if values else {}


def measure(build, name, kind, arguments):
    with tempfile.TemporaryDirectory(prefix="holdfast-busy-") as directory:
        service = SERVICES[name](build, directory, kind, arguments.cores)
        try:
            with hogs(arguments.hogs):
                row = {"service": name, "kind": kind} | quiet(service, arguments.seconds)
                kills = arguments.kills if isinstance(service, Service) else 0
                times = [kill_once(service, random.choice(MEMBERS)) for _ in range(kills)]
                row |= {"kills": kills, "load": round(os.getloadavg()[0], 1)}
                return row | percentiles("noticed", [one for one, _ in times]) | percentiles("writes_go_on", [one for _, one in times])
        finally:
            service.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("services", nargs="*", default=[f"{name}:{kind}" for name in SERVICES for kind in ("shm", "soft")])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--hogs", type=int, default=4)
    parser.add_argument("--cores", choices=("shared", "owned"))
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    arguments = parser.parse_args()
    rows = []
    for words in arguments.services:
        name, kind = words.split(":")
        try:
            rows.append(measure(arguments.build, name, kind, arguments))
        except beside.Missing as missing:
            rows.append({"service": name, "kind": kind, "missing": str(missing)})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), file=sys.stderr, flush=True)
    json.dump({"hogs": arguments.hogs, "cores": arguments.cores or "default", "rows": rows}, arguments.out, indent=1)
    print(file=arguments.out)


if __name__ == "__main__":
    main()
