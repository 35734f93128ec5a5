"""Wrong input: a clear message, status 2, no crash, nothing left behind."""
import os
import pathlib
import socket
import subprocess
import sys

import program


def _refused(directory, *arguments, words):
    done = program.run(directory, *arguments)
    assert done.returncode == 2, f"status {done.returncode}: {done.stderr}"
    for word in words:
        assert word in done.stderr, f"'{word}' is not in: {done.stderr}"
    assert done.stderr.count("\n") == 1, f"one line is enough: {done.stderr}"
    assert program.left_in(directory) == []


def no_command_shows_the_commands(directory):
    done = program.run(directory, check=2)
    assert "demo" in done.stderr and "links" in done.stderr


def an_unknown_command_is_refused(directory):
    _refused(directory, "frobnicate", words=["frobnicate", "holdfast help"])


def an_unknown_option_is_refused(directory):
    for command in ("demo", "link", "links", "devices", "run"):
        _refused(directory, command, "--frobnicate", words=["--frobnicate", f"holdfast help {command}"])


def an_option_without_its_value_is_refused(directory):
    _refused(directory, "demo", "--device", words=["--device", "needs a value"])


def an_argument_too_many_is_refused(directory):
    _refused(directory, "demo", "surplus", words=["surplus"])


def an_unknown_device_is_refused(directory):
    _refused(directory, "demo", "--device", "token-ring", words=["token-ring", "holdfast devices"])


def a_program_is_not_run_on_what_is_not_there(directory):
    _refused(directory, "run", words=["name a program"])
    _refused(directory, "run", "--", "no-such-program", words=["no-such-program", "No such file"])
    _refused(directory, "run", "--device", "token-ring", "--", "true", words=["token-ring", "holdfast devices"])
    _refused(directory, "run", "--config", "no-such.json", "--", "true", words=["no-such.json"])
    _refused(directory, "run", "--node", "Not/A/Name", "--", "true", words=["--node", "Not/A/Name"])
    _refused(directory, "run", "--node", "a", "--config", "node.json", "--", "true", words=["--config", "--node"])
    (pathlib.Path(directory) / "kind.json").write_text(
        '{"name": "a", "rails": [{"name": "x", "kind": "nosuch", "address": "127.0.0.9", "control": "127.0.0.9:18700"}]}')
    _refused(directory, "run", "--config", "kind.json", "--", "true", words=["kind.json", "line 1", "rails[0].kind", "holdfast devices"])


def a_program_leaves_with_its_own_status(directory):
    program.needs_verbs_library()
    assert program.run(directory, "run", "--", "sh", "-c", "exit 7").returncode == 7


def a_missing_file_is_refused(directory):
    _refused(directory, "demo", "--device", "shm", "--input", "no-such-file", words=["no-such-file"])


def an_empty_file_is_refused(directory):
    (pathlib.Path(directory) / "empty").write_bytes(b"")
    _refused(directory, "demo", "--device", "shm", "--input", "empty", words=["empty"])


def an_empty_directory_is_refused(directory):
    (pathlib.Path(directory) / "nothing").mkdir()
    _refused(directory, "demo", "--device", "shm", "--input", "nothing", words=["nothing", "no files"])


def a_missing_output_directory_is_refused(directory):
    _refused(directory, "demo", "--output", "no-such-directory", words=["no-such-directory"])


def numbers_out_of_range_are_refused(directory):
    for option in ("--seconds", "--rate"):
        for value in ("many", "-1", "1e99", "nan", ""):
            _refused(directory, "demo", option, value, words=[option, f"'{value}'"])


def a_malformed_configuration_is_refused(directory):
    for text in ("", "{", "[]", '{"rails": 7}', '{"name": ' + "[" * 5000, "\0\xff"):
        (pathlib.Path(directory) / "node.json").write_text(text)
        _refused(directory, "demo", "--device", "shm", "--config", "node.json", words=["node.json"])


def a_missing_configuration_is_refused(directory):
    _refused(directory, "demo", "--config", "no-such.json", words=["no-such.json"])


def a_base_that_is_no_address_is_refused(directory):
    for base in ("localhost", "127.0.0.254", "127.0.0.9:80", "[::1]"):
        _refused(directory, "demo", "--base", base, words=[base])


def a_port_in_use_is_named(directory):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.63.3", 18515))
        taken.listen()
        _refused(directory, "demo", "--device", "shm", "--base", "127.0.63.1", "--input",
                 program.make_input(directory), words=["127.0.63.3:18515"])


def a_roce_port_in_use_is_named(directory):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.62.3", 4791))
        _refused(directory, "demo", "--device", "soft", "--base", "127.0.62.1", "--input",
                 program.make_input(directory), words=["127.0.62.3"])


def no_shared_memory_left_is_told_with_the_remedy(directory):
    for device, size in (("shm", "4k"), ("shm", "64k"), ("soft", "4k")):
        script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" demo --device {device} --input "$1"'
        done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", script, program.HOLDFAST,
                               program.make_input(directory)], cwd=directory, env=program.environment(directory),
                              text=True, capture_output=True, timeout=program.RUN_LIMIT_S)
        if "unshare:" in done.stderr or "mount:" in done.stderr:
            raise program.Skip("no mount namespace of one's own here")
        assert done.returncode == 2, done.stderr
        assert "/dev/shm" in done.stderr and "remount" in done.stderr, done.stderr


def a_temporary_directory_that_is_missing_is_named(directory):
    done = subprocess.run([program.HOLDFAST, "demo"], env=dict(os.environ, TMPDIR="/no/such/place"), text=True,
                          capture_output=True, timeout=program.RUN_LIMIT_S)
    assert done.returncode == 2 and "/no/such/place" in done.stderr and "TMPDIR" in done.stderr, done.stderr


def links_of_an_unknown_fabric_are_refused(directory):
    _refused(directory, "links", "--fabric", "no-such-fabric", words=["no-such-fabric"])


def a_fabric_name_cannot_leave_its_place(directory):
    _refused(directory, "links", "--fabric", "../../etc", words=["../../etc"])


def a_link_of_an_unknown_fabric_is_refused(directory):
    _refused(directory, "link", "down", "a/r0", "--fabric", "no-such-fabric", words=["no-such-fabric"])


def a_link_command_that_makes_no_sense_is_refused(directory):
    _refused(directory, "link", words=["up", "down", "NODE/RAIL"])
    _refused(directory, "link", "sideways", "a/r0", words=["sideways"])
    _refused(directory, "link", "down", "a", words=["NODE/RAIL"])
    _refused(directory, "link", "down", "a/" + "x" * 99, words=["NODE/RAIL"])
    _refused(directory, "link", "down", "a/r0", "--direction", "up", words=["tx", "rx", "both"])
    _refused(directory, "link", "rate", "a/r0", "fast", words=["fast", "MB/s"])
    _refused(directory, "link", "rate", "a/r0", "0", words=["MB/s", "off"])


def a_node_is_not_started_by_hand(directory):
    _refused(directory, "demo-node", words=["holdfast demo"])


def help_on_an_unknown_command_is_refused(directory):
    _refused(directory, "help", "frobnicate", words=["frobnicate"])


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
