"""Metrics on treebanks: F1 and perplexity, and learned trees beside gold trees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Literal

from treelm.corpora.data_config import DataConfig
from treelm.errors import InputError
from treelm.evaluation.comparison.settings import ProtocolName
from treelm.evaluation.evalb_files import gold_bracketing
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.settings import EvaluationSettings
from treelm.evaluation.span_protocols import PROTOCOLS
from treelm.evaluation.structure import (
    KeptSpans,
    Spread,
    TreeAnalysis,
    agreement,
    analyse_structure,
    kept_spans,
    learned_trees,
)
from treelm.evaluation.trivial_baselines import BUILDERS, TreeBuilder, trivial_baselines
from treelm.io.atomic import write_atomically
from treelm.io.json import json_hash
from treelm.models.search.options import SearchOptions
from treelm.papers.metrics.base import Baselines, Measured, OnTreebank, Subject
from treelm.training.recipe import EvaluationConfig

_STREAM = ", in a stream"
_CACHE = ("cache_weight", "cache_theta", "cache_window")
_EVALUATION = ("stream", "stream_rows", *_CACHE, "max_sentences", "tree_builder", "hard_gates")


@dataclass(frozen=True, kw_only=True)
class Evaluate(SearchOptions, OnTreebank):
    """What ``treelm evaluate`` measures of a run, and trivial trees against the same gold trees.

    Without ``perplexity``, only F1 by ``protocols`` is measured, which is faster for systems that need not predict
    words to find trees.
    """

    protocols: tuple[ProtocolName, ...] = ()
    perplexity: bool = True
    tree_builder: Literal["unbiased", "biased", "mbr", "viterbi"] | None = None
    hard_gates: bool = False
    stream: Literal["no", "beside", "only"] = "no"
    stream_rows: int = 10
    cache_weight: float = 0.0
    cache_theta: float = 1.0
    cache_window: int = 500

    def __post_init__(self) -> None:
        """Check sizes, and that something is measured."""
        super().__post_init__()
        if not self.perplexity and (self.stream != "no" or not self.protocols):
            remedy = "remove stream, and name protocols"
            raise InputError("perplexity = false, and not trees alone by protocols", remedy=remedy)

    def of_run(self, subject: Subject) -> Measured:
        """Evaluate the run on each file, and add the files up where there are several."""
        recipe = subject.recipe
        config = self.config(recipe.data, subject.root)
        given = {name: getattr(self, name) for name in _EVALUATION}
        evaluation: EvaluationConfig = replace(recipe.evaluation, splits=("test",), **given)
        files = self.files(config)
        with TemporaryDirectory() as scratch:
            (evaluated,) = evaluate_run(
                subject.run,
                replace(recipe, data=config, search=recipe.search.changed(self), evaluation=evaluation),
                EvaluationSettings(data=(str(_joined(files, Path(scratch))),), format=config.format, device="auto"),
                protocols=[PROTOCOLS[name] for name in self.protocols],
                scores=self.perplexity,
                baselines=False,  # rows of the table's own, from ``of_data``: once, not for each run
            )
        notes = (*_notes(evaluated.result), *self.notes(subject.root, subject.data, config))
        return Measured(values=dict(_values(evaluated.result)), notes=notes)

    def of_treebank(self, config: DataConfig) -> Baselines:
        """Score trivial trees, and the binary upper bound."""
        gold = [gold_bracketing(one) for one in self.sentences(config)]
        found: Baselines = {}
        for protocol in self.protocols:
            for row in trivial_baselines(gold, PROTOCOLS[protocol], random_distances=True):
                values = found.setdefault(row.name, {})
                values[f"unlabeled_f1_corpus, {protocol}"] = (row.corpus_f1,)
                values[f"unlabeled_f1_sentence, {protocol}"] = (row.sentence_f1,)
        return found


def _joined(files: Sequence[Path], scratch: Path) -> Path:
    """Join files, plain or gzip, into one in the folder ``scratch``; a single file stays where it is."""
    if len(files) == 1:
        return files[0]
    path = scratch / f"joined{''.join(files[0].suffixes[-2:])}"
    path.write_bytes(b"".join(file.read_bytes() for file in files))
    return path


def _values(result: EvaluationResult) -> Iterator[tuple[str, float]]:
    """All metrics of a result by name."""
    for one in result.perplexities:
        context = _STREAM if one.context else ""
        yield f"perplexity_per_{one.unit}_{one.policy}{context}", one.value
        if one.unit == "character":
            yield f"bits_per_character_{one.policy}{context}", one.bits_per_unit
    for bracketing in result.bracketing:
        yield "f1, evalb", bracketing.total.f1
    for spans in result.spans:
        yield f"unlabeled_f1_corpus, {spans.protocol.name}", spans.corpus_f1
        yield f"unlabeled_f1_sentence, {spans.protocol.name}", spans.sentence_f1
    yield from result.own.items()


def _notes(result: EvaluationResult) -> Iterator[str]:
    yield from result.notes
    if any(one.is_upper_bound for one in result.perplexities):
        yield "perplexities are upper bounds: the search finds part of the probability"
    for one in result.perplexities:
        if one.context:
            yield f"perplexity {one.context}"
    for spans in result.spans:
        if spans.removal == "words":
            yield f"{spans.protocol.name}: punctuation recognised by a list of words"


AGREEMENT = "seeds agree"


@dataclass(frozen=True, kw_only=True)
class Structure(OnTreebank):
    """What ``treelm structure`` reports of a run's trees under one protocol, and of trivial trees."""

    protocol: ProtocolName = "wsj40"
    tree_builder: TreeBuilder = "biased"
    labels: tuple[str, ...] = ("NP", "VP", "PP", "S", "SBAR", "ADJP", "ADVP")
    draws: int = 5

    def of_run(self, subject: Subject) -> Measured:
        """Analyse the trees of the run, and keep their spans in its folder."""
        config = self.config(subject.recipe.data, subject.root)
        sentences = self.sentences(config)
        found = list(learned_trees(subject.model(SearchOptions()), [one.words for one in sentences]))
        trees = found[BUILDERS.index(self.tree_builder)] if len(found) > 1 else found[0]
        protocol = PROTOCOLS[self.protocol]
        (analysis,) = analyse_structure(sentences, [trees], protocol, num_draws=0).rows
        (spans,) = kept_spans(sentences, trees, protocol)
        write_atomically(self._file(subject.run), json.dumps(spans).encode())
        notes = self.notes(subject.root, subject.data, config)
        return Measured(values=dict(self._values(analysis)), notes=notes)

    def of_treebank(self, config: DataConfig) -> Baselines:
        """Analyse trivial trees, and the binary upper bound."""
        rows = analyse_structure(self.sentences(config), [], PROTOCOLS[self.protocol], num_draws=self.draws).rows
        return {row.name: {name: (value,) for name, value in self._values(row)} for row in rows}

    def agreement(self, runs: Sequence[Path]) -> float | None:
        """Mean agreement of each pair of runs that were measured; None for fewer than two."""
        spans: list[KeptSpans] = [json.loads(self._file(run).read_text()) for run in runs]
        pairs = [agreement(*pair) for pair in combinations(spans, 2)]
        return fmean(pairs) if pairs else None

    def _file(self, run: Path) -> Path:
        of = (self.protocol, self.tree_builder, self.data, self.split, self.format, self.preprocess, self.max_sentences)
        return run / f"spans-{json_hash(of)[:10]}.json"

    def _values(self, row: TreeAnalysis) -> Iterator[tuple[str, float]]:
        single: dict[str, Spread | None] = {
            "sentence f1": row.sentence_f1,
            "corpus f1": row.corpus_f1,
            "against left-branching": row.left_branching,
            "against right-branching": row.right_branching,
            AGREEMENT: row.agreement,
            "distances against heights": row.height_correlation,
            "many-to-one": row.many_to_one,
            **{f"recall, {label}": row.recall_by_label.get(label) for label in self.labels},
            **{f"f1, spans of {name}": spread for name, spread in row.f1_by_span_length.items()},
            **{f"f1, sentences of {name}": spread for name, spread in row.f1_by_sentence_length.items()},
        }
        yield from ((name, spread.mean) for name, spread in single.items() if spread is not None)
