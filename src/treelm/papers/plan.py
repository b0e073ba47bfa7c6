"""Which runs and measures the tables of a paper need, in the paper's setting or in a stand-in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from treelm.configs import to_plain
from treelm.io.json import json_hash
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Column, Row, StandIn, Table, measured, recipe_of
from treelm.papers.metrics import KINDS, Measure, Picture, Training
from treelm.training.recipe import Recipe, load_recipe

_FIXED = ("training.threads=1",)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training (or drawing of a network), named by all that it follows from: tables that need it share it."""

    name: str
    recipe: str
    settings: tuple[str, ...]
    data: str
    seed: int
    untrained: bool = False
    start: Run | None = None
    """The run from whose best weights it goes on, if it is a finetuning."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run, or data alone, with what is measured of it."""

    name: str
    run: Run | None
    data: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value to be had: from which jobs, and why from none."""

    column: Column
    measure: Measure
    metric: str
    jobs: tuple[str, ...] = ()
    baseline: str = ""
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedRow:
    """A row with its label and its cells."""

    row: Row
    label: str
    cells: tuple[Cell, ...] = ()
    jobs: tuple[Job, ...] = ()
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """A table with its rows."""

    table: Table
    rows: tuple[PlannedRow, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All tables, and the jobs that they share, in the order in which they are done."""

    tables: tuple[PlannedTable, ...]
    jobs: dict[str, Job]


def make_plan(tables: Sequence[Table], root: DataRoot, *, small: bool, seeds: int | None) -> Plan:
    """Plan all tables. Jobs on data alone come first, then the first seed of every run, then the second: whenever time
    is up, the rows have about as many seeds each. A finetuning comes after the run that it goes on from.
    """
    planned: list[PlannedTable] = []
    jobs: dict[str, Job] = {}
    for table in tables:
        stand_in = _stand_in(table, root) if small else None
        rows = []
        for row in table.rows:
            rows.append(_plan_row(table, row, stand_in, root, seeds, small=small))
            for job in rows[-1].jobs:
                known = jobs.get(job.name, replace(job, measures=()))
                jobs[job.name] = replace(job, measures=tuple(dict.fromkeys((*known.measures, *job.measures))))
        planned.append(PlannedTable(table=table, rows=tuple(rows)))

    def turn(job: Job) -> tuple[int, bool]:
        return (0, False) if job.run is None else (job.run.seed, job.run.start is not None)

    ordered = sorted(jobs.values(), key=turn)
    return Plan(tables=tuple(planned), jobs={job.name: job for job in ordered})


def _stand_in(table: Table, root: DataRoot) -> StandIn | None:
    """The first stand-in whose data are at hand, else the last."""
    for stand_in in table.stand_ins:
        measures = [one for row in table.rows if not row.absent for _, one, _ in measured(table, row, stand_in)]
        if all(root.find(name) for name in {stand_in.data, *(name for one in measures for name in one.data_names())}):
            return stand_in
    return table.stand_ins[-1] if table.stand_ins else None


def _plan_row(
    table: Table, row: Row, stand_in: StandIn | None, root: DataRoot, seeds: int | None, *, small: bool
) -> PlannedRow:
    if row.absent:
        return PlannedRow(row=row, label="", missing=row.absent)
    if small and stand_in is None:
        return PlannedRow(row=row, label="stand-in", missing="no stand-in is declared")
    data = stand_in.data if stand_in else row.data or table.data
    label = f"stand-in: {stand_in.label}" if stand_in else "the paper's setting"
    if row.baseline:
        cells = tuple(_cells(table, row, stand_in, data, root, None))
        jobs = tuple(_data_job(cell.measure, data) for cell in cells if not cell.missing)
        return PlannedRow(row=row, label=label, cells=cells, jobs=jobs)
    if root.find(data) is None:
        return PlannedRow(row=row, label=label, missing=_needs(data, root))
    number = seeds or row.seeds or (stand_in.seeds if stand_in else table.seeds)
    runs = tuple(_runs(table, row, stand_in, data, root, number))
    cells = tuple(_cells(table, row, stand_in, data, root, [run.name for run in runs]))
    label += f", {len(runs)} seed{'s' * (len(runs) != 1)}"
    return PlannedRow(row=row, label=label, cells=cells, jobs=tuple(_run_jobs(table, runs, cells)))


