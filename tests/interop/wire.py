#!/usr/bin/python3
"""What the soft NIC puts on a wire, read by others: wire.py CONFORMANCE.

A few tests of the conformance suite run on loopback while their packets are captured; scapy checks the invariant CRC of
each, tshark takes them apart. TAP. Needs root (to capture), python3-scapy and tshark; what is missing skips.
"""
import collections
import ctypes
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

PORT = 4791
TESTS = ("messages_of_every_mtu_arrive", "different_operations_keep_their_order", "sends_gather_and_receives_scatter",
         "more_reads_and_atomics_than_the_peer_takes_at_once_complete")
ETH_P_IP, SO_RCVBUFFORCE, SO_ATTACH_FILTER = 0x0800, 33, 26
BPF_LOAD_WORD, BPF_AND, BPF_JUMP_EQUAL, BPF_RETURN = 0x20, 0x54, 0x15, 0x06
BTH_BYTES, ICRC_BYTES, PACKET_BYTES_MAX = 12, 4, 12 + 28 + 4096 + 4
PSN_GAP_MAX = 256  # in a run, of answers
PACKETS_MAX = 3000  # that are looked at by scapy, which is slow
# Of the base transport header, RC. (A long WRITE leaves as many of one packet, so that the kernel can cut it.)
OPCODES = {"SEND_FIRST": 0x00, "SEND_LAST": 0x02, "SEND_ONLY": 0x04, "WRITE_ONLY": 0x0a, "READ_REQUEST": 0x0c, "READ_RESPONSE_FIRST": 0x0d,
           "READ_RESPONSE_LAST": 0x0f, "READ_RESPONSE_ONLY": 0x10, "ACKNOWLEDGE": 0x11, "ATOMIC_ACKNOWLEDGE": 0x12}
ATOMICS = {0x13, 0x14}


class Skip(Exception):
    """Why nothing can be tested here."""


