"""windows.py - which part of a long list of tests this check runs: a window, which the next commit's check moves on.

The beginning of a window follows from the number of commits. Without history (an archive, a shallow clone) it follows from a
hash of the tree's files.
"""
import hashlib
import os
import subprocess

TREES = ("include", "src", "bench", "sim", "tests", "scripts")
RECENT_COMMITS = 4


def git(source, *arguments):
    """The output of git, or None where it has none for this tree."""
    try:
        done = subprocess.run(["git", "-C", source, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def has_history(source):
    return (git(source, "rev-parse", "--is-shallow-repository") == "false"
            and os.path.realpath(git(source, "rev-parse", "--show-toplevel") or "") == os.path.realpath(source)
            and git(source, "rev-parse", "HEAD") is not None)


def tree_hash(source):
    """A number below 2^16, from the names and contents of the files that windows are of."""
    total = hashlib.sha256()
    for tree in TREES:
        for folder, folders, names in os.walk(os.path.join(source, tree)):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".c", ".h", ".py", ".patch", ".txt")):
                    path = os.path.join(folder, name)
                    total.update(os.path.relpath(path, source).encode() + b"\0")
                    with open(path, "rb") as file:
                        total.update(hashlib.sha256(file.read()).digest())
    return int.from_bytes(total.digest()[:2], "little")


def position(source):
    """(number of the window, where the number comes from)"""
    if has_history(source):
        return int(git(source, "rev-list", "--count", "HEAD")), "commits"
    return tree_hash(source), "hash of the tree, without history"


def touched(source):
    """The files that the last commits, or uncommitted changes, touch; none without history."""
    if not has_history(source):
        return set()
    commits = int(git(source, "rev-list", "--count", "HEAD"))
    base = f"HEAD~{min(RECENT_COMMITS, commits - 1)}"
    return set((git(source, "diff", "--name-only", base) or "").split())
