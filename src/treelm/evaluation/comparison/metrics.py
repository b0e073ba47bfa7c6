"""Metrics of a comparison, as plain values: all tables and reports are drawn from them alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treelm.configs import InfFloat, from_plain, to_plain
from treelm.errors import InputError
from treelm.io.atomic import write_atomically
from treelm.io.json import encode_json, finite, read_json
from treelm.models.structures import Structure
from treelm.training.config import LIMITS_OF_TIME, TrainingConfig
from treelm.training.metrics import FILE_NAME as METRICS
from treelm.training.metrics import read_metrics
from treelm.training.run_folder import check_name
from treelm.training.state import TrainingState

FILE_NAME = "comparison.json"
FORMAT_VERSION = 3
_REMEDY = "compare the runs again"

FEWEST_UNITS = 10
"""Of fewer documents or sentences, intervals by a bootstrap mislead."""
GoldTrees = Literal["constituency", "dependencies"]
Values = Mapping[str, int | InfFloat]
"""Figures by name; those that are not numbers are left out."""


def known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what was not measured and what is not a number."""
    return {name: value for name, value in values.items() if value is not None and not math.isnan(value)}


@dataclass(frozen=True, kw_only=True)
class UnitSums:
    """Sums by unit of a text, from which a bootstrap draws: units are documents if there are enough, else sentences."""

    unit: Literal["document", "sentence"]
    bits: tuple[tuple[InfFloat, float], ...] = ()  # and the number of words and ends that they are of
    spans: Mapping[str, tuple[tuple[float, float, float], ...]] = field(default_factory=dict)
    """Matched, gold and predicted spans, by protocol."""

    def of(self, column: str) -> NDArray[np.float64] | None:
        """The sums by unit, (U, 2) or (U, 3), from which the metric of a column follows.

        None for columns without such sums, if there are too few units, and if a sum is infinite.
        """
        found = self.bits if column == "perplexity" else self.spans.get(column.partition(", ")[2], ())
        sums = np.array(found, dtype=np.float64)
        return sums if len(sums) >= FEWEST_UNITS and np.isfinite(sums).all() else None


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """A line of ``metrics.jsonl``: the loss since the line before it (train), or on dev."""

    kind: Literal["train", "dev"]
    step: int
    epoch: float  # whole epochs for dev
    seconds: float  # of training so far
    loss_nats_per_word: float  # what training minimises; with its trees or penalties, if it has such terms
    word_nats: float | None = None  # the part of the words alone, if it is logged


def training_metrics(run: Path, config: TrainingConfig) -> dict[str, Any]:
    """Read the records of training, as fields of ``RunMetrics``: seconds, words a second, the loss curve, and notes.

    Values are left out if they were not recorded. A note says if training stopped early. Raises ``InputError`` for
    records that cannot be read.
    """
    path = run / METRICS
    lines = read_metrics(path) if path.exists() else []  # a model may have been saved without them
    num_words, seconds, points = 0, 0.0, []
    for line in lines:
        if line["kind"] == "estimate":
            num_words, seconds = num_words + line["num_words"], seconds + line["elapsed_seconds"]
        elif line["kind"] == "train" and line["words_per_second"]:
            num_words, seconds = num_words + line["num_words"], seconds + line["num_words"] / line["words_per_second"]
        if line["kind"] in ("train", "dev") and line["loss_nats_per_word"] is not None:
            names = ("kind", "step", "epoch", "loss_nats_per_word")
            own = {"seconds": line["elapsed_seconds"], "word_nats": line.get("word_nats_per_decision")}
            points.append({**{name: line[name] for name in names}, **own})
    values = {
        "training_seconds": max((float(line["elapsed_seconds"]) for line in lines), default=None),
        "training_words_per_second": num_words / seconds if seconds else None,
    }
    notes = []
    for end in lines[-1:] if config.epochs else ():
        times = {"seconds": end["elapsed_seconds"], "cpu_seconds": end.get("cpu_seconds", 0)}
        state = TrainingState(step=end["step"], epoch=int(end["epoch"]), **times)
        if (reason := state.reason_to_stop(config) or "").startswith(LIMITS_OF_TIME):
            notes.append(f"training stopped early, in epoch {state.epoch + 1} of {config.epochs}: {reason}")
    return {"values": known(values), "loss_curve": points, "notes": notes}


@dataclass(frozen=True, kw_only=True)
class WordBits:
    """Surprisal in bits of every word of a sentence, and of its end."""

    surprisal_bits: tuple[InfFloat, ...]  # of what the system holds impossible
    end_surprisal_bits: InfFloat
    is_unk: tuple[bool, ...]  # whether the system read a word as an unknown one
    is_upper_bound: bool  # whether a search found only part of the probability

    @property
    def total_bits(self) -> float:
        """Surprisal of the whole sentence in bits, its end included."""
        return sum(self.surprisal_bits) + self.end_surprisal_bits


