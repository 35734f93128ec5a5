#!/usr/bin/env python3
"""smr_memcached.py PROGRAM - three proxies before three unmodified memcacheds: text clients at any of them, leaders killed."""
import contextlib
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse

import program
import smr_proxy
from program import Skip

WAIT_S = 120
PORT = 6379  # where the clusters of smr_proxy.py listen
UNKNOWN = "SERVER_ERROR UNKNOWN"  # a write has taken effect, and a leader that stood still had its reply


class _Client:
    """A connection of memcached's text protocol, to a host or to a path."""

    def __init__(self, to):
        if str(to).startswith("/"):
            self.stream = socket.socket(socket.AF_UNIX)
            self.stream.connect(str(to))
        else:
            self.stream = socket.create_connection((to, PORT))
        self.stream.settimeout(60)
        self.file = self.stream.makefile("rb")

    def say(self, *lines):
        self.stream.sendall(b"".join(line if isinstance(line, bytes) else line.encode() + b"\r\n" for line in lines))

    def line(self):
        return self.file.readline().rstrip(b"\r\n").decode("latin-1")

    def ask(self, *lines):
        """One reply: a line, or all lines up to END."""
        self.say(*lines)
        said = [self.line()]
        while said[-1].startswith(("VALUE ", "STAT ", "key=")):
            if said[-1].startswith("VALUE "):
                data = self.file.read(int(said[-1].split()[3]) + 2)
                said[-1] += " | " + data[:-2].decode("latin-1")
            said.append(self.line())
        return said[0] if len(said) == 1 else "\n".join(said)

    def close(self):
        self.file.close()
        self.stream.close()


@contextlib.contextmanager
def _client(to):
    it = _Client(to)
    try:
        yield it
    finally:
        it.close()


def _dataset(path):
    """Every key of one server with its flags and data, by its own crawler."""
    with _client(path) as server:
        said = server.ask("lru_crawler metadump all")
        keys = [urllib.parse.unquote(line.split()[0][4:]) for line in said.split("\n") if line.startswith("key=")]
        return {key: server.ask("get " + key) for key in keys}


