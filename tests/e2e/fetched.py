"""Client libraries of PyPI and npm, installed beside the program, once. What cannot be had skips the test."""
import pathlib
import shutil
import subprocess
import sys

import program

INSTALL_LIMIT_S = 250
RUN_LIMIT_S = 200


def _installed(name, packages, commands):
    """The directory that has the packages; a command that installs gets their names."""
    directory = pathlib.Path(program.HOLDFAST).with_name("clients") / name
    done = directory / "installed"
    if done.exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for command in commands(directory):
        ran = subprocess.run([*command, *packages] if "install" in command else command, cwd=directory, text=True,
                             capture_output=True, timeout=INSTALL_LIMIT_S, check=False)
        if ran.returncode != 0:
            raise program.Skip(f"{' '.join(packages)} cannot be had: {(ran.stdout + ran.stderr).strip().splitlines()[-1:]}")
    done.touch()
    return directory


def python(name, *packages):
    """A Python that has them."""
    where = _installed(name, packages, lambda to: [[sys.executable, "-m", "venv", to],
                                                   [to / "bin" / "python", "-m", "pip", "install", "--quiet"]])
    return where / "bin" / "python"


def npm(name, *packages):
    """A directory in which node finds them."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise program.Skip("npm or node is not installed")
    return _installed(name, packages, lambda to: [["npm", "init", "--yes"],
                                                  ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline"]])


def run(*command):
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
