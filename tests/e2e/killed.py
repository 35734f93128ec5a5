"""A demo whose nodes or parent are killed at any moment leaves nothing that stops the next: killed.py HOLDFAST DEVICE.

The moment is drawn from SEED (printed): a number of lines that the demo has said.
"""
import contextlib
import json
import os
import random
import signal
import sys
import time

import program

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "shm"
SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
ROUNDS = 2
LAST_LINE = 9
END_LIMIT_S = program.RUN_LIMIT_S
AT_A_TIME = 3  # they wait for lines of their demos most of the time


def _start_and_wait(directory, test, turn=0):
    """A demo that has said a random number of lines; with a slow schedule, so that it is far from its end."""
    process = program.start(directory, "demo", "--seconds", "60", "--device", DEVICE, "--input",
                            program.make_input(directory))
    program.read_until(process, ["traffic on"])
    for _ in range(random.Random(f"{SEED} {test} {turn}").randrange(LAST_LINE)):
        process.stdout.readline()
    return process


def _signal(pid, number):
    """To a process of a demo that may have ended meanwhile: when one of them is killed, the others end, too."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _ends(pids):
    """Waits for processes that are not ours to wait for."""
    limit = time.monotonic() + END_LIMIT_S
    while not all(_is_gone(pid) for pid in pids):
        assert time.monotonic() < limit, f"{pids} go on without their parent"
        os.sched_yield()


def _next_run_succeeds(directory, dead_pid):
    done = program.run(directory, "demo", "--quick", "--seconds", "1", "--json", "--device", DEVICE, "--input",
                       program.make_input(directory), check=0)
    assert json.loads(done.stdout)[0]["lost"] == 0
    assert program.left_in_shm(dead_pid) == []
    assert program.left_in(directory) == []


def _kill_a_node(directory, which, turn):
    process = _start_and_wait(directory, f"node {which}", turn)
    os.kill(program.children(process.pid)[which], signal.SIGKILL)
    _, said = process.communicate(timeout=END_LIMIT_S)
    assert process.returncode == 1, said
    assert "was killed by signal 9" in said, said
    assert program.left_in_shm(process.pid) == []
    assert program.left_in(directory) == []
    _next_run_succeeds(directory, process.pid)


def receiver_killed_at_any_moment_is_told_and_leaves_nothing(directory):
    for turn in range(ROUNDS):
        _kill_a_node(directory, 0, turn)


def sender_killed_at_any_moment_is_told_and_leaves_nothing(directory):
    for turn in range(ROUNDS):
        _kill_a_node(directory, 1, turn)


def parent_killed_at_any_moment_takes_its_nodes_along(directory):
    for turn in range(ROUNDS):
        process = _start_and_wait(directory, "parent", turn)
        nodes = program.children(process.pid)
        process.kill()
        process.communicate(timeout=END_LIMIT_S)
        _ends(nodes)
        assert program.left_in(directory) == [], "its nodes tidy up after it"
        _next_run_succeeds(directory, process.pid)


def all_killed_at_once_leave_nothing_that_stops_the_next(directory):
    process = _start_and_wait(directory, "all")
    for pid in [*program.children(process.pid), process.pid]:
        _signal(pid, signal.SIGKILL)
    process.communicate(timeout=END_LIMIT_S)
    _next_run_succeeds(directory, process.pid)


def parent_killed_before_traffic_takes_its_nodes_along(directory):
    process = program.start(directory, "demo", "--device", DEVICE, "--input", program.make_input(directory))
    program.read_until(process, ["moving"])
    nodes = program.children(process.pid)
    process.kill()
    process.communicate(timeout=END_LIMIT_S)
    _ends(nodes)
    _next_run_succeeds(directory, process.pid)


def a_stopped_node_dies_with_its_parent(directory):
    process = _start_and_wait(directory, "stopped")
    nodes = program.children(process.pid)
    os.kill(nodes[0], signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=END_LIMIT_S)
    _signal(nodes[0], signal.SIGCONT)
    _ends(nodes)
    _next_run_succeeds(directory, process.pid)


def interrupt_ends_a_demo_cleanly(directory):
    process = _start_and_wait(directory, "interrupt")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=END_LIMIT_S)
    assert process.returncode == 130, said
    assert program.left_in_shm(process.pid) == []
    assert program.left_in(directory) == []


if __name__ == "__main__":
    program.say(f"# SEED={SEED}")
    sys.exit(program.main(sys.modules[__name__], AT_A_TIME))
