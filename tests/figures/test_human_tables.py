"""Tables of reading times and garden paths in a terminal of 80 cells: no figure of any model is cut off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from treelm.evaluation.human import sap
from treelm.evaluation.human.babylm import BabyLMScore
from treelm.evaluation.human.garden_paths import GardenPaths, measure_effects
from treelm.evaluation.human.reading import ModelResult, Over, ReadingResult, Spline
from treelm.evaluation.human.regression import Delta, NestedTest, Slope
from treelm.figures.human_tables import effect_tables, reading_tables, sweep_tables
from treelm.figures.tables import Printed, print_table

NAMES = [f"{number}-transformer-open-english-of-seed-{number}" for number in range(6)]


@pytest.fixture(autouse=True)
def _of_80_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def show(capsys: pytest.CaptureFixture[str], parts: Iterable[Printed], *, wide: bool = False) -> str:
    print_table(*parts, wide=wide)
    return capsys.readouterr().out


def effects(name: str, number: int) -> GardenPaths:
    """What GPT-2 has, by figures that no other number has."""
    found = measure_effects(sap.published(("agreement",))["gpt2"], ("agreement",))
    apart = [
        replace(one, bits=number + one.region / 10, correlation=-number / 100 - one.region / 10, lost_bits=(number, 7))
        for one in found.effects
    ]
    return replace(found, name=name, effects=tuple(apart))


@pytest.mark.parametrize("models", [1, 6])
def test_all_effects_of_all_models_are_in_80_cells(models: int, capsys: pytest.CaptureFixture[str]) -> None:
    results = [effects(name, number) for number, name in enumerate(NAMES[:models])]
    printed = show(capsys, effect_tables(results))
    assert "…" not in printed
    assert all(len(line) <= 80 for line in printed.splitlines())
    found = [one for result in results for one in result.effects]
    bits = {f"{one.bits:+.2f} ({one.standard_error:.2f})" for one in found}
    assert {one for one in bits if one not in printed} == set()
    assert {f"{one.correlation:+.2f}" for one in found} <= set(printed.split())
    assert printed.count("(9.1, 30.7)") == 1, "people have one column"
    wide = show(capsys, effect_tables(results), wide=True)
    assert "continued" not in wide
    (row,) = (line for line in wide.splitlines() if "(9.1, 30.7)" in line)
    assert row.count("(") == 1 + models


def test_all_sizes_of_a_sweep_are_in_80_cells(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {size: effects("run", size) for size in range(1, 12)}
    printed = show(capsys, sweep_tables({f"runs/{NAMES[0]}": sizes, "runs/other": sizes}))
    assert all(len(line) <= 80 for line in printed.splitlines())
    for size in sizes:
        assert printed.count(f"+{size}.10 (") == 2
        assert printed.count(f" {size}.00 / 7.00") == 6
    assert "runs/other: hard - easy, bits (standard error), continued" in printed


def delta(value: float) -> Delta:
    return Delta(
        nats_per_word=value / 1000,
        low=value / 1000 - 1,
        high=value / 1000 + 1,
        num_folds_above_zero=int(value),
        num_folds=99,
    )


def reading(names: list[str]) -> ReadingResult:
    """Every figure of a model begins with its number."""
    models = [
        ModelResult(
            name=name,
            kind="run",
            delta=delta(number),
            slopes=tuple(Slope(lag=lag, ms_per_bit=number + lag / 10, standard_error=1, t=number) for lag in range(5)),
            by_class={"noun": delta(10 + number), "verb": delta(20 + number)},
            spline=Spline(test=NestedTest(f=1, p=number / 1e6, num_added=1), delta=delta(30 + number)),
            mean_bits=number + 0.75,
            num_missing=4000 + number,
            num_unknown=5000 + number,
        )
        for number, name in enumerate(names, 1)
    ]
    over = [
        Over(
            model=one, other=names[0], delta=delta(40 + number), test=NestedTest(f=number, p=number / 1e7, num_added=3)
        )
        for number, one in enumerate(names)
    ]
    return ReadingResult(
        corpus="times",
        response="rt",
        baseline=("length", "freq"),
        controls=("position",),
        num_lags=4,
        fold_kind="documents",
        num_words=123,
        left_out={"without a word before": 9},
        constant_log_likelihood=-2,
        baseline_log_likelihood=-1,
        class_sizes={"noun": 80, "verb": 43},
        models=tuple(models),
        over=tuple(over),
        notes=("a note of the corpus that is longer than a line of the terminal is wide, and ends with this word",),
    )


def figures(result: ReadingResult) -> set[str]:
    found = set()
    for number, model in enumerate(result.models, 1):
        found |= {f"{number}.00", f"{10 + number}.00", f"{20 + number}.00", f"{30 + number}.00"}
        found |= {f"{slope.ms_per_bit:.2f} (+{number}.0)" for slope in model.slopes}
        found |= {f"{number}e-06", f"{number}.75", f"{4000 + number}", f"{5000 + number}", f"{number}/99"}
        found |= {f"{40 + number - 1}.00", f"{40 + number - 1}/99", f"{number - 1}.0"}
    return found


@pytest.mark.parametrize("models", [1, 6])
def test_all_figures_of_reading_times_are_in_80_cells(models: int, capsys: pytest.CaptureFixture[str]) -> None:
    result = reading(NAMES[:models])
    scores = [
        BabyLMScore(name=name, eye_tracking=60 + number, self_paced_reading=70 + number, num_words=(600, 700))
        for number, name in enumerate(NAMES[:models])
    ]
    expected = figures(result) | {f"{tens + number}.00" for tens in (60, 70) for number in range(models)}
    expected |= {f"{value - 1000:+.2f} to {value + 1000:+.2f}" for value in range(1, models + 1)}
    for wide in (False, True):
        printed = show(capsys, reading_tables(result, scores), wide=wide)
        assert wide or all(len(line) <= 80 for line in printed.splitlines())
        assert {one for one in (*expected, result.notes[0][:20]) if one not in printed} == set()
        assert ("continued" in printed) == (not wide)
