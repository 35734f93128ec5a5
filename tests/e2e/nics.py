"""What the program says and does on machines with and without RDMA NICs: nics.py HOLDFAST NONE MACHINE EMPTY.

Each machine is a libibverbs of its own, found before the host's: NONE has no NICs, MACHINE has some (machine.c), EMPTY
lacks every function. A machine without any libibverbs is a file system with the program and what it is linked to.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import program

NONE, MACHINE, EMPTY = (pathlib.Path(path).resolve() for path in sys.argv[2:5])


def _on(library, directory, *arguments):
    """Runs the program with that libibverbs."""
    link = pathlib.Path(directory) / "libibverbs.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(library)
    return subprocess.run([program.HOLDFAST, *arguments], cwd=directory, text=True, capture_output=True, check=False,
                          env=dict(program.environment(directory), LD_LIBRARY_PATH=str(directory)),
                          timeout=program.RUN_LIMIT_S, stdin=subprocess.DEVNULL)


def _listed_on(library, directory):
    """What it prints in words, and as JSON of the device verbs."""
    words, listed = _on(library, directory, "devices"), _on(library, directory, "devices", "--json")
    assert words.returncode == 0 and listed.returncode == 0, words.stderr + listed.stderr
    return words.stdout, {device["device"]: device for device in json.loads(listed.stdout)}["verbs"]


def _bare_root(directory):
    """The program, what it is linked to, and nothing else. Returns the words that run it there."""
    root = pathlib.Path(directory) / "root"
    linked = subprocess.run(["ldd", program.HOLDFAST], text=True, capture_output=True, check=True).stdout
    if "asan" in linked or "tsan" in linked:
        raise program.Skip("a sanitizer needs more of a system than there is")
    files = re.findall(r"(/\S+) \(0x", linked)
    assert files and not any("ibverbs" in file for file in files), linked
    for file in files:
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for name in ("dev/shm", "proc", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(program.HOLDFAST, root / "holdfast")
    (root / "dev/null").touch()
    (root / "input").write_bytes(os.urandom(100_000))
    enter = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
             'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"', str(root)]
    if subprocess.run([*enter, "/holdfast", "version"], capture_output=True, check=False).returncode != 0:
        raise program.Skip("no other root with /proc can be entered here")
    return enter


def without_libibverbs_all_but_verbs_runs_and_it_says_what_to_install(directory):
    enter = _bare_root(directory)

    def run(*arguments):
        return subprocess.run([*enter, "/holdfast", *arguments], text=True, capture_output=True, check=False,
                              env=dict(os.environ, TMPDIR="/tmp"), timeout=program.RUN_LIMIT_S, stdin=subprocess.DEVNULL)

    remedy = "apt-get install libibverbs1 ibverbs-providers"
    words = run("devices")
    assert words.returncode == 0 and "verbs cannot be used here" in words.stdout and remedy in words.stdout, words
    refused = run("demo", "--quick", "--device", "verbs", "--input", "/input")
    assert refused.returncode != 0 and remedy in refused.stderr, refused
    moved = run("demo", "--quick", "--device", "soft", "--input", "/input", "--output", "/tmp")
    assert moved.returncode == 0 and "nothing lost" in moved.stdout, moved


def a_library_that_cannot_be_loaded_or_is_too_old_is_named_with_the_remedy(directory):
    broken = pathlib.Path(directory) / "broken"
    broken.write_bytes(b"")
    words, verbs = _listed_on(broken, directory)
    assert "file too short" in words and verbs["unavailable"] in words, words
    words, verbs = _listed_on(EMPTY, directory)
    assert "rdma-core 44 or later" in words and verbs["unavailable"] in words, words


def a_library_without_nics_is_no_error(directory):
    words, verbs = _listed_on(NONE, directory)
    assert "This machine has no RDMA NIC" in words and verbs["nics"] == [], words
    assert "not run on hardware yet" in words
    refused = _on(NONE, directory, "demo", "--quick", "--device", "verbs", "--input", program.make_input(directory))
    assert refused.returncode != 0 and "no RDMA NIC" in refused.stderr, refused


def each_port_is_listed_with_what_can_be_said_of_it(directory):
    words, verbs = _listed_on(MACHINE, directory)
    lines = {line.split()[0]: line for line in words.split("RDMA NICs of this machine")[1].splitlines()[1:]}
    assert list(lines) == [nic["nic"] for nic in verbs["nics"]] == \
        ["mlx5_0/1", "mlx5_0/2", "rxe0/1", "siw0/1", "ib0/1", "mine"], words
    assert "10.0.0.1" in lines["mlx5_0/1"] and "up" in lines["mlx5_0/1"] and "MTU 4096" in lines["mlx5_0/1"]
    assert "10.0.1.1" in lines["mlx5_0/2"] and "down" in lines["mlx5_0/2"]
    assert all(("not run on hardware yet" in line) == ("mlx5" in name) for name, line in lines.items()), words
    for name, reason in (("siw0/1", "iWARP completes what it sent, not what executed"), ("ib0/1", "InfiniBand"),
                         ("mine", "Permission denied")):
        assert "cannot be a rail: " in lines[name] and reason in lines[name], lines[name]


def an_address_that_no_port_has_is_answered_with_the_ports_there_are(directory):
    refused = _on(MACHINE, directory, "demo", "--quick", "--device", "verbs", "--base", "10.9.9.1",
                 "--input", program.make_input(directory))
    assert refused.returncode != 0 and "no RDMA port has the address 10.9.9." in refused.stderr and \
        "mlx5_0/1, mlx5_0/2, rxe0/1, siw0/1, ib0/1, mine (which cannot be opened)" in refused.stderr, refused


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
