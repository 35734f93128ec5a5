#!/usr/bin/env python3
"""The soft NIC of this machine against the kernel's soft RoCE in a guest, over qemu's network: network.py BUILD [TEST].

    conformance, soft 10.10.2.1 -- tap -- this program -- qemu -- virtio-net -- rxe 10.10.2.2, conformance --serve

The conformance suite runs here, its other side in the guest (by a network of its own, which nobody cuts): once with the
soft NIC as requester, once with rxe. Frames between them pass through this program, which cuts a direction when the
suite asks for that, and loses some of them in the runs with losses. Here everything lives in a network namespace. Needs
root, /dev/net/tun and what scripts/rxe_vm.py needs; where something is missing it says so, and the exit status is 0.
"""
import fcntl
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "scripts")
sys.path.insert(0, SCRIPTS)
sys.dont_write_bytecode = True
import rxe_vm  # noqa: E402

UNAVAILABLE = 77  # rxe_vm.py says so
KERNEL = "linux-image-amd64"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454ca, 0x0002, 0x1000
FRAME_MAX = 1 << 16
AGENT_PORT = 18600
HOST_OF_GUEST = "10.0.2.2"  # as qemu's user network calls this machine
RUN_SECONDS, GUEST_SECONDS, BYE_SECONDS = 300, 900, 20
BYE = b"bye!"  # no call of the suite begins so
LOSS, SEED = 0.005, 4791  # with much more, rxe gives up now and then
BEDS = ("soft-guest", "guest-soft")
# With losses: every operation, many sizes, and what would show if it were executed twice.
LOSSY_TESTS = ("messages_of_every_mtu_arrive", "sends_of_every_size_arrive", "reads_of_every_size_arrive",
               "writes_of_every_size_arrive", "both_directions_work_at_once",
               "atomics_of_several_qps_and_both_ends_are_atomic_with_each_other")
MAC_HOST, MAC_GUEST, MAC_QEMU = "02:00:00:00:0e:00", "02:00:00:00:0e:01", "02:00:00:00:0e:02"
SETUP_HERE = f"""ip link set lo up
ip link set tap0 address {MAC_HOST} mtu 4200 up
ip addr add 10.10.2.1/24 dev tap0
ip addr add 10.10.2.3/24 dev tap0
ip neigh replace 10.10.2.2 lladdr {MAC_GUEST} dev tap0 nud permanent"""
# rxe lives on an interface above that of qemu: for one that is down qemu would keep the frames, where a switch drops them.
SETUP_THERE = f"""insmod {{directory}}/macvlan.ko
ip link set eth0 mtu 4200 up
ip link add n0 link eth0 address {MAC_GUEST} mtu 4200 type macvlan mode bridge
ip link set n0 up
ip addr add 10.10.2.2/24 dev n0
ip neigh replace 10.10.2.1 lladdr {MAC_HOST} dev n0 nud permanent
ip neigh replace 10.10.2.3 lladdr {MAC_HOST} dev n0 nud permanent
rdma link add rxe_n0 type rxe netdev n0
ip addr add 10.0.2.15/24 dev eth1
ip link set eth1 up"""


class Skip(Exception):
    """Why nothing can be tested here."""


class Wire:
    """Carries frames between the tap and qemu. `directory`/drop-to-guest and drop-from-guest cut it while they exist."""

    def __init__(self, directory):
        try:
            self.tap = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(self.tap, TUNSETIFF, struct.pack("16sH22x", b"tap0", IFF_TAP | IFF_NO_PI))
        except OSError as why:
            raise Skip(f"no tap: {why}") from why
        self.directory, self.loss, self.random = directory, 0.0, random.Random(SEED)
        self.carried, self.lost = 0, 0
        self.guest_path = os.path.join(directory, "guest")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(os.path.join(directory, "wire"))
        threading.Thread(target=self._run, daemon=True).start()

    def options(self):
        return ["-netdev", f"dgram,id=n0,local.type=unix,local.path={self.guest_path},"
                           f"remote.type=unix,remote.path={os.path.join(self.directory, 'wire')}",
                "-device", f"virtio-net-pci,netdev=n0,mac={MAC_QEMU},host_mtu=4200",
                "-netdev", "user,id=n1,restrict=off", "-device", "virtio-net-pci,netdev=n1"]

    def _drops(self, frame, direction):
        if os.path.exists(os.path.join(self.directory, "drop-" + direction)):
            return True
        self.carried += 1
        lost = len(frame) > 60 and self.random.random() < self.loss
        self.lost += lost
        return lost

    def _run(self):
        while True:
            ready = select.select([self.tap, self.socket], [], [])[0]
            if self.tap in ready:
                frame = os.read(self.tap, FRAME_MAX)
                if not self._drops(frame, "to-guest"):
                    try:
                        self.socket.sendto(frame, self.guest_path)
                    except OSError:
                        pass  # the guest is not there yet, or no more
            if self.socket in ready:
                frame = self.socket.recv(FRAME_MAX)
                if not self._drops(frame, "from-guest"):
                    os.write(self.tap, frame)


def carry(one, other):
    """Between two stream sockets until both have ended."""
    ends = {one: other, other: one}
    while ends:
        for ready in select.select(list(ends), [], [])[0]:
            data = ready.recv(FRAME_MAX)
            if data:
                ends.get(ready, other if ready is one else one).sendall(data)
                continue
            to = ends.pop(ready)
            try:
                to.shutdown(socket.SHUT_WR)
            except OSError:
                pass


