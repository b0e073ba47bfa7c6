"""What is said below a comparison: which rows must not be compared."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evaluation.comparison.test_metrics import FULL
from tests.legacy.make import HERE as LEGACY
from treelm.errors import InputError
from treelm.evaluation.comparison import measure
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.comparison.compare import compare, notes_on, row_names
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics, training_metrics
from treelm.evaluation.comparison.settings import Settings
from treelm.evaluation.report import GIVEN_TREES
from treelm.figures.report.page import report_page
from treelm.models.perplexity import Coverage
from treelm.training.config import TrainingConfig
from treelm.training.recipe import load_recipe

ONE = replace(FULL, name="one", vocabulary="v", text="t", notes=())


def notes(*rows: RunMetrics) -> str:
    return "\n".join(notes_on(rows))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocabulary": "x"}, "perplexities do not compare between groups of rows with other vocabularies (so other"),
        ({"text": "x"}, "perplexities do not compare between groups of rows with other texts: one | other"),
        ({"gold_trees": "dependencies"}, "F1 does not compare between rows with other gold trees: one | other"),
        ({"perplexities": (), "text": "x"}, "F1 does not compare between rows with other texts: one | other"),
        ({"data_identity": {"train": "x"}}, "trained on other data (words or trees): one | other"),
        ({"pairs": (replace(FULL.pairs[0], num_pairs=3),)}, "blimp.jsonl has other pairs in some rows, which do not"),
    ],
)
def test_rows_that_do_not_compare_are_named(changes: dict[str, Any], said: str) -> None:
    one = replace(ONE, data_identity={"train": "t"})
    assert said in notes(one, replace(one, name="other", **changes))
    for same in (replace(one, name="same"), replace(one, name="parser", perplexities=(), vocabulary="x")):
        assert said not in notes(one, same), "a parser's vocabulary changes no perplexity"


def test_bounds_of_a_beam_that_does_not_tell_what_has_converged_are_named() -> None:
    told = replace(ONE, name="told", coverage=Coverage(num_words=8, num_unknown=0, num_unconverged=0))
    assert "which words have converged, an adaptive one does: one\n" in f"{notes(ONE, told)}\n"
    assert "an adaptive one does" not in notes(told)
    assert "(--threshold 11 --action-beam 4000 --word-beam 400)" in notes(told)


def test_given_trees_are_one_note_that_names_the_rows() -> None:
    given = replace(ONE, name="given", needs_trees=True, notes=(GIVEN_TREES, "something else"))
    assert list(notes_on([ONE, given])).count(f"{GIVEN_TREES}: given") == 1
    assert notes(ONE, given).count("trees of the") == 1
    assert "something else" in notes(ONE, given)


def test_rows_are_named_by_as_many_folders_as_tell_them_apart(tmp_path: Path) -> None:
    runs = [tmp_path / "a" / "demo", tmp_path / "b" / "demo"]
    assert list(row_names(runs).values()) == ["a/demo", "b/demo"]
    assert list(row_names(runs[:1]).values()) == ["demo"]
    with pytest.raises(InputError, match="twice"):
        row_names([runs[0], tmp_path / "b" / ".." / "a" / "demo"])


def test_kept_figures_are_those_of_the_same_origin_and_damage_is_measured_again(tmp_path: Path) -> None:
    kept = MetricCache(tmp_path / "measured")
    kept.put("part", {"weights": "a"}, {"value": 1.5})
    assert MetricCache(tmp_path / "measured").get("part", {"weights": "a"}) == {"value": 1.5}
    assert kept.get("part", {"weights": "b"}) is None
    (file,) = (tmp_path / "measured").iterdir()
    file.write_text(file.read_text()[:-5])
    assert kept.get("part", {"weights": "a"}) is None


def test_a_run_and_what_was_kept_of_it_have_rows_of_two_names(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        Comparison(runs=(RunMetrics(name="demo", run="demo", system="rnng", num_parameters=1),)).save(
            tmp_path / folder / "comparison.json"
        )
    files = [tmp_path / folder / "comparison.json" for folder in ("one", "other")]
    found = compare(files, Settings(), lambda what, total: nullcontext(lambda: None))
    assert [row.name for row in found.runs] == ["demo", "demo (2)"]


def test_the_model_that_is_measured_is_named_and_figures_are_latex(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr("treelm.evaluation.comparison.compare.check_data", lambda *_: None)
    monkeypatch.setattr("treelm.evaluation.comparison.compare.doing", lambda what: nullcontext(told.append(what)))
    monkeypatch.setattr(
        "treelm.evaluation.comparison.compare.Measurement",
        lambda run, name, *_: SimpleNamespace(metrics=lambda: replace(ONE, name=name)),
    )
    found = compare([LEGACY / "lstm", LEGACY / "rnng"], Settings(), lambda what, total: nullcontext(lambda: None))
    assert told == ["measuring lstm", "measuring rnng"]
    assert ComparisonFrame.of(found).to_latex().startswith("% \\usepackage{booktabs}")


def test_two_files_of_pairs_with_one_name_are_refused_since_they_would_share_a_column() -> None:
    with pytest.raises(InputError, match=r"two files of pairs named x\.tsv"):
        compare([Path("run")], Settings(pairs=("a/x.tsv", "b/x.tsv")), lambda what, total: nullcontext(lambda: None))


def test_a_log_whose_last_line_was_not_written_to_its_end_is_read_up_to_it(tmp_path: Path) -> None:
    line = '{"kind": "dev", "step": 3, "epoch": 1, "elapsed_seconds": 2.5, "loss_nats_per_word": 5.0}'
    (tmp_path / "metrics.jsonl").write_text(f'{line}\n{{"kind": "dev", "st')
    seconds, _, points, _ = training_metrics(tmp_path, TrainingConfig(epochs=1))
    assert seconds == 2.5
    assert [point.step for point in points] == [3]


def test_a_loss_that_the_log_does_not_have_is_no_point_of_the_curve(tmp_path: Path) -> None:
    line = '{{"kind": "dev", "step": {}, "epoch": 1, "elapsed_seconds": 2.5, "loss_nats_per_word": {}}}\n'
    (tmp_path / "metrics.jsonl").write_text(line.format(1, "null") + line.format(2, 5.0))
    assert [point.step for point in training_metrics(tmp_path, TrainingConfig(epochs=1))[2]] == [2]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"epochs": 30, "max_minutes": 2}, "in epoch 4 of 30: max_minutes = 2.0 are over"),
        ({"epochs": 9, "max_cpu_minutes": 1}, "in epoch 4 of 9: max_cpu_minutes = 1.0 are over"),
        ({"epochs": 3, "max_minutes": 2}, ""),  # the time was over as the last epoch ended
        ({"epochs": 9, "max_minutes": 5}, ""),  # stopped for another reason
        ({"epochs": None, "max_minutes": 2}, ""),  # nothing else was asked for
    ],
)
def test_a_training_that_time_ended_before_its_last_epoch_is_told(
    limits: dict[str, Any], said: str, tmp_path: Path
) -> None:
    times = '"elapsed_seconds": 120.5, "cpu_seconds": 90.0'
    (tmp_path / "metrics.jsonl").write_text(
        f'{{"kind": "dev", "step": 7, "epoch": 3, {times}, "loss_nats_per_word": 5.0}}\n'
    )
    *_, notes = training_metrics(tmp_path, TrainingConfig(**limits))
    assert notes == ((f"training stopped early, {said}",) if said else ())


def test_models_after_a_few_steps_are_named_before_all_else() -> None:
    def curve(step: int, seconds: float) -> tuple[LossPoint, ...]:
        return (LossPoint(kind="train", step=step, epoch=1, seconds=seconds, loss_nats_per_word=9.0),)

    quick = replace(ONE, name="quick", loss_curve=curve(3, 6.2))
    long, fast = replace(ONE, name="long", loss_curve=curve(400, 600.0)), replace(ONE, loss_curve=curve(5000, 10.0))
    first = next(notes_on([long, quick, fast]))
    assert first == "hardly trained: figures show that everything works and mean nothing else: quick (3 steps in 6 s)"
    assert not any("hardly" in note for note in notes_on([long, fast, ONE]))
    small, counted = replace(ONE, loss_curve=curve(570, 30.0)), replace(ONE, loss_curve=curve(0, 0.5))
    assert not any("hardly" in note for note in notes_on([small, counted]))  # such as those of the whole demo
    page = report_page(Comparison(runs=(quick,)))
    assert "Take care: hardly trained" in page
    assert "Take care" not in report_page(Comparison(runs=(long,)))


def test_rows_share_a_recipe_if_they_differ_by_their_seed_alone() -> None:
    recipe = load_recipe("demo")
    hashes = [
        measure._recipe_hash(one)
        for one in (
            recipe,
            load_recipe("demo", ["training.seed=7", "evaluation.max_sentences=3"]),
            load_recipe("demo", ["training.seed=7", "model.hidden_size=8"]),
            load_recipe("lstm-small"),
        )
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
