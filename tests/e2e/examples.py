"""The programs of examples/, two processes each, with a rail cut in the middle: examples.py FIRST COUNTER EXAMPLES KV_STORE ORDER_BOOK."""
import atexit
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import program

FIRST, COUNTER, EXAMPLES, KV_STORE, ORDER_BOOK = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), *sys.argv[4:6]


def _configuration(directory, name, copy=""):
    """The example's own file, on a fabric and addresses of this test's."""
    pid = os.getpid()
    config = json.loads((EXAMPLES / f"{name}.json").read_text())
    config["name"] += copy
    config["fabric"] += f"-{pid}"
    for rail in config["rails"]:
        host = int(rail["control"].split(":")[0].split(".")[3]) + 8 * len(copy)
        rail["control"] = f"127.{96 + (pid >> 8) % 64}.{pid & 0xff}.{host}:18515"
    path = pathlib.Path(directory) / f"{name}{copy}.json"
    path.write_text(json.dumps(config))
    return str(path), config["rails"][0]["control"], config["fabric"]


def _start(*command):
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL)
    atexit.register(process.kill)
    return process


def _end(process):
    """What it printed; its status must be 0."""
    out, err = process.communicate(timeout=program.RUN_LIMIT_S)
    assert process.returncode == 0, f"{process.args}: status {process.returncode}\n{out}\n{err}"
    return out


def _remove(fabric):
    subprocess.run(["rm", "-r", f"/dev/shm/holdfast-{os.getuid()}-{fabric}"], check=True)


def the_first_program_is_short(directory):
    assert len((EXAMPLES / "first.c").read_text().splitlines()) <= 80


def the_first_program_writes_through_a_cut(directory):
    config, address, fabric = _configuration(directory, "reader")
    reader = _start(FIRST, config)
    writer = _start(FIRST, _configuration(directory, "writer")[0], address)
    said = _end(writer)
    assert said == "wrote 2000 numbers, the last over rail r1\n", said
    said = _end(reader)
    assert said == "the writer has left, the number is 2000\n", said
    _remove(fabric)


def fetch_and_adds_of_two_clients_execute_once_through_cuts(directory):
    config, address, fabric = _configuration(directory, "server")
    server = _start(COUNTER, config, "2")
    clients = [_start(COUNTER, _configuration(directory, "client", copy)[0], address, "5000") for copy in ("", "2")]
    for client in clients:
        said = _end(client)
        assert re.match(r"added 5000 through [1-9]\d* failover", said), said
    said = _end(server)
    assert said == "the counter is 10000 after 2 clients\n", said
    _remove(fabric)


def an_example_says_what_is_wrong_with_its_configuration(directory):
    path = pathlib.Path(directory) / "bad.json"
    path.write_text('{\n"name": "a",\n"rails": 3\n}\n')
    done = subprocess.run([FIRST, str(path)], text=True, capture_output=True, timeout=program.RUN_LIMIT_S)
    assert done.returncode == 1 and "bad.json: line 3: rails" in done.stderr, done.stderr


def _members(program_path, directory, fabric, addresses):
    """Starts the members; a function that starts one again, and one that says who leads."""
    members = [None] * len(addresses)

    def start(i):
        log = open(pathlib.Path(directory) / f"{i}.log", "w")
        members[i] = subprocess.Popen([program_path, "member", str(i), fabric, *addresses], stdout=log, stderr=log)
        atexit.register(members[i].kill)

    def said(i, *words):
        return [line for line in (pathlib.Path(directory) / f"{i}.log").read_text().splitlines() if line.startswith(words)]

    def find(what, fits):
        end = time.monotonic() + program.RUN_LIMIT_S
        while time.monotonic() < end:
            for i in range(len(addresses)):
                if members[i].poll() is None and fits(i):
                    return i
            time.sleep(0.02)
        raise AssertionError(f"no member {what}")

    def replace_leader():
        """Kills it. A process that takes its place counts once that is decided: before, one more loss is one too many."""
        killed = find("leads", lambda i: said(i, "leads", "follows")[-1:] == ["leads"])
        others = {i: len(said(i, "members")) for i in range(len(addresses)) if i != killed}
        members[killed].kill()
        members[killed].wait()
        start(killed)
        find("counts the new process", lambda i: i in others and len(said(i, "members")) > others[i])

    for i in range(len(addresses)):
        start(i)
    return members, replace_leader


