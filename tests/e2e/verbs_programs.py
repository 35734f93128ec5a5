"""Programs of Debian that were written for libibverbs, unmodified: verbs_programs.py HOLDFAST DEVICE.

Two processes a test, a server and a client, over two rails of one device on this host.
"""
import os
import re
import sys

import program
from verbs_pair import DEVICE, Pair, Unsteady, lasting, need

UNSTEADY_RUNS = 5
PERIOD_S = 0.01
PINGPONGS = {"shm": 60000, "soft": 8000}  # at first: some seconds on a slow machine
PINGPONGS_BY_EVENTS = {"shm": 8000, "soft": 3000}
ENDLESS = ["-D", "100", "-f", "30"]  # seconds; the test ends it


def _run(pair, cuts):
    """What both printed; a rail of the client was cut and restored so often in the middle."""
    if cuts > 0:
        pair.until_traffic()
    pair.cut(cuts)
    return pair.finish()


def _run_timed(pair, cuts):
    """The same of perftest with -D, which counts operations that it began after the last rail was restored."""
    pair.until_traffic()
    pair.until_measuring()
    pair.cut(cuts)
    for _ in range(3):
        pair.end_period()
    return pair.finish()


def _run_counted(pair, cuts):
    """The same of one of latency: that some were counted."""
    said = _run_timed(pair, cuts)
    counted = re.search(r"t_avg.*\n +\d+ +(\d+)", said)
    assert counted, said
    if int(counted[1]) == 0:
        raise Unsteady("no operation was counted")
    return said


def _runs(directory, *command, cuts=0, words=(), run=_run):
    for number in range(UNSTEADY_RUNS):
        pair = Pair(directory, *command)
        pair.period_s = PERIOD_S * 4**number  # on a busy machine nothing may happen for a while
        try:
            said = run(pair, cuts)
            break
        except Unsteady as unsteady:
            why = unsteady
    else:
        raise AssertionError(f"{command[0]} showed nothing in {UNSTEADY_RUNS} runs: {why}")
    for word in words:
        assert word in said, f"'{word}' is not in:\n{said}"
    return said


def the_device_describes_itself(directory):
    need("ibv_devinfo")
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
    said = Pair(directory, "ibv_rc_pingpong", "-c", "-g", "0", configure=_three_rails).finish()
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


def ib_send_bw_runs_with_datagrams(directory):
    _runs(directory, "ib_send_bw", "-c", "UD", words=["BW average"])


def ib_send_lat_runs_with_datagrams(directory):
    _runs(directory, "ib_send_lat", "-c", "UD", words=["t_avg"])
    _runs(directory, "ib_send_lat", "-c", "UD", "-e", words=["t_avg"])


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


def _pingpong_goes_on_through_cuts(directory, iterations, cuts, *options):
    lasting(iterations, lambda count: _runs(directory, "ibv_rc_pingpong", *options, "-c", "-s", "65536", "-n", str(count),
                                            cuts=cuts, words=[f"{count} iters"]))


def pingpong_goes_on_through_cuts(directory):
    _pingpong_goes_on_through_cuts(directory, PINGPONGS[DEVICE], 3)


def ib_write_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_write_bw", *ENDLESS, cuts=3, words=["BW average"], run=_run_timed)


def ib_read_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_read_bw", *ENDLESS, cuts=1, words=["BW average"], run=_run_timed)


def ib_send_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_send_bw", *ENDLESS, cuts=1, words=["BW average"], run=_run_timed)


def ib_atomic_bw_goes_on_through_cuts(directory):
    _runs(directory, "ib_atomic_bw", *ENDLESS, cuts=3, words=["BW average"], run=_run_timed)


def pingpong_by_events_goes_on_through_cuts(directory):
    _pingpong_goes_on_through_cuts(directory, PINGPONGS_BY_EVENTS[DEVICE], 2, "-e")


def _latency_goes_on_through_cuts(directory, name):
    """Two of these programs end in time although nothing arrives any more, so what they counted is looked at."""
    _runs(directory, name, *ENDLESS, cuts=2, run=_run_counted)


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
