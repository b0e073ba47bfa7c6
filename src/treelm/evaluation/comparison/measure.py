"""Measure one run for a comparison: its split, SyntaxGym, minimal pairs, its records of training.

What takes long is kept in a folder, so that a comparison that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeVar

import torch

from treelm import __version__
from treelm.configs import from_plain, to_plain
from treelm.corpora.data_config import locate_split
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.comparison.human import (
    GardenPathMetrics,
    ReadingMetrics,
    garden_path_metrics,
    load_corpus,
    reading_metrics,
)
from treelm.evaluation.comparison.metrics import (
    FORMAT_VERSION,
    F1Metric,
    GoldTrees,
    PairMetrics,
    RunMetrics,
    SyntaxGymMetrics,
    training_metrics,
)
from treelm.evaluation.comparison.settings import Settings
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.minimal_pairs import first_of_groups, score_pairs
from treelm.evaluation.span_protocols import find_protocol
from treelm.evaluation.syntaxgym.scoring import ScoreCache, score_suites, write_sentences
from treelm.evaluation.syntaxgym.suites import Suite
from treelm.inference.annotation import parser_of
from treelm.inference.batching import batched
from treelm.inference.loading import load, model_hash
from treelm.io.files import file_hash
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Searching, TreeConditioned, has, set_search
from treelm.models.layers.devices import find_device
from treelm.models.persistence.storage import read_data_identity
from treelm.models.search.config import SearchConfig
from treelm.training.recipe import EvaluationConfig, Recipe, encode_recipe
from treelm.training.run_folder import recipe_of_model

ShowProgress = Callable[[str, "int | None"], AbstractContextManager[Callable[[], None]]]
"""Called with what is done and of how many sentences; gives what to call after each."""

SPEED_SECONDS, SPEED_BATCH = 2.0, 16  # scoring is measured for so long, or until the sentences are at their end
RULES = 5  # raised when metrics of the same run and data become others, so that kept ones are measured again
FOLDER = "measured"
Record = TypeVar("Record")


def check_data(run: Path, settings: Settings) -> None:
    """Raise ``InputError`` if a run's recipe has no data of the split that is to be evaluated."""
    if not settings.data and not recipe_of_model(run).data.has_split(settings.split):
        remedy = "give a file of data, the same for all runs, or another split"
        raise InputError(f"the recipe has no {settings.split} data", where=str(run), remedy=remedy)


