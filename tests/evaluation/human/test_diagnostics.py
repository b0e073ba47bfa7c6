import numpy as np
import pytest

from tests.evaluation.human.worlds import made_up
from treelm.evaluation.human.diagnostics import NUM_BINS, diagnose
from treelm.evaluation.human.reading import Design, Regression
from treelm.figures.report.residuals import residuals_page


def world(curve: float) -> Regression:
    corpus = made_up(curve=curve)
    return Regression(corpus, Design(), [corpus.published["true"]])


def test_bins_part_the_words_and_the_means_rise_with_the_slope() -> None:
    found = diagnose(world(0.0), "true")
    for bins, slope in zip(found.by_surprisal, (4, 2), strict=True):
        assert sum(one.num_words for one in bins) == len(world(0.0).times)
        assert len(bins) == NUM_BINS
        line = np.polyfit([one.centre for one in bins], [one.mean for one in bins], 1)
        assert line[0] == pytest.approx(slope, abs=0.3)
        assert all(one.low < one.mean < one.high for one in bins)


def test_a_bend_that_the_line_misses_is_seen() -> None:
    def bend(curve: float) -> float:
        bins = diagnose(world(curve), "true").by_surprisal[0]
        return float(np.polyfit([one.centre for one in bins], [one.mean for one in bins], 2)[0])

    assert bend(0.0) == pytest.approx(0, abs=0.1)
    assert bend(0.6) == pytest.approx(0.6, abs=0.1)


def test_residuals_of_gaussian_noise() -> None:
    found = diagnose(world(0.0), "true")
    mean = sum(one.mean * one.num_words for one in found.by_fitted) / len(world(0.0).times)
    assert mean == pytest.approx(0, abs=1e-9)
    assert all(own == pytest.approx(normal, abs=0.25) for normal, own in found.quantiles)
    assert all(one.low < 0 < one.high for one in found.by_fitted)


def test_the_page_has_three_pictures_for_each_model() -> None:
    corpus = made_up()
    regression = Regression(corpus, Design(), list(corpus.published.values()))
    page = residuals_page([diagnose(regression, name) for name in corpus.published], title="Residuals", unit="ms")
    assert page.count("<section") == 2
    assert page.count("<svg") == 2 * 3 * 2 + 2 * 2  # wide and narrow, and the swatches of two lags
    assert "noise: times by surprisal" in page
