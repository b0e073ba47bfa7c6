"""A table of a paper for the terminal, as TSV, as LaTeX, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.evaluation.intervals import CONFIDENCE, spread_text
from treelm.evaluation.tables import Row, Table, latex_text
from treelm.figures.charts import Dot, dot_panels, line_panel
from treelm.io.atomic import write_atomically
from treelm.papers.metrics import PICTURE
from treelm.papers.results import Result, Sample, Value
from treelm.papers.work import FOLDER
from treelm.training.metrics import FILE_NAME as LOG
from treelm.training.metrics import read_metrics

if TYPE_CHECKING:
    from rich.console import RenderableType

TSV = (
    *("row", "column", "setting", "ours", "interval", "deviation", "n", "published", "difference", "by_seed"),
    *("cpu_seconds", "wall_seconds", "why"),
    *("paired_with", "paired_difference", "paired_interval", "pairs", "paired_by_seed"),
)
LEGEND = f"ours: mean over n seeds, ± half of its {CONFIDENCE:.0%} interval (Student's t); diff.: ours less published"


def write_files(result: Result, folder: Path, out: Path) -> list[Path]:
    """Write all forms of a table into a folder; gives what was written."""
    forms = {"tsv": as_tsv(result), "tex": as_latex(result), "svg": _as_svg(result, out)}
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / f"{result.planned.table.name}.{form}": text for form, text in forms.items() if text}
    for path, text in written.items():
        write_atomically(path, text.encode())
    return [*written]


def as_tsv(result: Result) -> str:
    """One line for each row and column, unrounded; notes in lines that begin with ``#``."""
    lines: list[Sequence[object]] = [TSV]
    for one in result.values:
        ours, paired = one.ours, one.paired
        cells: list[object] = [one.row, one.cell.column.heading, one.cell.label, ours.mean if ours else None]
        cells += [ours.interval, ours.deviation, len(ours), one.published, one.difference, _listed(ours)]
        cells += [*result.seconds.get(one.row, (None, None)), one.why]
        cells += (
            [None] * 5 if paired is None else [one.other, paired.mean, paired.interval, len(paired), _listed(paired)]
        )
        lines.append(cells)
    notes = (f"# {note}\n" for note in (result.planned.table.source, *result.notes))
    return "".join(["\t".join("" if cell is None else str(cell) for cell in line) + "\n" for line in lines] + [*notes])


def _listed(values: Sample) -> str:
    return " ".join(f"{value:.6g}" for value in values.values())


def as_latex(result: Result) -> str:
    """A tabular with the rules of booktabs: ours and published for each column, the setting last; then differences."""
    table = result.planned.table
    rows = []
    for name, values in groupby(result.values, key=lambda one: one.row):
        found = {one.cell.column.name: one for one in values}
        row: list[tuple[str, str | None]] = [("", name)]
        for column in table.columns:
            value = found.get(column.name)
            row.append((column.heading, "" if value is None else _ours(value)))
            row.append(("published", "" if value is None else _published(value)))
        rows.append([*row, ("setting", next(iter(found.values())).cell.label)])
    tables = [Table.of(rows, texts=frozenset({2 * len(table.columns) + 1})), *_differences(result.values)]
    comments = [f"{one.row}, {one.cell.column.heading}: {one.why}" for one in result.values if one.why]
    head = f"% \\usepackage{{booktabs}}\n% {latex_text(table.source)}: {latex_text(table.title)}\n"
    parts = (f"% {part.title}\n{part.to_latex()}" if part.title else part.to_latex() for part in tables)
    return head + "".join(parts) + "".join(f"% {line}\n" for line in (*comments, LEGEND, *result.notes))


def _ours(value: Value) -> str:
    """Mean and interval of ours, rounded."""
    digits = value.cell.column.digits
    return f"{value.ours.mean:.{digits}f}{spread_text(value.ours.interval, digits)}" if value.ours else "-"


def _published(value: Value) -> str | None:
    """The published value with its own digits."""
    return None if value.published is None else str(value.published)


