"""Kafka from Maven Central: its jars, brokers of it in memory (/dev/shm), and clients of both."""
import json
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import sys
import threading

import beside

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLIENTS = ROOT / "tests/kafka"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>holdfast</groupId><artifactId>kafka</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>%s</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>%s</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-1.2-api</artifactId><version>2.24.3</version></dependency>
</dependencies></project>
"""
LOGGING = """status=error
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1} %m%n
rootLogger.level=ERROR
rootLogger.appenderRef.c.ref=C
"""
CLUSTER_ID = "aG9sZGZhc3QtYmVzaWRlLQ"
SEGMENT_BYTES = 256 << 20  # of ours too
FETCH_S, FORMAT_S, ANSWER_S = 180, 60, 90


def fetch_jars(version, home):
    """The directory of the jars below `home`, or None where they cannot be had."""
    home = home / version
    if not (home / "complete").exists():
        if shutil.which("mvn") is None or shutil.which("java") is None:
            return None
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(POM % (version, version))
        try:
            done = subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], cwd=home,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            return None
        (home / "complete").touch()
    return home / "lib"


def compile_client(home, name, *libraries):
    """tests/kafka/bench_NAME.c as a program, or beside.Missing."""
    beside.need("cc")
    program = home / f"bench-{name}"
    done = subprocess.run(["cc", "-O2", "-o", program, CLIENTS / f"bench_{name}.c", *libraries], text=True,
                          capture_output=True, timeout=FETCH_S, check=False)
    if done.returncode != 0:
        raise beside.Missing(f"bench_{name}.c cannot be built: {done.stderr.strip().splitlines()[0]}")
    return program


class Java:
    """Java's clients in one process, so that their code is compiled by the time it is measured."""

    def __init__(self, lib, home):
        beside.need("javac")
        done = subprocess.run(["javac", "-cp", f"{lib}/*", "-d", home, CLIENTS / "BenchKafka.java"], text=True,
                              capture_output=True, timeout=FETCH_S, check=False)
        if done.returncode != 0:
            raise beside.Missing("BenchKafka.java cannot be compiled: " + done.stderr[:200])
        self.path = f"{home}:{lib}/*"
        self._start()

    def _start(self):
        self.process = subprocess.Popen(["java", "-Xms512M", "-Xmx1G", "-cp", self.path, "BenchKafka"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.answers = queue.Queue()
        threading.Thread(target=self._read, args=(self.process.stdout, self.answers), daemon=True).start()

    @staticmethod
    def _read(stdout, answers):
        for line in stdout:
            answers.put(line)
        answers.put('{"error": "Java has ended"}')

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        try:
            answer = json.loads(self.answers.get(timeout=ANSWER_S))
        except queue.Empty:
            self.close()
            self._start()  # or its answer would be taken for one to the next command
            raise beside.Missing(f"Java's {words[0]} is not done after {ANSWER_S} s") from None
        if "error" in answer:
            raise beside.Missing(f"Java's {words[0]}: {answer['error']}")
        return answer

    def close(self):
        self.process.kill()
        self.process.wait()


class Kafka:
    """Brokers of Kafka that are controllers too; heap 1 GiB each, logs in memory."""

    made = 0

    def __init__(self, lib, directory, count):
        Kafka.made += 1
        self.directory, self.lib, self.count, self.processes = pathlib.Path(directory) / f"kafka-{count}", lib, count, []
        self.directory.mkdir()
        self.hosts = [f"{beside.NET}.{60 + 10 * Kafka.made + i}" for i in range(count)]
        self.address = ",".join(f"{host}:9092" for host in self.hosts)
        (self.directory / "log4j2.properties").write_text(LOGGING)
        formats = [self._format(i) for i in range(count)]
        for process in formats:
            if process.wait(FORMAT_S) != 0:
                raise beside.Missing("Kafka's StorageTool cannot format: " + self._said("format"))
        for i in range(count):
            self.processes.append(self._java(f"broker-{i}", "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
                                             "-XX:InitiatingHeapOccupancyPercent=35", "kafka.Kafka", f"{i}.properties"))

    def _format(self, i):
        voters = ",".join(f"{k + 1}@{host}:9093" for k, host in enumerate(self.hosts))
        copies = min(self.count, 3)
        settings = {
            "process.roles": "broker,controller", "node.id": i + 1, "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{self.hosts[i]}:9092,CONTROLLER://{self.hosts[i]}:9093",
            "advertised.listeners": f"PLAINTEXT://{self.hosts[i]}:9092", "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.directory / f"logs-{i}", "metadata.log.dir": self.directory / f"meta-{i}",
            "log.segment.bytes": SEGMENT_BYTES, "log.preallocate": "true", "log.segment.delete.delay.ms": 1000,
            "offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": copies,
            "offsets.topic.segment.bytes": 10 << 20, "default.replication.factor": copies,
            "min.insync.replicas": copies // 2 + 1, "group.initial.rebalance.delay.ms": 0}
        (self.directory / f"{i}.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return self._java("format", "-Xmx256M", "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", f"{i}.properties")

    def _java(self, name, *words):
        with open(self.directory / f"{name}.log", "a") as log:
            return subprocess.Popen(["java", "-Dlog4j2.configurationFile=log4j2.properties", "-cp", f"{self.lib}/*", *words],
                                    cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _said(self, name):
        return (self.directory / f"{name}.log").read_text()[-300:]

    def wait(self):
        for i, host in enumerate(self.hosts):
            def connects(host=host):
                socket.create_connection((host, 9092), timeout=1).close()
                return True
            beside.until("a broker of Kafka", connects)
            if self.processes[i].poll() is not None:
                raise beside.Missing("Kafka has ended: " + self._said(f"broker-{i}"))

    def memory_mib(self):
        return memory_mib(self.processes[0].pid, self.directory)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def memory_mib(pid, logs):
    """Of a process, without pages of files below `logs`."""
    kib, counts = 0, True
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            counts = not (len(words) > 5 and words[5].startswith(os.fspath(logs)))
        elif words[0] == "Rss:" and counts:
            kib += int(words[1])
    return kib / 1024


if __name__ == "__main__":  # kafka_beside.py BUILD VERSION: fetches the jars for tests
    sys.exit(0 if fetch_jars(sys.argv[2], pathlib.Path(sys.argv[1]).resolve() / "kafka") is not None else 1)
