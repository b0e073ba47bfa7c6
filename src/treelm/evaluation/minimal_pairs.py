"""Minimal pairs: how often a model gives the grammatical sentence the higher probability.

Formats: BLiMP (JSON lines), Marvin & Linzen (TSV: test case, grammatical, ungrammatical), or any TSV or CSV with two
columns of sentences and columns to group by. gzip too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import Tokenisation, words_of
from treelm.errors import InputError, nearest
from treelm.inference.batching import in_batches
from treelm.inference.processes import Compute, here
from treelm.io.tables import Table, deduplicate_names, read_rows, table_text
from treelm.models.scores import NATS_PER_BIT

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel
    from treelm.models.scores import SentenceScore

TIE = 1e-6  # nats: the probabilities of a pair are called equal if they are as near as that, relatively
BLIMP_GROUPS = ("UID", "linguistics_term", "field")
MARVIN_LINZEN = ("grammatical", "ungrammatical")
PAIR_COLUMNS = (
    "pair",
    "good",
    "bad",
    "good_surprisal_bits",
    "bad_surprisal_bits",
    "difference_bits",
    "is_correct",
    "is_tie",
    "has_unk",
)
"""Columns of the table of pairs; those of groups stand after the first one."""
_TEST_CASE = "test case"  # Marvin & Linzen: construction--details


@dataclass(frozen=True, kw_only=True)
class MinimalPair:
    """Two sentences, the first of them grammatical, and the groups that they belong to (grouping -> group)."""

    good: str
    bad: str
    groups: Mapping[str, str]
    where: str


@dataclass(kw_only=True)
class PairCounts:
    """Pairs of a group. A tie is not correct."""

    correct: int = 0
    ties: int = 0
    total: int = 0

    def add(self, difference: float, scale: float) -> None:
        """Take in a pair: log p of the good sentence minus that of the bad one, and their size."""
        tie = _is_tie(difference, scale)
        self.correct += difference > 0 and not tie
        self.ties += tie
        self.total += 1

    @property
    def accuracy(self) -> float:
        """Share of pairs whose grammatical sentence is the more probable one."""
        return self.correct / self.total


@dataclass(frozen=True, kw_only=True)
class ScoredPair:
    """A pair with log p of both sentences, their ends included, in nats."""

    pair: MinimalPair
    good: float
    bad: float
    has_unknown: bool  # whether one of the sentences holds an unknown word

    @property
    def is_tie(self) -> bool:
        """Tell whether the sentences are equally probable."""
        return _is_tie(self.good - self.bad, max(abs(self.good), abs(self.bad)))

    @property
    def is_correct(self) -> bool:
        """Tell whether the grammatical sentence is the more probable one."""
        return self.good > self.bad and not self.is_tie


@dataclass(frozen=True, kw_only=True)
class MinimalPairResult:
    """Counts over all pairs and by every grouping (such as UID: the paradigms of BLiMP)."""

    overall: PairCounts
    groups: Mapping[str, Mapping[str, PairCounts]]
    num_with_unknown: int  # pairs with an unknown word in one of the sentences
    without_unknown: PairCounts
    is_lower_bound: bool  # whether log probabilities are lower bounds, by a search that prunes
    notes: tuple[str, ...] = field(default=())
    items: tuple[ScoredPair, ...] = ()

    @property
    def num_impossible(self) -> int:
        """Number of pairs with a sentence of probability 0, by the model or because its search kept nothing."""
        return sum(math.isinf(one.good) or math.isinf(one.bad) for one in self.items)

    def table(self) -> Table:
        """A row a pair: its number, its groups, both sentences, their surprisal in bits and what follows from it."""
        groups = tuple(dict.fromkeys(name for one in self.items for name in one.pair.groups))
        rows = [
            (
                number,
                *(one.pair.groups.get(name) for name in groups),
                one.pair.good,
                one.pair.bad,
                -one.good / NATS_PER_BIT,
                -one.bad / NATS_PER_BIT,
                (one.good - one.bad) / NATS_PER_BIT,
                int(one.is_correct),
                int(one.is_tie),
                int(one.has_unknown),
            )
            for number, one in enumerate(self.items, start=1)
        ]
        return Table(names=("pair", *deduplicate_names(groups, taken=PAIR_COLUMNS), *PAIR_COLUMNS[1:]), rows=rows)

    def to_frame(self, backend: str = "pandas") -> Any:
        """Return ``table`` as a data frame of pandas, or of another library."""
        return self.table().to_frame(backend)

    def to_json(self) -> dict[str, Any]:
        """All metrics as JSON values."""
        return {
            "overall": _counts_json(self.overall),
            "without_unknown_words": _counts_json(self.without_unknown),
            "num_pairs_with_unknown_words": self.num_with_unknown,
            "num_pairs_with_impossible_sentences": self.num_impossible,
            "log_probabilities_are_lower_bounds": self.is_lower_bound,
            "groups": {
                grouping: {group: _counts_json(counts) for group, counts in members.items()}
                for grouping, members in self.groups.items()
            },
            "notes": list(self.notes),
        }


def _is_tie(difference: float, scale: float) -> bool:
    """Tell whether two sentences are equally probable; of two impossible ones the difference is no number."""
    return math.isnan(difference) or (math.isfinite(difference) and abs(difference) <= TIE * scale)


def _counts_json(counts: PairCounts) -> dict[str, Any]:
    accuracy = counts.accuracy if counts.total else None
    return {"accuracy": accuracy, "correct": counts.correct, "ties": counts.ties, "pairs": counts.total}


def read_pairs(path: Path, *, good: str = "", bad: str = "", group_by: Sequence[str] = ()) -> Iterator[MinimalPair]:
    """Read the pairs of a file; its first line tells the format.

    For a table that is not Marvin & Linzen's, ``good`` and ``bad`` name the columns of the sentences and ``group_by``
    those to group by. Raises ``InputError`` with file and line.
    """
    text = table_text(path)
    if not text.strip():
        raise InputError("no pairs", where=str(path), remedy="give BLiMP's JSON lines, or a TSV or CSV with a header")
    if text.lstrip().startswith("{"):
        return _read_json_lines(text, str(path), good or "sentence_good", bad or "sentence_bad", group_by)
    return _read_table(text, str(path), good, bad, group_by)


def _read_json_lines(text: str, source: str, good: str, bad: str, group_by: Sequence[str]) -> Iterator[MinimalPair]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{source}:{number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError covers numbers without end
            reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
            raise InputError(f"not JSON ({reason})", where=where, remedy="correct this line") from None
        if not isinstance(values, dict):
            raise InputError("no JSON object", where=where, remedy="give one object a line")
        groups = group_by or tuple(name for name in BLIMP_GROUPS if name in values)
        yield _pair(values, good, bad, groups, where)


def _read_table(text: str, source: str, good: str, bad: str, group_by: Sequence[str]) -> Iterator[MinimalPair]:
    names, rows, _ = read_rows(text, source)
    good, bad = good or MARVIN_LINZEN[0], bad or MARVIN_LINZEN[1]
    if not group_by and _TEST_CASE in names:
        group_by = ("construction",)
    for name in (good, bad):
        if name not in names:
            raise _no_column(name, names, f"{source}:1")
    for where, row in rows:
        values = {**row, "construction": row[_TEST_CASE].partition("--")[0]} if _TEST_CASE in names else row
        yield _pair(values, good, bad, group_by, where)


def _no_column(name: str, known: Collection[str], where: str) -> InputError:
    listed = f"name the columns: there are {', '.join(map(repr, known))}"
    return InputError(f"no {name!r}", where=where, remedy=f"{nearest(name, known)}{listed}")


def _pair(values: Mapping[str, Any], good: str, bad: str, groups: Sequence[str], where: str) -> MinimalPair:
    for name in (good, bad, *groups):
        if name not in values:
            raise _no_column(name, values, where)
    for name in (good, bad):
        if not isinstance(values[name], str):
            raise InputError(f"{name!r} is no text", where=where, remedy="correct this pair")
        if not words_of(values[name], where=where):
            raise InputError("an empty sentence", where=where, remedy="leave this pair out")
        if any("\ud800" <= character <= "\udfff" for character in values[name]):
            raise InputError(f"{name!r} holds half a character", where=where, remedy="write it in UTF-8")
    return MinimalPair(
        good=str(values[good]), bad=str(values[bad]), groups={name: str(values[name]) for name in groups}, where=where
    )


def first_of_groups(pairs: Sequence[MinimalPair], most: int) -> list[MinimalPair]:
    """The first pairs of every group of the first grouping, at most so many of each.

    Raises ``InputError`` if that is below 1.
    """
    if most < 1:
        raise InputError(f"{most} pairs of a group", remedy="give 1 or more")
    seen: dict[str, int] = {}
    kept = []
    for pair in pairs:
        group = next(iter(pair.groups.values()), "")
        seen[group] = seen.get(group, 0) + 1
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
    compute: Compute[SentenceScore] | None = None,
) -> MinimalPairResult:
    """Score both sentences of every pair, each with its end; the same sentence is scored once.

    ``compute`` (see ``computing``) scores in other processes instead of ``lm``.

    Raises ``InputError`` if there are no pairs.
    """
    if not pairs:
        raise InputError("no pairs", remedy="give a file with at least one pair")
    texts = {text: pair.where for pair in reversed(pairs) for text in (pair.good, pair.bad)}
    sentences = [_sentence(text, where, tokenisation) for text, where in texts.items()]
    log_probs: dict[str, float] = {}
    unknown: set[str] = set()
    is_lower_bound = False
    for sentence, score in in_batches(sentences, compute or here(lm.score), batch_size=batch_size):
        assert score is not None
        assert sentence.text is not None
        log_probs[sentence.text] = float(score.log_probs.sum())
        is_lower_bound |= score.is_lower_bound
        known = (lm.vocabulary.unknown_class(w, sentence_initial=i == 0) for i, w in enumerate(sentence.words))
        if any(one is not None for one in known):
            unknown.add(sentence.text)
        on_sentence()
    return _count(pairs, log_probs, unknown, is_lower_bound=is_lower_bound, notes=tuple(notes))


def _sentence(text: str, where: str, tokenisation: Tokenisation) -> Sentence:
    source, _, line = where.rpartition(":")
    words = words_of(text, tokenisation)
    if not words:
        raise InputError("an empty sentence", where=where, remedy="leave this pair out")
    return Sentence(words=words, text=text, identifier=line, source=source, line=int(line))


def _count(
    pairs: Sequence[MinimalPair],
    log_probs: Mapping[str, float],
    unknown: set[str],
    *,
    is_lower_bound: bool,
    notes: tuple[str, ...],
) -> MinimalPairResult:
    overall, without_unknown = PairCounts(), PairCounts()
    groups: dict[str, dict[str, PairCounts]] = {}
    items = []
    for pair in pairs:
        good, bad = log_probs[pair.good], log_probs[pair.bad]
        counts = [groups.setdefault(name, {}).setdefault(group, PairCounts()) for name, group in pair.groups.items()]
        has_unknown = bool(unknown & {pair.good, pair.bad})
        if not has_unknown:
            counts.append(without_unknown)
        for one in (overall, *counts):
            one.add(good - bad, max(abs(good), abs(bad)))
        items.append(ScoredPair(pair=pair, good=good, bad=bad, has_unknown=has_unknown))
    return MinimalPairResult(
        overall=overall,
        groups=groups,
        num_with_unknown=overall.total - without_unknown.total,
        without_unknown=without_unknown,
        is_lower_bound=is_lower_bound,
        notes=notes,
        items=tuple(items),
    )
