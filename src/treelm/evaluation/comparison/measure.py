"""Measure one run for a comparison: its split, SyntaxGym, minimal pairs, human data, its records of training."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from treelm import __version__
from treelm.configs import from_plain, to_plain
from treelm.corpora.data_config import locate_split
from treelm.corpora.running_text import normalise
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.comparison.metrics import (
    FEWEST_UNITS,
    FORMAT_VERSION,
    F1Metric,
    GardenPathMetrics,
    GoldTrees,
    PairMetrics,
    ReadingGain,
    ReadingMetrics,
    RunMetrics,
    SyntaxGymMetrics,
    UnitSums,
    training_metrics,
)
from treelm.evaluation.comparison.settings import Materials, Settings
from treelm.evaluation.evalb_files import gold_bracketing
from treelm.evaluation.evaluate import Evaluation, evaluate_run, is_unparsed
from treelm.evaluation.human import sap, ucl
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.garden_paths import measure_effects
from treelm.evaluation.human.material import score_material
from treelm.evaluation.human.reading import ModelResult, Regression
from treelm.evaluation.minimal_pairs import MinimalPair, MinimalPairResult, score_pairs
from treelm.evaluation.settings import EvaluationSettings
from treelm.evaluation.span_protocols import PROTOCOLS
from treelm.evaluation.syntaxgym.results import (
    accuracies,
    accuracies_without_unknown,
    circuit_accuracies,
    overall_score,
)
from treelm.evaluation.syntaxgym.scoring import score_suites, write_sentences
from treelm.evaluation.syntaxgym.suites import Suite
from treelm.inference.annotation import parser_of
from treelm.inference.batching import batched
from treelm.inference.loading import load, model_hash
from treelm.io.files import file_hash
from treelm.io.json import json_hash
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Searching, TreeConditioned, has, set_search
from treelm.models.layers.devices import find_device
from treelm.models.perplexity import perplexity
from treelm.models.persistence.storage import read_data_identity
from treelm.models.search.config import SearchConfig
from treelm.training.recipe import EvaluationConfig, Recipe, encode_recipe
from treelm.training.run_folder import recipe_of_model

Advance = Callable[[], None]
"""Called after each sentence."""
ShowProgress = Callable[[str, "int | None"], AbstractContextManager[Advance]]
"""Called with what is done and of how many sentences; gives what to call after each."""

SPEED_SECONDS, SPEED_BATCH = 2.0, 16  # scoring is measured for so long, or until the sentences are at their end
RULES = 7  # raised when metrics of the same run and data become others, so that kept ones are measured again
FOLDER = "measured"
Record = TypeVar("Record")


def check_data(run: Path, settings: Settings) -> None:
    """Raise ``InputError`` if a run's recipe has no data of the split that is to be evaluated."""
    if not settings.data and not recipe_of_model(run).data.has_split(settings.split):
        remedy = "give --data FILE, the same for all runs, or another --split"
        raise InputError(f"the recipe has no {settings.split} data", where=str(run), remedy=remedy)


