"""The trees that systems have learned without seeing any: what of gold trees they find, how much alike several seeds of
one system are (Williams, Drozdov & Bowman 2018), and what the builder of trees from distances does by itself
(Dyer et al. 2019).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, combinations
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of, gold_bracketing, gold_tree
from treelm.evaluation.span_protocols import (
    ComparedSpans,
    SpanProtocol,
    compare_spans,
    count_matches,
    labelled_spans,
    spans_of,
)
from treelm.evaluation.trivial_baselines import BUILDERS, trivial_trees
from treelm.inference.batching import batched
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, Searching, require
from treelm.models.streams import DistanceParser
from treelm.trees.brackets import strip_function
from treelm.trees.distances import distances_from_tree, tree_from_distances
from treelm.trees.span_counts import SpanCounts, add_up
from treelm.trees.transforms import collapse_unaries
from treelm.trees.tree import Tree
from treelm.trees.trivial import left_branching, right_branching

SPAN_LENGTHS = (2, 3, 4, 5, 6, 11, 21)
SENTENCE_LENGTHS = (1, 11, 21, 31, 41)
HEIGHTS = (1, 2, 3, 4, 5, 6)
"""Where each class of lengths, in words, and of heights begins; the last one has no end."""


Distances = NDArray[np.float64]
_BATCH = 64  # sentences that are parsed at a time; progress is reported after each batch


@dataclass(frozen=True, kw_only=True)
class LearnedTrees:
    """Trees of the same sentences by several seeds of one system, or several draws of random ones."""

    name: str
    seeds: Sequence[Sequence[Bracketing]]
    distances: Sequence[Sequence[Distances]] = ()
    """For each seed and sentence, the distances before all words; empty if the trees do not come from any."""
    unconverged: Sequence[float] = ()
    """For each seed that searches, the percentage of words whose search has not converged."""


def learned_trees(
    lm: LanguageModel, sentences: Sequence[Sequence[str]], *, on_sentence: Callable[[], None] = lambda: None
) -> Iterator[LearnedTrees]:
    """Yield the trees of one model under the name of its system; if they come from distances, those of each builder.

    ``on_sentence`` is called after each sentence. Raises ``InputError`` for a system that does not parse.
    """
    compute: Callable[[Sequence[Sequence[str]]], Iterable[Any]] = require(lm, Parser).parse
    if isinstance(lm, DistanceParser):
        compute = lm.word_distances
    elif isinstance(lm, Searching):
        compute = lm.analyse
    found: list[Any] = []
    for group in batched(sentences, _BATCH):
        for result in compute(group):
            found.append(result)
            on_sentence()
    if isinstance(lm, Searching):
        flags = [not flag for one in found for flag in one.score.converged]
        seeds = ([bracketing_of(one.tree) for one in found],)
        yield LearnedTrees(name=lm.system, seeds=seeds, unconverged=[100 * fmean(flags)] if flags else [])
        return
    if not isinstance(lm, DistanceParser):
        yield LearnedTrees(name=lm.system, seeds=([bracketing_of(tree) for tree in found],))
        return
    for builder in BUILDERS:
        trees = (tree_from_distances(*pair, builder=builder) for pair in zip(sentences, found, strict=True))
        seeds = ([bracketing_of(tree) for tree in trees],)
        yield LearnedTrees(name=f"{lm.system}, {builder} builder", seeds=seeds, distances=(found,))


def together(name: str, parts: Sequence[LearnedTrees]) -> LearnedTrees:
    """The seeds of all parts as those of one system."""
    joined = {of: [*chain(*map(attrgetter(of), parts))] for of in ("seeds", "distances", "unconverged")}
    return LearnedTrees(name=name, **joined)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and sample deviation over seeds, or over pairs of seeds."""

    mean: float
    deviation: float | None  # None of a single one
    count: int

    def __str__(self) -> str:
        """Write ``54.5 ± 3.7``, or ``54.5`` of a single one."""
        return f"{self.mean:.1f}" if self.deviation is None else f"{self.mean:.1f} ± {self.deviation:.1f}"


def _spread(values: Iterable[float]) -> Spread:
    kept = list(values)
    return Spread(mean=fmean(kept), deviation=stdev(kept) if len(kept) > 1 else None, count=len(kept))


def _spread_of_any(values: Iterable[float]) -> Spread | None:
    return _spread(kept) if (kept := list(values)) else None