class _Cluster(smr_proxy._Cluster):
    @staticmethod
    def needs():
        if shutil.which("memcached") is None:
            raise Skip("memcached is not installed (scripts/packages.txt, group memcached)")

    def wait_alike(self):
        """Until every server has the same keys with the same data; returns them."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            sets = [_dataset(self.socket(i)) for i in self.running()]
            if all(one == sets[0] for one in sets):
                return sets[0]
            time.sleep(0.05)
        differing = {key for one in sets for key in one if len({str(other.get(key)) for other in sets}) > 1}
        raise AssertionError(f"servers differ in {sorted(differing)[:10]}: " +
                             "\n".join(self.log(i)[-1000:] for i in self.running()))


@contextlib.contextmanager
def _cluster(directory, *arguments, **settings):
    it = _Cluster(directory, ("--memcached", "memcached", *arguments), settings)
    try:
        it.leader()
        yield it
    finally:
        it.close()


@contextlib.contextmanager
def _plain(directory):
    path = pathlib.Path(directory) / "plain"
    server = subprocess.Popen(["memcached", "-s", str(path), "-U", "0", "-u", "root"], stdout=subprocess.DEVNULL)
    try:
        while not path.exists():
            time.sleep(0.02)
        yield str(path)
    finally:
        server.terminate()
        server.wait(10)


def _store(verb, key, flags, exptime, data, more=""):
    data = data.encode("latin-1")
    return f"{verb} {key} {flags} {exptime} {len(data)}{more}\r\n".encode("latin-1") + data + b"\r\n"


# What is said to a server; {k} is the unique that `gets k` answered last.
COMMANDS = [
    _store("set", "k", 5, 0, "abc"), "get k", "gets k", "get none k none", _store("add", "k", 1, 0, "x"),
    _store("add", "new", 7, 0, "x"), _store("replace", "none", 1, 0, "x"), _store("replace", "k", 4294967295, 0, "def"),
    "gets k new", _store("append", "k", 9, 0, "ghi"), _store("prepend", "k", 9, 0, "<"), _store("append", "none", 0, 0, "x"),
    "gets k", "gets k k none k",
    ("cas", "k", "kept"), "gets k", ("cas-old", "k", "lost"), "get k", _store("cas", "none", 0, 0, "x", " 5"),
    _store("set", "n", 0, 0, "10"), "incr n 5", "decr n 100", "gets n", "incr n 18446744073709551615", "incr n 2",
    "incr none 1", "incr new 1", "incr n abc", "incr n -1", "incr n", "decr n 1 noreply", "get n",
    "touch k 0", "touch none 0", "touch k abc", "gat 0 k n none", "gats 100 k", "gat 0", "gat abc k", "get k",
    "delete n", "delete n", "delete k 0", "delete new 1", "delete new noreply", "get new", "delete", "delete a b c d",
    _store("set", "gone", 0, -1, "x"), "get gone", _store("set", "past", 0, 1000000000, "x"), "get past",
    _store("set", "k", 0, 0, "abc"), _store("add", "k", 0, -1, "x"), "get k", "touch k -1", "get k",
    _store("set", "k", 0, 0, "a\r\nb\r\n"), "get k", _store("set", "empty", 0, 0, ""), "get empty", "gets empty",
    _store("set", "quiet", 0, 0, "1", " noreply"), "get quiet", _store("set", "quiet", 0, 0, "12", " other"), "get quiet",
    _store("append", "quiet", 0, 0, "3", " noreply"), "incr quiet 1",
    _store("set", "noreply", 0, 0, "noreply"), "get noreply",
    "nosuch", "", "x", "get", "gets", "set", "set k", "set k 0 0", "SET k 0 0 1", "GET k", "get " + "k" * 251,
    "get " + "k" * 250, _store("set", "k" * 250, 0, 0, "long"), "get " + "k" * 250,
    "set " + "k" * 251 + " 0 0 1", "set k a 0 1", "set k 0 a 1", "set k 0 0 a", "set k 0 0 -1", "set k -1 0 1",
    "set k 0 0 1 noreply extra", "cas k 0 0 1", "cas k 0 0 1 a",
    b"set k 0 0 2\r\nabcde\r\n", "version", "get k", "incr " + "k" * 251 + " 1", "touch " + "k" * 251 + " 1",
    "delete " + "k" * 251, "verbosity 1", "verbosity", "flush_all 1 2 3", "flush_all abc",
    "mn", "mg k v", "flush_all", "get quiet", _store("set", "after", 3, 0, "flush"), "get after", "flush_all 0",
    "get after", _store("set", "last", 3, 0, "one"), "flush_all noreply", "get last",
    _store("set", "a", 1, 0, "1"), _store("set", "b", 2, 1000, "2"), _store("set", "c", 3, 0, "3" * 100000), "gets a b c",
]


def _converse(client):
    """What is answered to all of it, and to a line after each, so that what is not answered is seen; uniques as the
    order in which they are met."""
    uniques, last, older, said = {}, {}, {}, []

    def name_uniques(answer):
        def name(match):
            key, unique = match.group(1), match.group(3)
            if last.get(key) != unique:
                older[key], last[key] = last.get(key, "1"), unique
            return f"VALUE {key} {match.group(2)} unique-{uniques.setdefault((key, unique), len(uniques))} |"
        return re.sub(r"VALUE (\S+) (\d+ \d+) (\d+) \|", name, answer)

    for k, command in enumerate(COMMANDS):
        if isinstance(command, tuple):
            command = _store("cas", command[1], 0, 0, command[2],
                             " " + (last if command[0] == "cas" else older)[command[1]])
        client.say(command, f"get sentinel-{k}", "touch sentinel 0")
        lines, value = [], client.ask()
        while value != "NOT_FOUND" or not lines or lines[-1] != "END":
            lines.append(name_uniques(value))
            value = client.ask()
        said.append((command if isinstance(command, str) else command.decode("latin-1"), lines))
    return said


def commands_mean_what_they_mean_without_a_proxy(directory):
    """The same to a plain server: words of errors too. The version is the server's own."""
    with _cluster(directory) as it, _plain(directory) as plain:
        with _client(plain) as client:
            expected, wanted = _converse(client), _dataset(plain)
        for i in range(3):
            with _client(it.hosts[i]) as client:
                found = _converse(client)
            for (command, a), (_, b) in zip(expected, found):
                if not command.startswith("m"):  # the proxy takes no meta commands
                    assert a == b, f"at {smr_proxy.NAMES[i]}: {command[:80]!r}: {a} without a proxy, {b} with it"
                else:
                    assert b[0] == "ERROR", (command, b)
            assert it.wait_alike() == wanted and len(wanted) == 3, wanted.keys()


