"""Metrics of runs, as the subcommands measure them: F1 and perplexity, learned trees, syntax tests, training logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Literal

from treelm.corpora.data_config import DataConfig, locate_split
from treelm.errors import InputError
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.comparison.settings import ProtocolName
from treelm.evaluation.evalb_files import gold_bracketing
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.minimal_pairs import first_of_groups, read_pairs, score_pairs
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
from treelm.evaluation.syntaxgym.results import circuits, suite_values
from treelm.evaluation.syntaxgym.scoring import score_suites
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.evaluation.trivial_baselines import BUILDERS, TreeBuilder, trivial_baselines
from treelm.inference.loading import load, model_hash
from treelm.io.atomic import write_atomically
from treelm.io.files import cache_directory
from treelm.io.json import json_hash
from treelm.models.search.options import SearchOptions
from treelm.papers.metrics.base import Baselines, Measure, Measured, OnTreebank, Subject
from treelm.training.metrics import FILE_NAME as LOG
from treelm.training.metrics import read_metrics
from treelm.training.recipe import EvaluationConfig, Recipe

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
                replace(recipe, data=config, search=self.changed(recipe.search), evaluation=evaluation),
                EvaluationSettings(data=(str(_joined(files, Path(scratch))),), format=config.format, device="auto"),
                protocols=[PROTOCOLS[name] for name in self.protocols],
                scores=self.perplexity,
                baselines=False,  # rows of the table's own, from ``of_data``: once, not for each run
            )
        notes = (*_notes(evaluated), *self.notes(subject.root, subject.data, config))
        return Measured(values=dict(_values(evaluated)), notes=notes)

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


@dataclass(frozen=True, kw_only=True)
class Training(Measure):
    """What the log of training says: times, epochs, the best loss on dev; and the number of parameters."""

    def of_run(self, subject: Subject) -> Measured:
        """Read the log; a system that is estimated in one go, or not trained, has none."""
        values = {"parameters": float(sum(one.numel() for one in load(subject.run).parameters()))}
        path = subject.run / LOG
        lines = read_metrics(path) if path.exists() else []
        dev = [line for line in lines if line["kind"] == "dev"]
        if lines:
            values |= {"cpu_seconds": lines[-1].get("cpu_seconds", 0.0), "wall_seconds": lines[-1]["elapsed_seconds"]}
            values |= {"epochs": float(lines[-1]["epoch"]), "updates": float(lines[-1]["step"])}
        if dev:
            values["dev_loss_nats_per_word"] = min(line["loss_nats_per_word"] for line in dev)
        return Measured(values=values)


@dataclass(frozen=True, kw_only=True)
class Setting(Measure):
    """What a recipe says, without a run; metrics are names of settings: ``model.dropout``."""

    @staticmethod
    def of_recipe(recipe: Recipe, metric: str) -> float:
        """Look the setting up. Raises ``InputError`` for one that is not there."""
        section, _, name = metric.partition(".")
        try:
            return float(getattr(recipe.model.config if section == "model" else getattr(recipe, section), name))
        except AttributeError:
            raise InputError(f"no setting {metric!r}", remedy="name one as --set does") from None


@dataclass(frozen=True, kw_only=True)
class SyntaxGym(SearchOptions, Measure):
    """Accuracies on test suites, in percent: by suite, by kind of suites, by circuit, and their mean."""

    suites: tuple[str, ...] = ()
    """Names of packaged suites; without them, those of all circuits."""

    def of_run(self, subject: Subject) -> Measured:
        """Score the suites."""
        lm = subject.model(self)
        suites = load_suites(self.suites or [suite for members in circuits().values() for suite in members])
        keep = (MetricCache(cache_directory() / "syntaxgym"), model_hash(subject.run))
        found = suite_values(score_suites(lm, suites, keep=keep))
        shown = ("sg_score", "circuit", "suite")
        values = {name: 100 * value for name, value in found.items() if name.partition(", ")[0] in shown}
        if "sg_score" in found:
            values["sg_accuracy"] = found["sg_score"]
        kinds: dict[str, list[float]] = {}  # such as fgd, of fgd_object, fgd_pp and others
        for name, value in values.items():
            kind, _, suite = name.partition(", ")
            if kind == "suite":
                kinds.setdefault(suite.partition("_")[0], []).append(value)
        values |= {f"suites, {kind}": fmean(own) for kind, own in kinds.items()}
        return Measured(values=values)


@dataclass(frozen=True, kw_only=True)
class MinimalPairs(SearchOptions, Measure):
    """Accuracy on minimal pairs, in percent: the test file of ``data``, or the first pairs of each of its paradigms."""

    data: str
    max_pairs_per_group: int | None = None

    def of_run(self, subject: Subject) -> Measured:
        """Score both sentences of every pair."""
        pairs = list(read_pairs(locate_split(subject.root.locate(self.data), "test")[0]))
        if self.max_pairs_per_group is not None:
            pairs = first_of_groups(pairs, self.max_pairs_per_group)
        found = score_pairs(subject.model(self), pairs)
        notes = (f"{found.num_with_unknown} of {len(pairs)} pairs have a word that is unknown",)
        return Measured(values={"accuracy": 100 * found.overall.correct / found.overall.total}, notes=notes)
