"""qperf of Debian, unmodified, over RC: qperf.py HOLDFAST DEVICE."""
import sys

import program
from verbs_pair import Pair

SECOND = ["-t", "1"]  # the shortest that it measures


def _measures(directory, *tests):
    said = Pair(directory, "qperf", port_option="-lp", client=["127.0.0.1", *SECOND, *tests]).client_says()
    for test in tests:
        assert f"{test}:" in said, said


def messages_are_sent(directory):
    _measures(directory, "rc_bw", "rc_bi_bw", "rc_lat")


def memory_is_written_and_read(directory):
    _measures(directory, "rc_rdma_write_bw", "rc_rdma_write_poll_lat", "rc_rdma_read_bw", "rc_rdma_read_lat")


def atomics_return_the_right_values(directory):
    _measures(directory, "ver_rc_compare_swap", "ver_rc_fetch_add")


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