def every_acknowledged_write_is_found_after_the_leader_was_killed(directory):
    with _cluster(directory) as it:
        for _ in range(2):
            leader = it.leader()
            one, other = (leader + 1) % 3, (leader + 2) % 3
            with _client(it.hosts[one]) as client:
                client.ask(_store("add", "counter", 0, 0, "0"))
                count = int(client.ask("incr counter 1"))
                client.say(*["incr counter 1"] * 500)
                it.kill(leader)
                assert [client.line() for _ in range(500)] == [str(count + k + 1) for k in range(500)]
                assert client.ask("incr counter 1") == str(count + 501)
            with _client(it.hosts[other]) as client:
                assert client.ask("get counter").split(" | ")[1].split("\n")[0] == str(count + 501)
            it.start(leader)
            it.wait_back(leader)
            it.wait_alike()


def uniques_are_the_same_at_every_proxy_and_after_a_snapshot(directory):
    with _cluster(directory, slots=64) as it:
        with _client(it.hosts[0]) as client:
            for k in range(300):
                assert client.ask(_store("set", f"k{k}", k, 0, f"value {k}")) == "STORED"
            client.ask(_store("set", "k7", 9, 1000, "timed"))
            kept = client.ask("gets k7 k8 k299")
            unique = kept.split("\n")[0].split(" | ")[0].split()[4]
        for _ in range(3):  # the ring does not reach back: each comes back by a snapshot
            leader = it.leader()
            it.kill(leader)
            it.start(leader)
            it.wait_back(leader)
            assert "has the snapshot" in it.log(leader), it.log(leader)
            for host in it.hosts:
                with _client(host) as client:
                    assert client.ask("gets k7 k8 k299") == kept
        assert len(it.wait_alike()) == 300
        with _client(it.hosts[1]) as one, _client(it.hosts[2]) as other:
            assert one.ask(_store("cas", "k7", 1, 0, "first", " " + unique)) == "STORED"
            assert other.ask(_store("cas", "k7", 1, 0, "second", " " + unique)) == "EXISTS"


def keys_end_at_their_time_at_every_server(directory):
    with _cluster(directory) as it, _client(it.hosts[0]) as one, _client(it.hosts[1]) as other:
        for key, seconds in [("a", 8), ("b", 8), ("c", 100), ("d", 8), ("e", int(time.time()) + 9)]:
            assert one.ask(_store("set", key, 0, seconds, "x")) == "STORED"
        assert one.ask("touch b 100") == "TOUCHED" and other.ask("gat 0 d").startswith("VALUE d")
        assert other.ask(_store("append", "a", 0, 0, "y")) == "STORED"  # its time stays
        assert other.ask("get a b c d e").count("VALUE") == 5
        end = time.monotonic() + WAIT_S
        while (left := other.ask("get a b c d e")).count("VALUE") != 3:
            assert time.monotonic() < end, left
            time.sleep(0.02)
        assert "VALUE a " not in left and "VALUE e " not in left
        assert sorted(it.wait_alike()) == ["b", "c", "d"]
        assert one.ask(_store("set", "late", 0, 2, "x")) == "STORED"
        flushed = time.monotonic() + 3  # or a second later: memcached counts whole ones
        assert one.ask("flush_all 4") == "OK"
        leader = it.leader()
        it.kill(leader)
        with _client(it.hosts[(leader + 1) % 3]) as left:
            while left.ask("get late") != "END":
                assert time.monotonic() < end, "a key does not end after its leader was killed"
                time.sleep(0.02)
            assert left.ask("get b").startswith("VALUE") or time.monotonic() >= flushed
            while left.ask("get b") != "END":
                assert time.monotonic() < end, "a flush that was delayed does not come after its leader was killed"
                time.sleep(0.02)
        assert it.wait_alike() == {}


