"""Values of a table: ours over seeds with their interval, beside what was published, or why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev

from treelm.evaluation.intervals import interval
from treelm.papers.metrics import AGREEMENT, PICTURE, Structure, Training
from treelm.papers.plan import Cell, PlannedRow, PlannedTable
from treelm.papers.work import FOLDER, kept


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """A row's values less those of another row, for each seed that both have: one at least."""

    other: str
    """Name of the other row."""
    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Mean over the pairs."""
        return fmean(self.by_seed.values())

    @property
    def interval(self) -> float | None:
        """Half the width of the confidence interval of the mean; None of a single pair."""
        return interval(list(self.by_seed.values()))


@dataclass(frozen=True, kw_only=True)
class Value:
    """One cell: a value for each seed that is done."""

    row: str
    column: str
    heading: str
    digits: int
    label: str
    ours: tuple[float, ...] = ()
    by_seed: Mapping[int, float] = field(default_factory=dict)
    """Those of ours that are of one run, by its seed."""
    paired: PairedDifference | None = None
    """Ours less another row's, if their seeds are paired and both measure the same."""
    published: float | None = None
    why: str = ""
    """Why there is nothing of ours, or not of all seeds."""

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return fmean(self.ours) if self.ours else None

    @property
    def interval(self) -> float | None:
        """Half the width of the confidence interval of the mean; None of fewer than two seeds."""
        return interval(self.ours)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds; None of fewer than two."""
        return stdev(self.ours) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the published value."""
        return None if self.mean is None or self.published is None else self.mean - self.published


@dataclass(frozen=True, kw_only=True)
class Result:
    """A table with what is known of it."""

    planned: PlannedTable
    values: tuple[Value, ...]
    seconds: dict[str, tuple[float, float]]
    """Mean seconds of training a run, of the processor and of the clock, by row."""
    notes: tuple[str, ...]


def gather(planned: PlannedTable, out: Path, codes: dict[str, int], *, not_yet: str = "not run yet") -> Result:
    """Gather what is kept. ``codes`` are exit codes of jobs that failed now, by name; of others, ``not_yet`` says why
    there is nothing.
    """
    values = [value for row in planned.rows for value in _row(planned, row, out, codes, not_yet)]
    notes = dict.fromkeys(planned.table.notes)
    seconds = {}
    for row in planned.rows:
        notes |= {f"{row.row.name}: {row.row.note}": None} if row.row.note else {}
        for cell in row.cells:
            for found in (kept(out / FOLDER / job, cell.measure) for job in cell.jobs):
                notes |= dict.fromkeys(found.notes if found else ())
        logs = [log.values for job in row.jobs if (log := kept(out / FOLDER / job.name, Training()))]
        logs = [log for log in logs if "cpu_seconds" in log]
        if logs:
            seconds[row.row.name] = (
                fmean(log["cpu_seconds"] for log in logs),
                fmean(log["wall_seconds"] for log in logs),
            )
    return Result(planned=planned, values=tuple(_pair(planned, values)), seconds=seconds, notes=tuple(notes))


def _pair(planned: PlannedTable, values: Sequence[Value]) -> Iterator[Value]:
    """The values with the differences between rows whose seeds are paired and which measure the same."""
    table = planned.table
    rows = {row.name: row for row in table.rows}
    metrics = {(row.name, column.name): table.metric(column, row) for row in table.rows for column in table.columns}
    known = {(value.row, value.column): value.by_seed for value in values}
    for value in values:
        own, other = ((name, value.column) for name in (value.row, table.reference(rows[value.row])))
        if other in known and metrics.get(own) == metrics[other]:
            seeds = sorted(value.by_seed.keys() & known[other].keys())
            by_seed = {seed: value.by_seed[seed] - known[other][seed] for seed in seeds}
            value = replace(value, paired=PairedDifference(other=other[0], by_seed=by_seed) if by_seed else None)
        yield value


def _row(planned: PlannedTable, row: PlannedRow, out: Path, codes: dict[str, int], not_yet: str) -> Iterator[Value]:
    """A value for each column that the row has, here or in the paper; one at least, so that none is lost."""
    by_column = {cell.column.name: cell for cell in row.cells}
    if not planned.table.columns:
        yield _picture(row, out, codes, not_yet)
    columns = [one for one in planned.table.columns if one.name in by_column or one.name in row.row.published]
    for column in columns or planned.table.columns[:1]:
        published = row.row.published.get(column.name)
        cell = by_column.get(column.name)
        seeds = {job.name: job.run.seed for job in row.jobs if job.run is not None}
        ours, by_seed, why = _ours(cell, seeds, out, codes, not_yet) if cell else ((), {}, row.missing)
        yield Value(
            row=row.row.name,
            column=column.name,
            heading=column.heading,
            digits=column.digits,
            label=row.label,
            ours=ours,
            by_seed=by_seed,
            published=published,
            why=why,
        )


def _picture(row: PlannedRow, out: Path, codes: dict[str, int], not_yet: str) -> Value:
    """The row of a picture, which has no values."""
    why = "" if any((out / FOLDER / job.name / PICTURE).exists() for job in row.jobs) else row.missing or not_yet
    failed = next((codes[job.name] for job in row.jobs if job.name in codes), None)
    why = why if failed is None or not why else f"failed (exit code {failed})"
    return Value(row=row.row.name, column=PICTURE, heading="picture", digits=0, label=row.label, why=why)


def _ours(
    cell: Cell, seeds: Mapping[str, int], out: Path, codes: dict[str, int], not_yet: str
) -> tuple[tuple[float, ...], dict[int, float], str]:
    """The values of a cell's jobs that are done, those of runs by seed, and why there are not all."""
    if isinstance(cell.measure, Structure) and cell.metric == AGREEMENT and not cell.baseline:
        return _agreement(cell, cell.measure, out)
    found: list[float] = []
    by_seed: dict[int, float] = {}
    why = cell.missing
    for job in cell.jobs:
        measured = kept(out / FOLDER / job, cell.measure)
        if measured is None:
            why = f"failed (exit code {codes[job]})" if job in codes else why or not_yet
            continue
        of_run = (measured.values[cell.metric],) if cell.metric in measured.values else ()
        values = measured.baselines.get(cell.baseline, {}).get(cell.metric, ()) if cell.baseline else of_run
        found += values
        if values and job in seeds:
            by_seed[seeds[job]] = values[0]
        why = why if values else "not measured of this system"
    return tuple(found), by_seed, why


def _agreement(cell: Cell, measure: Structure, out: Path) -> tuple[tuple[float, ...], dict[int, float], str]:
    """How far the trees of the runs that are done agree: one value, since pairs of runs are not independent."""
    done = [out / FOLDER / job for job in cell.jobs if kept(out / FOLDER / job, measure) is not None]
    mean = measure.agreement(done)
    return ((), {}, cell.missing or "fewer than two seeds are done") if mean is None else ((mean,), {}, "")
