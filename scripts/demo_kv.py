#!/usr/bin/env python3
"""demo_kv.py HOLDFAST - three members of a store, two clients that count, and a member that is killed and returns.

The clients add 1 to a counter and write a key for each number they get, at two members; each member has a log on disk.
Meanwhile a rail of the third member is cut and mended, then the third member is killed with -9, and started again. At the end every number was given
once, every key is at every member, and all members have the same digest. Exit status: 0 nothing was lost, 1 otherwise.
"""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

HOLDFAST = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/holdfast")
NAMES, PORT, CONTROL = ("a", "b", "c"), 7600, 18515
LEASE_MS = 300
FABRIC = f"demo-kv-{os.getpid()}"
HOSTS = [[f"127.{180 + rail}.{os.getpid() >> 8 & 255}.{(os.getpid() & 63) * 4 + i}" for rail in range(2)]
         for i in range(len(NAMES))]


class Client:
    """Speaks RESP, which redis-cli does as well."""

    def __init__(self, member):
        self.stream = socket.create_connection((HOSTS[member][0], PORT), timeout=30)
        self.replies = self.stream.makefile("rb")

    def ask(self, *words):
        words = [str(word).encode() for word in words]
        self.stream.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the member closed the connection")
        if line[:1] == b"$":
            return None if line[1:3] == b"-1" else self.replies.read(int(line[1:]) + 2)[:-2].decode()
        return int(line[1:]) if line[:1] == b":" else line[:-2].decode()


# What a member answers that was excluded because this machine had no core for it: the command did not take effect.
EXCLUDED = ("-LOADING", "-CLUSTERDOWN")


class Counter(threading.Thread):
    def __init__(self, member):
        super().__init__(daemon=True)
        self.member, self.numbers, self.keys, self.errors = member, [], [], []
        self.longest, self.unknown, self.refused, self.stopping = 0, 0, 0, False

    def run(self):
        client = Client(self.member)
        while not self.stopping:
            began = time.monotonic()
            try:
                number = client.ask("INCR", "counter")
                if str(number).startswith(EXCLUDED):
                    self.refused += 1
                    time.sleep(0.002)
                    continue
                if isinstance(number, int):
                    self.numbers.append(number)
                answer = client.ask("SET", f"number:{number}", f"{number} by {NAMES[self.member]}")
            except OSError:  # nobody knows whether it took effect
                self.unknown += 1
                wait_serving(self.member)
                client = Client(self.member)
                continue
            took = time.monotonic() - began
            if str(answer).startswith(EXCLUDED):
                self.refused += 1
                continue
            if not isinstance(number, int) or answer != "+OK":
                self.errors.append((number, answer))
                return
            self.keys.append(number)
            self.longest = max(self.longest, took)


def write_configuration(directory, i):
    members = [{"name": name, "control": [f"{host}:{CONTROL}" for host in hosts]} for name, hosts in zip(NAMES, HOSTS)]
    rails = [{"name": f"r{rail}", "kind": "shm", "control": f"{host}:{CONTROL}"} for rail, host in enumerate(HOSTS[i])]
    (directory / f"{NAMES[i]}.json").write_text(json.dumps({
        "name": NAMES[i], "fabric": FABRIC, "rails": rails,
        "kv": {"members": members, "listen": f"{HOSTS[i][0]}:{PORT}", "log": f"log-{NAMES[i]}",
               "lease_ms": LEASE_MS}}))


def start(directory, i):
    with open(directory / f"{NAMES[i]}.log", "a") as log:
        return subprocess.Popen([HOLDFAST, "kv", "--config", str(directory / f"{NAMES[i]}.json")], stdout=log,
                                stderr=log, stdin=subprocess.DEVNULL)


def wait_serving(member, limit=30):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        try:
            answer = Client(member).ask("GET", "counter")
            if answer is None or not answer.startswith("-"):
                return
        except OSError:
            pass
        time.sleep(0.002)
    raise SystemExit(f"demo-kv: {NAMES[member]} does not serve within {limit} s")