class Measurement:
    """Measures one run. Its model is loaded only if something was not measured before."""

    def __init__(self, run: Path, name: str, settings: Settings, cache: MetricCache | None, show: ShowProgress) -> None:
        """Read the recipe of a run. ``cache`` keeps what was measured, if it is given; ``show`` shows progress."""
        self._run, self._name, self._settings, self._cache, self._show = run, name, settings, cache, show
        recipe = recipe_of_model(run)
        stream: Literal["no", "beside"] = "no" if recipe.evaluation.stream == "no" else "beside"
        evaluation = replace(recipe.evaluation, splits=(settings.split,), stream=stream)
        if settings.max_sentences is not None:
            evaluation = replace(evaluation, max_sentences=settings.max_sentences)
        data = replace(recipe.data, encoding=settings.encoding) if settings.data and settings.encoding else recipe.data
        self._recipe = replace(recipe, data=data, search=settings.changed(recipe.search), evaluation=evaluation)
        self._weights = model_hash(run)
        self._origin = {"treelm": __version__, "format": FORMAT_VERSION, "weights": self._weights}
        self._origin |= {"search": self._recipe.search.to_json(), "tokenisation": settings.tokenisation}
        if find_device(settings.device) != "cpu":
            self._origin["device"] = "cuda"  # times are others there

    def metrics(self, materials: Materials) -> RunMetrics:
        """Measure the run on its split and on the materials; parts that were kept before are not measured again.

        Raises ``InputError`` for a run that is not finished, and for data that cannot be read.
        """
        seconds, words_per_second, curve, notes = training_metrics(self._run, self._recipe.training)
        evaluated = self._evaluated()
        metrics = replace(
            evaluated,
            name=self._name,
            run=str(self._run),
            data_identity=read_data_identity(self._run),
            training_seconds=seconds,
            training_words_per_second=words_per_second,
            loss_curve=curve,
            notes=(*evaluated.notes, *notes),
        )
        if not metrics.perplexities or metrics.needs_trees:
            return metrics  # words alone, without trees, are not enough for its probabilities
        return replace(
            metrics,
            syntaxgym=self._syntaxgym(materials.suites) if materials.suites else None,
            pairs=tuple(self._pairs(file, pairs) for file, pairs in materials.pairs.items()),
            reading=None if materials.corpus is None else self._reading(materials.corpus),
            garden_paths=self._garden_paths() if self._settings.gardenpath else None,
        )

    @cached_property
    def _lm(self) -> LanguageModel:
        lm = load(self._run, device=self._settings.device)
        set_search(lm, self._recipe.search)
        return lm

    def _measured(
        self,
        part: str,
        kind: type[Record],
        what: str,
        measure: Callable[[Advance], Record],
        *,
        total: int | None = None,
        **origin: Any,
    ) -> Record:
        """A part of the metrics: as it was kept, or else measured now and kept.

        ``part`` is its name in the cache and ``origin`` all that it follows from besides the run. ``measure`` makes a
        record of ``kind``; meanwhile ``what`` and the ``total`` number of sentences are shown. Raises ``InputError``
        if the weights of the run changed while it was measured.
        """
        origin = {**self._origin, **origin}
        kept = None if self._cache is None else self._cache.get(part, origin)
        if kept is None:
            with self._show(f"{self._name}: {what}", total) as advance:
                kept = to_plain(measure(advance))
            if model_hash(self._run) != self._weights:
                remedy = "wait until its training is over, then compare again"
                raise InputError("the model changed while it was measured", where=str(self._run), remedy=remedy)
            if self._cache is not None:
                self._cache.put(part, origin, kept)
        return from_plain(kind, kept, where=f"kept {part} of {self._run}", null=math.nan)

    def _evaluated(self) -> RunMetrics:
        settings, data = self._settings, self._recipe.data
        of_file = settings.data_format if settings.data else None
        path, options = locate_split(data, settings.data or settings.split, of_file)
        is_conllu = options.format_for(str(path)) == "conllu"
        return self._measured(
            "evaluation",
            RunMetrics,
            settings.data or settings.split,
            lambda advance: self._evaluate("dependencies" if is_conllu else "constituency", advance),
            name=settings.data or settings.split,
            rules=RULES,
            data=file_hash(path, remedy="check the path"),
            data_format=settings.data_format,
            protocols=list(settings.protocol),
            reading=to_plain(data),
            evaluation=to_plain(self._recipe.evaluation),
            parser=parser_of(path),  # whose trees F1 is against, which notes say
        )

    def _evaluate(self, gold: GoldTrees, advance: Advance) -> RunMetrics:
        (evaluated,) = evaluate_run(
            self._run,
            self._recipe,
            EvaluationSettings(
                data=(self._settings.data,) if self._settings.data else (),
                format=self._settings.data_format,
                device=self._settings.device,
            ),
            protocols=[PROTOCOLS[one] for one in self._settings.protocol],
            on_sentence=advance,
        )
        lm, result = self._lm, evaluated.result
        reads_words = lm.predicts_words and not has(lm, TreeConditioned)
        return RunMetrics(
            name=self._name,
            run=str(self._run),
            system=lm.system,
            num_parameters=sum(parameter.numel() for parameter in lm.parameters()),
            search=str(lm.search) if isinstance(lm, Searching) else "",
            weights=self._weights,
            recipe=_recipe_hash(self._recipe),
            vocabulary=lm.vocabulary.fingerprint(),
            text=json_hash([sentence.words for sentence in evaluated.sentences]),
            scoring_words_per_second=_scoring_speed(lm, evaluated.sentences) if reads_words else None,
            needs_trees=has(lm, TreeConditioned),
            scoring_threads=torch.get_num_threads(),
            split=result.split,
            num_sentences=result.num_sentences,
            num_words=result.num_words,
            perplexities=result.perplexities,
            coverage=result.coverage,
            labeled_f1=tuple(
                F1Metric(
                    protocol=one.protocol,
                    corpus_f1=one.total.f1,
                    sentence_f1=one.total.sentence_f1,
                    num_sentences=one.total.count("valid"),
                )
                for one in result.bracketing
                if one.parameters.labeled
            ),
            unlabeled_f1=tuple(
                F1Metric(
                    protocol=one.name,
                    corpus_f1=one.corpus_f1,
                    sentence_f1=one.sentence_f1,
                    num_sentences=len(one.sentences),
                )
                for one in result.spans
            ),
            gold_trees=gold if result.spans else None,
            baselines=result.baselines,
            own=dict(result.own),
            units=unit_sums(evaluated),
            notes=(*result.notes, *(f"{spans.name}: {error}" for spans in result.spans for error in spans.errors)),
        )

    def _syntaxgym(self, suites: Sequence[Suite]) -> SyntaxGymMetrics:
        def score(advance: Advance) -> SyntaxGymMetrics:
            tokenisation = self._settings.tokenisation
            keep = None if self._cache is None else (self._cache, self._weights)
            results = score_suites(self._lm, suites, tokenisation=tokenisation, on_sentence=advance, keep=keep)
            by_suite = accuracies(results)
            return SyntaxGymMetrics(
                suites=by_suite,
                without_unknown=accuracies_without_unknown(results),
                circuits=circuit_accuracies(by_suite),
                sg_score=overall_score(by_suite),
                mean=fmean(by_suite.values()),
            )

        hashes = {suite.name: json_hash(repr((suite.metric, suite.formulas, suite.items))) for suite in suites}
        what, total = f"{len(suites)} suites of SyntaxGym", len(write_sentences(suites))
        return self._measured("syntaxgym", SyntaxGymMetrics, what, score, total=total, suites=hashes)

    def _pairs(self, file: str, pairs: Sequence[MinimalPair]) -> PairMetrics:
        settings = self._settings

        def score(advance: Advance) -> PairMetrics:
            found = score_pairs(self._lm, pairs, tokenisation=settings.tokenisation, on_sentence=advance)
            return _pair_metrics(Path(file).name, found)

        return self._measured(
            "pairs",
            PairMetrics,
            f"pairs of {file}",
            score,
            total=len({text for pair in pairs for text in (pair.good, pair.bad)}),
            name=Path(file).name,
            file=file_hash(Path(file), remedy="check the path"),
            columns=[settings.good, settings.bad, *settings.group_by, *filter(None, [settings.encoding])],
            most=settings.max_pairs_per_group,
        )

    def _reading(self, corpus: ReadingCorpus) -> ReadingMetrics:
        def score(advance: Advance) -> ReadingMetrics:
            """Compare the run with the published models, in the corpus' own design."""
            own = score_material(self._lm, corpus, name=self._name, normalise=normalise, on_sentence=advance)
            published = [corpus.published[name] for name in corpus.references if name != self._name]
            result = Regression(corpus, [*published, own]).measure()
            *others, found = result.models
            return ReadingMetrics(
                corpus=result.corpus,
                response=result.response,
                num_words=result.num_words,
                num_unknown=found.num_unknown,
                ms_per_bit=tuple(slope.ms_per_bit for slope in found.slopes),
                gain=_reading_gain(found),
                published=tuple(map(_reading_gain, others)),
                babylm=ucl.reading_score(corpus, own) if corpus.name == ucl.NAME else None,
            )

        what, data = corpus.name, corpus.content_hash()
        return self._measured("reading", ReadingMetrics, what, score, total=len(set(corpus.sentences)), data=data)

    def _garden_paths(self) -> GardenPathMetrics:
        def score(advance: Advance) -> GardenPathMetrics:
            own = score_material(self._lm, sap.material(), name=self._name, normalise=normalise, on_sentence=advance)
            return GardenPathMetrics(
                effects=tuple(one for one in measure_effects(own).effects if math.isfinite(one.bits))
            )

        return self._measured("garden_paths", GardenPathMetrics, "garden paths", score)


