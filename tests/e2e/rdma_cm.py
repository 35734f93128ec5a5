"""Programs of librdmacm and libfabric, Debian's and unmodified: rdma_cm.py HOLDFAST DEVICE.

Two processes a test, a server and a client. Where a program says whether its data were right, it is asked to.
"""
import filecmp
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import program
from verbs_pair import DEVICE, Pair, lasting, need

PINGS = {"shm": 20000, "soft": 3000}  # some seconds on a slow machine
CUTS = 5
FILE_BYTES = 5_000_001


def _runs(directory, *command, words=(), **more):
    said = Pair(directory, *command, cm=True, **more).finish()
    for word in words:
        assert word in said, f"'{word}' is not in:\n{said}"
    return said


def _goes_on(pair):
    pair.until_established()
    pair.until_traffic()
    pair.cut(CUTS)
    pair.finish()


def _rping(directory, count, *more):
    return Pair(directory, "rping", "-V", "-C", str(count), "-a", "127.0.0.1", *more, cm=True, server=["-s"], client=["-c"])


def rping_validates_its_data(directory):
    _rping(directory, 200, "-v").finish()


def rping_makes_its_queue_pair_itself(directory):
    _rping(directory, 200, "-q").finish()


def rping_runs_over_ipv6(directory):
    said = Pair(directory, "rping", "-V", "-v", "-C", "50", "-a", "::1", cm=True, server=["-s"], client=["-c"]).finish()
    assert "rdma-ping-49" in said, said


def rping_goes_on_while_rails_are_cut(directory):
    lasting(PINGS[DEVICE], lambda count: _goes_on(_rping(directory, count, "-S", "4096")))


def a_client_that_is_killed_disconnects(directory):
    pair = _rping(directory, 10**9)
    pair.until_established()
    os.killpg(pair.client.pid, signal.SIGKILL)
    out = pair.server.communicate(timeout=program.RUN_LIMIT_S)[0]
    pair.client.communicate()
    said = out + (pathlib.Path(directory) / "server.log").read_text()
    assert "server DISCONNECT EVENT" in said and pair.server.returncode == 0, said


def without_a_listener_a_client_is_rejected(directory):
    need("rping")
    done = program.run(directory, "run", "--device", DEVICE, "--fabric", f"test-cm-{DEVICE}-{os.getpid()}", "--", "rping", "-c",
                       "-a", "127.0.0.1", "-p", "7171", "-C", "1")
    assert "RDMA_CM_EVENT_REJECTED, error 8" in done.stdout + done.stderr, done.stdout + done.stderr


def ucmatose_makes_connections(directory):
    _runs(directory, "ucmatose", "-c", "20", "-C", "5", client=["-s", "127.0.0.1"], words=["return status 0"])


def ucmatose_migrates_its_ids(directory):
    _runs(directory, "ucmatose", "-c", "5", "-m", client=["-s", "127.0.0.1"], words=["return status 0"])


def cmtime_makes_many_connections_at_once(directory):
    said = Pair(directory, "cmtime", "-c", "200", cm=True, client=["-s", "127.0.0.1"]).client_says()
    assert "connect" in said and "disconnect" in said, said


def udaddy_sends_datagrams(directory):
    _runs(directory, "udaddy", "-c", "5", port_option=None, client=["-s", "127.0.0.1"], words=["return status 0"])


def rdma_client_and_server_exchange_a_message(directory):
    _runs(directory, "rdma_server", client_command=["rdma_client"], client=["-s", "127.0.0.1"],
          words=["rdma_server: end 0", "rdma_client: end 0"])


def rstream_verifies_what_it_streams(directory):
    _runs(directory, "rstream", "-T", "v", "-S", "65536", "-C", "100", client=["-s", "127.0.0.1"], words=["64k"])


def rstream_does_not_block(directory):
    _runs(directory, "rstream", "-T", "v", "-T", "n", "-S", "4096", "-C", "200", client=["-s", "127.0.0.1"],
          words=["4k"])


def rstream_goes_on_while_rails_are_cut(directory):
    lasting(PINGS[DEVICE], lambda count: _goes_on(Pair(directory, "rstream", "-T", "v", "-S", "4096", "-C", str(count), cm=True,
                                                       client=["-s", "127.0.0.1"])))


def riostream_writes_through_its_sockets(directory):
    _runs(directory, "riostream", "-T", "v", "-S", "65536", "-C", "50", client=["-s", "127.0.0.1"], words=["64k"])


def rcopy_copies_a_file(directory):
    source, target = pathlib.Path(directory) / "source", pathlib.Path(directory) / "target"
    source.write_bytes(os.urandom(FILE_BYTES))
    pair = Pair(directory, "rcopy", cm=True, client=[], client_command=["rcopy", str(source), f"127.0.0.1:{target}"])
    pair.client_says()
    assert filecmp.cmp(source, target, shallow=False)


