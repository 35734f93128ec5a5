"""Damage of files on disk, for tests of every service: places and kinds, and directories that are put back as they were.

A directory is put back into the same files, because a copy of a mark is another file, which proves less (R-D9).
"""
import pathlib

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


class Tree:
    """What a directory has, and how it gets that again."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.files = {str(path.relative_to(self.directory)): path.read_bytes()
                      for path in sorted(self.directory.rglob("*")) if path.is_file()}

    def put_back(self):
        for path in sorted(self.directory.rglob("*"), reverse=True):
            if path.is_file() and str(path.relative_to(self.directory)) not in self.files:
                path.unlink()
        for name, data in self.files.items():
            write(self.directory / name, data)


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
