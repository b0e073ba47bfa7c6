"""A comparison as one page, section by section, beside published models.

Everything is in the file, and nothing may be fetched when it is opened.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import treelm
from treelm.errors import InputError
from treelm.evaluation.comparison.compare import hardly_trained
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison, LossPoint, RunMetrics, Values
from treelm.evaluation.human.garden_paths import effect_values, measure_effects
from treelm.evaluation.human.sap import EFFECTS, REGIONS, human_effects, published
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, circuits, overall_score, references
from treelm.figures import svg
from treelm.figures.charts import Axes, Chart, Point, line_chart, scatter_chart, surprisal_drawing
from treelm.figures.report.sentences import sentence_bars, sentence_sections
from treelm.figures.report.templates import Bars, Looks, Section, render, section
from treelm.io.atomic import check_output_path, write_atomically

Curve = tuple[RunMetrics, int, list[LossPoint]]
"""A run, its look, and its evaluations on dev."""
_PICTURE = re.compile(r'(?<!<div class="narrow">)<svg class="[^"]*" role="img".*?</svg>', re.DOTALL)
_LONGEST_NAME = 80  # characters of the name of a picture's file
_GAIN = "reading_delta_nats_per_word"


def write_report(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison into a file.

    Raises ``InputError`` for a name that does not end as a page's does, and for a comparison without runs.
    """
    check_path(path)
    write_atomically(path, report_page(comparison).encode())


def write_figures(comparison: Comparison, folder: Path) -> int:
    """Write each picture of the page, and the surprisals of each sentence, into an SVG file named by its title.

    Returns the number of files. Raises ``InputError`` for a comparison without runs.
    """
    pictures: list[str] = _PICTURE.findall(report_page(comparison))  # of a chart in two widths the wide one
    pictures += [surprisal_drawing(words, models).__html__() for words, models in sentence_bars(comparison.runs)]
    folder.mkdir(parents=True, exist_ok=True)
    used: Counter[str] = Counter()
    for picture in pictures:
        title = html.unescape(picture.partition("<title>")[2].partition("</title>")[0])
        name = re.sub(r"\W+", "-", title).strip("-")[:_LONGEST_NAME]
        used[name] += 1
        file = folder / f"{name}{f'-{used[name]}' if used[name] > 1 else ''}.svg"
        write_atomically(file, svg.file_of(picture).encode())
    return len(pictures)


def check_path(path: Path, *, to_come: Path | None = None) -> None:
    """Raise ``InputError`` for a file that no page can be written into.

    The folder ``to_come`` need not exist yet: it will be made before the page is written.
    """
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"cannot write a report into {path}", remedy="end its name in .html")
    check_output_path(path, to_come=to_come)


def report_page(comparison: Comparison) -> str:
    """The page as text. Raises ``InputError`` for a comparison without runs."""
    if not comparison.runs:
        raise InputError("a comparison without runs", remedy="compare at least one")
    rows, frame = comparison.runs, ComparisonFrame.of(comparison)
    looks = {row.name: look for look, row in enumerate(rows)}
    figures = {"tables": frame.tables(), "notes": frame.legend, "looks": looks}
    measured = (training_section, syntaxgym_section, pairs_section, reading_section, garden_path_section)
    found = [section("figures", "Figures", template="tables", **figures)]
    found += [one for make in measured if (one := make(rows, looks)) is not None]
    found += sentence_sections(rows)
    own_style = files("treelm.figures.report").joinpath("style.css").read_text(encoding="utf-8")
    page = render(
        "figures/report/page.html.j2",
        title=f"One model: {rows[0].name}" if len(rows) == 1 else f"{len(rows)} language models side by side",
        style=svg.style() + own_style,
        summary=f"Systems: {', '.join(dict.fromkeys(row.system for row in rows))}. {comparison.evaluated_on}",
        warnings=list(hardly_trained(rows)),
        sections=found,
        runs=rows,
        made=comparison.made,
        version=treelm.__version__,
    )
    return str(page)


def training_section(rows: Sequence[RunMetrics], looks: Looks) -> Section | None:
    """Two charts; None if no run was evaluated on dev while it was trained."""
    curves = [(row, looks[row.name], points) for row in rows if (points := dev_points(row))]
    if not curves:
        return None
    words, joint = [one for one in curves if not _is_joint(one)], [one for one in curves if _is_joint(one)]
    parts: dict[str, Any] = {"words": _figure(words), "joint": _figure(joint)}
    return section("training", "Learning curves", **parts)