def as_text(result: Result) -> RenderableType:
    """A table for each setting, then differences, rows without values, and notes."""
    from rich.console import Group
    from rich.text import Text

    table = result.planned.table
    shown = [one for one in result.values if one.ours or one.published is not None]
    parts: list[Table] = []
    for label, values in groupby(shown, key=lambda one: one.cell.label):
        rows: list[Row] = [
            [
                ("", one.row),
                ("", one.cell.column.heading),
                ("ours", _ours(one)),
                ("n", str(len(one.ours)) if one.ours else ""),
                ("published", _published(one)),
                ("diff.", None if one.difference is None else f"{one.difference:+.{one.cell.column.digits}f}"),
            ]
            for one in values
        ]
        parts.append(Table.of(_first_named(rows), title=label or "published only", num_labels=2))
    reasons: dict[str, dict[str, None]] = {}
    for one in result.values:
        reasons.setdefault(one.why, {})[one.row] = None
    lines = [
        f"{one.row}, {one.cell.label}: drawn in {table.name}.svg"
        for one in result.values
        if one.cell.column.name == PICTURE and not one.why
    ]
    lines += [f"{'; '.join(rows)}: {why}" for why, rows in reasons.items() if why]
    if result.seconds:
        times = (f"{row} {cpu:.0f} / {wall:.0f}" for row, (cpu, wall) in result.seconds.items())
        lines.append(f"training, mean CPU seconds / wall seconds of a run: {'; '.join(times)}")
    lines += [f"note: {note}" for note in result.notes]
    tables = [part for one in (*parts, *_differences(result.values)) for part in (one, Text())]
    return Group(Text(f"{table.source}: {table.title}", style="bold"), *tables, *map(Text, lines), Text())


def _first_named(rows: Sequence[Row]) -> list[Row]:
    """Rows of which only the first of those with the same name has it."""
    return [
        [(heading, "" if number and rows[number - 1][0] == row[0] else name), *others]
        for number, row in enumerate(rows)
        for (heading, name), *others in [row]
    ]


def _by_reference(values: Iterable[Value]) -> dict[str, list[tuple[Value, Sample]]]:
    """The values that have a paired difference, with it, by the row that is subtracted."""
    groups: dict[str, list[tuple[Value, Sample]]] = {}
    for value in values:
        if value.paired is not None:
            groups.setdefault(value.other, []).append((value, value.paired))
    return groups


def _differences(values: Iterable[Value]) -> Iterator[Table]:
    """A table for each row from which others differ."""
    for other, pairs in _by_reference(values).items():
        rows: list[Row] = []
        for value, paired in pairs:
            digits = value.cell.column.digits
            difference = f"{paired.mean:+.{digits}f}{spread_text(paired.interval, digits)}"
            labels = [("", value.row), ("", value.cell.column.heading)]
            rows.append([*labels, ("difference", difference), ("pairs", str(len(paired)))])
        yield Table.of(_first_named(rows), title=f"difference from {other}, seed by seed", num_labels=2)


def _as_svg(result: Result, out: Path) -> str | None:
    """The picture of a table; None as long as there is nothing to draw."""
    table, runs = result.planned.table, result.planned.runs
    if table.drawing == "picture":
        drawn = [out / FOLDER / job.name / PICTURE for jobs in runs.values() for job in jobs]
        return next((path.read_text(encoding="utf-8") for path in drawn if path.exists()), None)
    if table.drawing == "lines":
        lines = []
        for row, jobs in runs.items():
            for path in (out / FOLDER / job.name / LOG for job in jobs):
                log = [one for one in (read_metrics(path) if path.exists() else ()) if one["kind"] == "dev"]
                if log:  # dev loss against processor time, a line for each run
                    lines.append((row, [(one["cpu_seconds"], one["loss_nats_per_word"]) for one in log]))
        return line_panel(lines, table.title, "CPU seconds of training", "dev loss, nats a word") if lines else None
    panels: dict[str, list[Dot]] = {}
    for column in table.columns:
        values = [value for value in result.values if value.cell.column == column]
        if any(value.ours or value.published is not None for value in values):
            panels[column.heading] = [_dot(one, one.ours, one.cell.label, one.published) for one in values]
    for other, pairs in _by_reference(result.values).items():
        for value, paired in pairs:
            label = f"{value.cell.label}; less {other}, {len(paired)} pairs"
            panels.setdefault(f"{value.cell.column.heading}, less {other}", []).append(_dot(value, paired, label))
    return dot_panels(panels, f"{table.source}: {table.title}") if panels else None


def _dot(value: Value, ours: Sample, label: str, published: float | None = None) -> Dot:
    mean = ours.mean if ours else None
    return Dot(name=value.row, label=label, ours=mean, spread=ours.interval or 0.0, published=published)
