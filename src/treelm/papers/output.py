"""A table for the terminal, as TSV, as LaTeX, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from treelm.evaluation.comparison.tables import latex_text
from treelm.evaluation.intervals import CONFIDENCE, spread_text
from treelm.figures.panels import Dot, Line, dot_panels, line_panel
from treelm.models.persistence.files import write_atomically
from treelm.papers import paired_output
from treelm.papers.measures import PICTURE
from treelm.papers.plan import Job
from treelm.papers.results import Result, Value
from treelm.papers.work import FOLDER
from treelm.training.metrics import FILE_NAME as LOG
from treelm.training.metrics import read_metrics

MISSING = "-"
TSV = (
    *("row", "column", "setting", "ours", "interval", "deviation", "n", "published", "difference", "by_seed"),
    *("cpu_seconds", "wall_seconds", "why", *paired_output.TSV),
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
        by_seed = " ".join(f"{value:.6g}" for value in one.ours)
        paired = paired_output.tsv_cells(one.paired)
        cells = (one.row, one.heading, one.label, *numbers, by_seed, cpu, wall, one.why, *paired)
        lines.append("\t".join("" if cell is None else str(cell) for cell in cells))
    table = result.planned.table
    return "".join(f"{line}\n" for line in (*lines, *(f"# {note}" for note in (table.source, *result.notes))))


def as_latex(result: Result) -> str:
    """A tabular with the rules of booktabs: ours and published for each column, the setting last; then differences."""
    return "".join(f"{line}\n" for line in _latex_lines(result))


def _latex_lines(result: Result) -> Iterator[str]:
    columns = result.planned.table.columns
    yield r"% \usepackage{booktabs}"
    yield rf"% {latex_text(result.planned.table.source)}: {latex_text(result.planned.table.title)}"
    yield rf"\begin{{tabular}}{{l{'rr' * len(columns)}l}}"
    yield r"\toprule"
    headings = [cell for column in columns for cell in (latex_text(column.heading), "published")]
    yield " & ".join(["", *headings, "setting"]) + r" \\"
    yield r"\midrule"
    for name, values in groupby(result.values, key=lambda one: one.row):
        found = {one.column: one for one in values}
        label = next(iter(found.values())).label
        cells = [cell for column in columns for cell in _latex_cells(found.get(column.name))]
        yield " & ".join([latex_text(name), *cells, latex_text(label)]) + r" \\"
    yield from paired_output.latex_lines(columns, result.values)
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield from (f"% {one.row}, {one.heading}: {one.why}" for one in result.values if one.why)
    yield from (f"% {note}" for note in (LEGEND, *result.notes))


def _latex_cells(value: Value | None) -> tuple[str, str]:
    if value is None:
        return "", ""
    return ours_of(value).replace(" ± ", r" $\pm$ "), _published(value)


def ours_of(value: Value) -> str:
    """Mean and interval of ours, rounded."""
    return f"{_number(value.mean, value.digits)}{spread_text(value.interval, value.digits)}"


def _published(value: Value) -> str:
    """The published value with its own digits."""
    return MISSING if value.published is None else str(value.published)


def _number(number: float | None, digits: int, *, sign: bool = False) -> str:
    return MISSING if number is None else f"{number:{'+' if sign else ''}.{digits}f}"


def as_text(result: Result) -> RenderableType:
    """A table for each setting, 80 columns wide, then rows without values, and notes."""
    table = result.planned.table
    parts: list[RenderableType] = [Text(f"{table.source}: {table.title}", style="bold")]
    shown = [one for one in result.values if one.ours or one.published is not None]
    for label, values in groupby(shown, key=lambda one: one.label):
        parts += [Text(f"{label or 'published only'}"), _grid(list(values)), Text()]
    parts += paired_output.text_parts(result.values)
    drawn = [one for one in result.values if one.column == PICTURE and not one.why]
    parts += [Text(f"{one.row}, {one.label}: drawn in {table.name}.svg") for one in drawn]
    parts += [Text(line) for line in _reasons(result.values)]
    parts += [Text(line) for line in _times(result.seconds)]
    parts += [Text(f"note: {note}") for note in result.notes]
    return Group(*parts, Text())


def _grid(values: Sequence[Value]) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("", max_width=28)
    grid.add_column("", max_width=16)
    for heading in ("ours", "n", "published", "diff."):
        grid.add_column(heading, justify="right", no_wrap=True)
    before = None
    for one in values:
        numbers = (_published(one), _number(one.difference, one.digits, sign=True))
        seeds = str(len(one.ours)) if one.ours else ""
        grid.add_row(Text(one.row if one.row != before else ""), Text(one.heading), ours_of(one), seeds, *numbers)
        before = one.row
    return grid


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
    known |= paired_output.panels(table.columns, result.values)
    return dot_panels(known, f"{table.source}: {table.title}") if known else None


def _dot(value: Value) -> Dot:
    spread = value.interval or 0.0
    return Dot(name=value.row, label=value.label, ours=value.mean, spread=spread, published=value.published)


def _curves(name: str, jobs: Sequence[Job], out: Path) -> Iterator[Line]:
    """Dev loss against processor time, a line for each run."""
    for number, job in enumerate(jobs):
        path = out / FOLDER / job.name / LOG
        lines = read_metrics(path) if path.exists() else []
        points = tuple((one["cpu_seconds"], one["loss_nats_per_word"]) for one in lines if one["kind"] == "dev")
        if points:
            yield Line(name=name if number == 0 else "", group=name, points=points)
