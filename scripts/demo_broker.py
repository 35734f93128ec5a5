#!/usr/bin/env python3
"""demo_broker.py HOLDFAST - kcat, a stock Kafka client, writes to a broker and reads the same back, also after a kill."""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOPIC, RECORDS, RECORD_BYTES = "demo", 200_000, 100


def start(holdfast, directory):
    process = subprocess.Popen([holdfast, "broker", "--config", "broker.json"], cwd=directory, text=True,
                               stdout=subprocess.PIPE)
    line = process.stdout.readline()
    if "listens on" not in line:
        sys.exit("demo-broker: the broker did not start; what it said is above")
    print("   " + line.strip())
    return process, line.split("PLAINTEXT://")[1].split(",")[0]


def kcat(address, *arguments, data=None):
    begun = time.monotonic()
    done = subprocess.run(["kcat", "-b", address, *arguments], input=data, stdout=subprocess.PIPE, check=True, timeout=120)
    return done.stdout, time.monotonic() - begun


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def main():
    holdfast = os.path.abspath(sys.argv[1])
    if shutil.which("kcat") is None:
        sys.exit("demo-broker: kcat is missing; `make deps` installs it")
    data = b"".join(b"%0*d\n" % (RECORD_BYTES, n) for n in range(RECORDS))
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-broker-") as directory:
        (pathlib.Path(directory) / "broker.json").write_text(json.dumps({"broker": {
            "node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "logs"}}))
        print("1. A broker starts.")
        process, address = start(holdfast, directory)
        print(f"2. kcat produces {RECORDS} records of {RECORD_BYTES} bytes, and consumes them.")
        _, seconds = kcat(address, "-P", "-t", TOPIC, data=data)
        print(f"   written in {seconds:.2f} s: {digest(data)}")
        back, seconds = kcat(address, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q")
        print(f"   read in    {seconds:.2f} s: {digest(back)}")
        print("3. The broker is killed (SIGKILL) and starts again.")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process, address = start(holdfast, directory)
        again, seconds = kcat(address, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q")
        print(f"   read in    {seconds:.2f} s: {digest(again)}")
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    same = data == back == again
    print("PASS: every record came back, in order, once" if same else "FAIL: what came back is not what was written")
    return 0 if same else 1


sys.exit(main())
