"""Clients that do what no client should, each beside a well-behaved one, for the tests of every service:
X_attacks.py PROGRAM [SECONDS]. With SECONDS each attack lasts that long, and the well-behaved client must be served within
one of them; without, it must be served."""
import contextlib
import sys
import threading
import time

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0
LIMIT_S = 60
WORST_S = 1


class _Visitor(threading.Thread):
    """The well-behaved client: round_of(n) has the requests of a round, functions that ask and look at the answer."""

    def __init__(self, round_of):
        super().__init__(daemon=True)
        self.round_of, self.begun = round_of, time.monotonic()
        self.worst, self.worst_at, self.rounds, self.wrong, self.ended = 0, 0, 0, None, threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                for ask in self.round_of(self.rounds):
                    begun = time.monotonic()
                    ask()
                    took = time.monotonic() - begun
                    if took > self.worst:
                        self.worst, self.worst_at = took, begun - self.begun
                self.rounds += 1
                self.ended.wait(0.01)
        except Exception as error:  # whatever it is, the client was not served
            self.wrong = error


@contextlib.contextmanager
def visited(round_of, processes):
    """While this lasts, and for a further round, a well-behaved client is served, and none of the processes ends."""
    visitor = _Visitor(round_of)
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
          f"(begun after {visitor.worst_at:.1f} s)", flush=True)
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