def a_replicated_store_counts_each_addition_once_while_leaders_are_killed(directory):
    pid = os.getpid()
    net, fabric = f"127.{96 + (pid >> 8) % 64}.{pid & 0xff}", f"kv-store-{pid}"
    addresses = [f"{net}.{101 + i}:18515" for i in range(3)]
    members, replace_leader = _members(KV_STORE, directory, fabric, addresses)

    def client(own, *words):
        return [KV_STORE, "client", fabric, f"{net}.{own}:18515", *addresses, "--", *words]

    assert _end(_start(*client(111, "set", "greeting", "hello"))) == "hello\n"
    assert _end(_start(*client(113, "add", "measured", "0"))) == "0\n"
    counted, kills, requests = 0, 0, 20000
    while kills < 2:
        counting = _start(*client(112, "measure", str(requests)))  # fails when a count is lost, or counted twice
        while int(_end(_start(*client(113, "get", "measured")))) < counted + 200:
            pass
        over = counting.poll() is not None
        if not over:
            replace_leader()
            kills += 1
        assert _end(counting).startswith(f"{requests} requests, median ")
        counted += requests + 1000
        assert int(_end(_start(*client(113, "get", "measured")))) == counted
        requests *= 4 if over else 1  # a kill is to come while it counts
    assert _end(_start(*client(111, "get", "greeting"))) == "hello\n"
    lacking = subprocess.run(client(111, "get", "none"), text=True, capture_output=True, timeout=60, check=False)
    assert lacking.returncode == 1 and lacking.stdout == "there is no such key\n", lacking
    assert subprocess.run([KV_STORE], capture_output=True, check=False).returncode == 2
    for member in members:
        member.kill()
        member.wait()
    _remove(fabric)


class _Book:
    """What an order book is: price, then time. Written without a look at the example's."""

    def __init__(self):
        self.resting, self.last, self.when = [], 0, 0

    def _enter(self, number, side, price, quantity):
        executed, fills = 0, []
        while quantity > 0:
            others = [order for order in self.resting if order["side"] != side and
                      (order["price"] <= price if side == "buy" else order["price"] >= price)]
            if not others:
                break
            best = min(others, key=lambda order: (order["price"] if side == "buy" else -order["price"], order["when"]))
            both = min(best["quantity"], quantity)
            fills.append(f" {both} at {best['price']} with {best['number']}")
            executed, quantity, best["quantity"] = executed + both, quantity - both, best["quantity"] - both
            if best["quantity"] == 0:
                self.resting.remove(best)
        if quantity > 0:
            self.when += 1
            self.resting.append({"side": side, "price": price, "quantity": quantity, "number": number, "when": self.when})
        return f"order {number}: executed {executed}, rests {quantity};" + "".join(fills)

    def say(self, line):
        word, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if word in ("buy", "sell"):
            self.last += 1
            return self._enter(self.last, word, *numbers)
        found = [order for order in self.resting if order["number"] == numbers[0]]
        if not found:
            return "no such order"
        if word == "cancel":
            self.resting.remove(found[0])
            return f"order {numbers[0]}: executed 0, rests 0;"
        if numbers[1] == found[0]["price"] and numbers[2] <= found[0]["quantity"]:
            found[0]["quantity"] = numbers[2]
            return f"order {numbers[0]}: executed 0, rests {numbers[2]};"
        self.resting.remove(found[0])
        return self._enter(numbers[0], found[0]["side"], *numbers[1:])


def a_replicated_order_book_executes_by_price_and_time_while_leaders_are_killed(directory):
    pid, seed = os.getpid(), random.randrange(2**32)
    net, fabric = f"127.{96 + (pid >> 8) % 64}.{pid & 0xff}", f"order-book-{pid}"
    addresses, draw, book = [f"{net}.{151 + i}:18515" for i in range(3)], random.Random(seed), _Book()
    members, replace_leader = _members(ORDER_BOOK, directory, fabric, addresses)
    client = subprocess.Popen([ORDER_BOOK, "client", fabric, f"{net}.161:18515", *addresses], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    atexit.register(client.kill)
    for i in range(1500):
        line = draw.choice(["buy", "sell"]) + f" {draw.randint(90, 110)} {draw.randint(1, 20)}"
        if draw.random() < 0.3:
            number = draw.randint(1, max(1, book.last))
            line = draw.choice([f"cancel {number}", f"modify {number} {draw.randint(90, 110)} {draw.randint(1, 20)}"])
        client.stdin.write(line + "\n")
        client.stdin.flush()
        if i in (500, 1000):
            replace_leader()
        heard, expected = client.stdout.readline().strip(), book.say(line)
        assert heard == expected, f"seed {seed}, line {i}: {line}: {heard!r} instead of {expected!r}"
    for line, words in [("buy 1", "say buy"), ("buy 70000 1", "out of range"), ("sell 5 0", "out of range")]:
        client.stdin.write(line + "\n")
        client.stdin.flush()
        assert words in client.stdout.readline()
    client.stdin.close()
    assert client.wait(60) == 0
    assert subprocess.run([ORDER_BOOK], capture_output=True, check=False).returncode == 2
    for member in members:
        member.kill()
        member.wait()
    _remove(fabric)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
