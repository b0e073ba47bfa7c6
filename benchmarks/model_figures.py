"""What shipped models are worth, measured and written beside them, into their cards and into docs/pretrained.md.

python benchmarks/model_figures.py lstm-gum-open ngram-gum-open --natural-stories FOLDER
python benchmarks/model_figures.py rnng-open-english --measures blimp --blimp FOLDER --max-pairs-per-group 10
python benchmarks/model_figures.py                                all models, what is measured is kept
python benchmarks/model_figures.py --only-write                   cards and the page again, from what was recorded

SyntaxGym, BLiMP where --blimp says where it is, reading times (docs/reading.md says where Natural Stories is) and
garden paths, by the subcommands of treelm, one after the other, each written when it is done: a call that was stopped
goes on where it was. What was measured of other weights under the same name is measured again. A model that predicts
no words has none of these figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import one_line
from human_figures import MEASURES, effect_text, milli, perplexity_text
from model_card import FIGURES, duration, read_figures, write_figures
from syntax_figures import pairs_text

from treelm import __version__
from treelm.cli.arguments import Positional
from treelm.errors import InputError, choose_from
from treelm.io.files import file_hash
from treelm.models.base import LanguageModel
from treelm.models.persistence.storage import WEIGHTS, load_model
from treelm.training.run_folder import load_run_recipe

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "src" / "treelm" / "pretrained", *sorted(ROOT.glob("packages/*/src/*/pretrained")))
PAGE = ROOT / "docs" / "pretrained.md"
BEGIN, END = "<!-- figures of all models: python benchmarks/model_figures.py -->\n", "<!-- end of figures -->\n"
FILES = {"BLIMP": "blimp.jsonl.gz", "EWT": "en_ewt-test.conllu.gz"}
MISSING = "-"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    names: Annotated[tuple[str, ...], Positional("NAME")] = ()
    """Models of the packages; without any, all."""
    natural_stories: str = ""
    """Folder of Natural Stories; without it, that of treelm's cache."""
    blimp: str = ""
    """Folder of blimp.jsonl.gz (docs/research/shipped-models.md says how to make it); without it, BLiMP is left out."""
    ewt: str = ""
    """Folder of en_ewt-test.conllu.gz, the test part of the English Web Treebank; without it, "web" is left out."""
    max_sentences: int | None = None
    """Of each text, the first sentences alone, for a system that searches."""
    max_pairs_per_group: int | None = None
    """Of each paradigm of BLiMP, the first pairs alone: a system that searches reads tens of words a second."""
    measures: tuple[Literal["modern", "older", "web", "syntaxgym", "blimp", "reading", "gardenpath"], ...] = tuple(
        MEASURES
    )
    """What to measure."""
    beam: tuple[int, int] | None = None
    """Analyses that ``treelm reading`` keeps between actions and between words; without it, it widens the beam until
    surprisals converge, which takes a search minutes to hours. Garden paths are always measured in that way."""
    again: bool = False
    """Measure also what is recorded."""
    only_write: bool = False
    """Measure nothing."""


def main(options: Arguments) -> int:
    """Measure, and write cards and the page; the exit code."""
    models = {path.parent.name: path.parent for folder in FOLDERS for path in sorted(folder.glob(f"*/{FIGURES}"))}
    for name in options.names:
        if name not in models:
            raise InputError(f"no model {name!r}", remedy=choose_from(name, models))
    for name in options.names or models:
        if not options.only_write:
            measure(models[name], options)
        write_figures(models[name], read_figures(models[name]))
        write_page(list(models.values()))
    return 0


def measure(folder: Path, options: Arguments) -> None:
    """Measure what is not recorded of these weights, and record each as soon as it is there."""
    if not load_model(folder).predicts_words:
        return
    weights = file_hash(folder / WEIGHTS, remedy="make the model again")[:16]
    for name in options.measures:
        figures = read_figures(folder)
        measured: dict[str, Any] = figures.setdefault("measured", {})
        folders = {"BLIMP": options.blimp, "EWT": options.ewt}
        lacks_file = any(part in MEASURES[name].command and not given for part, given in folders.items())
        if lacks_file or (measured.get(name, {}).get("weights") == weights and not options.again):
            continue
        command = (*MEASURES[name].command, *_flags(name, options))
        paths = {"NAME": str(folder), **{part: str(Path(folders[part]) / file) for part, file in FILES.items()}}
        data = ["--data", options.natural_stories] if name == "reading" and options.natural_stories else []
        record = MEASURES[name].keep(_json_of([*(paths.get(part, part) for part in command), *data]))
        called = " ".join({"NAME": folder.name, **FILES}.get(part, part) for part in command)
        origin = {"command": f"treelm {called}", "date": f"{date.today()}", "treelm": __version__, "weights": weights}
        measured[name] = {**origin, **record}
        write_figures(folder, figures)


