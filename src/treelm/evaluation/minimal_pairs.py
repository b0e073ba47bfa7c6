"""Minimal pairs: how often a model gives the grammatical sentence the higher probability.

Formats: BLiMP (JSON lines), Marvin & Linzen (TSV), or any TSV or CSV with two columns of sentences; gzip too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import Tokenisation, words_of
from treelm.errors import InputError, check_positive, nearest, without_errors
from treelm.inference.batching import Compute, in_batches, in_process
from treelm.inference.sentence_rows import numbers_words
from treelm.io.tables import deduplicate_names, read_rows, table_text
from treelm.models.base import LanguageModel
from treelm.models.perplexity import unconverged_note
from treelm.models.scores import NATS_PER_BIT

if TYPE_CHECKING:
    import pandas as pd

TIE = 1e-6  # nats: the probabilities of a pair are called equal if they are as near as that, relatively
BLIMP_GROUPS = ("UID", "linguistics_term", "field")
MARVIN_LINZEN = ("grammatical", "ungrammatical")
_MOST_SHOWN = 8  # rows in a message
_MARK = re.compile(r"\s*([*?#%]+(?=\s*\w)|\||\(\d+[a-z]?['.]*\)|\d+[a-z]?[.)]+(?=\s))")
"""What linguists write before an example, and no sentence has: its judgement, its number, a bar."""
_TEST_CASE = "test case"  # Marvin & Linzen: construction--details


@dataclass(frozen=True, kw_only=True)
class MinimalPair:
    """Two sentences, the first of them grammatical, and the groups that they belong to (grouping -> group)."""

    good: str
    bad: str
    groups: Mapping[str, str]
    where: str


class PairCounts(NamedTuple):
    """Numbers of pairs of a group. A tie is not correct."""

    correct: int  # pairs whose grammatical sentence is the more probable one
    ties: int  # pairs whose sentences have equal probabilities
    total: int

    @classmethod
    def of(cls, items: pd.DataFrame) -> PairCounts:
        """Count rows of ``MinimalPairResult.items``."""
        return cls(int(items["is_correct"].sum()), int(items["is_tie"].sum()), len(items))

    @property
    def accuracy(self) -> float | None:
        """Share of pairs that are correct, 0..1; None if there are no pairs."""
        return self.correct / self.total if self.total else None

    def to_json(self) -> dict[str, Any]:
        """The counts and the accuracy as JSON values."""
        return {"accuracy": self.accuracy, "correct": self.correct, "ties": self.ties, "pairs": self.total}


@dataclass(frozen=True, kw_only=True)
class MinimalPairResult:
    """Counts over all pairs and by every grouping (such as UID: the paradigms of BLiMP)."""

    items: pd.DataFrame
    """A row a pair: its number, its groups, both sentences, their surprisals in bits, and what follows from them."""
    groupings: Mapping[str, str]  # the column of each grouping
    is_lower_bound: bool  # whether log probabilities are lower bounds, by a search that prunes
    notes: tuple[str, ...] = ()

    @property
    def overall(self) -> PairCounts:
        """All pairs."""
        return PairCounts.of(self.items)

    @property
    def without_unknown(self) -> PairCounts:
        """The pairs without unknown words in the sentences."""
        return PairCounts.of(self.items[self.items["has_unk"] == 0])

    @property
    def num_with_unknown(self) -> int:
        """Number of pairs with an unknown word in one of the sentences."""
        return int(self.items["has_unk"].sum())

    @property
    def groups(self) -> dict[str, dict[str, PairCounts]]:
        """The pairs of each group, by grouping."""
        return {
            grouping: {str(group): PairCounts.of(own) for group, own in self.items.groupby(column, sort=False)}
            for grouping, column in self.groupings.items()
        }

    @property
    def num_impossible(self) -> int:
        """Number of pairs with a sentence of probability 0, by the model or because its search kept nothing."""
        return int(np.isinf(self.items[["good_surprisal_bits", "bad_surprisal_bits"]]).any(axis=1).sum())

    def to_json(self) -> dict[str, Any]:
        """All metrics as JSON values."""
        return {
            "overall": self.overall.to_json(),
            "without_unknown_words": self.without_unknown.to_json(),
            "num_pairs_with_unknown_words": self.num_with_unknown,
            "num_pairs_with_impossible_sentences": self.num_impossible,
            "log_probabilities_are_lower_bounds": self.is_lower_bound,
            "groups": {
                grouping: {group: counts.to_json() for group, counts in members.items()}
                for grouping, members in self.groups.items()
            },
            "notes": list(self.notes),
        }


def compare_log_probs(good: NDArray[np.float64], bad: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    """Compute ``is_correct`` and ``is_tie`` of pairs from the log probabilities of their sentences, in nats, (N,).

    Two sentences that are both impossible are a tie.
    """
    with np.errstate(invalid="ignore"):
        difference, scale = good - bad, np.maximum(np.abs(good), np.abs(bad))
        is_tie = np.isnan(difference) | (np.isfinite(difference) & (np.abs(difference) <= TIE * scale))
    return {"is_correct": (good > bad) & ~is_tie, "is_tie": is_tie}


def read_pairs(
    path: Path,
    *,
    good: str = "",
    bad: str = "",
    group_by: Sequence[str] = (),
    encoding: str | None = None,
    skipped: list[InputError] | None = None,
) -> Iterator[MinimalPair]:
    """Read the pairs of a file, whose format is recognised by its first line.

    ``good`` and ``bad`` name the columns of the sentences and ``group_by`` those of groups; without them, they are
    those of BLiMP or of Marvin & Linzen. Raises ``InputError`` with file and line, also for a judgement or a number
    before a sentence (``*The man come.``); ``skipped`` collects the errors of single pairs instead.
    """
    text = table_text(path, encoding)
    if not text.strip():
        raise InputError("no pairs", where=str(path), remedy="give BLiMP's JSON lines, or a TSV or CSV with a header")
    is_json = text.lstrip().startswith("{")
    usual = ("sentence_good", "sentence_bad") if is_json else MARVIN_LINZEN
    sides = (good or usual[0], bad or usual[1])
    usual_groups = BLIMP_GROUPS if is_json else ()
    rows = _json_rows(text, str(path)) if is_json else _table_rows(text, str(path), sides, skipped)
    return without_errors((_pair(*row, sides, group_by, usual_groups) for row in rows), skipped)


def _pair(
    where: str,
    cells: Mapping[str, Any] | InputError,
    sides: Sequence[str],
    group_by: Sequence[str],
    usual: Sequence[str],
) -> MinimalPair | InputError:
    """The pair of a row, or an error that says what is wrong with the row."""
    if isinstance(cells, InputError):
        return cells
    if _TEST_CASE in cells and not usual:  # of a table of Marvin & Linzen's, not of JSON lines
        cells, usual = {**cells, "construction": str(cells[_TEST_CASE]).partition("--")[0]}, ("construction",)
    names = group_by or [name for name in usual if name in cells]
    try:
        for name in (*sides, *names):
            if name not in cells:
                raise _no_column(name, cells, where)
        for name in sides:
            if not isinstance(cells[name], str):
                raise InputError(f"{name!r} is not text", where=where, remedy="correct this pair")
            if not words_of(cells[name], where=where):
                raise InputError("an empty sentence", where=where, remedy="remove this pair")
            if mark := _MARK.match(cells[name]):
                found = f"{mark[1]!r} before the sentence in {name!r}, which the model would read"
                raise InputError(found, where=where, remedy="give the sentences without judgements and numbers")
            if any("\ud800" <= character <= "\udfff" for character in cells[name]):
                raise InputError(f"{name!r} holds half a character", where=where, remedy="write it in UTF-8")
    except InputError as error:
        return error
    groups = {name: str(cells[name]) for name in names}
    return MinimalPair(good=cells[sides[0]], bad=cells[sides[1]], groups=groups, where=where)


_Row = tuple[str, "Mapping[str, Any] | InputError"]
"""The place of a row (``file:line``), and its values by column or the error that says why it has none."""


def _json_rows(text: str, source: str) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{source}:{number}"
        try:
            values = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:  # ValueError covers numbers without end
            reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
            yield where, InputError(f"not JSON ({reason})", where=where, remedy="correct this line")
            continue
        if isinstance(values, dict):
            yield where, values
        elif line.strip():
            yield where, InputError("not a JSON object", where=where, remedy="give one object a line")


def _table_rows(text: str, source: str, sides: Sequence[str], unreadable: list[InputError] | None) -> Iterator[_Row]:
    """Read the rows of a table. Raises ``InputError`` if it lacks a column, and if it has one word a row."""
    names, found, _ = read_rows(text, source, unreadable)
    for name in sides:
        if name not in names:  # before a first row, which there need not be
            raise _no_column(name, names, f"{source}:1")
    rows = list(found)
    if len(rows) > 1 and all(len(words_of(row[name])) < 2 for _, row in rows for name in sides):
        for name in names:
            if numbers_words(name, (row[name] for _, row in rows)):
                shown = ", ".join(f"{row[name]} {row[sides[0]]}" for _, row in rows[:_MOST_SHOWN])
                remedy = f"write each sentence in one cell, a pair a row; rename {name} if it does not number words"
                raise InputError(f"a word in each row, numbered by {name}: {shown}", where=rows[0][0], remedy=remedy)
    yield from rows


def _no_column(name: str, known: Collection[str], where: str) -> InputError:
    listed = f"name the columns: there are {', '.join(map(repr, known))}"
    return InputError(f"no {name!r}", where=where, remedy=f"{nearest(name, known)}{listed}")


def first_of_groups(pairs: Sequence[MinimalPair], most: int) -> list[MinimalPair]:
    """Keep the first pairs of every group of the first grouping, at most ``most`` of each.

    Raises ``InputError`` if ``most`` is below 1.
    """
    check_positive(max_pairs_per_group=most)
    seen: Counter[str] = Counter()
    kept = []
    for pair in pairs:
        group = next(iter(pair.groups.values()), "")
        seen[group] += 1
        if seen[group] <= most:
            kept.append(pair)
    return kept


def score_pairs(
    lm: LanguageModel,
    pairs: Sequence[MinimalPair],
    *,
    tokenisation: Tokenisation = "treebank",
    batch_size: int = 16,
    notes: Sequence[str] = (),
    on_sentence: Callable[[], None] = lambda: None,
    compute: Compute = in_process,
    skipped: list[InputError] | None = None,
) -> MinimalPairResult:
    """Score both sentences of every pair, each with its end; a sentence that occurs in several pairs is scored once.

    ``notes`` stand in the result before those on the search. ``on_sentence`` is called after each sentence. ``compute``
    scores groups of sentences in other processes. ``skipped`` collects the errors of sentences that cannot be scored;
    their pairs are left out, and the others keep their numbers. Raises ``InputError`` if there are no pairs.
    """
    if not pairs:
        raise InputError("no pairs", remedy="give a file with at least one pair")
    import pandas as pd

    texts = {text: pair.where for pair in reversed(pairs) for text in (pair.good, pair.bad)}
    sentences = []
    for text, where in texts.items():
        source, _, line = where.rpartition(":")
        words = words_of(text, tokenisation)
        sentences.append(Sentence(words=words, text=text, identifier=line, source=source, line=int(line)))
    found: dict[str | None, tuple[float, bool]] = {}  # log p of each text, and whether a word is unknown
    is_lower_bound, flags = False, list[bool]()
    score_batches = partial(compute, lm, LanguageModel.score)
    for sentence, score in in_batches(sentences, score_batches, batch_size=batch_size, skipped=skipped):
        if score is not None:
            classes = (lm.vocabulary.unknown_class(w, sentence_initial=i == 0) for i, w in enumerate(sentence.words))
            found[sentence.text] = float(score.log_probs.sum()), any(one is not None for one in classes)
            is_lower_bound |= score.is_lower_bound
            flags += score.converged.tolist()
            on_sentence()
    kept = {number: pair for number, pair in enumerate(pairs, 1) if pair.good in found and pair.bad in found}
    if not kept:
        raise InputError("no pair of which both sentences can be scored", remedy="give pairs that the model can read")
    good, bad = (np.array([found[getattr(pair, side)][0] for pair in kept.values()]) for side in ("good", "bad"))
    with np.errstate(invalid="ignore"):
        difference = (good - bad) / NATS_PER_BIT
    columns = {
        "good": [pair.good for pair in kept.values()],
        "bad": [pair.bad for pair in kept.values()],
        "good_surprisal_bits": -good / NATS_PER_BIT,
        "bad_surprisal_bits": -bad / NATS_PER_BIT,
        "difference_bits": difference,
        **{name: values.astype(int) for name, values in compare_log_probs(good, bad).items()},
        "has_unk": [int(found[pair.good][1] or found[pair.bad][1]) for pair in kept.values()],
    }
    names = list(dict.fromkeys(name for pair in kept.values() for name in pair.groups))
    groupings = dict(zip(names, deduplicate_names(names, taken=("model", "pair", *columns)), strict=True))
    groups = {column: [pair.groups.get(name) for pair in kept.values()] for name, column in groupings.items()}
    items = pd.DataFrame({"pair": list(kept), **groups, **columns})
    notes = (*notes, *unconverged_note(flags))
    return MinimalPairResult(items=items, groupings=groupings, is_lower_bound=is_lower_bound, notes=notes)