def members_with_directories_have_everything_after_all_were_killed(directory):
    with _cluster(directory) as it:
        it.settings["directory"] = ""
        for i in range(3):
            it.kill(i)
            it.settings["directory"] = str(it.directory / f"{smr_proxy.NAMES[i]}.files")
            it.configure(i)
        for i in range(3):
            it.start(i)
        it.leader()
        with _client(it.hosts[0]) as client:
            for k in range(200):
                assert client.ask(_store("set", f"k{k}", k, 0, f"value {k}")) == "STORED"
            assert client.ask("touch k0 1000") == "TOUCHED" and client.ask("delete k1") == "DELETED"
            kept = client.ask("gets " + " ".join(f"k{k}" for k in range(200)))
        for i in range(3):
            it.kill(i)
        for i in range(3):
            it.start(i)
        it.leader()
        with _client(it.hosts[1]) as client:
            assert client.ask("gets " + " ".join(f"k{k}" for k in range(200))) == kept
        assert len(it.wait_alike()) == 199


def what_the_proxy_does_not_take_is_refused_in_words(directory):
    with _cluster(directory) as it:
        with _client(it.hosts[0]) as client:
            for line, words in [("lru_crawler metadump all", "CLIENT_ERROR it changes or shows one server"),
                                ("stats reset", "CLIENT_ERROR of stats"), ("stats ITEMS", "CLIENT_ERROR of stats"), ("mg k v", "ERROR"), ("ms k 1", "ERROR"),
                                ("cache_memlimit 1", "CLIENT_ERROR"), ("HOLDFAST ADD 1", "CLIENT_ERROR say HOLDFAST")]:
                answer = client.ask(line)
                assert answer.startswith(words), (line, answer)
            assert "STAT pid" in client.ask("stats") and client.ask("version").startswith("VERSION ")
            assert client.ask(b"set big 0 0 2000000\r\n" + b"x" * 2000000 + b"\r\n") == \
                "SERVER_ERROR object too large for cache"
            assert client.ask(_store("set", "big", 0, 0, "x" * 900000)) == "STORED"
            assert client.ask("get big").count("x") == 900000
            client.say(_store("append", "big", 0, 0, "x" * 400000))  # no server has room for such an item
            assert client.line() == "NOT_STORED" and client.ask("get big").count("x") == 900000
        with _client(it.hosts[0]) as client, _client(it.hosts[0]) as other:
            client.say("verbosity 1 noreply", "get nothing")
            assert client.line() == "END"
            for each in (client, other):
                each.say("version " + "x " * 6000)
            for each in (client, other):
                assert each.line().startswith("VERSION ")
        with _client(it.hosts[1]) as client:
            client.say(b"\x80\x0a" + b"\0" * 22)  # noop of the binary protocol
            assert client.line() == "ERROR" and client.line() == ""
        with _client(it.hosts[1]) as client:
            client.say("get k", b"x" * 5000)
            assert client.line() == "END" and client.line().startswith("CLIENT_ERROR line too long")
        it.wait_alike()


def a_server_may_leave_values_out_of_long_replies(directory):
    """An item can be in 60,000 parts of replies that are not sent yet."""
    with _cluster(directory) as it:
        for host in it.hosts:
            with _client(host) as client:
                assert client.ask(_store("set", "k", 0, 0, "1")) == "STORED"
                for verb in ("gets", "gats 0"):
                    said = [UNKNOWN]
                    while said[-1].startswith(UNKNOWN):
                        said = client.ask(verb + " k" * 65000).split("\n")
                    assert said[-1] == "END" and 50000 < len(said) <= 65001 and len(set(said[:-1])) == 1, said[-3:]
        assert len(it.wait_alike()) == 1


def numbers_that_become_shorter_are_alike(directory):
    """A server writes blanks behind them, unless a reply holds what they were: replies are at the leader's server only."""
    keys = [f"n{k}" for k in range(100)]
    with _cluster(directory) as it, contextlib.ExitStack() as stack:
        one, *readers = [stack.enter_context(_client(it.hosts[it.leader()])) for _ in range(5)]
        for _ in range(20):
            one.say(*[_store("set", key, 0, 0, "10") for key in keys])
            assert {line for _ in keys if not (line := one.line()).startswith(UNKNOWN)} <= {"STORED"}
            for reader in readers:
                reader.say(*["get " + " ".join(keys)] * 4)
            one.say(*[f"decr {key} 1" for key in keys])
            assert {line for _ in keys if not (line := one.line()).startswith(UNKNOWN)} <= {"9"}
            for reader in readers:
                for _ in range(4):
                    while reader.line() != "END":
                        pass
            it.wait_alike()