@dataclass(frozen=True, kw_only=True)
class PartialTree:
    """A partial analysis of the first words of a sentence; constituents with the last of these words are still open."""

    tree: str  # in brackets
    share: float  # its probability given the words


@dataclass(frozen=True, kw_only=True)
class SentenceAnalysis:
    """One sentence in one system. What a system does not have is None."""

    words: tuple[str, ...]
    gold: str | None = None  # the tree of the file that the sentence is from, in brackets without tags
    tree: str | None = None  # the system's, in the same form
    bits: WordBits | None = None
    structures: tuple[Structure, ...] = ()  # what its tree follows from, of systems that have some
    beam: tuple[tuple[PartialTree, ...], ...] = ()  # after each word, the most probable analyses that a search held


@dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """Metrics of one run. What was not measured, or what a system does not have, is empty."""

    name: str  # of the row: the run folder's name, or as much of its path as makes it unique
    run: str  # path of the run folder when it was measured
    system: str  # name in treelm.models.SYSTEMS
    values: Values = field(default_factory=dict)
    """All figures, by the names of the columns of ``comparison.csv`` and some more. F1 is in 0..100, accuracies and
    shares in 0..1."""
    search: str = ""  # such as "beam 20/10/1"; empty for systems that score without a search
    weights: str = ""  # SHA-256 of model.safetensors
    recipe: str = ""  # SHA-256 of its recipe but for the seed: rows that share it are seeds of one model
    data_identity: Mapping[str, str] = field(default_factory=dict)  # of what it was trained on, by split, if noted
    vocabulary: str = ""  # fingerprint: perplexities compare only where it is the same
    text: str = ""  # SHA-256 of the words that were scored: the same for rows that compare
    split: str = "test"
    num_sentences: int = 0
    num_words: int = 0
    needs_trees: bool = False  # whether words were predicted with their trees given: its perplexity does not compare
    is_upper_bound: bool | None = None  # whether its perplexities are upper bounds; None if it has none
    gold_trees: GoldTrees | None = None  # what F1 is against
    scoring_threads: int | None = None  # of the processor, that the speed of scoring was measured with
    loss_curve: tuple[LossPoint, ...] = ()
    units: UnitSums | None = None
    pair_groups: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    """Accuracies on minimal pairs by file, grouping (UID, field, ...) and group."""
    published: Mapping[str, Values] = field(default_factory=dict)
    """Values of published models on the same words, by model."""
    sentences: tuple[SentenceAnalysis, ...] = ()  # chosen ones, the same for all rows
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a name that cannot stand in a table."""
        check_name(self.name)

    def of(self, kind: str) -> dict[str, float]:
        """The values of one kind, by what they are of: ``of("suite")`` has the accuracy of each suite."""
        prefix = f"{kind}, "
        return {name.removeprefix(prefix): value for name, value in self.values.items() if name.startswith(prefix)}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows in the order of the table, and what must be known to read them."""

    runs: tuple[RunMetrics, ...]
    notes: tuple[str, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    """When, by which version, on which machine and by which command it was made, if that was noted."""

    @property
    def evaluated_on(self) -> str:
        """A sentence on the text that was scored, if it is the same for all runs."""
        evaluated = [row for row in self.runs if row.num_sentences] or self.runs
        texts = {(row.split, row.num_sentences, row.num_words) for row in evaluated}
        if len(texts) != 1:
            return "The runs were not all evaluated on the same text." if texts else "There are no runs."
        ((split, num_sentences, num_words),) = texts
        words = f" of {num_words:,} words" if num_words else ""
        return f"Evaluated on {split}: {num_sentences:,} sentences{words}."

    def to_json(self) -> dict[str, Any]:
        """Write all metrics, unrounded, as JSON values; null where one is not finite."""
        return {"format_version": FORMAT_VERSION, **finite(to_plain(self))}

    def save(self, path: str | Path) -> None:
        """Write the file as a whole."""
        write_atomically(Path(path), encode_json(self.to_json()))

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read what ``save`` wrote; raises ``InputError`` for values that are not as they should be."""
        values = read_json(Path(path), remedy=_REMEDY)
        version = values.pop("format_version", None)
        if version != FORMAT_VERSION:
            found = f"format_version = {version!r}, this treelm reads {FORMAT_VERSION}"
            raise InputError(found, where=str(path), remedy=_REMEDY)
        return from_plain(cls, values, where=str(path), null=math.nan)
