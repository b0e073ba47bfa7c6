"""A table of a paper for the terminal, as TSV, as LaTeX, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.evaluation.intervals import CONFIDENCE, spread_text
from treelm.evaluation.tables import Row, Table, latex_text
from treelm.figures.panels import Dot, dot_panels, line_panel
from treelm.io.atomic import write_atomically
from treelm.papers.metrics import PICTURE
from treelm.papers.plan import Job
from treelm.papers.results import PairedDifference, Result, Value
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
    name = result.planned.table.name
    forms = {f"{name}.tsv": as_tsv(result), f"{name}.tex": as_latex(result), f"{name}.svg": _as_svg(result, out)}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file, content in forms.items():
        if content is not None:
            write_atomically(folder / file, content.encode())
            written.append(folder / file)
    return written


def as_tsv(result: Result) -> str:
    """One line for each row and column, unrounded; notes in lines that begin with ``#``."""
    lines = ["\t".join(TSV)]
    for one in result.values:
        cpu, wall = result.seconds.get(one.row, (None, None))
        numbers = (one.mean, one.interval, one.deviation, len(one.ours), one.published, one.difference)
        paired: tuple[str | float | None, ...] = (None,) * 5
        if one.paired is not None:
            by_seed = one.paired.by_seed.values()
            paired = (one.paired.other, one.paired.mean, one.paired.interval, len(by_seed), _listed(by_seed))
        cells = (one.row, one.heading, one.label, *numbers, _listed(one.ours), cpu, wall, one.why, *paired)
        lines.append("\t".join("" if cell is None else str(cell) for cell in cells))
    table = result.planned.table
    return "".join(f"{line}\n" for line in (*lines, *(f"# {note}" for note in (table.source, *result.notes))))


