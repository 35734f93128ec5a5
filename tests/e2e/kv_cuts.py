#!/usr/bin/env python3
"""kv_cuts.py PROGRAM JUDGE KIND [CUTS LEASE_MS] - rails of a store's members that are cut and restored under clients.

One rail of one member at a time: both ways, or one way only, which the port does not report. Held to this: no epoch
begins, no client sees an error or loses its connection, the history is linearizable, and all members have the same
digest in the end. That vqps moved is asked of their nodes, so that nothing passes by doing nothing.
"""
import json
import random
import sys
import time

import kv_history
import program
from kv_cluster import Cluster

JUDGE, KIND = sys.argv[2], sys.argv[3]
CUTS = int(sys.argv[4]) if len(sys.argv) > 4 else 10
LEASE_MS = int(sys.argv[5]) if len(sys.argv) > 5 else 1000
NODES, RAILS = 3, 2
CLIENTS = 3       # at each member
CUT_S = (0.1, 0.5)
REST_S = (0.3, 0.8)


def _switch(cluster, way, link, direction):
    program.run(cluster.directory, "link", way, link, "--fabric", cluster.fabric, "--direction", direction, check=0)


def _cut_and_restore(cluster, number):
    link = f"n{random.randrange(NODES)}/r{number % RAILS}"
    direction = random.choice(("both", "both", "tx", "rx"))
    _switch(cluster, "down", link, direction)
    time.sleep(random.uniform(*CUT_S))
    _switch(cluster, "up", link, direction)
    time.sleep(random.uniform(*REST_S))


def _cut_all(cluster, history):
    for number in range(CUTS):
        history.generation += 1
        _cut_and_restore(cluster, number)


def rails_that_are_cut_and_restored_change_no_epoch_and_no_answer(directory):
    seed = random.randrange(2**32)
    random.seed(seed)
    program.say(f"# seed {seed}")
    history = kv_history.History()
    with Cluster(directory, KIND, NODES, lease_ms=LEASE_MS) as cluster:
        before = [cluster.status(i) for i in range(NODES)]
        kv_history.run(cluster, NODES, CLIENTS, history, lambda: _cut_all(cluster, history))
        after = [cluster.status(i) for i in range(NODES)]
        moved = [program.metrics(cluster.hosts[i][0])["holdfast_vqp_failovers_total"] for i in range(NODES)]
        longest = max(end - begin for operations in history.operations.values() for *_, begin, end in operations)
        program.say(f"# {CUTS} cuts on {KIND}: {history.done} done, {history.refused} refused, {history.unknown} unknown; "
                    f"vqps moved {sum(moved):.0f} times; epoch {after[0]['epoch']}; the longest answer took {longest / 1e6:.1f} ms")
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)
        said = "\n".join(cluster.log(i) for i in range(NODES))
    assert {seen["epoch"] for seen in before} == {seen["epoch"] for seen in after}, (before, after, said)
    assert all(seen["excluded"] == 0 for seen in after), (after, said)
    assert history.refused == 0 and history.unknown == 0, said
    good, words = kv_history.judge(JUDGE, history.lines())
    assert good, words
    assert history.done > 100 * CUTS and min(moved) > 0, (history.done, moved)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
