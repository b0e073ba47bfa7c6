"""What a shipped table shows is what its measures give: tried with models of the package, on a few sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.shipped import need
from treelm.models.persistence.shipped import shipped_folder
from treelm.papers.data import DataRoot, data_sets
from treelm.papers.declaration import load_paper, paper_folder, paper_names, recipe_of
from treelm.papers.measures import (
    Depth,
    Evaluate,
    Measure,
    SearchSpeed,
    Splits,
    Structure,
    Subject,
    SyntaxGym,
    TrainingSpeed,
)
from treelm.papers.plan import make_plan
from treelm.training.recipe import load_recipe

FEW = 4
NOT_SHIPPED = {  # their kept runs of old versions serve
    "transformer": "transformer-treereg",
    "transformer-grammar": "transformer-grammar",
    "pushdown": "pushdown",
}
KEPT = Path(__file__).parents[1] / "legacy"


def tried() -> list[Any]:
    """The measures of each system's rows, and of data alone, with the metrics that are shown of them."""
    found: dict[tuple[str, Measure, bool], set[str]] = {}
    for paper in paper_names():
        folder = paper_folder(paper)
        root = DataRoot(None, data_sets(folder))
        tables = load_paper(folder, root.sets)
        for table, planned in zip(tables, make_plan(tables, root, small=True, seeds=1).tables, strict=True):
            for row in planned.rows:
                is_usual = row.row.recipe and not any(one.startswith("model.") for one in row.row.settings)
                recipe = recipe_of(table, row.row, table.stand_ins[-1])
                system = load_recipe(*recipe).model.system if is_usual else ""
                for cell in row.cells:
                    small = _small(cell.measure)
                    if small is not None and not cell.missing and (system or cell.baseline):
                        found.setdefault((system, small, bool(cell.baseline)), set()).add(cell.metric)
    return [pytest.param(*key, metrics, id=f"{key[0]}-{number}") for number, (key, metrics) in enumerate(found.items())]


def _small(measure: Measure) -> Measure | None:
    """The measure on a few sentences; None of those that take long, or are of the log of training."""
    match measure:
        case Evaluate():
            widths = {"action_beam": 4, "word_beam": 2, "fast_track": 1}
            return replace(measure, max_sentences=FEW, stream_rows=1, **widths)
        case Splits():
            return replace(
                measure, max_sentences=FEW, seeds=2, settings=("model.hidden_size=8", "model.embedding_size=8")
            )
        case SearchSpeed():
            return replace(measure, action_beam=4, word_beam=2, fast_track=1, sentences_at_once=1)
        case Depth():
            return replace(measure, max_sentences=FEW)
        case _:
            kinds = SyntaxGym | TrainingSpeed | Structure  # the last: test_learned.py
            assert isinstance(measure, kinds) or type(measure).__name__ == "Training"
            return None


@pytest.mark.parametrize(("system", "measure", "is_baseline", "metrics"), tried())
def test_the_metrics_of_shipped_tables_are_measured(
    system: str, measure: Measure, is_baseline: bool, metrics: set[str]
) -> None:
    root = DataRoot(None, data_sets(Path()))
    if is_baseline:
        found = measure.of_data(root, "gum-open").baselines
        assert metrics <= {metric for values in found.values() for metric in values}
        assert set(found) <= set(measure.baselines())
        return
    if system in NOT_SHIPPED:
        run = KEPT / NOT_SHIPPED[system]
    else:
        need(f"{system}-gum-open")
        run = shipped_folder(f"{system}-gum-open")
    subject = Subject(run, root, "gum-open")
    beside = set(subject.run.parent.iterdir())
    values = measure.of_run(subject).values
    assert set(subject.run.parent.iterdir()) == beside  # the folder of a shipped model is not ours to write in
    assert metrics - set(values) <= {"bits_per_character_with_end, in a stream"}  # its model is of words
    assert set(values) <= set(measure.metrics())
