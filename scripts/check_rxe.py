#!/usr/bin/env python3
"""check_rxe.py BUILD [--cuts N] [--kernel PACKAGE] [--seconds N] [PIECE]... - runs the checks of real verbs.

Everything happens in one guest of rxe_vm.py; what it prints is in BUILD/rxe.log, with the second in which it did. Where
there is no such guest to be had (packages, no qemu for this machine) that is said and the exit status is 0: nothing was
found wrong. A guest that does not come up although everything is there, or in which a piece fails or is missing, is a
failure.
"""
import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PIECES = ("conformance", "demo", "perftest", "stress")
ON_DEMAND = ("interop",)  # minutes of it; see also `make check-network`
UNAVAILABLE = 77  # of rxe_vm.py
SECONDS_MAX = "1200"  # then the guest is ended, and what has not run is said


def main():
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
    command += ["--", os.path.join(HERE, "rxe-check.sh"), options.build, options.cuts, *pieces]
    began, seen, failed = time.monotonic(), [], 0
    with open(os.path.join(options.build, "rxe.log"), "w", encoding="utf-8") as log, \
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace") as guest:
        last = ""
        for line in guest.stdout:
            log.write(f"{time.monotonic() - began:6.1f} {line}")
            log.flush()
            last = line.strip() or last
            if line.startswith("@@ "):
                name, word, seconds, *words = line[3:].split(" ", 3)
                seen.append(name)
                failed += word != "ok"
                print(f"  {name:12} {word:6} {seconds:>4} s  {''.join(words).strip()}", flush=True)
    if guest.returncode == UNAVAILABLE:
        print(f"check-rxe: skipped: {last}")
        return 0
    missing = [piece for piece in pieces if piece not in seen]
    seconds = int(time.monotonic() - began)
    if failed or missing or guest.returncode != 0:
        print(f"check-rxe: FAILED after {seconds} s: {failed} failed, {', '.join(missing) or 'none'} did not run; "
              f"see {log.name}; it ended with: {last}")
        return 1
    print(f"check-rxe: {len(seen)} of {len(pieces)} passed in {seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
