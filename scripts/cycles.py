#!/usr/bin/env python3
"""cycles.py [--root DIR] [--calls] - the largest cycle of calls between the files of src.

A file calls another when one of its functions calls, by name, a function that is defined there. A function whose
address is registered and called through a pointer does not count: that is how a layer lets another one call back.
Files that reach one another by such calls are one cycle, which has to be read, tested and changed as one piece.

Prints the largest cycle: its files with their lines; with --calls also each call inside it. Fails when a cycle has
more than 12 files or 3,000 lines.
"""
import argparse
import os
import re
import sys

from tidy import blank, line_of

FILES, LINES = 12, 3000  # of a cycle, at most

DEFINITION = re.compile(r"^(?P<static>static )?(?!typedef|struct \w+ \{|union \w+ \{|enum \w+ \{)[\w *]*?\b(?P<name>\w+)\(",
                        re.M)
CALL = re.compile(r"(?<![\w.>])(\w+)\s*\(")
NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "defined", "_Static_assert", "__attribute__"}


class File:
    """One file of src: what it defines, and what it calls and where."""

    def __init__(self, path, text):
        self.path, self.lines = path, text.count("\n")
        self.static, self.public, self.calls = set(), set(), []
        code = blank(text, keep_strings=False)
        end = 0
        for body in re.finditer(r"^\{\n(.*?)^\}", code, re.M | re.S):
            head = re.sub(r"__attribute__\(\(.*?\)\) ?", "", code[end:body.start()])
            end = body.end()
            found = list(DEFINITION.finditer(head))
            if not found:
                continue
            name = found[-1]
            (self.static if name.group("static") else self.public).add(name.group("name"))
            first = line_of(code, body.start())
            for call in CALL.finditer(body.group(1)):
                if call.group(1) not in NOT_CALLS:
                    self.calls.append((call.group(1), first + line_of(body.group(1), call.start()), name.group("name")))


def files_of(root):
    for folder, folders, names in os.walk(os.path.join(root, "src")):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    yield File(os.path.relpath(path, root), file.read())


def graph_of(files):
    """Of each file: the files that it calls, each with the calls."""
    owners = {}
    for file in files:
        for name in file.public:
            owners.setdefault(name, []).append(file)
        if file.path.endswith(".h"):
            for name in file.static:
                owners.setdefault(name, []).append(file)
    edges = {file: {} for file in files}
    for file in files:
        for name, line, caller in file.calls:
            if name in file.static or name in file.public:
                continue
            for owner in owners.get(name, []):
                edges[file].setdefault(owner, []).append((name, line, caller))
    return edges


def cycles_of(edges):
    """Tarjan's strongly connected components with more than one file."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in edges[file]:
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(stack[at:])
            del stack[at:]

    for file in edges:
        if file not in index:
            visit(file)
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description="the largest cycle of calls between files of src")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--calls", action="store_true", help="print each call inside the largest cycle")
    arguments = parser.parse_args(arguments)
    sys.setrecursionlimit(10000)
    edges = graph_of(list(files_of(os.path.normpath(arguments.root))))
    cycles = sorted(cycles_of(edges), key=lambda cycle: -sum(file.lines for file in cycle))
    if not cycles:
        print("cycles: no two files of src call each other")
        return 0
    for file in sorted(cycles[0], key=lambda file: file.path):
        print(f"{file.lines:6} {file.path}")
        for other, calls in sorted(edges[file].items(), key=lambda pair: pair[0].path) if arguments.calls else []:
            if other in cycles[0]:
                print("           -> " + other.path + ": " + ", ".join(
                    sorted({f"{caller} calls {name} (line {line})" for name, line, caller in calls})))
    failed = False
    for cycle in cycles:
        lines = sum(file.lines for file in cycle)
        if len(cycle) > FILES or lines > LINES:
            failed = True
            print(f"cycles: {len(cycle)} files with {lines} lines call each other, at most {FILES} files and {LINES} lines; "
                  f"{min(file.path for file in cycle)} is one of them: let the lower file register what it tells the "
                  "higher one, or leave a mark that the higher one reads")
    if not failed:
        print(f"cycles: the largest has {len(cycles[0])} files and {sum(file.lines for file in cycles[0])} lines")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
