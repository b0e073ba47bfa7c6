"""Stream models compared for the same processor time: rows of a sweep file by seeds, in pieces.

python benchmarks/equal_time.py --sweep benchmarks/palm_gum.toml --seeds 1 2 --cpu-seconds 1200 --out runs/palm-gum
python benchmarks/equal_time.py --text FOLDER --rows awd-lstm on-lstm prpn --seeds 1 2 3 --out runs/streams-small

With --text, models are trained on the beginning of FOLDER/ptb.train.txt (or .gz) and judged on ptb.valid.txt; the
vocabulary is that of the whole training file, so that perplexities do not depend on how much of it is trained on.
Without, data and vocabulary are the recipe's. Dev is read after every epoch, in ten rows, each from the zero state;
every token and every end is a target once. A run that was cut off is resumed, a finished one kept; curve.jsonl in its
folder is its learning curve. The table at the end (or at any time, with --max-runs 0) has means and deviations.
With --trees it has unlabelled F1 too (protocols wsj10 and wsj40, mean of sentences), by both builders of trees from
distances; the words of those files are changed as in PRPN's experiments on parsing (preprocess = "prpn").
"""

from __future__ import annotations

import gzip
import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import one_line
import tyro

from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabularies import build_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.span_protocols import WSJ10, WSJ40, score_spans
from treelm.inference.loading import load
from treelm.models.persistence.storage import VOCABULARY
from treelm.models.streams import StreamLM
from treelm.training.loop import Step, fit
from treelm.training.metrics import perplexity
from treelm.training.recipe import FILE_NAME, Recipe, load_recipe, save_recipe
from treelm.training.run import set_up

CURVE, FINISHED, TREES = "curve.jsonl", "finished.json", "trees.json"
F1 = tuple(f"{protocol.name} {builder}" for protocol in (WSJ10, WSJ40) for builder in ("unbiased", "biased"))
SWEEP = Path(__file__).with_name("streams_small.toml")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to run."""

    sweep: Path = SWEEP
    """File that says what each row is: a recipe and what the row changes in it."""
    text: Path | None = None
    """Folder with ptb.train.txt and ptb.valid.txt; without it, the recipe's own data."""
    rows: tuple[str, ...] = ()
    """Rows of the sweep file; without it, all."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of every row."""
    out: Path = Path("runs/equal-time")
    """Folder of all runs."""
    trees: tuple[Path, ...] = ()
    """Bracket files: the trees of every run that finds some are compared with these."""
    num_symbols: int = 300_000
    """With --text: train on the first sentences that have together at most so many words and ends."""
    cpu_seconds: float = 800.0
    """Processor time in updates of the weights, of a run."""
    precision: str = "fp32-fast"
    """As in [training]."""
    set: tuple[str, ...] = ()
    """SECTION.FIELD=VALUE in every row, after what the sweep file says, such as where the data are."""
    max_runs: int | None = None
    """Stop after so many runs; call again to go on."""


def main(options: Arguments) -> None:
    """Do the next runs, seed by seed, and print the table of all that are done."""
    sweep = tomllib.loads(options.sweep.read_text())
    options = replace(options, rows=options.rows or tuple(sweep["rows"]))
    todo = [(row, seed) for seed in options.seeds for row in options.rows]
    todo = [one for one in todo if not (_folder(options, *one) / FINISHED).exists()]
    for row, seed in todo[: options.max_runs]:
        _run(options, sweep, row, seed)
    for row, seed in ((row, seed) for seed in options.seeds for row in options.rows):
        judge_trees(_folder(options, row, seed), options.trees)
    print_table(options)


def _folder(options: Arguments, row: str, seed: int) -> Path:
    return options.out / f"{row}-{seed}"


def _run(options: Arguments, sweep: dict[str, Any], row: str, seed: int) -> None:
    run = _folder(options, row, seed)
    recipe = _recipe(options, sweep, row, seed)
    resume = (run / FILE_NAME).exists()
    setup = set_up(recipe, vocabulary=None if options.text is None else _vocabulary(recipe, options.text))
    if not resume:
        run.mkdir(parents=True, exist_ok=True)
        save_vocabulary(setup.model.vocabulary, run / VOCABULARY)
        save_recipe(setup.recipe, run / FILE_NAME)
    num_symbols = int(setup.encoded.num_tokens.sum()) + len(setup.encoded)
    last = {}
    for step in fit(setup.model, setup.batches, setup.dev, setup.recipe.training, run, resume=resume):
        if step.dev is not None:
            last = _figures(step)
            with (run / CURVE).open("a") as file:
                file.write(json.dumps(last) + "\n")
    num_parameters = sum(parameter.numel() for parameter in setup.model.parameters())
    (run / FINISHED).write_text(json.dumps({**last, "num_parameters": num_parameters, "num_symbols": num_symbols}))


