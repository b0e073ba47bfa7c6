"""Installs the wheels of treelm and its data packages under several Pythons, and tries them out: ``make try-wheel``.

Of each Python, the processor time of the first surprisals by models of treelm-english, then the pages for beginners, in
empty folders. Nothing of the checkout is imported: what runs is what somebody has who installed the packages. Each
Python gets a new environment; one that belongs to an environment already is used as it is, with what it has (a PyTorch,
say).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    "ten-minutes.md",
    *(
        f"tutorials/{name}.md"
        for name in ("reading-times", "garden-paths", "minimal-pairs", "own-items", "own-treebank")
    ),
)
FIRST = ("lstm-open-english", "rnng-open-english")
"""Models whose first surprisal is timed: what somebody waits for who has just installed both packages."""
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


def settings(python: Path, folder: Path) -> dict[str, str]:
    """Variables of a shell that has nothing but an environment's programs and an empty home."""
    return {
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }


def first_surprisal(python: Path, model: str, folder: Path) -> float:
    """Processor seconds, of user and system, that ``treelm surprisal`` of one sentence takes. Raises ``Failed``."""
    (folder / "first.txt").write_text("The museum was built in the city in 1986.\n", encoding="utf-8")
    before = os.times()
    command = ["bash", "-euo", "pipefail", "-c", f"treelm surprisal {model} first.txt --output first.tsv"]
    run(command, folder, settings(python, folder))
    after = os.times()
    words = (folder / "first.tsv").read_text(encoding="utf-8").splitlines()[1:]
    if not words:
        raise Failed(f"treelm surprisal {model}: no surprisal")
    return after.children_user + after.children_system - before.children_user - before.children_system


def run_page(python: Path, page: str, folder: Path) -> float:
    """Run the commands of a page, then its code, in a folder; gives the seconds that it took. Raises ``Failed``."""
    environment = settings(python, folder)
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


def build(folder: Path) -> list[Path]:
    """Build the wheels of the checkout, treelm's first. Raises ``Failed``."""
    sources = [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]
    for source in sources:
        run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)], folder)
    return sorted(folder.glob("*.whl"), key=lambda wheel: not wheel.name.startswith("treelm-"))


def install(python: Path, wheels: Sequence[Path], folder: Path) -> None:
    """Install the wheels, treelm's first, with all that they need. Raises ``Failed``."""
    pip = [str(python), "-m", "pip", "install", "-q"]
    run([*pip, "--force-reinstall", "--no-deps", *map(str, wheels)], folder)
    run([*pip, f"{wheels[0]}[{EXTRAS}]", *map(str, wheels[1:]), *BESIDE], folder)


def try_python(python: str, wheels: Sequence[Path]) -> bool:
    """Install the wheels, time first surprisals, run all pages, and print a line for each; False where one failed."""
    with tempfile.TemporaryDirectory() as name:  # which has the environment as long as it is used
        try:
            own = environment_of(python, Path(name))
            install(own, wheels, Path(name))
            versions = "import platform, torch; print(platform.python_version(), torch.__version__)"
            version, torch = run([str(own), "-c", versions], Path(name)).split()
            places = r"import treelm, treelm_english; print(treelm.__file__, treelm_english.__file__, sep='\n')"
            for place in run([str(own), "-c", places], Path(name)).splitlines():
                if Path(place).is_relative_to(ROOT):
                    raise Failed(f"{place} is the checkout's")
        except Failed as error:
            print(f"{python}\tFAILED\t{error}", flush=True)
            return False
        steps: list[tuple[str, str, Callable[[Path], float]]] = [
            *(
                (f"first surprisal of {model}", " of processor time", partial(first_surprisal, own, model))
                for model in FIRST
            ),
            *((page, "", partial(run_page, own, (ROOT / "docs" / page).read_text(encoding="utf-8"))) for page in PAGES),
        ]
        return all([_passes(f"Python {version}, torch {torch}\t{what}", unit, step) for what, unit, step in steps])


def _passes(what: str, unit: str, step: Callable[[Path], float]) -> bool:
    """Try a step in an empty folder, and print what it took; False if it failed."""
    with tempfile.TemporaryDirectory() as name:
        try:
            print(f"{what}\t{step(Path(name)):.1f} s{unit}", flush=True)
        except Failed as error:
            print(f"{what}\tFAILED\t{error}", flush=True)
            return False
    return True


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="a program, such as python3.12, or a path")
    help_text = "a wheel, first treelm's; without it, those of treelm and its data packages are built of the checkout"
    parser.add_argument("--wheel", type=Path, action="append", help=help_text)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        try:
            wheels = [wheel.absolute() for wheel in options.wheel] if options.wheel else build(Path(name))
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
        return 0 if all([try_python(python, wheels) for python in options.pythons]) else 1


if __name__ == "__main__":
    sys.exit(main())
