#!/usr/bin/env python3
"""seeds.py BUILD [--all [SEEDS]] - runs the scenarios of the simulator that sim/seeds.txt lists.

Without --all: each named seed, and of each scenario a window of new seeds (windows.py). All scenarios have the same share of
WINDOWS_MS, so that windows shrink when scenarios are added. With --all: the first SEEDS (1000) seeds of each scenario.
TAP, a line for each run. A violated seed is printed with the command that repeats it, and the line that keeps it.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

import windows

SIMULATOR = "holdfast-sim"
WINDOWS_MS = 160_000  # CPU time of all windows together
CHUNK = 250  # seeds of one run with --all
RUN_SECONDS = 7200  # a run that hangs; a slow machine is none


class Scenario:
    def __init__(self, name, cost_ms, first=None, cases=None):
        self.name, self.cost_ms, self.first, self.cases = name, cost_ms, first, cases

    def window(self, number, share_ms):
        size = max(1, int(share_ms / self.cost_ms))
        if self.cases is None:
            return 1 + number * size, size
        size = min(size, self.cases)
        steps = (self.cases + size - 1) // size
        begin = number % steps * size
        return self.first + begin, min(size, self.cases - begin)

    def everything(self, seeds):
        if self.cases is not None:
            return [(self.first, self.cases)]
        return [(1 + begin, min(CHUNK, seeds - begin)) for begin in range(0, seeds, CHUNK)]


def read_list(path):
    """(scenarios, named seeds) of sim/seeds.txt."""
    scenarios, named = [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "scenario" and len(words) in (3, 6):
                cases = (int(words[4]), int(words[5])) if len(words) == 6 and words[3] == "cases" else ()
                scenarios.append(Scenario(words[1], float(words[2]), *cases))
            elif words[0] == "seed" and len(words) == 3:
                named.append((words[1], int(words[2])))
            else:
                raise SystemExit(f"{path}:{number}: neither \"scenario NAME MS [cases FIRST COUNT]\" nor \"seed NAME SEED\"")
    return scenarios, named


def unlisted(simulator, scenarios):
    """Scenarios of the simulator without a line, and lines without a scenario."""
    said = subprocess.run([simulator, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    known = set(re.findall(r"^[ *] ([a-z][a-z0-9-]*) ", said, re.M))
    return known ^ {scenario.name for scenario in scenarios}


def run(simulator, name, first, count):
    """(the line of TAP, further lines)"""
    command = [simulator, "--scenario", name, "--first", str(first), "--seeds", str(count), "--jobs", "1"]
    what = f"{name}: " + (f"seed {first}" if count == 1 else f"seeds {first} to {first + count - 1}")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return False, what, [f"took more than {RUN_SECONDS} s: {' '.join(command)}"]
    if done.returncode == 0:
        return True, what, []
    found = re.findall(r"^(?:VIOLATION|DIED in) seed (\d+)", done.stdout, re.M)
    more = done.stdout.splitlines()[-20:]
    for seed in found:
        more += [f"repeat it: {simulator} --scenario {name} --seed {seed} --trace",
                 f"keep it:   add to sim/seeds.txt: seed {name} {seed} # the fault"]
    return False, what, more


def main():
    parser = argparse.ArgumentParser(description="runs seeds of the simulator")
    parser.add_argument("build")
    parser.add_argument("--all", nargs="?", type=int, const=1000, metavar="SEEDS")
    options = parser.parse_args()

    source = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    simulator = os.path.join(os.path.abspath(options.build), SIMULATOR)
    scenarios, named = read_list(os.path.join(source, "sim", "seeds.txt"))
    strays = unlisted(simulator, scenarios)

    if options.all is None:
        number, origin = windows.position(source)
        share = WINDOWS_MS / len(scenarios)
        jobs = [(scenario, *scenario.window(number, share)) for scenario in scenarios]
        print(f"# windows of seeds, number {number} ({origin}): " + ", ".join(
            f"{scenario.name} {first}-{first + count - 1}" for scenario, first, count in jobs))
    else:
        jobs = [(scenario, *part) for scenario in scenarios for part in scenario.everything(options.all)]
    jobs.sort(key=lambda job: -job[0].cost_ms * job[2])  # the longest first, so that none is left alone at the end
    runs = [(scenario.name, first, count) for scenario, first, count in jobs] + [(name, seed, 1) for name, seed in named]

    print(f"1..{len(runs) + 1}")
    right = not strays
    print(f"{'ok' if right else 'not ok'} 1 - sim/seeds.txt lists each scenario: {' '.join(sorted(strays))}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        results = pool.map(lambda job: run(simulator, *job), runs)
        for number, (passed, what, more) in enumerate(results, 2):
            right &= passed
            print(f"{'ok' if passed else 'not ok'} {number} - {what}", flush=True)
            print("".join(f"# {line}\n" for line in more), end="")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
