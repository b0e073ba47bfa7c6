"""How much a model's surprisals add to the prediction of reading times: alone, over other models, by class of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from treelm.errors import InputError, choose_from
from treelm.evaluation.human.columns import Design
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.material import Bools, Floats, Surprisals
from treelm.evaluation.human.regression import (
    SPLINE_DF,
    Delta,
    NestedTest,
    Slope,
    can_curve,
    compare_fits,
    has_words_for,
    held_out_log_likelihood,
    mean_with_interval,
    slopes,
    splines,
)

if TYPE_CHECKING:
    import pandas as pd

AS_THE_CORPUS = Design()
"""What is empty or None is as the corpus has it."""


@dataclass(frozen=True, kw_only=True)
class Spline:
    """Whether the effect of surprisal is linear: splines of all lags against straight lines."""

    test: NestedTest  # small p: not linear
    delta: Delta  # of splines over lines, held out


@dataclass(frozen=True, kw_only=True)
class Over:
    """What a model adds to the baseline that has another model's surprisals already."""

    model: str
    other: str
    delta: Delta
    test: NestedTest


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """One model on the words that are compared."""

    name: str
    kind: str
    delta: Delta  # over the baseline
    slopes: tuple[Slope, ...]
    by_class: Mapping[str, Delta]
    spline: Spline | None  # None: too few words, or values, for curves
    mean_bits: float  # over the words that are compared
    num_missing: int  # words of the corpus without a surprisal (none known, or infinite)
    num_unknown: int  # words of the corpus that it reads as unknown ones


@dataclass(frozen=True, kw_only=True)
class ReadingResult:
    """All models on one corpus, compared on the words that every one of them has."""

    corpus: str
    response: str
    baseline: tuple[str, ...]
    controls: tuple[str, ...]
    num_lags: int
    fold_kind: str
    num_words: int  # that are compared
    left_out: Mapping[str, int]  # of the corpus' words, by reason; the first that holds
    constant_log_likelihood: float  # nats a word, held out
    baseline_log_likelihood: float
    class_sizes: Mapping[str, int]
    models: tuple[ModelResult, ...]
    over: tuple[Over, ...] = ()
    notes: tuple[str, ...] = ()


def check_names(names: Sequence[str], over: Sequence[str] | None = None) -> None:
    """Raise ``InputError`` if two models have one name.

    With ``over``, also if there is no model at all, and if a name in ``over`` is not one of theirs.
    """
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two models named {name}", remedy="give each once, or rename a table")
    if over is not None:
        if not names:
            raise InputError("no model to compare", remedy="give a run, a table or a published model")
        _check("model", over, names)


def _check(kind: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"no {kind} {name!r}", remedy=choose_from(name, known))


