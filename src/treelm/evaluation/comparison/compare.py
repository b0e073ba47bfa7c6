"""Rows from runs and from kept comparisons, and what must be known to read them side by side."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from treelm.errors import InputError
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.measure import FOLDER, Measurement, ShowProgress, check_data
from treelm.evaluation.comparison.metrics import FILE_NAME as _FILE_NAME
from treelm.evaluation.comparison.metrics import Comparison, RunMetrics
from treelm.evaluation.comparison.settings import Settings
from treelm.io.terminal import doing
from treelm.models import system_of_file
from treelm.models.perplexity import UNCONVERGED
from treelm.models.persistence import shipped
from treelm.models.persistence.hub import name_parts
from treelm.models.persistence.storage import is_foreign, weight_files
from treelm.models.search.config import SearchConfig
from treelm.training.run_folder import check_name

WIDER = f"a wider search ({SearchConfig().wider})"
"""What lowers an upper bound."""
FEW_STEPS, FEW_SECONDS = 1000, 15.0
"""Below both, a model has hardly been trained: a trial of whether everything works."""


def compare(
    sources: Sequence[Path], settings: Settings, show: ShowProgress, *, keep_in: Path | None = None
) -> Comparison:
    """Compare sources, each of them a run folder, a model of the package by its name, or a kept comparison (.json).

    Every run is measured, and gives a row; a kept comparison gives the rows that it has. What takes long is kept in
    the folder ``keep_in``, or in each run folder if there is none; nothing is written into the package, into a folder
    of another program, or into one that is read-only. ``show`` shows progress. Raises ``InputError`` for a source that
    is neither a run nor a comparison, for one that is given twice, and for a run whose recipe lacks data of the split.
    """
    if not sources:
        raise InputError("nothing to compare", remedy="give run folders")
    if keep_in is not None and keep_in.exists() and not keep_in.is_dir():
        raise InputError("not a folder", where=str(keep_in), remedy="give the name of a folder")
    materials = settings.load()
    sources = [_found(source) for source in sources]
    kept_ones = {source: Comparison.load(source) for source in sources if _is_comparison(source)}
    runs = [source for source in sources if source not in kept_ones]
    for run in runs:
        check_data(run, settings)
    rows: list[RunMetrics] = []
    names = row_names(runs)
    for source in sources:
        if source in kept_ones:
            rows += kept_ones[source].runs
        else:
            is_ours = not shipped.is_shipped_folder(source) and not is_foreign(source)
            folder = keep_in or (source if is_ours and os.access(source, os.W_OK) else None)
            kept = None if folder is None else MetricCache(folder / FOLDER)
            with doing(f"measuring {names[source]}"):
                rows.append(Measurement(source, names[source], settings, kept, show).metrics(materials))
    taken: set[str] = set()
    for number, row in enumerate(rows):  # numbers distinguish rows of one name, such as a run and what was kept of it
        tries = (f"{row.name} ({again})" if again > 1 else row.name for again in count(1))
        name = next(one for one in tries if one not in taken)
        taken.add(name)
        rows[number] = replace(row, name=name)
    made = kept_ones[sources[0]].made if len(sources) == len(kept_ones) == 1 else {}
    found = Comparison(runs=tuple(rows), notes=tuple(notes_on(rows)), made=made)
    return ComparisonFrame.of(found).with_uncertainty()


def _is_comparison(source: Path) -> bool:
    """Tell whether this is a file, but not the model of another program."""
    return source.is_file() and system_of_file(source) is None


def _found(source: Path) -> Path:
    """Find the run folder or the file of a source. Raises ``InputError`` if it is neither a model nor a comparison."""
    if _is_comparison(source):
        if source.suffix != ".json":
            remedy = 'give runs, or comparison.json of treelm compare; data = "FILE" is what runs are evaluated on'
            raise InputError("neither a run nor a comparison", where=str(source), remedy=remedy)
        return source
    run = shipped.find_run(source)
    if not weight_files(run):
        kept = run / _FILE_NAME
        train = "finish training with `treelm train --resume`, or remove this folder"
        remedy = f"give {kept}" if kept.is_file() else train
        raise InputError("no trained model here", where=str(run), remedy=remedy)
    return run


def row_names(runs: Sequence[Path]) -> dict[Path, str]:
    """Name each run by its folder, with as many of the folders above it as make all names different.

    Raises ``InputError`` if a run is given twice.
    """
    whole = {run: name_parts(run) for run in runs}
    if len(set(whole.values())) < len(runs):
        raise InputError("the same run twice", remedy="give each run once")
    length = 1
    while len({parts[-length:] for parts in whole.values()}) < len(runs):
        length += 1
    names = {run: "/".join(parts[-length:]) for run, parts in whole.items()}
    for name in names.values():
        check_name(name)
    return names


def display_names(models: Sequence[tuple[str, str]]) -> list[str]:
    """What to call models that are given as (system, name of the run): the system, and the run if several are of one.

    >>> display_names([("rnng", "demo"), ("lstm", "big"), ("lstm", "small")])
    ['rnng', 'lstm (big)', 'lstm (small)']
    """
    counts = Counter(system for system, _ in models)
    return [system if counts[system] == 1 else f"{system} ({name})" for system, name in models]


def hardly_trained(rows: Sequence[RunMetrics]) -> Iterator[str]:
    """Yield a warning if models were trained for fewer than ``FEW_STEPS`` steps and ``FEW_SECONDS`` seconds."""
    ends = ((row.name, row.loss_curve[-1]) for row in rows if row.loss_curve)
    found = [
        f"{name} ({end.step:,} step{'s' * (end.step != 1)} in {end.seconds:.0f} s)"
        for name, end in ends
        if 0 < end.step < FEW_STEPS and end.seconds < FEW_SECONDS  # at step 0, n-grams were counted
    ]
    if found:
        yield f"hardly trained: figures show that everything works and mean nothing else: {', '.join(found)}"


def notes_on(rows: Sequence[RunMetrics]) -> Iterator[str]:
    """Yield notes on metrics: which mean nothing, which do not compare between rows, and how they were measured."""
    yield from hardly_trained(rows)
    scored = [row for row in rows if "perplexity" in row.values]
    parsed = [row for row in rows if row.gold_trees is not None]
    differ = "perplexities do not compare between groups of rows with other"
    yield from _differing(scored, f"{differ} vocabularies (so other unknown words)", lambda row: row.vocabulary)
    yield from _differing(scored, f"{differ} texts", lambda row: row.text)
    known = [row for row in rows if row.data_identity]
    yield from _differing(known, "trained on other data (words or trees)", lambda row: row.data_identity.get("train"))
    yield from _differing(parsed, "F1 does not compare between rows with other gold trees", lambda row: row.gold_trees)
    yield from _differing(parsed, "F1 does not compare between rows with other texts", lambda row: row.text)
    for test in dict.fromkeys(test for row in rows for test in row.of("num_pairs")):
        read = [row for row in rows if test in row.of("num_pairs")]
        said = f"{test} has other pairs in some rows, which do not compare"
        yield from _differing(read, said, lambda row, test=test: row.of("num_pairs")[test])  # type: ignore[misc]
    bounds = [row for row in scored if row.is_upper_bound]
    if bounds:
        yield (
            f"perplexities with ≤ are upper bounds: a search finds part of the probability, and {WIDER} may find more. "
            "One above another row, or beside another bound, leaves the order open"
        )
    unknown = [row.name for row in bounds if UNCONVERGED.replace(" ", "_") not in row.values]
    if unknown:
        yield f"a fixed beam does not tell which words have converged, an adaptive one does: {', '.join(unknown)}"
    threads = {row.scoring_threads for row in rows if row.scoring_threads is not None}
    if threads:
        yield f"words a second of scoring: on the processor, with {' or '.join(map(str, sorted(threads)))} thread(s)"
    of_rows: dict[str, list[str]] = {}
    for row in rows:
        for note in filter(None, (row.search, *row.notes)):
            of_rows.setdefault(note, []).append(row.name)
    for note, names in of_rows.items():
        yield note if len(names) == len(rows) else f"{note}: {', '.join(names)}"


def _differing(rows: Sequence[RunMetrics], said: str, key: Callable[[RunMetrics], object]) -> Iterator[str]:
    """Yield a note if rows differ in a key: what is ``said`` and the names of the rows, in groups with equal keys."""
    groups: dict[object, list[str]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row.name)
    if len(groups) > 1:
        yield f"{said}: {' | '.join(map(', '.join, groups.values()))}"
