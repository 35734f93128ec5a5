"""Programs of Debian that were written for libibverbs, unmodified: verbs_programs.py HOLDFAST DEVICE.

Two processes a test, a server and a client, over two rails of one device on this host.
"""
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
UNSTEADY_RUNS = 5
PINGPONGS = {"shm": "60000", "soft": "8000"}  # a second or more
PINGPONGS_BY_EVENTS = {"shm": "8000", "soft": "3000"}  # three quarters of a second or more
COUNTS_AFTER_S = 1


class _Unsteady(Exception):
    """Others were using the cores, and the run shows nothing."""


def _need(name):
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


def _until(what, fine, *processes):
    """Waits for a condition that the processes bring about."""
    end = time.monotonic() + START_LIMIT_S
    while not fine():
        for process in processes:
            assert process.poll() is None, f"ended while {what}:\n{process.communicate()[0]}"
        assert time.monotonic() < end, f"still {what} after {START_LIMIT_S} s"
        time.sleep(0.01)


class _Pair:
    """A server and a client of one program; `node`s are "server" and "client" of a fabric of their own."""

    def __init__(self, directory, *command, configure=None):
        _need(command[0])
        self.configure = configure
        self.directory, self.fabric = directory, f"test-verbs-{DEVICE}-{os.getpid()}"
        port = _free_port()
        command = [*command, "-p", str(port)]
        self.server = self._start("server", command)
        _until("not listening", lambda: _listens(port), self.server)
        self.client = self._start("client", [*command, "127.0.0.1"])

    def _start(self, node, command):
        environment = dict(program.environment(self.directory), HOLDFAST_LOG="debug")
        options = ["--device", DEVICE, "--fabric", self.fabric, "--node", node]
        if self.configure:
            path = pathlib.Path(self.directory) / f"{node}.json"
            path.write_text(json.dumps(self.configure(node, self.fabric)))
            options = ["--config", str(path)]
        with open(self._log(node), "w", encoding="utf-8") as log:
            return subprocess.Popen([program.HOLDFAST, "run", *options, "--", *command], cwd=self.directory,
                                    env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=log)

    def _log(self, node):
        return pathlib.Path(self.directory) / f"{node}.log"

    def until_traffic(self):
        _until("not connected", lambda: self.rail() is not None, self.server, self.client)

    def until_timed(self):
        """A time at which the client had not begun to measure, which it has now: perftest with -D catches SIGALRM
        from just before its first operation on."""
        status = pathlib.Path(f"/proc/{self.client.pid}/status")
        before = time.monotonic()

        def measures():
            nonlocal before
            now = time.monotonic()
            if int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16) >> (signal.SIGALRM - 1) & 1:
                return True
            before = now
            return False

        _until("not measuring", measures, self.server, self.client)
        return before

    def rail(self):
        """The rail that the client's queue pair went to last; None before it is connected."""
        return ([None] + re.findall(r"vqp \d+: on rail (\w+)", self._log("client").read_text()))[-1]

    def link(self, way, link):
        program.run(self.directory, "link", way, link, "--fabric", self.fabric, check=0)

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
            raise _Unsteady("perftest compares two clocks first, and then gave no report")
        for name, (status, out, err) in said.items():
            assert status == 0, f"the {name} left with {status}:\n" + "\n".join(
                f"{who}: {status}\n{out[-2000:]}\n{err[-2000:]}" for who, (status, out, err) in said.items())
        return said["client"][1] + said["client"][2] + said["server"][1] + said["server"][2]


def _cut(pair, cuts):
    """Cuts and restores a rail of the client so often while both run."""
    for _ in range(cuts):
        cut = pair.rail()
        pair.link("down", f"client/{cut}")
        _until("on the rail that was cut", lambda cut=cut: pair.rail() != cut, pair.server, pair.client)
        pair.link("up", f"client/{cut}")
        for process in (pair.server, pair.client):
            assert process.poll() is None, f"ended before the rail was restored:\n{process.communicate()[0]}"


def _run(pair, cuts):
    """What both printed; a rail of the client was cut and restored so often in the middle."""
    if cuts > 0:
        pair.until_traffic()
    _cut(pair, cuts)
    return pair.finish()


def _run_counted_after(pair, cuts):
    """The same; perftest counted only operations that it began after the last rail was restored."""
    before = pair.until_timed()
    _cut(pair, cuts)
    cut_s = time.monotonic() - before
    said = pair.finish()
    if cut_s > COUNTS_AFTER_S:
        raise _Unsteady(f"{cuts} cuts took {cut_s:.1f} s")
    return said


def _runs(directory, *command, cuts=0, words=(), run=_run):
    for _ in range(UNSTEADY_RUNS):
        try:
            said = run(_Pair(directory, *command), cuts)
            break
        except _Unsteady as unsteady:
            why = unsteady
    else:
        raise AssertionError(f"{command[0]} showed nothing in {UNSTEADY_RUNS} runs: {why}")
    for word in words:
        assert word in said, f"'{word}' is not in:\n{said}"
    return said


