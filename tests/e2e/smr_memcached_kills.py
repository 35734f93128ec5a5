#!/usr/bin/env python3
"""smr_memcached_kills.py PROGRAM [KILLS] - what smr_proxy_kills.py holds Redis to, with memcached: every acknowledged incr
is there, histories are linearizable, and in the end all servers have the same data, key by key."""
import sys

import program
import smr_memcached
import smr_proxy_kills


class _Memcached:
    PORT = smr_memcached.PORT
    beside = None

    @staticmethod
    def say(key, counts):
        return (b"incr key:%d 1\r\n" if counts else b"get key:%d\r\n") % key

    @staticmethod
    async def hear(reader, counts):
        line = await reader.readline()
        if line.startswith(b"VALUE "):
            line = await reader.readline()
            assert not line.endswith(b"\n") or (await reader.readline()) in (b"END\r\n", b""), line
        if not line.endswith(b"\r\n"):
            return None
        return int(line)

    @staticmethod
    def prepare(cluster):
        with smr_memcached._client(cluster.hosts[0]) as client:
            for key in range(smr_proxy_kills.KEYS):
                assert client.ask(smr_memcached._store("set", f"key:{key}", 0, 0, "0")) == "STORED"

    @staticmethod
    def count(cluster, i, key):
        with smr_memcached._client(cluster.hosts[i]) as client:
            return int(client.ask(f"get key:{key}").split(" | ")[1].split("\n")[0])


def _kill(directory, kills, **settings):
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else kills
    smr_proxy_kills._kill(directory, kills, codec=_Memcached, cluster_of=smr_memcached._cluster, **settings)


def killed_leaders_lose_no_acknowledged_write(directory):
    _kill(directory, 4)


def members_that_are_behind_the_ring_return_by_a_snapshot(directory):
    _kill(directory, 3, slots=256)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
