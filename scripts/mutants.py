#!/usr/bin/env python3
"""mutants.py BUILD [--write] [--window | NAME...] - proves that the simulator, or a unit test, catches the bugs it is there to catch.

A mutant is sim/mutants/NAME.patch: a change of one or more .c files of the product that breaks one rule. Above the
diff it says, one a line:

    Breaks: the rule, and what goes wrong then
    Run: arguments of holdfast-sim that find it
    Caught by: words that the simulator's verdict must contain
    Seed: one of these seeds that finds it (--write puts it there)

Instead of `Run:` and `Seed:` it may have the unit test that finds it, for bugs that no honest peer in the simulator shows:

    Test: a program below BUILD and its arguments; its output must contain the words of `Caught by:`, and not only
          where cmocka names a test that passed

The patch is applied to a copy below BUILD/mutants, the changed files are compiled with the commands of BUILD and linked
in front of the product's archive; nothing in the product knows about it. A mutant is caught when the simulator
fails with those words in some seed, and the unchanged simulator finds nothing in it. The seed that is known to find it is
tried first; where it does not any more, the whole run follows, up to the first seed that does, which is told. TAP, a line
a mutant.

With --window: a window of the mutants (windows.py), and all mutants of the files that the last commits touch.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import windows

SIMULATOR = "holdfast-sim"
RUN_SECONDS = 1800  # a run that hangs; a slow machine is none
WINDOW = 16  # mutants of a window
PART = 16  # seeds of one run of the simulator
PASSED = re.compile(r"^\[       OK \] (\S+)$", re.M)  # of cmocka


class Broken(Exception):
    """The mutant could not be made or run: neither caught nor missed."""


def run(command, cwd, seconds=RUN_SECONDS, text=None):
    try:
        return subprocess.run(command, cwd=cwd, input=text, stdin=None if text else subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=seconds)
    except subprocess.TimeoutExpired as late:
        raise Broken(f"{' '.join(command[:3])} ... took more than {seconds} s") from late


def lines_but_of_passed(said):
    passed = set(PASSED.findall(said))
    return [line for line in said.splitlines() if not (line.startswith("[ ") and line.split()[-1] in passed)]


def field(text, name):
    found = re.search(rf"^{name}:[ \t]*(.+)$", text.split("\n--- ")[0], re.M)
    return found.group(1).strip() if found else None


class Mutant:
    def __init__(self, path, source, build):
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.name = os.path.basename(path)[:-len(".patch")]
        self.source, self.build = source, build
        self.tree = os.path.join(build, "mutants", self.name)
        self.breaks, self.caught_by = field(self.text, "Breaks"), field(self.text, "Caught by")
        self.arguments = shlex.split(field(self.text, "Run") or "")
        self.path, self.seed, self.found = path, field(self.text, "Seed"), None
        self.test = shlex.split(field(self.text, "Test") or "")
        self.program = self.test[0] if self.test else SIMULATOR

    def files(self):
        return re.findall(r"^\+\+\+ b/(\S+)", self.text, re.M)

    def patch(self):
        files = self.files()
        if not (self.breaks and self.caught_by and bool(self.arguments) != bool(self.test) and files):
            raise Broken("needs the lines Breaks:, Run: or Test:, and Caught by: above a diff of a/ and b/")
        shutil.rmtree(self.tree, ignore_errors=True)
        for name in files:
            if not name.endswith(".c"):
                raise Broken(f"{name}: only .c files can be mutated")
            os.makedirs(os.path.dirname(os.path.join(self.tree, name)), exist_ok=True)
            shutil.copy(os.path.join(self.source, name), os.path.join(self.tree, name))
        done = run(["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "--batch"], self.tree, text=self.text)
        if done.returncode != 0:
            raise Broken("does not apply any more: make it again for the code as it is\n" + done.stdout)
        return files

    def compile(self, name, commands):
        original = os.path.realpath(os.path.join(self.source, name))
        for entry in commands:
            if os.path.realpath(os.path.join(entry["directory"], entry["file"])) != original:
                continue
            words = shlex.split(entry["command"])
            target = os.path.join(self.tree, name[:-2] + ".o")
            words[words.index("-o") + 1] = target
            words[words.index("-c") + 1] = os.path.join(self.tree, name)
            words = [word for word in words if word not in ("-MD", "-Werror", "-g")]
            for option in ("-MQ", "-MF"):
                at = words.index(option)
                del words[at:at + 2]
            # The mutant may leave a function without a caller; that is not what it is tried for.
            done = run(words + ["-Wno-unused", "-Wno-unused-parameter"], entry["directory"])
            if done.returncode != 0:
                raise Broken(f"{name} does not compile\n{done.stdout}")
            return target
        raise Broken(f"{name} is not part of the build")

    def link(self, objects, command):
        program = os.path.join(self.tree, os.path.basename(self.program))
        words = shlex.split(command)
        at = words.index("-o")
        words[at + 1:at + 2] = [program] + objects
        # Copying debug information takes longer than the link. The library of unit tests lies where the original looks for it.
        done = run(words + ["-Wl,--strip-debug", f"-Wl,-rpath,{self.build}/tests/unit"], self.build)
        if done.returncode != 0:
            raise Broken("does not link\n" + done.stdout)
        return program

    def option(self, name, default):
        at = self.arguments.index(name) if name in self.arguments else None
        return default if at is None else self.arguments[at + 1]

    def scenario(self):
        return self.option("--scenario", "")

    def seeds(self):
        first = int(self.option("--first", "1"))
        return range(first, first + int(self.option("--seeds", "1")))

    def parts(self):
        """(first, count): most are caught by one of the first seeds."""
        seeds = self.seeds()
        return [(first, min(PART, seeds.stop - first)) for first in range(seeds.start, seeds.stop, PART)]

    def caught_by_seed(self, program, seed):
        one = ["--scenario", self.scenario(), "--seed", seed]
        done = run([program] + one, self.build)
        if done.returncode == 0 or self.caught_by not in done.stdout:
            return False
        control = run([os.path.join(self.build, SIMULATOR)] + one, self.build)
        if control.returncode != 0:
            raise Broken("the unchanged simulator fails the same seed\n" + control.stdout[-4000:])
        return True

    def caught_by_test(self, program):
        done = run([program] + self.test[1:], self.build)
        if done.returncode == 0:
            return False, "survived: " + " ".join(self.test)
        if not any(self.caught_by in line for line in lines_but_of_passed(done.stdout)):
            return False, f'failed without "{self.caught_by}"\n' + done.stdout[-4000:]
        control = run([os.path.join(self.build, self.program)] + self.test[1:], self.build)
        if control.returncode != 0:
            raise Broken("the unchanged test fails\n" + control.stdout[-4000:])
        return True, ""

    def seeds_of(self, said):
        """Those that may have found it: what a run that died has said is not in the same line."""
        for line in said.splitlines():
            found = re.match(r"(VIOLATION|DIED in) seed (\d+)", line)
            if found and (self.caught_by in line or found.group(1) != "VIOLATION"):
                yield found.group(2)

    def write(self):
        line = f"Seed: {self.found}\n"
        text = re.sub(r"^Seed:.*\n", "", self.text, flags=re.M)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(re.sub(r"^(Caught by:.*\n)", lambda head: head.group(1) + line, text, count=1, flags=re.M))

    def attempt(self, commands, link_commands):
        objects = [self.compile(name, commands) for name in self.patch()]
        program = self.link(objects, link_commands[self.program])
        if self.test:
            return self.caught_by_test(program)
        if self.seed is not None and int(self.seed) not in self.seeds():
            raise Broken(f"Seed: {self.seed} is none of its run")
        if self.seed is not None and self.caught_by_seed(program, self.seed):
            return True, ""
        other = ""
        for first, seeds in self.parts():
            done = run([program, "--scenario", self.scenario(), "--first", str(first), "--seeds", str(seeds)], self.build)
            for seed in self.seeds_of(done.stdout):
                if self.caught_by_seed(program, seed):
                    self.found = seed
                    return True, f"seed {seed} finds it, not {self.seed}: --write says so in its patch"
            if done.returncode != 0:
                other = done.stdout[-4000:]
        if other:
            return False, f'failed without "{self.caught_by}"\n' + other
        return False, "survived: " + " ".join(self.arguments)


def link_command_of(build, program):
    done = run(["ninja", "-t", "commands", program], build)
    links = [line for line in done.stdout.splitlines() if re.search(rf"-o {re.escape(program)}\s", line)]
    if done.returncode != 0 or not links:
        raise SystemExit(f"mutants: {program} is no target of {build}\n{done.stdout}")
    return links[-1]


def window_of(mutants, source):
    """Those of this check's window, and those of files that the last commits touch."""
    number, origin = windows.position(source)
    touched = windows.touched(source)
    begin = number * WINDOW % len(mutants)
    chosen = {mutant.name for mutant in (mutants + mutants)[begin:begin + WINDOW]}
    print(f"# window of mutants, number {number} ({origin}): {' '.join(sorted(chosen))}")
    of_touched = {mutant.name for mutant in mutants
                  if touched & {*mutant.files(), os.path.relpath(mutant.path, source)}} - chosen
    print(f"# mutants of files that the last {windows.RECENT_COMMITS} commits touch: {' '.join(sorted(of_touched)) or 'none'}")
    return [mutant for mutant in mutants if mutant.name in chosen | of_touched]


