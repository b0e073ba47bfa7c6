"""The models that are shipped: train by the recipes of their names, evaluate, write the model card, copy.

python benchmarks/pretrain.py                                  all that are not there yet
python benchmarks/pretrain.py rnng-gum-open lstm-gum-open --processes 2 --again
python benchmarks/pretrain.py lstm-open-english --runs RUNS --trained --to MODELS --most-megabytes 60

Each uses one thread. A run that was stopped goes on where it was; a model that is there is kept without --again.
Trained runs stay in --runs, and --again evaluates and copies them once more; to train anew, remove the run folder.
--trained takes the run folder RUNS/NAME as it is, say from a machine with a GPU: nothing is trained, on whatever device
it was. Its data must be here under the same names, and are compared by their identity. Where its recipe holds a path of
that machine, --set data.corpus=NAME says by which name users know the corpus; --set evaluation.max_sentences=1000
evaluates on the first sentences of each split, for a model that searches a large corpus (those of open-english are of
one source, so such figures compare only with each other). A folder of shipped models as RUNS stores them again, in the
types of today. A new model of a companion is named in treelm.corpora.data_packages; then model_figures.py measures it
and writes it into docs/pretrained.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import one_line
import torch
from run_recipes import about_recipe, origin_in_words, without_paths
from shipping import CARD, Origin, differences, ship

from treelm.cli.arguments import Positional
from treelm.corpora.data_packages import DATA_PACKAGES
from treelm.errors import InputError
from treelm.models.persistence.shipped import FOLDER
from treelm.models.persistence.storage import load_model
from treelm.training.outcomes import NonFiniteError, TrainingInterrupted
from treelm.training.recipe import load_recipe
from treelm.training.run_folder import has_run, is_estimated
from treelm.training.trainer import train

ROOT = Path(__file__).parents[1]
OWN = ("lstm-gum-open", "ngram-gum-open", "rnng-gum-open")
"""What examples, tutorials and the tests of treelm alone need: with more, its wheel would not stay under 10 MB."""
HOMES = {name: FOLDER for name in OWN} | {
    name: ROOT / "packages" / one.distribution / "src" / one.module / FOLDER.name
    for one in DATA_PACKAGES
    for name in one.models
}
"""The models that are shipped, each with the folder of its distribution in this checkout."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to make."""

    names: Annotated[tuple[str, ...], Positional("NAME")] = ()
    """Recipes, which are also the names of the models; without any, all that are shipped."""
    runs: Path = Path("runs/pretrained")
    """Folder of the run folders."""
    to: Path | None = None
    """Folder of the models; without it, that of the distribution that has the model, in this checkout."""
    most_megabytes: int = 60
    """What all models of that folder together may take."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE: change fields of all recipes, to try the script out; with --trained, of names and
    [search] and [evaluation] alone."""
    trained: bool = False
    """Ship runs as they are."""
    about: str = ""
    """What the model is, in a sentence; without it, the first sentence of the packaged recipe of that name."""
    processes: int = 1
    """Models that are made side by side."""
    again: bool = False
    """Also those that are there."""


def main(options: Arguments) -> int:
    """Make the models; the worst exit code. Raises ``InputError`` for a model without a place."""
    folders = {name: _folder(name, options) for name in options.names or HOMES}
    todo = [name for name, folder in folders.items() if options.again or not (folder / name / CARD).exists()]
    if options.processes > 1 and len(todo) > 1:
        with ThreadPoolExecutor(options.processes) as threads:
            code = max(threads.map(lambda name: subprocess.run(_command(name, options), check=False).returncode, todo))
    else:
        code = max((_make(name, options) for name in todo), default=0)
    return max([code, *(_report(folder, options.most_megabytes) for folder in dict.fromkeys(folders.values()))])


def _folder(name: str, options: Arguments) -> Path:
    """Where a model goes."""
    if options.to is None and name not in HOMES:
        raise InputError(f"{name} is not a model that is shipped", remedy="say where it goes: --to FOLDER")
    return options.to or HOMES[name]


def _command(name: str, options: Arguments) -> list[str]:
    command = [sys.executable, __file__, name, "--runs", str(options.runs), "--to", str(_folder(name, options))]
    command += ["--most-megabytes", str(options.most_megabytes)]
    command += [flag for flag, is_set in (("--again", options.again), ("--trained", options.trained)) if is_set]
    command += ["--about", options.about] if options.about else []
    return [*command, *(["--set", *options.set] if options.set else [])]


def _make(name: str, options: Arguments) -> int:
    torch.set_num_threads(1)
    run, folder = options.runs / name, _folder(name, options) / name
    try:
        about = options.about or about_recipe(name)  # told before anything takes long
        if not options.trained:
            _train(name, run, options.set)
        how = f"treelm train {name}`, then `python benchmarks/pretrain.py {name} --trained"
        origin = Origin(
            about=about,
            commit=_commit(),
            command=how if options.trained else f"python benchmarks/pretrain.py {name}",
            recipe=origin_in_words(name, run),
        )
        ship(run, folder, origin, recipe_file=without_paths(run, options.set) if options.trained else None)
    except (TrainingInterrupted, NonFiniteError) as stopped:
        print(f"{name}: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    for text in differences(load_model(folder), folder):
        print(f"{name}: {text}", file=sys.stderr)
        return 1
    return 0


def _train(name: str, run: Path, changes: Sequence[str]) -> None:
    """Train, or go on."""
    recipe = load_recipe(name, changes)
    if is_estimated(run, recipe):
        return
    if has_run(run, recipe):
        train(resume=run)
    else:
        train(recipe, run)


def _commit() -> str:
    """The version of the source; marked if files differ from it that are neither models nor what is written of them."""
    beside = (f":(exclude,glob)**/{FOLDER.name}/**", ":(exclude)docs")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *beside)
    return (_git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    """What git prints; nothing where there is no repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _report(folder: Path, most_megabytes: int) -> int:
    sizes = {path.name: sum(file.stat().st_size for file in path.iterdir()) for path in sorted(folder.glob("[!.]*"))}
    for name, size in {**sizes, "all": sum(sizes.values())}.items():
        print(f"{name}\t{size / 1e6:.2f} MB")
    if sum(sizes.values()) > most_megabytes * 1e6:
        print(f"more than {most_megabytes} MB: make a model smaller", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
