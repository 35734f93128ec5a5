#!/usr/bin/env python3
"""check_kafka.py BUILD [NAME]... - unmodified Kafka clients against our broker, alone and as one of three; NAME: only
steps whose name has it.

Fetches the Python clients from PyPI and Kafka's jars from Maven Central into BUILD/kafka, once. What cannot be fetched is
skipped with its reason. Ends with "N passed, N failed, N skipped"."""
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import broker_cluster
import kafka_beside

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1]).resolve()
ONLY = sys.argv[2:]
HOME = BUILD / "kafka"
VERSIONS = ("4.1.1", "3.9.1")
PYTHON_CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka", "lz4"]
STEP_S = 180
results = {"passed": 0, "failed": 0, "skipped": 0}
where = ""  # stands before the names of steps


def wanted(name):
    return not ONLY or any(only in where + name for only in ONLY)


def tell(name, how, words=""):
    results[how] += 1
    print(f"{how:8} {where}{name}{': ' + words if words else ''}", flush=True)


def run(command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STEP_S, **more)


def step(name, command, expect=(), **more):
    """Passes when the command ends with 0 and its output has every word of `expect`; the output, or None."""
    if not wanted(name):
        return None
    try:
        done = run(command, **more)
    except subprocess.TimeoutExpired:
        return tell(name, "failed", f"not done after {STEP_S} s")
    missing = [word for word in expect if word not in done.stdout]
    if done.returncode != 0 or missing:
        tell(name, "failed", f"status {done.returncode}{', without ' + repr(missing[0]) if missing else ''}")
        print("    " + done.stdout[-1500:].replace("\n", "\n    "))
        return None
    tell(name, "passed")
    return done.stdout


def fetch_python():
    python = HOME / "python" / "bin" / "python"
    mark = HOME / "python" / "complete"
    if not mark.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        made = run([sys.executable, "-m", "venv", str(HOME / "python")])
        if made.returncode == 0:
            made = run([str(python), "-m", "pip", "--quiet", "install", *PYTHON_CLIENTS])
        if made.returncode != 0:
            return None
        mark.touch()
    return str(python)


class Broker:
    def __init__(self, directory):
        self.directory = directory
        (directory / "broker.json").write_text(json.dumps({"broker": {
            "node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "logs",
            "log.segment.bytes": 4 << 20, "group.initial.rebalance.delay.ms": 100}}))
        self.process = subprocess.Popen([str(BUILD / "holdfast"), "broker", "--config", "broker.json"], cwd=directory,
                                        text=True, stdout=subprocess.PIPE)
        self.address = self.process.stdout.readline().split("PLAINTEXT://")[1].split(",")[0]

    def end(self):
        alive = self.process.poll() is None
        self.process.send_signal(signal.SIGTERM)
        return alive and self.process.wait(timeout=60) == 0


class Three:
    """Three of them; every topic has three replicas."""

    def __init__(self, directory):
        self.cluster = broker_cluster.Cluster(str(BUILD / "holdfast"), directory, log_segment_bytes=4 << 20)
        self.cluster.start_all()
        self.address = self.cluster.address

    def end(self):
        alive = all(process.poll() is None for process in self.cluster.processes)
        return all([self.cluster.stop(i) == 0 for i in range(3)]) and alive


def check_kcat(address):
    if shutil.which("kcat") is None:
        return tell("kcat", "skipped", "it is not installed")
    numbers = "".join(f"{n}\n" for n in range(1000))
    step("kcat list", ["kcat", "-b", address, "-L"], ["broker 1 at"])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        step(f"kcat produce {codec}", ["kcat", "-b", address, "-P", "-t", f"kcat-{codec}", "-z", codec], input=numbers)
        step(f"kcat consume {codec}", ["kcat", "-b", address, "-C", "-t", f"kcat-{codec}", "-e", "-q"], [numbers])
    step("kcat idempotent", ["kcat", "-b", address, "-P", "-t", "kcat-once", "-X", "enable.idempotence=true"],
         input=numbers)
    step("kcat group", ["kcat", "-b", address, "-G", "kcat", "-X", "auto.offset.reset=earliest", "-e", "-q",
                        "kcat-once"], [numbers])
    step("kcat pattern", ["kcat", "-b", address, "-G", "kcat-pattern", "-X", "auto.offset.reset=earliest", "-e", "-q",
                          "^kcat-onc.$"], [numbers])
    step("kcat query", ["kcat", "-b", address, "-Q", "-t", "kcat-once:0:-1"], ["offset 1000"])


def check_python(address):
    python = fetch_python()
    for library in ("confluent", "kafka-python", "aiokafka"):
        for mode in ("plain", "idempotent"):
            name = f"{library} {mode}"
            if python is None:
                tell(name, "skipped", "the Python clients cannot be fetched")
                continue
            step(name, [python, str(ROOT / "tests/kafka/clients.py"), library, address, f"{library}-{mode}", "1200", mode])