def _needs(data: str, root: DataRoot) -> str:
    return f"needs {root.sets[data].describe()}"


def _runs(table: Table, row: Row, stand_in: StandIn | None, data: str, root: DataRoot, number: int) -> Iterator[Run]:
    name, settings = recipe_of(table, row, stand_in)
    estimated = load_recipe(name, settings).model.is_estimated
    for seed in range(1, 2 if estimated else number + 1):
        given = (*settings, *root.settings(data))
        given = given if estimated else (*given, *_FIXED, f"training.seed={seed}")
        run = Run(name="", recipe=name, settings=given, data=data, seed=seed, untrained=row.untrained)
        run = replace(run, name=_name_of(run, "-drawn" if row.untrained else ""))
        if row.finetuning and stand_in is None:
            run = replace(run, settings=(*given, *row.finetuning), start=run)
            run = replace(run, name=_name_of(run, "-finetuned"))
        yield run


def _name_of(run: Run, kind: str) -> str:
    follows_from: list[Any] = [_described(load_recipe(run.recipe, run.settings)), run.data, run.untrained]
    follows_from += [run.start.name] if run.start is not None else []
    return f"{Path(run.recipe).stem}{kind}-{json_hash(follows_from)[:10]}-{run.seed}"


def _described(recipe: Recipe) -> dict[str, Any]:
    """All of a recipe that its training follows from, but for where its data lie."""
    plain = {section: to_plain(getattr(recipe, section)) for section in ("data", "vocabulary", "batches", "training")}
    for name in ("corpus", "train", "dev", "test"):
        plain["data"].pop(name)
    model = {"system": recipe.model.system, "margin": recipe.model.bounds_margin, **to_plain(recipe.model.config)}
    return {**plain, "model": model}


def _cells(
    table: Table, row: Row, stand_in: StandIn | None, data: str, root: DataRoot, runs: Sequence[str] | None
) -> Iterator[Cell]:
    """The cells of a row with these runs, or of a baseline."""
    for column, measure, metric in measured(table, row, stand_in):
        needed = measure.data_names() or ((data,) if runs is None else ())
        missing = next((name for name in needed if root.find(name) is None), None)
        jobs = (_data_job(measure, data).name,) if runs is None else tuple(runs)
        yield Cell(
            column=column,
            measure=measure,
            metric=metric,
            jobs=() if missing else jobs,
            baseline=row.baseline,
            missing=_needs(missing, root) if missing else "",
        )


def _data_job(measure: Measure, own: str) -> Job:
    """The job of a measure on the data that it names, else on those that runs beside it are trained on."""
    data = next(iter(measure.data_names()), own)
    return Job(name=f"trees-{json_hash([describe(measure), data])[:10]}", run=None, data=data, measures=(measure,))


def _run_jobs(table: Table, runs: Sequence[Run], cells: Sequence[Cell]) -> Iterator[Job]:
    """Each run with all that is measured of it, and before it the one that it goes on from; the first also draws the
    picture, if the table is one.
    """
    for run in runs:
        if run.start is not None:
            yield Job(name=run.start.name, run=run.start, data=run.data, measures=(Training(),))
        log = () if run.untrained else (Training(),)
        drawn = (Picture(sentence=table.sentence),) if table.drawing == "picture" and run.seed == 1 else ()
        at_hand = tuple(dict.fromkeys(cell.measure for cell in cells if not cell.missing))
        yield Job(name=run.name, run=run, data=run.data, measures=(*log, *at_hand, *drawn))


def describe(measure: Measure) -> dict[str, Any]:
    """A measure as plain values."""
    kind = next(name for name, kind in KINDS.items() if type(measure) is kind)
    return {"kind": kind, **to_plain(measure)}
