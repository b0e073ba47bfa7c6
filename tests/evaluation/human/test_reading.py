import sys

import numpy as np
import pytest

from tests.evaluation.human.worlds import made_up, surprisals
from treelm.errors import InputError
from treelm.evaluation.human import regression
from treelm.evaluation.human.reading import Design, Regression, measure_reading


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
    world = Regression(made_up(), Design(), [made_up().published["true"]])
    predictors = np.column_stack([world.base, world.bits("true")])
    fast = regression.held_out_log_likelihood(world.times, predictors, world.folds)
    np.testing.assert_allclose(fast, plain_likelihood(world.times, predictors, world.folds), atol=1e-9)


def test_delta_is_the_gain_over_the_baseline_and_its_interval_is_clustered_by_story() -> None:
    corpus = made_up()
    world = Regression(corpus, Design(), [corpus.published["true"]])
    gains = plain_likelihood(world.times, np.column_stack([world.base, world.bits("true")]), world.folds)
    gains -= plain_likelihood(world.times, world.base, world.folds)
    found = measure_reading(corpus, [corpus.published["true"]]).find("true").delta
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
    result = measure_reading(corpus, [corpus.published["true"], corpus.published["noise"]])
    here, before = result.find("true").slopes
    assert (here.ms_per_bit, before.ms_per_bit) == (pytest.approx(4, abs=0.3), pytest.approx(2, abs=0.3))
    assert all(abs(slope.t) < 4 for slope in result.find("noise").slopes)
    assert result.find("true").delta.low > 0 > result.find("noise").delta.nats_per_word


@pytest.mark.parametrize(("curve", "is_linear"), [(0.0, True), (0.6, False)])
def test_splines_tell_whether_the_effect_is_linear(curve: float, is_linear: bool) -> None:
    corpus = made_up(curve=curve)
    spline = measure_reading(corpus, [corpus.published["true"]]).find("true").spline
    assert (spline.test.p > 1e-3) is is_linear
    assert (spline.delta.low <= 0) is is_linear
    assert spline.test.num_added == 2 * (regression.SPLINE_DF - 1)


def test_the_span_of_splines_holds_the_line() -> None:
    bits = np.random.default_rng(1).gamma(3.0, 2.0, (200, 2))
    design = np.column_stack([np.ones(200), regression.splines(bits)])
    left = bits - design @ np.linalg.lstsq(design, bits, rcond=None)[0]
    assert abs(left).max() < 1e-9


def test_a_model_adds_nothing_to_itself_and_the_truth_adds_to_noise() -> None:
    corpus = made_up()
    true, noise = corpus.published["true"], corpus.published["noise"]
    twin = surprisals("twin", true.bits * 2)
    result = measure_reading(corpus, [true, noise, twin], over=("true",))
    gains = {(one.model, one.other): one for one in result.over}
    assert set(gains) == {("true", "noise"), ("noise", "true"), ("true", "twin"), ("twin", "true")}
    assert gains["true", "noise"].delta.low > 0
    assert gains["true", "noise"].test.p < 1e-6 < gains["noise", "true"].test.p
    assert abs(gains["twin", "true"].delta.nats_per_word) < 1e-9


def test_classes_part_the_words_and_their_gains() -> None:
    corpus = made_up()
    result = measure_reading(corpus, [corpus.published["true"]])
    model = result.find("true")
    assert sum(result.class_sizes.values()) == result.num_words
    weighted = sum(result.class_sizes[name] * delta.nats_per_word for name, delta in model.by_class.items())
    assert weighted / result.num_words == pytest.approx(model.delta.nats_per_word)


def test_words_that_one_model_lacks_are_left_out_for_all_and_counted() -> None:
    corpus = made_up()
    bits = corpus.published["noise"].bits.copy()
    bits[50], bits[300] = np.nan, np.inf
    models = [corpus.published["true"], surprisals("lacking", bits, unknown=(10, 11))]
    result = measure_reading(corpus, models)
    first = "no reading time, or a doubtful one"  # the first words of stories, by the word before
    assert result.left_out == {first: 6, "no surprisal of lacking, here or at a lag": 4}  # with the words after them
    assert result.num_words == len(corpus) - 10
    assert (result.find("lacking").num_missing, result.find("lacking").num_unknown) == (2, 2)
    known = measure_reading(corpus, models, Design(known_only=True))
    assert known.left_out["unknown to lacking, here or at a lag"] == 3
    alone = measure_reading(corpus, [models[0]])
    assert alone.num_words == len(corpus) - 6


@pytest.mark.parametrize(
    ("design", "found"),
    [
        (Design(response="eyes"), "no response 'eyes'"),
        (Design(baseline=("age",)), "no predictor 'age'"),
        (Design(only=("inner",)), "no filter 'inner'"),
        (Design(num_lags=-1), "lags = -1"),
        (Design(num_lags=119), "6 words in 6 stories to compare"),
    ],
)
def test_designs_that_cannot_be_are_refused(design: Design, found: str) -> None:
    corpus = made_up()
    with pytest.raises(InputError, match=found):
        measure_reading(corpus, [corpus.published["true"]], design)


def test_two_models_of_one_name_and_an_unknown_other_are_refused() -> None:
    corpus = made_up()
    true = corpus.published["true"]
    with pytest.raises(InputError, match="two models named true"):
        measure_reading(corpus, [true, true])
    with pytest.raises(InputError, match="no model 'false'"):
        measure_reading(corpus, [true], over=("false",))
    with pytest.raises(InputError, match="hardly vary"):
        measure_reading(corpus, [surprisals("flat", np.ones(len(corpus)))])


def test_without_the_library_the_remedy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    monkeypatch.setitem(sys.modules, "statsmodels.regression", None)
    with pytest.raises(InputError, match="statsmodels") as error:
        regression.require_library()
    assert "treelm[reading]" in str(error.value)