def there(number):
    """In the place of `conformance --serve NUMBER`: the one that an agent in the guest starts, at the other end."""
    with socket.create_server(("127.0.0.1", AGENT_PORT)) as listener:
        agent = listener.accept()[0]
    agent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    carry(socket.socket(fileno=number), agent)


def agent(conformance):
    """In the guest: serves whoever listens on the host, one after the other."""
    while True:
        try:
            connection = socket.create_connection((HOST_OF_GUEST, AGENT_PORT), timeout=5)
        except OSError:
            time.sleep(0.02)
            continue
        connection.settimeout(None)
        if connection.recv(len(BYE), socket.MSG_PEEK) == BYE:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        subprocess.run([conformance, "--serve", str(connection.fileno())], pass_fds=[connection.fileno()], check=False)
        connection.close()


def start_guest(build, wire):
    """Returns the running guest when its agent is about to serve."""
    conformance = os.path.abspath(os.path.join(build, "tests", "conformance", "conformance"))
    try:
        folder = rxe_vm.unpack_kernel(rxe_vm.kernel_package(KERNEL))
    except rxe_vm.Unavailable as why:
        raise Skip(str(why)) from why
    with open(os.path.join(wire.directory, "macvlan.ko"), "wb") as file:
        file.write(rxe_vm.Modules(folder).content("macvlan"))
    setup = SETUP_THERE.format(directory=wire.directory)
    command = f"({setup}) && echo agent ready && exec {sys.executable} {__file__} agent {conformance}"
    words = [sys.executable, os.path.join(SCRIPTS, "rxe_vm.py"), "--seconds", str(GUEST_SECONDS), "--kernel", KERNEL,
             *("--qemu=" + word for word in wire.options())]
    guest = subprocess.Popen([*words, "--", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", start_new_session=True)
    said = []
    for line in guest.stdout:
        said = said[-20:] + [line]
        if line.startswith("agent ready"):
            threading.Thread(target=lambda: [None for _ in guest.stdout], daemon=True).start()
            return guest
    if guest.wait() == UNAVAILABLE:
        raise Skip(said[-1].strip() if said else "no guest")
    raise AssertionError("the guest did not come up:\n" + "".join(said))


def end_guest(guest):
    """Its agent goes home, and it with it; by force when nobody asks."""
    try:
        with socket.create_server(("127.0.0.1", AGENT_PORT)) as listener:
            listener.settimeout(BYE_SECONDS)
            with listener.accept()[0] as connection:
                connection.sendall(BYE)
        guest.wait(BYE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        os.killpg(guest.pid, signal.SIGTERM)
        guest.wait()


def run(conformance, bed, directory, test):
    """One run of the suite. Returns its exit status and what it said in a few words."""
    for name in os.listdir(directory):
        if name.startswith("drop-"):
            os.remove(os.path.join(directory, name))
    try:
        done = subprocess.run([conformance, bed, test], env=dict(os.environ, HOLDFAST_NETWORK=directory), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        return 1, f"ran for more than {RUN_SECONDS} s", (late.stdout or b"").decode(errors="replace")
    words = [line for line in done.stdout.splitlines() if line.startswith(("[  PASSED", "[  FAILED", "[  SKIPPED"))]
    return done.returncode, " ".join(" ".join(word.split("]")[-1].split(",")[0].split()) for word in words
                                     if "test(s)" in word), done.stdout


def run_all(build, wire, directory, pattern):
    conformance = os.path.abspath(os.path.join(build, "tests", "conformance", "conformance"))
    failed = 0
    with open(os.path.join(build, "network.log"), "w", encoding="utf-8") as log:
        for bed in BEDS:
            for loss, tests in ((0, [pattern]), (LOSS, LOSSY_TESTS if pattern == "*" else [])):
                for test in tests:
                    wire.loss, wire.carried, wire.lost, began = loss, 0, 0, time.monotonic()
                    status, words, said = run(conformance, bed, directory, test)
                    failed += status != 0
                    log.write(said)
                    log.flush()
                    print(f"  {bed:11} {test if test != '*' else 'all':40} {'ok' if status == 0 else 'FAILED':6} "
                          f"{time.monotonic() - began:4.0f} s  {words}; {wire.carried} frames"
                          f"{f', {wire.lost} lost' if loss else ''}", flush=True)
    return failed


def main():
    if sys.argv[1:2] == ["there"]:  # PROGRAM --serve NUMBER
        return there(int(sys.argv[-1]))
    if sys.argv[1:2] == ["agent"]:
        return agent(sys.argv[2])
    if os.environ.get("HOLDFAST_NETWORK") is None:  # nothing of this machine's network is touched
        os.environ["HOLDFAST_NETWORK"] = "here"
        enter = ["unshare", "--net"]
        if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0:
            print("network: skipped: a network namespace needs root")
            return 0
        os.execvp(enter[0], [*enter, sys.executable, __file__, *sys.argv[1:]])
    build, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*"
    guest, failed = None, 1
    with tempfile.TemporaryDirectory(prefix="holdfast-network-") as directory:
        script = os.path.join(directory, "there")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} {os.path.abspath(__file__)} there "$@"\n')
        os.chmod(script, 0o755)
        try:
            wire = Wire(directory)
            subprocess.run(["sh", "-ec", SETUP_HERE], check=True)
            guest = start_guest(build, wire)
            failed = run_all(build, wire, directory, pattern)
        except Skip as why:
            print(f"network: skipped: {why}")
            return 0
        finally:
            if guest is not None:
                end_guest(guest)
    print(f"network: {'FAILED, see ' + build + '/network.log' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
