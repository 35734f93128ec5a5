#!/usr/bin/env python3
"""smr_proxy_kills.py PROGRAM [KILLS] - clients and a redis-benchmark at each of three proxies while leaders are killed;
held to this:

  * every acknowledged INCR is there: the values that a key was counted to are all different, and those that are missing
    are not more than the INCRs that were not answered
  * histories are linearizable. A counter's order is known from its values: INCR to v stands before each GET of v, which
    stands before INCR to v + 1; an operation that began after another one had ended must not stand before it
  * the commands of one connection keep their order
  * in the end all three servers have the same data (DEBUG DIGEST)
  * a redis-benchmark ends only with its connections
"""
import asyncio
import random
import re
import sys
import time

import program
import smr_proxy

KEYS = 16
CLIENTS_AT_EACH = 3
PIPELINE = 4
ANSWER_S = 40
BENCHMARK_S = 3
BENCHMARK = "redis-benchmark -p 6379 -c 2 -q -r 1000 -n 200 -t set,get,incr,sadd,hset,zadd -h".split()
# of redis-benchmark, when it has lost its connections; its CONFIG GET is refused
LOST = re.compile(r"Server closed the connection|Connection (reset by peer|refused)|Broken pipe|fetch server CONFIG")


class _History:
    def __init__(self):
        self.operations = {key: [] for key in range(KEYS)}  # (begin, end, place in the counter's order, connection, number)
        self.doubt = {key: 0 for key in range(KEYS)}
        self.acknowledged = self.lost_connections = 0
        self.slowest = 0.0

    def check(self):
        for key, operations in self.operations.items():
            counts = [place // 2 for _, _, place, _, _ in operations if place % 2 == 0]
            assert len(counts) == len(set(counts)), f"key {key}: a count was given twice"
            missing = max(counts, default=0) - len(counts)
            assert missing <= self.doubt[key], f"key {key}: {missing} counts are missing, {self.doubt[key]} in doubt"
            self._check_times(key, operations)
            self._check_connections(key, operations)

    @staticmethod
    def _check_times(key, operations):
        ended = sorted(operations, key=lambda operation: operation[1])
        latest, at = (-1, None), 0
        for operation in sorted(operations, key=lambda operation: operation[0]):
            while at < len(ended) and ended[at][1] < operation[0]:
                latest = max(latest, (ended[at][2], ended[at]), key=lambda pair: pair[0])
                at += 1
            assert operation[2] >= latest[0], f"key {key}: {operation} stands before {latest[1]}, which had ended"

    @staticmethod
    def _check_connections(key, operations):
        last = {}
        for operation in sorted(operations, key=lambda operation: operation[4]):
            assert operation[2] >= last.get(operation[3], -1), f"key {key}: {operation} out of its connection's order"
            last[operation[3]] = operation[2]


async def _benchmark(host, stop):
    """One redis-benchmark after another, with keys of their own. Returns how many came to their end."""
    count = 0
    while not stop.is_set():
        process = await asyncio.create_subprocess_exec(*BENCHMARK, host, stdout=asyncio.subprocess.DEVNULL,
                                                       stderr=asyncio.subprocess.PIPE)
        try:
            words = (await asyncio.wait_for(process.communicate(), BENCHMARK_S))[1].decode()
        except asyncio.TimeoutError:  # it goes on without those of its connections that it cannot write to
            words = ""
            process.kill()
            await process.wait()
        assert all(LOST.search(line) for line in words.splitlines()), words
        count += process.returncode == 0
        await asyncio.sleep(0.02)
    return count


class _Redis:
    """How INCR and GET are said to Redis, and what is answered: a number, 0 when there is no key, None when the
    connection ended."""
    PORT = 6379

    @staticmethod
    def say(key, counts):
        return b"%s key:%d\r\n" % (b"INCR" if counts else b"GET", key)

    @staticmethod
    async def hear(reader, counts):
        line = await reader.readline()
        if line.startswith(b"$") and line != b"$-1\r\n":
            line = b":" + await reader.readline()
        if not line.endswith(b"\r\n"):
            return None
        assert line[:1] in b":$", f"{line} for {'INCR' if counts else 'GET'}"
        return 0 if line.startswith(b"$") else int(line[1:])

    @staticmethod
    def prepare(_cluster):
        pass

    beside = staticmethod(_benchmark)

    @staticmethod
    def count(cluster, i, key):
        return int(cluster.cli(i, "GET", f"key:{key}") or 0)


async def _exchange(codec, reader, writer, history, connection, numbers):
    """One pipeline of INCRs and GETs."""
    batch = [(random.randrange(KEYS), random.random() < 0.6) for _ in range(random.randint(1, PIPELINE))]
    begin = time.monotonic()
    writer.write(b"".join(codec.say(key, counts) for key, counts in batch))
    for answered, (key, counts) in enumerate(batch):
        try:
            value = await asyncio.wait_for(codec.hear(reader, counts), ANSWER_S)
        except (ConnectionError, asyncio.IncompleteReadError):
            value = None
        if value is None:
            for other, incr in batch[answered:]:
                history.doubt[other] += incr
            history.lost_connections += 1
            return False
        end = time.monotonic()
        history.slowest = max(history.slowest, end - begin)
        history.acknowledged += counts
        history.operations[key].append((begin, end, 2 * value + (not counts), connection, next(numbers)))
    return True


async def _client(codec, host, history, connections, numbers, stop):
    while not stop.is_set():
        try:
            reader, writer = await asyncio.open_connection(host, codec.PORT)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        connection = next(connections)
        while not stop.is_set() and await _exchange(codec, reader, writer, history, connection, numbers):
            pass
        writer.close()


async def _kill_leaders(cluster, kills):
    loop = asyncio.get_running_loop()
    for _ in range(kills):
        await asyncio.sleep(random.uniform(0.2, 0.6))
        leader = await loop.run_in_executor(None, cluster.leader)
        cluster.kill(leader)
        await asyncio.sleep(random.uniform(0.1, 0.4))
        cluster.start(leader)
        await loop.run_in_executor(None, cluster.wait_back, leader)
    await asyncio.sleep(0.3)


async def _run(codec, cluster, history, meanwhile, beside=None):
    """Clients at all proxies until `meanwhile`, a coroutine, has ended; returns what `beside` returns for each host."""
    stop = asyncio.Event()
    connections, numbers = iter(range(10**9)), iter(range(10**9))

    async def end():
        try:
            await meanwhile
        finally:
            stop.set()

    others = [beside(host, stop) for host in cluster.hosts] if beside else []
    done = await asyncio.gather(*others, end(), *[_client(codec, host, history, connections, numbers, stop)
                                                  for host in cluster.hosts for _ in range(CLIENTS_AT_EACH)])
    return done[:len(others)]


def _kill(directory, kills, codec=_Redis, cluster_of=smr_proxy._cluster, **settings):
    seed = random.randrange(2**32)
    random.seed(seed)
    history = _History()
    program.say(f"# seed {seed}")
    with cluster_of(directory, **settings) as cluster:
        codec.prepare(cluster)
        benchmarks = asyncio.run(_run(codec, cluster, history, _kill_leaders(cluster, kills), codec.beside))
        history.check()
        cluster.wait_alike()
        for key in range(KEYS):
            counts = [place // 2 for _, _, place, _, _ in history.operations[key]]
            assert codec.count(cluster, key % 3, key) >= max(counts, default=0)
        if codec.beside:
            keys = int(cluster.cli(0, "DBSIZE"))
            program.say(f"# redis-benchmark came to its end {sum(benchmarks)} times, and made {keys - KEYS} keys")
            assert keys > KEYS
    doubt = sum(history.doubt.values())
    program.say(f"# {kills} leaders killed: {history.acknowledged} counts acknowledged, {doubt} in doubt with "
                f"{history.lost_connections} lost connections, slowest answer {history.slowest * 1e3:.0f} ms")
    assert history.acknowledged > 100 * kills and history.lost_connections > 0


def killed_leaders_lose_no_acknowledged_write(directory):
    _kill(directory, int(sys.argv[2]) if len(sys.argv) > 2 else 4)


def members_that_are_behind_the_ring_return_by_a_snapshot(directory):
    _kill(directory, int(sys.argv[2]) if len(sys.argv) > 2 else 3, slots=256)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