class Measurement:
    """One run, its model (loaded when something is to be measured) and what its metrics follow from."""

    def __init__(self, run: Path, name: str, settings: Settings, cache: MetricCache, show: ShowProgress) -> None:
        """Read the run's recipe; the model is not loaded yet."""
        self._run, self._name, self._settings, self._cache, self._show = run, name, settings, cache, show
        self._recipe = _with_settings(recipe_of_model(run), settings)
        self._lm: LanguageModel | None = None
        self._weights = model_hash(run)
        self._origin = {"treelm": __version__, "format": FORMAT_VERSION, "weights": self._weights}
        self._origin["search"] = self._recipe.search.to_json()
        if find_device(settings.device) != "cpu":
            self._origin["device"] = "cuda"  # times are others there

    def metrics(self) -> RunMetrics:
        """Measure everything; the parts that take long are kept one by one, and not measured again.

        Raises ``InputError`` for a run that is not finished, and for data, suites or pairs that cannot be read.
        """
        metrics, settings = self._evaluated(), self._settings
        seconds, words_per_second, curve = training_metrics(self._run)
        metrics = replace(
            metrics,
            name=self._name,
            run=str(self._run),
            data_identity=read_data_identity(self._run),
            training_seconds=seconds,
            training_words_per_second=words_per_second,
            loss_curve=curve,
        )
        if not metrics.perplexities or metrics.needs_trees:
            return metrics  # words alone, without trees, are not enough for its probabilities
        return replace(
            metrics,
            syntaxgym=self._syntaxgym() if settings.load_suites() else None,
            pairs=tuple(map(self._pairs, settings.pairs)),
            reading=self._reading() if settings.reading != "none" else None,
            garden_paths=self._garden_paths() if settings.gardenpath else None,
        )

    def _model(self) -> LanguageModel:
        if self._lm is None:
            self._lm = load(self._run, device=self._settings.device)
            self._check_weights()
            set_search(self._lm, self._recipe.search)
        return self._lm

    def _check_weights(self) -> None:
        """Raise ``InputError`` if what was just loaded may be another model than metrics are kept for."""
        if model_hash(self._run) != self._weights:
            remedy = "wait until its training is over, then compare again"
            raise InputError("the model changed while it was measured", where=str(self._run), remedy=remedy)

    def _measured(self, part: str, kind: type[Record], origin: dict[str, Any], measure: Callable[[], Record]) -> Record:
        """A part of the metrics that follows from ``origin``: as it was kept, or measured now, and kept."""
        kept = self._cache.get(part, origin)
        if kept is None:
            kept = to_plain(measure())
            self._cache.put(part, origin, kept)
        return from_plain(kind, kept, where=f"kept {part} of {self._run}", null=math.nan)

    def _evaluated(self) -> RunMetrics:
        path, format = self._data()
        origin = {
            **self._origin,
            "name": self._settings.data or self._settings.split,
            "rules": RULES,
            "data": file_hash(path, remedy="check the path"),
            "protocols": list(self._settings.protocol),
            "reading": to_plain(self._recipe.data),
            "evaluation": to_plain(self._recipe.evaluation),
        }
        if self._settings.data_format != "auto":
            origin["data_format"] = self._settings.data_format
        if (parser := parser_of(path)) is not None:
            origin["parser"] = parser  # whose trees F1 is against, which notes say
        gold: GoldTrees = "dependencies" if format == "conllu" else "constituency"
        return self._measured("evaluation", RunMetrics, origin, lambda: self._evaluate(gold))

    def _data(self) -> tuple[Path, str]:
        """The file that is evaluated, and its format."""
        if self._settings.data:
            path, format = Path(self._settings.data), self._settings.data_format
        else:
            path, format = locate_split(self._recipe.data, self._settings.split)
        return path, self._recipe.data.read_options(format).format_for(str(path))

    def _evaluate(self, gold: GoldTrees) -> RunMetrics:
        protocols = [find_protocol(one) for one in self._settings.protocol]
        files = (self._settings.data,) if self._settings.data else ()
        with self._show(f"{self._name}: {self._settings.data or self._settings.split}", None) as advance:
            (evaluated,) = evaluate_run(
                self._run,
                self._recipe,
                files=files,
                format=self._settings.data_format,
                protocols=protocols,
                on_sentence=advance,
                device=self._settings.device,
            )
        self._check_weights()  # it loaded the model by itself
        lm = self._model()
        reads_words = lm.predicts_words and not has(lm, TreeConditioned)
        result = evaluated.result
        labelled = [(one.protocol, one.total) for one in result.bracketing if one.parameters.labeled]
        return RunMetrics(
            name=self._name,
            run=str(self._run),
            system=lm.system,
            num_parameters=sum(parameter.numel() for parameter in lm.parameters()),
            search=str(lm.search) if isinstance(lm, Searching) else "",
            weights=self._weights,
            recipe=_recipe_hash(self._recipe),
            vocabulary=lm.vocabulary.fingerprint(),
            text=_text_hash(evaluated.sentences),
            scoring_words_per_second=_scoring_speed(lm, evaluated.sentences) if reads_words else None,
            needs_trees=has(lm, TreeConditioned),
            scoring_threads=torch.get_num_threads(),
            split=result.split,
            num_sentences=result.num_sentences,
            num_words=result.num_words,
            perplexities=result.perplexities,
            labeled_f1=tuple(
                F1Metric(protocol=name, corpus_f1=total.f1, sentence_f1=total.sentence_f1) for name, total in labelled
            ),
            unlabeled_f1=tuple(
                F1Metric(protocol=one.name, corpus_f1=one.corpus_f1, sentence_f1=one.sentence_f1)
                for one in result.spans
            ),
            gold_trees=gold if result.spans else None,
            baselines=result.baselines,
            own=dict(result.own),
            notes=(*result.notes, *(f"{spans.name}: {error}" for spans in result.spans for error in spans.errors)),
        )

    def _syntaxgym(self) -> SyntaxGymMetrics:
        """Metrics of suites; the sentences of any scoring of them are kept in the cache of this machine."""
        suites, tokenisation = self._settings.load_suites(), self._settings.tokenisation
        hashes = {suite.name: _suite_hash(suite) for suite in suites}

        def score() -> SyntaxGymMetrics:
            lm, total = self._model(), len(write_sentences(suites))
            cache = ScoreCache.of(lm, tokenisation=tokenisation)
            with self._show(f"{self._name}: {len(suites)} suites of SyntaxGym", total) as advance:
                results = score_suites(lm, suites, tokenisation=tokenisation, on_sentence=advance, cache=cache)
            by_suite = dict(zip(hashes, results, strict=True))
            return SyntaxGymMetrics.of(
                {name: result.accuracy() for name, result in by_suite.items()},
                {name: result.accuracy_without_unknown() for name, result in by_suite.items()},
            )

        origin = {**self._origin, "tokenisation": tokenisation, "suites": hashes}
        return self._measured("syntaxgym", SyntaxGymMetrics, origin, score)

    def _pairs(self, file: str) -> PairMetrics:
        settings, name = self._settings, Path(file).name
        named = {"good": settings.good, "bad": settings.bad, "group_by": list(settings.group_by)}
        columns = {option: value for option, value in named.items() if value}
        most = settings.max_pairs_per_group
        origin = {**self._origin, "tokenisation": settings.tokenisation, "most": most, **columns}

        def score() -> PairMetrics:
            pairs = list(settings.read_pairs(file))
            pairs = pairs if most is None else first_of_groups(pairs, most)
            total = len({text for pair in pairs for text in (pair.good, pair.bad)})
            with self._show(f"{self._name}: pairs of {file}", total) as advance:
                result = score_pairs(self._model(), pairs, tokenisation=settings.tokenisation, on_sentence=advance)
            return PairMetrics.of(name, result)

        return self._measured(
            "pairs",
            PairMetrics,
            {**origin, "name": name, "file": file_hash(Path(file), remedy="check the path")},
            score,
        )

    def _reading(self) -> ReadingMetrics:
        name = self._settings.reading
        corpus = load_corpus(name, self._settings.reading_data)

        def score() -> ReadingMetrics:
            with self._show(f"{self._name}: {name}", len(set(corpus.sentences))) as advance:
                return reading_metrics(self._model(), self._name, corpus, advance)

        origin = {**self._origin, "corpus": name, "data": corpus.content_hash()}
        return self._measured("reading", ReadingMetrics, origin, score)

    def _garden_paths(self) -> GardenPathMetrics:
        def score() -> GardenPathMetrics:
            with self._show(f"{self._name}: garden paths", None) as advance:
                return garden_path_metrics(self._model(), self._name, advance)

        return self._measured("garden_paths", GardenPathMetrics, self._origin, score)