def records_of(member):
    return int(Client(member).ask("DBSIZE"))


def missed(directory):
    return re.findall(r"c has caught up with (\d+) records", (directory / "c.log").read_text())[-1]


def count(counters):
    return sum(len(counter.numbers) for counter in counters)


def say(began, words):
    print(f"{time.monotonic() - began:6.2f} s  {words}", flush=True)


def judge(counters, processes):
    numbers = sorted(sum((counter.numbers for counter in counters), []))
    wrong = [f"{NAMES[counter.member]} was answered {error}" for counter in counters for error in counter.errors]
    unknown = sum(counter.unknown for counter in counters)
    if len(set(numbers)) != len(numbers) or numbers[-1] > len(numbers) + unknown:
        wrong.append("a number was given twice, or never")
    for member in range(len(processes)):
        client = Client(member)
        lost = sum(client.ask("GET", f"number:{number}") is None for counter in counters for number in counter.keys)
        counted = int(client.ask("GET", "counter"))
        if lost or not len(numbers) <= counted <= len(numbers) + unknown:
            wrong.append(f"{NAMES[member]} lacks {lost} keys, and has counted to {counted}")
    if len({Client(member).ask("HFDIGEST") for member in range(len(processes))}) != 1:
        wrong.append("the members differ")
    return len(numbers), unknown, wrong


def run(directory, processes):
    for i in range(len(NAMES)):
        write_configuration(directory, i)
        processes.append(start(directory, i))
    for i in range(len(NAMES)):
        wait_serving(i)
    began = time.monotonic()
    counters = [Counter(0), Counter(1)]
    say(began, "three members serve; two clients count, at a and at b")
    for counter in counters:
        counter.start()
    time.sleep(1)
    subprocess.run([HOLDFAST, "link", "down", "c/r0", "--fabric", FABRIC], check=True, stdout=subprocess.DEVNULL)
    say(began, f"{count(counters)} counted; the first rail of c is cut")
    time.sleep(1)
    subprocess.run([HOLDFAST, "link", "up", "c/r0", "--fabric", FABRIC], check=True, stdout=subprocess.DEVNULL)
    say(began, f"{count(counters)} counted; the rail is back; the longest answer took "
               f"{max(c.longest for c in counters) * 1e3:.1f} ms")
    time.sleep(0.5)
    for counter in counters:
        counter.longest = 0
    processes[2].kill()
    processes[2].wait()
    say(began, f"{count(counters)} counted; c is killed with -9")
    time.sleep(2)
    say(began, f"{count(counters)} counted without c; the longest answer took "
               f"{max(c.longest for c in counters) * 1e3:.0f} ms: a lease of {LEASE_MS} ms, and what the decision took")
    again = time.monotonic()
    processes[2] = start(directory, 2)
    wait_serving(2)
    say(began, f"c serves again, {(time.monotonic() - again) * 1e3:.0f} ms after its start, and has everything; "
               f"of {records_of(2)} records it had missed {missed(directory)}")
    time.sleep(1)
    for counter in counters:
        counter.stopping = True
        counter.join(30)
    total, unknown, wrong = judge(counters, processes)
    refused = sum(counter.refused for counter in counters)
    say(began, f"{total} counted in all" + (f"; of {unknown} requests nobody knows the outcome" if unknown else "") +
        (f"; {refused} refused, because this machine is busy and a member was excluded" if refused else ""))
    for words in wrong:
        print(f"demo-kv: WRONG: {words}")
    print("demo-kv: something was lost" if wrong else
          f"demo-kv: nothing was lost: {total} numbers given once each, every key at every member, equal digests")
    return 1 if wrong else 0


def main():
    processes = []
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-kv-") as directory:
        try:
            return run(pathlib.Path(directory), processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
