"""Damage of files on disk, for tests of every service: places and kinds, and directories that are put back as they were.

A directory is put back into the same files, because a copy of a mark is another file, which proves less (R-D9).
"""
import pathlib
import random
import shutil
import signal

import program

PAGE = 4096


def _used(data):
    """How much of a file is not zeros at its end."""
    return len(data.rstrip(b"\0"))


def _flip(data, at):
    return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1:]


def _head(data, used):
    return _flip(data, min(9, used - 1))


def _middle(data, used):
    return _flip(data, used // 2)


def _tail(data, used):
    return _flip(data, used - 1)


def _zeroed(data, used):
    begin = used // 2 // PAGE * PAGE
    return data[:begin] + bytes(min(PAGE, used - begin)) + data[begin + PAGE:]


def _truncated(data, used):
    return data[:used * 2 // 3]


def _missing(_data, _used):
    return None


CHANGES = {"head": _head, "middle": _middle, "tail": _tail, "zeroed": _zeroed, "truncated": _truncated, "missing": _missing}
COPIES = ("older", "another's")
KINDS = tuple(CHANGES) + COPIES
ALL = "all files"  # of a directory, of which there are copies only


class Tree:
    """What a directory has, and how it gets that again."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.files = {str(path.relative_to(self.directory)): path.read_bytes()
                      for path in sorted(self.directory.rglob("*")) if path.is_file()}

    def put_back(self, directory=None):
        directory = directory or self.directory
        for path in sorted(directory.rglob("*"), reverse=True):
            if path.is_file() and str(path.relative_to(directory)) not in self.files:
                path.unlink()
        for name, data in self.files.items():
            write(directory / name, data)


def write(path, data):
    """Into the file that is there, if one is; None: there is none."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "r+b" if path.exists() else "wb") as out:
        out.write(data)
        out.truncate()


def damage(tree, name, kind, older, another):
    """Damages the file `name` of a tree that was put back; `older` and `another` are trees of the same directory before, and
    of another member. False: that kind is nothing for this file."""
    data = tree.files[name]
    if kind in COPIES:
        source = older if kind == "older" else another
        changed = source and source.files.get(name)
        if changed is None:
            return False
    else:
        if _used(data) == 0 and kind != "missing":
            return False
        changed = CHANGES[kind](data, _used(data))
    if changed == data:
        return False
    write(tree.directory / name, changed)
    return True


# ---- a member with peers ----


def come_back(cluster, begin, victim, tree, named):
    """Starts the members `begin`. What is wrong with the victim, which has damaged files, then; None: nothing. It may say why it
    ends, and comes back when it is started again, or with the files that it had."""
    before = len(cluster.log(victim))
    for member in begin:
        cluster.start(member)
    if cluster.has_ended(victim):
        words = cluster.log(victim)[before:]
        if named not in words:
            return f"it ended without naming {named}: {words[-500:]}"
        cluster.stop(victim)
        cluster.start(victim)
        if cluster.has_ended(victim):
            cluster.stop(victim)
            tree.put_back()
            cluster.start(victim)
    cluster.wait_back(victim)
    return cluster.lost(victim)


def _newest(tree, file):
    return max((name for name in tree.files if name.startswith(file)), default=None)


def _replace(tree, copies, chance):
    """All files, by those of a copy; False: all are the same."""
    copies = [copy for copy in copies if copy.files != tree.files]
    if not copies:
        return False
    if chance.random() < 0.5:
        shutil.rmtree(tree.directory)  # else the mark names these very files, and proves more (R-D9)
    chance.choice(copies).put_back(tree.directory)
    return True


def _damage_one(tree, file, kind, olders, another, chance):
    """Returns the name of what is damaged; None: there is nothing of that kind."""
    if file == ALL:
        return ALL if _replace(tree, olders if kind == "older" else [another], chance) else None
    name = _newest(tree, file)
    if name is None:
        return None
    another.files[name] = another.files.get(_newest(another, file))  # its name may be another there
    tries = chance.sample(olders, len(olders)) if kind == "older" else [None]
    return name if any(damage(tree, name, kind, older, another) for older in tries) else None


def run_with_peers(cluster, files, kinds, rounds, seed):
    """One member after the other is stopped, has a file damaged whose name begins with one of `files`, and is started again: it
    has all that was acknowledged until then, or ends with words that name the file, and has all with the files that it had.
    `rounds` cases, by the seed; 0: all. A cluster has, beside what its name says: olders(i), trees of when member i had less;
    more(), which adds records; wait_back(i), until it counts again; lost(i), which says what is not there."""
    program.say(f"# with peers: seed {seed}")
    wrong, ran, chance = [], 0, random.Random(seed)
    cases = [(kind, file) for file in files for kind in kinds if file != ALL or kind in COPIES]
    for kind, file in chance.sample(cases, len(cases)):
        if ran == (rounds or len(cases)):
            break
        victim, how = chance.randrange(cluster.count), chance.choice((signal.SIGKILL, signal.SIGTERM))
        olders = cluster.olders(victim)
        cluster.stop(victim, how)
        tree, another = Tree(cluster.files(victim)), Tree(cluster.files((victim + 1) % cluster.count))
        what = _damage_one(tree, file, kind, olders, another, chance)
        ran += what is not None
        cluster.more()
        fault = come_back(cluster, [victim], victim, tree, str(tree.directory) if what == ALL or kind == "another's" else str(what))
        if fault is not None:
            wrong.append(f"{what}, {kind}, at member {victim} after {how.name}: {fault}")
    assert ran > 0 and not wrong, f"{len(wrong)} of {ran} cases:\n" + "\n".join(wrong)
    program.say(f"# with peers: {ran} cases, none loses")
