#!/usr/bin/env python3
"""check.py BUILD [--all] [--suite SUITE]... [--no-suite SUITE]... - runs the tests of a build directory and counts them.

Without --all: every test but those of suite `all`, which take long; of seeds and mutants a window each, which is printed
(windows.py). With --all: those too, and all seeds and mutants in the place of windows. Suite `bench` measures, and runs only
when it is named.

Tests in virtual time take most of the processors' time, and none of them waits for a clock: they run beside the others,
from the beginning, at a lower priority.

A cmocka program counts as its test cases, a TAP program as its lines, any other as one test. A test that could not
run is skipped with its reason, never passed; a program that crashed, timed out or left with an error without saying
which case failed counts as one failure. The last line is "N passed, N failed, N skipped"; the exit status is 1
when anything failed or nothing ran.
"""
import argparse
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

CMOCKA = re.compile(r"^\[ +(OK|FAILED|SKIPPED|RUN|ERROR) +\] (\S+)$")
CMOCKA_TOTAL = re.compile(r"^\[ +(PASSED|FAILED|SKIPPED|ERROR) +\] (\d+) test\(s\)")
TAP = re.compile(r"^(not ok|ok)\b[ \d]*-? ?(.*)$")
MESON_FINE = ("OK", "EXPECTEDFAIL", "SKIP")
SLOWEST_SHOWN = 8
TIMEOUTS = "10"  # of what the meson.build files say: a limit ends a hang, and a slow machine is not one
BACKGROUND = ["sim", "mutants", "models"]  # suites in virtual time
# Each test has a session of its own, and with it a scheduling group, whose priority is another one than the process's. Lower
# than that of other programs by as much as lets it go on beside programs that only compute.
YIELD = "sh -c 'echo 5 2>/dev/null >/proc/self/autogroup; exec nice -n 5 \"$0\" \"$@\"'"
WINDOW = re.compile(r"^# (windows? of .*|mutants of files .*)$", re.M)


def count_cmocka(lines):
    """(passed, [failed], [(skipped, reason)]) of a program's output; None when it is no cmocka program."""
    passed, failed, skipped, said, seen = 0, [], [], "", False
    for line in lines:
        case = CMOCKA.match(line)
        if not case or CMOCKA_TOTAL.match(line):
            said = line.strip() or said
            continue
        seen = True
        word, name = case.groups()
        if word == "RUN":
            said = ""
        elif word == "OK":
            passed += 1
        elif word == "SKIPPED" and name not in [s[0] for s in skipped]:
            skipped.append((name, said or "no reason given"))
        elif word in ("FAILED", "ERROR") and name not in failed:
            failed.append(name)
    return (passed, failed, skipped) if seen else None


def count_tap(lines):
    passed, failed, skipped, seen, last_failed = 0, [], [], False, False
    for line in lines:
        point = TAP.match(line)
        if not point and last_failed and line.startswith("# "):
            failed[-1] += "\n      " + line[2:]
        if not point:
            continue
        last_failed = False
        seen = True
        name, _, directive = point.group(2).partition(" # ")
        if directive.upper().startswith("SKIP"):
            skipped.append((name, directive[4:].strip() or "no reason given"))
        elif point.group(1) == "ok":
            passed += 1
        else:
            failed.append(name)
            last_failed = True
    return (passed, failed, skipped) if seen else None


def count(test):
    """The same for one entry of meson's testlog.json."""
    out = test.get("stdout", "")
    lines = (out + "\n" + test.get("stderr", "")).splitlines()
    counted = count_cmocka(lines)
    if counted is None and re.search(r"^1\.\.\d+", out, re.M):
        counted = count_tap(out.splitlines())
    if test["result"] == "SKIP" and (counted is None or not counted[2]):
        said = [line.strip() for line in lines if line.strip()]
        return 0, [], [(test["name"], said[-1] if said else "no reason given")]
    fine = test["result"] in MESON_FINE
    if counted is None:
        return (1, [], []) if fine else (0, [test["result"].lower()], [])
    passed, failed, skipped = counted
    if not fine and not failed:
        failed = [test["result"].lower()]
    return passed, failed, skipped


def sweep():
    """Removes what tests that were killed have left: fabrics whose name has the number of a process that is gone."""
    for path in glob.glob(f"/dev/shm/holdfast-{os.getuid()}-*"):
        name = re.fullmatch(r"holdfast-\d+-(?:test|retries|counter)-(?:[a-z]+-)*(\d+)(?:-\d+)?", os.path.basename(path))
        if name and not os.path.exists(f"/proc/{name.group(1)}"):
            shutil.rmtree(path, ignore_errors=True)


def run(build, base, suites, without, processes, wrapper=None):
    """Begins a run of meson: of these suites, or of all but some. Returns it and the path of its log."""
    command = ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--logbase", base,
               "--timeout-multiplier", TIMEOUTS, "--num-processes", str(processes)]
    for option, names in (("--suite", suites), ("--no-suite", without)):
        for name in names:
            command += [option, name]
    if wrapper is not None:
        command += ["--wrapper", wrapper]
        base += "-" + shlex.split(wrapper)[0]  # meson names the log so
    log = os.path.join(build, "meson-logs", base + ".json")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL), log


def run_all(build, suites, without):
    """The exit status, and what the logs say of each test."""
    cores, background = os.cpu_count() or 1, [suite for suite in BACKGROUND if suite not in without and not suites]
    # Two more than there are cores: many tests mostly sleep.
    runs = [run(build, "testlog", suites, without + background, cores + 2)]
    if background:
        runs.append(run(build, "testlog-background", background, without, 1, YIELD))  # each uses all cores itself
    # The first one that is not 0: that of a process killed by a signal is negative.
    status = next((status for status in [process.wait() for process, _ in runs] if status != 0), 0)
    return status, [test for _, log in runs for test in read_log(log)]


def read_log(path):
    with open(path, encoding="utf-8") as log:
        return [json.loads(line) for line in log if line.strip()]


def main():
    parser = argparse.ArgumentParser(description="runs and counts the tests of a build directory")
    parser.add_argument("build")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--suite", action="append", default=[], metavar="SUITE")
    parser.add_argument("--no-suite", action="append", default=[], metavar="SUITE")
    options = parser.parse_args()

    sweep()
    without = options.no_suite + ["window" if options.all else "all"] + ([] if "bench" in options.suite else ["bench"])
    begun = time.monotonic()
    status, tests = run_all(options.build, options.suite, without)

    passed, failed, skipped = 0, [], []
    for test in tests:
        counts = count(test)
        passed += counts[0]
        failed += [f"{test['name']}: {name}" for name in counts[1]]
        skipped += [f"{test['name']}: {name}: {reason}" for name, reason in counts[2]]
    if status != 0 and not failed:
        failed.append(f"meson test: exit status {status}")

    for line in [line for test in tests for line in WINDOW.findall(test.get("stdout", ""))]:
        print(f"\n{line}")
    print("\nslowest:")
    for test in sorted(tests, key=lambda t: -t["duration"])[:SLOWEST_SHOWN]:
        print(f"  {test['duration']:7.1f} s  {test['name']}")
    for title, names in (("skipped:", skipped), ("failed:", failed)):
        if names:
            print(title)
            print("".join(f"  {name}\n" for name in names), end="")
    print(f"\nin {time.monotonic() - begun:.0f} s")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