def _flags(name: str, options: Arguments) -> list[str]:
    """Options of the subcommand that change its figures, so that cards repeat them."""
    flags: list[str] = []
    if options.beam and name == "reading":
        flags += ["--action-beam", str(options.beam[0]), "--word-beam", str(options.beam[1])]
    if options.max_sentences is not None and MEASURES[name].command[0] == "evaluate":
        flags += ["--max-sentences", str(options.max_sentences)]
    if options.max_pairs_per_group is not None and name == "blimp":
        flags += ["--max-pairs-per-group", str(options.max_pairs_per_group)]
    return flags


def _json_of(arguments: Sequence[str]) -> Any:
    """What a subcommand prints; raises ``InputError`` if it fails."""
    print(f"treelm {' '.join(arguments)}", file=sys.stderr)
    command = [sys.executable, "-m", "treelm", *arguments, "--json"]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise InputError(f"treelm {arguments[0]} ended with {done.returncode}", remedy="see its message above")
    return json.loads(done.stdout)


def write_page(folders: Sequence[Path]) -> None:
    """Put the table of all models between the marks of the page."""
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise InputError(
            "no marks around the table", where=str(PAGE), remedy=f"write {BEGIN.strip()} and {END.strip()}"
        )
    PAGE.write_text(f"{before}{BEGIN}{tables(folders)}{END}{after}", encoding="utf-8")


def tables(folders: Sequence[Path]) -> str:
    """How models were made and how good they are, and what their surprisals are worth: two tables, in Markdown."""
    heads = ("model", "parameters", "trained on", "words", "training", "perplexity, dev / test", "F1, dev / test")
    made = [_row(folder) for folder in folders]
    worth = (
        "model",
        "perplexity, modern / older / web",
        "SG score",
        "BLiMP, % of pairs",
        "reading times, 10^-3 nats a word",
        "MVRR, bits",
        "NP/S, bits",
        "NP/Z, bits",
    )
    judged = [(f"`{folder.name}`", *_worth(read_figures(folder).get("measured", {}))) for folder in folders]
    return f"\n{_markdown(heads, made)}\n{_markdown(worth, judged)}\n"


def _row(folder: Path) -> tuple[str, ...]:
    figures, recipe, lm = read_figures(folder), load_run_recipe(folder), load_model(folder)
    columns = [result["rows"] for result in figures["results"]]
    perplexity = _across(columns, "perplexity per word")
    f1 = _across(columns, "F1, evalb")
    kind = "" if f1 == MISSING else ", labelled" if getattr(lm, "predicts_labels", False) else ", unlabelled"
    return (
        f"`{folder.name}`",
        _parameters(lm),
        f"`{recipe.data.corpus}`",
        f"{figures['num_words']:,}",
        duration(figures["training"], brief=True),
        perplexity,
        f"{f1}{kind}",
    )


def _parameters(lm: LanguageModel) -> str:
    number = sum(parameter.numel() for parameter in lm.parameters())
    return f"{number / 1e6:.2f}M" if number else MISSING


def _across(columns: Sequence[Mapping[str, str]], beginning: str) -> str:
    """The first figure with such a name, of every split."""
    found = [next((value for name, value in column.items() if name.startswith(beginning)), None) for column in columns]
    return " / ".join(value or MISSING for value in found) if any(found) else MISSING


def _worth(measured: Mapping[str, Any]) -> tuple[str, ...]:
    texts = [
        perplexity_text(record) if (record := measured.get(name)) and not record["num_unknown"] else MISSING
        for name in ("modern", "older", "web")
    ]
    score = f"{100 * measured['syntaxgym']['sg_score']:.1f}" if "syntaxgym" in measured else MISSING
    pairs = pairs_text(measured["blimp"]) if "blimp" in measured else MISSING
    gain = milli(measured["reading"]) if "reading" in measured else MISSING
    effects = measured.get("gardenpath", {}).get("effects", {})
    return (
        MISSING if set(texts) == {MISSING} else " / ".join(texts),
        score,
        pairs,
        gain,
        *(effect_text(effects[name]) if effects else MISSING for name in ("MVRR", "NP/S", "NP/Z")),
    )


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
