"""qperf of Debian, unmodified, over RC: qperf.py HOLDFAST DEVICE.

It measures each of its tests for a second at least, so three pairs of it run side by side.
"""
import pathlib
import sys

import program
from verbs_pair import Pair

GROUPS = {
    "messages": ["rc_bw", "rc_bi_bw", "rc_lat"],
    "memory": ["rc_rdma_write_bw", "rc_rdma_write_poll_lat", "rc_rdma_read_bw", "rc_rdma_read_lat"],
    "atomics": ["ver_rc_compare_swap", "ver_rc_fetch_add"],  # which look at the values
}


def _start(directory, name):
    own = pathlib.Path(directory) / name
    own.mkdir()
    return Pair(own, "qperf", port_option="-lp", client=["127.0.0.1", "-t", "1", *GROUPS[name]])


def messages_memory_and_atomics_over_rc(directory):
    pairs = {name: _start(directory, name) for name in GROUPS}
    for name, pair in pairs.items():
        said = pair.client_says()
        for test in GROUPS[name]:
            assert f"{test}:" in said, said


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