def main():
    parser = argparse.ArgumentParser(description="proves that mutants are caught")
    parser.add_argument("build")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--window", action="store_true")
    options = parser.parse_args()
    source = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    build = os.path.abspath(options.build)
    mutants = [Mutant(path, source, build) for path in sorted(glob.glob(f"{source}/sim/mutants/*.patch"))]
    if options.names:
        mutants = [mutant for mutant in mutants if mutant.name in options.names]
    if options.window:
        mutants = window_of(mutants, source)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    link_commands = {program: link_command_of(build, program) for program in {mutant.program for mutant in mutants}}

    def attempt(mutant):
        try:
            return mutant.attempt(commands, link_commands)
        except Broken as why:
            return False, str(why)

    print(f"1..{len(mutants)}")
    all_caught = bool(mutants)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for number, (mutant, (caught, said)) in enumerate(zip(mutants, pool.map(attempt, mutants)), 1):
            all_caught &= caught
            if options.write and mutant.found is not None:
                mutant.write()
            print(f"{'ok' if caught else 'not ok'} {number} - {mutant.name}: {mutant.breaks}", flush=True)
            print("".join(f"# {line}\n" for line in said.splitlines()), end="")
    return 0 if all_caught else 1


if __name__ == "__main__":
    sys.exit(main())
