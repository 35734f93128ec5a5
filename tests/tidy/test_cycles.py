#!/usr/bin/env python3
"""scripts/cycles.py finds the calls between files and the cycles that they make, and refuses one that is too large. TAP."""
import contextlib
import io
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
sys.dont_write_bytecode = True
import cycles  # noqa: E402


def function(name, *calls, static=False, lines=0):
    body = "".join(f"\t{call}();\n" for call in calls) + "\t;\n" * lines
    return f"{'static ' if static else ''}void {name}(void)\n{{\n{body}}}\n"


def ring(files, lines=0):
    """Each file calls the next one, the last one the first."""
    return {f"f{n}.c": function(f"f{n}", f"f{(n + 1) % files}", lines=lines) for n in range(files)}


TWO = {"a.c": function("a", "b"), "b.c": function("b", "a")}
CASES = [
    # sentence, files, the largest cycle, accepted
    ("two files that call each other are a cycle", TWO, ["a.c", "b.c"], True),
    ("a chain is no cycle", {"a.c": function("a", "b"), "b.c": function("b", "c"), "c.c": function("c")}, [], True),
    ("a function that is registered is not called", {**TWO, "b.c": "void b(void)\n{\n\tstruct s s = {.x = a};\n}\n"}, [],
     True),
    ("a call through a pointer is none by name", {**TWO, "b.c": "void b(void)\n{\n\tops->a();\n\tops.a();\n}\n"}, [], True),
    ("a static function is that of its own file",
     {**TWO, "b.c": function("a", static=True) + function("b", "a")}, [], True),
    ("a call in a comment or a string is none", {**TWO, "b.c": 'void b(void)\n{\n\t/* a() */ s = "a()";\n}\n'}, [], True),
    ("a function of a header is one of that file",
     {"a.c": function("a", "b"), "b.h": "static inline void b(void)\n{\n\ta();\n}\n"}, ["a.c", "b.h"], True),
    ("a head of several lines belongs to its function",
     {**TWO, "b.c": "static const struct x *\nb(\n\tint one, int two)\n{\n\ta();\n}\nint b(int one,\n\tint two)\n{\n\ta();\n}\n"},
     ["a.c", "b.c"], True),
    ("a cycle has at most 12 files", ring(12), [f"f{n}.c" for n in range(12)], True),
    ("and is refused with 13", ring(13), [f"f{n}.c" for n in range(13)], False),
    ("a cycle has at most 3,000 lines", ring(2, 1496), ["f0.c", "f1.c"], True),
    ("and is refused with more", ring(2, 1497), ["f0.c", "f1.c"], False),
]


def run(files):
    with tempfile.TemporaryDirectory(prefix="holdfast-cycles-") as root:
        os.mkdir(os.path.join(root, "src"))
        for name, text in files.items():
            with open(os.path.join(root, "src", name), "w", encoding="utf-8") as file:
                file.write(text)
        found = cycles.cycles_of(cycles.graph_of(list(cycles.files_of(root))))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = cycles.main(["--root", root])
    largest = max(found, key=len, default=[])
    return sorted(os.path.basename(file.path) for file in largest), status == 0, said.getvalue()


def main():
    print(f"1..{len(CASES)}")
    all_fine = True
    for number, (sentence, files, cycle, accepted) in enumerate(CASES, 1):
        found, status, said = run(files)
        fine = found == sorted(cycle) and status == accepted and (accepted or "register" in said)
        all_fine &= fine
        print(f"{'ok' if fine else 'not ok'} {number} - {sentence}")
        for line in [] if fine else (f"{found} {status} {said}").splitlines():
            print(f"# {line}")
    return 0 if all_fine else 1


if __name__ == "__main__":
    sys.exit(main())