def _is_joint(curve: Curve) -> bool:
    """Tell whether a curve shows another loss than that of words given the words before them.

    That is so for joint models of words and trees, and where the part of the words is not logged.
    """
    row, _, points = curve
    return bool(row.is_upper_bound) or any(point.word_nats is None for point in points)


def _figure(curves: Sequence[Curve]) -> dict[str, Any]:
    """Charts of some curves and their key, if there are any."""
    if not curves:
        return {}
    charts = [_chart(curves, "epochs", lambda point: point.epoch)]
    charts.append(_chart(curves, "minutes of training", lambda point: point.seconds / 60))
    return {"charts": charts, "names": {look: row.name for row, look, _ in curves}}


def dev_points(row: RunMetrics) -> list[LossPoint]:
    """The evaluations on dev, of systems that predict words."""
    return [point for point in row.loss_curve if point.kind == "dev"] if "perplexity" in row.values else []


def perplexity(point: LossPoint) -> float:
    """The exponential of the loss of words, or of the whole loss if the part of the words is not logged."""
    nats = point.loss_nats_per_word if point.word_nats is None else point.word_nats
    return math.exp(min(nats, 100.0))  # a run that diverged is still drawn


def _chart(curves: Sequence[Curve], unit: str, place: Callable[[LossPoint], float]) -> Chart:
    def point(row: RunMetrics, one: LossPoint) -> Point:
        value, where = perplexity(one), place(one)
        return Point(where, value, f"{row.name}: {value:.1f} after {where:.3g} {unit} (step {one.step:,})")

    lines = [(look, [point(row, one) for one in points]) for row, look, points in curves]
    axes = Axes(title=f"perplexity on dev by {unit}", x=unit, y="perplexity on dev")
    return line_chart(lines, axes, logarithmic=True)


def _bars(looks: Looks, names: Iterable[str], by_run: Mapping[str, Mapping[str, float]]) -> list[Bars]:
    """Bars for each name that some run has a share of."""
    shares = [
        (name, [(run, looks[run], found[name]) for run, found in by_run.items() if name in found]) for name in names
    ]
    return [Bars(name, found) for name, found in shares if found]


def syntaxgym_section(rows: Sequence[RunMetrics], looks: Looks) -> Section | None:
    """Scores against perplexity with the published models, and the circuits; None if no suite was scored."""
    suites = {row.name: own for row in rows if (own := row.of("suite"))}
    if not suites:
        return None
    published = list(references().values())
    own_circuits = {row.name: row.of("circuit") for row in rows if row.name in suites}
    parts: dict[str, Any] = {"scatter": None, "has_circuits": any(own_circuits.values())}
    points = _points(rows, looks, published)
    if any(point.look is not None for point in points):
        axes = Axes(title="SG score against perplexity", x="perplexity", y="SG score")
        parts |= {
            "scatter": scatter_chart(points, axes, is_percent=True),
            "names": {looks[name]: name for name in suites},
            "num_published": len(published),
            "num_without": sum(one.perplexity is None for one in published),
        }
    if parts["has_circuits"]:
        others = [circuit_accuracies(one.accuracies) for one in published]
        bars = _bars(looks, circuits(), own_circuits)
        bars = [one._replace(others=[each[one.title] for each in others if one.title in each]) for one in bars]
    else:
        bars = _bars(looks, dict.fromkeys(suite for own in suites.values() for suite in own), suites)
    return section("syntaxgym", "Syntactic generalisation", panels=bars, **parts)


def _points(rows: Sequence[RunMetrics], looks: Looks, published: Sequence[Reference]) -> list[Point]:
    """Scores against perplexity, of the published models and of runs, as far as both are known."""

    def point(name: str, score: float, perplexity: float, look: int | None = None, bound: str = "") -> Point:
        tip = f"{name}: SG score {100 * score:.1f}, perplexity {bound}{perplexity:.1f}"
        return Point(perplexity, 100 * score, tip, look=look)

    known = ((one.name, overall_score(one.accuracies) or 0.0, one.perplexity) for one in published)
    points = [point(name, score, perplexity) for name, score, perplexity in known if perplexity is not None]
    for row in rows:
        if "sg_score" in row.values and "perplexity" in row.values:
            of_row = row.values["sg_score"], row.values["perplexity"], looks[row.name]
            points.append(point(row.name, *of_row, "≤ " if row.is_upper_bound else ""))
    return points


