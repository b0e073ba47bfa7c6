"""Measure one run for a comparison: its split, SyntaxGym, minimal pairs, human data, its records of training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

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
    GoldTrees,
    RunMetrics,
    UnitSums,
    known,
    training_metrics,
)
from treelm.evaluation.comparison.settings import Materials, Settings
from treelm.evaluation.evalb_files import gold_bracketing
from treelm.evaluation.evaluate import evaluate_run, is_unparsed
from treelm.evaluation.human import sap, ucl
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.garden_paths import effect_values, measure_effects
from treelm.evaluation.human.material import score_material
from treelm.evaluation.human.reading import Regression
from treelm.evaluation.minimal_pairs import MinimalPair, score_pairs
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.settings import EvaluationSettings
from treelm.evaluation.span_protocols import PROTOCOLS
from treelm.evaluation.syntaxgym.results import suite_values
from treelm.evaluation.syntaxgym.scoring import score_suites, write_sentences
from treelm.evaluation.syntaxgym.suites import Suite
from treelm.evaluation.trivial_baselines import UPPER_BOUND
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
TRIVIAL = ("left-branching", "right-branching", "balanced", "random", "random, uniform over trees")
"""Names of the baselines that every system has, whether its trees come from distances or not."""


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
        trained = training_metrics(self._run, self._recipe.training)
        parts = [self._evaluated(), trained]
        if "perplexity" in parts[0]["values"] and not parts[0]["needs_trees"]:  # it reads words alone
            parts += [self._syntaxgym(materials.suites)] if materials.suites else []
            parts += [self._pairs(file, pairs) for file, pairs in materials.pairs.items()]
            parts += [] if materials.corpus is None else [self._reading(materials.corpus)]
            parts += [self._garden_paths()] if self._settings.gardenpath else []
        joined: dict[str, dict[str, Any]] = {"values": {}, "pair_groups": {}, "published": {}}
        for part in parts:
            for name, own in joined.items():
                own |= part.get(name, {})
        about = {"name": self._name, "run": str(self._run), "data_identity": read_data_identity(self._run)}
        about |= {"loss_curve": trained["loss_curve"], "notes": [*parts[0]["notes"], *trained["notes"]]}
        return from_plain(RunMetrics, {**parts[0], **joined, **about}, where=f"kept metrics of {self._run}")

    @cached_property
    def _lm(self) -> LanguageModel:
        lm = load(self._run, device=self._settings.device)
        set_search(lm, self._recipe.search)
        return lm

    def _measured(
        self,
        part: str,
        what: str,
        measure: Callable[[Advance], dict[str, Any]],
        *,
        total: int | None = None,
        **origin: Any,
    ) -> dict[str, Any]:
        """A part of the metrics: as it was kept, or else measured now and kept.

        ``part`` is its name in the cache and ``origin`` all that it follows from besides the run. ``measure`` gives
        fields of ``RunMetrics`` as plain values; meanwhile ``what`` and the ``total`` number of sentences are shown.
        Raises ``InputError`` if the weights of the run changed while it was measured.
        """
        origin = {**self._origin, **origin}
        kept = None if self._cache is None else self._cache.get(part, origin)
        if kept is None:
            with self._show(f"{self._name}: {what}", total) as advance:
                kept = measure(advance)
            if model_hash(self._run) != self._weights:
                remedy = "wait until its training is over, then compare again"
                raise InputError("the model changed while it was measured", where=str(self._run), remedy=remedy)
            if self._cache is not None:
                self._cache.put(part, origin, kept)
        return kept

    def _evaluated(self) -> dict[str, Any]:
        settings, data = self._settings, self._recipe.data
        of_file = settings.data_format if settings.data else None
        path, options = locate_split(data, settings.data or settings.split, of_file)
        is_conllu = options.format_for(str(path)) == "conllu"
        return self._measured(
            "evaluation",
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

    def _evaluate(self, gold: GoldTrees, advance: Advance) -> dict[str, Any]:
        (result,) = evaluate_run(
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
        lm = self._lm
        needs_trees = has(lm, TreeConditioned)
        speed = _scoring_speed(lm, result.sentences) if lm.predicts_words and not needs_trees else None
        num_parameters = sum(parameter.numel() for parameter in lm.parameters()) or None  # n-grams have none
        notes = [*result.notes, *(f"{spans.name}: {error}" for spans in result.spans for error in spans.errors)]
        if number := sum(result.unknown_labels.values()):
            notes.append(f"gold constituents with labels unseen in training, missed by labelled F1: {number:,}")
        return {
            "system": lm.system,
            "search": str(lm.search) if isinstance(lm, Searching) else "",
            "weights": self._weights,
            "recipe": _recipe_hash(self._recipe),
            "vocabulary": lm.vocabulary.fingerprint(),
            "text": json_hash([sentence.words for sentence in result.sentences]),
            "split": result.split,
            "num_sentences": result.num_sentences,
            "num_words": result.num_words,
            "needs_trees": needs_trees,
            "is_upper_bound": result.is_upper_bound if result.perplexities else None,
            "gold_trees": gold if result.spans else None,
            "scoring_threads": torch.get_num_threads(),
            "units": to_plain(unit_sums(result)),
            "notes": notes,
            "values": known({"parameters": num_parameters, "scoring_words_per_second": speed, **_values_of(result)}),
        }

    def _syntaxgym(self, suites: Sequence[Suite]) -> dict[str, Any]:
        def score(advance: Advance) -> dict[str, Any]:
            keep = None if self._cache is None else (self._cache, self._weights)
            tokenisation = self._settings.tokenisation
            results = score_suites(self._lm, suites, tokenisation=tokenisation, on_sentence=advance, keep=keep)
            return {"values": suite_values(results)}

        hashes = {suite.name: json_hash(repr((suite.metric, suite.formulas, suite.items))) for suite in suites}
        what, total = f"{len(suites)} suites of SyntaxGym", len(write_sentences(suites))
        return self._measured("syntaxgym", what, score, total=total, suites=hashes)

    def _pairs(self, file: str, pairs: Sequence[MinimalPair]) -> dict[str, Any]:
        settings, name = self._settings, Path(file).name

        def score(advance: Advance) -> dict[str, Any]:
            found = score_pairs(self._lm, pairs, tokenisation=settings.tokenisation, on_sentence=advance)
            values = {"minimal_pairs": found.overall.accuracy, "num_pairs": found.overall.total}
            groups = {
                grouping: {group: counts.accuracy for group, counts in members.items()}
                for grouping, members in found.groups.items()
            }
            return {"values": known(_named(values, name)), "pair_groups": {name: groups}}

        return self._measured(
            "pairs",
            f"pairs of {file}",
            score,
            total=len({text for pair in pairs for text in (pair.good, pair.bad)}),
            name=name,
            file=file_hash(Path(file), remedy="check the path"),
            columns=[settings.good, settings.bad, *settings.group_by, *filter(None, [settings.encoding])],
            most=settings.max_pairs_per_group,
        )

    def _reading(self, corpus: ReadingCorpus) -> dict[str, Any]:
        def score(advance: Advance) -> dict[str, Any]:
            """Compare the run with the published models, in the corpus' own design."""
            own = score_material(self._lm, corpus, name=self._name, normalise=normalise, on_sentence=advance)
            published = [corpus.published[name] for name in corpus.references if name != self._name]
            result = Regression(corpus, [*published, own]).measure()
            *others, values = (
                {
                    "reading_delta_nats_per_word": one.delta.nats_per_word,
                    "reading_low": one.delta.low,
                    "reading_high": one.delta.high,
                    "reading_perplexity": 2**one.mean_bits,  # per word that is compared, without ends of sentences
                    "reading_num_words": result.num_words,
                }
                for one in result.models
            )
            babylm: dict[str, float] = {}
            if corpus.name == ucl.NAME:
                scores = ucl.reading_score(corpus, own)
                babylm["babylm_eye_tracking"] = scores.eye_tracking
                babylm["babylm_self_paced_reading"] = scores.self_paced_reading
            beside = {one.name: known(_named(found, corpus.name)) for one, found in zip(published, others, strict=True)}
            return {"values": known(_named(values, corpus.name) | babylm), "published": beside}

        total, data = len(set(corpus.sentences)), corpus.content_hash()
        return self._measured("reading", corpus.name, score, total=total, data=data)

    def _garden_paths(self) -> dict[str, Any]:
        def score(advance: Advance) -> dict[str, Any]:
            own = score_material(self._lm, sap.material(), name=self._name, normalise=normalise, on_sentence=advance)
            return {"values": effect_values(measure_effects(own))}

        return self._measured("garden_paths", "garden paths", score)


