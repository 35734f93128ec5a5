"""The demo on one device: demo.py HOLDFAST DEVICE."""
import hashlib
import json
import os
import pathlib
import pty
import sys

import program

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "shm"
SHORT = ["demo", "--quick", "--seconds", "1", "--device", DEVICE]


def _check(result):
    assert result["device"] == DEVICE
    assert result["lost"] == 0, result
    assert result["hash_equal"] is True
    assert result["cuts"] >= 4
    assert result["operations"] > 0 and result["duplicated"] == 0
    latency = result["failover_us"]
    assert 0 < latency["median"] <= latency["p99"] <= latency["max"]
    assert latency["count"] == result["cuts"], "every cut was followed by a completion on the other rail"
    assert {cut["rail"] for cut in result["cut_list"]} == {"r0", "r1"}, "each rail was cut"


def quick_demo_loses_nothing_and_writes_its_reports(directory):
    done = program.run(directory, "demo", "--quick", "--json", "--device", DEVICE, check=0)
    printed = json.loads(done.stdout)
    assert len(printed) == 1
    _check(printed[0])
    assert program.demo_results(directory) == printed
    page = (pathlib.Path(directory) / "demo.html").read_text()
    assert "<svg" in page and page.rstrip().endswith("</html>") and DEVICE in page
    assert "http://" not in page and "https://" not in page, "the page stands alone"
    assert page.count('class="cut"') == printed[0]["cuts"]
    assert program.left_in(directory) == []


def a_file_of_odd_length_is_moved(directory):
    path = program.make_input(directory, 1_234_567)
    program.run(directory, *SHORT, "--json", "--input", path, check=0)
    result = program.demo_results(directory)[0]
    _check(result)
    assert result["input"]["sha256"] == hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    assert result["sha256"] == result["input"]["sha256"]


def one_byte_is_moved(directory):
    (pathlib.Path(directory) / "byte").write_bytes(b"!")
    program.run(directory, *SHORT, "--input", "byte", check=0)
    _check(program.demo_results(directory)[0])


def a_directory_is_moved_as_one_archive(directory):
    tree = pathlib.Path(directory) / "tree"
    (tree / "deep" / ("d" * 120)).mkdir(parents=True)
    (tree / "deep" / ("d" * 120) / "file").write_text("the name of this file has no room in a tar header")
    (tree / "empty").write_bytes(b"")
    (tree / "big").write_bytes(os.urandom(700_001))
    (tree / "link").symlink_to("/etc/passwd")
    program.run(directory, *SHORT, "--input", "tree", "--output", "tree", check=0)
    result = program.demo_results(tree)[0]
    _check(result)
    assert result["input"]["what"].startswith("3 files")


def lines_tell_of_each_cut_where_there_is_no_terminal(directory):
    done = program.run(directory, *SHORT, "--input", program.make_input(directory), check=0)
    result = program.demo_results(directory)[0]
    assert done.stdout.count("  cut r") == done.stdout.count("  restored r") == result["cuts"]
    assert "nothing lost" in done.stdout and "\033" not in done.stdout


def a_terminal_shows_a_picture_in_place(directory):
    path = program.make_input(directory)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execve(program.HOLDFAST, ["holdfast", *SHORT, "--input", path],
                  dict(program.environment(directory), TERM="xterm"))
    seen = b""
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:  # how a terminal says that nobody is at its other end any more
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seen = seen.decode()
    assert status == 0, seen[-2000:]
    pictures = seen.split("\033[5A")
    assert len(pictures) > 10
    for words in ("carries the traffic", "stands by", "CUT", "moving"):
        assert any(words in picture for picture in pictures), words
    assert seen.count("\033[?25l") == seen.count("\033[?25h"), "the cursor is shown again"
    assert "nothing lost" in pictures[-1]


def two_demos_run_beside_one_another(directory):
    path = program.make_input(directory)
    places = [pathlib.Path(directory) / name for name in ("one", "two")]
    running = []
    for place in places:
        place.mkdir()
        running.append(program.start(place, *SHORT, "--json", "--input", path))
    for process, place in zip(running, places):
        _, said = process.communicate(timeout=program.RUN_LIMIT_S)
        assert process.returncode == 0, said
        assert program.demo_results(place)[0]["lost"] == 0


def a_pass_as_fast_as_it_goes_loses_nothing(directory):
    program.run(directory, *SHORT, "--json", "--rate", "0", check=0)
    result = program.demo_results(directory)[0]
    assert result["lost"] == 0 and result["hash_equal"] and result["cuts"] >= 4


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
