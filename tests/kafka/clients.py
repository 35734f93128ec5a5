"""Lists topics, produces records and reads them back in a group of three processes, one of which is killed in between;
with one of the Python clients: clients.py confluent|kafka-python|aiokafka ADDRESS TOPIC COUNT plain|idempotent. Members
subscribe by name; with plain, by a pattern. Exit status 0: all came, each partition's in order. A member of the group is
the same program with `member` behind: it writes a line "PARTITION NUMBER" for each record, then commits, and ends when
its standard input does."""
import asyncio
import queue
import subprocess
import sys
import threading
import time

LIBRARY, ADDRESS, TOPIC, COUNT, MODE = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
PARTITIONS, MEMBERS, WAIT_S, SESSION_MS, BATCH = 3, 3, 60, 6000, 20
REPLICAS = ADDRESS.count(",") + 1
GROUP = "group-" + TOPIC
PATTERN = f"^{TOPIC[:-1]}.$" if MODE == "plain" else None
ended = threading.Event()


def value(n):
    return f"value {n}".encode()


def took(partition, data):
    print(partition, int(data.split()[1]), flush=True)


# ---- confluent-kafka ----

def confluent_create():
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": ADDRESS})  # must live until the answer is there
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)]).values():
        future.result(WAIT_S)


def confluent_list():
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient
    at = {"bootstrap.servers": ADDRESS}
    lists = [set(client.list_topics(timeout=WAIT_S).topics)
             for client in (AdminClient(at), Producer(at), Consumer({**at, "group.id": "lists"}))]
    assert lists[0] == lists[1] == lists[2], lists
    return lists[0]


def confluent_produce(numbers):
    from confluent_kafka import Producer
    failures = []
    producer = Producer({"bootstrap.servers": ADDRESS, "enable.idempotence": MODE == "idempotent",
                         "compression.type": "lz4"})
    for n in numbers:
        producer.produce(TOPIC, value(n), partition=n % PARTITIONS,
                         on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0 and not failures, failures


def confluent_member():
    from confluent_kafka import Consumer
    member = Consumer({"bootstrap.servers": ADDRESS, "group.id": GROUP, "auto.offset.reset": "earliest",
                       "session.timeout.ms": SESSION_MS, "enable.auto.commit": False})
    member.subscribe([PATTERN or TOPIC])
    while not ended.is_set():
        messages = [message for message in member.consume(BATCH, 0.1) if not message.error()]
        for message in messages:
            took(message.partition(), message.value())
        if messages:
            member.commit()
    member.close()


# ---- kafka-python ----

def kafka_python_create():
    from kafka.admin import KafkaAdminClient, NewTopic
    KafkaAdminClient(bootstrap_servers=ADDRESS).create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])


def kafka_python_list():
    from kafka.admin import KafkaAdminClient
    return KafkaAdminClient(bootstrap_servers=ADDRESS).list_topics()


def kafka_python_produce(numbers):
    from kafka import KafkaProducer
    producer = KafkaProducer(bootstrap_servers=ADDRESS, enable_idempotence=MODE == "idempotent",
                             compression_type="gzip")
    sent = [producer.send(TOPIC, value(n), partition=n % PARTITIONS) for n in numbers]
    producer.flush(WAIT_S)
    for future in sent:
        future.get(WAIT_S)
    producer.close()


def kafka_python_member():
    from kafka import KafkaConsumer
    member = KafkaConsumer(bootstrap_servers=ADDRESS, group_id=GROUP, auto_offset_reset="earliest",
                           session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1000, enable_auto_commit=False)
    member.subscribe(topics=None if PATTERN else [TOPIC], pattern=PATTERN)
    while not ended.is_set():
        records = member.poll(timeout_ms=100, max_records=BATCH)
        for partition in records.values():
            for record in partition:
                took(record.partition, record.value)
        if records:
            member.commit_async()
    member.close()


# ---- aiokafka ----

async def aiokafka_create_topic():
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    admin = AIOKafkaAdminClient(bootstrap_servers=ADDRESS)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])
    await admin.close()


async def aiokafka_list_topics():
    from aiokafka.admin import AIOKafkaAdminClient
    admin = AIOKafkaAdminClient(bootstrap_servers=ADDRESS)
    await admin.start()
    topics = await admin.list_topics()
    await admin.close()
    return topics