def members_before_another_kind_of_server_are_refused(directory):
    smr_proxy._needs_redis()
    with _cluster(directory) as it:
        it.kill(2)
        it.arguments, it.settings = (), {"slots": 2048, "slot_bytes": 16384}
        it.configure(2)
        it.start(2)
        with _client(it.hosts[0]) as client:
            assert client.ask(_store("set", "k", 0, 0, "x")) == "STORED"
        assert it.processes[2].wait(WAIT_S) == 1
        it.processes[2] = None
        assert "another kind of server" in it.log(2), it.log(2)
        for arguments, words in [(["--redis", "redis-server", "--memcached", "memcached"], "one server"),
                                 (["--memcached", "/bin/false"], "ended with status 1")]:
            done = program.run(directory, "smr-proxy", "--config", "c.json", *arguments, check=2)
            assert words in done.stderr, done.stderr


def a_member_is_added_through_the_text_protocol(directory):
    with _cluster(directory) as it:
        it.hosts.append(it.hosts[0].rpartition(".")[0] + ".4")
        it.processes.append(None)
        it.configure(3)
        it.start(3)
        with _client(it.hosts[0]) as client:
            client.ask(_store("set", "k", 0, 0, "x"))
        it.change_members(f"{it.hosts[0]}:{PORT}", "add", "3", "d", f"{it.hosts[3]}:18515", done="has this id already")
        with _client(it.hosts[3]) as client:
            assert client.ask("get k").startswith("VALUE k 0 1 | x")
        assert len(it.wait_alike()) == 1


def clients_of_python_are_served(directory):
    try:
        sys.path.append("/usr/lib/python3/dist-packages")  # Debian's, for whichever python this is
        from pymemcache.client.base import Client
    except ImportError:
        raise Skip("pymemcache is not installed (python3-pymemcache)") from None
    with _cluster(directory) as it:
        one, other = Client((it.hosts[0], PORT)), Client((it.hosts[1], PORT))
        assert one.set("k", b"v", noreply=False) and other.get("k") == b"v"
        assert not one.add("k", b"w", noreply=False) and one.append("k", b"+", noreply=False)
        value, unique = other.gets("k")
        assert value == b"v+" and one.cas("k", b"new", unique) is True and one.cas("k", b"newer", unique) is False
        assert one.set_many({f"m{k}": b"x" * k for k in range(100)}, noreply=False) == []
        assert other.get_many([f"m{k}" for k in range(100)]) == {f"m{k}": b"x" * k for k in range(100)}
        one.set("n", b"1", noreply=True)
        assert one.incr("n", 41) == 42 and other.decr("n", 2) == 40 and other.touch("n", 100, noreply=False)
        assert other.delete("n", noreply=False) and one.get("n") is None
        assert one.flush_all(noreply=False) and other.get("k") is None and one.version()
        it.wait_alike()
        one.close()
        other.close()


def tools_of_libmemcached_are_served(directory):
    tools = ["memccp", "memccat", "memcrm", "memctouch", "memcexist", "memcping", "memcflush"]
    if any(shutil.which(tool) is None for tool in tools):
        raise Skip("the tools of libmemcached are not installed (libmemcached-tools)")
    with _cluster(directory) as it:
        def tool(i, *words):
            return subprocess.run([words[0], f"--servers={it.hosts[i]}:{PORT}", *words[1:]], cwd=directory, text=True,
                                  capture_output=True, timeout=60, check=False)

        for name, data in [("one", "first file\n"), ("two", "x" * 100000)]:
            (pathlib.Path(directory) / name).write_text(data)
        assert tool(0, "memccp", "one", "two").returncode == 0
        for i in range(3):
            assert tool(i, "memccat", "one").stdout.startswith("first file") and tool(i, "memcexist", "two").returncode == 0
        assert tool(2, "memctouch", "--expire=100", "one").returncode == 0
        assert tool(1, "memcrm", "one").returncode == 0 and tool(0, "memcexist", "one").returncode != 0
        assert sorted(it.wait_alike()) == ["two"]
        assert tool(1, "memcping").returncode == 0 and tool(1, "memcflush").returncode == 0
        assert it.wait_alike() == {}


def the_demo_counts_in_memcached(directory):
    _Cluster.needs()
    report = json.loads(program.run(directory, "smr", "demo", "--quick", "--memcached", "memcached", "--json", check=0).stdout)
    assert report["good"] and report["rounds"][0]["acknowledged"] == report["rounds"][0]["found"] > 0, report


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