def unit_sums(evaluated: Evaluation) -> UnitSums:
    """Add up the bits and the spans of each document, which are what a bootstrap draws.

    Where documents are fewer than ``FEWEST_UNITS``, or single sentences, sums are by sentence.
    """
    sentences, result = evaluated.sentences, evaluated.result
    of_documents, units = np.unique([one.document for one in sentences], return_inverse=True)
    by_document = FEWEST_UNITS <= len(of_documents) < len(sentences)
    units = units if by_document else np.arange(len(sentences))
    parsed = units[[one.tree is not None and not is_unparsed(gold_bracketing(one)) for one in sentences]]

    def by_unit(of: NDArray[np.int64], rows: Iterable[Sequence[float]]) -> tuple[Any, ...]:
        sums = (np.bincount(of, column, units.max() + 1).tolist() for column in zip(*rows, strict=True))
        return tuple(zip(*sums, strict=True))

    scored = [perplexity([one.score]) for one in evaluated.analyses if one.score is not None]
    spans = {
        one.protocol: by_unit(
            parsed, [(row.matched, row.gold_brackets, row.predicted_brackets) for row in one.total.rows]
        )
        for one in result.bracketing
        if one.parameters.labeled
    }
    for one in result.spans:
        counts = [(sentence.matched, sentence.gold, sentence.predicted) for sentence in one.sentences]
        spans[one.name] = by_unit(parsed[[*one.places]], counts)
    return UnitSums(
        unit="document" if by_document else "sentence",
        bits=by_unit(units, [(one.total_bits, one.num_units) for one in scored]),
        spans=spans,
    )