def ib_write_bw_connects(directory):
    _runs(directory, "ib_write_bw", "-R", words=["BW average"])


def ib_send_bw_connects(directory):
    _runs(directory, "ib_send_bw", "-R", words=["BW average"])


def ib_read_bw_connects_and_waits_for_events(directory):
    _runs(directory, "ib_read_bw", "-R", "-e", words=["BW average"])


def libfabric_lists_the_device(directory):
    need("fi_info")
    done = program.run(directory, "run", "--device", DEVICE, "--fabric", f"test-fi-{DEVICE}-{os.getpid()}", "--", "fi_info",
                       "-p", "verbs", check=0)
    assert re.search(r"domain: holdfast0\n[^p]*?type: FI_EP_MSG", done.stdout), done.stdout


def _fi_pingpong(directory, provider, endpoint, size):
    """The side that ends first disconnects: the other may get its last work request back as flushed, after its report."""
    pair = Pair(directory, "fi_pingpong", "-p", provider, "-e", endpoint, "-c", "-S", str(size), "-I", "200", port_option="-B",
                client_port_option="-P")
    said = {name: process.communicate(timeout=program.RUN_LIMIT_S)[0]
            for name, process in (("server", pair.server), ("client", pair.client))}
    assert 0 in (pair.server.returncode, pair.client.returncode), said
    for out in said.values():
        assert re.search(r"^\d+k +200 +=200 ", out, re.MULTILINE), said


def libfabric_pings_over_connections(directory):
    _fi_pingpong(directory, "verbs", "msg", 65536)


def libfabric_pings_over_datagrams(directory):
    _fi_pingpong(directory, "verbs", "dgram", 4096)


def libfabric_pings_over_its_own_reliability(directory):
    _fi_pingpong(directory, "verbs;ofi_rxm", "rdm", 65536)


class _TwoHosts:
    """Two networks of this test's own with a cable between them, and a configuration for a node in each."""

    def __init__(self, directory):
        self.directory, self.names = pathlib.Path(directory), [f"holdfast-{os.getpid()}-{i}" for i in (1, 2)]
        self.hosts = []

    def __enter__(self):
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise program.Skip("networks of its own need root and iproute2")
        secret = self.directory / "secret"
        secret.write_bytes(os.urandom(32).hex().encode())
        secret.chmod(0o600)
        for i, name in enumerate(self.names, 1):
            if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
                raise program.Skip("networks cannot be made here")
            self.hosts.append(name)
            (self.directory / f"{i}.json").write_text(json.dumps(
                {"name": f"n{i}", "fabric": f"test-cm-hosts-{os.getpid()}", "policy": "varuna", "secret_file": str(secret),
                 "management": [f"10.9.1.{i}:18700"],
                 "rails": [{"name": "r0", "kind": "soft", "address": f"10.9.0.{i}", "control": f"10.9.0.{i}:18700"}]}))
        self._ip("-n", self.names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.names[1])
        for i, name in enumerate(self.names, 1):
            for net in (0, 1):
                self._ip("-n", name, "addr", "add", f"10.9.{net}.{i}/24", "dev", "cable")
            for link in ("lo", "cable"):
                self._ip("-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in self.hosts:
            self._ip("netns", "del", name)

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, timeout=program.RUN_LIMIT_S)

    def start(self, host, *command):
        return subprocess.Popen(["ip", "netns", "exec", self.names[host - 1], program.HOLDFAST, "run", "--config",
                                 f"{host}.json", "--", *command], cwd=self.directory, text=True, stdin=subprocess.DEVNULL,
                                env=program.environment(self.directory), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def hosts_connect_by_each_address(directory):
    if DEVICE != "soft":
        raise program.Skip("shm does not leave its host")
    need("rping")
    for address in ("10.9.0.2", "10.9.1.2"):  # of the rail, and of the management
        with _TwoHosts(directory) as hosts:
            server = hosts.start(2, "rping", "-s", "-a", "0.0.0.0", "-V", "-C", "20")
            try:
                end = time.monotonic() + program.RUN_LIMIT_S
                while True:  # until it listens
                    client = hosts.start(1, "rping", "-c", "-a", address, "-V", "-C", "20")
                    said = client.communicate(timeout=program.RUN_LIMIT_S)[0]
                    if client.returncode == 0:
                        break
                    assert time.monotonic() < end and server.poll() is None, said
                server.communicate(timeout=program.RUN_LIMIT_S)
                assert server.returncode == 0
            finally:
                server.kill()
                server.communicate()


def a_group_of_multicast_is_refused_in_words(directory):
    need("mckey")
    done = program.run(directory, "run", "--device", DEVICE, "--fabric", f"test-mc-{DEVICE}-{os.getpid()}", "--", "mckey",
                       "-m", "239.1.1.1", "-b", "127.0.0.1", "-s")
    assert "multicast is not supported" in done.stdout + done.stderr, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__], at_a_time=4))
