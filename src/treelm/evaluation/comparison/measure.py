"""Measuring one run for a comparison: its split, SyntaxGym, minimal pairs, its records of training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch

from treelm import __version__
from treelm.corpora.data_config import locate_split
from treelm.corpora.inputs import file_hash
from treelm.corpora.lines import Format
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import Tokenisation
from treelm.errors import InputError
from treelm.evaluation.comparison.figures import (
    FORMAT_VERSION,
    F1Figure,
    GoldTrees,
    PairFigures,
    RunFigures,
    SyntaxGymFigures,
)
from treelm.evaluation.comparison.keeping import Kept
from treelm.evaluation.comparison.training_records import training_figures
from treelm.evaluation.minimal_pairs import MinimalPair, MinimalPairResult, first_of_groups, read_pairs, score_pairs
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.runs import evaluate_run
from treelm.evaluation.span_protocols import find_protocol
from treelm.evaluation.syntaxgym.references import circuit_accuracies, overall_score
from treelm.evaluation.syntaxgym.scoring import num_sentences, score_suites
from treelm.evaluation.syntaxgym.suites import Suite, load_suites
from treelm.inference.batching import batched
from treelm.inference.loading import load
from treelm.models.base import SyntacticLM
from treelm.models.configs import from_plain, to_plain
from treelm.models.devices import DeviceName, find_device
from treelm.models.storage import WEIGHTS, read_data_identity
from treelm.training.recipe import EvaluationConfig, Recipe
from treelm.training.run import load_run_recipe

ShowProgress = Callable[[str, "int | None"], AbstractContextManager[Callable[[], None]]]
"""Called with what is done and of how many sentences; gives what to call after each."""

SPEED_SECONDS, SPEED_BATCH = 2.0, 16  # scoring is measured for so long, or until the sentences are at their end
RULES = 2  # raised when figures of the same run and data become others, so that kept ones are measured again
BEAM = ("action_beam", "word_beam", "fast_track")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is measured of every run, the same for all."""

    split: Literal["train", "dev", "test"] = "test"
    """Split of the run's own corpus."""
    data: str = ""
    """A file instead of it."""
    data_format: Format | Literal["auto"] = "auto"
    """What that file holds; by default its name tells."""
    max_sentences: int | None = None
    """The first ones only; None: as the run's recipe says."""
    protocols: tuple[str, ...] = ("plain",)
    """Of unlabelled F1."""
    suites: tuple[str, ...] = ()
    """Names of packaged suites of SyntaxGym, or files; ``all``: all packaged ones."""
    pairs: tuple[str, ...] = ()
    """Files of minimal pairs."""
    good: str = ""
    """Column of their grammatical sentences; without it, that of a known format. So also the next two."""
    bad: str = ""
    group_by: tuple[str, ...] = ()
    max_pairs_per_group: int | None = None
    """The first pairs of every group only."""
    tokenisation: Tokenisation = "treebank"
    """How suites and pairs are cut into words."""
    action_beam: int | None = None
    """Width of the search; None: as the run's recipe says. So also the next two."""
    word_beam: int | None = None
    fast_track: int | None = None
    device: DeviceName = "cpu"
    """Where models compute; no figure but those of time should depend on it."""

    def read_pairs(self, file: str) -> Iterator[MinimalPair]:
        """The pairs of a file, by the columns that were named."""
        return read_pairs(Path(file), good=self.good, bad=self.bad, group_by=self.group_by)

    def pair_columns(self) -> dict[str, Any]:
        """The columns of pairs that were named, as part of what figures follow from."""
        named = {"good": self.good, "bad": self.bad, "group_by": list(self.group_by)}
        return {name: value for name, value in named.items() if value}


def measure(run: Path, name: str, settings: Settings, kept: Kept, show: ShowProgress) -> RunFigures:
    """All figures of a run; what ``kept`` has is not measured again.

    Raises ``InputError`` for a run that is not finished, and for data, suites or pairs that cannot be read.
    """
    return _Measuring(run, name, settings, kept, show).figures()


