#!/usr/bin/env python3
"""kv_newest.py PROGRAM - the newest clients of Redis from PyPI and npm at members of a store. They are installed beside the
program, once. `kv_newest.py redis-py HOST PORT` is the program on redis-py, run by the Python that has it."""
import pathlib
import shutil
import subprocess
import sys

import fetched
import program
from kv_cluster import Cluster

PIPELINE = 300_000


def the_newest_redis_py_runs_unchanged(directory):
    python = fetched.python("redis-py", "redis")
    with Cluster(directory, "shm") as cluster:
        fetched.run(python, __file__, "redis-py", *cluster.address(0))


def _run_node(directory, library):
    where = fetched.npm("npm", "ioredis", "redis")
    shutil.copy(pathlib.Path(__file__).with_name("kv_newest.js"), where / "client.js")
    with Cluster(directory, "shm") as cluster:
        fetched.run("node", where / "client.js", library, *cluster.address(0))


def the_newest_ioredis_runs_unchanged(directory):
    _run_node(directory, "ioredis")


def the_newest_node_redis_runs_unchanged(directory):
    _run_node(directory, "node-redis")


def redis_cli_shows_figures(directory):
    if shutil.which("redis-cli") is None:
        raise program.Skip("redis-tools is not installed (scripts/packages.txt names it)")
    with Cluster(directory, "shm") as cluster:
        host, port = cluster.address(0)
        assert cluster.client(0).ask("SET", "key", "value") == "+OK"
        shows = subprocess.Popen(["redis-cli", "-h", host, "-p", str(port), "-i", "0.01", "--stat"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = [shows.stdout.readline() for _ in range(5)]
        shows.kill()
        shows.wait()
        shows.stdout.close()
        assert lines[-1].split()[0] == "1" and "-" not in "".join(lines[2:]), lines  # one key


def _redis_py(host, port):
    import redis
    for protocol in (2, 3):
        client = redis.Redis(host=host, port=port, protocol=protocol, socket_timeout=100)
        assert client.ping() and client.set("py", "value") and client.get("py") == b"value"
        assert client.incr(f"py:{protocol}", 5) == 5
        assert client.config_get("maxclients") == {"maxclients": "10000"}, client.config_get("maxclients")
        assert client.info()["loading"] == 0 and client.info("clients")["connected_clients"] >= 1
        pipe = client.pipeline(transaction=True)
        pipe.set("py:multi", 1)
        pipe.incr(f"py:{protocol}")
        try:
            pipe.execute()
            raise AssertionError("a transaction is not refused")
        except redis.ResponseError:
            pass
        assert client.get("py:multi") is None and client.get(f"py:{protocol}") == b"5"
        try:
            client.expire("py", 5)
            raise AssertionError("EXPIRE is not refused")
        except redis.ResponseError as error:
            assert "records do not expire here" in str(error), error
    pipe = client.pipeline(transaction=False)
    for _ in range(PIPELINE):
        pipe.get("py")
    assert pipe.execute() == [b"value"] * PIPELINE


if __name__ == "__main__":
    if sys.argv[1] == "redis-py":
        sys.exit(_redis_py(sys.argv[2], int(sys.argv[3])))
    sys.exit(program.main(sys.modules[__name__]))
