"""All brokers of a cluster are killed at once, and their hosts go on: broker_all_killed.py HOLDFAST.

Memory of the hosts has what was written. Every partition gets a leader again, the brokers' own topics too; what was
acknowledged is read back, in order and once, and no offset is given to another record.
"""
import json
import pathlib
import shutil
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


def those_that_come_back_do_not_wait_for_the_last_one(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory, log_segment_bytes=1 << 20) as cluster:
        cluster.start_all()
        _make(cluster)
        _fill(cluster)
        leader = _leaders(directory, cluster)[f"{TOPIC}-0"] - 1
        others = [i for i in range(3) if i != leader]
        _kill(cluster, range(3))
        _start(cluster, others)
        _holds_all(directory, cluster, others[0])


def _lose_power(cluster, i):
    """The marks have another inode then: what memory had is not believed."""
    marks = cluster.directory / f"logs-{i + 1}" / "synced"
    shutil.copyfile(marks, marks.with_suffix(".copy"))
    marks.with_suffix(".copy").rename(marks)


def _copy_back(source, target):
    """The content, into the same files: device and inode stay."""
    for path in target.iterdir():
        if path.is_dir():
            _copy_back(source / path.name, path) if (source / path.name).is_dir() else shutil.rmtree(path)
        elif (source / path.name).exists():
            path.write_bytes((source / path.name).read_bytes())
        else:
            path.unlink()
    for path in source.iterdir():
        if path.is_file() and not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)


def an_older_copy_of_a_directory_truncates_nobody(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory, log_segment_bytes=1 << 20) as cluster:
        cluster.start_all()
        _make(cluster)
        assert _produce(cluster, 0, 50) == 0
        leader = _leaders(directory, cluster)[f"{TOPIC}-0"] - 1
        _kill(cluster, range(3))
        logs, copy = cluster.directory / f"logs-{leader + 1}", cluster.directory / "copy"
        shutil.copytree(logs, copy, copy_function=shutil.copyfile)
        _start(cluster, range(3))
        for n in range(50, 500, 50):
            assert _produce(cluster, n, n + 50) == n
        _kill(cluster, range(3))
        shutil.rmtree(copy / "controller")  # that of now stays: members of its log have proofs of their own
        shutil.copytree(logs / "controller", copy / "controller", copy_function=shutil.copyfile)
        _copy_back(copy, logs)
        _start(cluster, range(3))
        values = _read(cluster, 500)
        assert values == [b"%d" % n for n in range(500)], len(values)


def _has_noted(cluster, i, hw):
    marks = (cluster.directory / f"logs-{i + 1}" / "synced").read_bytes()
    return any(struct.unpack_from("<q", marks, at + 112)[0] == hw for at in range(0, len(marks), 128))


def _recover(directory, cluster, topic, *more):
    done = program.run(directory, "broker", "recover", topic, "--brokers", cluster.address, *more, check=0)
    return json.loads(done.stdout) if "--json" in more else done.stdout


def _heard(directory, cluster, topic):
    partitions = _recover(directory, cluster, topic, "--json")["partitions"]
    return sum(each["heard"] for each in partitions[0]["replicas"]) if partitions else 0


def an_operator_recovers_what_has_no_leader_after_a_loss_of_power(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory, log_segment_bytes=1 << 20) as cluster:
        cluster.start_all()
        _make(cluster)
        _fill(cluster)
        _wait_until(lambda: all(_has_noted(cluster, i, BEFORE) for i in range(3)), "a high watermark is not written down")
        _kill(cluster, range(3))
        for i in range(3):
            _lose_power(cluster, i)
        # Of two replicas the end was not on the disk yet.
        for i in (0, 1):
            log = cluster.directory / f"logs-{i + 1}" / f"{TOPIC}-0" / f"{0:020d}.log"
            data = log.read_bytes()
            at = 0
            for _ in range(20 + i):
                at += 12 + struct.unpack(">i", data[at + 8:at + 12])[0]
            log.write_bytes(data[:at] + bytes(len(data) - at))
        _start(cluster, (0, 1))
        _wait_until(lambda: _heard(directory, cluster, TOPIC) == 2, "two replicas are not heard")
        text = _recover(directory, cluster, TOPIC)
        assert "broker 3, last in sync: not heard" in text or "broker 3: not heard" in text, text
        assert "broker 2 would lead: offsets 1050 to 1999 are lost, and perhaps more" in text, text
        assert "Nothing was changed." in text, text
        _start(cluster, [2])
        _wait_until(lambda: _heard(directory, cluster, TOPIC) == 3, "three replicas are not heard")
        assert _leaders(directory, cluster)[f"{TOPIC}-0"] == -1
        text = _recover(directory, cluster, TOPIC)
        assert "broker 3 would lead: no offset is known to be lost, and perhaps some are" in text, text
        for topic in (TOPIC, OWN):
            _wait_until(lambda: _heard(directory, cluster, topic) == 3, "three replicas are not heard")
            text = _recover(directory, cluster, topic, "--yes")
            assert "leads now" in text, text
        end = _holds_all(directory, cluster)
        assert _produce(cluster, BEFORE, BEFORE + 1) == end, "an offset is given again"
        assert "0 partitions without a leader" in _recover(directory, cluster, TOPIC)
        _wait_until(lambda: all(len(each["isr"]) == 3 for each in _status(directory, cluster)["partitions"]),
                    "not every replica comes into sync again")


def what_a_damaged_last_replica_still_has_is_recovered(directory):
    with broker_cluster.Cluster(program.HOLDFAST, directory, default_replication_factor=1) as cluster:
        cluster.start_all()
        assert _of_leader(cluster, lambda client: client.create(TOPIC), lambda error: error in (0, 36)) in (0, 36)
        for n in range(0, 100, 10):
            assert _produce(cluster, n, n + 10) == n
        leader = _leaders(directory, cluster)[f"{TOPIC}-0"] - 1
        _kill(cluster, [leader])
        log = cluster.directory / f"logs-{leader + 1}" / f"{TOPIC}-0" / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        at = 0
        for _ in range(6):
            at += 12 + struct.unpack(">i", data[at + 8:at + 12])[0]
        data[at + 70] ^= 1
        log.write_bytes(data)
        _start(cluster, [leader])
        _wait_until(lambda: _heard(directory, cluster, TOPIC) == 1, "the damaged replica stays the leader")
        text = _recover(directory, cluster, TOPIC)
        assert ", damaged" in text and f"broker {leader + 1} would lead" in text, text
        assert "leads now" in _recover(directory, cluster, TOPIC, "--yes")
        assert _read(cluster, 60) == [b"%d" % n for n in range(60)]
        assert _produce(cluster, 60, 61) == 60


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
