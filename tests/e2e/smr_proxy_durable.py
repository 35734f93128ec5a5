#!/usr/bin/env python3
"""smr_proxy_durable.py PROGRAM [KILLS] - members with directories: all three are killed at once, at random moments under
load, and start again. Nothing that was answered is lost, by the histories of smr_proxy_kills.py."""
import asyncio
import random
import sys

import program
import smr_proxy
import smr_proxy_kills as kills


class _Durable(smr_proxy._Cluster):
    def configure(self, i):
        self.settings["directory"] = str(self.directory / f"{smr_proxy.NAMES[i]}.files")
        super().configure(i)


async def _kill_all(cluster, count):
    loop = asyncio.get_running_loop()
    for _ in range(count):
        await asyncio.sleep(random.uniform(0.05, 0.8))
        for i in random.sample(range(3), 3):
            cluster.processes[i].kill()
        for i in range(3):
            cluster.processes[i].wait()
        for i in random.sample(range(3), 3):
            cluster.start(i)
            await asyncio.sleep(random.uniform(0, 0.05))
        await loop.run_in_executor(None, cluster.leader)
    await asyncio.sleep(0.5)


def nothing_answered_is_lost_when_all_members_are_killed(directory):
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seed = random.randrange(2**32)
    random.seed(seed)
    program.say(f"# seed {seed}")
    history = kills._History()
    cluster = _Durable(directory)
    try:
        cluster.leader()
        asyncio.run(kills._run(kills._Redis, cluster, history, _kill_all(cluster, count)))
        history.check()
        cluster.wait_alike()
        for key in range(kills.KEYS):
            counts = [place // 2 for _, _, place, _, _ in history.operations[key]]
            assert int(cluster.cli(key % 3, "GET", f"key:{key}") or 0) >= max(counts, default=0), f"key {key}"
    finally:
        cluster.close()
    program.say(f"# all killed {count} times: {history.acknowledged} counts acknowledged, "
                f"{sum(history.doubt.values())} in doubt, slowest answer {history.slowest * 1e3:.0f} ms")
    assert history.acknowledged > 20 * count and history.lost_connections > 0


def a_member_with_damaged_files_comes_back_from_the_others_and_keeps_them(directory):
    cluster = _Durable(directory)
    try:
        cluster.leader()
        for i in range(200):
            assert cluster.cli(0, "SET", f"key:{i}", "x" * 100) == "OK"
        cluster.kill(1)
        path = cluster.directory / "b.files" / "wal.0"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        cluster.start(1)
        cluster.wait_back(1)
        cluster.wait_alike()
        assert "damaged" in cluster.log(1), cluster.log(1)
        kept = [file for file in path.parent.glob("damaged.*/*") if file.read_bytes() == bytes(data)]
        assert kept, sorted(str(file) for file in path.parent.rglob("*"))
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
