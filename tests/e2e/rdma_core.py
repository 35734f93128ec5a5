"""rdma-core's own tests in Python, as Debian's python3-pyverbs ships them, unmodified: rdma_core.py HOLDFAST DEVICE.

They skip by themselves what the device has not; why is printed. Those of the drivers mlx5 and efa and of CUDA, which
need that hardware, are left out.
"""
import gzip
import os
import pathlib
import re
import subprocess
import sys

import program

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "soft"
SHIPPED = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # Debian's, for which the package is
# Traffic between two queue pairs of one process, limits, and what a device is.
MUST_RUN = ["test_atomic_fetch_and_add", "test_cq_events_rc", "test_ro_rc_traffic", "test_create_cq_bad_flow",
            "test_query_device"]
# These fork: a program of their own, because a child shares what its parent has registered (docs/verbs-programs.md).
BY_ADDRESS = "test_rdmacm.py"
MUST_RUN_BY_ADDRESS = ["test_rdmacm_async_traffic", "test_rdmacm_async_udp_traffic"]


def _unpack(directory, wanted):
    tests = pathlib.Path(directory) / "tests"
    tests.mkdir()
    for path in SHIPPED.iterdir():
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        name = path.name.removesuffix(".gz")
        if not name.startswith("test_") or wanted(name):
            (tests / name).write_bytes(data)
    return tests


def _pass(directory, wanted, must_run):
    program.needs_verbs_library()
    if not SHIPPED.is_dir() or subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True).returncode:
        raise program.Skip("python3-pyverbs, which has rdma-core's tests, is not installed with its documentation")
    tests = _unpack(directory, wanted)
    done = program.run(directory, "run", "--device", DEVICE, "--fabric", f"test-rdma-core-{DEVICE}-{os.getpid()}", "--",
                       PYTHON, str(tests / "run_tests.py"), "-v")
    found = re.search(r"^Ran (\d+) tests.*\n\n(OK|FAILED)(?: \((.*)\))?$", done.stderr, re.MULTILINE)
    assert found and found[2] == "OK" and done.returncode == 0, done.stdout + done.stderr
    skipped = int(re.search(r"skipped=(\d+)", found[3] or "skipped=0")[1])
    print(f"# {int(found[1]) - skipped} of {found[1]} ran; the others are skipped for these reasons:")
    reasons = re.findall(r"\.\.\. skipped ['\"](.*)['\"]$", done.stderr, re.MULTILINE)
    for reason in sorted(set(reasons)):
        print(f"#   {reasons.count(reason)} {reason}")
    for name in must_run:
        # None failed; words of our log may stand between.
        assert re.search(rf"^{name} \(.*\)(\n.*)? \.\.\. (?!skipped)", done.stderr, re.MULTILINE), f"{name} did not run"


def rdma_cores_tests_pass(directory):
    _pass(directory, lambda name: not name.startswith(("test_mlx5", "test_efa", "test_cuda")) and name != BY_ADDRESS, MUST_RUN)


def rdma_cores_tests_of_connections_pass(directory):
    _pass(directory, lambda name: name == BY_ADDRESS, MUST_RUN_BY_ADDRESS)


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
