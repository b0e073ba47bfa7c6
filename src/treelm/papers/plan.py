"""Which runs and measures the tables of a paper need, in the paper's setting or in a stand-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from treelm.configs import to_plain
from treelm.corpora.catalog import SPLITS
from treelm.evaluation.intervals import interval
from treelm.io.json import json_hash
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Column, Number, Row, StandIn, Table, split_arguments
from treelm.papers.metrics import Measure, Setting, Training, describe
from treelm.training.recipe import Recipe, load_recipe

PAPER, RECIPE = "the paper's setting", "the recipe"


@dataclass(kw_only=True)
class Job:
    """A run that is trained or drawn, or data alone, with what is measured of it.

    Its name follows from all that determines it, so that tables that need the same run share it.
    """

    name: str
    data: str
    recipe: str = ""  # nothing for data alone
    settings: tuple[str, ...] = ()
    seed: int = 0
    untrained: bool = False
    start: str = ""  # the job from whose best weights it goes on, if it is a finetuning
    measures: list[Measure] = field(default_factory=list)

    def add(self, measure: Measure) -> None:
        """Add a measure, unless the job has it already."""
        if measure not in self.measures:
            self.measures.append(measure)


class Sample(dict[int, float]):
    """Values by seed, or by draw."""

    @property
    def mean(self) -> float:
        """Mean over seeds, of which there is one at least."""
        return fmean(self.values())

    @property
    def interval(self) -> float | None:
        """Half the width of the confidence interval of the mean; None of fewer than two."""
        return interval([*self.values()])

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds; None of fewer than two."""
        return stdev(self.values()) if len(self) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table: the jobs that its value comes from, or why there is none.

    ``results.gather`` adds what is known of the value.
    """

    row: Row
    column: Column
    label: str
    measure: Measure | None = None
    metric: str = ""
    jobs: Sequence[Job] = ()
    given: float | None = None  # the value, where it is known without a run
    missing: str = ""  # why there is nothing of ours, or not of all seeds
    lacks: Sequence[str] = ()  # names of the data that are missing for it
    recipe: str = ""  # the command that trains its runs, without data and seed
    ours: Sample = field(default_factory=Sample)
    printed: str = ""  # as the paper has it, or another source (``is_elsewhere``)
    is_elsewhere: bool = False
    kept: str = ""  # what an earlier run gave, from the repository

    @property
    def number(self) -> Number | None:
        """The printed value as a number."""
        return Number.parse(self.printed)

    @property
    def difference(self) -> float | None:
        """Ours less the printed value."""
        return self.ours.mean - self.number.value if self.ours and self.number else None


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """What an earlier run of a table gave: values as they are shown, one for each column in order, by row."""

    setting: str
    rows: dict[str, str]
    made: str = ""  # when, and on which machine
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """A table with its cells, at least one of each row.

    ``results.gather`` adds kept values, seconds of training and notes.
    """

    table: Table
    cells: Sequence[Cell]
    runs: Mapping[str, Sequence[Job]]  # those of each row, with the runs that they go on from
    kept: KeptTable | None = None
    seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean seconds of training a run, of the processor and of the clock, by row."""
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All tables, and the jobs that they share, in the order in which they are done."""

    tables: Sequence[PlannedTable]
    jobs: dict[str, Job]

    @property
    def lacks(self) -> dict[str, list[str]]:
        """The data that are missing, with the tables that need them."""
        found: dict[str, dict[str, None]] = {}
        for planned in self.tables:
            for name in (name for cell in planned.cells for name in cell.lacks):
                found.setdefault(name, {})[planned.table.name] = None
        return {name: [*tables] for name, tables in found.items()}


def make_plan(tables: Sequence[Table], root: DataRoot, *, small: bool, seeds: int | None) -> Plan:
    """Plan the jobs of all tables, in the papers' settings or, if ``small``, in stand-ins.

    Jobs on data alone come first, then the first seed of every run, then the second: whenever time is up, all rows have
    about the same number of seeds. A finetuning comes after the run that it continues. ``seeds`` is the number of
    seeds of every row; without it, the declared one.
    """
    planner = _Planner(root, small=small, seeds=seeds)
    planned = [planner.plan(table) for table in tables]
    ordered = sorted(planner.jobs.values(), key=lambda job: (job.seed, bool(job.start)))
    return Plan(tables=planned, jobs={job.name: job for job in ordered})


class _Planner:
    """Plans one table after the other, and gathers the jobs that they share."""

    def __init__(self, root: DataRoot, *, small: bool, seeds: int | None) -> None:
        self.root, self.small, self.seeds = root, small, seeds
        self.recipe = cache(load_recipe)  # many cells are of one
        self.jobs: dict[str, Job] = {}
        self.runs: dict[tuple[object, ...], list[Job]] = {}

    def plan(self, table: Table) -> PlannedTable:
        stand_in = self._stand_in(table) if self.small else None
        runs: dict[str, list[Job]] = {}
        cells = [cell for row in table.rows for cell in self._cells(table, stand_in, row, runs)]
        return PlannedTable(table=table, cells=cells, runs=runs)

    def _stand_in(self, table: Table) -> StandIn | None:
        """The first stand-in whose data are available, else the last."""
        for stand_in in table.stand_ins:
            measures = (measure for row in table.rows for _, measure, _ in table.measured(row, stand_in))
            if not self.root.missing(stand_in.data, *(measure.own_data for measure in measures)):
                return stand_in
        return table.stand_ins[-1] if table.stand_ins else None

    def _cells(self, table: Table, stand_in: StandIn | None, row: Row, runs: dict[str, list[Job]]) -> Iterator[Cell]:
        """Yield the cells of a row that are measured or have a printed value, at least one, and add to ``runs``."""
        measured = {column.name: (measure, metric) for column, measure, metric in table.measured(row, stand_in)}
        known = {*measured, *table.printed(row), *table.texts(row.elsewhere)}
        shown = [one for one in table.columns if one.name in known or (row.train and not one.metric)]
        for column in shown or table.columns[:1]:
            measure, metric = measured.get(column.name, (None, ""))
            cell = Cell(row=row, column=column, label=PAPER, measure=measure, metric=metric)
            data = stand_in.data if stand_in else column.data or row.data or table.data
            if row.absent:
                yield replace(cell, label="", missing=row.absent)
            elif measure is not None and isinstance(measure, Setting):
                recipe = self.recipe(*table.train(row, None, column))
                command = table.command(row, None, column)
                yield replace(cell, label=RECIPE, given=measure.of_recipe(recipe, metric), recipe=command)
            elif self.small and stand_in is None:
                yield replace(cell, label="stand-in", missing="no stand-in is declared")
            else:
                label = f"stand-in: {stand_in.label}" if stand_in else PAPER
                found, own = list[Job](), measure.own_data if measure else ""
                lacks = self.root.missing(data if row.train or (measure and not own) else "", own)
                is_run = bool(column.metric)  # other columns have printed and kept values alone
                command = table.command(row, stand_in, column) if is_run or "{column}" not in row.train else ""
                if row.train and is_run and not lacks:
                    file = self.recipe(*table.train(row, stand_in, column)).vocabulary.file
                    if file and not Path(file).exists():  # before hours of training that need it later
                        missing = f"needs the file or folder {file} of its recipe's vocabulary.file"
                        yield replace(cell, label=label, missing=missing, recipe=command)
                        continue
                    made = self._runs(table, row, column, stand_in, data)
                    runs.setdefault(row.name, []).extend(job for job in made if job not in runs.get(row.name, ()))
                    found = [job for job in made if not row.finetune or stand_in or job.start]
                    number = len({job.seed for job in made})
                    label += f", {number} seed{'s' * (number != 1)}"
                elif measure and is_run and not lacks:
                    found = [self._of_data(measure, own or data)]
                if measure:
                    for job in found:
                        job.add(measure)
                missing = f"needs {', '.join(lacks)}" if lacks else ""
                yield replace(cell, label=label, jobs=found, missing=missing, lacks=lacks, recipe=command)

    def _runs(self, table: Table, row: Row, column: Column, stand_in: StandIn | None, data: str) -> list[Job]:
        """The runs of a row in a column, a seed each, and before each the one that it goes on from."""
        recipe, settings = table.train(row, stand_in, column)
        found = self.root.locate(data)
        settings += tuple(f'data.{name}="{getattr(found, name) or "none"}"' for name in ("corpus", *SPLITS))
        number = self.seeds or (stand_in.seeds if stand_in else table.seeds)
        finetuning = () if stand_in else split_arguments(row.finetune)[1]
        job = Job(name="", data=data, recipe=recipe, settings=settings, untrained=row.untrained)
        known = (recipe, settings, data, row.untrained, number, finetuning)
        made = self.runs[known] if known in self.runs else [*self._seeds(job, number, finetuning)]
        self.runs[known] = made
        return made

    def _seeds(self, job: Job, number: int, finetuning: tuple[str, ...]) -> Iterator[Job]:
        """A run for each seed, and its finetuning."""
        is_estimated = self.recipe(job.recipe, job.settings).model.is_estimated
        for seed in range(1, 2 if is_estimated else number + 1):
            own = () if is_estimated else ("training.threads=1", f"training.seed={seed}")
            yield (one := self._named(replace(job, settings=job.settings + own, seed=seed, measures=[])))
            if finetuning:
                yield self._named(replace(one, settings=one.settings + finetuning, start=one.name, measures=[]))

    def _named(self, job: Job) -> Job:
        """Give a run its name, or return the run of this name that another table has already."""
        kind = "-drawn" if job.untrained else "-finetuned" if job.start else ""
        follows_from = [_described(self.recipe(job.recipe, job.settings)), job.data, job.untrained]
        digest = json_hash([*follows_from, job.start] if job.start else follows_from)
        job = replace(job, name=f"{Path(job.recipe).stem}{kind}-{digest[:10]}-{job.seed}")
        job = self.jobs.setdefault(job.name, job)
        if not job.untrained:
            job.add(Training())
        return job

    def _of_data(self, measure: Measure, data: str) -> Job:
        """The job of a measure on data alone."""
        name = f"trees-{json_hash([describe(measure), data])[:10]}"
        return self.jobs.setdefault(name, Job(name=name, data=data))


def _described(recipe: Recipe) -> dict[str, Any]:
    """All values of a recipe that determine its training, without the paths of its data."""
    plain = {section: to_plain(getattr(recipe, section)) for section in ("data", "vocabulary", "batches", "training")}
    for name in ("corpus", *SPLITS):
        plain["data"].pop(name)
    model = {"system": recipe.model.system, "margin": recipe.model.bounds_margin, **to_plain(recipe.model.config)}
    return {**plain, "model": model}
