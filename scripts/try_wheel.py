"""Installs the wheel under several Pythons and runs the pages for beginners in empty folders: ``make try-wheel``.

Nothing of the checkout is imported: what runs is what somebody has who installed the package. Each Python gets a new
environment; one that belongs to an environment already is used as it is, with what it has (a PyTorch, say).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    "ten-minutes.md",
    *(f"tutorials/{name}.md" for name in ("reading-times", "garden-paths", "minimal-pairs", "own-treebank")),
)
EXTRAS = "reading,sentences,tables"
BESIDE = ("ipython",)  # which tutorials draw with
_BINARIES = "Scripts" if os.name == "nt" else "bin"


class Failed(Exception):
    """A command that failed: what it was, and the last line that it printed."""


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises ``Failed``."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Failed(f"{' '.join(command[:3])} ...: {last}")
    return done.stdout


def blocks(page: str, language: str) -> str:
    """The code of a page in a language, joined."""
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


def run_page(python: Path, page: str, folder: Path) -> float:
    """Run the commands of a page, then its code, in a folder; gives the seconds that it took. Raises ``Failed``."""
    environment = {
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }
    begun = time.monotonic()
    if commands := blocks(page, "sh"):
        run(["bash", "-euo", "pipefail", "-c", commands], folder, environment)
    if code := blocks(page, "python"):
        (folder / "page.py").write_text(code, encoding="utf-8")
        run([str(python), "page.py"], folder, environment)
    return time.monotonic() - begun


def environment_of(python: str, folder: Path) -> Path:
    """The Python of an environment: of the one that it belongs to, else of a new one in a folder. Raises ``Failed``."""
    if run([python, "-c", "import sys; print(sys.prefix != sys.base_prefix)"], folder).strip() == "True":
        return Path(python).absolute()
    run([python, "-m", "venv", str(folder / "environment")], folder)
    return folder / "environment" / _BINARIES / "python"


def try_python(python: str, wheel: Path) -> bool:
    """Install the wheel, run all pages, and print a line for each; False where something failed."""
    with tempfile.TemporaryDirectory() as name:
        try:
            own = environment_of(python, Path(name))
            run([str(own), "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", str(wheel)], Path(name))
            run([str(own), "-m", "pip", "install", "-q", f"{wheel}[{EXTRAS}]", *BESIDE], Path(name))
            said = (
                "import platform, torch, treelm; print(platform.python_version(), treelm.__file__, torch.__version__)"
            )
            version, place, torch = run([str(own), "-c", said], Path(name)).split()
        except Failed as error:
            print(f"{python}\tFAILED\t{error}", flush=True)
            return False
        if Path(place).is_relative_to(ROOT):
            print(f"{python}\tFAILED\t{place} is the checkout's", flush=True)
            return False
    passed = True
    for page in PAGES:
        with tempfile.TemporaryDirectory() as name:
            try:
                seconds = run_page(own, (ROOT / "docs" / page).read_text(encoding="utf-8"), Path(name))
                print(f"Python {version}, torch {torch}\t{page}\t{seconds:.0f} s", flush=True)
            except Failed as error:
                passed = False
                print(f"Python {version}, torch {torch}\t{page}\tFAILED\t{error}", flush=True)
    return passed


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="a program, such as python3.12, or a path")
    parser.add_argument("--wheel", type=Path, help="the wheel; without it, one is built of the checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wheel = options.wheel
        if wheel is None:
            try:
                run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", name, str(ROOT)], Path(name))
            except Failed as error:
                print(error, file=sys.stderr)
                return 1
            (wheel,) = Path(name).glob("treelm-*.whl")
        return 0 if all([try_python(python, wheel.absolute()) for python in options.pythons]) else 1


if __name__ == "__main__":
    sys.exit(main())