def _by_class(seeds: Iterable[Mapping[str, float]]) -> dict[str, Spread]:
    """The spread of every class over the seeds that have it."""
    values: dict[str, list[float]] = {}
    for seed in seeds:
        for name, value in seed.items():
            values.setdefault(name, []).append(value)
    return {name: _spread(kept) for name, kept in values.items()}


@dataclass(frozen=True, kw_only=True)
class TreeAnalysis:
    """What the trees of a system have in common with gold trees and with each other.

    F1 is unlabelled. F1 and shares are percentages, 0..100, unless a field says otherwise.
    """

    name: str
    num_seeds: int
    sentence_f1: Spread
    corpus_f1: Spread
    recall_by_label: Mapping[str, Spread]
    """Share of gold constituents of a label whose span is found; one of a unary chain counts for its own label."""
    f1_by_span_length: Mapping[str, Spread]
    f1_by_sentence_length: Mapping[str, Spread]
    left_branching: Spread  # F1 against left-branching trees of the same words
    right_branching: Spread
    agreement: Spread | None  # F1 of each pair of seeds; None for one seed
    height_correlation: Spread | None
    """Mean over sentences of Spearman's correlation between distances and heights of gold trees, -1..1."""
    distance_by_height: Mapping[str, Spread] = field(default_factory=dict)
    """Mean distance, in standard deviations above the mean of its sentence, where the gold tree is so high."""
    many_to_one: Spread | None = None
    """Share of spans that are found whose gold label is the one that their predicted label has most often, over all
    such spans; None of trees with one label for all."""
    unconverged: Spread | None = None
    """Percentage of words whose search has not converged, over the seeds whose search tells."""
    symbols: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Predicted labels, the most frequent first, and how often a constituent of each has every gold label, or none
    (``""``), of the first seed; empty with one label for all."""


@dataclass(frozen=True, kw_only=True)
class StructureResult:
    """The analysis of every system and of trivial trees under one protocol, and how often each label occurs."""

    protocol: SpanProtocol
    num_sentences: int
    labels: Mapping[str, int]  # gold constituents that count, the most frequent first
    rows: tuple[TreeAnalysis, ...]

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "protocol": self.protocol.name,
            "description": self.protocol.description,
            "num_sentences": self.num_sentences,
            "labels": dict(self.labels),
            "rows": [asdict(row) for row in self.rows],
        }


def analyse_structure(
    sentences: Sequence[Sentence],
    systems: Sequence[LearnedTrees],
    protocol: SpanProtocol,
    *,
    num_draws: int = 5,
    on_row: Callable[[], None] = lambda: None,
) -> StructureResult:
    """Analyse the trees of each system under a protocol, beside those of trivial trees.

    Of each kind of random trees there are ``num_draws``; for 0, there are no trivial trees. ``on_row`` is called after
    each system and each kind of trivial trees. Raises ``InputError`` for sentences without gold trees, and for trees
    over other words than theirs.
    """
    gold = [gold_bracketing(one) for one in sentences]
    trivial = trivial_trees(gold, protocol, num_seeds=num_draws, random_distances=True) if num_draws else ()
    beside = (LearnedTrees(name=name, seeds=seeds) for name, seeds in trivial)
    analyser = _Analyser(sentences, protocol)
    if not any(spans is not None for spans in analyser.labels):
        raise InputError(f"no sentence that protocol {protocol.name} keeps", remedy="give others, or another protocol")
    learned = (analyser.with_symbols(analyser.analyse(one), one) for one in systems)
    rows = []
    for row in chain(learned, map(analyser.analyse, beside)):
        rows.append(row)
        on_row()
    return StructureResult(
        protocol=protocol,
        num_sentences=sum(spans is not None for spans in analyser.labels),
        labels=dict(analyser.frequency.most_common()),
        rows=tuple(rows),
    )


KeptSpans = Sequence[Sequence[tuple[int, int]] | None]
"""The spans of each sentence's tree that a protocol counts, sorted; None of sentences that it leaves out."""


def kept_spans(sentences: Sequence[Sentence], trees: LearnedTrees, protocol: SpanProtocol) -> list[KeptSpans]:
    """The spans of the trees of each seed that count under a protocol, from which ``agreement`` is computed."""
    analyser = _Analyser(sentences, protocol)
    return [_kept(analyser.compare(seed)) for seed in trees.seeds]


