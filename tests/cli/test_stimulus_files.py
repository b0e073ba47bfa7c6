"""Stimuli as people have them: six kinds of tables, each in one command, beside figures that are added up by hand."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas
import pytest

import treelm as library
from tests.cli.conftest import Treelm
from tests.legacy.make import HERE as RUNS

pytestmark = pytest.mark.filterwarnings("ignore:.* unknown to ")
RUN = RUNS / "lstm"
VERBS = ["was", "saw", "is", "had", "thinks"]
ITEMS = [
    (str(item), condition, start.format(subject), VERBS[item % 5], "right about this .")
    for item, subject in enumerate(["dog", "cat", "city", "country", "man", "woman", "one", "other", "house", "time"])
    for condition, start in (("a", "The {} that I think"), ("b", "One of the {} ,"))
]
"""Ten items in two conditions: item, condition, what comes before the target, it, and what comes after it."""
TEXTS = [" ".join(parts) for _, _, *parts in ITEMS]


@pytest.fixture(scope="module")
def word_bits() -> dict[str, list[float]]:
    """The bits of every word of every text, from what the model gives."""
    lm = library.load(RUN)
    scores = lm.score([text.split() for text in TEXTS])
    return {t: [-x / math.log(2) for x in one.log_probs[:-1]] for t, one in zip(TEXTS, scores, strict=True)}


def sums(bits: Sequence[float], *lengths: int) -> list[float]:
    """Bits of neighbouring words added up."""
    ends = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    return [sum(bits[start:end]) for start, end in pairwise(ends)]


class Kind(NamedTuple):
    """A kind of table: header, the rows of an item, the options that read it, and the figures of an item's rows."""

    header: str
    rows: Callable[..., list[Sequence[Any]]]
    options: str
    figures: Callable[[list[float], int], list[float]]

    @property
    def settings(self) -> dict[str, Any]:
        """The same options in Python."""
        given = dict(re.findall(r"--(\S+) ([^-]+?)(?= --|$)", self.options))
        named = {name.replace("-", "_"): value for name, value in given.items()}
        sentence = named.pop("sentence_column", None)
        return {**named, **({"sentence": sentence.split()} if sentence else {})}


def at_target(bits: list[float], place: int) -> list[float]:
    return [bits[place]]


KINDS = {
    "marks": Kind(
        "item;cond;text",
        lambda i, c, start, target, end: [(i, c, f"{start} *{target}* {end}")],
        "--text-column text",
        at_target,
    ),
    "target column": Kind(
        "item;cond;critical;text",
        lambda i, c, start, target, end: [(i, c, target, f"{start} {target} {end}")],
        "--text-column text --target-column critical",
        at_target,
    ),
    "regions": Kind(
        "item;cond;text",
        lambda i, c, start, target, end: [(i, c, f"{start} | {target}|{end}")],
        "--text-column text",
        lambda bits, place: sums(bits, place, 1, len(bits) - place - 1),
    ),
    "words": Kind(
        "item;cond;nr;word",
        lambda i, c, *parts: [(i, c, nr, word) for nr, word in enumerate(" ".join(parts).split(), 1)],
        "--sentence-column item cond",
        lambda bits, place: bits,
    ),
    "trials": Kind(
        "reader;item;cond;text;verb;rt",
        lambda i, c, start, target, end: [
            (f"r{n}", i, c, f"{start} {target} {end}", target, 300 + n) for n in range(3)
        ],
        "--text-column text --target-column verb",
        lambda bits, place: [bits[place]] * 3,
    ),
    "regions of several words": Kind(
        "item;cond;region;word",
        lambda i, c, *parts: [(i, c, n, word) for n, part in enumerate(parts, 1) for word in part.split()],
        "--sentence-column item cond --sum-by region",
        lambda bits, place: sums(bits, place, 1, len(bits) - place - 1),
    ),
}


def written(kind: Kind, folder: Path) -> Path:
    """A table of this kind with the twenty sentences."""
    rows = [row for item in ITEMS for row in kind.rows(*item)]
    path = folder / "items.csv"
    path.write_text("\n".join([kind.header, *(";".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize("name", KINDS)
def test_a_table_of_any_kind_and_its_frame_give_the_figures_that_are_added_up_by_hand(
    name: str, word_bits: dict[str, list[float]], treelm: Treelm, tmp_path: Path
) -> None:
    kind = KINDS[name]
    path = written(kind, tmp_path)
    outcome = treelm("surprisal", RUN, path, *kind.options.split())
    assert outcome.code == 0, outcome.err
    found = pandas.read_csv(io.StringIO(outcome.out), sep="\t", dtype=str)
    expected = [
        (item, condition, bits)
        for item, condition, start, target, end in ITEMS
        for bits in kind.figures(word_bits[f"{start} {target} {end}"], len(start.split()))
    ]
    assert [*zip(found["item"], found["cond"], strict=True)] == [row[:2] for row in expected]
    assert found["surprisal_bits"].astype(float).tolist() == pytest.approx([bits for *_, bits in expected], abs=1e-6)
    assert {*kind.header.split(";")} <= {*found}

    frame = library.surprisal_table(library.load(RUN), pandas.read_csv(path, sep=";", dtype=str), **kind.settings)
    assert [f"{bits:.6f}" for bits in frame["surprisal_bits"]] == found["surprisal_bits"].tolist()
    assert {*frame} == {*found}
    for column in {*kind.header.split(";"), "sentence_id"} & {*found}:
        assert frame[column].fillna("").astype(str).tolist() == found[column].fillna("").tolist()


def test_a_table_that_cannot_be_read_is_refused_before_a_model_is_loaded(
    treelm: Treelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelm.cli.options.ModelOptions.load", None)
    outcome = treelm("surprisal", RUN, written(KINDS["marks"], tmp_path))
    assert outcome.code == 2
    assert "no column 'word'" in outcome.err