async def aiokafka_send(numbers):
    from aiokafka import AIOKafkaProducer
    producer = AIOKafkaProducer(bootstrap_servers=ADDRESS, enable_idempotence=MODE == "idempotent")
    await producer.start()
    await asyncio.gather(*[await producer.send(TOPIC, value(n), partition=n % PARTITIONS) for n in numbers])
    await producer.stop()


async def aiokafka_read():
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import CommitFailedError
    member = AIOKafkaConsumer(bootstrap_servers=ADDRESS, group_id=GROUP, auto_offset_reset="earliest",
                              session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1000, enable_auto_commit=False)
    await member.start()
    member.subscribe(topics=() if PATTERN else [TOPIC], pattern=PATTERN)
    while not ended.is_set():
        batches = await member.getmany(timeout_ms=100, max_records=BATCH)
        for records in batches.values():
            for record in records:
                took(record.partition, record.value)
        try:
            if batches:
                await member.commit()
        except CommitFailedError:
            pass  # the group changes: whoever owns the partition next reads these again
    await member.stop()


def aiokafka_create():
    asyncio.run(aiokafka_create_topic())


def aiokafka_list():
    return asyncio.run(aiokafka_list_topics())


def aiokafka_produce(numbers):
    asyncio.run(aiokafka_send(numbers))


def aiokafka_member():
    asyncio.run(aiokafka_read())


# ---- the group ----

class Member:
    def __init__(self, lines):
        self.process = subprocess.Popen([sys.executable, *sys.argv[:6], "member"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, args=[lines], daemon=True).start()

    def read(self, lines):
        for line in self.process.stdout:
            if line.endswith("\n"):  # a kill may leave half a line
                lines.put((self, line))

    def end(self):
        self.process.stdin.close()
        return self.process.wait(WAIT_S)


class Account:
    """What came first of each number, by partition: each has the numbers n with n % PARTITIONS == partition."""

    def __init__(self):
        self.lines, self.seen, self.owners = queue.Queue(), [{} for _ in range(PARTITIONS)], set()

    def take_until(self, reached, seconds):
        end = time.monotonic() + seconds
        while not reached() and time.monotonic() < end:
            try:
                member, line = self.lines.get(timeout=0.1)
            except queue.Empty:
                continue
            partition, n = map(int, line.split())
            self.seen[partition].setdefault(n)
            self.owners.add(member)
        return reached()

    def has(self, count):
        return sum(map(len, self.seen)) >= count

    def verdict(self, count):
        for partition, numbers in enumerate(self.seen):
            wanted = list(range(partition, count, PARTITIONS))
            if sorted(numbers) != wanted:
                return f"partition {partition}: {len(numbers)} of {len(wanted)} came"
            if list(numbers) != wanted:
                return f"partition {partition}: not in order"
        return None


def check(create, topics, produce):
    create()
    listed = topics()
    if TOPIC not in listed:
        return f"the list of topics has {sorted(listed)}"
    account, fed = Account(), COUNT // 2
    produce(range(fed))
    members = [Member(account.lines) for _ in range(MEMBERS)]
    end = time.monotonic() + WAIT_S
    # A group forms in steps: records come until each of the three has read some.
    while not account.take_until(lambda: len(account.owners) == MEMBERS, 1):
        if time.monotonic() > end:
            return f"only {len(account.owners)} of {MEMBERS} members read something"
        produce(range(fed, fed + PARTITIONS))
        fed += PARTITIONS
    members[0].process.kill()
    produce(range(fed, fed + COUNT // 2))
    fed += COUNT // 2
    account.take_until(lambda: account.has(fed), WAIT_S)
    return account.verdict(fed) or next((f"a member ended with {status}" for status in
                                         [member.end() for member in members[1:]] if status != 0), None)


def main():
    create, topics, produce, member = {
        "confluent": (confluent_create, confluent_list, confluent_produce, confluent_member),
        "kafka-python": (kafka_python_create, kafka_python_list, kafka_python_produce, kafka_python_member),
        "aiokafka": (aiokafka_create, aiokafka_list, aiokafka_produce, aiokafka_member)}[LIBRARY]
    if sys.argv[6:] == ["member"]:
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        member()
        return 0
    fault = check(create, topics, produce)
    print(fault or f"{COUNT} came")
    return 1 if fault else 0


sys.exit(main())
