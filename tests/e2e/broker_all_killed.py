"""All brokers of a cluster are killed at once, and their hosts go on: broker_all_killed.py HOLDFAST.

Memory of the hosts has what was written. Every partition gets a leader again, the brokers' own topics too; what was
acknowledged is read back, in order and once, and no offset is given to another record.
"""
import json
import pathlib
import signal
import struct
import sys
import time

import kafka_wire
import program

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import broker_cluster

LIMIT_S = 60
FIND_COORDINATOR = 10
TOPIC, GROUP, OWN = "numbers", "readers", "__consumer_offsets"
BEFORE, COMMITTED = 2000, 1234


def _wait_until(holds, words):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, words() if callable(words) else words
        time.sleep(0.05)


def _status(directory, cluster, i=0):
    done = program.run(directory, "broker", "status", f"{cluster.hosts[i][0]}:8080", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else {"partitions": []}


def _leaders(directory, cluster, i=0):
    return {f"{each['topic']}-{each['partition']}": each["leader"] for each in _status(directory, cluster, i)["partitions"]}


def _all_have_leaders(directory, cluster, i=0):
    leaders = _leaders(directory, cluster, i)
    return {f"{TOPIC}-0", f"{OWN}-0"} <= leaders.keys() and all(leader > 0 for leader in leaders.values())


def _of_leader(cluster, call, done):
    """Of one broker after another, until its answer is that of a leader."""
    end = time.monotonic() + LIMIT_S
    while True:
        for hosts in cluster.hosts:
            try:
                with kafka_wire.Client((hosts[0], 9092), timeout=5) as client:
                    answer = call(client)
            except (OSError, EOFError):
                continue
            if done(answer):
                return answer
        assert time.monotonic() < end, "no broker answers as a leader"
        time.sleep(0.05)


def _produce(cluster, begin, end):
    """Acknowledged by every replica in sync; the offset of the first one."""
    data = kafka_wire.batch([b"%d" % n for n in range(begin, end)])
    return _of_leader(cluster, lambda client: client.produce(TOPIC, data), lambda answer: answer[0] == 0)[1]


def _read(cluster, count):
    return _of_leader(cluster, lambda client: client.read(TOPIC), lambda answer: answer[0] == 0 and len(answer[1]) >= count)[1]


def _fill(cluster):
    for n in range(0, BEFORE, 50):
        assert _produce(cluster, n, n + 50) == n
    _of_leader(cluster, lambda client: client.call(FIND_COORDINATOR, 0, struct.pack(">h", len(GROUP)) + GROUP.encode()), lambda _: True)
    _of_leader(cluster, lambda client: client.commit(GROUP, TOPIC, COMMITTED), lambda error: error == 0)


def _make(cluster):
    assert _of_leader(cluster, lambda client: client.create(TOPIC, replicas=3), lambda error: error in (0, 36)) in (0, 36)


def _kill(cluster, which):
    for i in which:
        cluster.processes[i].send_signal(signal.SIGKILL)
    for i in which:
        cluster.processes[i].wait(timeout=LIMIT_S)


def _start(cluster, which):
    joins = [cluster.joins(i) for i in range(cluster.count)]
    for i in which:
        cluster.start(i)
    for i in which:
        cluster.wait_until_joined([i], before=joins[i])


def _holds_all(directory, cluster, i=0):
    _wait_until(lambda: _all_have_leaders(directory, cluster, i), lambda: f"no leader: {_leaders(directory, cluster, i)}")
    values = _read(cluster, BEFORE)
    assert values[:BEFORE] == [b"%d" % n for n in range(BEFORE)], "records are lost, doubled or out of order"
    answer = _of_leader(cluster, lambda client: client.committed(GROUP, TOPIC), lambda answer: answer[0] == 0)
    assert answer[1] == COMMITTED, answer
    return len(values)


def all_are_killed_and_each_partition_goes_on(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory, log_segment_bytes=1 << 20) as cluster:
        cluster.start_all()
        _make(cluster)
        _fill(cluster)
        for _ in range(2):
            _kill(cluster, range(3))
            _start(cluster, range(3))
            end = _holds_all(directory, cluster)
        assert _produce(cluster, BEFORE, BEFORE + 1) == end, "an offset is given again"
        _wait_until(lambda: all(len(each["isr"]) == 3 for each in _status(directory, cluster)["partitions"]),
                    "not every replica comes into sync again")


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
