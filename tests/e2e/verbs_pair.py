"""Two unmodified programs of libibverbs under `holdfast run`, a server and a client, over two rails of one device."""
import atexit
import glob
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import program

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "soft"
START_LIMIT_S = 30
END_LIMIT_S = 5
DOUBLINGS = 6


def _has_alarm(process, mask):
    """Whether SIGALRM is in that mask of a process; an ended one has none."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except FileNotFoundError:
        return False
    found = re.search(rf"{mask}:\s*(\w+)", status)
    return found is not None and int(found[1], 16) >> (signal.SIGALRM - 1) & 1 == 1


_PAIRS = itertools.count()
_STARTED = []


@atexit.register
def _leave_nothing():
    """What a test that failed left behind, and the fabrics of programs that exit without closing their device."""
    for process in _STARTED:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for fabric in glob.glob(f"/dev/shm/holdfast-{os.getuid()}-test-*-{os.getpid()}*"):
        shutil.rmtree(fabric, ignore_errors=True)


class Over(AssertionError):
    """A program came to its end, and succeeded, before the test was done with it."""


class Unsteady(Exception):
    """Others were using the cores, and the run shows nothing."""


def lasting(count, run):
    """run(count), with a count that lasts until the test is done, on this machine and today."""
    for _ in range(DOUBLINGS):
        try:
            return run(count)
        except Over as over:
            why, count = over, 2 * count
    raise why


def need(name):
    program.needs_verbs_library()
    if shutil.which(name) is None:
        raise program.Skip(f"{name} is not installed (scripts/packages.txt names its package)")


def _free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _listens(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in list(lines)[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


def until(what, fine, *processes):
    """Waits for a condition that the processes bring about."""
    end = time.monotonic() + START_LIMIT_S
    while not fine():
        for process in processes:
            if process.poll() is not None:
                raise (Over if process.returncode == 0 else AssertionError)(
                    f"ended while {what}:\n{process.communicate()[0]}")
        assert time.monotonic() < end, f"still {what} after {START_LIMIT_S} s"
        time.sleep(0.01)


def _succeeds(process):
    """A fabric is gone a moment before its last process is."""
    try:
        return process.wait(timeout=END_LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        return False


class Pair:
    """A server and a client of one program; `node`s are "server" and "client" of a fabric of their own."""

    def __init__(self, directory, *command, configure=None, port_option="-p", client=("127.0.0.1",), server=(), cm=False,
                 client_command=(), client_port_option=None):
        """`client`: what the client has at the end of its command line and the server has not. `client_command`: what it
        has in the place of the program's name. `cm`: the port is one of rdma_cm. Such ports are a fabric's own, so a
        program without an option for one needs none (port_option=None)."""
        need(command[0])
        self.configure, self.period_s = configure, 0
        self.directory, self.fabric = directory, f"test-verbs-{DEVICE}-{os.getpid()}-{next(_PAIRS)}"
        port = _free_port()
        ports = [[option, str(port)] if option else [] for option in (port_option, client_port_option or port_option)]
        self.server = self._start("server", [*command, *ports[0], *server])
        until("not listening", lambda: self._listens_by_cm() if cm else _listens(port), self.server)
        self.client = self._start("client", [*(client_command or command[:1]), *command[1:], *ports[1], *client])

    def _start(self, node, command):
        environment = dict(program.environment(self.directory), HOLDFAST_LOG="debug")
        options = ["--device", DEVICE, "--fabric", self.fabric, "--node", node]
        if self.configure:
            path = pathlib.Path(self.directory) / f"{node}.json"
            path.write_text(json.dumps(self.configure(node, self.fabric)))
            options = ["--config", str(path)]
        with open(self._log(node), "w", encoding="utf-8") as log:
            process = subprocess.Popen([program.HOLDFAST, "run", *options, "--", *command], cwd=self.directory,
                                       env=environment, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=log)
        _STARTED.append(process)
        return process

    def _log(self, node):
        return pathlib.Path(self.directory) / f"{node}.log"

    def _listens_by_cm(self):
        return "-> listening" in self._log("server").read_text()

    def until_traffic(self):
        until("not connected", lambda: self.rail() is not None, self.server, self.client)

    def until_established(self):
        until("not connected", lambda: "-> established" in self._log("server").read_text(), self.server, self.client)

    def until_measuring(self):
        """perftest with -D catches SIGALRM from just before its first operation on."""
        until("not measuring", lambda: _has_alarm(self.client, "SigCgt"), self.server, self.client)

    def end_period(self):
        """perftest with -D has periods, and goes to the next at SIGALRM: with -f one that is not counted, one that is,
        and another that is not. So a test need not wait for their time, but for self.period_s."""
        time.sleep(self.period_s)
        for process in (self.client, self.server):
            if process.poll() is None and _has_alarm(process, "SigCgt"):
                process.send_signal(signal.SIGALRM)
                until("not on to the next period",
                      lambda process=process: process.poll() is not None or not _has_alarm(process, "ShdPnd"))

    def rail(self):
        """The rail that the client's queue pair went to last; None before it is connected."""
        return ([None] + re.findall(r"vqp \d+: traffic is on rail (\w+)", self._log("client").read_text()))[-1]

    def link(self, way, link):
        try:
            program.run(self.directory, "link", way, link, "--fabric", self.fabric, check=0)
        except AssertionError as failure:
            if all(_succeeds(process) for process in (self.client, self.server)):
                raise Over(f"ended before {link} was {way}") from failure
            raise

    def cut(self, cuts):
        """Cuts and restores a rail of the client so often while both run."""
        for _ in range(cuts):
            cut = self.rail()
            self.link("down", f"client/{cut}")
            until("on the rail that was cut", lambda cut=cut: self.rail() != cut, self.server, self.client)
            self.link("up", f"client/{cut}")

    def client_says(self):
        """What the client printed, when it succeeded; the server goes on by itself, and is ended."""
        try:
            out = self.client.communicate(timeout=program.RUN_LIMIT_S)[0]
        finally:
            self.client.kill()
            os.killpg(self.server.pid, signal.SIGKILL)  # with the processes that it made for its clients
            self.server.communicate()
        err = self._log("client").read_text() + self._log("server").read_text()
        assert self.client.returncode == 0, f"the client left with {self.client.returncode}:\n{out[-2000:]}\n{err[-2000:]}"
        return out

    def finish(self):
        """What both printed on either stream, when both succeeded."""
        said = {}
        for name, process in (("client", self.client), ("server", self.server)):
            try:
                out = process.communicate(timeout=program.RUN_LIMIT_S)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                out = process.communicate()[0] + f"\n{name}: killed after {program.RUN_LIMIT_S} s"
            said[name] = (process.returncode, out, self._log(name).read_text())
        if any("no remote atomics" in err for _, _, err in said.values()):
            raise program.Skip(f"{DEVICE} cannot reach the program's memory by remote atomics")
        if any("Correlation coefficient" in err for _, _, err in said.values()):
            raise Unsteady("perftest compares two clocks first, and then gave no report")
        for name, (status, out, err) in said.items():
            assert status == 0, f"the {name} left with {status}:\n" + "\n".join(
                f"{who}: {status}\n{out[-2000:]}\n{err[-2000:]}" for who, (status, out, err) in said.items())
        return said["client"][1] + said["client"][2] + said["server"][1] + said["server"][2]