def check_java(address, version):
    lib = kafka_beside.fetch_jars(version, HOME)
    if lib is None:
        return tell(f"Java {version}", "skipped", "Kafka's jars cannot be fetched, or there is no Java or Maven")
    at = ["--bootstrap-server", address]

    def java(name, tool, *arguments, expect=()):
        return step(f"Java {version} {name}", ["java", "-Xmx512M", "-cp", f"{lib}/*", tool, *arguments], expect)

    tools, topic = "org.apache.kafka.tools.", f"java-{version}"
    java("topic create", tools + "TopicCommand", *at, "--create", "--topic", topic, "--partitions", "2",
         "--replication-factor", str(address.count(",") + 1))
    java("topic describe", tools + "TopicCommand", *at, "--describe", "--topic", topic, expect=["PartitionCount: 2"])
    java("producer performance", tools + "ProducerPerformance", "--topic", topic, "--num-records", "20000",
         "--record-size", "100", "--throughput", "-1", "--producer-props", f"bootstrap.servers={address}", "acks=all",
         expect=["20000 records sent"])
    java("consumer performance", tools + "ConsumerPerformance", *at, "--topic", topic, "--messages", "20000",
         "--timeout", "30000", expect=[", 20000, "])
    java("end to end latency", tools + "EndToEndLatency", address, topic, "200", "all", "100", expect=["Avg latency"])
    java("verifiable producer", tools + "VerifiableProducer", *at, "--topic", f"{topic}-v", "--max-messages", "1000",
         "--acks", "-1", expect=['"acked":1000'])
    java("verifiable consumer", tools + "VerifiableConsumer", *at, "--topic", f"{topic}-v", "--group-id", f"v-{version}",
         "--max-messages", "1000", "--reset-policy", "earliest", expect=["records_consumed", "offsets_committed"])
    java("topic list", tools + "TopicCommand", *at, "--list", expect=[topic])
    java("console consumer by pattern", tools + "consumer.ConsoleConsumer", *at, "--include", f"{topic}-[v]",
         "--from-beginning", "--max-messages", "1000", "--timeout-ms", "60000", expect=["Processed a total of 1000 messages"])
    java("offsets", tools + "GetOffsetShell", *at, "--topic", f"{topic}-v", expect=[f"{topic}-v:0:1000"])
    java("config alter", "kafka.admin.ConfigCommand", *at, "--alter", "--entity-type", "topics", "--entity-name", topic,
         "--add-config", "retention.ms=100000")
    java("config describe", "kafka.admin.ConfigCommand", *at, "--describe", "--entity-type", "topics", "--entity-name",
         topic, expect=["retention.ms=100000"])
    java("group describe", tools + "consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", f"v-{version}",
         expect=[f"{topic}-v"])
    java("group list", tools + "consumer.group.ConsumerGroupCommand", *at, "--list", expect=[f"v-{version}"])
    java("topic delete", tools + "TopicCommand", *at, "--delete", "--topic", topic)
    return lib


def check_segments(lib, logs):
    """Kafka's own tool finds no fault in what we wrote."""
    files = [path for ending in ("log", "index", "timeindex")
             for path in sorted(glob.glob(str(logs / "*-*" / f"*.{ending}"))) if os.path.getsize(path) > 0]
    name = f"segments of {os.path.relpath(logs, logs.parent)}"
    if not files or not wanted(name):
        return
    try:
        done = run(["java", "-Xmx512M", "-cp", f"{lib}/*", "kafka.tools.DumpLogSegments", "--deep-iteration", "--files",
                    ",".join(files)])
    except subprocess.TimeoutExpired:
        return tell(name, "failed", f"not done after {STEP_S} s")
    faults = [line for line in done.stdout.splitlines()
              if "ismatch" in line or "rror" in line or "isvalid: false" in line or "xception" in line]
    dumped = done.stdout.count("Dumping ")
    if done.returncode == 0 and not faults and dumped == len(files):
        tell(name, "passed", f"{dumped} files")
    else:
        tell(name, "failed", (faults + [f"status {done.returncode}, {dumped} of {len(files)} files read"])[0])


def check_messages(lib):
    dumped = run([str(BUILD / "tests/unit/broker/dump-kafka-messages")]).stdout
    step("messages", ["java", "-cp", f"{lib}/*", str(ROOT / "tests/kafka/JudgeMessages.java")], [" right, 0 wrong"],
         input=dumped)


def check(broker):
    """The jars of one version, or None."""
    lib = None
    try:
        check_kcat(broker.address)
        check_python(broker.address)
        for version in VERSIONS:
            lib = check_java(broker.address, version) or lib
    finally:
        tell("the brokers end in order", "passed" if broker.end() else "failed")
    return lib


def main():
    global where
    lib = None
    for name, kind in (("one broker: ", Broker), ("three brokers: ", Three)):
        where = name
        with tempfile.TemporaryDirectory(prefix="holdfast-check-kafka-") as directory:
            lib = check(kind(pathlib.Path(directory))) or lib
            for logs in sorted(pathlib.Path(directory).glob("logs*")) if lib is not None else []:
                check_segments(lib, logs)
    where = ""
    if lib is not None:
        check_messages(HOME / VERSIONS[0] / "lib" if (HOME / VERSIONS[0] / "complete").exists() else lib)
    else:
        tell("messages and segments", "skipped", "Kafka's jars cannot be fetched, or there is no Java or Maven")
    print(f"{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped")
    return 1 if results["failed"] else 0


sys.exit(main())
