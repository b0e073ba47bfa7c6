"""Values of a table: ours over seeds with their interval, kept ones, printed ones, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from treelm.configs import from_plain
from treelm.evaluation.intervals import interval
from treelm.io.files import read_text
from treelm.papers.declaration import Number, Table
from treelm.papers.metrics import AGREEMENT, Structure, Training
from treelm.papers.plan import Cell, PlannedTable
from treelm.papers.work import FOLDER, kept
from treelm.training.recipe import parse_toml

KEPT = "kept"  # folder of results beside declarations, a file a paper


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
class Value:
    """What is known of a cell."""

    cell: Cell
    ours: Sample
    why: str  # why there is nothing of ours, or not of all seeds
    printed: str = ""  # as the paper has it, or another source (``is_elsewhere``)
    is_elsewhere: bool = False
    kept: str = ""  # what an earlier run gave, from the repository
    other: str = ""  # the row whose values ``paired`` are less
    paired: Sample | None = None  # ours less another row's, seed by seed, if they are paired and both measure the same

    @property
    def row(self) -> str:
        """Name of the row."""
        return self.cell.row.name

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


def load_kept(paper: Path) -> dict[str, KeptTable]:
    """Read the results that are kept for a file of declarations, by table; none, where there is no such file.

    Raises ``InputError`` for a file that is wrong.
    """
    path = paper.parent / KEPT / paper.name
    values = parse_toml(read_text(path), str(path)) if path.is_file() else {}
    made = values.pop("made", "")
    return {
        name: from_plain(KeptTable, {"made": made, **one}, where=f"{path} [{name}]") for name, one in values.items()
    }


@dataclass(frozen=True, kw_only=True)
class Result:
    """A table with what is known of it."""

    planned: PlannedTable
    values: Sequence[Value]
    kept: KeptTable | None
    seconds: dict[str, tuple[float, float]]  # mean seconds of training a run, of the processor and of the clock, by row
    notes: Sequence[str]


def gather(
    planned: PlannedTable,
    out: Path,
    codes: Mapping[str, int],
    *,
    not_yet: str = "not run yet",
    results: KeptTable | None = None,
) -> Result:
    """Gather what the runs in ``out`` gave, beside ``results`` of the repository.

    ``codes`` are exit codes of jobs that failed now, by name; of others, ``not_yet`` says why there is nothing.
    """
    notes = dict.fromkeys((*planned.table.notes, *(results.notes if results else ())))
    for cell in planned.cells:
        for job in cell.jobs:
            found = kept(out / FOLDER / job.name, cell.measure) if cell.measure else None
            notes |= dict.fromkeys(found.notes if found else ())
    seconds = {}
    for name, jobs in planned.runs.items():
        logs = [found.values for job in jobs if (found := kept(out / FOLDER / job.name, Training()))]
        logs = [log for log in logs if "cpu_seconds" in log]
        if logs:
            seconds[name] = (fmean(log["cpu_seconds"] for log in logs), fmean(log["wall_seconds"] for log in logs))
    values = [_value(cell, out, codes, not_yet) for cell in planned.cells]
    table, rows = planned.table, results.rows if results else {}
    for number, value in enumerate(values):
        name, row = value.cell.column.name, value.cell.row
        values[number] = replace(
            value,
            printed=table.printed(row).get(name) or table.elsewhere(row).get(name, ""),
            is_elsewhere=name in table.elsewhere(row),
            kept=table.texts(rows.get(row.name, "")).get(name, ""),
        )
        if row.note and (not row.added or values[number].ours or values[number].kept):
            notes[f"{row.name}: {row.note}"] = None
    return Result(planned=planned, values=_paired(table, values), kept=results, seconds=seconds, notes=[*notes])


def _value(cell: Cell, out: Path, codes: Mapping[str, int], not_yet: str) -> Value:
    """The values of a cell's jobs that are done, and why there are not all."""
    ours, why, done = Sample({} if cell.given is None else {0: cell.given}), cell.missing, list[Path]()
    if cell.measure is None:
        return Value(cell=cell, ours=ours, why=why)
    for job in cell.jobs:
        folder = out / FOLDER / job.name
        found = kept(folder, cell.measure)
        if found is None:
            why = f"failed (exit code {codes[job.name]})" if job.name in codes else why or not_yet
            continue
        done.append(folder)
        if cell.row.baseline:
            ours.update(enumerate(found.baselines.get(cell.row.baseline, {}).get(cell.metric, ()), start=1))
        elif cell.metric in found.values:
            ours[job.seed] = found.values[cell.metric]
    if isinstance(cell.measure, Structure) and cell.metric == AGREEMENT and not cell.row.baseline:
        mean = cell.measure.agreement(done)  # one value, since pairs of runs are not independent
        ours, why = (
            (Sample(), cell.missing or "fewer than two seeds are done") if mean is None else (Sample({0: mean}), "")
        )
    elif done and not ours:
        why = f"not measured of this system: {cell.metric}"
    return Value(cell=cell, ours=ours, why=why)


def _paired(table: Table, values: Sequence[Value]) -> list[Value]:
    """The values with the differences between rows whose seeds are paired and which measure the same."""
    known = {(value.row, value.cell.column.name): value for value in values}
    found = []
    for value in values:
        other = known.get((table.reference(value.cell.row), value.cell.column.name))
        if other and other.cell.metric == value.cell.metric:
            seeds = sorted(value.ours.keys() & other.ours.keys())
            paired = Sample({seed: value.ours[seed] - other.ours[seed] for seed in seeds})
            value = replace(value, other=other.row, paired=paired) if paired else value
        found.append(value)
    return found
