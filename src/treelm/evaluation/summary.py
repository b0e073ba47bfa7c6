"""Results side by side: a row for each split or file, main metrics in columns (Table 8, Shen et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.corpora.outputs import json_text
from treelm.errors import InputError
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.span_protocols import BINARISED, NO_PUNCTUATION
from treelm.models.persistence.files import write_atomically

if TYPE_CHECKING:
    from rich.console import RenderableType

Value = str | int | float
SUFFIXES = (".tsv", ".json")


def summary_row(result: EvaluationResult) -> dict[str, Value]:
    """The main metrics of a result by column; F1 in 0..100, accuracies in 0..1. What was not measured has no column.

    A perplexity that is not of each sentence by itself names its context: ``..., in a stream of 10 rows``. ``notes``
    says what else must be known to read the metrics.
    """
    row: dict[str, Value] = {
        "system": result.system,
        "data": result.split,
        "sentences": result.num_sentences,
        "words": result.num_words,
        "skipped": result.num_skipped,
    }
    for one in result.perplexities:
        row[f"perplexity_per_{one.unit}_{one.policy}{f', {one.context}' if one.context else ''}"] = one.value
    for bracketing in result.bracketing:
        row[f"f1, {bracketing.protocol}"] = bracketing.total.f1
    for spans in result.spans:
        row[f"unlabeled_f1_corpus, {spans.name}"] = spans.corpus_f1
        row[f"unlabeled_f1_sentence, {spans.name}"] = spans.sentence_f1
    return row | dict(result.own) | {"notes": _notes(result)}


def _notes(result: EvaluationResult) -> str:
    """Notes in one cell, without those on single sentences."""
    notes = (*result.own_notes(), *(note for bracketing in result.bracketing for note in bracketing.notes))
    return " | ".join(" ".join(note.split()) for note in dict.fromkeys(notes))


def write_summary(results: Sequence[EvaluationResult], path: Path) -> None:
    """Write one row for each result, unrounded, as TSV or JSON by the file's name; it is replaced in one piece."""
    rows = [summary_row(result) for result in results]
    if path.suffix == ".json":
        write_atomically(path, f"{json_text(rows)}\n".encode())
        return
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, *([str(row.get(name, "")) for name in columns] for row in rows)]
    write_atomically(path, "".join("\t".join(line) + "\n" for line in lines).encode())


def check_suffix(path: Path) -> None:
    """Raise ``InputError`` for a file whose name does not tell its format."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot tell the format of {path}", remedy=f"end its name in {' or '.join(SUFFIXES)}")


def summary_table(results: Sequence[EvaluationResult], *, title: str) -> RenderableType:
    """Main metrics for eyes: a row for each result, rounded, and the notes below, each once."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), box=SIMPLE_HEAD, caption=LEGEND, caption_justify="left")
    rows = [{name: _shown(name, value) for name, value in summary_row(result).items()} for result in results]
    headings = _headings(rows)
    for name, heading in headings.items():
        table.add_column(Text(heading), justify="left" if name == "data" else "right", no_wrap=name == "data")
    for row in rows:
        table.add_row(*(Text(row.get(name, "")) for name in headings))
    notes = dict.fromkeys(note for result in results for note in result.all_notes())
    return Group(table, *(Text(f"note: {note}") for note in notes))


def _headings(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """The columns that are shown, and what stands over them: few enough for a terminal."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    corpus_f1 = [name for name in names if name.startswith("unlabeled_f1_corpus")]
    shown = {"data": "data", "sentences": "sentences"}
    if any(row["skipped"] != "0" for row in rows):
        shown["skipped"] = "skipped"
    for name in names:
        if name.startswith("perplexity_per_word"):
            shown[name] = name.replace(name.partition(", ")[0], "ppl").replace(" in a stream", " stream")
    own = {name: heading for name in corpus_f1 for key, heading in _TABLES.items() if key in name}
    shown |= own or {name: f"UF1 {name.partition(', ')[2]}" for name in corpus_f1[-1:]}
    return shown | {name: heading for name, heading in _ACCURACIES.items() if name in names}


LEGEND = (
    "ppl: perplexity per word, ends included, each sentence by itself unless a stream is named. "
    "UF1: unlabelled corpus F1, against n-ary gold trees without punctuation and against binarised ones. "
    "p, p': accuracy of the parsers with one word of look-ahead and without."
)
_ACCURACIES = {"p_accuracy": "p", "p_prediction_accuracy": "p'"}
_TABLES = {NO_PUNCTUATION.name: "UF1 n-ary", BINARISED.name: "UF1 binary"}


def _shown(name: str, value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if "accuracy" in name else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else Path(value).name.removesuffix(".gz").removesuffix(".conllu")
