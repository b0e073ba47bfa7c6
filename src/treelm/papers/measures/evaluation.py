"""What ``treelm evaluate`` measures, and trivial trees against the same gold trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from treelm.corpora.data_config import DataConfig
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.span_protocols import PLAIN, find_protocol
from treelm.evaluation.trivial_baselines import trivial_baselines
from treelm.models import SYSTEMS, system_class
from treelm.models.search.settings import GivenSearch, given_search
from treelm.papers.data import DataRoot
from treelm.papers.measures.base import Measured, OnTreebank, Subject, gold_tree
from treelm.training.recipe import EvaluationConfig
from treelm.trees.tree import Tree

_STREAM = ", in a stream"
_EVALUATION = ("stream", "stream_rows", "cache_weight", "cache_theta", "cache_window", "max_sentences", "tree_builder")
_LIKELIHOODS = (
    "perplexity_per_word_with_end",
    "perplexity_per_symbol_with_end",
    "perplexity_per_character_with_end",
    "bits_per_character_with_end",
)


@dataclass(frozen=True, kw_only=True)
class Evaluate(GivenSearch, OnTreebank):
    """What ``treelm evaluate`` measures, and trivial trees against the same gold trees.

    Without ``perplexity``, F1 by ``protocols`` alone: systems that need not predict words for their trees are faster.
    """

    protocols: tuple[str, ...] = ()
    perplexity: bool = True
    tree_builder: Literal["unbiased", "biased", "mbr", "viterbi"] | None = None
    stream: Literal["no", "beside", "only"] = "no"
    stream_rows: int = 10
    cache_weight: float = 0.0
    cache_theta: float = 1.0
    cache_window: int = 500

    def __post_init__(self) -> None:
        """Check sizes and protocols."""
        super().__post_init__()
        for name in self.protocols:
            find_protocol(name)
        if not self.perplexity and (self.stream != "no" or not self.protocols):
            remedy = "leave out stream, and name protocols"
            raise InputError("perplexity = false, and not trees alone by protocols", remedy=remedy)

    def metrics(self) -> Sequence[str]:
        """Perplexities of sentences and streams, F1 by protocol, and metrics that only one system has."""
        contexts = {"no": ("",), "beside": ("", _STREAM), "only": (_STREAM,)}[self.stream]
        perplexities = [f"{name}{context}" for context in contexts for name in _LIKELIHOODS if self.perplexity]
        if self.stream == "only":
            return perplexities
        spans = [f"unlabeled_f1_{level}, {name}" for name in self.protocols for level in ("corpus", "sentence")]
        own = [name for system in SYSTEMS for name in system_class(system).own_metric_names]
        return [*perplexities, "f1, evalb", *spans, *own]

    def baselines(self) -> Sequence[str]:
        """Trivial trees and the binary upper bound."""
        return trivial_names() if self.protocols else ()

    def of_run(self, subject: Subject) -> Measured:
        """Evaluate the run on each file, and add the files up where there are several."""
        recipe = subject.recipe
        config = self.config(recipe.data, subject.root)
        given = {name: getattr(self, name) for name in _EVALUATION} | given_search(self)
        evaluation: EvaluationConfig = replace(recipe.evaluation, splits=("test",), **given)
        files = self.files(config)
        with TemporaryDirectory() as scratch:
            (evaluated,) = evaluate_run(
                subject.run,
                replace(recipe, data=config, evaluation=evaluation),
                files=(str(_joined(files, Path(scratch))),),
                format=config.format,
                protocols=[find_protocol(name) for name in self.protocols],
                scores=self.perplexity,
                trees_for="" if self.perplexity else "perplexity = false",
                baselines=False,  # rows of the table's own, from ``of_data``: once, not for each run
                device="auto",
            )
        notes = (*_notes(evaluated.result), *self.provenance(subject.root, subject.data, files))
        return Measured(values=dict(_values(evaluated.result)), notes=notes)

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Score trivial trees."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        gold = [_gold(one) for one in self.sentences(config)]
        notes = self.provenance(root, own, self.files(config))
        found: dict[str, dict[str, tuple[float, ...]]] = {}
        for protocol in self.protocols:
            for row in trivial_baselines(gold, find_protocol(protocol), random_distances=True):
                values = found.setdefault(row.name, {})
                values[f"unlabeled_f1_corpus, {protocol}"] = (row.corpus_f1,)
                values[f"unlabeled_f1_sentence, {protocol}"] = (row.sentence_f1,)
        return Measured(baselines=found, notes=notes)


@cache
def trivial_names() -> tuple[str, ...]:
    """Names of the trivial baselines, from those of one tree."""
    tree = bracketing_of(Tree("S", ("a", "b", "c")))
    return tuple(row.name for row in trivial_baselines([tree], PLAIN, num_seeds=1, random_distances=True))


def _gold(sentence: Sentence) -> Bracketing:
    return bracketing_of(gold_tree(sentence), tags=sentence.tags, where=sentence.where)


def _joined(files: Sequence[Path], scratch: Path) -> Path:
    """One file of several, in a folder of their own: packed or not, they may stand one behind the other."""
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
