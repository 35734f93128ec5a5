"""What the program says about itself: help, version, devices, man pages."""
import json
import pathlib
import shutil
import subprocess
import sys

import program

MAN = pathlib.Path(__file__).resolve().parents[2] / "docs" / "man"


def version_is_printed_in_words_and_as_json(directory):
    words = program.run(directory, "version", check=0).stdout.split()
    found = json.loads(program.run(directory, "version", "--json", check=0).stdout)
    assert words == [found["name"], found["version"]]
    assert program.run(directory, "--version", check=0).stdout.split() == words


def every_command_has_help_and_a_page(directory):
    listed = program.run(directory, "help", check=0).stdout
    commands = [line.split()[0] for line in listed.split("commands:\n")[1].split("\n\n")[0].splitlines()]
    assert "demo" in commands and "demo-node" not in commands
    for command in commands:
        by_name = program.run(directory, "help", command, check=0).stdout
        assert by_name.startswith(f"holdfast {command}:")
        assert program.run(directory, command, "--help", check=0).stdout == by_name
        if command not in ("help", "version"):
            assert (MAN / f"holdfast-{command}.1").exists(), command


def every_option_of_a_command_is_in_its_page(directory):
    import re
    for page in MAN.glob("holdfast-*.1"):
        command = page.stem.removeprefix("holdfast-")
        if command == "bench":
            continue
        for option in set(re.findall(r"--([a-z]+)", program.run(directory, "help", command, check=0).stdout)):
            assert f"-{option}" in page.read_text(), f"{page.name} lacks --{option}"


def devices_are_listed_in_words_and_as_json(directory):
    found = json.loads(program.run(directory, "devices", "--json", check=0).stdout)
    words = program.run(directory, "devices", check=0).stdout
    assert {"shm", "soft"} <= {device["device"] for device in found}
    for device in found:
        assert device["device"] in words and device["what"] in words


def rdma_nics_are_listed_or_it_is_said_why_there_are_none(directory):
    listed = json.loads(program.run(directory, "devices", "--json", check=0).stdout)
    found = {device["device"]: device for device in listed}
    words = program.run(directory, "devices", check=0).stdout
    assert "nics" not in found["shm"] and "nics" not in found["soft"]
    if "unavailable" in found["verbs"]:
        assert found["verbs"]["unavailable"] in words
    elif not found["verbs"]["nics"]:
        assert "no RDMA NIC" in words
    for nic in found["verbs"].get("nics", []):
        assert nic["nic"] in words and (nic["refused"] is None or nic["refused"] in words)


def output_that_cannot_be_written_is_told(directory):
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([program.HOLDFAST, "version"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=program.RUN_LIMIT_S)
    assert done.returncode == 1 and "No space left" in done.stderr


def man_pages_are_well_formed(directory):
    if shutil.which("mandoc") is None:
        raise program.Skip("mandoc is not installed")
    pages = sorted(str(page) for page in MAN.glob("*.1"))
    assert len(pages) > 4
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *pages], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(program.main(sys.modules[__name__]))
