"""Clients of a store that write down what they see, and the judge of it: tests/e2e/judge.c, over the simulator's checkers.

Keys belong to a generation, and the faults that a test injects begin new ones: so a key has few operations, but what an
old one holds is asked for until the end. All values and additions are different."""
import asyncio
import random
import subprocess
import time

REGISTERS, DELETED, COUNTERS = 8, 4, 4  # of a generation; deleted: registers too
DEPTH = 3                   # requests that a client sends at a time
ANSWER_S = 40
REST_S = 0.005              # of a client that was refused
REFUSALS = (b"-LOADING", b"-CLUSTERDOWN", b"-NOREPLICAS", b"-TRYAGAIN")


class History:
    def __init__(self):
        self.operations = {}  # of each key: (kind, outcome, value, found, from, to)
        self.generation = self.values = 0
        self.done = self.refused = self.unknown = 0

    def draw(self):
        """A key, a kind, and a value or an addition."""
        generation = self.generation if random.random() < 0.9 else random.randint(0, self.generation)
        self.values += 1
        if random.random() < 0.35:
            key = f"c{generation}-{random.randrange(COUNTERS)}"
            return key, "add" if random.random() < 0.6 else "read", random.randrange(1, 1 << 40)
        if random.random() < 0.2:
            kind = random.choices(("get", "set", "swap", "take"), (4, 3, 1, 2))[0]
            return f"d{generation}-{random.randrange(DELETED)}", kind, self.values
        return f"r{generation}-{random.randrange(REGISTERS)}", random.choices(("get", "set", "swap"), (5, 4, 1))[0], self.values

    def note(self, key, kind, outcome, value, found, begin, end):
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.operations.setdefault(key, []).append((kind, outcome, value, found, begin, end))

    def lines(self):
        return "".join(f"{key} {' '.join(map(str, operation))}\n"
                       for key, operations in self.operations.items() for operation in operations)


def judge(program, text):
    """(whether the history is linearizable, what the judge says)"""
    done = subprocess.run([program], input=text, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done
    return done.returncode == 0, done.stdout.strip()


def request(key, kind, value):
    words = {"get": ["GET", key], "read": ["GET", key], "set": ["SET", key, value], "swap": ["SET", key, value, "GET"],
             "take": ["GETDEL", key], "add": ["INCRBY", key, value]}[kind]
    words = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


async def _reply(reader):
    """A line, or a bulk string's text; b"" at the end of the connection."""
    try:
        line = await asyncio.wait_for(reader.readline(), ANSWER_S)
        if line.startswith(b"$") and line != b"$-1\r\n":
            line = b":" + (await asyncio.wait_for(reader.readexactly(int(line[1:]) + 2), ANSWER_S))
    except (ConnectionError, asyncio.IncompleteReadError):
        line = b""
    return line if line.endswith(b"\r\n") else b""


def _found(kind, value, line):
    """The value that the operation found, of one that took effect."""
    if kind == "set":
        assert line == b"+OK\r\n", line
        return 0
    assert line[:1] in b":$", (kind, line)
    number = 0 if line[:1] == b"$" else int(line[1:])
    return number - value if kind == "add" else number


async def exchange(reader, writer, history):
    """One pipeline; whether the connection goes on."""
    batch = [history.draw() for _ in range(random.randint(1, DEPTH))]
    begin = time.monotonic_ns()
    writer.write(b"".join(request(*operation) for operation in batch))
    rests = False
    for at, (key, kind, value) in enumerate(batch):
        line = await _reply(reader)
        end = time.monotonic_ns()
        if not line:
            for other in batch[at:]:
                history.note(other[0], other[1], "unknown", other[2], 0, begin, end)
            return False
        refused = line.startswith(REFUSALS)
        rests |= refused
        history.note(key, kind, "refused" if refused else "done", value,
                     0 if refused else _found(kind, value, line), begin, end)
    if rests:
        await asyncio.sleep(REST_S)
    return True


async def client(address, history, stop):
    while not stop.is_set():
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            await asyncio.sleep(REST_S)
            continue
        while not stop.is_set() and await exchange(reader, writer, history):
            pass
        writer.close()


async def _run(cluster, nodes, clients, history, faults, rest_s):
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    tasks = [asyncio.create_task(client(cluster.address(i), history, stop)) for i in range(nodes) for _ in range(clients)]
    try:
        await loop.run_in_executor(None, faults)
        await asyncio.sleep(rest_s)
    finally:
        stop.set()
        await asyncio.gather(*tasks)
    for i in range(nodes):
        await read_all(cluster.address(i), history)


def run(cluster, nodes, clients, history, faults, rest_s=0):
    """faults() under that many clients at each member, and rest_s longer; then every key is read at each."""
    asyncio.run(_run(cluster, nodes, clients, history, faults, rest_s))


async def read_all(address, history):
    """Every key that anybody used, at one member, in the end."""
    reader, writer = await asyncio.open_connection(*address)
    for key in list(history.operations):
        kind, line = ("read" if key[0] == "c" else "get"), REFUSALS[0]
        limit = time.monotonic() + ANSWER_S
        while line.startswith(REFUSALS) and time.monotonic() < limit:  # a member that stood still is away for a moment
            begin = time.monotonic_ns()
            writer.write(request(key, kind, 0))
            line = await _reply(reader)
        history.note(key, kind, "done", 0, _found(kind, 0, line), begin, time.monotonic_ns())
    writer.close()
