"""Runs of the papers' sizes, made in pieces: call again and again, as time on a machine is there.

python benchmarks/paper_runs.py --ptb FOLDER --gum FOLDER --minutes 8 --out runs/paper

Every call trains for about so many minutes in all. It goes on with the first run of the order below that is not
finished; ``--in-turns`` gives every unfinished run a piece of its own instead. A run ends by its recipe (epochs, early
stopping); then its test split is judged. results.json and results.md in ``--out`` hold what is known of every run
beside the paper's figure: epochs, minutes, the lowest perplexity on dev, and the figures of the test split. A run that
was interrupted, by a signal or ``kill -9``, goes on from its newest checkpoint (every three minutes).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import one_line
import tyro

from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary
from treelm.models.persistence.storage import VOCABULARY
from treelm.training.loop import Step, fit
from treelm.training.metrics import perplexity
from treelm.training.recipe import FILE_NAME, load_recipe, save_recipe
from treelm.training.run import load_run_recipe, set_up

FINISHED = "finished.json"


@dataclass(frozen=True)
class Paper:
    """A recipe, the data that it needs, and what was published."""

    recipe: str
    data: str
    published: str


ORDER = (
    Paper("prpn-ptb", "ptb", "test perplexity 61.98 (Shen et al. 2018, Table 3)"),
    Paper("prpn-ptb-char", "ptb", "test 1.202 bits a character (Shen et al. 2018)"),
    Paper("awd-lstm-ptb", "ptb", "dev / test perplexity 61.2 / 58.8 before finetuning (Merity et al. 2018)"),
    Paper("palm-u-ptb", "ptb", "dev / test perplexity 58.6 / 56.4 (Peng et al. 2019)"),
    Paper("on-lstm-ptb", "ptb", "test perplexity 56.17 after finetuning (Shen et al. 2019)"),
    Paper("rnng-gum", "gum", "none for these data"),
    Paper("som-gum", "gum", "none for these data"),
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Which runs, where, and for how long."""

    ptb: Path | None = None
    """Folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt."""
    gum: Path | None = None
    """Folder with train, dev and test files, brackets and CoNLL-U."""
    out: Path = Path("runs/paper")
    """Folder of all runs."""
    minutes: float = 8.0
    """Of training in this call, reading of data and evaluation on dev included."""
    in_turns: bool = False
    """Share the minutes among all unfinished runs."""
    only: tuple[str, ...] = ()
    """Only these recipes, in this order."""
    set: tuple[str, ...] = ()
    """Settings of new runs that differ from the recipe, such as training.precision=bf16."""
    judge: bool = False
    """Judge the test split of unfinished runs too."""


def main(options: Arguments) -> None:
    """Go on with what is not finished, and write down what is known."""
    options.out.mkdir(parents=True, exist_ok=True)
    todo = [paper for paper in chosen(options) if not (options.out / paper.recipe / FINISHED).exists()]
    left = 60 * options.minutes
    for number, paper in enumerate(todo):
        seconds = left / (len(todo) - number) if options.in_turns else left
        if seconds < 1:
            break
        begin = perf_counter()
        train_piece(paper, options, seconds)
        left -= perf_counter() - begin
        write_results(options)
    for paper in chosen(options):
        if options.judge or (options.out / paper.recipe / FINISHED).exists():
            judge(options.out / paper.recipe)
    write_results(options)
    print((options.out / "results.md").read_text())


def chosen(options: Arguments) -> list[Paper]:
    """The runs whose data are given, in order."""
    by_name = {paper.recipe: paper for paper in ORDER}
    names = options.only or tuple(by_name)
    return [by_name[name] for name in names if getattr(options, by_name[name].data) is not None]


def train_piece(paper: Paper, options: Arguments, seconds: float) -> None:
    """Begin or resume a run, for about so many seconds."""
    run = options.out / paper.recipe
    resume = any((run / "checkpoints").glob("step-*")) if run.exists() else False
    limit = f"training.max_minutes={(trained(run).get('seconds', 0.0) + seconds) / 60}"
    if resume:
        recipe = load_run_recipe(run, (limit,))
    else:
        data = f"data.corpus={getattr(options, paper.data).resolve()}"
        recipe = load_recipe(paper.recipe, [data, *options.set, limit])
    kept = run / VOCABULARY
    setup = set_up(recipe, vocabulary=load_vocabulary(kept) if resume and kept.exists() else None)
    if not resume:
        run.mkdir(parents=True, exist_ok=True)
        save_vocabulary(setup.model.vocabulary, run / VOCABULARY)
    save_recipe(setup.recipe, run / FILE_NAME)
    last: Step | None = None
    training = setup.recipe.training
    steps = fit(setup.model, setup.batches, setup.dev, training, run, resume=resume, dev_trees=setup.dev_trees)
    for step in steps:
        last = step
    if last is None or not (last.stopped_because or "").startswith("max_minutes"):
        (run / FINISHED).write_text(json.dumps({"because": last.stopped_because if last else "nothing was left"}))


def trained(run: Path) -> dict[str, Any]:
    """What the log of a run says: seconds, epoch, steps, and the lowest loss on dev."""
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not lines:
        return {}
    found = {"seconds": lines[-1]["elapsed_seconds"], "epoch": lines[-1]["epoch"], "step": lines[-1]["step"]}
    losses = [line["loss_nats_per_word"] for line in lines if line["kind"] == "dev"]
    if losses:
        found |= {"dev_perplexity": perplexity(min(losses)), "dev_bits": min(losses) / math.log(2)}
    return found


def judge(run: Path) -> None:
    """Figures of the test split, into test.json; kept as long as the model is the same."""
    summary, model = run / "test.json", run / "model.safetensors"
    if not model.exists() or (summary.exists() and summary.stat().st_mtime > model.stat().st_mtime):
        return
    command = [sys.executable, "-m", "treelm", "evaluate", str(run), "--split", "test", "--summary", str(summary)]
    subprocess.run(command, check=False)


def write_results(options: Arguments) -> None:
    """Everything that is known, as JSON and as a table."""
    results = []
    for paper in chosen(options):
        run = options.out / paper.recipe
        test = json.loads((run / "test.json").read_text()) if (run / "test.json").exists() else None
        done = (run / FINISHED).exists()
        results.append({"recipe": paper.recipe, "published": paper.published, "finished": done, **trained(run)})
        results[-1]["test"] = test
    (options.out / "results.json").write_text(json.dumps(results, indent=1))
    lines = ["| recipe | published | minutes | epochs | best on dev | finished |", "|---|---|---|---|---|---|"]
    for one in results:
        best = f"{one['dev_perplexity']:.2f} ({one['dev_bits']:.3f} bits)" if "dev_perplexity" in one else "-"
        minutes, finished = f"{one.get('seconds', 0) / 60:.1f}", "yes" if one["finished"] else "no"
        figures = (one["recipe"], one["published"], minutes, str(one.get("epoch", 0)), best, finished)
        lines.append(f"| {' | '.join(figures)} |")
    note = "Best on dev: the loss that selects, per target of a stream or per word of sentences, with trees for RNNGs."
    (options.out / "results.md").write_text("\n".join([*lines, "", note, ""]))


if __name__ == "__main__":
    sys.exit(one_line.run(main, tyro.cli(Arguments)))
