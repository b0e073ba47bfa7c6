"""Metrics of a comparison, as plain values: all tables and reports are drawn from them alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treelm.configs import InfFloat, from_plain, to_plain
from treelm.errors import InputError
from treelm.evaluation.human.garden_paths import EffectInBits
from treelm.evaluation.human.ucl import BabyLMScore
from treelm.evaluation.syntaxgym.results import circuit_accuracies, overall_score
from treelm.evaluation.trivial_baselines import UPPER_BOUND, Baseline
from treelm.io.atomic import write_atomically
from treelm.io.json import encode_json, finite, read_json
from treelm.models.perplexity import Coverage, Perplexity
from treelm.models.structures import Structure
from treelm.training.config import LIMITS_OF_TIME, TrainingConfig
from treelm.training.metrics import FILE_NAME as METRICS
from treelm.training.metrics import read_metrics
from treelm.training.run_folder import check_name
from treelm.training.state import TrainingState

FILE_NAME = "comparison.json"
FORMAT_VERSION = 2
_REMEDY = "compare the runs again"

TRIVIAL = ("left-branching", "right-branching", "balanced", "random", "random, uniform over trees")
"""Names of the baselines that every system has, whether its trees come from distances or not."""
BOUND = (UPPER_BOUND,)
FEWEST_UNITS = 10
"""Of fewer documents or sentences, intervals by a bootstrap mislead."""
GoldTrees = Literal["constituency", "dependencies"]


@dataclass(frozen=True, kw_only=True)
class F1Metric:
    """F1 in 0..100 by a named protocol: of the spans of all sentences together, and the mean of the sentences' F1."""

    protocol: str  # such as plain, wsj10, or evalb (COLLINS.prm, labelled)
    corpus_f1: float
    sentence_f1: float
    num_sentences: int | None = None  # that were scored: few of them mean little; None where it was not noted


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
class SyntaxGymMetrics:
    """Accuracies in 0..1 on test suites of SyntaxGym; chosen suites may be fewer than the packaged 34."""

    suites: Mapping[str, float]
    without_unknown: Mapping[str, float]  # by suite, over items without unknown words; a suite without such items lacks
    circuits: Mapping[str, float]  # of which all suites were scored
    sg_score: float | None  # mean over the 31 suites of the circuits; None if one was not scored
    mean: float  # over the suites that were scored, whatever they are

    @property
    def circuits_without_unknown(self) -> dict[str, float]:
        """Accuracies of circuits over items without unknown words, where every suite of a circuit has such items."""
        return circuit_accuracies(self.without_unknown)

    @property
    def sg_score_without_unknown(self) -> float | None:
        """SG score over items without unknown words; None if a suite has no such item or was not scored."""
        return overall_score(self.without_unknown)

    @property
    def mean_without_unknown(self) -> float | None:
        """Mean over the suites that have items without unknown words; None if none has."""
        return fmean(self.without_unknown.values()) if self.without_unknown else None


@dataclass(frozen=True, kw_only=True)
class PairMetrics:
    """Minimal pairs of one file: how often the grammatical sentence is the more probable one, in 0..1."""

    file: str  # its name, without the folder
    accuracy: float
    num_pairs: int
    num_ties: int  # counted as wrong
    num_with_unknown: int
    accuracy_without_unknown: float | None
    groups: Mapping[str, Mapping[str, float]]  # grouping (UID, field, ...) -> group -> accuracy


@dataclass(frozen=True, kw_only=True)
class ReadingGain:
    """How well one model predicts reading times, and the words themselves."""

    name: str
    delta_nats_per_word: float  # over the baseline, held out
    low: float  # of the 95 % interval
    high: float
    perplexity: float  # per word, over the words that are compared, without ends of sentences


@dataclass(frozen=True, kw_only=True)
class ReadingMetrics:
    """Reading times of a corpus by a run's surprisals, and by published ones on the same words."""

    corpus: str
    response: str
    num_words: int  # those of which the run and all published models have a surprisal
    num_unknown: int  # words of the corpus that the run reads as unknown ones
    ms_per_bit: tuple[float, ...]  # by lag
    gain: ReadingGain
    published: tuple[ReadingGain, ...]
    babylm: BabyLMScore | None = None  # of the UCL corpus alone


@dataclass(frozen=True, kw_only=True)
class GardenPathMetrics:
    """Effects of the SAP benchmark in bits, those that have a finite mean."""

    effects: tuple[EffectInBits, ...]


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """A line of ``metrics.jsonl``: the loss since the line before it (train), or on dev."""

    kind: Literal["train", "dev"]
    step: int
    epoch: float  # whole epochs for dev
    seconds: float  # of training so far
    loss_nats_per_word: float  # what training minimises; with its trees or penalties, if it has such terms
    word_nats: float | None = None  # the part of the words alone, if it is logged


