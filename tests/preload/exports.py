#!/usr/bin/env python3
"""exports.py LIBRARY NEWEST - what the library exports beside the libibverbs of this machine, TAP.

Every public function of libibverbs is there under the same versions, also those of the newest rdma-core, which NEWEST
lists, and nothing else is.
"""
import re
import subprocess
import sys

PRIVATE = {"ibv_query_gid_type"}  # of ibv_devinfo


def exported(library):
    """{(name, version)} of the functions of a library."""
    table = subprocess.run(["readelf", "-Ws", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"FUNC +GLOBAL +DEFAULT +\d+ (\w+)@@?(IBVERBS_\w[\w.]*)", table))


def libibverbs():
    for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines():
        if "libibverbs.so.1 " in line:
            return line.split("=> ")[1]
    return None


def main():
    theirs_path = libibverbs()
    ours = exported(sys.argv[1])
    theirs = exported(theirs_path) if theirs_path is not None else set()
    newest = {tuple(line.split()) for line in open(sys.argv[2])}
    public = {symbol for symbol in theirs if "PRIVATE" not in symbol[1]}
    soname = subprocess.run(["readelf", "-d", sys.argv[1]], capture_output=True, text=True, check=True).stdout
    points = [("every public function of the newest rdma-core is exported", newest - ours),
              ("every public function of the machine's rdma-core is exported", public - ours),
              ("nothing else is", {symbol for symbol in ours - newest - public if symbol[0] not in PRIVATE}),
              ("the library does not pass for libibverbs", set(re.findall(r"SONAME.*libibverbs", soname)))]
    print(f"1..{len(points)}")
    for number, (sentence, bad) in enumerate(points, 1):
        if number == 2 and theirs_path is None:
            print(f"ok {number} - {sentence} # SKIP no libibverbs on this machine")
            continue
        print(f"{'not ok' if bad else 'ok'} {number} - {sentence}" + "".join(f"\n# {symbol}" for symbol in sorted(bad)))
    return any(bad for _, bad in points)


if __name__ == "__main__":
    sys.exit(main())
