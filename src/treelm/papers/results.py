"""Results of a table of a paper: ours over seeds beside those printed, for the terminal and as TSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING

from treelm.configs import from_plain
from treelm.evaluation.intervals import CONFIDENCE, spread_text
from treelm.evaluation.tables import Row, Table
from treelm.io.atomic import write_atomically
from treelm.papers.data import DataSet, read_declarations
from treelm.papers.declaration import Column
from treelm.papers.metrics import AGREEMENT, Structure, Training
from treelm.papers.plan import PAPER, RECIPE, Cell, KeptTable, Plan, PlannedTable, Sample
from treelm.papers.work import FOLDER, kept

if TYPE_CHECKING:
    from rich.console import RenderableType

TSV = (
    *("row", "column", "setting", "ours", "interval", "deviation", "n", "published", "difference", "by_seed"),
    *("cpu_seconds", "wall_seconds", "why"),
    *("kept", "kept_setting", "not_in_paper", "recipe", "printed", "elsewhere"),
)
LEGEND = (
    f"ours: mean over seeds, ± half of its {CONFIDENCE:.0%} interval (Student's t), or standard deviation where that is"
    " printed; difference: ours less printed; {column}: the column's name"
)
PRINTED, ELSEWHERE, OURS, DIFFERENCE, KEPT = "printed", "elsewhere", "ours", "difference", "ours, stand-in"
_WIDEST = 28  # cells of a row's name


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


def write_file(result: PlannedTable, folder: Path) -> None:
    """Write a table into a folder, as TSV."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{result.table.stem}.tsv", as_tsv(result).encode())


def as_tsv(result: PlannedTable) -> str:
    """One line for each row and column, unrounded; notes in lines that begin with ``#``."""
    lines: list[Sequence[object]] = [TSV]
    for one in result.cells:
        ours = one.ours
        cells: list[object] = [one.row.name, one.column.name, one.label, ours.mean if ours else None]
        published = one.number.value if one.number else one.printed
        cells += [ours.interval, ours.deviation, len(ours), published, one.difference, _listed(ours)]
        cells += [*result.seconds.get(one.row.name, (None, None)), one.missing]
        cells += [
            one.kept,
            result.kept.setting if one.kept and result.kept else None,
            int(one.row.added or one.column.added),
        ]
        cells += [one.recipe, *(("", one.printed) if one.is_elsewhere else (one.printed, ""))]
        lines.append(cells)
    notes = (f"# {note}\n" for note in (result.table.source, *result.notes))
    return "".join(["\t".join("" if cell is None else str(cell) for cell in line) + "\n" for line in lines] + [*notes])


def _listed(values: Sample) -> str:
    return " ".join(f"{value:.6g}" for value in values.values())


def shown(value: Cell) -> dict[str, str]:
    """The known values of a cell as texts, by their kind: printed, ours and so on."""
    kinds = {ELSEWHERE if value.is_elsewhere else PRINTED: value.printed}
    if value.ours:
        has_deviation = value.number is not None and value.number.spread is not None
        kinds[OURS] = _rounded(value, value.ours.mean, value.ours.deviation if has_deviation else value.ours.interval)
    if value.difference is not None and value.label.startswith(PAPER):  # of stand-ins it says nothing
        kinds[DIFFERENCE] = _rounded(value, value.difference, None, sign="+")
    return kinds | {KEPT: value.kept if not value.ours else ""}


def _rounded(value: Cell, mean: float, spread: float | None, *, sign: str = "") -> str:
    """Write a number with the digits of the printed value of the cell, else of its column, and in the column's unit."""
    digits, unit = value.number.digits if value.number else value.column.digits or 0, value.column.unit
    scale = 1e6 if unit else 1.0
    return f"{mean / scale:{sign}.{digits}f}{unit}{spread_text(None if spread is None else spread / scale, digits)}"


def _tables(result: PlannedTable) -> Iterator[Table]:
    """Yield a table of the paper's rows and columns, one of added rows and one of added columns, if they have values.

    A row has a line for each kind of its values: printed, ours and so on.
    """
    table, is_first = result.table, True
    for title, of_rows, is_ours in (
        ("", (False,), False),
        ("added rows, not in the paper", (True,), False),
        ("added columns, not in the paper", (False, True), True),
    ):
        columns = [column.name for column in table.columns if column.added == is_ours]
        rows = []
        for row in (row for row in table.rows if row.added in of_rows):
            cells = [one for one in result.cells if one.row == row and one.column.name in columns]
            if row.heading and not is_ours:
                rows.append((row.heading, "", dict.fromkeys(columns, "")))
            stays = {PRINTED if row.absent else OURS: dict[str, str]()} if is_first and not row.added else {}
            rows += [(row.name, kind, texts) for kind, texts in (_kinds(cells) or stays).items()]
        shown = [name for name in columns if not title or any(name in texts for _, _, texts in rows)]
        if rows and (shown := shown or columns):
            is_first = False
            lines: list[Row] = [
                [("", name), ("", kind), *((one, texts.get(one)) for one in shown)] for name, kind, texts in rows
            ]
            yield Table.of(_first_named(lines), title=title, num_labels=2)