def _listed(values: Iterable[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def as_latex(result: Result) -> str:
    """A tabular with the rules of booktabs: ours and published for each column, the setting last; then differences."""
    table = result.planned.table
    rows = []
    for name, values in groupby(result.values, key=lambda one: one.row):
        found = {one.column: one for one in values}
        row: list[tuple[str, str | None]] = [("", name)]
        for column in table.columns:
            value = found.get(column.name)
            row.append((column.heading, "" if value is None else ours_of(value)))
            row.append(("published", "" if value is None else _published(value)))
        rows.append([*row, ("setting", next(iter(found.values())).label)])
    tables = [Table.of(rows, texts=frozenset({2 * len(table.columns) + 1})), *_differences(result.values)]
    comments = [f"{one.row}, {one.heading}: {one.why}" for one in result.values if one.why]
    head = f"% \\usepackage{{booktabs}}\n% {latex_text(table.source)}: {latex_text(table.title)}\n"
    parts = (f"% {part.title}\n{part.to_latex()}" if part.title else part.to_latex() for part in tables)
    return head + "".join(parts) + "".join(f"% {line}\n" for line in (*comments, LEGEND, *result.notes))


def ours_of(value: Value) -> str:
    """Mean and interval of ours, rounded."""
    return f"{_number(value.mean, value.digits) or '-'}{spread_text(value.interval, value.digits)}"


def _published(value: Value) -> str | None:
    """The published value with its own digits."""
    return None if value.published is None else str(value.published)


def _number(number: float | None, digits: int, *, sign: bool = False) -> str | None:
    return None if number is None else f"{number:{'+' if sign else ''}.{digits}f}"


def as_text(result: Result) -> RenderableType:
    """A table for each setting, then differences, rows without values, and notes."""
    from rich.console import Group
    from rich.text import Text

    table = result.planned.table
    shown = [one for one in result.values if one.ours or one.published is not None]
    tables = [
        Table.of(_first_named([_row(one) for one in values]), title=label or "published only", num_labels=2)
        for label, values in groupby(shown, key=lambda one: one.label)
    ]
    drawn = [one for one in result.values if one.column == PICTURE and not one.why]
    lines = [
        *(f"{one.row}, {one.label}: drawn in {table.name}.svg" for one in drawn),
        *_reasons(result.values),
        *_times(result.seconds),
        *(f"note: {note}" for note in result.notes),
    ]
    parts = [part for one in (*tables, *_differences(result.values)) for part in (one, Text())]
    return Group(Text(f"{table.source}: {table.title}", style="bold"), *parts, *map(Text, lines), Text())


def _row(one: Value) -> Row:
    return [
        ("", one.row),
        ("", one.heading),
        ("ours", ours_of(one)),
        ("n", str(len(one.ours)) if one.ours else ""),
        ("published", _published(one)),
        ("diff.", _number(one.difference, one.digits, sign=True)),
    ]


def _first_named(rows: Sequence[Row]) -> list[Row]:
    """Rows of which only the first of those with the same name has it."""
    return [
        [(heading, "" if number and rows[number - 1][0] == row[0] else name), *others]
        for number, row in enumerate(rows)
        for (heading, name), *others in [row]
    ]


Pair = tuple[Value, PairedDifference]
Curve = tuple[str, Sequence[tuple[float, float]]]


def _paired(values: Sequence[Value]) -> dict[str, list[Pair]]:
    """The values that have a paired difference, by the row that is subtracted."""
    groups: dict[str, list[Pair]] = {}
    for value in values:
        if value.paired is not None:
            groups.setdefault(value.paired.other, []).append((value, value.paired))
    return groups


def _differences(values: Sequence[Value]) -> Iterator[Table]:
    """A table for each row from which others differ."""
    for other, pairs in _paired(values).items():
        rows: list[Row] = [
            [
                ("", value.row),
                ("", value.heading),
                ("difference", f"{paired.mean:+.{value.digits}f}{spread_text(paired.interval, value.digits)}"),
                ("pairs", str(len(paired.by_seed))),
            ]
            for value, paired in pairs
        ]
        yield Table.of(_first_named(rows), title=f"difference from {other}, seed by seed", num_labels=2)


def _reasons(values: Sequence[Value]) -> Iterator[str]:
    """Why values are not there, once for each reason."""
    rows: dict[str, list[str]] = {}
    for one in values:
        if one.why:
            rows.setdefault(one.why, []).append(one.row)
    for why, names in rows.items():
        yield f"{'; '.join(dict.fromkeys(names))}: {why}"


def _times(seconds: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    if seconds:
        rows = (f"{row} {cpu:.0f} / {wall:.0f}" for row, (cpu, wall) in seconds.items())
        yield f"training, mean CPU seconds / wall seconds of a run: {'; '.join(rows)}"


def _as_svg(result: Result, out: Path) -> str | None:
    """The picture of a table; None as long as there is nothing to draw."""
    table = result.planned.table
    if table.drawing == "picture":
        drawn = [out / FOLDER / job.name / PICTURE for row in result.planned.rows for job in row.jobs]
        return next((path.read_text(encoding="utf-8") for path in drawn if path.exists()), None)
    if table.drawing == "lines":
        lines = [line for row in result.planned.rows for line in _curves(row.row.name, row.jobs, out)]
        return line_panel(lines, table.title, "CPU seconds of training", "dev loss, nats a word") if lines else None
    panels = {
        column.heading: [_dot(one) for one in result.values if one.column == column.name] for column in table.columns
    }
    known = {name: dots for name, dots in panels.items() if any(dot.ours or dot.published for dot in dots)}
    for other, pairs in _paired(result.values).items():
        for column in table.columns:
            dots = [_paired_dot(value, paired) for value, paired in pairs if value.column == column.name]
            known |= {f"{column.heading}, less {other}": dots} if dots else {}
    return dot_panels(known, f"{table.source}: {table.title}") if known else None


def _dot(value: Value) -> Dot:
    spread = value.interval or 0.0
    return Dot(name=value.row, label=value.label, ours=value.mean, spread=spread, published=value.published)


def _paired_dot(value: Value, paired: PairedDifference) -> Dot:
    label = f"{value.label}; less {paired.other}, {len(paired.by_seed)} pairs"
    return Dot(name=value.row, label=label, ours=paired.mean, spread=paired.interval or 0.0)


def _curves(name: str, jobs: Sequence[Job], out: Path) -> Iterator[Curve]:
    """Dev loss against processor time, a line for each run."""
    for job in jobs:
        path = out / FOLDER / job.name / LOG
        lines = read_metrics(path) if path.exists() else []
        points = tuple((one["cpu_seconds"], one["loss_nats_per_word"]) for one in lines if one["kind"] == "dev")
        if points:
            yield name, points
