"""Several brokers as processes of this host, each on addresses of its own."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time


class Cluster:
    """`count` brokers in `directory`, on rails of one kind; `node` are keys of a node, theirs and their clients',
    `settings` of the section broker, and `devices` the addresses of each broker's rails where they are not those of its
    control ports."""

    made = 0

    def __init__(self, holdfast, directory, count=3, kind="shm", node=None, devices=None, **settings):
        Cluster.made += 1
        self.holdfast, self.directory, self.count = holdfast, pathlib.Path(directory), count
        self.processes, self.logs = [None] * count, []
        self.kind, self.node = kind, {"fabric": f"brokers-{os.getpid()}-{Cluster.made}"} | (node or {})
        self.fabric = self.node["fabric"]
        host = f"{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self.hosts = [[f"127.{64 + 16 * rail + 3 * i + Cluster.made % 3}.{host}" for rail in range(2)]
                      for i in range(count)]
        voters = ",".join(f"{i + 1}@{rail}:18800" for i in range(count) for rail in self.hosts[i])
        for i in range(count):
            rails = self.rails(self.hosts[i], devices and devices[i])
            broker = {"node.id": i + 1, "listeners": f"PLAINTEXT://{self.hosts[i][0]}:9092", "log.dirs": f"logs-{i + 1}",
                      "controller.quorum.voters": voters, "default.replication.factor": count,
                      "min.insync.replicas": count // 2 + 1, "group.initial.rebalance.delay.ms": 100}
            broker.update({key.replace("_", "."): value for key, value in settings.items()})
            self.path(i).write_text(json.dumps(self.node | {"name": f"broker-{i + 1}", "rails": rails,
                                                            "http": f"{self.hosts[i][0]}:8080", "broker": broker}))

    def path(self, i):
        return self.directory / f"broker-{i + 1}.json"

    def rails(self, hosts, devices=None):
        """Control ports at `hosts`; a soft NIC has the same address, others that of `devices`."""
        addresses = devices or (hosts if self.kind == "soft" else [])
        rails = [{"name": f"r{rail}", "kind": self.kind, "control": f"{host}:18800"} for rail, host in enumerate(hosts)]
        for rail, address in zip(rails, addresses):
            rail["address"] = address
        return rails

    def client(self, name, number, devices=None):
        """The configuration of a client's node on the brokers' rails; clients have numbers of their own."""
        hosts = [f"127.{112 + 2 * number + rail}.{self.hosts[0][0].split('.', 2)[2]}" for rail in range(2)]
        return self.node | {"name": name, "rails": self.rails(hosts, devices)}

    @property
    def address(self):
        return ",".join(f"{hosts[0]}:9092" for hosts in self.hosts)

    def log(self, i):
        return self.directory / f"broker-{i + 1}.log"

    def start(self, i):
        with open(self.log(i), "a") as log:
            self.processes[i] = subprocess.Popen([self.holdfast, "broker", "--config", str(self.path(i))], text=True,
                                                 cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 env=dict(os.environ, TMPDIR=str(self.directory)))

    def start_all(self):
        for i in range(self.count):
            self.start(i)
        self.wait_until_joined(range(self.count))

    def joins(self, i):
        return self.log(i).read_text().count("has joined the cluster") if self.log(i).exists() else 0

    def wait_until_joined(self, which, limit_s=60, before=0):
        end = time.monotonic() + limit_s
        for i in which:
            while self.joins(i) <= before:
                assert self.processes[i].poll() is None, f"broker {i + 1} ended: {self.log(i).read_text()[-2000:]}"
                assert time.monotonic() < end, f"broker {i + 1} does not join: {self.log(i).read_text()[-2000:]}"
                time.sleep(0.01)

    def stop(self, i, how=signal.SIGTERM):
        self.processes[i].send_signal(how)
        return self.processes[i].wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        for left in pathlib.Path("/dev/shm").glob(f"holdfast-*-{self.fabric}"):
            shutil.rmtree(left, ignore_errors=True)
