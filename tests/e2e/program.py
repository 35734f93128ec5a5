"""The built program as tests run it, and the TAP that they print.

A test is a function whose name is a sentence; main() runs those of a module and prints a line each. A test that cannot
run raises Skip with the reason. Each test has a directory of its own as TMPDIR and as current directory, so that tests
may run beside one another.
"""
import concurrent.futures
import fcntl
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

HOLDFAST = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build/holdfast"
RUN_LIMIT_S = 120
PIPE_BYTES = 1 << 20
SMALL_DEMO = ["demo", "--quick", "--input"]


class Skip(Exception):
    pass


def needs_verbs_library():
    """Skips a test that starts an unmodified program with `holdfast run`, when the library was built so that none can
    load it."""
    library = pathlib.Path(HOLDFAST).with_name("libholdfast-verbs.so")
    if re.search(rb"lib[at]san\.so", library.read_bytes()):
        raise Skip("a library with a sanitizer cannot be loaded into a program without")


def environment(directory):
    return dict(os.environ, TMPDIR=str(directory))


def run(directory, *arguments, check=None, **more):
    """Runs `holdfast ARGUMENTS` to its end in `directory`; with `check`, its status must be that."""
    done = subprocess.run([HOLDFAST, *arguments], cwd=directory, env=environment(directory), text=True,
                          capture_output=True, timeout=RUN_LIMIT_S, stdin=subprocess.DEVNULL, **more)
    if check is not None:
        assert done.returncode == check, (
            f"holdfast {' '.join(arguments)}: status {done.returncode} instead of {check}\n"
            f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done


def start(directory, *arguments):
    """Starts `holdfast ARGUMENTS` with its output as lines to read. What it says while nobody reads has room."""
    process = subprocess.Popen([HOLDFAST, *arguments], cwd=directory, env=environment(directory), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


def read_until(process, words):
    """Reads lines until one has all the words in it; returns it."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if all(word in line for word in words):
            return line
    raise AssertionError(f"the program ended before it said {words}:\n{''.join(seen)}\n{process.stderr.read()}")


def page(host, path, port=8080):
    """Status and content of a page of a node, which is JSON."""
    stream = http.client.HTTPConnection(host, port, timeout=RUN_LIMIT_S)
    try:
        stream.request("GET", path)
        answer = stream.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        stream.close()


def metrics(host):
    """Of a service: name -> value; of a histogram (name, kind) -> how many values it has."""
    found = {}
    for metric in page(host, "/metrics.json")[1]["metrics"]:
        if "buckets" in metric:
            found[metric["name"], metric["labels"].get("kind")] = sum(bucket["count"] for bucket in metric["buckets"])
        else:
            found[metric["name"]] = metric["value"]
    return found


def children(pid):
    """The process ids of a process's children, oldest first."""
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def left_in_shm(pid):
    """What a demo of that process id has in /dev/shm."""
    return sorted(path.name for path in pathlib.Path("/dev/shm").iterdir() if f"-demo-{pid}-" in path.name)


def left_in(directory):
    """Scratch directories of demos."""
    return sorted(path.name for path in pathlib.Path(directory).iterdir() if path.name.startswith("holdfast-tmp-"))


def make_input(directory, bytes_wanted=3_000_001):
    """A file of bytes that do not repeat at any power of two."""
    path = pathlib.Path(directory) / "input.bin"
    path.write_bytes(bytes(range(251)) * (bytes_wanted // 251) + b"x" * (bytes_wanted % 251))
    return str(path)


def demo_results(directory):
    return json.loads((pathlib.Path(directory) / "demo.json").read_text())


def _point(test):
    """Runs one test; what TAP says of it, without its number, and whether that is good."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as directory:
        try:
            test(directory)
            return "ok", f"- {test.__name__}"
        except Skip as skip:
            return "ok", f"- {test.__name__} # SKIP {skip}"
        except Exception:  # whatever goes wrong in a test is that test's failure
            said = "\n".join("# " + line for line in traceback.format_exc().splitlines())
            return "not ok", f"- {test.__name__}\n{said}"


def say(line):
    """To standard output, in one piece: tests that run side by side do not mix their lines."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(module, at_a_time=1):
    """Runs the test functions of a module: those that are public, take `directory` and were defined in it; so many at a
    time."""
    tests = [f for name, f in vars(module).items()
             if callable(f) and not name.startswith("_") and getattr(f, "__module__", "") == module.__name__]
    say(f"1..{len(tests)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=at_a_time) as pool:
        for number, (verdict, said) in enumerate(pool.map(_point, tests), 1):
            failed += verdict != "ok"
            say(f"{verdict} {number} {said}")
    return 1 if failed else 0
