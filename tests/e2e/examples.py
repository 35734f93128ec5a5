"""The programs of examples/, two processes each, with a rail cut in the middle: examples.py FIRST COUNTER EXAMPLES."""
import atexit
import json
import os
import pathlib
import re
import subprocess
import sys

import program

FIRST, COUNTER, EXAMPLES = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def _configuration(directory, name, copy=""):
    """The example's own file, on a fabric and addresses of this test's."""
    pid = os.getpid()
    config = json.loads((EXAMPLES / f"{name}.json").read_text())
    config["name"] += copy
    config["fabric"] += f"-{pid}"
    for rail in config["rails"]:
        host = int(rail["control"].split(":")[0].split(".")[3]) + 8 * len(copy)
        rail["control"] = f"127.{96 + (pid >> 8) % 64}.{pid & 0xff}.{host}:18515"
    path = pathlib.Path(directory) / f"{name}{copy}.json"
    path.write_text(json.dumps(config))
    return str(path), config["rails"][0]["control"], config["fabric"]


def _start(*command):
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL)
    atexit.register(process.kill)
    return process


def _end(process):
    """What it printed; its status must be 0."""
    out, err = process.communicate(timeout=program.RUN_LIMIT_S)
    assert process.returncode == 0, f"{process.args}: status {process.returncode}\n{out}\n{err}"
    return out


def _remove(fabric):
    subprocess.run(["rm", "-r", f"/dev/shm/holdfast-{os.getuid()}-{fabric}"], check=True)


def the_first_program_is_short(directory):
    assert len((EXAMPLES / "first.c").read_text().splitlines()) <= 80


def the_first_program_writes_through_a_cut(directory):
    config, address, fabric = _configuration(directory, "reader")
    reader = _start(FIRST, config)
    writer = _start(FIRST, _configuration(directory, "writer")[0], address)
    said = _end(writer)
    assert said == "wrote 2000 numbers, the last over rail r1\n", said
    said = _end(reader)
    assert said == "the writer has left, the number is 2000\n", said
    _remove(fabric)


def fetch_and_adds_of_two_clients_execute_once_through_cuts(directory):
    config, address, fabric = _configuration(directory, "server")
    server = _start(COUNTER, config, "2")
    clients = [_start(COUNTER, _configuration(directory, "client", copy)[0], address, "5000") for copy in ("", "2")]
    for client in clients:
        said = _end(client)
        assert re.match(r"added 5000 through [1-9]\d* failover", said), said
    said = _end(server)
    assert said == "the counter is 10000 after 2 clients\n", said
    _remove(fabric)


def an_example_says_what_is_wrong_with_its_configuration(directory):
    path = pathlib.Path(directory) / "bad.json"
    path.write_text('{\n"name": "a",\n"rails": 3\n}\n')
    done = subprocess.run([FIRST, str(path)], text=True, capture_output=True, timeout=program.RUN_LIMIT_S)
    assert done.returncode == 1 and "bad.json: line 3: rails" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
