#!/usr/bin/env python3
"""The scripts around the guest of `make check-rxe`, without a guest. TAP."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
sys.path.insert(0, SCRIPTS)
sys.dont_write_bytecode = True
import rxe_vm  # noqa: E402

# Stands in for rxe_vm.py: says what the next guest would, with its arguments, and leaves with that status.
STUB = """import os, sys
turns = os.path.join(os.path.dirname(__file__), "turns")
open(turns, "a").write("x")
said, status = {guests!r}[len(open(turns).read()) - 1]
print(*sys.argv[1:])
print(said, end='')
sys.exit(status)
"""


def kernel_with(depends, root):
    folder = os.path.join(root, "lib", "modules", "6.1.0")
    os.makedirs(os.path.join(folder, "kernel"))
    with open(os.path.join(folder, "modules.dep"), "w", encoding="ascii") as file:
        for name, needed in depends.items():
            file.write(f"kernel/{name}.ko: {' '.join(f'kernel/{n}.ko' for n in needed)}\n")
            with open(os.path.join(folder, "kernel", name + ".ko"), "wb") as module:
                module.write(name.encode())
    return rxe_vm.Modules(root)


def a_module_is_loaded_once_and_behind_what_it_needs():
    # modules.dep names what is needed in the order of unloading.
    depends = {"rdma_rxe": ["ib_uverbs", "udp-tunnel", "ib_core"], "ib_uverbs": ["ib_core"], "ib_core": [],
               "udp-tunnel": [], "veth": []}
    with tempfile.TemporaryDirectory() as root:
        modules = kernel_with(depends, root)
        order = modules.order(("veth", "ib_uverbs", "rdma_rxe", "built_in"))
        assert order == ["veth", "ib_core", "ib_uverbs", "udp_tunnel", "rdma_rxe"], order
        assert modules.content("udp_tunnel") == b"udp-tunnel"


def an_archive_is_what_the_kernel_unpacks():
    archive = rxe_vm.Archive()
    archive.folder("bin")
    archive.file("bin/sh", b"#!x", 0o755)
    data, at, found = archive.finish(), 0, {}
    while at < len(data):
        assert data[at:at + 6] == b"070701" and at % 4 == 0
        field = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
        name = data[at + 110:at + 110 + field[11] - 1].decode()
        body = (at + 110 + field[11] + 3) // 4 * 4
        found[name] = (field[1], data[body:body + field[6]])
        at = (body + field[6] + 3) // 4 * 4
    assert found == {"bin": (0o040755, b""), "bin/sh": (0o100755, b"#!x"), "TRAILER!!!": (0, b"")}, found


def checked(said, status, *pieces):
    return checked_in([(said, status)], *pieces)


def checked_in(guests, *pieces):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(SCRIPTS, "check_rxe.py"), folder)
        with open(os.path.join(folder, "rxe_vm.py"), "w", encoding="ascii") as stub:
            stub.write(STUB.format(guests=guests))
        return subprocess.run([sys.executable, os.path.join(folder, "check_rxe.py"), folder, *pieces], text=True,
                              capture_output=True, timeout=60, check=False)


def pieces_that_passed_are_summed_up():
    done = checked("noise\n@@ conformance ok 80 PASSED 109 test\n@@ demo ok 20 nothing lost\n", 0, "conformance", "demo")
    assert done.returncode == 0 and "all 2 passed" in done.stdout and "PASSED 109 test" in done.stdout, done


def a_piece_that_failed_or_did_not_run_fails():
    done = checked("@@ demo FAILED 20 lost\n", 1, "demo")
    assert done.returncode == 1 and "1 failed" in done.stdout, done
    done = checked("@@ demo ok 20 nothing lost\n", 0, "conformance", "demo")
    assert done.returncode == 1 and "conformance did not run" in done.stdout, done


def a_guest_that_died_fails_although_what_it_said_was_fine():
    done = checked("@@ demo ok 20 nothing lost\nthe guest died\n", 126, "demo")
    assert done.returncode == 1 and "the guest died" in done.stdout, done


def what_a_dead_kernel_left_runs_in_another_guest():
    died, rest = ("@@ demo ok 20 nothing lost\nOops\n", 126), ("@@ stress ok 60 200 cuts\n", 0)
    done = checked_in([died, rest], "demo", "stress")
    assert done.returncode == 0 and "died in stress" in done.stdout and "in 2 guests" in done.stdout, done
    done = checked_in([died, ("Oops\n", 126)], "demo", "stress")
    assert done.returncode == 1 and "stress did not run" in done.stdout, done
    done = checked_in([("@@ demo FAILED 20 lost\nOops\n", 126), rest], "demo", "stress")
    assert done.returncode == 1 and "1 failed" in done.stdout, done


def what_cannot_be_had_is_skipped_with_the_reason():
    done = checked("rxe_vm: qemu-system-x86_64 is not installed\n", 77)
    assert done.returncode == 0 and "skipped: rxe_vm: qemu-system-x86_64 is not installed" in done.stdout, done


def whoever_is_ended_takes_the_guest_along():
    script = ("import sys; sys.dont_write_bytecode = True; import argparse, rxe_vm; rxe_vm.end_on_sigterm(); "
              "rxe_vm.qemu = lambda *_: ['sh', '-c', 'echo $$; exec sleep 60']; "
              "rxe_vm.boot('tcg', argparse.Namespace(seconds=60, log=True), '', '')")
    with subprocess.Popen([sys.executable, "-c", script], cwd=SCRIPTS, text=True, stdout=subprocess.PIPE) as runner:
        guest = int(runner.stdout.readline())
        runner.terminate()
        assert runner.wait(60) == 128 + signal.SIGTERM, runner.returncode
    assert not os.path.exists(f"/proc/{guest}")


def without_qemu_the_runner_says_so():
    done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "rxe_vm.py"), "--", "true"], text=True,
                          capture_output=True, timeout=60, check=False, env={"PATH": "/nonexistent"})
    assert done.returncode == 77 and "is not installed" in done.stderr, done


def main():
    tests = [a_module_is_loaded_once_and_behind_what_it_needs, an_archive_is_what_the_kernel_unpacks,
             pieces_that_passed_are_summed_up, a_piece_that_failed_or_did_not_run_fails,
             a_guest_that_died_fails_although_what_it_said_was_fine, what_a_dead_kernel_left_runs_in_another_guest,
             what_cannot_be_had_is_skipped_with_the_reason,
             whoever_is_ended_takes_the_guest_along, without_qemu_the_runner_says_so]
    failed = 0
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        result = "ok"
        try:
            test()
        except AssertionError as wrong:
            result, failed = "not ok", failed + 1
            print("# " + str(wrong).replace("\n", "\n# "))
        print(f"{result} {number} - {test.__name__}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