def _recipe(options: Arguments, sweep: dict[str, Any], row: str, seed: int) -> Recipe:
    settings = [*sweep["all"]["settings"], *sweep["rows"][row].get("settings", []), *options.set]
    settings += [f"training.precision={options.precision}", f"training.seed={seed}", "training.threads=1"]
    settings += [f"training.max_cpu_minutes={options.cpu_seconds / 60}", "training.checkpoint_every_minutes=3"]
    recipe = load_recipe(sweep["rows"][row]["recipe"], settings)
    recipe = replace(recipe, training=replace(recipe.training, max_minutes=None))
    if options.text is None:
        return recipe
    beginning = _beginning(options.text, options.num_symbols, options.out)
    data = DataConfig(train=str(beginning), dev=str(_file(options.text, "valid")), format="text")
    return replace(recipe, data=data)


def _file(text: Path, split: str) -> Path:
    plain = text / f"ptb.{split}.txt"
    return plain if plain.exists() else plain.with_name(plain.name + ".gz")


def lines_of(text: Path, split: str) -> list[str]:
    """The lines of a split of Mikolov's text that have words."""
    return _lines(_file(text, split))


def first_lines(text: Path, num_symbols: int) -> list[str]:
    """The first lines of its training file, with so many words and ends together at most."""
    lines = lines_of(text, "train")
    ends = accumulate(len(line.split()) + 1 for line in lines)
    return lines[: sum(1 for _ in takewhile(lambda end: end <= num_symbols, ends))]


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [line for line in file if line.split()]


def _beginning(text: Path, num_symbols: int, out: Path) -> Path:
    """The first sentences of the training file, in a file of their own."""
    path = out / f"train-{num_symbols}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(first_lines(text, num_symbols)))
    return path


def _vocabulary(recipe: Recipe, text: Path) -> Vocabulary:
    whole = DataConfig(train=str(_file(text, "train")), format="text")
    return build_vocabulary(recipe.vocabulary, prepared_split(whole, "train").form_counts())


def _figures(step: Step) -> dict[str, Any]:
    assert step.dev is not None
    nats = {name: total / count for name, (total, count) in step.dev.terms.items() if count}
    figures = {"step": step.step, "epoch": step.epoch, "cpu_seconds": step.cpu_seconds, "is_best": step.is_best}
    figures |= {"targets": step.dev.num_words, "dev_perplexity": perplexity(nats["word"])}
    return figures | {f"dev_{name}_nats": value for name, value in nats.items()}


def judge_trees(run: Path, files: Sequence[Path]) -> None:
    """Unlabelled F1 of a finished run's trees by both protocols and builders, into its folder; kept for its files."""
    if not files or not (run / FINISHED).exists():
        return
    names = [str(file.resolve()) for file in files]
    if (run / TREES).exists() and json.loads((run / TREES).read_text()).get("files") == names:
        return
    model = load(run)
    if not isinstance(model, StreamLM) or not model.parses or model.tree_builder is None:
        return
    sentences = [one for file in files for one in read_sentences(file, preprocess="prpn") if one.words]
    words, gold = [one.words for one in sentences], [gold_bracketing(one) for one in sentences]
    scores: dict[str, Any] = {"files": names}
    for builder in ("unbiased", "biased"):
        model.tree_builder = builder
        found = [bracketing_of(tree) for tree in model.parse(words)]
        for protocol in (WSJ10, WSJ40):
            scores[f"{protocol.name} {builder}"] = score_spans(gold, found, protocol).sentence_f1
    (run / TREES).write_text(json.dumps(scores))


def gold_bracketing(sentence: Sentence) -> Bracketing:
    """Spans of a gold tree; raises where there is none."""
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="give files of trees")
    return bracketing_of(sentence.tree, tags=sentence.tags, where=sentence.where)


def print_table(options: Arguments) -> None:
    """Best dev perplexity within the time, the epochs that it took and F1: means and deviations over seeds."""
    print("row", "parameters", "best dev perplexity", *(F1 if options.trees else ()), "epochs", "runs", sep="\t")
    for row in options.rows:
        runs = [_folder(options, row, seed) for seed in options.seeds]
        runs = [run for run in runs if (run / FINISHED).exists()]
        if runs:
            last = [json.loads((run / FINISHED).read_text()) for run in runs]
            best = [min(json.loads(line)["dev_perplexity"] for line in _lines(run / CURVE)) for run in runs]
            trees = [json.loads((run / TREES).read_text()) for run in runs if (run / TREES).exists()]
            f1 = [_spread([one[name] for one in trees]) for name in F1] if options.trees else []
            epochs = f"{mean(one['epoch'] for one in last):.1f}"
            print(row, last[0]["num_parameters"], _spread(best), *f1, epochs, len(runs), sep="\t")


def _spread(values: Sequence[float]) -> str:
    """Mean and deviation; a value alone has none."""
    if not values:
        return "-"
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


if __name__ == "__main__":
    sys.exit(one_line.run(main, tyro.cli(Arguments)))
