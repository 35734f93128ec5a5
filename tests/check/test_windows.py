"""Tests of what a check chooses: windows that move with each commit, named seeds, mutants of touched files. TAP."""
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPTS = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
sys.path.insert(0, SCRIPTS)
sys.dont_write_bytecode = True
import seeds  # noqa: E402
import windows  # noqa: E402

SIMULATOR = """#!/bin/sh
case "$*" in
*--help*) echo "  calm   nothing happens"; echo "* stormy everything fails";;
*stormy*--first\\ 7\\ *) echo "VIOLATION seed 7: lost"; exit 1;;
esac
"""


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tree_of(folder, commits):
    git(folder, "init", "-q")
    for number in range(commits):
        path = pathlib.Path(folder, "src", f"{number}.c")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", str(number))


def each_commit_has_a_window_of_its_own(folder):
    scenario = seeds.Scenario("calm", 10.0)
    first, size = scenario.window(41, 1000)
    assert (first, size) == (4101, 100) and scenario.window(42, 1000) == (first + size, size)
    tree_of(folder, 3)
    assert windows.position(folder) == (3, "commits")


def a_window_of_cases_goes_round(_):
    scenario = seeds.Scenario("cases", 10.0, 256, 8)
    seen = [scenario.window(number, 30) for number in range(4)]
    assert seen == [(256, 3), (259, 3), (262, 2), (256, 3)], seen


def windows_shrink_as_scenarios_are_added(_):
    scenario = seeds.Scenario("calm", 10.0)
    assert scenario.window(1, seeds.WINDOWS_MS / 50)[1] > scenario.window(1, seeds.WINDOWS_MS / 100)[1] >= 1
    assert seeds.Scenario("slow", 1e9).window(1, 1)[1] == 1


def a_tree_without_history_has_a_window_that_follows_from_its_files(folder):
    whole, shallow, archive = (os.path.join(folder, name) for name in ("whole", "shallow", "archive"))
    os.makedirs(whole)
    tree_of(whole, 2)
    git(folder, "clone", "-q", "--depth", "1", f"file://{whole}", shallow)
    os.makedirs(os.path.join(archive, "src"))
    for name in ("0.c", "1.c"):
        pathlib.Path(archive, "src", name).write_text(pathlib.Path(whole, "src", name).read_text())
    number, origin = windows.position(shallow)
    assert origin != "commits" and windows.position(archive) == (number, origin)
    assert windows.touched(shallow) == set()
    pathlib.Path(archive, "src", "0.c").write_text("another\n")
    assert windows.position(archive)[0] != number


def files_of_the_last_commits_and_of_the_work_tree_are_touched(folder):
    tree_of(folder, windows.RECENT_COMMITS + 2)
    pathlib.Path(folder, "src", "0.c").write_text("changed\n")
    last = {f"src/{number}.c" for number in range(2, windows.RECENT_COMMITS + 2)}
    assert windows.touched(folder) == last | {"src/0.c"}, windows.touched(folder)


def a_violated_seed_is_told_with_the_command_that_repeats_it(folder):
    simulator = os.path.join(folder, "holdfast-sim")
    pathlib.Path(simulator).write_text(SIMULATOR)
    os.chmod(simulator, 0o755)
    assert seeds.run(simulator, "calm", 1, 5)[0]
    passed, what, more = seeds.run(simulator, "stormy", 7, 1)
    assert not passed and what == "stormy: seed 7", what
    assert any(f"{simulator} --scenario stormy --seed 7 --trace" in line for line in more), more
    assert any("seed stormy 7" in line for line in more), more


def a_scenario_without_a_line_is_told(folder):
    simulator = os.path.join(folder, "holdfast-sim")
    pathlib.Path(simulator).write_text(SIMULATOR)
    os.chmod(simulator, 0o755)
    assert seeds.unlisted(simulator, [seeds.Scenario("calm", 1.0)]) == {"stormy"}


TESTS = [each_commit_has_a_window_of_its_own, a_window_of_cases_goes_round, windows_shrink_as_scenarios_are_added,
         a_tree_without_history_has_a_window_that_follows_from_its_files,
         files_of_the_last_commits_and_of_the_work_tree_are_touched,
         a_violated_seed_is_told_with_the_command_that_repeats_it, a_scenario_without_a_line_is_told]


def main():
    print(f"1..{len(TESTS)}")
    right = True
    for number, test in enumerate(TESTS, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(folder)
                print(f"ok {number} - {test.__name__}")
            except (AssertionError, OSError, subprocess.CalledProcessError) as why:
                right = False
                print(f"not ok {number} - {test.__name__}\n# {why!r}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
