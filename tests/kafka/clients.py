"""Produces records and reads them back in a group of three, one of which ends in between; with one of the Python
clients: clients.py confluent|kafka-python|aiokafka ADDRESS TOPIC COUNT [idempotent]. Exit status 0: all came, in order."""
import asyncio
import sys
import time

LIBRARY, ADDRESS, TOPIC, COUNT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
IDEMPOTENT = "idempotent" in sys.argv[5:]
PARTITIONS, WAIT_S = 3, 40
GROUP = "group-" + TOPIC


def value(n):
    return f"value {n}".encode()


class Account:
    """What came, by partition: each has the numbers n with n % PARTITIONS == partition, in order."""

    def __init__(self):
        self.seen = [[] for _ in range(PARTITIONS)]

    def add(self, partition, data):
        self.seen[partition].append(int(data.split()[1]))

    def count(self):
        return sum(len(set(numbers)) for numbers in self.seen)

    def verdict(self):
        for partition, numbers in enumerate(self.seen):
            wanted = list(range(partition, COUNT, PARTITIONS))
            if sorted(set(numbers)) != wanted:
                return f"partition {partition}: {len(set(numbers))} of {len(wanted)} came"
        return None


def confluent(account):
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": ADDRESS})  # must live until the answer is there
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(WAIT_S)
    failures = []
    producer = Producer({"bootstrap.servers": ADDRESS, "enable.idempotence": IDEMPOTENT, "compression.type": "lz4"})
    for n in range(COUNT):
        producer.produce(TOPIC, value(n), partition=n % PARTITIONS,
                         on_delivery=lambda error, _: failures.append(error) if error else None)
    producer.flush(WAIT_S)
    assert not failures, failures[0]
    members = [Consumer({"bootstrap.servers": ADDRESS, "group.id": GROUP, "auto.offset.reset": "earliest",
                         "session.timeout.ms": 6000, "enable.auto.commit": False}) for _ in range(3)]
    for member in members:
        member.subscribe([TOPIC])
    end = time.monotonic() + WAIT_S
    while account.count() < COUNT and time.monotonic() < end:
        for member in list(members):
            message = member.poll(0.05)
            if message is not None and not message.error():
                account.add(message.partition(), message.value())
        if len(members) == 3 and account.count() > COUNT // 3:
            members.pop().close()  # without a commit: what it had read comes again elsewhere
    for member in members:
        member.close()


def kafka_python(account):
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic
    KafkaAdminClient(bootstrap_servers=ADDRESS).create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    producer = KafkaProducer(bootstrap_servers=ADDRESS, enable_idempotence=IDEMPOTENT, compression_type="gzip")
    sent = [producer.send(TOPIC, value(n), partition=n % PARTITIONS) for n in range(COUNT)]
    producer.flush(WAIT_S)
    for future in sent:
        future.get(WAIT_S)
    member = KafkaConsumer(TOPIC, bootstrap_servers=ADDRESS, group_id=GROUP, auto_offset_reset="earliest",
                           consumer_timeout_ms=WAIT_S * 1000)
    for message in member:
        account.add(message.partition, message.value)
        if account.count() == COUNT:
            break
    member.commit()
    member.close()


async def aiokafka(account):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    admin = AIOKafkaAdminClient(bootstrap_servers=ADDRESS)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=ADDRESS, enable_idempotence=IDEMPOTENT)
    await producer.start()
    await asyncio.gather(*[await producer.send(TOPIC, value(n), partition=n % PARTITIONS) for n in range(COUNT)])
    await producer.stop()
    members = [AIOKafkaConsumer(TOPIC, bootstrap_servers=ADDRESS, group_id=GROUP, auto_offset_reset="earliest",
                                session_timeout_ms=6000, enable_auto_commit=False) for _ in range(3)]
    await asyncio.gather(*[member.start() for member in members])
    end = time.monotonic() + WAIT_S
    while account.count() < COUNT and time.monotonic() < end:
        for member in members:
            for records in (await member.getmany(timeout_ms=50)).values():
                for record in records:
                    account.add(record.partition, record.value)
        if len(members) == 3 and account.count() > 0:
            await members.pop().stop()
    await asyncio.gather(*[member.stop() for member in members])


def main():
    account = Account()
    if LIBRARY == "aiokafka":
        asyncio.run(aiokafka(account))
    else:
        {"confluent": confluent, "kafka-python": kafka_python}[LIBRARY](account)
    fault = account.verdict()
    print(fault or f"{COUNT} came")
    return 1 if fault else 0


sys.exit(main())
