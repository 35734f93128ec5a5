#!/usr/bin/env python3
"""exports.py LIBRARY - what the library exports beside the libibverbs of this machine, TAP.

Every function of libibverbs that takes a handle is there under the same version, and nothing else is.
"""
import re
import subprocess
import sys

# What takes no handle of a device; a program goes on to have these from libibverbs.
WITHOUT_HANDLE = re.compile(
    r"ibv_(\w+_str|rate_to_\w+|copy_\w+_kern|fork_init|is_fork_initialized|do(nt)?fork_range|get_sysfs_path"
    r"|read_sysfs_file|register_driver)$|(mbps|mult)_to_ibv_rate$")
PRIVATE = {"ibv_query_gid_type": "IBVERBS_PRIVATE_34"}  # of ibv_devinfo


def exported(library):
    """{name: default version} of the functions of a library."""
    table = subprocess.run(["readelf", "-Ws", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in table.splitlines():
        symbol = re.search(r"FUNC +GLOBAL +DEFAULT +\d+ (\w+)@@(\w+)", line)
        if symbol:
            found[symbol.group(1)] = symbol.group(2)
    return found


def libibverbs():
    for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines():
        if "libibverbs.so.1 " in line:
            return line.split("=> ")[1]
    return None


def main():
    theirs_path = libibverbs()
    print("1..3")
    if theirs_path is None:
        for number in (1, 2, 3):
            print(f"ok {number} # SKIP no libibverbs on this machine")
        return 0
    ours, theirs = exported(sys.argv[1]), exported(theirs_path)
    public = {name: version for name, version in theirs.items()
              if "PRIVATE" not in version and not WITHOUT_HANDLE.match(name)}
    missing = sorted(set(public) - set(ours))
    wrong = sorted(name for name, version in ours.items() if {**public, **PRIVATE}.get(name) != version)
    soname = subprocess.run(["readelf", "-d", sys.argv[1]], capture_output=True, text=True, check=True).stdout
    points = [("every verb that takes a handle is exported", missing), ("nothing else is, nor under another version", wrong),
              ("the library does not pass for libibverbs", re.findall(r"SONAME.*libibverbs", soname))]
    for number, (sentence, bad) in enumerate(points, 1):
        print(f"{'not ok' if bad else 'ok'} {number} - {sentence}" + (f"\n# {' '.join(bad)}" if bad else ""))
    return any(bad for _, bad in points)


if __name__ == "__main__":
    sys.exit(main())