def the_device_describes_itself(directory):
    _need("ibv_devinfo")
    done = program.run(directory, "run", "--device", DEVICE, "--fabric", f"test-verbs-info-{DEVICE}-{os.getpid()}",
                       "--", "ibv_devinfo", "-v", check=0)
    for words in ("holdfast0", "PORT_ACTIVE", "Ethernet", "RoCE v2", "::ffff:127.160."):
        assert words in done.stdout, done.stdout
    for line in (r"vendor_id:\s*0xffffff", r"vendor_part_id:\s*0"):  # those of no NIC
        assert re.search(line + "$", done.stdout, re.MULTILINE), done.stdout


def pingpong_runs_and_its_data_is_right(directory):
    _runs(directory, "ibv_rc_pingpong", "-c", words=["1000 iters"])


def pingpong_runs_by_gid(directory):
    _runs(directory, "ibv_rc_pingpong", "-g", "0", words=["1000 iters"])


def pingpong_waits_for_events(directory):
    _runs(directory, "ibv_rc_pingpong", "-e", "-g", "0", words=["1000 iters"])


def _three_rails(node, fabric):
    """Rails of the device on addresses of their own, and no network beside them."""
    pid = os.getpid()
    host = f"{pid >> 8 & 255}.{pid & 255}"
    rails = []
    for i in range(3):
        address = f"127.{(100, 110)[node == 'server'] + i}.{host}"
        rails.append({"name": f"x{i}", "kind": DEVICE, "address": address, "control": f"{address}:18700"})
    return {"name": node, "fabric": fabric, "rails": rails, "policy": "varuna"}


def two_configured_nodes_find_each_other(directory):
    said = _Pair(directory, "ibv_rc_pingpong", "-c", "-g", "0", configure=_three_rails).finish()
    assert "GID ::ffff:127.100." in said and "1000 iters" in said, said


def ib_write_bw_runs(directory):
    _runs(directory, "ib_write_bw", words=["BW average"])


def ib_write_lat_runs(directory):
    _runs(directory, "ib_write_lat", "-n", "200", words=["t_avg"])


def ib_read_bw_runs(directory):
    _runs(directory, "ib_read_bw", words=["BW average"])


def ib_read_lat_runs(directory):
    _runs(directory, "ib_read_lat", words=["t_avg"])


def ib_send_bw_runs(directory):
    _runs(directory, "ib_send_bw", words=["BW average"])


def ib_send_lat_runs(directory):
    _runs(directory, "ib_send_lat", words=["t_avg"])


def ib_atomic_bw_runs(directory):
    _runs(directory, "ib_atomic_bw", words=["BW average"])


def ib_atomic_lat_runs(directory):
    _runs(directory, "ib_atomic_lat", words=["t_avg"])


def ib_send_lat_waits_for_events(directory):
    _runs(directory, "ib_send_lat", "-e", words=["t_avg"])


def ib_read_lat_waits_for_events(directory):
    _runs(directory, "ib_read_lat", "-e", words=["t_avg"])


def ib_atomic_lat_waits_for_events(directory):
    _runs(directory, "ib_atomic_lat", "-e", words=["t_avg"])


# ---- with a rail cut and restored in the middle ----


def pingpong_goes_on_through_cuts(directory):
    _runs(directory, "ibv_rc_pingpong", "-c", "-s", "65536", "-n", PINGPONGS[DEVICE], cuts=3,
          words=[f"{PINGPONGS[DEVICE]} iters"])


def ib_write_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_write_bw", "-D", "5", cuts=3, words=["BW average"])


def ib_read_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_read_bw", "-D", "3", cuts=1, words=["BW average"])


def ib_send_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_send_bw", "-D", "3", cuts=1, words=["BW average"])


def ib_atomic_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_atomic_bw", "-D", "5", cuts=3, words=["BW average"])


def pingpong_by_events_goes_on_through_cuts(directory):
    _runs(directory, "ibv_rc_pingpong", "-e", "-c", "-s", "65536", "-n", PINGPONGS_BY_EVENTS[DEVICE], cuts=2,
          words=[f"{PINGPONGS_BY_EVENTS[DEVICE]} iters"])


def _latency_goes_on_through_cuts(directory, name):
    """Two of these programs end in time although nothing arrives any more, so what they counted is looked at."""
    said = _runs(directory, name, "-D", str(3 * COUNTS_AFTER_S), "-f", str(COUNTS_AFTER_S), cuts=2,
                 run=_run_counted_after)
    counted = re.search(r"t_avg.*\n +\d+ +(\d+)", said)
    assert counted and int(counted[1]) > 0, said


def ib_write_lat_goes_on_through_cuts(directory):
    _latency_goes_on_through_cuts(directory, "ib_write_lat")


def ib_read_lat_goes_on_through_cuts(directory):
    _latency_goes_on_through_cuts(directory, "ib_read_lat")


def ib_send_lat_goes_on_through_cuts(directory):
    _latency_goes_on_through_cuts(directory, "ib_send_lat")


def ib_atomic_lat_goes_on_through_cuts(directory):
    _latency_goes_on_through_cuts(directory, "ib_atomic_lat")


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
