#!/usr/bin/env python3
"""kv_kills.py PROGRAM JUDGE KIND NODES MEDIUM [KILLS RECOVERIES STOPS] - members of a store killed and stopped under
clients. MEDIUM is that of their logs: file, memory, or none.

KILLS of random members with -9; RECOVERIES: a member that has just been admitted is killed again, or the one that it
asks for what it lacks, or the one that decides; STOPS: a member with clients on it stands still for three leases.
Clients at all members write down what they see. Held to this: the history is linearizable and every answered write is
read at every member in the end (judge.c); all members have the same digest; and a member that kept its memory or its log
copies no records.
"""
import random
import signal
import sys
import time

import kv_history
import program
from kv_cluster import Closed, Cluster

JUDGE, KIND = sys.argv[2], sys.argv[3]
NODES = int(sys.argv[4])
MEDIUM = sys.argv[5]
NUMBERS = [int(word) for word in sys.argv[6:]]
KILLS, RECOVERIES, STOPS = NUMBERS if NUMBERS else (6, 3, 2) if NODES == 3 else (2, 2, 1)
LEASE_MS = 300
CLIENTS = 3          # at each member
RECORDS = 4000       # that a member misses beside those of the clients, of
RECORD_BYTES = 2000
ATTEMPTS = 10        # for each recovery that is to be hit


def _said(cluster, i, words, since=0):
    return any(word in cluster.log(i)[since:] for word in words)


def _info(cluster, i):
    client = cluster.client(i)
    said = dict(line.split(":", 1) for line in client.ask("INFO").decode().split("\r\n") if ":" in line)
    client.close()
    return said


def _check_returned(cluster, i):
    """It got what it missed, if it kept what it had."""
    if MEDIUM != "none":
        said = _info(cluster, i)
        assert said["copied"] == "0", f"n{i} copied all records, though others knew what it missed: {said}"


def _fill(cluster, i):
    """Said again where the member was excluded meanwhile: a machine under load stops it for longer than a lease."""
    for at in range(0, RECORDS, 20):
        words = sum(([f"fill{k}", bytes([k % 251]) * RECORD_BYTES] for k in range(at, at + 20)), [])
        cluster.wait(f"n{i} takes records", lambda: _takes(cluster, i, words))


def _takes(cluster, i, words):
    client = cluster.client(i)
    try:
        return client.ask("MSET", *words) == "+OK"
    except (Closed, OSError):
        return False
    finally:
        client.close()


def _wait_all_serve(cluster):
    """A machine under load stops members for longer than a lease, too. Without a log what was answered is only in the
    memories of members: who is killed must not be the last one."""
    for i in range(NODES):
        cluster.wait_serving(i)


def _kill_random(cluster, history):
    history.generation += 1
    victim = random.randrange(NODES)
    time.sleep(random.uniform(0.05, 0.3))
    _wait_all_serve(cluster)
    cluster.kill(victim)
    time.sleep(random.uniform(0, 3 * LEASE_MS / 1000))
    cluster.start(victim)
    cluster.wait_serving(victim)
    _check_returned(cluster, victim)


def _decider(cluster, others):
    return next((i for i in others if _info(cluster, i)["decides"] == "1"), others[0])


def _kill_in_recovery(cluster, history, number):
    """Whether the second victim died while the first was being brought up to date."""
    history.generation += 1
    returning = random.randrange(NODES)
    others = [i for i in range(NODES) if i != returning]
    _wait_all_serve(cluster)
    cluster.kill(returning)
    excluded = {i: _info(cluster, i)["excluded"] for i in others}
    time.sleep(2 * LEASE_MS / 1000)  # until it is excluded, most often
    _fill(cluster, others[0])
    victim = (returning, others[0], _decider(cluster, others))[number % 3]
    before = len(cluster.log(returning))
    cluster.start(returning)
    mine = f"n{returning} is "
    cluster.wait(f"n{returning} is admitted", lambda: _said(cluster, returning, [mine + "a shadow", mine + "a member"], before))
    cluster.kill(victim)
    hit = not _said(cluster, returning, [mine + "a member"], before)
    cluster.start(victim)
    for i in (returning, victim):
        cluster.wait_serving(i)
    # Where the third was excluded too, as when it stood still, nobody may know what they missed.
    if all(_info(cluster, i)["excluded"] == excluded[i] for i in others if i != victim):
        for i in (returning, victim):
            _check_returned(cluster, i)
    return hit