def _values_of(result: EvaluationResult) -> dict[str, float]:
    """The figures of an evaluation by the names of columns."""
    values = {one.name if number else "perplexity": one.value for number, one in enumerate(result.perplexities)}
    shares = {} if result.coverage is None else result.coverage.shares
    values |= {name.replace(" ", "_"): share for name, share in shares.items()}
    for one in result.bracketing:
        if one.parameters.labeled:
            own = {"labeled_f1": one.total.f1, "num_sentences_labeled_f1": one.total.count("valid")}
            values |= _named(own, one.protocol)
    for spans in result.spans:
        own = {"unlabeled_f1": spans.corpus_f1, "unlabeled_f1_sentence": spans.sentence_f1}
        values |= _named({**own, "num_sentences_unlabeled_f1": len(spans.sentences)}, spans.name)
    for baseline in result.baselines:
        if baseline.name in (*TRIVIAL, UPPER_BOUND):
            kind = "binary_upper_bound_f1" if baseline.name == UPPER_BOUND else "trivial_f1"
            name = f"{kind}, {baseline.protocol}"
            values[name] = max(baseline.corpus_f1, values.get(name, 0.0))
    return {**values, **result.own}


def _named(values: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Values by the names of their columns, which say what they are of."""
    return {f"{name}, {of}": value for name, value in values.items()}


def unit_sums(result: EvaluationResult) -> UnitSums:
    """Add up the bits and the spans of each document, which are what a bootstrap draws.

    Where documents are fewer than ``FEWEST_UNITS``, or single sentences, sums are by sentence.
    """
    of_documents, units = np.unique([one.document for one in result.sentences], return_inverse=True)
    by_document = FEWEST_UNITS <= len(of_documents) < len(result.sentences)
    units = units if by_document else np.arange(len(result.sentences))
    parsed = units[[one.tree is not None and not is_unparsed(gold_bracketing(one)) for one in result.sentences]]

    def by_unit(of: NDArray[np.int64], rows: Iterable[Sequence[float]]) -> tuple[Any, ...]:
        sums = (np.bincount(of, column, units.max() + 1).tolist() for column in zip(*rows, strict=True))
        return tuple(zip(*sums, strict=True))

    scored = [perplexity([one.score]) for one in result.analyses if one.score is not None]
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
