"""Ablations of SOM: rows of a sweep file by seeds, in pieces. A run that was cut off is resumed, a finished one kept.

python benchmarks/som_oracles.py --rows dynamic left-branching static printed --seeds 1 2 3 --out runs/som-oracles

Every run writes figures.json (dev, greedy; and along the gold tree) into its folder; all of them are printed as a table
at the end, or at any time with --rows and --max-runs 0.
"""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import one_line
import tyro
from som_metrics import evaluate_som

from treelm.corpora.batches import SentenceBatches
from treelm.corpora.data_config import prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.models.som.network import SOM
from treelm.training.recipe import Recipe, load_recipe
from treelm.training.run import load_run_recipe, train

FIGURES = "figures.json"
SWEEP = Path(__file__).with_name("som_ablations.toml")
COLUMNS = ("perplexity_with_end", "p_accuracy_unforced", "p_prediction_accuracy_unforced", "binarised_unlabeled_f1")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to run."""

    sweep: Path = SWEEP
    """File with a list of overrides for every row."""
    recipe: str = "som-demo"
    """Recipe that the rows change."""
    rows: tuple[str, ...] = ("dynamic", "left-branching", "static", "printed")
    """Rows of the sweep file."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of every row."""
    out: Path = Path("runs/som-oracles")
    """Folder of all runs."""
    minutes: float = 10.0
    """Training time of a run, over all its pieces."""
    epochs: int = 30
    """Passes over the data, if the time allows."""
    max_runs: int | None = None
    """Stop after so many runs; call again to go on."""
    threads: int = 1
    """CPU threads."""


def main(options: Arguments) -> None:
    """Do the next runs, seed by seed, and print the table of all that are done."""
    sweep = tomllib.loads(options.sweep.read_text())["rows"]
    todo = [(row, seed) for seed in options.seeds for row in options.rows]
    todo = [one for one in todo if not (_folder(options, *one) / FIGURES).exists()]
    for row, seed in todo[: options.max_runs]:
        _run(options, sweep[row], _folder(options, row, seed), seed)
    print_table(options)


def _folder(options: Arguments, row: str, seed: int) -> Path:
    return options.out / f"{row}-{seed}"


def _run(options: Arguments, overrides: list[str], folder: Path, seed: int) -> None:
    resume = (folder / "recipe.toml").exists()
    recipe = load_run_recipe(folder) if resume else load_recipe(options.recipe, overrides)
    training = replace(
        recipe.training, seed=seed, max_minutes=options.minutes, epochs=options.epochs, threads=options.threads
    )
    recipe = replace(recipe, training=training)
    model = train(recipe, folder, resume=resume, on_terminal=False)
    assert isinstance(model, SOM)
    (folder / FIGURES).write_text(json.dumps(_figures(model, recipe), indent=2))


def _figures(model: SOM, recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for split in ("dev", "test"):
        encoded = EncodedCorpus(prepared_split(recipe.data, split), model.vocabulary, model.labels)
        batches = list(SentenceBatches(encoded, batch_size=32, shuffle=False))
        found[split] = evaluate_som(model, batches).to_json()
        found[f"{split}, gold trees"] = evaluate_som(model, batches, gold_trees=True).to_json()
    return found


def print_table(options: Arguments) -> None:
    """Mean and deviation over seeds, dev, for the rows that have runs."""
    print("row", *COLUMNS, "runs", sep="\t")
    for row in options.rows:
        paths = [_folder(options, row, seed) / FIGURES for seed in options.seeds]
        done = [json.loads(path.read_text())["dev"] for path in paths if path.exists()]
        if done:
            print(row, *(_spread([figures.get(name) for figures in done]) for name in COLUMNS), len(done), sep="\t")


def _spread(values: list[float | None]) -> str:
    """Mean and deviation; a dash for what these models do not have, such as the accuracy of an absent network."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{mean(known):.3f}" + (f" ± {stdev(known):.3f}" if len(known) > 1 else "")


if __name__ == "__main__":
    sys.exit(one_line.run(main, tyro.cli(Arguments)))