def _is_excluded(cluster, victim):
    other = (victim + 1) % NODES
    return cluster.status(other)["members"][victim]["role"] == "absent"


def _stop(cluster, history):
    history.generation += 1
    victim = random.randrange(NODES)
    _wait_all_serve(cluster)
    before = _info(cluster, victim)
    cluster.signal(victim, signal.SIGSTOP)
    try:
        cluster.wait(f"n{victim} is excluded", lambda: _is_excluded(cluster, victim))
    finally:
        cluster.signal(victim, signal.SIGCONT)
    cluster.wait(f"n{victim} hears of it and returns", lambda: int(_info(cluster, victim)["excluded"]) > int(before["excluded"]))
    cluster.wait_serving(victim)
    after = _info(cluster, victim)
    assert int(after["copied"]) == int(before["copied"]), f"n{victim} copied all records, though others knew what it missed"


def _faults(cluster, history, counts):
    for _ in range(KILLS):
        _kill_random(cluster, history)
        counts["kills"] += 1
    for number in range(ATTEMPTS * RECOVERIES):
        counts["tried"] += 1
        counts["recoveries"] += _kill_in_recovery(cluster, history, number)
        if counts["recoveries"] == RECOVERIES:
            break
    for _ in range(STOPS):
        _stop(cluster, history)
        counts["stops"] += 1


def no_answer_is_lost_or_stale_while_members_are_killed_and_stopped(directory):
    seed = random.randrange(2**32)
    random.seed(seed)
    program.say(f"# seed {seed}")
    history, counts = kv_history.History(), {"kills": 0, "recoveries": 0, "tried": 0, "stops": 0}
    settings = {} if MEDIUM == "none" else {"log": True, "medium": MEDIUM}
    with Cluster(directory, KIND, NODES, lease_ms=LEASE_MS, **settings) as cluster:
        _fill(cluster, 0)
        try:
            kv_history.run(cluster, NODES, CLIENTS, history, lambda: _faults(cluster, history, counts), rest_s=0.3)
        finally:
            program.say(f"# {NODES} members on {KIND}, log: {MEDIUM}: {counts}")
        cluster.wait("equal members", lambda: len(set(cluster.digests())) == 1)
    good, words = kv_history.judge(JUDGE, history.lines())
    program.say(f"# {words}; {history.done} done, {history.refused} refused")
    assert good, words
    assert history.done > 100 * (KILLS + RECOVERIES + STOPS)
    assert history.unknown > 0 and counts["recoveries"] == RECOVERIES


def the_judge_finds_what_is_wrong(directory):
    right = "r set done 1 0 10 20\nr get done 0 1 30 40\nr take done 2 1 50 60\nr take done 3 0 70 80\nr get done 0 0 90 99\nc add done 5 0 10 20\nc read done 0 5 30 40\n"
    assert kv_history.judge(JUDGE, right)[0]
    for wrong in ("r set done 1 0 10 20\nr get done 0 0 30 40\n",     # an answered write is lost
                  "r set refused 1 0 10 20\nr get done 0 1 30 40\n",  # a refused one is there
                  "r set done 1 0 10 20\nr set done 2 0 30 40\nr get done 0 2 50 60\nr get done 0 1 70 80\n",
                  "r set done 1 0 10 20\nr take done 2 1 30 40\nr get done 0 1 50 60\n",  # what was deleted is back
                  "r set done 1 0 10 20\nr take done 2 1 30 40\nr set done 3 0 50 60\nr get done 0 0 70 80\n",
                  "c add done 5 0 10 20\nc add done 7 0 30 40\n",     # two additions to one value
                  "c add done 5 0 10 20\nc read done 0 0 30 40\n"):
        assert not kv_history.judge(JUDGE, wrong)[0], wrong


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
