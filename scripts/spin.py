#!/usr/bin/env python3
"""spin.py BUILD - the protocol models of models/ by spin: each holds as it is, and fails with any one rule left out.

A row of RUNS is one search by pan, spin's generated verifier. A model that holds is searched exhaustively within its
bounds. For a model without a rule a search in random order ends at its first violation; the seed is fixed, so that it
takes the same way each time. TAP, a line a search.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

HOLDS, FAILS = "holds", "fails"
# model, definitions, what it shows, its verdict
RUNS = [
    ("smr", "-DSLOTS=1 -DTRIES=3", "one slot, three attempts to lead", HOLDS),
    ("smr", "-DSLOTS=2 -DTRIES=2", "two slots, two attempts to lead", HOLDS),
    ("smr", "-DSLOTS=1 -DTRIES=3 -DWITHOUT_RS2", "R-S2 left out: check and store on two loops", FAILS),
    ("smr", "-DSLOTS=1 -DTRIES=3 -DWITHOUT_RS4", "R-S4 left out: no promise before an accept", FAILS),
    ("smr", "-DSLOTS=1 -DTRIES=3 -DWITHOUT_RS5", "R-S5 left out: on below a majority, promises unread", FAILS),
    ("smr", "-DSLOTS=1 -DTRIES=3 -DWITHOUT_RS6", "R-S6 left out: tags unchecked", FAILS),
    ("smr", "-DSLOTS=2 -DTRIES=2 -DWITHOUT_RS9", "R-S9 left out: commit by the next full slot", FAILS),
    ("kv", "-DWRITES=3 -DRMWS=1 -DCRASHES=1", "three writes, one of them an RMW, one crash", HOLDS),
    ("kv", "-DWRITES=1 -DCRASHES=2", "one write, two crashes", HOLDS),
    ("kv", "-DWITHOUT_RK2", "R-K2 left out: ACKs outlive an epoch", FAILS),
    ("kv", "-DWITHOUT_RK5", "R-K5 left out: timestamps without the join epoch", FAILS),
    ("kv", "-DWITHOUT_RK11", "R-K11 left out: missed is what was validated", FAILS),
    ("kv", "-DWITHOUT_RK12", "R-K12 left out: an equal timestamp is committed", FAILS),
    ("kv", "-DWITHOUT_RK13", "R-K13 left out: doubt outranks an INV", FAILS),
    ("kv", "-DWITHOUT_RK14", "R-K14 left out: no answer when the doubt has ended", FAILS),
    ("kv", "-DWITHOUT_RK18", "R-K18 left out: any member is a buddy, at once", FAILS),
    ("kv", "-DWRITES=3 -DRMWS=1 -DCRASHES=1 -DWITHOUT_RK30", "R-K30 left out: a VAL of an obsolete write", FAILS),
    ("kv", "-DWITHOUT_MOVED", "K3: a listed record that changes before its turn is not sent", FAILS),
    ("lease", "", "two members decide by turns", HOLDS),
    ("lease", "-DWITHOUT_TAKEOVER", "R-K21: a new leader counts its own grants alone", FAILS),
    ("lease", "-DWITHOUT_REFUSAL", "R-K21: a suspected member is granted leases", FAILS),
    ("lease", "-DWITHOUT_WAIT", "R-K21: an exclusion waits for no lease", FAILS),
]
CLAIMS = {"smr": "one value for each index", "kv": "K1 or K2", "lease": "no exclusion before the end of a lease"}
SECONDS = 1800  # a search that hangs; a slow machine is none
PAN_MEMORY_MB = 2000


def search(source, build, number, model, definitions, verdict):
    """(whether the verdict is as expected, a line about the search)."""
    directory = os.path.join(build, "models", f"{number}-{model}")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)

    def run(*command):
        return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, timeout=SECONDS, check=False)

    made = run("spin", "-a", *definitions.split(), os.path.join(source, "models", model + ".pml"))
    if made.returncode == 0:
        # pan.c is one large function: compiling takes longer than a search that ends at its first violation.
        made = run("cc", "-w", "-O0" if verdict == FAILS else "-O1", "-DSAFETY", "-DCOLLAPSE", "-DT_RAND", "-DP_RAND", f"-DMEMLIM={PAN_MEMORY_MB}",
                   "-o", "pan", "pan.c")
    if made.returncode != 0:
        return False, "the model could not be made: " + made.stdout.strip()[-300:]
    try:
        said = run("./pan", "-m2000", "-RS1").stdout
    except subprocess.TimeoutExpired:
        return False, f"not done after {SECONDS} s"
    errors = re.search(r"errors: (\d+)", said)
    states = re.search(r"(\d+) states, stored", said)
    incomplete = re.search(r"max search depth too small|out of memory|memory limit", said)
    if not errors or not states or incomplete:
        return False, "the search is not complete: " + said.strip()[-300:]
    violated = "assertion violated" in said
    good = violated if verdict == FAILS else errors.group(1) == "0"
    return good, f"{states.group(1)} states, {CLAIMS[model] + ' broken' if violated else errors.group(1) + ' errors'}"


def main():
    build = os.path.abspath(sys.argv[1])
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not shutil.which("spin"):
        print("1..0 # SKIP spin is not installed: scripts/deps.sh build")
        return 0
    print(f"1..{len(RUNS)}", flush=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda at: search(source, build, at[0], at[1][0], at[1][1], at[1][3]), enumerate(RUNS, 1))
        for number, ((model, _, what, verdict), (good, line)) in enumerate(zip(RUNS, results), 1):
            failed = failed or not good
            print(f"{'ok' if good else 'not ok'} {number} - {model}, {what}: {verdict}: {line}".replace("#", ""),
                  flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
