from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation.human.worlds import made_up, surprisals
from treelm.evaluation.human import regression
from treelm.evaluation.human.columns import Design
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.reading import ModelResult, ReadingResult, Regression


def of(result: ReadingResult, name: str) -> ModelResult:
    """The result of a model by its name."""
    return next(model for model in result.models if model.name == name)


def plain_likelihood(times: np.ndarray, predictors: np.ndarray, folds: list[str]) -> np.ndarray:
    """The same by the normal equations, fold by fold and word by word."""
    design = np.column_stack([np.ones(len(times)), predictors])
    found = np.empty(len(times))
    for fold in set(folds):
        train = [row for row, own in enumerate(folds) if own != fold]
        weights = np.linalg.solve(design[train].T @ design[train], design[train].T @ times[train])
        variance = np.mean((times[train] - design[train] @ weights) ** 2)
        for row, own in enumerate(folds):
            if own == fold:
                error = times[row] - design[row] @ weights
                found[row] = -0.5 * np.log(2 * np.pi * variance) - error**2 / (2 * variance)
    return found


def test_held_out_likelihood_is_that_of_the_normal_equations() -> None:
    world = Regression(made_up(), [made_up().published["true"]])
    predictors = np.column_stack([world.base, world.bits("true")])
    fast = regression.held_out_log_likelihood(world.times, predictors, world.folds)
    np.testing.assert_allclose(fast, plain_likelihood(world.times, predictors, world.folds), atol=1e-9)


def test_delta_and_clustered_interval() -> None:
    corpus = made_up()
    world = Regression(corpus, [corpus.published["true"]])
    gains = plain_likelihood(world.times, np.column_stack([world.base, world.bits("true")]), world.folds)
    gains -= plain_likelihood(world.times, world.base, world.folds)
    found = Regression(corpus, [corpus.published["true"]]).measure().models[0].delta
    assert found.nats_per_word == pytest.approx(gains.mean(), abs=1e-9)
    assert found.num_folds_above_zero == found.num_folds == 6
    sums = [
        sum(gain - gains.mean() for gain, own in zip(gains, world.folds, strict=True) if own == fold)
        for fold in "012345"
    ]
    size = len(gains)
    error = np.sqrt(np.sum(np.square(sums)) * 6 / 5 * (size - 1) / (size - 1)) / size
    t_of_five = 2.570581835636
    assert (found.high - found.low) / 2 == pytest.approx(t_of_five * error, rel=1e-9)


def test_slopes_are_the_milliseconds_that_a_bit_was_given() -> None:
    corpus = made_up()
    result = Regression(corpus, [corpus.published["true"], corpus.published["noise"]]).measure()
    here, before = of(result, "true").slopes
    assert (here.ms_per_bit, before.ms_per_bit) == (pytest.approx(4, abs=0.3), pytest.approx(2, abs=0.3))
    assert all(abs(slope.t) < 4 for slope in of(result, "noise").slopes)
    assert of(result, "true").delta.low > 0 > of(result, "noise").delta.nats_per_word


@pytest.mark.parametrize(("curve", "is_linear"), [(0.0, True), (0.6, False)])
def test_splines_tell_whether_the_effect_is_linear(curve: float, is_linear: bool) -> None:
    corpus = made_up(curve=curve)
    spline = Regression(corpus, [corpus.published["true"]]).measure().models[0].spline
    assert (spline.test.p > 1e-3) is is_linear
    assert (spline.delta.low <= 0) is is_linear
    assert spline.test.num_added == 2 * (regression.SPLINE_DF - 1)


def test_gain_over_another_model() -> None:
    corpus = made_up()
    true, noise = corpus.published["true"], corpus.published["noise"]
    twin = surprisals("twin", true.bits * 2)
    result = Regression(corpus, [true, noise, twin]).measure(over=("true",))
    gains = {(one.model, one.other): one for one in result.over}
    assert set(gains) == {("true", "noise"), ("noise", "true"), ("true", "twin"), ("twin", "true")}
    assert gains["true", "noise"].delta.low > 0
    assert gains["true", "noise"].test.p < 1e-6 < gains["noise", "true"].test.p
    assert abs(gains["twin", "true"].delta.nats_per_word) < 1e-9


def test_missing_surprisals_exclude_words_for_all() -> None:
    corpus = made_up()
    bits = corpus.published["noise"].bits.copy()
    bits[50], bits[300] = np.nan, np.inf
    models = [corpus.published["true"], surprisals("lacking", bits, unknown=(10, 11))]
    result = Regression(corpus, models).measure()
    first = "no reading time, or a doubtful one"  # the first words of stories
    assert result.left_out == {first: 6, "no surprisal of lacking, here or at a lag": 4}  # with the words after them
    assert result.num_words == len(corpus) - 10
    assert (of(result, "lacking").num_missing, of(result, "lacking").num_unknown) == (2, 2)
    known = Regression(corpus, models, Design(known_only=True)).measure()
    assert known.left_out["unknown to lacking, here or at a lag"] == 3
    alone = Regression(corpus, [models[0]]).measure()
    assert alone.num_words == len(corpus) - 6


def with_columns(corpus: ReadingCorpus, **controls: np.ndarray) -> ReadingCorpus:
    return replace(corpus, controls={**corpus.controls, **controls})


def test_predictor_constant_in_other_folds() -> None:
    """Where the others have nothing of it, its coefficient is nobody's: it must not spoil what is left out."""
    corpus = made_up()
    plain = Regression(corpus, [corpus.published["true"]]).measure()
    in_one = np.array([story == "2" for story in corpus.documents]) * 1.0
    one_word = np.arange(len(corpus)) == 300.0
    for control in (in_one, one_word.astype(float), np.full(len(corpus), 330.1)):
        found = Regression(with_columns(corpus, genre=control), [corpus.published["true"]]).measure()
        assert found.baseline_log_likelihood == pytest.approx(plain.baseline_log_likelihood, abs=0.02)
        assert of(found, "true").delta.nats_per_word == pytest.approx(of(plain, "true").delta.nats_per_word, abs=0.02)


def test_knots_are_those_of_the_words_that_are_not_left_out() -> None:
    corpus = made_up()
    bits = corpus.published["true"].bits.copy()
    bits[100] = 60.0
    world = Regression(corpus, [surprisals("outlier", bits)], Design(lags=0))
    fast = world.likelihood(curved=world.bits("outlier"))
    train = np.array(world.folds) != "0"
    curves = regression.splines(world.bits("outlier"), among=train)
    design = np.column_stack([np.ones(len(train)), world.base, curves])
    weights = np.linalg.lstsq(design[train], world.times[train], rcond=None)[0]
    left = world.times - design @ weights
    variance = np.mean(left[train] ** 2)
    plain = -0.5 * np.log(2 * np.pi * variance) - left**2 / (2 * variance)
    np.testing.assert_allclose(fast[~train], plain[~train], atol=1e-8)