def _kept(seed: Sequence[ComparedSpans | None]) -> KeptSpans:
    return [None if one is None else sorted(one.predicted.elements()) for one in seed]


def agreement(one: KeptSpans, other: KeptSpans) -> float:
    """Corpus F1 of the trees of two seeds against each other."""
    pairs = [pair for pair in zip(one, other, strict=True) if None not in pair]
    sides = [[Counter(tuple(span) for span in spans or ()) for spans in pair] for pair in pairs]
    return add_up([count_matches(left, right) for left, right in sides]).f1  # type: ignore[arg-type]


Span = tuple[int, int]


class _Analyser:
    """Compares trees with gold trees, of which it holds labelled spans and the heights between words.

    ``labels`` are None for sentences that the protocol leaves out.
    """

    def __init__(self, sentences: Sequence[Sentence], protocol: SpanProtocol) -> None:
        self._gold, self._protocol = [gold_bracketing(one) for one in sentences], protocol
        self.labels: list[list[tuple[Span, str]] | None] = []
        for one in self.compare(self._gold):
            spans = () if one is None else labelled_spans(one.gold_tree, protocol)
            found = dict.fromkeys((span, strip_function(label)) for span, label in spans)
            self.labels.append(None if one is None else [*found])
        self.frequency = Counter(label for spans in self.labels if spans for _, label in spans)
        self._heights = [distances_from_tree(collapse_unaries(gold_tree(one)))[1:].astype(float) for one in sentences]

    def analyse(self, trees: LearnedTrees) -> TreeAnalysis:
        seeds = [self.compare(seed) for seed in trees.seeds]
        by_sentence = [[one.counts for one in seed if one] for seed in seeds]
        pairs = combinations(map(_kept, seeds), 2)
        heights = [self._against_heights(seed) for seed in trees.distances]
        return TreeAnalysis(
            name=trees.name,
            num_seeds=len(seeds),
            sentence_f1=_spread(fmean(one.f1 for one in counts) for counts in by_sentence),
            corpus_f1=_spread(add_up(counts).f1 for counts in by_sentence),
            recall_by_label=_by_class(self._label_recalls(seed) for seed in seeds),
            f1_by_span_length=_by_class(_span_length_f1(seed) for seed in seeds),
            f1_by_sentence_length=_by_class(
                _f1_by_class(((one.num_words, one.counts) for one in seed if one), SENTENCE_LENGTHS) for seed in seeds
            ),
            left_branching=_spread(self._against_rule(seed, left_branching) for seed in seeds),
            right_branching=_spread(self._against_rule(seed, right_branching) for seed in seeds),
            agreement=_spread_of_any(agreement(*pair) for pair in pairs),
            height_correlation=_spread_of_any(fmean(correlations) for correlations, _ in heights if correlations),
            distance_by_height=_by_class(by_height for _, by_height in heights),
            unconverged=_spread_of_any(trees.unconverged),
        )

    def with_symbols(self, analysis: TreeAnalysis, trees: LearnedTrees) -> TreeAnalysis:
        """Add to an analysis what the predicted labels stand for, if there are several."""
        seeds = [self._symbols(seed) for seed in trees.seeds]
        if any(len(seed) < 2 for seed in seeds):
            return analysis
        return replace(analysis, many_to_one=_spread(map(many_to_one, seeds)), symbols=seeds[0])

    def _symbols(self, trees: Sequence[Bracketing]) -> dict[str, dict[str, int]]:
        """Gold labels of the constituents of each predicted label; of a unary chain, the most frequent one."""
        found: dict[str, Counter[str]] = {}
        for labels, one in zip(self.labels, self.compare(trees), strict=True):
            if labels is None or one is None:
                continue
            of_span = dict(sorted(labels, key=lambda pair: (self.frequency[pair[1]], pair[1])))
            for span, symbol in labelled_spans(one.predicted_tree, self._protocol):
                found.setdefault(symbol, Counter())[of_span.get(span, "")] += 1
        order = sorted(found, key=lambda symbol: (-found[symbol].total(), symbol))
        return {symbol: dict(found[symbol].most_common()) for symbol in order}

    def compare(self, trees: Sequence[Bracketing]) -> list[ComparedSpans | None]:
        """Spans of each sentence, None where the protocol leaves it out."""
        found: list[ComparedSpans | None] = []
        for gold, one in zip(self._gold, compare_spans(self._gold, trees, self._protocol), strict=True):
            if isinstance(one, str):
                raise InputError(one, where=gold.where, remedy="give trees over the words of the gold trees")
            found.append(one)
        return found

    def _label_recalls(self, seed: Sequence[ComparedSpans | None]) -> dict[str, float]:
        gold, matched = Counter[str](), Counter[str]()
        for labels, one in zip(self.labels, seed, strict=True):
            if labels is not None and one is not None:
                gold.update(label for _, label in labels)
                matched.update(label for span, label in labels if span in one.predicted)
        return {label: 100 * matched[label] / count for label, count in gold.most_common()}

    def _against_rule(self, seed: Sequence[ComparedSpans | None], rule: Callable[[Sequence[str]], Tree]) -> float:
        """Corpus F1 against the trees that a rule builds over the kept words, such as right-branching ones."""
        counts = []
        for one in filter(None, seed):
            tree = bracketing_of(rule(one.gold_tree.words))
            counts.append(count_matches(spans_of(tree, self._protocol), one.predicted))
        return add_up(counts).f1

    def _against_heights(self, seed: Sequence[Distances]) -> tuple[list[float], dict[str, float]]:
        """The correlation of distances with heights of each sentence, and the mean distance by class of heights.

        Sentences whose heights are all equal have no correlation, and are left out.
        """
        correlations = []
        by_height: dict[str, list[float]] = {}
        for labels, distances, heights in zip(self.labels, seed, self._heights, strict=True):
            if labels is None or len(set(heights)) < 2:
                continue
            values = np.asarray(distances[1:], dtype=np.float64)
            correlations.append(spearman(values, heights))
            deviation = float(values.std())
            scaled = (values - values.mean()) / deviation if deviation else np.zeros_like(values)
            for height, value in zip(heights, scaled, strict=True):
                by_height.setdefault(_class_of(int(height), HEIGHTS), []).append(float(value))
        return correlations, {name: fmean(by_height[name]) for name in class_names(HEIGHTS) if name in by_height}


