#!/usr/bin/env python3
"""smr_proxy.py PROGRAM - three proxies before three unmodified redis-servers: redis-cli at any of them, leaders killed."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import program
from program import Skip

NAMES = "abcd"  # d is added by one test
WAIT_S = 120


def _needs_redis():
    for name in ("redis-server", "redis-cli"):
        if shutil.which(name) is None:
            raise Skip(f"{name} is not installed (scripts/packages.txt, group redis)")


class _Cluster:
    """Three members, each with its directory; addresses of loopback that no other test has."""

    def __init__(self, directory, arguments=(), settings=None, count=3):
        self.needs()
        self.directory, self.arguments = pathlib.Path(directory), arguments
        net = f"127.{random.randrange(130, 250)}.{random.randrange(256)}"
        self.hosts = [f"{net}.{i + 1}" for i in range(count)]
        self.fabric, self.settings = f"smr-proxy-{os.getpid()}-{net.replace('.', '-')}", settings or {}
        for i in range(count):
            self.configure(i)
        self.processes = [None] * count
        for i in range(count):
            self.start(i)

    @staticmethod
    def needs():
        _needs_redis()

    def rail(self, _):
        return {"kind": "shm"}

    def configure(self, i):
        host = self.hosts[i]
        members = [{"id": k, "name": NAMES[k], "control": [f"{at}:18515"]} for k, at in enumerate(self.hosts)]
        section = {"cluster": "test", "members": members, "listen": f"{host}:6379", **self.settings}
        (self.directory / f"{NAMES[i]}.json").write_text(json.dumps({
            "name": NAMES[i], "fabric": self.fabric,
            "rails": [self.rail(i) | {"name": "r0", "control": f"{host}:18515"}],
            "http": f"{host}:8080", "smr-proxy": section}))

    def start(self, i):
        log = open(self.directory / f"{NAMES[i]}.log", "a")
        self.processes[i] = subprocess.Popen(
            [program.HOLDFAST, "smr-proxy", "--config", str(self.directory / f"{NAMES[i]}.json"), *self.arguments],
            cwd=self.directory, env=program.environment(self.directory), stdout=log, stderr=log,
            stdin=subprocess.DEVNULL)

    def running(self):
        return [i for i, process in enumerate(self.processes) if process is not None]

    def close(self):
        for process in self.processes:
            if process is not None:
                process.terminate()
        for process in self.processes:
            if process is not None:
                process.wait(20)

    def log(self, i):
        return (self.directory / f"{NAMES[i]}.log").read_text()

    def kill(self, i):
        self.processes[i].send_signal(signal.SIGKILL)
        self.processes[i].wait()
        self.processes[i] = None

    def cli(self, i, *words, text=None):
        done = subprocess.run(["redis-cli", "-h", self.hosts[i], "-p", "6379", *words], input=text, text=True,
                              capture_output=True, timeout=60, check=False)
        return (done.stdout + done.stderr).strip()

    def status(self, i):
        done = subprocess.run([program.HOLDFAST, "smr", "status", f"{self.hosts[i]}:8080", "--json"], text=True,
                              capture_output=True, timeout=60, check=False)
        return {"leader": -1, "applied": 0, **(json.loads(done.stdout) if done.returncode == 0 else {})}

    def leader(self):
        """Once all that run name the same one, and it runs: one that has just ended leads until they notice."""
        return self.leader_of(self.running())

    def leader_of(self, members):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            seen = {self.status(i)["leader"] for i in members}
            if len(seen) == 1 and seen <= set(self.running()):
                return seen.pop()
            time.sleep(0.02)
        raise AssertionError("no leader: " + "\n".join(self.log(i)[-1000:] for i in self.running()))

    def wait_back(self, i):
        """Until this member, started again, follows and has applied what the leader has."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            mine, theirs = self.status(i), self.status(self.leader())
            counts = any(member["id"] == i and member["voter"] and member["alive"] for member in theirs.get("members", []))
            if counts and mine["leader"] >= 0 and 0 < theirs["applied"] <= mine["applied"] + 200:
                return
            time.sleep(0.02)
        raise AssertionError(f"{NAMES[i]} is not taken in: " + "\n".join(self.log(k)[-2000:] for k in self.running()))

    def change_members(self, asked, verb, *words, done, over=lambda: False):
        """Until it is answered, or has the answer of a change that is done: leaders change, and followers stand still."""
        end = time.monotonic() + WAIT_S
        while not over():
            said = program.run(self.directory, "smr", "members", verb, asked, *words, check=None)
            if said.returncode == 0 or done in said.stderr:
                return
            assert time.monotonic() < end and any(each in said.stderr for each in (
                "UNKNOWN", "no majority follows", "another change", "no leader was found", "does not answer")), said.stderr
            time.sleep(0.05)

    def socket(self, i):
        return [line for line in self.log(i).splitlines() if " at /" in line][-1].rpartition(" at ")[2]

    def wait_alike(self):
        """Until every server has the same data; returns the digest."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            digests = [subprocess.run(["redis-cli", "-s", self.socket(i), "DEBUG", "DIGEST"], text=True,
                                      capture_output=True, timeout=60, check=False).stdout.strip() for i in self.running()]
            if len(set(digests)) == 1 and len(digests[0]) == 40:
                return digests[0]
            time.sleep(0.05)
        raise AssertionError(f"servers differ: {digests}\n" + "\n".join(self.log(i)[-2000:] for i in self.running()))


@contextlib.contextmanager
def _cluster(directory, *arguments, **settings):
    it = _Cluster(directory, arguments, settings)
    try:
        it.leader()
        yield it
    finally:
        it.close()


def redis_cli_at_another_proxy_finds_every_acknowledged_write(directory):
    with _cluster(directory) as it:
        for kills in range(2):
            leader = it.leader()
            one, other = (leader + 1) % 3, (leader + 2) % 3
            before = int(it.cli(one, "INCRBY", "counter", "0"))
            acknowledged = [line for line in it.cli(one, text="INCR counter\n" * 300).split() if line]
            assert acknowledged == [str(before + k + 1) for k in range(300)], acknowledged
            client = subprocess.Popen(["redis-cli", "-h", it.hosts[one], "-p", "6379", "-r", "2000", "INCR", "counter"],
                                      text=True, stdout=subprocess.PIPE)
            time.sleep(0.1)
            it.kill(leader)
            answers = client.communicate(timeout=60)[0].split()
            assert answers == [str(before + 300 + k + 1) for k in range(2000)], answers[-5:]
            assert it.cli(other, "GET", "counter") == answers[-1]
            it.start(leader)
            it.wait_back(leader)
            it.wait_alike()


def commands_mean_what_they_mean_without_a_proxy(directory):
    """The same commands to a plain server; what cannot be the same is left out."""
    commands = pathlib.Path(__file__).with_name("smr_proxy_commands.txt").read_text()
    with _cluster(directory) as it:
        path = pathlib.Path(directory) / "plain"
        plain = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir",
                                  str(directory)], stdout=subprocess.DEVNULL)
        try:
            while not path.exists():
                time.sleep(0.02)
            time.sleep(0.1)
            expected = subprocess.run(["redis-cli", "-s", str(path)], input=commands, text=True, capture_output=True,
                                      timeout=60, check=False).stdout.splitlines()
        finally:
            plain.terminate()
            plain.wait(10)
        for i in range(3):
            found = it.cli(i, text=commands + "\nFLUSHALL\n").splitlines()[:-1]
            while found and len(found) > len(expected) and found[-1] == "":
                found.pop()
            for k, (a, b) in enumerate(zip(expected, found)):
                assert a == b, f"at {NAMES[i]}, line {k}: {a!r} without a proxy, {b!r} with it"
            assert len(expected) == len(found), (expected[-3:], found[-3:])
            it.wait_alike()


def keys_end_at_their_time_at_every_server(directory):
    with _cluster(directory) as it:
        it.cli(0, text="SET a 1 PX 400\nSET b 1\nPEXPIRE b 400\nSET c 1 EX 100\nSET d 1 PX 300\nRENAME d e\n"
                       "SET f 1 PX 60000\nPERSIST f\nGETEX c EX 200\n")
        assert 100 < int(it.cli(1, "TTL", "c")) <= 200
        assert 100000 < int(it.cli(2, "PTTL", "c")) <= 200000
        assert int(it.cli(2, "PTTL", "f")) == -1
        end = time.monotonic() + WAIT_S
        while it.cli(1, "EXISTS", "a", "b", "e") != "0":
            assert time.monotonic() < end, "keys do not end"
            time.sleep(0.02)
        assert it.cli(2, "EXISTS", "c", "f") == "2"
        assert it.cli(0, text="SET g 1 PX 1\nEXPIRE f -1\nEXISTS f\n").split() == ["OK", "1", "0"]
        it.wait_alike()
        leader = it.leader()
        it.cli(leader, "SET", "late", "1", "PX", "1500")
        it.kill(leader)
        left = (leader + 1) % 3
        while it.cli(left, "EXISTS", "late") != "0":
            assert time.monotonic() < end, "a key does not end after its leader was killed"
            time.sleep(0.05)


def drawn_members_and_stream_ids_are_the_same_everywhere(directory):
    with _cluster(directory) as it:
        it.cli(0, "SADD", "s", *[str(k) for k in range(60)])
        drawn = []
        for k in range(10):
            drawn += [it.cli(k % 3, "SPOP", "s")] + it.cli(k % 3, "SPOP", "s", "2").split()
        assert len(set(drawn)) == 30 and it.cli(1, "SCARD", "s") == "30", drawn
        assert it.cli(0, "SPOP", "none") == "" and it.cli(0, "SPOP", "none", "3") == ""
        ids = [it.cli(k % 3, "XADD", "x", "MAXLEN", "~", "5", "*", "k", str(k)) for k in range(10)]
        assert ids == sorted(ids, key=lambda text: [int(part) for part in text.split("-")]) and len(set(ids)) == 10
        assert it.cli(2, "XLEN", "x") == "5"
        it.wait_alike()


def what_the_proxy_does_not_take_is_refused_in_words(directory):
    with _cluster(directory) as it:
        for command, words in {"WATCH k": "WATCH is refused", "BLPOP k 1": "blocking", "SUBSCRIBE c": "pub/sub",
                               "HELLO 3": "NOPROTO", "CONFIG GET *": "configuration", "REPLICAOF NO ONE": "replicates",
                               "EVAL return 0": "--scripts", "EVALSHA abc 0": "NOSCRIPT", "NOSUCH": "unknown command",
                               "SELECT 1": "one database", "GET": "wrong number", "XREAD BLOCK 1 STREAMS x 0": "BLOCK",
                               "DEBUG DIGEST": "configuration"}.items():
            answer = it.cli(0, *command.split())
            assert words in answer, f"{command}: {answer}"
        many = it.cli(0, text="MULTI\n" + "INCR many\n" * 900 + "EXEC\n").splitlines()
        assert many[-1] == "900" and many.count("QUEUED") == 900, many[-3:]
        found = it.cli(0, text="MULTI\nSET k 1\nWATCH k\nEXEC\nGET k\n")
        assert "EXECABORT" in found, found
        assert it.cli(1, "GET", "k") == ""


def scripts_are_taken_where_the_operator_vouches_for_them(directory):
    with _cluster(directory, "--scripts") as it:
        assert it.cli(0, "EVAL", "return redis.call('INCRBY', KEYS[1], ARGV[1])", "1", "k", "5") == "5"
        assert it.cli(1, "GET", "k") == "5"
        it.wait_alike()


def _signal_the_leaders_server(it, number):
    leader = it.leader()
    it.cli(leader, "SET", "k", "1")
    os.kill(program.children(it.processes[leader].pid)[0], number)
    return leader


def a_server_that_dies_takes_its_replica_with_it(directory):
    with _cluster(directory) as it:
        leader = _signal_the_leaders_server(it, signal.SIGKILL)
        assert it.processes[leader].wait(WAIT_S) == 1
        assert "was killed by signal 9" in it.log(leader) or "ended the connection" in it.log(leader)
        it.processes[leader] = None
        assert it.cli((leader + 1) % 3, "GET", "k") == "1"


def a_server_that_hangs_leads_no_more_and_is_ended(directory):
    with _cluster(directory) as it:
        leader = _signal_the_leaders_server(it, signal.SIGSTOP)
        assert it.cli((leader + 1) % 3, "INCR", "k") == "2"
        assert it.processes[leader].wait(WAIT_S) == 1
        log = it.log(leader)
        assert "does not answer; this member does not lead" in log and "the server did not answer for too long" in log, log
        it.processes[leader] = None


def clients_that_are_gone_count_until_their_writes_end(directory):
    write, most = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n", 100
    with _cluster(directory, clients=most) as it:
        last = it.leader()
        for i in range(3):
            if i != last:
                it.processes[i].kill()
                it.processes[i].wait()
                it.processes[i] = None
        for _ in range(most):  # no majority: each of them waits
            with socket.create_connection((it.hosts[last], 6379), timeout=60) as stream:
                stream.sendall(write)
        with socket.create_connection((it.hosts[last], 6379), timeout=60) as stream:
            assert b"max number of clients" in stream.recv(100)


def _remove_leader(it, asked, leader):
    it.change_members(f"{it.hosts[asked]}:6379", "remove", str(leader), done="no member has this id",
                      over=lambda: it.processes[leader].poll() is not None)
    assert it.processes[leader].wait(WAIT_S) == 1 and "was removed" in it.log(leader), it.log(leader)
    it.processes[leader] = None


def a_member_is_added_and_leaders_are_removed(directory):
    with _cluster(directory) as it:
        it.cli(0, text="".join(f"SET key:{k} {k}\n" for k in range(500)) + "SET later 1 EX 1000\n")
        it.hosts.append(it.hosts[0].rpartition(".")[0] + ".4")
        it.processes.append(None)
        it.configure(3)
        it.start(3)
        leader, proxy = it.leader_of(range(3)), f"{it.hosts[0]}:6379"
        it.change_members(proxy, "add", "3", "d", f"{it.hosts[3]}:18515", done="has this id already")
        assert "has this id already" in program.run(
            directory, "smr", "members", "add", proxy, "3", "d", f"{it.hosts[3]}:18515", check=2).stderr
        assert it.cli(3, "GET", "key:77") == "77" and int(it.cli(3, "TTL", "later")) > 900
        it.wait_alike()
        _remove_leader(it, 3, leader)
        leader = it.leader()
        assert it.cli(3, "INCR", "key:77") == "78"
        _remove_leader(it, leader, leader)
        proxy = f"{it.hosts[it.leader()]}:6379"
        assert it.cli(it.leader(), "INCR", "key:77") == "79"
        assert len(it.wait_alike()) == 40
        for arguments in (["add", proxy], ["add", "x", "1", "n", "127.0.0.1:1"], ["remove", proxy, "a b"]):
            program.run(directory, "smr", "members", *arguments, check=2)


def metrics_tell_what_a_member_does(directory):
    with _cluster(directory) as it:
        leader = it.leader()
        for member in (leader, (leader + 1) % 3):
            before = program.metrics(it.hosts[member])
            for i in range(10):
                assert it.cli(member, "SET", f"k{i}", "v") == "OK"
            assert it.cli(member, "GET", "k1") == "v"
            seen = program.metrics(it.hosts[member])
            more = {name: seen[name] - before.get(name, 0) for name in seen}
            assert seen["holdfast_proxy_leads"] == (member == leader) and seen["holdfast_proxy_members_alive"] == 3, seen
            assert seen["holdfast_proxy_commit"] > 0 and (seen["holdfast_proxy_proposal_number"] > 0) == (member == leader), seen
            assert more["holdfast_proxy_run_seconds", "write"] >= 10 and more["holdfast_proxy_run_seconds", "read"] >= 1, more
            assert more["holdfast_proxy_commands_total"] >= 11 and more["holdfast_proxy_clients_total"] >= 11, more


def a_member_is_ready_while_it_reaches_a_majority(directory):
    def page(i, path):
        return program.page(it.hosts[i], path)

    with _cluster(directory) as it:
        it.leader()
        assert all(page(i, "/ready") == (200, {"node": NAMES[i], "ready": True, "reason": "it serves"}) for i in range(3))
        it.kill(1)
        it.kill(2)
        end = time.monotonic() + WAIT_S
        while page(0, "/ready")[0] != 503:
            assert time.monotonic() < end, page(0, "/ready")
            time.sleep(0.02)
        assert page(0, "/ready")[1]["reason"].startswith("CLUSTERDOWN ") and page(0, "/health")[0] == 200


def wrong_configurations_are_refused_in_words(directory):
    _needs_redis()
    directory = pathlib.Path(directory)
    it = {"name": "x", "rails": [{"name": "r0", "kind": "shm", "control": "127.0.0.1:0"}], "fabric": f"p{os.getpid()}"}
    section = {"listen": "127.0.0.1:0", "members": [{"id": 0, "name": "a", "control": ["127.0.0.1:1"]}]}
    for change, words in [({}, "x"), ({"members": []}, "members"), ({"slots": 100}, "powers of two"),
                          ({"preset": "slow"}, "preset"), ({"tail_mib": 0}, "tail_mib")]:
        (directory / "x.json").write_text(json.dumps({**it, "smr-proxy": {**section, **change}}))
        done = program.run(directory, "smr-proxy", "--config", "x.json", check=2)
        assert words in done.stderr, (change, done.stderr)
    section["members"][0]["name"] = "x"
    (directory / "x.json").write_text(json.dumps({**it, "smr-proxy": section}))
    done = program.run(directory, "smr-proxy", "--config", "x.json", "--redis", "/bin/false", check=2)
    assert "ended with status 1" in done.stderr, done.stderr
    done = program.run(directory, "smr-proxy", check=2)
    assert "--config" in done.stderr
    done = program.run(directory, "smr", "status", "127.0.0.1:1", check=2)
    assert "cannot be reached" in done.stderr, done.stderr


def the_demo_finds_every_write_and_takes_the_killed_member_back(directory):
    _needs_redis()
    report = json.loads(program.run(directory, "smr", "demo", "--quick", "--json", check=0).stdout)
    assert report["good"] and report["rounds"][0]["acknowledged"] == report["rounds"][0]["found"] > 0, report
    assert report["rounds"][0]["returned"]


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
