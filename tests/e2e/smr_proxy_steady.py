#!/usr/bin/env python3
"""smr_proxy_steady.py PROGRAM [SECONDS] - the clients of smr_proxy_kills.py at all three proxies, before Redis and before
memcached, while nothing is killed: the leader of the beginning leads to the end, with the same number.

A machine that stands still for longer than the preset `calm` bears (30 ms) fails it: it is part of `make stress` only."""
import asyncio
import gc
import sys

import program
import smr_memcached
import smr_memcached_kills
import smr_proxy
import smr_proxy_kills


def _load(directory, codec, cluster_of):
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 600
    history = smr_proxy_kills._History()
    gc.disable()  # of millions of operations it takes a second, which would be the slowest answer
    with cluster_of(directory) as cluster:
        codec.prepare(cluster)
        leader = cluster.leader()
        number = cluster.status(leader)["number"]
        asyncio.run(smr_proxy_kills._run(codec, cluster, history, asyncio.sleep(seconds)))
        history.check()
        cluster.wait_alike()
        assert cluster.leader() == leader and cluster.status(leader)["number"] == number, cluster.log(leader)[-2000:]
    program.say(f"# {seconds:.0f} s: {history.acknowledged} counts acknowledged, no change of the leader, slowest answer "
                f"{history.slowest * 1e3:.1f} ms")
    assert history.acknowledged > 100 and history.lost_connections == 0 and not any(history.doubt.values())


def redis_under_load_keeps_its_leader(directory):
    _load(directory, smr_proxy_kills._Redis, smr_proxy._cluster)


def memcached_under_load_keeps_its_leader(directory):
    _load(directory, smr_memcached_kills._Memcached, smr_memcached._cluster)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