def many_to_one(symbols: Mapping[str, Mapping[str, int]]) -> float:
    """Percentage of constituents that get their gold label if every symbol stands for its most frequent label."""
    labelled = [[count for label, count in of_labels.items() if label] for of_labels in symbols.values()]
    total = sum(map(sum, labelled))
    return 100 * sum(max(counts, default=0) for counts in labelled) / total if total else 0.0


def spearman(left: Distances, right: Distances) -> float:
    """Spearman's rank correlation, equals sharing the mean of their ranks; 0 if one side is constant."""
    import pandas as pd

    ranks = [pd.Series(values).rank().to_numpy() - (len(values) + 1) / 2 for values in (left, right)]
    norm = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / norm if norm else 0.0


def _span_length_f1(seed: Sequence[ComparedSpans | None]) -> dict[str, float]:
    """Corpus F1 of the spans of each class of lengths; those of single words, where they count, belong to none."""
    gold, predicted, matched = Counter[int](), Counter[int](), Counter[int]()
    for one in filter(None, seed):
        for counter, spans in ((gold, one.gold), (predicted, one.predicted), (matched, one.gold & one.predicted)):
            for (start, end), count in spans.items():
                counter[end - start] += count
    lengths = gold | predicted
    counts = [(n, SpanCounts(matched=matched[n], gold=gold[n], predicted=predicted[n])) for n in lengths]
    return _f1_by_class(counts, SPAN_LENGTHS)


def _f1_by_class(counts: Iterable[tuple[int, SpanCounts]], begins: tuple[int, ...]) -> dict[str, float]:
    """F1 of all counts of each class of lengths together."""
    found: dict[str, list[SpanCounts]] = {}
    for length, one in counts:
        found.setdefault(_class_of(length, begins), []).append(one)
    return {name: add_up(found[name]).f1 for name in class_names(begins) if name in found}


def class_names(begins: tuple[int, ...]) -> tuple[str, ...]:
    """Names of classes by where they begin: ``2``, ``3-5``, ``6+``."""
    ends = [following - 1 for following in begins[1:]]
    closed = (str(begin) if begin == end else f"{begin}-{end}" for begin, end in zip(begins, ends, strict=False))
    return (*closed, f"{begins[-1]}+")


def _class_of(value: int, begins: tuple[int, ...]) -> str:
    """The name of a value's class; nothing if it is below all."""
    place = bisect_right(begins, value)
    return class_names(begins)[place - 1] if place else ""
