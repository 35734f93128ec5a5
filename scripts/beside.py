"""Other replicated services that figures are compared with, three members of each on this host, in memory where they can
(/dev/shm); and what is asked of each of them."""
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
ZOOKEEPER_JARS = [f"/usr/share/java/{name}.jar" for name in ("zookeeper", "slf4j-log4j12", "log4j-1.2")]  # and what they name
ZOOKEEPER_LOG = ("log4j.rootLogger=INFO, CONSOLE\nlog4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender\n"
                 "log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout\n"
                 "log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %m%n\n")


class Missing(Exception):
    pass


def need(*programs):
    for name in programs:
        if shutil.which(name) is None:
            raise Missing(f"{name} is not installed (scripts/packages.txt, group beside)")


def until(what, condition, limit_s=LIMIT_S):
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


@contextlib.contextmanager
def busy_cores():
    """No core sleeps: a process of the lowest class spins on each, and gives way to all others."""
    code = ("import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])]); os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
            "while True: pass")
    spinners = [subprocess.Popen([sys.executable, "-c", code, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def measure(write, n, warm=200):
    for _ in range(warm):
        write()
    times = []
    for _ in range(n):
        begin = time.perf_counter_ns()
        write()
        times.append(time.perf_counter_ns() - begin)
    times.sort()
    return {"median_us": times[n // 2] / 1e3, "p99_us": times[n * 99 // 100] / 1e3}


def medians_of(points):
    """A row for each kind and name, with the median of each of its figures."""
    rows = {}
    for point in points:
        row = rows.setdefault((point["kind"], point["name"]), {})
        for key, value in point.items():
            if isinstance(value, (int, float)) and key != "load":
                row.setdefault(key, []).append(value)
    return [{"kind": kind, "name": name} | {key: statistics.median(values) for key, values in row.items()}
            for (kind, name), row in rows.items()]


# ---- the others: start(), a connection with write(), and who leads ----


class Etcd:
    name = "etcd"

    def __init__(self, processes):
        need("etcd")
        self.processes, self.hosts = processes, [f"{NET}.{11 + i}" for i in range(3)]
        cluster = ",".join(f"e{i}=http://{host}:2380" for i, host in enumerate(self.hosts))
        for i, host in enumerate(self.hosts):
            processes.start(f"e{i}", "etcd", "--name", f"e{i}", "--data-dir", f"e{i}.data", "--initial-cluster", cluster,
                            "--initial-cluster-state", "new", "--listen-peer-urls", f"http://{host}:2380",
                            "--initial-advertise-peer-urls", f"http://{host}:2380", "--listen-client-urls",
                            f"http://{host}:2379", "--advertise-client-urls", f"http://{host}:2379")
        until("a leader of etcd", self.leader)

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
        need("java")
        if not all(os.path.exists(jar) for jar in ZOOKEEPER_JARS):
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
        (processes.directory / "log4j.properties").write_text(ZOOKEEPER_LOG)
        for i in range(3):
            self.start(i)
        # A write to a leader that waits for its third server may stay without an answer.
        until("three servers of ZooKeeper", lambda: sorted(str(self._mode(i)) for i in range(3)) == ["follower", "follower", "leader"])
        self.create(until("a session of ZooKeeper", lambda: self.connect(0)), ["/key"])

    def start(self, i):
        self.processes.start(f"z{i}", "java", "-Xmx256m", "-cp", ":".join([str(self.processes.directory), *ZOOKEEPER_JARS]),
                             "org.apache.zookeeper.server.quorum.QuorumPeerMain", f"z{i}.cfg")

    def _mode(self, i):
        """"leader", "follower", or None while it does not serve."""
        with contextlib.suppress(OSError), socket.create_connection((self.hosts[i], 2181), timeout=1) as stream:
            stream.sendall(b"srvr")
            mode = re.search(rb"Mode: (\w+)", stream.makefile("rb").read())
            return mode and mode[1].decode()
        return None

    def leader(self):
        return next((i for i in range(3) if f"z{i}" in self.processes.running and self._mode(i) == "leader"), None)

    def connect(self, i, timeout_s=20):
        stream = socket.create_connection((self.hosts[i], 2181), timeout=timeout_s)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(stream, struct.pack(">iqiqi16s", 0, 0, 30000, 0, 16, b"\0" * 16))
        assert len(self._hear(stream)) >= 20
        return stream

    @staticmethod
    def _send(stream, message):
        stream.sendall(struct.pack(">i", len(message)) + message)

    @staticmethod
    def _take(stream, count):
        data = b""
        while len(data) < count:
            more = stream.recv(count - len(data))
            if not more:
                raise OSError("the connection ended")
            data += more
        return data

    def _hear(self, stream):
        return self._take(stream, struct.unpack(">i", self._take(stream, 4))[0])

    @staticmethod
    def _text(data):
        return struct.pack(">i", len(data)) + data

    def _ask_all(self, stream, messages, window=100):
        """The last answer: (zxid, what follows the header). No more than `window` requests wait."""
        answer = b""
        for at in range(0, len(messages), window):
            part = messages[at:at + window]
            stream.sendall(b"".join(self._text(message) for message in part))
            for _ in part:
                answer = self._hear(stream)
                assert struct.unpack(">i", answer[12:16])[0] == 0, answer
        return struct.unpack(">q", answer[4:12])[0], answer[16:]

    def create(self, stream, paths):
        acl = struct.pack(">ii", 1, 31) + self._text(b"world") + self._text(b"anyone")
        self._ask_all(stream, [struct.pack(">ii", 1, 1) + self._text(path.encode()) + self._text(VALUE) + acl +
                               struct.pack(">i", 0) for path in paths])

    def set_all(self, stream, paths, value):
        """The zxid of the last one."""
        return self._ask_all(stream, [struct.pack(">ii", 2, 5) + self._text(path.encode()) + self._text(value) +
                                      struct.pack(">i", -1) for path in paths])[0]

    def get(self, stream, path):
        """(zxid, value)"""
        zxid, data = self._ask_all(stream, [struct.pack(">ii", 3, 4) + self._text(path.encode()) + b"\0"])
        return zxid, data[4:4 + struct.unpack(">i", data[:4])[0]]

    def log(self, i):
        return (self.processes.directory / f"z{i}.log").read_text(errors="replace")

    def writer(self, i, timeout_s=20):
        stream = self.connect(i, timeout_s)
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
        need("redis-server")
        self.processes, self.hosts, self.sentinels = processes, [f"{NET}.{31 + i}" for i in range(3)], sentinels
        for i in range(3):
            self.start(i)
        until("two replicas of Redis", lambda: b"connected_slaves:2" in self._ask(0, b"INFO replication\r\n", 65536))
        for i, host in enumerate(self.hosts if sentinels else []):
            (processes.directory / f"s{i}.conf").write_text(
                f"port 26379\nbind {host}\nprotected-mode no\nsentinel announce-ip {host}\nsentinel monitor m {self.hosts[0]} 6379 2\n"
                "sentinel down-after-milliseconds m 500\nsentinel failover-timeout m 3000\n")
            processes.start(f"s{i}", "redis-server", f"s{i}.conf", "--sentinel")
        if sentinels:
            until("three sentinels", lambda: b"sentinels=3" in self._ask(0, b"INFO sentinel\r\n", 65536, 26379))

    def start(self, i):
        more = ["--replicaof", self.hosts[0], "6379"] if i > 0 else []
        self.processes.start(f"r{i}", "redis-server", "--bind", self.hosts[i], "--port", 6379, "--save", "", "--appendonly",
                             "no", "--protected-mode", "no", "--repl-diskless-sync-delay", 0, "--repl-backlog-size", "256mb",
                             "--replica-announce-ip", self.hosts[i], "--dir", self.processes.directory, "--dbfilename", f"r{i}.rdb", *more)

    def end(self, i):
        """It keeps what it has, and where in its master's history that is."""
        self._ask(i, b"SHUTDOWN SAVE\r\n", 4096)
        self.processes.running.pop(f"r{i}").wait()

    def set_all(self, i, keys, value):
        words = [[b"SET", key.encode(), value] for key in keys]
        with socket.create_connection((self.hosts[i], 6379), timeout=20) as stream:
            stream.sendall(b"".join(b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in line)
                                    for line in words))
            heard = b""
            while len(heard) < 5 * len(words):
                heard += stream.recv(65536) or b"-"
            assert heard == b"+OK\r\n" * len(words), heard[:100]

    def get(self, i, key):
        return self._ask(i, b"GET %s\r\n" % key.encode(), 65536)

    def log(self, i):
        return (self.processes.directory / f"r{i}.log").read_text(errors="replace")

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


# ---- running them ----


def run_with(make, work, disk=None):
    """work(the cluster), in a directory and with processes of its own: below `disk`, or in memory where that can be."""
    base = disk or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    with tempfile.TemporaryDirectory(prefix="holdfast-beside-", dir=base) as directory:
        processes = Processes(directory)
        try:
            return work(make(processes))
        finally:
            processes.close()


def failover_of(other):
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
    until("a write after the kill", answered)
    return {"seconds": time.monotonic() - begin}
