#!/usr/bin/env python3
"""kv_clients.py PROGRAM - programs that stand on Debian's libraries for Redis, unchanged, at members of a store."""
import importlib.util
import pathlib
import shutil
import subprocess
import sys

import program
from kv_cluster import Cluster

DEBIANS = "/usr/lib/python3/dist-packages"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def _needs(found, package):
    """Installs the group's packages when this one is missing."""
    if found():
        return
    done = subprocess.run([ROOT / "scripts" / "deps.sh", "kv"], text=True, capture_output=True, timeout=300, check=False)
    if done.returncode != 0 or not found():
        raise program.Skip(f"{package} cannot be had: {(done.stderr + done.stdout).strip().splitlines()[-1:]}")


def _has_redis_py():
    importlib.invalidate_caches()
    return importlib.util.find_spec("redis") is not None


def _add_debians_modules():
    if DEBIANS not in sys.path:  # of another python3 than Debian's
        sys.path.append(DEBIANS)


def a_program_on_python3_redis_runs_unchanged(directory):
    _add_debians_modules()
    _needs(_has_redis_py, "python3-redis")
    import redis
    with Cluster(directory, "shm") as cluster:
        clients = [redis.Redis(*cluster.address(i), socket_timeout=60) for i in range(3)]
        first, second, third = clients
        assert first.ping() and first.client_setname("test") and first.client_getname() in ("test", b"test")
        assert first.set("key", "value") and second.get("key") == b"value"
        assert first.set("key", "other", nx=True) is None and first.set("key", "other", xx=True, get=True) == b"value"
        assert third.mset({"a": 1, "b": 2}) and first.mget("a", "none", "b") == [b"1", None, b"2"]
        assert second.incr("n", 5) == 5 and third.decr("n", 7) == -2
        assert first.append("key", "!") == 6 and second.strlen("key") == 6 and third.type("key") == b"string"
        assert second.exists("a", "b", "none") == 2 and second.getdel("b") == b"2" and third.delete("a", "b") == 1
        pipe = first.pipeline(transaction=False)
        for i in range(200):
            pipe.set(f"many:{i}", i)
            pipe.get(f"many:{i}")
        assert pipe.execute()[1::2] == [b"%d" % i for i in range(200)]
        for client in clients:
            assert set(client.scan_iter(match="many:1*", count=17)) == {b"many:%d" % i for i in range(200)
                                                                        if str(i).startswith("1")}
            assert client.dbsize() == 202 and client.info()["db0"]["keys"] == 202
        for refused in (lambda: first.expire("key", 5), lambda: first.lpush("list", 1), lambda: first.set("k", "v", ex=5)):
            try:
                refused()
                assert False, "not refused"
            except redis.ResponseError:
                pass


def a_program_on_hiredis_runs_unchanged(directory):
    compiler = shutil.which("cc")
    if compiler is None:
        raise program.Skip("no C compiler")
    _needs(lambda: pathlib.Path("/usr/include/hiredis/hiredis.h").exists(), "libhiredis-dev")
    source, built = pathlib.Path(__file__).with_name("kv_hiredis.c"), pathlib.Path(directory) / "client"
    subprocess.run([compiler, "-o", built, source, "-lhiredis"], check=True, timeout=60)
    with Cluster(directory, "shm") as cluster:
        addresses = sum(([host, str(port)] for host, port in map(cluster.address, range(3))), [])
        done = subprocess.run([built, *addresses], text=True, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
