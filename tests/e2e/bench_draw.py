"""scripts/bench_page.py as tests run it."""
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench_page.py"


def draw(directory, kind, figures, page, *more, check=0):
    """Draws the file of figures as the page, both in `directory`; the script's status must be `check`."""
    done = subprocess.run([sys.executable, SCRIPT, kind, figures, *more, "--out", page], cwd=directory, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == check, done.stderr
    return done
