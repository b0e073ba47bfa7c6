"""The models that come with the package: train by the recipes NAME-gum-open, evaluate, write the model card, copy.

python benchmarks/pretrain.py                                  all that are not there yet
python benchmarks/pretrain.py rnng-gum-open som-gum-open --processes 2 --again
python benchmarks/pretrain.py lstm-open-english --to ../treelm-english/pretrained --most-megabytes 60

Each uses one thread. A run that was stopped goes on where it was; a model that is there is kept without --again.
Trained runs stay in --runs, and --again evaluates and copies them once more; to train anew, remove the run folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import torch
import tyro
from shipping import CARD, Origin, differences, ship

from treelm.errors import InputError
from treelm.models.persistence.shipped import FOLDER
from treelm.models.persistence.storage import load_model
from treelm.training.outcomes import NonFiniteError, TrainingInterrupted
from treelm.training.recipe import load_recipe, recipe_names
from treelm.training.run import has_run, is_estimated, load_run_recipe, train

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to make."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NAME")] = ()
    """Recipes, which are also the names of the models; without any, all that end in -gum-open."""
    runs: Path = Path("runs/pretrained")
    """Folder of the run folders."""
    to: Path = FOLDER
    """Folder of the models."""
    most_megabytes: int = 28
    """What all models of that folder together may take."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE: change fields of all recipes, to try the script out."""
    processes: int = 1
    """Models that are made side by side."""
    again: bool = False
    """Also those that are there."""


def main(options: Arguments) -> int:
    """Make the models; the worst exit code."""
    names = options.names or tuple(name for name in recipe_names() if name.endswith("-gum-open"))
    todo = [name for name in names if options.again or not (options.to / name / CARD).exists()]
    if options.processes > 1 and len(todo) > 1:
        with ThreadPoolExecutor(options.processes) as threads:
            code = max(threads.map(lambda name: subprocess.run(_command(name, options), check=False).returncode, todo))
    else:
        code = max((_make(name, options) for name in todo), default=0)
    return max(code, _report(options.to, options.most_megabytes))


def _command(name: str, options: Arguments) -> list[str]:
    again = ["--again"] if options.again else []
    changes = ["--set", *options.set] if options.set else []
    places = ["--runs", str(options.runs), "--to", str(options.to), "--most-megabytes", str(options.most_megabytes)]
    return [sys.executable, __file__, name, *places, *again, *changes]


def _make(name: str, options: Arguments) -> int:
    torch.set_num_threads(1)
    run = options.runs / name
    try:
        _train(name, run, options.set)
        origin = Origin(about=_about(name), commit=_commit(), command=f"python benchmarks/pretrain.py {name}")
        ship(run, options.to / name, origin)
    except (TrainingInterrupted, NonFiniteError) as stopped:
        print(f"{name}: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    for text in differences(load_model(options.to / name), options.to / name):
        print(f"{name}: {text}", file=sys.stderr)
        return 1
    return 0


def _train(name: str, run: Path, changes: Sequence[str]) -> None:
    """Train, or go on."""
    recipe = load_recipe(name, changes)
    if is_estimated(run, recipe):
        return
    resume = has_run(run, recipe)
    train(load_run_recipe(run) if resume else recipe, run, resume=resume)


def _about(name: str) -> str:
    """The first line of the recipe says what the model is."""
    text = (files("treelm.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ")


def _commit() -> str:
    """The version of the source; marked if files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _report(folder: Path, most_megabytes: int) -> int:
    sizes = {path.name: sum(file.stat().st_size for file in path.iterdir()) for path in sorted(folder.glob("[!.]*"))}
    for name, size in {**sizes, "all": sum(sizes.values())}.items():
        print(f"{name}\t{size / 1e6:.2f} MB")
    if sum(sizes.values()) > most_megabytes * 1e6:
        print(f"more than {most_megabytes} MB: make a model smaller", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