class Capture:
    """IPv4 packets of loopback to the port of RoCEv2, as they would be on a wire: runs that the kernel would cut
    (UDP_SEGMENT) are cut here, and numbered as it does."""

    def __init__(self, network):
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        except PermissionError as why:
            raise Skip("capturing needs root") from why
        self._only_from(network)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.bind(("lo", ETH_P_IP))
        self.socket.settimeout(0.2)
        self.packets, self.ends = [], False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _only_from(self, network):
        """The kernel passes on what comes from these first three bytes of an address: others are busy on loopback."""
        program = b"".join(struct.pack("HBBI", *step) for step in (
            (BPF_LOAD_WORD, 0, 0, 12), (BPF_AND, 0, 0, 0xffffff00),
            (BPF_JUMP_EQUAL, 0, 1, int.from_bytes(network + b"\0", "big")),
            (BPF_RETURN, 0, 0, 1 << 18), (BPF_RETURN, 0, 0, 0)))
        buffer = ctypes.create_string_buffer(program)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                               struct.pack("HL", len(program) // 8, ctypes.addressof(buffer)))

    def _run(self):
        while True:
            try:
                data, (_, _, kind, _, _) = self.socket.recvfrom(1 << 17)
            except TimeoutError:
                if self.ends:
                    return
                continue
            if kind != socket.PACKET_OUTGOING:  # each passes twice
                self.packets.append(data)

    def finish(self):
        self.ends = True
        self.thread.join()
        self.socket.close()
        return [piece for packet in self.packets for piece in cut(packet)]


def step_of(payload):
    """The bytes of each packet in a run, of which the last may have fewer. Capturing does not tell; but each begins
    with a header for the same queue pair, and psns count up."""
    def heads(step):
        return [payload[at:at + BTH_BYTES] for at in range(0, len(payload), step)]

    def is_run(found):
        psns = [int.from_bytes(head[9:12], "big") for head in found]
        return all(len(head) == BTH_BYTES and head[2:8] == found[0][2:8] for head in found) and all(
            (after - before) & 0xffffff < PSN_GAP_MAX for before, after in zip(psns, psns[1:]))

    for step in range(BTH_BYTES + ICRC_BYTES, min(len(payload), PACKET_BYTES_MAX), 4):
        if is_run(heads(step)):
            return step
    return len(payload)


def cut(packet):
    header = (packet[0] & 15) * 4
    if len(packet) < header + 8 + BTH_BYTES or packet[9] != socket.IPPROTO_UDP or \
            struct.unpack_from("!H", packet, header + 2)[0] != PORT:
        return []
    payload = packet[header + 8:struct.unpack_from("!H", packet, 2)[0]]
    step, first = step_of(payload), struct.unpack_from("!H", packet, 4)[0]
    found = []
    for place, at in enumerate(range(0, len(payload), step)):
        piece = payload[at:at + step]
        head = bytearray(packet[:header + 8])
        struct.pack_into("!H", head, 2, header + 8 + len(piece))
        struct.pack_into("!H", head, 4, (first + place) & 0xffff)
        struct.pack_into("!H", head, header + 4, 8 + len(piece))
        found.append(bytes(head) + piece)
    return found


def traffic(conformance):
    """The packets of TESTS. A run takes its addresses from its pid, so it waits until we listen there."""
    found = []
    for test in TESTS:
        with subprocess.Popen(["sh", "-c", 'read -r _; exec "$@"', "sh", conformance, "soft", test],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as running:
            try:
                capture = Capture(bytes((127, 100 + running.pid // 250 % 100, 1 + running.pid % 250)))
                try:
                    said = running.communicate("go\n", timeout=60)[0]
                finally:
                    found += capture.finish()
            except BaseException:
                running.kill()
                raise
        assert running.returncode == 0 and f"OK ] {test}" in said, said[-2000:]
    return found


def every_operation_is_on_the_wire(packets):
    seen = collections.Counter(packet[28] for packet in packets)
    missing = [name for name, opcode in OPCODES.items() if opcode not in seen]
    assert not missing, f"{missing} not among {dict(seen)}"
    assert ATOMICS & set(seen), dict(seen)


def the_invariant_crc_of_each_packet_is_right_by_scapy(packets):
    try:
        from scapy.contrib.roce import BTH
        from scapy.layers.inet import IP
    except ImportError as why:
        raise Skip("python3-scapy is not installed") from why
    for packet in packets[:PACKETS_MAX]:
        decoded = IP(packet)
        expected = decoded[BTH].compute_icrc(None)
        assert packet[-ICRC_BYTES:] == expected, f"{packet[-ICRC_BYTES:].hex()}, {expected.hex()} by scapy: {packet.hex()}"
    damaged = bytearray(packets[0])
    damaged[-ICRC_BYTES - 1] ^= 1
    assert bytes(damaged[-ICRC_BYTES:]) != IP(bytes(damaged))[BTH].compute_icrc(None), "scapy finds anything right"


def tshark_reads_each_packet_as_rocev2(packets):
    if shutil.which("tshark") is None:
        raise Skip("tshark is not installed")
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 1 << 16, 228))  # raw IPv4
        for place, packet in enumerate(packets):
            file.write(struct.pack("<IIII", 0, place, len(packet), len(packet)) + packet)
        file.flush()
        done = subprocess.run(
            ["tshark", "-n", "-r", file.name, "-o", "infiniband.try_heuristic_first:FALSE", "-T", "fields", "-E",
             "occurrence=f", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "infiniband.bth.destqp",
             "-e", "_ws.malformed"], text=True, capture_output=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(packets), f"{len(lines)} lines for {len(packets)} packets"
    for line, packet in zip(lines, packets):
        opcode, psn, qp, malformed = (line.split("\t") + [""] * 4)[:4]
        # It guesses at what payloads mean; that they do not mean it is no fault of the packet.
        said = (int(opcode or "-1", 0), int(psn or "-1", 0), int(qp or "-1", 0), "InfiniBand" in malformed)
        meant = (packet[28], int.from_bytes(packet[37:40], "big"), int.from_bytes(packet[33:36], "big"), False)
        assert said == meant, f"tshark says {said}, meant was {meant}: {packet.hex()}"


def main():
    tests = [every_operation_is_on_the_wire, the_invariant_crc_of_each_packet_is_right_by_scapy,
             tshark_reads_each_packet_as_rocev2]
    failed = 0
    print(f"1..{len(tests)}")
    try:
        packets, why = traffic(sys.argv[1]), None
    except Skip as skip:
        packets, why = [], str(skip)
    except AssertionError as wrong:
        print("Bail out! " + str(wrong)[:1500].replace("\n", " "))
        return 1
    for number, test in enumerate(tests, 1):
        result, notes = "ok", ""
        try:
            if why is not None:
                raise Skip(why)
            test(packets)
        except Skip as skip:
            notes = f" # SKIP {skip}"
        except AssertionError as wrong:
            result, failed = "not ok", failed + 1
            print("# " + str(wrong)[:1500].replace("\n", "\n# "))
        print(f"{result} {number} - {test.__name__}{notes}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
