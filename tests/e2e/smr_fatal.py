#!/usr/bin/env python3
"""smr_fatal.py PROGRAM - commands that end the server that executes them: a Redis with little memory, and a memcached of our own.
One member ends, the others keep all data and never execute that command (R-S33)."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import program
import smr_memcached
import smr_proxy

WAIT_S = 120
SETTLE_S = 0.3
LARGE = "400000000"  # bytes, more than the server may have
REDIS = """#!/bin/sh
exec prlimit --as=300000000 redis-server "$@"
"""
MEMCACHED = """#!/usr/bin/env python3
import os, socketserver, sys
items, server = {}, sys.argv[sys.argv.index("-s") + 1]
class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            words = line.split()
            if b"fatal" in words[1:2]:
                os._exit(7)
            if words[0] == b"version":
                reply = b"VERSION 1.6.18\\r\\n"
            elif words[0] == b"set":
                items[words[1]] = (words[2], self.rfile.read(int(words[4]) + 2)[:-2])
                reply = b"STORED\\r\\n"
            elif words[0] in (b"get", b"gets"):
                found = [(key, *items[key]) for key in words[1:] if key in items]
                reply = b"".join(b"VALUE %s %s %d\\r\\n%s\\r\\n" % (key, flags, len(data), data) for key, flags, data in found) + b"END\\r\\n"
            else:
                reply = b"OK\\r\\n"
            self.wfile.write(reply)
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
Server(server, Connection).serve_forever()
"""


def _program(directory, name, text):
    path = pathlib.Path(directory) / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


class _Durable(smr_proxy._Cluster):
    def configure(self, i):
        self.settings["directory"] = str(self.directory / f"{smr_proxy.NAMES[i]}.files")
        super().configure(i)


@contextlib.contextmanager
def _redis(directory, *arguments, kind=smr_proxy._Cluster, **settings):
    it = kind(directory, ("--redis", _program(directory, "small-redis", REDIS), *arguments), settings)
    try:
        it.leader()
        yield it
    finally:
        it.close()


def _one_ends(it, leader):
    """The member that led, and after a while still no other one."""
    assert it.processes[leader].wait(WAIT_S) == 1, it.log(leader)
    assert "the server" in it.log(leader) and "steps out" in it.log(leader), it.log(leader)
    it.processes[leader] = None
    it.leader()
    time.sleep(SETTLE_S)
    assert all(it.processes[i].poll() is None for i in it.running()), [it.log(i)[-1500:] for i in range(3)]


def _others(it, leader):
    return [(leader + k) % len(it.hosts) for k in (1, 2)]


def _is_refused(said):
    assert "ended" in said and "not executed" in said, said[:300]


def a_command_that_ends_a_redis_ends_one(directory):
    """A write of a client at another member; when that member is back, a read of one at the leader."""
    with _redis(directory) as it:
        leader = it.leader()
        one, other = _others(it, leader)
        assert it.cli(one, "SETRANGE", "value", "30000000", "x") == "30000001"
        _is_refused(it.cli(one, "SETRANGE", "large", LARGE, "x"))
        _one_ends(it, leader)
        assert it.cli(one, "STRLEN", "value") == "30000001" and it.cli(other, "EXISTS", "large") == "0"
        it.start(leader)
        it.wait_back(leader)
        it.wait_alike()
        leader = it.leader()
        _is_refused(it.cli(leader, "MGET", *["value"] * 20))
        _one_ends(it, leader)
        assert it.cli(it.running()[0], "STRLEN", "value") == "30000001"


def members_that_start_again_do_not_execute_it_either(directory):
    with _redis(directory, kind=_Durable) as it:
        leader = it.leader()
        assert it.cli(leader, "SET", "k", "kept") == "OK"
        it.cli(_others(it, leader)[0], "SETRANGE", "large", LARGE, "x")
        _one_ends(it, leader)
        for i in it.running():
            it.kill(i)
        for i in range(3):
            it.start(i)
        it.leader()
        assert it.cli(leader, "GET", "k") == "kept" and it.cli(leader, "EXISTS", "large") == "0"
        it.wait_alike()


def a_write_without_end_goes_to_one_server(directory):
    """Its leader leads on; the operator ends that server."""
    with _redis(directory, "--scripts", server_silence_ms=2000) as it:
        leader = it.leader()
        one, other = _others(it, leader)
        assert it.cli(one, "INCR", "n") == "1"
        client = subprocess.Popen(["redis-cli", "-h", it.hosts[one], "-p", "6379", "EVAL", "while true do end", "0"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        end = time.monotonic() + WAIT_S
        while "the server works at a write" not in it.log(leader):
            assert time.monotonic() < end, it.log(leader)
            time.sleep(0.02)
        os.kill(program.children(it.processes[leader].pid)[0], signal.SIGKILL)
        _is_refused(client.communicate(timeout=WAIT_S)[0])
        _one_ends(it, leader)
        assert it.cli(other, "INCR", "n") == "2"


def a_command_that_ends_a_memcached_ends_one(directory):
    it = smr_memcached._Cluster(directory, ("--memcached", _program(directory, "our-memcached", MEMCACHED)))
    try:
        for request in ("set fatal 0 0 1\r\nx", "get fatal"):
            leader = it.leader()
            one, other = _others(it, leader)
            with smr_memcached._client(it.hosts[one]) as client:
                assert client.ask("set k 0 0 4\r\nkept") == "STORED"
                said = client.ask(request)
                assert said.startswith("SERVER_ERROR"), said
                _is_refused(said)
            _one_ends(it, leader)
            with smr_memcached._client(it.hosts[other]) as client:
                assert "kept" in client.ask("get k")
            it.start(leader)
            it.wait_back(leader)
    finally:
        it.close()


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
