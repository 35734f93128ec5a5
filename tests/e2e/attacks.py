"""Clients that do what no client should, each beside a well-behaved one, for the tests of every service:
X_attacks.py PROGRAM [SECONDS]. With SECONDS each attack lasts that long, and the well-behaved client must be served within
one of them; without, it must be served."""
import contextlib
import os
import pathlib
import sys
import threading
import time

import program

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0
LIMIT_S = 60
WORST_S = 1


def _waited_s(pids):
    """How long these processes, which could compute, have waited for a core."""
    waited = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            waited += int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return waited / 1e9


class _Visitor(threading.Thread):
    """The well-behaved client: round_of(n) has the requests of a round, functions that ask and look at the answer."""

    def __init__(self, round_of, processes):
        super().__init__(daemon=True)
        self.round_of, self.begun = round_of, time.monotonic()
        self.pids = [process.pid for process in processes]
        self.pids += [child for pid in self.pids for child in program.children(pid)]
        self.worst, self.worst_at, self.waited, self.rounds, self.wrong = 0, 0, 0, 0, None
        self.ended = threading.Event()

    def run(self):
        pids = self.pids + [f"{os.getpid()}/task/{threading.get_native_id()}"]
        try:
            while not self.ended.is_set():
                for ask in self.round_of(self.rounds):
                    waited, begun = _waited_s(pids), time.monotonic()
                    ask()
                    took = time.monotonic() - begun
                    if took > self.worst:
                        self.worst, self.worst_at, self.waited = took, begun - self.begun, _waited_s(pids) - waited
                self.rounds += 1
                self.ended.wait(0.01)
        except Exception as error:  # whatever it is, the client was not served
            self.wrong = error


@contextlib.contextmanager
def visited(round_of, processes):
    """While this lasts, and for a further round, a well-behaved client is served, and none of the processes ends."""
    visitor = _Visitor(round_of, processes)
    visitor.start()
    try:
        yield
        rounds, end = visitor.rounds, time.monotonic() + LIMIT_S
        while visitor.rounds <= rounds + 1 and visitor.wrong is None:
            assert time.monotonic() < end, "the visitor is not served"
            time.sleep(0.01)
    finally:
        visitor.ended.set()
        visitor.join()
    print(f"# {visitor.rounds} rounds of the visitor, the longest reply took {visitor.worst * 1000:.0f} ms "
          f"after {visitor.worst_at:.1f} s; its processes waited {visitor.waited * 1000:.0f} ms for a core meanwhile",
          flush=True)
    if visitor.wrong is not None:
        raise visitor.wrong
    assert all(process.poll() is None for process in processes), "a member has ended"
    assert SECONDS == 0 or visitor.worst < WORST_S, visitor.worst


def rounds():
    """One round, or as many as begin within the time."""
    until = time.monotonic() + SECONDS
    yield
    while time.monotonic() < until:
        yield
