#!/usr/bin/env python3
"""bench_broker.py BUILD [--rounds N] [--minutes N] [--only PART] [--out FILE] - the broker beside Kafka 4.1.1, in one run.

Kafka comes from Maven Central (into BUILD/kafka, once): KRaft in combined mode, heap 1 GiB each, preallocated segments of
256 MiB, logs in memory (/dev/shm), as ours are. Rounds alternate:

    one     one broker of each. Ours over shm and soft by `holdfast bench broker`, whose broker and client have a core each;
            Kafka by Java's clients and by a raw client that polls its socket (tests/kafka/bench_raw.c)
    stock   the same stock clients over TCP at both: raw, librdkafka, Java's
    events  400 a second for ten seconds and 1,000 at once in their middle: from when one is due to when it is read; ours over
            shm and soft
    three   three brokers of each, three replicas, acks=all; ours over shm; and ours with replication batches of some sizes

Events and replication batches are measured in the first round only. A round for which --minutes leave no time is left out.
Figures are medians of the rounds, ratios those of medians. What cannot be had here is skipped, in words. Nobody else should
use the machine's cores meanwhile.
bench_page.py draws what this script writes.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import beside
import broker_cluster
import kafka_beside

VERSION = "4.1.1"
SIZES = {100: "100 B", 1024: "1 KiB", 32768: "32 KiB"}
BATCHES = (1, 256, 512, 1024, 4096)
ONE_PART, THREE_PART = 0.65, 0.92  # of all time, at the end of which rounds of one broker and of three are over
MS, COUNT, RATE, BURST = 1000, 3000, 400, 1000
STEP_S = 120
TOUCHED_BYTES = 6 << 30


def _json_of(command):
    """What a program prints."""
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=STEP_S, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if not re.match(r"(\S+Z )?holdfast: (info|warn)", line)]
        raise beside.Missing(f"{pathlib.Path(command[0]).name} came to no figures: {' '.join(said)[-300:]}")
    return json.loads(done.stdout)


class Ours:
    """One of our brokers, over TCP."""

    def __init__(self, holdfast, directory):
        self.directory = pathlib.Path(directory) / "ours"
        self.directory.mkdir()
        (self.directory / "broker.json").write_text(json.dumps({"broker": {
            "node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "logs",
            "log.segment.bytes": kafka_beside.SEGMENT_BYTES}}))
        self.process = subprocess.Popen([holdfast, "broker", "--config", "broker.json"], cwd=self.directory, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.address = self.process.stdout.readline().split("PLAINTEXT://")[1].split(",")[0]

    def memory_mib(self):
        return kafka_beside.memory_mib(self.process.pid, self.directory)

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Bench:
    def __init__(self, build, directory, rounds, seconds):
        self.build, self.home, self.directory, self.rounds, self.seconds = build, build / "kafka", directory, rounds, seconds
        self.holdfast, self.programs, self.topics = build / "holdfast", {}, 0
        self.points, self.skipped, self.failures, self.java, self.lib = [], {}, collections.Counter(), None, None
        self.begin = 0.0
        self.home.mkdir(exist_ok=True)

    # ---- steps ----

    def step(self, name, work, *arguments):
        """Its points are kept; what has failed twice is not tried again."""
        if self.failures[name] == 2:
            return
        try:
            for point in work(*arguments):
                self.points.append(point | {"load": os.getloadavg()[0]})
                print("  " + ", ".join(f"{key} {value:.1f}" if isinstance(value, float) else str(value)
                                       for key, value in point.items()), flush=True)
        except (beside.Missing, AssertionError, OSError, subprocess.SubprocessError, ValueError) as why:
            self.failures[name] += 1
            self.skipped[name] = str(why)
            print(f"  skipped: {name}: {why}", flush=True)

    @contextlib.contextmanager
    def topic(self, address, replicas=1):
        self.topics += 1
        name = f"bench-{self.topics}"
        self.java.ask("create", address, name, replicas)
        try:
            yield name
        finally:
            self.java.ask("delete", address, name)

    def client(self, name, *libraries):
        if name not in self.programs:
            self.programs[name] = kafka_beside.compile_client(self.home, name, *libraries)
        return self.programs[name]

    def raw(self, command, address, topic, *words):
        return _json_of([self.client("raw"), command, *address.split(",")[0].split(":"), topic, *words])

    def librdkafka(self, *words):
        return _json_of([self.client("librdkafka", "-lrdkafka"), *words])

    def rounds_until(self, part):
        """Numbers of rounds, as long as another one as long as the longest fits into this part of all time."""
        longest, end = 0, self.begin + self.seconds * part
        for i in range(self.rounds):
            start = time.monotonic()
            if i > 0 and start + longest > end:
                self.skipped[f"rounds {i + 1} to {self.rounds}"] = "the time is over (--minutes)"
                return
            yield i
            longest = max(longest, time.monotonic() - start)

    # ---- one broker ----

    def ours_over(self, kind):
        row, = _json_of([self.holdfast, "bench", "broker", "--device", kind, "--rounds", "1", "--json"])
        name = f"Holdfast {kind}"
        yield {"kind": "produce", "name": name, "p50_us": row["produce_us"], "p99_us": row["produce_p99_us"]}
        yield {"kind": "bandwidth", "name": name, "b512_mb_s": row["bandwidth_512_mb_s"],
               "b32768_mb_s": row["bandwidth_32k_mb_s"]}
        yield {"kind": "consume", "name": name, "p50_us": row["fetch_us"], "mb_s": row["fetch_32k_mb_s"]}
        yield {"kind": "end to end", "name": name, "p50_us": row["end_to_end_us"]}
        yield {"kind": "empty", "name": name, "p50_us": row["empty_us"], "per_s": row["empty_per_s"]}
        if "stopped_per_s" in row:
            yield {"kind": "empty", "name": name + ", broker stopped", "per_s": row["stopped_per_s"]}

    def rolls_over(self, kind):
        row, = _json_of([self.holdfast, "bench", "broker", "rolls", "--device", kind, "--rounds", "1", "--json"])
        yield {"kind": "rolls", "name": f"Holdfast {kind}"} | {
            f"{where}_{figure}_us": row[f"{where}_rolls_{figure}_us"] for where in ("around", "between") for figure in ("p999", "max")}

    def empty_of_two(self):
        """A client on each core at the same time: the broker has nothing to do for them."""
        with self.cluster(1) as measure, concurrent.futures.ThreadPoolExecutor() as pool:
            rows = [client.result() for client in [pool.submit(measure, "empty", number=i) for i in range(2)]]
        yield {"kind": "empty", "name": "Holdfast shm, two clients", "per_s": sum(row["empty_per_s"] for row in rows)}

    def kafka_unbatched(self, kafka):
        """Each record in a batch of its own, then read one batch a Fetch."""
        rates = {}
        for size in (512, 32768):
            with self.topic(kafka.address) as topic:
                rates[f"b{size}_mb_s"] = self.java.ask("produce", kafka.address, topic, size, 1, MS, 0)["mb_s"]
                large = self.java.ask("fetch", kafka.address, topic, 1000) if size == 32768 else None
        yield {"kind": "bandwidth", "name": "Kafka, Java"} | rates
        with self.topic(kafka.address) as topic:
            self.java.ask("latency", kafka.address, topic, 100, 1, COUNT)
            small = self.java.ask("fetch", kafka.address, topic, COUNT)
        yield {"kind": "consume", "name": "Kafka, Java", "p50_us": small["p50_us"], "mb_s": large["mb_s"]}

    def kafka_end_to_end(self, kafka):
        with self.topic(kafka.address) as topic:
            yield {"kind": "end to end", "name": "Kafka, Java"} | self.java.ask("end", kafka.address, topic, 100, 1, COUNT // 2)

    # ---- stock clients at both ----

    def stock_latency(self, both, size):
        clients = {"raw": lambda address, topic: self.raw("produce", address, topic, size, 1, COUNT),
                   "librdkafka": lambda address, topic: self.librdkafka("latency", address, topic, size, COUNT),
                   "Java": lambda address, topic: self.java.ask("latency", address, topic, size, 1, COUNT)}
        for client, measure in clients.items():
            point = {"kind": "stock latency", "name": f"{client} {SIZES[size]}"}
            for name, broker in both.items():
                with self.topic(broker.address) as topic:
                    found = measure(broker.address, topic)
                point |= {f"{name}_p50_us": found["p50_us"], f"{name}_p99_us": found["p99_us"]}
            yield point
            if size == 100 and client != "librdkafka":
                yield {"kind": "produce", "name": f"Kafka, {client}", "p50_us": point["kafka_p50_us"],
                       "p99_us": point["kafka_p99_us"]}

    def stock_throughput(self, both, size):
        rdkafka, java = {}, {}
        for name, broker in both.items():
            with self.topic(broker.address) as topic:
                rdkafka[name] = [self.librdkafka("produce", broker.address, topic, size, MS),
                                 self.librdkafka("consume", broker.address, topic)]
            with self.topic(broker.address) as topic:
                java[name] = [self.java.ask("produce", broker.address, topic, size, 1, MS, 1000000),
                              self.java.ask("consume", broker.address, topic)]
        for client, found in (("librdkafka", rdkafka), ("Java", java)):
            for i, way in enumerate(("produces", "consumes")):
                yield {"kind": f"stock throughput, {SIZES[size]}", "name": f"{client} {way}"} | {
                    f"{name}_mb_s": figures[i]["mb_s"] for name, figures in found.items()}

    def stock_empty(self, both):
        point = {"kind": "stock empty", "name": "raw"}
        for name, broker in both.items():
            with self.topic(broker.address) as topic:
                point |= {f"{name}_p50_us": self.raw("empty", broker.address, topic, 1, 1, MS)["p50_us"],
                          f"{name}_per_s": self.raw("empty", broker.address, topic, 8, 8, MS)["per_s"]}
        yield point
        yield {"kind": "empty", "name": "Kafka, raw", "p50_us": point["kafka_p50_us"], "per_s": point["kafka_per_s"]}

    @staticmethod
    def memory(both, when):
        yield {"kind": "memory", "name": when} | {f"{name}_mib": broker.memory_mib() for name, broker in both.items()}

    # ---- events ----

    def events_of_kafka(self, kafka, words, replicas):
        acks = 1 if replicas == 1 else "all"
        with self.topic(kafka.address, replicas) as topic:
            yield {"kind": "events", "name": f"Kafka, {words}"} | self.java.ask(
                "events", kafka.address, topic, acks, RATE, 10000, BURST)

    @staticmethod
    def _events(kind, words, row):
        yield {"kind": "events", "name": f"Holdfast {kind}, {words}"} | {
            f"{key}_us": row[name] for key, name in (("mean", "events_us"), ("constant", "events_constant_us"),
                                                     ("burst", "events_burst_us"))}

    def events_of_ours(self, kind, words):
        row, = _json_of([self.holdfast, "bench", "broker", "events", "--device", kind, "--rounds", "1", "--json"])
        yield from self._events(kind, words, row)

    # ---- three brokers ----

    @contextlib.contextmanager
    def cluster(self, count=3, kind="shm", **settings):
        """Brokers of ours; and what starts a client of that number that measures parts."""
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        try:
            with broker_cluster.Cluster(str(self.holdfast), directory, count, kind, log_segment_bytes=kafka_beside.SEGMENT_BYTES,
                                        **settings) as brokers:
                def measure(*parts, number=0):
                    config = directory / f"client-{number}.json"
                    config.write_text(json.dumps(brokers.client(f"client-{number}", number)))
                    return _json_of([self.holdfast, "bench", "broker", *parts, "--brokers", brokers.address, "--config", config,
                                     "--acks-all", "--rounds", "1", "--json"])[0]
                try:
                    brokers.start_all()
                    yield measure
                finally:
                    for i in range(count):
                        if brokers.processes[i] is not None and brokers.processes[i].poll() is None:
                            brokers.stop(i, signal.SIGTERM)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def three_of_ours(self):
        with self.cluster() as measure:
            row = measure("produce", "bandwidth")
        yield {"kind": "three replicas", "name": "Holdfast shm", "p50_us": row["produce_us"], "p99_us": row["produce_p99_us"],
               "b512_mb_s": row["bandwidth_512_mb_s"], "b32768_mb_s": row["bandwidth_32k_mb_s"]}

    def three_of_kafka(self, kafka):
        point = {"kind": "three replicas", "name": "Kafka, Java"}
        with self.topic(kafka.address, 3) as topic:
            yield {"kind": "three replicas", "name": "Kafka, raw"} | self.raw("produce", kafka.address, topic, 100, -1, COUNT // 2)
            point |= self.java.ask("latency", kafka.address, topic, 100, "all", COUNT // 2)
        for size in (512, 32768):
            with self.topic(kafka.address, 3) as topic:
                point[f"b{size}_mb_s"] = self.java.ask("produce", kafka.address, topic, size, "all", MS, 0)["mb_s"]
        yield point

    def events_of_three(self, kind):
        with self.cluster(kind=kind) as measure:
            yield from self._events(kind, "three replicas", measure("events"))

    def replication_batches(self):
        for most in BATCHES:
            with self.cluster(replication_batch_bytes=most) as measure:
                yield {"kind": "replication batch", "name": f"{most} B", "mb_s": measure("bandwidth")["bandwidth_512_mb_s"]}

    # ---- all of it ----

    def prepare(self):
        self.lib = kafka_beside.fetch_jars(VERSION, self.home)
        if self.lib is None:
            self.skipped["Kafka"] = "its jars cannot be fetched, or there is no Java or Maven"
        else:
            try:
                self.java = kafka_beside.Java(self.lib, self.home)
            except beside.Missing as why:
                self.skipped["Kafka"], self.lib = str(why), None
        if self.lib is None:
            print(f"  skipped: Kafka, and all that is compared with it: {self.skipped['Kafka']}", flush=True)
        self.begin = time.monotonic()

    @contextlib.contextmanager
    def kafka(self, count):
        """None where it cannot be had."""
        kafka = None
        try:
            if self.lib is not None:
                try:
                    kafka = kafka_beside.Kafka(self.lib, self.directory, count)
                    kafka.wait()
                    with self.topic(kafka.address, count):
                        pass
                except (beside.Missing, OSError, subprocess.SubprocessError) as why:
                    self.skipped[f"Kafka, {count}"] = str(why)
                    print(f"  skipped: Kafka: {why}", flush=True)
                    if kafka is not None:
                        kafka.close()
                    kafka = None
            yield kafka
        finally:
            if kafka is not None:
                kafka.close()

    def run_one(self, wanted):
        with self.kafka(1) as kafka, contextlib.closing(Ours(self.holdfast, self.directory)) as ours:
            both = {"kafka": kafka, "holdfast": ours}
            if kafka is not None and "stock" in wanted:
                time.sleep(2)
                self.step("memory", self.memory, both, "started")
            for i in self.rounds_until(ONE_PART):
                if "one" in wanted:
                    self.step("Holdfast over shm", self.ours_over, "shm")
                    self.step("two clients over shm", self.empty_of_two)
                    if kafka is not None:
                        self.step("Kafka without batching", self.kafka_unbatched, kafka)
                        self.step("Kafka end to end", self.kafka_end_to_end, kafka)
                    self.step("Holdfast over soft", self.ours_over, "soft")
                    for kind in ("shm", "soft"):
                        self.step(f"rolls over {kind}", self.rolls_over, kind)
                if kafka is not None and "stock" in wanted:
                    for size in SIZES:
                        self.step(f"stock clients, {SIZES[size]}", self.stock_latency, both, size)
                        self.step(f"throughput of stock clients, {SIZES[size]}", self.stock_throughput, both, size)
                    self.step("empty Fetches", self.stock_empty, both)
                if "events" in wanted and i == 0:
                    for kind in ("shm", "soft"):
                        self.step(f"events over {kind}", self.events_of_ours, kind, "no replicas")
                    if kafka is not None:
                        self.step("events at Kafka", self.events_of_kafka, kafka, "no replicas", 1)
            if kafka is not None and "stock" in wanted:
                self.step("memory", self.memory, both, "after the load")

    def run_three(self, wanted):
        with self.kafka(3) as kafka:
            for i in self.rounds_until(THREE_PART):
                if "three" in wanted:
                    self.step("three of ours", self.three_of_ours)
                    if kafka is not None:
                        self.step("three of Kafka", self.three_of_kafka, kafka)
                if "events" in wanted and i == 0:
                    for kind in ("shm", "soft"):
                        self.step(f"events with replicas over {kind}", self.events_of_three, kind)
                    if kafka is not None:
                        self.step("events with replicas at Kafka", self.events_of_kafka, kafka, "three replicas", 3)
        if "three" in wanted:
            self.step("replication batches", self.replication_batches)


def _bars():
    """(line, words, theirs, ours, how, bar): a figure is (kind, name, key), theirs is ours again where line 11 compares two of ours;
    "below" wants theirs / ours at least the bar, "above"
    ours / theirs at least, "within" ours / theirs at most."""
    shm, soft, java, raw = "Holdfast shm", "Holdfast soft", "Kafka, Java", "Kafka, raw"
    yield 3, "produce, shm below Java's", ("produce", java, "p50_us"), ("produce", shm, "p50_us"), "below", 20
    yield 3, "produce, shm below a raw client's", ("produce", raw, "p50_us"), ("produce", shm, "p50_us"), "below", 10
    yield 3, "produce, soft below Java's", ("produce", java, "p50_us"), ("produce", soft, "p50_us"), "below", 10
    for name, words in ((raw, "a raw client's"), (java, "Java's")):
        yield (4, f"three replicas, below {words}", ("three replicas", name, "p50_us"), ("three replicas", shm, "p50_us"),
               "below", 7)
    yield 5, "512 B without batching", ("bandwidth", java, "b512_mb_s"), ("bandwidth", shm, "b512_mb_s"), "above", 10
    yield 5, "32 KiB without batching", ("bandwidth", java, "b32768_mb_s"), ("bandwidth", shm, "b32768_mb_s"), "above", 9
    yield (5, "32 KiB, beside librdkafka's batches", ("stock throughput, 32 KiB", "librdkafka produces", "kafka_mb_s"),
           ("bandwidth", shm, "b32768_mb_s"), "above", 3)
    yield (5, "32 KiB, three replicas", ("three replicas", java, "b32768_mb_s"), ("three replicas", shm, "b32768_mb_s"),
           "above", 9)
    yield 6, "a preloaded record", ("consume", java, "p50_us"), ("consume", shm, "p50_us"), "below", 50
    yield 6, "an empty check", ("empty", raw, "p50_us"), ("empty", shm, "p50_us"), "below", 80
    yield 6, "empty checks a second", ("empty", raw, "per_s"), ("empty", f"{shm}, two clients", "per_s"), "above", 156
    yield 6, "32 KiB, one record a fetch", ("consume", java, "mb_s"), ("consume", shm, "mb_s"), "above", 9
    yield 7, "end to end over soft", ("end to end", java, "p50_us"), ("end to end", soft, "p50_us"), "below", 5.8
    yield 7, "end to end over shm", ("end to end", java, "p50_us"), ("end to end", shm, "p50_us"), "below", 50
    for kind, name in (("shm", shm), ("soft", soft)):
        for words in ("no replicas", "three replicas"):
            yield (7, f"delay of events over {kind}, {words}", ("events", f"Kafka, {words}", "mean_us"),
                   ("events", f"{name}, {words}", "mean_us"), "below", 3.3)
    for size in SIZES.values():
        for client, bar in (("raw", 0.6), ("librdkafka", 0.8), ("Java", 1.0)):
            figure = ("stock latency", f"{client} {size}")
            yield 8, f"latency, {client} {size}", (*figure, "kafka_p50_us"), (*figure, "holdfast_p50_us"), "within", bar
        for client in ("librdkafka", "Java"):
            for way in ("produces", "consumes"):
                figure = (f"stock throughput, {size}", f"{client} {way}")
                yield 8, f"throughput, {client} {way} {size}", (*figure, "kafka_mb_s"), (*figure, "holdfast_mb_s"), "above", 1
    yield (8, "empty Fetches a second", ("stock empty", "raw", "kafka_per_s"), ("stock empty", "raw", "holdfast_per_s"),
           "above", 2)
    for when in ("started", "after the load"):
        yield 8, f"memory, {when}", ("memory", when, "kafka_mib"), ("memory", when, "holdfast_mib"), "within", 0.1
    for name in (shm, soft):
        yield (11, f"{name}, p99.9 around rolls and between", ("rolls", name, "between_p999_us"), ("rolls", name, "around_p999_us"),
               "within", 5)


def judge(medians):
    """A row for each bar whose figures are there."""
    found = {(row["kind"], row["name"], key): value for row in medians for key, value in row.items() if key not in ("kind", "name")}
    rows = []
    for line, words, theirs, ours, how, bar in _bars():
        if theirs not in found or ours not in found:
            continue
        ratio = found[theirs] / found[ours] if how == "below" else found[ours] / found[theirs]
        met = ratio <= bar if how == "within" else ratio >= bar
        rows.append({"line": line, "what": words, "Holdfast": found[ours], "beside": found[theirs], "ratio": ratio,
                     "bar": f"at {'most' if how == 'within' else 'least'} {bar:g}", "": "met" if met else "missed"})
    return rows


def touch_memory(directory):
    """Takes memory of /dev/shm and gives it back. A virtual machine may get a page from its host only when it is used for
    the first time, which takes longer than all else that a log does with it; the logs of both shall not measure that."""
    state = os.statvfs(directory)
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, min(TOUCHED_BYTES, state.f_bavail * state.f_frsize // 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--only", action="append", choices=["one", "stock", "events", "three"])
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all that it has started ends
    wanted = options.only or ["one", "stock", "events", "three"]

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-broker-", dir="/dev/shm") as directory:
        os.environ["TMPDIR"] = directory  # of programs that are killed, too, nothing stays
        bench = Bench(options.build.resolve(), pathlib.Path(directory), options.rounds, options.minutes * 60)
        touch_memory(directory)
        try:
            bench.prepare()
            if {"one", "stock", "events"} & set(wanted):
                bench.run_one(wanted)
            if {"three", "events"} & set(wanted):
                bench.run_three(wanted)
        finally:
            if bench.java is not None:
                bench.java.close()
    medians = beside.medians_of(bench.points)
    bars = judge(medians)
    print("ratios of the medians:")
    for row in bars:
        print(f"  line {row['line']}: {row['what']:42} {row['Holdfast']:12.2f} {row['beside']:12.2f}  ratio {row['ratio']:8.2f}, "
              f"{row['bar']}: {row['']}")
    for name, why in bench.skipped.items():
        print(f"  not measured: {name}: {why}")
    if options.out is not None:
        options.out.write_text(json.dumps({"points": bench.points, "medians": medians, "bars": bars, "skipped": bench.skipped},
                                          indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
