"""Values of a table: ours over seeds with their interval, kept ones, printed ones, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from treelm.configs import from_plain
from treelm.papers.data import read_declarations
from treelm.papers.metrics import AGREEMENT, Structure, Training
from treelm.papers.plan import Cell, KeptTable, PlannedTable, Sample
from treelm.papers.work import FOLDER, kept


def load_kept(paper: str) -> dict[str, KeptTable]:
    """The results of earlier runs that the package has for a paper, by table; empty if there are none."""
    try:
        values = read_declarations(f"kept/{paper}.toml")
    except FileNotFoundError:
        return {}
    made = values.pop("made")
    return {name: from_plain(KeptTable, {"made": made, **one}, where=name) for name, one in values.items()}


def gather(
    planned: PlannedTable,
    out: Path,
    codes: Mapping[str, int],
    *,
    not_yet: str = "not run yet",
    results: KeptTable | None = None,
) -> PlannedTable:
    """Add to a table what the runs in ``out`` gave, and ``results``, which earlier runs gave.

    ``codes`` are the exit codes of jobs that have just failed, by name; of other jobs without values, ``not_yet`` says
    why they have none.
    """
    table, rows = planned.table, results.rows if results else {}
    notes = dict.fromkeys((*table.notes, *(results.notes if results else ())))
    cells = list[Cell]()
    for cell in planned.cells:
        for job in cell.jobs:
            found = kept(out / FOLDER / job.name, cell.measure) if cell.measure else None
            notes |= dict.fromkeys(found.notes if found else ())
        name, elsewhere = cell.column.name, table.texts(cell.row.elsewhere)
        printed = table.printed(cell.row).get(name) or elsewhere.get(name, "")
        known = table.texts(rows.get(cell.row.name, "")).get(name, "")
        own = _measured(cell, out, codes, not_yet)
        cells.append(replace(own, printed=printed, is_elsewhere=name in elsewhere, kept=known))
    seconds = {}
    for row, jobs in planned.runs.items():
        logs = [found.values for job in jobs if (found := kept(out / FOLDER / job.name, Training()))]
        logs = [log for log in logs if "cpu_seconds" in log]
        if logs:
            seconds[row] = (fmean(log["cpu_seconds"] for log in logs), fmean(log["wall_seconds"] for log in logs))
    for cell in cells:
        if cell.row.note and (not cell.row.added or cell.ours or cell.kept):
            notes[f"{cell.row.name}: {cell.row.note}"] = None
    return replace(planned, cells=cells, kept=results, seconds=seconds, notes=[*notes])


def _measured(cell: Cell, out: Path, codes: Mapping[str, int], not_yet: str) -> Cell:
    """The cell with the values of its finished jobs; if some are missing, also with the reason."""
    ours, why, done = Sample({} if cell.given is None else {0: cell.given}), cell.missing, list[Path]()
    if cell.measure is None:
        return replace(cell, ours=ours)
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
        ours = Sample() if mean is None else Sample({0: mean})
        why = "" if ours else cell.missing or "fewer than two seeds are done"
    elif done and not ours:
        why = f"not measured of this system: {cell.metric}"
    return replace(cell, ours=ours, missing=why)