class _Measuring:
    """One run, its model (loaded when something is to be measured) and what its figures follow from."""

    def __init__(self, run: Path, name: str, settings: Settings, kept: Kept, show: ShowProgress) -> None:
        self._run, self._name, self._settings, self._kept, self._show = run, name, settings, kept, show
        self._recipe = _with_settings(load_run_recipe(run), settings)
        self._lm: SyntacticLM | None = None
        beam = {one: getattr(self._recipe.evaluation, one) for one in BEAM}
        self._weights = _hash_of(run / WEIGHTS)
        self._origin = {"treelm": __version__, "format": FORMAT_VERSION, "weights": self._weights, **beam}
        if find_device(settings.device) != "cpu":
            self._origin["device"] = "cuda"  # times are others there

    def figures(self) -> RunFigures:
        """Everything together; the parts that take long are kept one by one."""
        figures = self._evaluated()
        seconds, words_per_second, curve = training_figures(self._run)
        return replace(
            figures,
            name=self._name,
            run=str(self._run),
            data_identity=read_data_identity(self._run),
            training_seconds=seconds,
            training_words_per_second=words_per_second,
            loss_curve=curve,
            syntaxgym=self._syntaxgym() if self._settings.suites and self._scores_words(figures) else None,
            pairs=tuple(map(self._pairs, self._settings.pairs)) if self._scores_words(figures) else (),
        )

    @staticmethod
    def _scores_words(figures: RunFigures) -> bool:
        """Whether words alone are enough for its probabilities."""
        return bool(figures.perplexities) and not figures.needs_trees

    def _model(self) -> SyntacticLM:
        if self._lm is None:
            self._lm = load(self._run, device=self._settings.device)
            self._check_weights()
            config = self._recipe.evaluation
            self._lm.set_beam(action_beam=config.action_beam, word_beam=config.word_beam, fast_track=config.fast_track)
        return self._lm

    def _check_weights(self) -> None:
        """Raise ``InputError`` if what was just loaded may be another model than figures are kept for."""
        if _hash_of(self._run / WEIGHTS) != self._weights:
            remedy = "wait until its training is over, then compare again"
            raise InputError("the model changed while it was measured", where=str(self._run), remedy=remedy)

    def _evaluated(self) -> RunFigures:
        path, format = self._data()
        origin = {
            **self._origin,
            "name": self._settings.data or self._settings.split,
            "rules": RULES,
            "data": _hash_of(path),
            "protocols": list(self._settings.protocols),
            "reading": to_plain(self._recipe.data),
            "evaluation": to_plain(self._recipe.evaluation),
        }
        if self._settings.data_format != "auto":
            origin["data_format"] = self._settings.data_format
        kept = self._kept.get("evaluation", origin)
        if kept is None:
            gold: GoldTrees = "dependencies" if format == "conllu" else "constituency"
            kept = to_plain(self._evaluate(gold))
            self._kept.put("evaluation", origin, kept)
        return from_plain(RunFigures, kept, where=f"kept figures of {self._run}")

    def _data(self) -> tuple[Path, str]:
        """The file that is evaluated, and its format."""
        if self._settings.data:
            path, format = Path(self._settings.data), self._settings.data_format
        else:
            path, format = locate_split(self._recipe.data, self._settings.split)
        return path, self._recipe.data.read_options(format).format_for(str(path))

    def _evaluate(self, gold: GoldTrees) -> RunFigures:
        protocols = [find_protocol(one) for one in self._settings.protocols]
        files = (self._settings.data,) if self._settings.data else ()
        with self._show(f"{self._name}: {self._settings.data or self._settings.split}", None) as advance:
            (judged,) = evaluate_run(
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
        reads_words = lm.predicts_words and not lm.needs_trees
        figures = RunFigures(
            name=self._name,
            run=str(self._run),
            system=lm.system,
            num_parameters=sum(parameter.numel() for parameter in lm.parameters()),
            search=_search(lm, self._recipe.evaluation),
            weights=self._weights,
            vocabulary=lm.vocabulary.fingerprint(),
            text=_text_hash(judged.sentences),
            scoring_words_per_second=_scoring_speed(lm, judged.sentences) if reads_words else None,
            needs_trees=lm.needs_trees,
            scoring_threads=torch.get_num_threads(),
        )
        return _with_result(figures, judged.result, gold)

    def _syntaxgym(self) -> SyntaxGymFigures:
        """Suite by suite, each kept when it is done."""
        names = () if self._settings.suites == ("all",) else self._settings.suites
        suites = load_suites(names)
        origin = {**self._origin, "tokenisation": self._settings.tokenisation}
        done: dict[str, Any] = self._kept.get("syntaxgym", origin) or {}
        missing = [suite for suite in suites if done.get(suite.name, {}).get("suite") != _suite_hash(suite)]
        total = sum(num_sentences([suite]) for suite in missing)
        if missing:
            with self._show(f"{self._name}: {len(missing)} suites of SyntaxGym", total) as advance:
                for suite in missing:
                    done[suite.name] = self._score_suite(suite, advance)
                    done = {**(self._kept.get("syntaxgym", origin) or {}), **done}  # others may measure it too
                    self._kept.put("syntaxgym", origin, done)
        return _syntaxgym_figures({suite.name: done[suite.name] for suite in suites})

    def _score_suite(self, suite: Suite, advance: Callable[[], None]) -> dict[str, Any]:
        (result,) = score_suites(self._model(), [suite], tokenisation=self._settings.tokenisation, on_sentence=advance)
        return {
            "suite": _suite_hash(suite),
            "accuracy": result.accuracy(),
            "without_unknown": result.accuracy_without_unknown(),
        }

    def _pairs(self, file: str) -> PairFigures:
        most = self._settings.max_pairs_per_group
        settings = {"tokenisation": self._settings.tokenisation, "most": most, **self._settings.pair_columns()}
        origin = {**self._origin, **settings, "name": Path(file).name, "file": _hash_of(Path(file))}
        kept = self._kept.get("pairs", origin)
        if kept is None:
            pairs = list(self._settings.read_pairs(file))
            pairs = pairs if most is None else first_of_groups(pairs, most)
            total = len({text for pair in pairs for text in (pair.good, pair.bad)})
            with self._show(f"{self._name}: pairs of {file}", total) as advance:
                result = score_pairs(
                    self._model(), pairs, tokenisation=self._settings.tokenisation, on_sentence=advance
                )
            kept = to_plain(_pair_figures(Path(file).name, result))
            self._kept.put("pairs", origin, kept)
        return from_plain(PairFigures, kept, where=f"kept pairs of {self._run}")


def _hash_of(path: Path) -> str:
    return file_hash(path, remedy="check the path")


def _with_settings(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe, to be evaluated as the settings say; figures of sentences are always among the results."""
    names = (*BEAM, "max_sentences")
    given = {name: value for name in names if (value := getattr(settings, name)) is not None}
    config: EvaluationConfig = replace(recipe.evaluation, splits=(settings.split,), **given)
    return replace(recipe, evaluation=replace(config, stream="no" if config.stream == "no" else "beside"))


def _with_result(figures: RunFigures, result: EvaluationResult, gold: GoldTrees) -> RunFigures:
    return replace(
        figures,
        split=result.split,
        num_sentences=result.num_sentences,
        num_words=result.num_words,
        perplexities=result.perplexities,
        labeled_f1=tuple(
            F1Figure(protocol=one.protocol, corpus_f1=one.total.f1, sentence_f1=one.total.sentence_f1)
            for one in result.bracketing
            if one.parameters.labeled
        ),
        unlabeled_f1=tuple(
            F1Figure(protocol=one.name, corpus_f1=one.corpus_f1, sentence_f1=one.sentence_f1) for one in result.spans
        ),
        gold_trees=gold if result.spans else None,
        baselines=result.baselines,
        own=dict(result.own),
        notes=(*result.notes, *(f"{spans.name}: {error}" for spans in result.spans for error in spans.errors)),
    )


def _search(lm: SyntacticLM, config: EvaluationConfig) -> str:
    """The beam in words, for systems that have one."""
    if type(lm).set_beam is SyntacticLM.set_beam:
        return ""
    return f"beam {config.action_beam}/{config.word_beam}/{config.fast_track}"


def _text_hash(sentences: Sequence[Sentence]) -> str:
    text = json.dumps([sentence.words for sentence in sentences])
    return hashlib.sha256(text.encode()).hexdigest()


def _scoring_speed(lm: SyntacticLM, sentences: Sequence[Sentence]) -> float:
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


def _syntaxgym_figures(done: dict[str, dict[str, Any]]) -> SyntaxGymFigures:
    accuracies = {name: float(values["accuracy"]) for name, values in done.items()}
    return SyntaxGymFigures(
        suites=accuracies,
        without_unknown={
            name: values["without_unknown"] for name, values in done.items() if values["without_unknown"] is not None
        },
        circuits=circuit_accuracies(accuracies),
        sg_score=overall_score(accuracies),
        mean=sum(accuracies.values()) / len(accuracies),
    )


def _pair_figures(name: str, result: MinimalPairResult) -> PairFigures:
    without = result.without_unknown
    return PairFigures(
        file=name,
        accuracy=result.overall.accuracy,
        num_pairs=result.overall.total,
        num_ties=result.overall.ties,
        num_with_unknown=result.num_with_unknown,
        accuracy_without_unknown=without.accuracy if without.total else None,
        groups={
            grouping: {group: counts.accuracy for group, counts in members.items()}
            for grouping, members in result.groups.items()
        },
    )