class Regression:
    """Prediction of the times of a corpus by its own predictors and by models' surprisals, on words that all have."""

    def __init__(
        self, corpus: ReadingCorpus, models: Sequence[Surprisals] = (), design: Design = AS_THE_CORPUS
    ) -> None:
        """Choose the words that are compared, and gather times, predictors and surprisals of these.

        Raises ``InputError`` for names that the corpus does not have, for two models of one name, and for too few
        words.
        """
        check_names([model.name for model in models])
        self.corpus = corpus
        self.models = {model.name: model for model in models}
        self.response = design.response or next(iter(corpus.responses))
        self.baseline = tuple(dict.fromkeys(design.baseline or corpus.predictors))
        self.num_lags = corpus.num_lags if design.lags is None else design.lags
        _check("response", [self.response], corpus.responses)
        _check("predictor", self.baseline, corpus.predictors)
        _check("filter", design.only, corpus.filters)
        if self.num_lags < 0:
            raise InputError(f"lags = {self.num_lags}", remedy="give 0 or more words before")
        predictors = {name: self._lagged(corpus.predictors[name]) for name in self.baseline}
        self.lagged_bits = {name: self._lagged(model.bits) for name, model in self.models.items()}
        self.columns = {f"{name}_{lag}": own for name, found in predictors.items() for lag, own in enumerate(found.T)}
        for name in corpus.controls:
            if name in self.columns:
                found = f"a control named as a predictor and its lag ({name!r})"
                raise InputError(found, where=corpus.name, remedy="rename the column")
        self.columns |= corpus.controls
        self.kept, self.left_out = self._choose(design, predictors)
        self.folds = [fold for fold, kept in zip(corpus.folds, self.kept, strict=True) if kept]
        self.times = corpus.responses[self.response][self.kept]
        self.base = np.column_stack([values[self.kept] for values in self.columns.values()])
        self._require_words(self.num_lags + 1)
        if self.times.min() == self.times.max():
            found = f"times of {self.response} that are all {self.times[0]:g}"
            raise InputError(found, where=corpus.name, remedy="give times that vary")

    def _lagged(self, values: Floats) -> Floats:
        """Values of each word and of the words before it, (words of the corpus, lags)."""
        return np.column_stack([self.corpus.shifted(values, lag) for lag in range(self.num_lags + 1)])

    def _require_words(self, num_more: int) -> None:
        """Raise ``InputError`` if there are too few words for the baseline and ``num_more`` predictors."""
        num_predictors, sizes = self.base.shape[1] + num_more, Counter(self.folds)
        if len(sizes) < 2 or not has_words_for(num_predictors, self.folds):
            least = len(self.folds) - max(sizes.values(), default=0)
            found = (
                f"{len(self.folds)} words in {len(sizes)} {self.corpus.fold_kind} to compare, {least} of them without "
                f"the largest, for {num_predictors} predictors"
            )
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
            remedy = f"give more words, or fewer predictors or lags; left out: {reasons or 'none'}"
            raise InputError(found, where=self.corpus.name, remedy=remedy)

    def _choose(self, design: Design, predictors: Mapping[str, Floats]) -> tuple[Bools, dict[str, int]]:
        """Which words of the corpus are compared, and how many are left out, by reason.

        A word is counted under the first reason that applies.
        """
        corpus = self.corpus
        has_time: Bools = np.isfinite(corpus.responses[self.response])
        if corpus.usable is not None:
            has_time = has_time & corpus.usable
        reasons = {"no reading time, or a doubtful one": has_time}
        reasons |= {f"not {name}": corpus.filters[name] for name in design.only}
        for lag, before in enumerate(self._lagged(np.ones(len(corpus))).T[1:], 1):
            reasons[f"without {lag} words before" if lag > 1 else "without a word before"] = np.isfinite(before)
        complete = {f"no {name}, here or at a lag": values for name, values in predictors.items()}
        complete |= {f"no {name}": values[:, None] for name, values in corpus.controls.items()}
        complete |= {f"no surprisal of {name}, here or at a lag": values for name, values in self.lagged_bits.items()}
        if design.known_only:
            for name, model in self.models.items():
                known = self._lagged(np.where(model.is_unknown, np.nan, 0.0))
                complete[f"unknown to {name}, here or at a lag"] = known
        reasons |= {reason: np.isfinite(values.sum(axis=1)) for reason, values in complete.items()}
        kept, left_out = np.ones(len(corpus), dtype=bool), dict[str, int]()
        for reason, holds in reasons.items():
            if number := int((kept & ~holds).sum()):
                left_out[reason] = number
            kept &= holds
        return kept, left_out

    def bits(self, name: str) -> Floats:
        """The surprisals of a model, (words, lags)."""
        found: Floats = self.lagged_bits[name][self.kept]
        return found

    def to_frame(self) -> pd.DataFrame:
        """The table of the regression: a row for each word that is compared.

        It has keys, the word, its sentence, fold and class, its time, and predictors and surprisals at all lags:
        ``NAME_0`` of the word itself, ``NAME_1`` of the word before it.
        """
        import pandas as pd

        corpus = self.corpus
        about = {"word": corpus.words, "sentence": corpus.sentences, "fold": corpus.folds, "class": corpus.classes}
        about = {name: values for name, values in about.items() if name not in corpus.key_names and values}
        bits = [(f"{name}_{lag}", own) for name, found in self.lagged_bits.items() for lag, own in enumerate(found.T)]
        columns: list[tuple[str, Any]] = [*zip(corpus.key_names, zip(*corpus.keys, strict=True), strict=True)]
        columns += [*about.items(), ("time", corpus.responses[self.response]), *self.columns.items(), *bits]
        table = pd.DataFrame({number: list(values) for number, (_, values) in enumerate(columns)})[self.kept]
        return table.set_axis([name for name, _ in columns], axis=1)

    def likelihood(self, *more: Floats, curved: Floats | None = None) -> Floats:
        """Held-out log likelihood of every word, by the baseline with ``more`` predictors and splines of ``curved``."""
        self._require_words(sum(columns.shape[1] for columns in more))
        return held_out_log_likelihood(self.times, np.column_stack([self.base, *more]), self.folds, curved=curved)

    def measure(self, over: Sequence[str] = ()) -> ReadingResult:
        """Measure what each model's surprisals add to the prediction of reading times.

        Each model in ``over`` is also added to the baseline with every other model, and every other model to the
        baseline with it. Raises ``InputError`` if there is no model, for a name in ``over`` that no model has, and for
        too few words.
        """
        check_names(list(self.models), over)
        corpus, base = self.corpus, self.likelihood()
        lines = {name: self.likelihood(self.bits(name)) for name in self.models}
        classes = np.array(corpus.classes)[self.kept] if corpus.classes else np.array([])
        class_sizes = dict(sorted(Counter(classes.tolist()).items(), key=lambda one: (-one[1], one[0])))
        of_class = {name: classes == name for name in class_sizes}
        constant = held_out_log_likelihood(self.times, np.zeros((len(self.times), 0)), self.folds)
        pairs = [pair for pair in permutations(self.models, 2) if set(pair) & set(over)]
        return ReadingResult(
            corpus=corpus.name,
            response=self.response,
            baseline=self.baseline,
            controls=tuple(corpus.controls),
            num_lags=self.num_lags,
            fold_kind=corpus.fold_kind,
            num_words=len(self.times),
            left_out=self.left_out,
            constant_log_likelihood=float(constant.mean()),
            baseline_log_likelihood=float(base.mean()),
            class_sizes=class_sizes,
            models=tuple(self._model(model, lines[name], base, of_class) for name, model in self.models.items()),
            over=tuple(self._over(name, other, lines[other]) for name, other in pairs),
            notes=corpus.notes,
        )

    def _model(self, model: Surprisals, lines: Floats, base: Floats, of_class: Mapping[str, Bools]) -> ModelResult:
        """The result of a model, given the held-out log likelihoods with its surprisals (``lines``) and without."""
        bits, gains, folds = self.bits(model.name), lines - base, np.array(self.folds)
        return ModelResult(
            name=model.name,
            kind=model.kind,
            delta=mean_with_interval(gains, self.folds),
            slopes=slopes(self.times, self.base, bits),
            by_class={name: mean_with_interval(gains[own], list(folds[own])) for name, own in of_class.items()},
            spline=self._spline(bits, lines),
            mean_bits=float(bits[:, 0].mean()),
            num_missing=int((~np.isfinite(model.bits)).sum()),
            num_unknown=int(model.is_unknown.sum()),
        )

    def _spline(self, bits: Floats, lines: Floats) -> Spline | None:
        """Compare splines of surprisals with straight lines, of which ``lines`` are the held-out log likelihoods.

        None if there are too few words or different values for splines.
        """
        num_predictors = self.base.shape[1] + bits.shape[1] * (SPLINE_DF - 1)
        if not has_words_for(num_predictors, self.folds) or not can_curve(bits, self.folds):
            return None
        line, curved = (np.column_stack([self.base, more]) for more in (bits, splines(bits)))
        gains = self.likelihood(curved=bits) - lines
        return Spline(test=compare_fits(self.times, line, curved), delta=mean_with_interval(gains, self.folds))

    def _over(self, name: str, other: str, lines_of_other: Floats) -> Over:
        """What a model adds to the baseline with another model's surprisals."""
        own, others = self.bits(name), self.bits(other)
        gains = self.likelihood(others, own) - lines_of_other
        fewer, more = np.column_stack([self.base, others]), np.column_stack([self.base, others, own])
        test = compare_fits(self.times, fewer, more)
        return Over(model=name, other=other, delta=mean_with_interval(gains, self.folds), test=test)
