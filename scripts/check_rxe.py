#!/usr/bin/env python3
"""check_rxe.py BUILD [--cuts N] [--kernel PACKAGE] [--seconds N] [PIECE]... - runs the checks of real verbs.

Everything happens in one guest of rxe_vm.py; what it prints is in BUILD/rxe.log, with the second in which it did. Where
there is no such guest to be had (packages, no qemu for this machine) that is said and the exit status is 0: nothing was
found wrong. A guest that does not come up although everything is there, or in which a piece fails or is missing, is a
failure; but when its kernel dies, what has not run yet is run in another one.
"""
import argparse
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PIECES = ("conformance", "demo", "perftest", "services", "stress")
ON_DEMAND = ("interop",)  # minutes of it; see also `make check-network`
UNAVAILABLE, GUEST_DIED = 77, 126  # of rxe_vm.py
GUESTS_MAX = 2  # rxe of Linux 6.1 locks up now and then (docs/devices.md), and that is not what is checked here
SECONDS_MAX = "1200"  # then the guest is ended, and what has not run is said


def run_guest(command, log, began):
    """Returns its exit status, the names of the pieces that ended, how many of them failed, and its last words."""
    seen, failed, last = [], 0, ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as guest:
        try:
            for line in guest.stdout:
                log.write(f"{time.monotonic() - began:6.1f} {line}")
                log.flush()
                last = line.strip() or last
                if line.startswith("@@ "):
                    name, word, seconds, *words = line[3:].split(" ", 3)
                    seen.append(name)
                    failed += word != "ok"
                    print(f"  {name:12} {word:6} {seconds:>4} s  {''.join(words).strip()}", flush=True)
        except BaseException:
            guest.terminate()
            raise
    return guest.returncode, seen, failed, last


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description="checks the verbs device over soft-RoCE in a guest")
    parser.add_argument("build")
    parser.add_argument("--cuts", default="200")
    parser.add_argument("--kernel", help="Debian package, by default that of linux-image-amd64")
    parser.add_argument("--seconds", default=SECONDS_MAX)
    parser.add_argument("piece", nargs="*", help="of %s; by default all but %s" % (
        ", ".join(PIECES + ON_DEMAND), ", ".join(ON_DEMAND)))
    options = parser.parse_intermixed_args()
    if set(options.piece) - set(PIECES + ON_DEMAND):
        parser.error("pieces are " + ", ".join(PIECES + ON_DEMAND))
    pieces = options.piece or list(PIECES)
    command = [sys.executable, os.path.join(HERE, "rxe_vm.py"), "--seconds", options.seconds]
    if options.kernel:
        command += ["--kernel", options.kernel]
    command += ["--", os.path.join(HERE, "rxe-check.sh"), options.build, options.cuts]
    began, missing, failed, guests = time.monotonic(), pieces, 0, 0
    with open(os.path.join(options.build, "rxe.log"), "w", encoding="utf-8") as log:
        while True:
            status, seen, failures, last = run_guest(command + missing, log, began)
            missing = [piece for piece in missing if piece not in seen]
            failed += failures
            guests += 1
            if status != GUEST_DIED or guests == GUESTS_MAX or not missing:
                break
            print(f"check-rxe: the guest's kernel died in {missing[0]} (its last words are in {log.name}); once more")
    if status == UNAVAILABLE:
        print(f"check-rxe: skipped: {last}")
        return 0
    seconds = int(time.monotonic() - began)
    if failed or missing or status != 0:
        print(f"check-rxe: FAILED after {seconds} s: {failed} failed, {', '.join(missing) or 'none'} did not run; "
              f"see {log.name}; it ended with: {last}")
        return 1
    print(f"check-rxe: all {len(pieces)} passed in {seconds} s" + (f", in {guests} guests" if guests > 1 else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
