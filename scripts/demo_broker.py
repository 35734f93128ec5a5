#!/usr/bin/env python3
"""demo_broker.py HOLDFAST - kcat, a stock Kafka client, writes to three brokers while the one that leads is killed, and
reads back everything."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import broker_cluster

TOPIC, RECORDS, RECORD_BYTES = "demo", 200_000, 100
LIMIT_S = 120


def kcat(cluster, *arguments):
    return subprocess.run(["kcat", "-b", cluster.address, "-m", "60", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=True, timeout=LIMIT_S).stdout


def partition(cluster):
    """A broker that has not heard of the topic yet lists no partition."""
    while not (topics := json.loads(kcat(cluster, "-L", "-J", "-t", TOPIC))["topics"]) or not topics[0]["partitions"]:
        time.sleep(0.05)
    return topics[0]["partitions"][0]


def ids(replicas):
    return " ".join(str(replica["id"]) for replica in replicas)


def produce(cluster, data, half_written):
    """An idempotent producer that waits for all replicas; tells when half of the records are on their way."""
    process = subprocess.Popen(["kcat", "-b", cluster.address, "-P", "-t", TOPIC, "-X", "enable.idempotence=true",
                                "-X", "message.timeout.ms=100000"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    half = len(data) // 2
    process.stdin.write(data[:half])
    process.stdin.flush()
    half_written.set()
    for at in range(half, len(data), 20_000):
        process.stdin.write(data[at:at + 20_000])
        time.sleep(0.002)
    process.stdin.close()
    if process.wait(timeout=LIMIT_S) != 0:
        sys.exit("demo-broker: FAIL: kcat could not deliver every record")


def main():
    holdfast = os.path.abspath(sys.argv[1])
    if shutil.which("kcat") is None:
        sys.exit("demo-broker: kcat is missing; `make deps` installs it")
    data = b"".join(b"%0*d\n" % (RECORD_BYTES - 1, n) for n in range(RECORDS))
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-broker-") as directory:
        with broker_cluster.Cluster(holdfast, directory) as cluster:
            print("1. Three brokers start; each partition has a replica on all of them, two must have a record (acks=all).")
            cluster.start_all()
            kcat(cluster, "-L", "-t", TOPIC)
            while len(partition(cluster)["isrs"]) < 3:
                time.sleep(0.05)
            leader = partition(cluster)["leader"]
            print(f"   broker {leader} leads, in sync are {ids(partition(cluster)['isrs'])}")
            print(f"2. kcat produces {RECORDS} records of {RECORD_BYTES} bytes; half-way broker {leader} is killed (SIGKILL).")
            begun, half_written = time.monotonic(), threading.Event()
            producer = threading.Thread(target=produce, args=(cluster, data, half_written))
            producer.start()
            half_written.wait()
            joins = cluster.joins(leader - 1)
            cluster.stop(leader - 1, signal.SIGKILL)
            producer.join()
            print(f"   all are acknowledged after {time.monotonic() - begun:.2f} s; now broker {partition(cluster)['leader']} "
                  f"leads, in sync are {ids(partition(cluster)['isrs'])}")
            print(f"3. Broker {leader} starts again.")
            cluster.start(leader - 1)
            cluster.wait_until_joined([leader - 1], before=joins)
            while len(partition(cluster)["isrs"]) < 3:
                time.sleep(0.05)
            print(f"   in sync are {ids(partition(cluster)['isrs'])}")
            print("4. kcat consumes.")
            begun = time.monotonic()
            back = kcat(cluster, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q")
            print(f"   {len(back) // RECORD_BYTES:,} records in {time.monotonic() - begun:.2f} s")
            print(f"   written {hashlib.sha256(data).hexdigest()[:16]}\n   read    {hashlib.sha256(back).hexdigest()[:16]}")
            for i in range(3):
                cluster.stop(i)
    print("PASS: every record came back, in order, once: nothing was lost" if back == data
          else "FAIL: what came back is not what was written")
    return 0 if data == back else 1


sys.exit(main())