def _with_settings(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe, to be evaluated as the settings say; metrics of sentences are always among the results."""
    stream: Literal["no", "beside"] = "no" if recipe.evaluation.stream == "no" else "beside"
    evaluation = replace(recipe.evaluation, splits=(settings.split,), stream=stream)
    if settings.max_sentences is not None:
        evaluation = replace(evaluation, max_sentences=settings.max_sentences)
    return replace(recipe, search=settings.changed(recipe.search), evaluation=evaluation)


def _recipe_hash(recipe: Recipe) -> str:
    """A hash of what a model was trained by: all of its recipe but the seed, and how it is evaluated.

    It is empty for one that was not trained here, of which nothing is known.
    """
    if recipe.model.config is None:
        return ""
    training = replace(recipe.training, seed=0)
    trained = replace(recipe, training=training, search=SearchConfig(), evaluation=EvaluationConfig())
    return hashlib.sha256(encode_recipe(trained)).hexdigest()


def _text_hash(sentences: Sequence[Sentence]) -> str:
    text = json.dumps([sentence.words for sentence in sentences])
    return hashlib.sha256(text.encode()).hexdigest()


def _scoring_speed(lm: LanguageModel, sentences: Sequence[Sentence]) -> float:
    """Words a second of probabilities alone, without trees where a search does not give both."""
    num_words, begin = 0, perf_counter()
    for batch in batched(sentences, SPEED_BATCH):
        lm.score([sentence.words for sentence in batch])
        num_words += sum(len(sentence.words) for sentence in batch)
        if perf_counter() - begin > SPEED_SECONDS:
            break
    return num_words / (perf_counter() - begin)


def _suite_hash(suite: Suite) -> str:
    return hashlib.sha256(repr((suite.metric, suite.formulas, suite.items)).encode()).hexdigest()
