"""`holdfast init` and `holdfast dev`: cluster.py HOLDFAST."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import program

MEMBERS = "a=10.1.0.1+10.2.0.1,b=10.1.0.2+10.2.0.2,c=10.1.0.3+10.2.0.3"
LIMIT_S = 120


def _configurations(directory, service, *more):
    program.run(directory, "init", service, "--members", MEMBERS, "--output", service, *more, check=0)
    return [json.loads((directory / service / f"{name}.json").read_text()) for name in "abc"]


def init_writes_a_configuration_for_each_member_and_a_secret(directory):
    directory = pathlib.Path(directory)
    for service in ("kv", "smr-proxy", "broker", "transfer"):
        all_three = _configurations(directory, service)
        assert [one["name"] for one in all_three] == ["a", "b", "c"]
        assert all_three[1]["rails"][1]["address"] == "10.2.0.2"
        assert all(one["secret_file"] == "secret" for one in all_three)
        secret = directory / service / "secret"
        assert secret.stat().st_mode & 0o777 == 0o600
        assert re.fullmatch(r"[0-9a-f]{64}", secret.read_text())
    assert (directory / "kv/secret").read_text() != (directory / "broker/secret").read_text()


def what_init_writes_is_a_right_configuration(directory):
    """The service reads it, and ends only because its addresses are not those of this machine."""
    for service in ("kv", "smr-proxy", "broker"):
        _configurations(pathlib.Path(directory), service, "--data", str(directory))
        done = program.run(directory, service, "--config", f"{service}/a.json")
        assert done.returncode != 0 and "10.1.0.1" in done.stderr, done.stderr


def init_overwrites_nothing(directory):
    directory = pathlib.Path(directory)
    _configurations(directory, "kv")
    before = {path.name: path.read_text() for path in (directory / "kv").iterdir()}
    done = program.run(directory, "init", "kv", "--members", MEMBERS, "--output", "kv", check=2)
    assert "is there already" in done.stderr
    assert before == {path.name: path.read_text() for path in (directory / "kv").iterdir()}


def wrong_members_are_refused_and_nothing_is_written(directory):
    wrong = {"a": "NAME=ADDRESS", "a=": "address is missing", "=10.0.0.1": "NAME=ADDRESS", "a=10.0.0.1:5": "without a port",
             "a=x": "IP address", "a=10.0.0.1,a=10.0.0.2": "two members", "a=10.0.0.1,b=10.0.0.2+10.1.0.2": "same number",
             ",": "empty", "../a=10.0.0.1": "name", "a=1.1.1.1+1.1.1.2+1.1.1.3+1.1.1.4+1.1.1.5": "at most 4 rails",
             ",".join(f"m{i}=10.0.0.{i + 1}" for i in range(8)): "at most 7"}
    for members, word in wrong.items():
        done = program.run(directory, "init", "kv", "--members", members, check=2)
        assert word in done.stderr, (members, done.stderr)
    for arguments, word in ((["init"], "name one service"), (["init", "x"], "no service"), (["init", "kv"], "--members"),
                            (["init", "kv", "--members", "a=10.0.0.1", "--kind", "shm"], "holdfast dev"),
                            (["dev", "transfer"], "no service"), (["dev", "kv", "--members", "9"], "from 1 to 7"),
                            (["dev", "kv", "--address", "10.0.0.1"], "127.")):
        done = program.run(directory, *arguments, check=2)
        assert word in done.stderr, (arguments, done.stderr)
    assert list(pathlib.Path(directory).iterdir()) == []


def _dev(directory, number, service, *more):
    """The process, the first address, and its members' process ids."""
    address = f"127.{48 + number}.{os.getpid() >> 8 & 127}.{os.getpid() & 127}"
    process = program.start(directory, "dev", service, "--address", address, *more)
    pids = []
    for line in process.stdout:
        pids += [int(pid) for pid in re.findall(r" process (\d+) ", line)]
        if line.startswith("Try:"):
            return process, address, pids
    raise AssertionError(process.communicate()[1])


def _end(directory, process, pids):
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=program.RUN_LIMIT_S)
    assert process.returncode == 0
    assert program.left_in(directory) == []
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)


def _ask(address, port, command):
    with socket.create_connection((address, port), timeout=LIMIT_S) as connection:
        connection.sendall(command + b"\r\n")
        return connection.recv(4096)


def a_store_serves_and_a_killed_member_is_told(directory):
    process, address, pids = _dev(directory, 0, "kv")
    assert len(pids) == 3
    assert _ask(address, 7600, b"INCR visits") == b":1\r\n"
    os.kill(pids[2], signal.SIGKILL)
    line = program.read_until(process, ["c was killed by signal 9"])
    end = time.monotonic() + LIMIT_S
    while (answer := _ask(address, 7600, b"INCR visits")) != b":2\r\n":  # once it is excluded
        assert time.monotonic() < end and answer.startswith(b"-"), answer
    again = subprocess.Popen([program.HOLDFAST, *re.search(r"holdfast (.*)", line).group(1).split()],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert "takes clients" in again.stdout.readline()
    again.terminate()
    again.communicate(timeout=program.RUN_LIMIT_S)
    _end(directory, process, pids)


def a_replicated_redis_serves(directory):
    if shutil.which("redis-server") is None:
        raise program.Skip("there is no redis-server")
    process, address, pids = _dev(directory, 1, "smr-proxy")
    assert _ask(address, 6379, b"INCR visits") == b":1\r\n"
    _end(directory, process, pids)


def brokers_serve(directory):
    process, address, pids = _dev(directory, 2, "broker", "--members", "1")
    program.run(directory, "topics", "create", "visits", "--brokers", f"{address}:9092", check=0)
    _end(directory, process, pids)


def a_member_that_cannot_start_ends_the_command_with_its_words(directory):
    address = f"127.51.{os.getpid() >> 8 & 127}.{os.getpid() & 127}"
    with socket.create_server((address, 7600)):
        done = program.run(directory, "dev", "kv", "--address", address, check=1)
    assert "a ended with status" in done.stderr and "7600" in done.stderr, done.stderr
    assert program.left_in(directory) == []


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
