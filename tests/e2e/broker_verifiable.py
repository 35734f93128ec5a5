"""Leaders of three brokers are killed under Kafka's VerifiableProducer and a group of two of its VerifiableConsumers:
broker_verifiable.py HOLDFAST [KILLS [KIND]].

Java's producer is idempotent and writes with acks=all to three partitions, and reports each acknowledged record and its
offset. These records, and no others, are in the log at these offsets, in their order. Each consumer reports the records that
it reads and the offsets that it commits: a group reads every record, and none that lies below an acknowledged commit.

The jars are in BUILD/kafka: `make check-kafka` and `make stress` fetch them.
"""
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import threading

import broker_kills as kills
import program

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import broker_cluster

KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
KIND = sys.argv[3] if len(sys.argv) > 3 else "shm"
KAFKA = pathlib.Path(program.HOLDFAST).parent / "kafka" / "4.1.1"
TOPIC, PARTITIONS, GROUP, MEMBERS = kills.TOPIC, 3, "verifiable", 2
LIMIT_S = 120  # Java repeats for two minutes
PRODUCER = {"enable.idempotence": "true", "retries": 2**31 - 1, "delivery.timeout.ms": 120000, "batch.size": 256,
            "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
CONSUMER = {"heartbeat.interval.ms": 500, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class _Java:
    """A tool that prints an event a line, as JSON."""

    def __init__(self, directory, name, tool, config, *arguments):
        path = pathlib.Path(directory, f"{name}.properties")
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        self.name, self.events, self.log = name, [], pathlib.Path(directory, f"{name}.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                ["java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA}/lib/*",
                 "org.apache.kafka.tools." + tool, *arguments, str(path)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name):
        return [event for event in list(self.events) if event["name"] == name]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT_S)
        self.thread.join()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()


def _producer(directory, cluster):
    return _Java(directory, "producer", "VerifiableProducer", PRODUCER, "--bootstrap-server", cluster.address, "--topic", TOPIC,
                 "--throughput", "500", "--acks", "-1", "--producer.config")


def _consumer(directory, cluster, number):
    return _Java(directory, f"consumer-{number}", "VerifiableConsumer", CONSUMER, "--bootstrap-server", cluster.address,
                 "--topic", TOPIC, "--group-id", GROUP, "--session-timeout", "6000", "--verbose", "--consumer.config")


def _acknowledged(producer):
    """By partition {offset: number}, by the producer's account."""
    errors = producer.named("producer_send_error")
    assert not errors, (len(errors), errors[:3], producer.log.read_text()[-2000:])
    known = [{} for _ in range(PARTITIONS)]
    for event in producer.named("producer_send_success"):
        at = known[event["partition"]]
        assert event["offset"] not in at, f"two records were acknowledged at the same offset: {event}"
        at[event["offset"]] = int(event["value"])
    sums = producer.named("tool_data")
    count = sum(map(len, known))
    assert sums and sums[-1]["sent"] == sums[-1]["acked"] == count, (sums, count, producer.log.read_text()[-2000:])
    return known


def _log(cluster):
    """By partition {offset: number}: the records that are there."""
    known = [{} for _ in range(PARTITIONS)]
    for partition, at in enumerate(known):
        text = kills._kcat(cluster, "-C", "-t", TOPIC, "-p", str(partition), "-o", "beginning", "-e", "-q", "-f", "%o %s\n")
        at.update(map(int, line.split()) for line in text.splitlines())
    return known


def _compare(acknowledged, log):
    written = [number for at in log for number in at.values()]
    sent = {number for at in acknowledged for number in at.values()}
    words = (f"{len(sent - set(written))} lost, {len(written) - len(set(written))} doubled, "
             f"{len(set(written) - sent)} that were never acknowledged")
    assert acknowledged == log, words
    for partition, at in enumerate(log):
        numbers = [at[offset] for offset in sorted(at)]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
        assert sorted(at) == list(range(len(at))), f"partition {partition} has gaps"


def _group_read_all(consumers, log):
    """Each member reads on from where its assignment begins; together they read every record, and none below a commit."""
    events = sorted((event | {"member": member.name} for member in consumers for event in member.events),
                    key=lambda event: event["timestamp"])
    seen, committed, next_of, again = [set() for _ in range(PARTITIONS)], [0] * PARTITIONS, {}, 0
    for event in events:
        if event["name"] in ("partitions_assigned", "partitions_revoked"):
            next_of = {key: offset for key, offset in next_of.items() if key[0] != event["member"]}
        elif event["name"] == "record_data":
            partition, offset = event["partition"], event["offset"]
            assert log[partition].get(offset) == int(event["value"]), f"not in the log: {event}"
            due = next_of.get((event["member"], partition))
            assert offset == due if due is not None else offset >= committed[partition], (event, due, committed)
            assert offset == 0 or offset - 1 in seen[partition], f"skipped before {event}"
            again += offset in seen[partition]
            seen[partition].add(offset)
            next_of[event["member"], partition] = offset + 1
        elif event["name"] == "offsets_committed" and event["success"]:
            for each in event["offsets"]:
                committed[each["partition"]] = max(committed[each["partition"]], each["offset"])
    missing = [len(at.keys() - seen[partition]) for partition, at in enumerate(log)]
    assert missing == [0] * PARTITIONS, f"the group did not read {missing} records"
    assert committed == [len(at) for at in log], (committed, [len(at) for at in log])
    return again


def _has_read_all(consumers, log):
    committed = [0] * PARTITIONS
    for member in consumers:
        for event in member.named("offsets_committed"):
            for each in event["offsets"] if event["success"] else []:
                committed[each["partition"]] = max(committed[each["partition"]], each["offset"])
    return committed == [len(at) for at in log]


def verifiable_clients_lose_nothing_when_leaders_are_killed(directory):
    for needed in ("kcat", "java"):
        if shutil.which(needed) is None:
            raise program.Skip(f"{needed} is not installed (scripts/packages.txt)")
    if not (KAFKA / "complete").exists():
        raise program.Skip("Kafka's jars are not there: make check-kafka and make stress fetch them")
    with broker_cluster.Cluster(program.HOLDFAST, directory, kind=KIND, log_segment_bytes=1 << 20,
                                num_partitions=PARTITIONS) as cluster:
        cluster.start_all()
        kills._kcat(cluster, "-L", "-t", TOPIC)
        producer, consumers = _producer(directory, cluster), []
        try:
            consumers += [_consumer(directory, cluster, i) for i in range(MEMBERS)]
            kills._wait_until(lambda: all(member.named("record_data") for member in consumers), "a member reads nothing")
            times = [kills._leader_is_lost(cluster, signal.SIGKILL) for _ in range(KILLS)]
            producer.end()
            acknowledged = _acknowledged(producer)
            log = _log(cluster)
            _compare(acknowledged, log)
            kills._wait_until(lambda: _has_read_all(consumers, log), "the group does not commit the end")
            for member in consumers:
                member.end()
            again = _group_read_all(consumers, log)
        finally:
            for each in [producer, *consumers]:
                each.kill()
        count = sum(map(len, log))
        program.say(f"# {KILLS} kills, {count} records by the account of VerifiableProducer: 0 lost, 0 doubled, 0 out of order; "
                    f"the group read all, {again} again that it had not committed; to the next acknowledgement: median "
                    f"{statistics.median(times):.2f} s, longest {max(times):.2f} s")


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
