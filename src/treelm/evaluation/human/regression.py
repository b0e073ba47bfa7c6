"""Least squares of reading times, by statsmodels: likelihood of what was left out, slopes, tests."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treelm.errors import import_extra
from treelm.evaluation.human.material import Bools, Floats

SPLINE_DF = 4
"""Degrees of freedom of the spline of each surprisal."""
_NO_SPREAD = 1e-12
"""A standard deviation that is no more than this part of the numbers themselves is their rounding."""


@dataclass(frozen=True, kw_only=True)
class Delta:
    """Mean gain in held-out log likelihood, in nats a word, with its 95 % interval over what was left out together."""

    nats_per_word: float
    low: float
    high: float
    num_folds_above_zero: int
    num_folds: int


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Coefficient of a surprisal in the fit to all words: milliseconds a bit, if times are milliseconds."""

    lag: int
    ms_per_bit: float
    standard_error: float
    t: float


@dataclass(frozen=True, kw_only=True)
class NestedTest:
    """F test of a fit to all words against one with fewer predictors."""

    f: float
    p: float
    num_added: int


def require_library() -> None:
    """Raise ``InputError`` if statsmodels or patsy is not installed; to be called before anything is scored."""
    for module in ("statsmodels.regression.linear_model", "patsy"):
        import_extra(module, "reading")


def held_out_log_likelihood(
    times: Floats, predictors: Floats, folds: Sequence[str], *, curved: Floats | None = None
) -> Floats:
    """Compute the log likelihood in nats of every time (N,), by a Gaussian model fitted to the words of other folds.

    The mean is fitted by least squares to a constant, ``predictors`` (N, P), and ``splines`` of the columns ``curved``
    (N, C). Units of predictors and knots of splines are those of the words that are fitted.
    """
    from scipy.stats import norm

    found = np.full(len(times), np.nan)
    labels = np.array(folds)
    for fold in dict.fromkeys(folds):
        out = labels == fold
        columns = predictors if curved is None else np.column_stack([predictors, splines(curved, among=~out)])
        design = with_constant(columns, among=~out)
        fitted = _fit_design(times[~out], design[~out])
        deviation = np.sqrt(fitted.ssr / (~out).sum())
        found[out] = norm.logpdf(times[out], loc=fitted.predict(design[out]), scale=deviation)
    return found


def has_words_for(num_predictors: int, folds: Sequence[str]) -> bool:
    """Tell whether, whichever fold is left out, there are two words or more for each coefficient that is fitted."""
    return len(folds) - max(Counter(folds).values(), default=0) >= 2 * (num_predictors + 1)


def can_curve(surprisals: Floats, folds: Sequence[str]) -> bool:
    """Tell whether surprisals (N, lags) have enough different values for ``splines``, whichever fold is left out."""
    labels = np.array(folds)
    return all(
        len(np.unique(column[labels != fold])) > SPLINE_DF for column in surprisals.T for fold in dict.fromkeys(folds)
    )


def mean_with_interval(gains: Floats, folds: Sequence[str]) -> Delta:
    """Mean of gains (N,) in nats, with its 95 % interval by standard errors clustered by fold.

    The interval is by Student's t with one degree of freedom less than there are folds; NaN for a single fold.
    """
    codes = np.unique(np.array(folds), return_inverse=True)[1]
    by_fold = np.array([gains[codes == code].mean() for code in range(codes.max() + 1)])
    low, high = float("nan"), float("nan")
    if len(by_fold) > 1:
        ones = np.ones((len(gains), 1))
        mean = _fit_design(gains, ones, cov_type="cluster", cov_kwds={"groups": codes}, use_t=True)
        ((low, high),) = mean.conf_int().tolist()
    return Delta(
        nats_per_word=float(gains.mean()),
        low=low,
        high=high,
        num_folds_above_zero=int((by_fold > 0).sum()),
        num_folds=len(by_fold),
    )


def slopes(times: Floats, predictors: Floats, surprisals: Floats) -> tuple[Slope, ...]:
    """Compute the coefficients of surprisals (N, lags) beside other predictors (N, P), in the fit to all words.

    They are NaN if the other predictors determine the surprisals, which then have no coefficients of their own.
    """
    base, count = with_constant(predictors), surprisals.shape[1]
    design = np.column_stack([base, surprisals])
    rank = np.linalg.matrix_rank
    if rank(np.column_stack([base, with_constant(surprisals)[:, 1:]])) < rank(base) + count:
        nothing = float("nan")
        return tuple(Slope(lag=lag, ms_per_bit=nothing, standard_error=nothing, t=nothing) for lag in range(count))
    fitted = _fit_design(times, design)
    found = zip(fitted.params[-count:], fitted.bse[-count:], fitted.tvalues[-count:], strict=True)
    return tuple(
        Slope(lag=lag, ms_per_bit=float(value), standard_error=float(error), t=float(t))
        for lag, (value, error, t) in enumerate(found)
    )


def compare_fits(times: Floats, fewer: Floats, more: Floats) -> NestedTest:
    """Test whether predictors ``more`` (N, Q) predict times (N,) better than ``fewer`` (N, P), which they span."""
    wide, narrow = fit(times, more), fit(times, fewer)
    if wide.df_resid == narrow.df_resid:  # what is added is a combination of what was there
        return NestedTest(f=0.0, p=1.0, num_added=0)
    f, p, num_added = wide.compare_f_test(narrow)
    return NestedTest(f=float(f), p=float(p), num_added=int(num_added))


def splines(surprisals: Floats, *, among: Bools | None = None) -> Floats:
    """Natural cubic splines of each column of surprisals (N, lags): (N, lags * SPLINE_DF).

    Knots are at the quantiles of the words ``among``, by default of all; beyond these, curves go on straight.
    """
    return np.column_stack([_spline(column, slice(None) if among is None else among) for column in surprisals.T])


def _spline(column: Floats, among: Bools | slice) -> Floats:
    import patsy

    formula = f"cr(x, df={SPLINE_DF}, constraints='center') - 1"
    own = patsy.dmatrix(formula, {"x": column[among]})
    (found,) = patsy.build_design_matrices([own.design_info], {"x": column})
    return np.asarray(found)


def with_constant(predictors: Floats, *, among: Bools | None = None) -> Floats:
    """A constant, and predictors (N, P) in standard units: (N, 1 + P).

    Mean and deviation are those of the words ``among``, by default of all; a predictor that does not vary there is 0.
    """
    own = predictors if among is None else predictors[among]
    mean, spread = own.mean(axis=0), own.std(axis=0)
    varies = spread > _NO_SPREAD * np.abs(own).max(axis=0, initial=0)
    scaled = np.where(varies, (predictors - mean) / np.where(varies, spread, 1), 0)
    return np.column_stack([np.ones(len(predictors)), scaled])


def fit(times: Floats, predictors: Floats) -> Any:
    """The fit of statsmodels to all words, with a constant and predictors in standard units."""
    return _fit_design(times, with_constant(predictors))


def _fit_design(times: Floats, design: Floats, **options: Any) -> Any:
    """Fit by least squares; where predictors depend on each other, the pseudoinverse gives the smallest solution."""
    from statsmodels.regression import linear_model

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The design matrix is rank-deficient")
        return linear_model.OLS(times, design).fit(**options)