def _kinds(cells: Iterable[Cell]) -> dict[str, dict[str, str]]:
    """What is known of the cells of a row: by kind of value, the texts of its columns."""
    texts: dict[str, dict[str, str]] = {kind: {} for kind in (PRINTED, ELSEWHERE, OURS, DIFFERENCE, KEPT)}
    for cell in cells:
        for kind, text in shown(cell).items():
            texts[kind] |= {cell.column.name: text} if text else {}
    return {kind: found for kind, found in texts.items() if found}


def _settings(result: PlannedTable) -> Iterator[str]:
    """Yield the settings with which our values and the kept ones were made."""
    labels: dict[str, dict[str, None]] = {}
    for one in result.cells:
        if one.ours and one.label:
            labels.setdefault(one.label, {})[one.row.name] = None
    for label, rows in labels.items():
        yield f"{OURS}: {label}" if len(labels) == 1 else f"{OURS} of {'; '.join(rows)}: {label}"
    if result.kept and any(shown(one)[KEPT] for one in result.cells):
        yield f"{KEPT} data: {result.kept.setting} ({result.kept.made})"


def _recipes(result: PlannedTable) -> Iterator[str]:
    """Yield the commands that train the rows, each after the names of its rows."""
    rows: dict[str, dict[str, None]] = {}
    for one in result.cells:
        name, command = one.row.name, one.recipe
        has_several = "{column}" in one.row.train and bool(one.measure)
        if has_several and one.label.startswith((PAPER, RECIPE)):
            command = result.table.command(one.row, None, Column(name="{column}"))
        elif has_several:
            name = f"{name}, {one.column.name}"
        if one.row.train and command:
            rows.setdefault(command, {})[name] = None
    return (f"{'; '.join(names)}: {command}" for command, names in rows.items())


def as_text(result: PlannedTable) -> RenderableType:
    """The table as the paper has it, each row with what is printed and what we have; then what is missing."""
    from rich.console import Group
    from rich.text import Text

    table = result.table
    reasons: dict[str, dict[str, None]] = {}
    for one in result.cells:
        if one.missing and not one.lacks:
            reasons.setdefault(one.missing, {})[one.row.name] = None
    lines = [*_settings(result), *_recipes(result)]
    lines += [f"{'; '.join(rows)}: {why}" for why, rows in reasons.items()]
    have = {one.row.name for one in result.cells if one.ours or one.kept}
    if idle := [row.name for row in table.rows if row.train and row.name not in have]:
        lines.append(f"no values of ours yet: {'; '.join(idle)}")
    if result.seconds:
        times = (f"{row} {cpu:.0f} / {wall:.0f}" for row, (cpu, wall) in result.seconds.items())
        lines.append(f"training, mean CPU seconds / wall seconds of a run: {'; '.join(times)}")
    lines += [f"note: {note}" for note in result.notes]
    tables = [part for one in _tables(result) for part in (_narrowed(one), Text())]
    name = table.name if table.source.startswith(f"{table.name}, ") else table.source  # the paper is named once, above
    return Group(Text(f"{name}: {table.title}", style="bold"), *tables, *map(Text, lines), Text())


def missing_data(plan: Plan, sets: Mapping[str, DataSet]) -> list[str]:
    """The data that are missing, a line each: what they are, where they come from, which tables need them."""
    return [f"missing: {sets[name].describe()}; for {', '.join(tables)}" for name, tables in plan.lacks.items()]


def _narrowed(table: Table) -> Table:
    """The table with long names of rows over several lines, which leaves columns their room."""
    rows = [[fill(name, _WIDEST, break_on_hyphens=False), *cells] for name, *cells in table.rows]
    return replace(table, rows=rows)


def _first_named(rows: Sequence[Row]) -> list[Row]:
    """Rows of which only the first of those with the same name has it."""
    return [
        [(heading, "" if number and rows[number - 1][0] == row[0] else name), *others]
        for number, row in enumerate(rows)
        for (heading, name), *others in [row]
    ]
