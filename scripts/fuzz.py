#!/usr/bin/env python3
"""fuzz.py BUILD SECONDS TARGET... - runs libFuzzer targets one after another on their corpora.

Inputs that reach something new are kept in BUILD/corpus/TARGET; what breaks a target is left in BUILD as
TARGET-crash-*, with the command that replays it. Exit status 1 after a finding.
"""
import glob
import os
import subprocess
import sys


def run(build, seconds, target):
    seeds = os.path.join("fuzz", "corpus", target)
    grown = os.path.join(build, "corpus", target)
    os.makedirs(grown, exist_ok=True)
    prefix = os.path.join(build, f"{target}-")
    for old in glob.glob(prefix + "*"):
        os.remove(old)
    program = os.path.join(build, "fuzz", target)
    print(f"fuzz: {target} for {seconds} s", flush=True)
    done = subprocess.run(
        [program, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=16384",
         "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={prefix}", grown]
        + ([seeds] if os.path.isdir(seeds) else []),
        stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, errors="replace")
    lines = done.stdout.splitlines()
    if done.returncode == 0:
        runs = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), "?")
        print(f"fuzz: {target}: {runs} inputs, nothing found")
        return True
    print("\n".join(lines[-60:]))
    for found in glob.glob(prefix + "*"):
        print(f"fuzz: {target}: replay with: {program} {found}")
    return False


def main():
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    results = [run(sys.argv[1], int(sys.argv[2]), target) for target in sys.argv[3:]]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
