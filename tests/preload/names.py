#!/usr/bin/env python3
"""names.py HOLDFAST LIBRARY PROGRAM NEWEST - look-ups by programs that open libibverbs themselves, TAP.

PROGRAM is names.c; names_ctypes.py does the same in Python. NEWEST lists the functions of the newest rdma-core; those
of the machine's come from the library itself.
"""
import os
import subprocess
import sys
import tempfile

import exports

HOLDFAST, LIBRARY, PROGRAM, NEWEST = sys.argv[1:]
OURS, REAL = os.path.basename(LIBRARY), "libibverbs.so.1"
CTYPES = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "names_ctypes.py")]


def found(command, names):
    """{(name, version): file} as the program says; its defaults under the version "default"."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name} {version}\n" for name, version in names)
        file.flush()
        at = command.index("LIST")
        done = subprocess.run(command[:at] + [file.name] + command[at + 1:], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {(name, version): file for name, version, file in lines}


def wrong(command, names):
    bad = []
    for (name, version), file in found(command, names).items():
        private = "PRIVATE" in version or (version == "default" and (name, "IBVERBS_1.0") not in names and
                                           not any(n == name and "PRIVATE" not in v for n, v in names))
        wanted = REAL if private and name not in exports.PRIVATE else OURS
        if version == "default" and name == "ibv_register_driver":
            wanted = "none"  # there is an old version only
        if os.path.realpath(file) != os.path.realpath(wanted) and not (wanted == REAL and file.startswith("libibverbs")):
            bad.append(f"{name}@{version}: {file}")
    return bad


def main():
    path = exports.libibverbs()
    newest = {tuple(line.split()) for line in open(NEWEST)}
    points = [("under run, C finds each function of the machine's rdma-core", [HOLDFAST, "run", "--", PROGRAM, "LIST"], None),
              ("under run, C finds each function of the newest rdma-core", [HOLDFAST, "run", "--", PROGRAM, "LIST"], newest),
              ("under run, ctypes does, of the machine's", [HOLDFAST, "run", "--", *CTYPES, "LIST"], None),
              ("under run, ctypes does, of the newest", [HOLDFAST, "run", "--", *CTYPES, "LIST"], newest),
              ("in our library, opened by its path, are those of the newest", [PROGRAM, "LIST", LIBRARY], newest)]
    print(f"1..{len(points)}")
    failed = 0
    for number, (sentence, command, names) in enumerate(points, 1):
        if path is None:
            print(f"ok {number} - {sentence} # SKIP no libibverbs on this machine")
            continue
        bad = wrong(command, names or exports.exported(path))
        failed += bool(bad)
        print(f"{'not ok' if bad else 'ok'} {number} - {sentence}" + "".join(f"\n# {line}" for line in bad))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
