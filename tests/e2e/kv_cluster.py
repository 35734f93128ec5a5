"""Members of a store as processes, and a client of theirs that speaks RESP."""
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import program

LIMIT_S = 60


class Closed(Exception):
    """The member closed the connection without a reply."""


class Client:
    def __init__(self, address, timeout=LIMIT_S):
        self.stream = socket.create_connection(address, timeout=timeout)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies = self.stream.makefile("rb")

    def close(self):
        self.replies.close()
        self.stream.close()

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.stream.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def reply(self):
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise Closed()
        kind, rest = line[:1], line[1:-2]
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            return self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return line[:-2].decode()  # +OK, -ERR words

    def ask(self, *words):
        self.send(*words)
        return self.reply()


class Cluster:
    """`count` members on rails of one kind, in a directory of their own; `node` are keys of each member's node, `devices`
    the addresses of each member's rails where they are not those of its control ports."""

    made = 0

    def __init__(self, directory, kind, count=3, node=None, devices=None, **settings):
        Cluster.made += 1
        self.node, self.devices = node or {}, devices
        self.directory, self.kind, self.count = pathlib.Path(directory), kind, count
        self.processes = [None] * count
        self.fabric = f"test-kv-{os.getpid()}-{Cluster.made}"
        host = f"{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self.hosts = [[f"127.{130 + 16 * rail + 2 * i + Cluster.made % 2}.{host}" for rail in range(2)]
                      for i in range(count)]
        self.spare = [f"127.{130 + 16 * rail + 2 * count + Cluster.made % 2}.{host}" for rail in range(2)]  # nobody's
        members = [{"name": f"n{i}", "control": [f"{host}:18700" for host in self.hosts[i]]} for i in range(count)]
        for i in range(count):
            self.write(i, members, settings)

    def write(self, i, members, settings):
        rails = [{"name": f"r{rail}", "kind": self.kind, "control": f"{host}:18700"}
                 | ({"address": self.devices[i][rail]} if self.devices else {"address": host} if self.kind == "soft" else {})
                 for rail, host in enumerate(self.hosts[i])]
        kv = {"cluster": "test", "store_mb": 32, "lease_ms": 1000, "members": members, "listen": f"{self.hosts[i][0]}:7600"} | settings
        if "log" in settings:
            kv["log"] = str(self.directory / f"log-{Cluster.made}-n{i}")
        self.path(i).write_text(json.dumps(self.node | {"name": f"n{i}", "fabric": self.fabric, "rails": rails, "http": self.http(i),
                                            "kv": kv}))

    def path(self, i):
        return self.directory / f"n{i}.json"

    def address(self, i):
        return self.hosts[i][0], 7600

    def http(self, i):
        return f"{self.hosts[i][0]}:8080"

    def status(self, i):
        """`kv status` waits for 2 s; a member that stands still answers later."""
        until = time.monotonic() + LIMIT_S
        while True:
            done = program.run(self.directory, "kv", "status", self.http(i), "--json", check=None)
            if done.returncode == 0:
                return json.loads(done.stdout)
            assert time.monotonic() < until, done.stderr

    def launch(self, i):
        def ignore():  # so that a file that may not grow is an error (limit_files)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        log = open(self.directory / f"n{i}.log", "a")
        self.processes[i] = subprocess.Popen([program.HOLDFAST, "kv", "--config", str(self.path(i))],
                                             cwd=self.directory, env=program.environment(self.directory), text=True,
                                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                             preexec_fn=ignore)
        log.close()

    def start(self, i):
        self.launch(i)
        program.read_until(self.processes[i], ["kv:", f"n{i}"])

    def stop(self, i, how=signal.SIGTERM):
        self.processes[i].send_signal(how)
        self.processes[i].wait(LIMIT_S)
        self.processes[i].stdout.close()
        self.processes[i] = None

    def limit_files(self, i, size):
        resource.prlimit(self.processes[i].pid, resource.RLIMIT_FSIZE, (size, size))

    def signal(self, i, number):
        self.processes[i].send_signal(number)

    def kill(self, i):
        self.stop(i, signal.SIGKILL)

    def log(self, i):
        return (self.directory / f"n{i}.log").read_text()

    def client(self, i, timeout=LIMIT_S):
        return Client(self.address(i), timeout)

    def wait(self, what, condition):
        until = time.monotonic() + LIMIT_S
        while not condition():
            time.sleep(0.002)
            assert time.monotonic() < until, f"{what}: not within {LIMIT_S} s\n" + \
                "\n".join(self.log(i) for i in range(self.count))

    def digests(self):
        return [self.client(i).ask("HFDIGEST") for i in range(self.count) if self.processes[i]]

    def serves(self, i):
        try:
            client = self.client(i)
            answer = client.ask("GET", "anything")
            client.close()
        except (OSError, Closed):  # it begins, or ends
            return False
        return not isinstance(answer, str)

    def wait_serving(self, i):
        self.wait(f"n{i} serves", lambda: self.serves(i))

    def __enter__(self):
        for i in range(self.count):
            self.start(i)
        for i in range(self.count):
            self.wait_serving(i)
        return self

    def __exit__(self, *_):
        for i, process in enumerate(self.processes):
            if process:
                process.send_signal(signal.SIGCONT)
                self.kill(i)