def training_metrics(
    run: Path, config: TrainingConfig
) -> tuple[float | None, float | None, tuple[LossPoint, ...], tuple[str, ...]]:
    """Read the records of training: seconds, words a second in updates of the weights, the loss curve, and notes.

    Numbers are None if they were not recorded. A note says if training stopped early. Raises ``InputError`` for
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
            points.append(LossPoint(**{name: line[name] for name in names}, **own))
    elapsed = max((float(line["elapsed_seconds"]) for line in lines), default=None)
    notes = []
    for end in lines[-1:] if config.epochs else ():
        times = {"seconds": end["elapsed_seconds"], "cpu_seconds": end.get("cpu_seconds", 0)}
        state = TrainingState(step=end["step"], epoch=int(end["epoch"]), **times)
        if (reason := state.reason_to_stop(config) or "").startswith(LIMITS_OF_TIME):
            notes.append(f"training stopped early, in epoch {state.epoch + 1} of {config.epochs}: {reason}")
    return elapsed, num_words / seconds if seconds else None, tuple(points), tuple(notes)


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
    num_parameters: int  # 0: not a network (n-grams)
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

    training_seconds: float | None = None
    training_words_per_second: float | None = None  # updates of the weights alone, without evaluation on dev
    scoring_words_per_second: float | None = None
    scoring_threads: int | None = None  # of the processor, that it was measured with
    loss_curve: tuple[LossPoint, ...] = ()

    perplexities: tuple[Perplexity, ...] = ()  # each sentence by itself comes first
    coverage: Coverage | None = None
    labeled_f1: tuple[F1Metric, ...] = ()
    unlabeled_f1: tuple[F1Metric, ...] = ()
    gold_trees: GoldTrees | None = None  # what F1 is against
    baselines: tuple[Baseline, ...] = ()  # trivial trees, and the binary upper bound, against the same gold trees
    own: Mapping[str, float] = field(default_factory=dict)  # metrics that only this system has
    units: UnitSums | None = None

    syntaxgym: SyntaxGymMetrics | None = None
    pairs: tuple[PairMetrics, ...] = ()
    reading: ReadingMetrics | None = None
    garden_paths: GardenPathMetrics | None = None
    sentences: tuple[SentenceAnalysis, ...] = ()  # chosen ones, the same for all rows
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a name that cannot stand in a table."""
        check_name(self.name)

    @property
    def perplexity(self) -> Perplexity | None:
        """Perplexity that compares between runs: per word, each sentence by itself, ends included."""
        alone = (one for one in self.perplexities if one.unit == "word" and not one.context)
        return next((one for one in alone if one.policy == "with_end"), None)

    def baseline_f1(self, protocol: str, names: Collection[str]) -> float | None:
        """Corpus F1 of the best of some baselines by a protocol; None if none of them was measured."""
        known = [one.corpus_f1 for one in self.baselines if one.protocol == protocol and one.name in names]
        return max(known, default=None)


@dataclass(frozen=True, kw_only=True)
class SeedMean:
    """A metric of a model: the value of its run, or the mean over the runs of its seeds."""

    model: str  # name of the run; of several seeds, that of their system
    runs: tuple[str, ...]
    metric: str  # name of its column
    mean: InfFloat
    deviation: float | None  # standard deviation over seeds; None for one seed
    half_interval: float | None  # half the width of the 95 % interval of the mean (Student's t)
    is_bound: bool  # whether the value is an upper bound, which says nothing of how much lower the model may be


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A metric of a model less that of another one on the same text, with the 95 % interval of a paired bootstrap."""

    model: str
    runs: tuple[str, ...]
    other: str
    metric: str  # name of its column
    sign: Literal["", "≤", "≥"]  # which bound the difference is, where one of the two values is an upper bound
    difference: float
    low: float
    high: float
    unit: Literal["document", "sentence"]  # what was drawn
    num_units: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows in the order of the table, and what must be known to read them."""

    runs: tuple[RunMetrics, ...]
    notes: tuple[str, ...] = ()
    seeds: tuple[SeedMean, ...] = ()
    differences: tuple[Difference, ...] = ()  # of each model from the first
    made: Mapping[str, str] = field(default_factory=dict)
    """When, by which version, on which machine and by which command it was made, if that was noted."""

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
