#!/usr/bin/env python3
"""broker_newest.py PROGRAM - the newest clients of Kafka from PyPI at a broker: they list topics, subscribe by a pattern,
find an offset by its time within a packed batch, and read past batches that were refused.
`broker_newest.py confluent|kafka-python ADDRESS` is the program on a library, run by the Python that has it."""
import gzip
import sys
import time

WAIT_S = 60
PATTERN, MATCHED = "^of-pattern-.$", {"of-pattern-a", "of-pattern-b"}
PACKED, PACKED_RECORDS, STEP_MS, FIRST_MS = "packed", 50, 100, 1_700_000_000_000
REFUSED, KEPT = "refused", [b"good 0", b"good 1"]
INVALID_RECORD, GZIP = 87, 1
GROUP = "readers"


def _fill(address):
    """By hand: a library would not send all of it."""
    import kafka_wire
    records = b"".join(kafka_wire.record(i, b"value", i * STEP_MS) for i in range(PACKED_RECORDS))
    with kafka_wire.Client(address) as client:
        for topic in (PACKED, REFUSED, "another", *MATCHED):
            assert client.create(topic) == 0
        for topic in MATCHED:
            assert client.produce(topic, kafka_wire.batch([topic.encode()])) == (0, 0)
        assert client.produce("another", kafka_wire.batch([b"another"])) == (0, 0)
        packed = kafka_wire.batch_of(PACKED_RECORDS, gzip.compress(records), GZIP, first_ms=FIRST_MS,
                                     last_ms=FIRST_MS + (PACKED_RECORDS - 1) * STEP_MS)
        assert client.produce(PACKED, packed) == (0, 0)
        assert client.offset_at(PACKED, FIRST_MS + 2500) == (0, FIRST_MS + 2500, 25)
        assert client.produce(REFUSED, kafka_wire.batch(KEPT[:1])) == (0, 0)
        three = gzip.compress(b"".join(kafka_wire.record(i, b"false") for i in range(3)))
        for wrong in (kafka_wire.batch_of(1, kafka_wire.record(0, b"plain"), GZIP), kafka_wire.batch_of(5, three, GZIP),
                      kafka_wire.batch_of(1, three, GZIP)):
            assert client.produce(REFUSED, wrong)[0] == INVALID_RECORD
        assert client.produce(REFUSED, kafka_wire.batch(KEPT[1:])) == (0, 1)


def _run(directory, library, package):
    import broker
    import fetched
    python = fetched.python(f"{library}-newest", package)
    with broker._Broker(directory, group_initial_rebalance_delay_ms=0) as of:
        host, port = of.address.split(":")
        _fill((host, int(port)))
        fetched.run(python, __file__, library, of.address)
        assert of.stop()[0] == 0


def the_newest_confluent_kafka_lists_subscribes_finds_and_reads(directory):
    _run(directory, "confluent", "confluent-kafka")


def the_newest_kafka_python_lists_subscribes_finds_and_reads(directory):
    _run(directory, "kafka-python", "kafka-python")


# ---- run by the Python that has a library ----


def _until(found, wanted, more):
    end = time.monotonic() + WAIT_S
    while len(found) < len(wanted):
        assert time.monotonic() < end, found
        found += more()
    assert sorted(found) == sorted(wanted), found


def _confluent(address):
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    at = {"bootstrap.servers": address}
    admin = AdminClient(at)
    for client in (admin, Producer(at), Consumer({**at, "group.id": "lists"})):
        assert {PACKED, REFUSED, *MATCHED} < set(client.list_topics(timeout=WAIT_S).topics)
        assert set(client.list_topics(PACKED, timeout=WAIT_S).topics) == {PACKED}
    assert len(admin.describe_cluster().result(WAIT_S).nodes) == 1
    reader = Consumer({**at, "group.id": GROUP, "auto.offset.reset": "earliest"})
    direct = Consumer({**at, "group.id": "assigned"})

    def more(reader):
        messages = reader.consume(10, 0.1)
        assert all(message.error() is None for message in messages), [message.error() for message in messages]
        return [message.value() for message in messages]

    reader.subscribe([PATTERN])
    _until([], [topic.encode() for topic in MATCHED], lambda: more(reader))
    direct.assign([TopicPartition(REFUSED, 0, 0)])
    _until([], KEPT, lambda: more(direct))
    found = direct.offsets_for_times([TopicPartition(PACKED, 0, FIRST_MS + 2500)], timeout=WAIT_S)
    assert found[0].offset == 25, found
    reader.close()
    direct.close()


def _kafka_python(address):
    from kafka import KafkaConsumer, TopicPartition
    from kafka.admin import KafkaAdminClient
    assert {PACKED, REFUSED, *MATCHED} < set(KafkaAdminClient(bootstrap_servers=address).list_topics())
    reader = KafkaConsumer(bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest")

    def more():
        return [record.value for records in reader.poll(timeout_ms=100).values() for record in records]

    reader.subscribe(pattern=PATTERN)
    _until([], [topic.encode() for topic in MATCHED], more)
    reader.unsubscribe()
    reader.assign([TopicPartition(REFUSED, 0)])
    reader.seek(TopicPartition(REFUSED, 0), 0)
    _until([], KEPT, more)
    found = reader.offsets_for_times({TopicPartition(PACKED, 0): FIRST_MS + 2500})[TopicPartition(PACKED, 0)]
    assert (found.offset, found.timestamp) == (25, FIRST_MS + 2500), found
    reader.close()


if __name__ == "__main__":
    if sys.argv[1] == "confluent":
        sys.exit(_confluent(sys.argv[2]))
    if sys.argv[1] == "kafka-python":
        sys.exit(_kafka_python(sys.argv[2]))
    import program
    sys.exit(program.main(sys.modules[__name__]))