def _pair_metrics(file: str, result: MinimalPairResult) -> PairMetrics:
    return PairMetrics(
        file=file,
        accuracy=result.overall.correct / result.overall.total,
        num_pairs=result.overall.total,
        num_ties=result.overall.ties,
        num_with_unknown=result.num_with_unknown,
        accuracy_without_unknown=result.without_unknown.accuracy,
        groups={
            grouping: {group: counts.correct / counts.total for group, counts in members.items()}
            for grouping, members in result.groups.items()
        },
    )


def _reading_gain(result: ModelResult) -> ReadingGain:
    return ReadingGain(
        name=result.name,
        delta_nats_per_word=result.delta.nats_per_word,
        low=result.delta.low,
        high=result.delta.high,
        perplexity=math.exp(result.mean_bits * math.log(2)),
    )


def _recipe_hash(recipe: Recipe) -> str:
    """A hash of all that a model was trained by, but for the seed; empty for models that treelm did not train."""
    if recipe.model.config is None:
        return ""
    training = replace(recipe.training, seed=0)
    trained = replace(recipe, training=training, search=SearchConfig(), evaluation=EvaluationConfig())
    return hashlib.sha256(encode_recipe(trained)).hexdigest()


def _scoring_speed(lm: LanguageModel, sentences: Sequence[Sentence]) -> float:
    """Measure how many words a second ``score`` reads, in about ``SPEED_SECONDS`` seconds."""
    num_words, begin = 0, perf_counter()
    for batch in batched(sentences, SPEED_BATCH):
        lm.score([sentence.words for sentence in batch])
        num_words += sum(len(sentence.words) for sentence in batch)
        if perf_counter() - begin > SPEED_SECONDS:
            break
    return num_words / (perf_counter() - begin)
