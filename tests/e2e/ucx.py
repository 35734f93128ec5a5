"""UCX of Debian, unmodified, on its transport rc_verbs: ucx.py HOLDFAST DEVICE.

ucx_perftest runs at the level of UCX's transports (uct), and at the level above, ucp, which MPI and NIXL use: it connects
by datagrams (ud_verbs) and then goes over to rc_verbs.
"""
import os
import sys

import program
from verbs_pair import DEVICE, Over, Pair, need, until

TRANSPORT = ["-d", "holdfast0:1", "-x", "rc_verbs"]

os.environ.update(UCX_TLS="rc_verbs", UCX_NET_DEVICES="holdfast0:1")


def the_transport_is_found(directory):
    need("ucx_info")
    done = program.run(directory, "run", "--device", DEVICE, "--fabric", f"test-ucx-{DEVICE}-{os.getpid()}", "--",
                       "ucx_info", "-d", check=0)
    section = done.stdout.split("Transport: rc_verbs")
    assert len(section) == 2, done.stdout + done.stderr
    for words in ("put_zcopy", "get_zcopy", "am_short", "atomic_fadd"):
        assert words in section[1], section[1]


def _measures(directory, test, *layouts, iterations="1000"):
    for layout in layouts or [()]:
        pair = Pair(directory, "ucx_perftest", client=["127.0.0.1", *TRANSPORT, "-t", test, "-n", iterations, *layout])
        said = pair.finish()
        assert "Final:" in said and "ERROR" not in said, said


def active_messages_are_delivered(directory):
    _measures(directory, "am_lat", ["-D", "short"], ["-D", "bcopy", "-s", "4000"], ["-D", "zcopy", "-s", "8000"])


def active_messages_stream(directory):
    _measures(directory, "am_bw", ["-D", "bcopy", "-s", "4000"], iterations="20000")


def memory_is_written(directory):
    _measures(directory, "put_lat", ["-D", "short"], ["-D", "bcopy", "-s", "4000"])
    _measures(directory, "put_bw", ["-D", "zcopy", "-s", "65536"])


def memory_is_read(directory):
    _measures(directory, "get", ["-D", "bcopy", "-s", "4000"], ["-D", "zcopy", "-s", "65536"])


def atomics_work(directory):
    for test in ("add_lat", "add_mr", "fadd", "cswap"):
        _measures(directory, test)


def _ucp(directory, *options, transports="ib"):
    environment = dict(os.environ)
    os.environ["UCX_TLS"] = transports
    try:
        return Pair(directory, "ucx_perftest", client=["127.0.0.1", *options])
    finally:
        os.environ.update(environment)


def _ends_well(pair):
    said = pair.finish()
    assert "Final:" in said and "ERROR" not in said, said


def ucp_sends_messages(directory):
    _ends_well(_ucp(directory, "-t", "tag_lat", "-n", "1000"))
    _ends_well(_ucp(directory, "-t", "tag_bw", "-s", "65536", "-n", "200"))
    _ends_well(_ucp(directory, "-t", "ucp_am_lat", "-n", "1000"))


def ucp_reads_writes_and_adds(directory):
    for test in ("ucp_put_lat", "ucp_get", "ucp_fadd", "ucp_cswap"):
        _ends_well(_ucp(directory, "-t", test, "-n", "1000"))


def ucp_sends_messages_as_datagrams_alone(directory):
    _ends_well(_ucp(directory, "-t", "tag_lat", "-n", "1000", transports="ud_verbs"))


def ucp_goes_on_through_cuts(directory):
    pair = _ucp(directory, "-t", "tag_lat", "-n", "150000")
    pair.until_traffic()
    try:
        for cut in range(3):
            rail = f"r{cut % 2}"
            pair.link("down", f"client/{rail}")
            until(f"on {rail}", lambda rail=rail: pair.rail() != rail, pair.client)
            pair.link("up", f"client/{rail}")
    except Over:
        pass  # the machine was faster than the switch
    _ends_well(pair)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