def pairs_section(rows: Sequence[RunMetrics], looks: Looks) -> Section | None:
    """Minimal pairs, file by file, by the coarsest grouping of each; None if none were scored."""
    files = dict.fromkeys(file for row in rows for file in row.of("minimal_pairs"))
    parts = [_pairs(rows, looks, file) for file in files]
    return section("pairs", "Minimal pairs", files=parts) if parts else None


def _pairs(rows: Sequence[RunMetrics], looks: Looks, file: str) -> dict[str, Any]:
    """Bars of all pairs of a file, and of those of its grouping with the fewest groups."""
    accuracies = {row.name: own[file] for row in rows if file in (own := row.of("minimal_pairs"))}
    groups = {row.name: row.pair_groups.get(file, {}) for row in rows if row.name in accuracies}
    first = next(row for row in rows if row.name in accuracies)
    sizes = {name: len(own) for name, own in groups[first.name].items() if len(own) > 1}
    grouping = min(sizes, key=sizes.__getitem__, default="")
    by_run = {name: own.get(grouping, {}) for name, own in groups.items()}
    bars = [
        Bars("all pairs", [(name, looks[name], accuracy) for name, accuracy in accuracies.items()]),
        *_bars(looks, by_run[first.name], by_run),
    ]
    panels = [each._replace(title=each.title.replace("_", " "), chance=0.5) for each in bars]
    return {"name": file, "panels": panels, "num_pairs": first.values[f"num_pairs, {file}"], "grouping": grouping}


def reading_section(rows: Sequence[RunMetrics], looks: Looks) -> Section | None:
    """Gains over a baseline against perplexity, a figure for each corpus; None if none was measured."""
    corpora = dict.fromkeys(corpus for row in rows for corpus in row.of(_GAIN))
    parts = [_reading(rows, looks, corpus) for corpus in corpora]
    return section("reading", "Reading times", corpora=parts) if parts else None


def _reading(rows: Sequence[RunMetrics], looks: Looks, corpus: str) -> dict[str, Any]:
    found = [row for row in rows if f"{_GAIN}, {corpus}" in row.values]
    others = {name: values for row in found for name, values in row.published.items()}
    points = [_gain(name, values, corpus) for name, values in others.items() if f"{_GAIN}, {corpus}" in values]
    points += [_gain(row.name, row.values, corpus, looks[row.name]) for row in found]
    axes = Axes(title=f"delta log likelihood of {corpus}", x="perplexity on its words", y="10^-3 nats a word")
    sizes = sorted({row.values[f"reading_num_words, {corpus}"] for row in found})
    return {
        "scatter": scatter_chart(points, axes),
        "names": {looks[row.name]: row.name for row in found},
        "sizes": " or ".join(f"{size:,}" for size in sizes),
        "name": corpus,
    }


def _gain(name: str, values: Values, corpus: str, look: int | None = None) -> Point:
    gain, perplexity = 1000 * values[f"{_GAIN}, {corpus}"], values[f"reading_perplexity, {corpus}"]
    return Point(perplexity, gain, f"{name}: {gain:+.2f}, perplexity {perplexity:.0f}", look=look)


def garden_path_section(rows: Sequence[RunMetrics], looks: Looks) -> Section | None:
    """Bits of garden paths against people's milliseconds, and all effects; None if none was measured."""
    found = {row.name: row.values for row in rows if row.of("effect_bits")}
    if not found:
        return None
    others = {f"published {name}": effect_values(measure_effects(bits)) for name, bits in published().items()}
    points = [point for name, values in others.items() for point in _effects(name, values)]
    points += [point for name, values in found.items() for point in _effects(name, values, looks[name])]
    axes = Axes(title="garden paths in bits and milliseconds", x="people: ms longer", y="bits")
    return section(
        "garden-paths",
        "Garden paths",
        scatter=scatter_chart(points, axes),
        names={looks[name]: name for name in found},
        published=list(others),
    )


def _effects(name: str, values: Values, look: int | None = None) -> list[Point]:
    points = []
    for effect in (one for one in EFFECTS if one.subset == "garden-path"):
        for region in REGIONS:
            bits, people = values.get(f"effect_bits, {effect.name}, {region}"), human_effects()[effect.name, region, ""]
            if bits is not None and people.ms > 0:
                tip = f"{name}: {effect.title}, word {region}: {bits:+.2f} bits, {people.ms:.0f} ms"
                points.append(Point(people.ms, bits, tip, look=look))
    return points
