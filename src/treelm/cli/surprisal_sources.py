"""Models whose surprisals meet human data: runs, tables of other programs, and published models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from treelm.cli.arguments import Positional, note
from treelm.cli.files import progress_bar
from treelm.cli.options import ModelOptions, WorkerOptions, in_words, load_adaptive, reference_names, require_words
from treelm.errors import InputError
from treelm.io.tables import TABLES
from treelm.models.capabilities import DocumentContext, has, why_not

if TYPE_CHECKING:
    from treelm.evaluation.human.material import Material, Surprisals
    from treelm.models.base import LanguageModel


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ModelOptions, WorkerOptions):
    """Options of scoring what people read."""

    runs: Annotated[tuple[str, ...], Positional("RUN")] = ()
    """Runs, or names of models that come with the package; tables of surprisals (FILE, or FILE:COLUMN, in bits); names
    of published models."""
    references: tuple[str, ...] = ()
    """Published models beside them: names, all, or none; without it, the usual ones of the material."""
    punctuation: Literal["as-given", "summed", "left-out"] = "summed"
    """Of words such as "dog," and "don't", as in treelm surprisal: what the model reads, and which bits count."""
    as_written: bool = False
    """Leave quotation marks and dashes as they are. Without it, words are written as training text was."""
    threshold: float | None = None
    """Of a search: nats below all analyses together at which one is dropped, as in treelm surprisal."""
    batch_size: int = 16
    """Sentences computed together; changes no result."""
    json: bool = False
    """Write the metrics as JSON, unrounded."""


def gather_surprisals(
    options: SourceOptions,
    material: Material,
    published: Mapping[str, Surprisals],
    usual: Sequence[str],
    *,
    context: Literal["sentence", "document"] = "sentence",
) -> list[Surprisals]:
    """The surprisals of the published models that are asked for and of all that stand where a run can.

    Raises ``InputError`` for a name that is nothing, before anything is scored.
    """
    from treelm.evaluation.human.material import read_surprisals
    from treelm.inference.loading import model_hash
    from treelm.models.persistence.shipped import find_run

    beside = reference_names(options.references, published, usual)
    kinds = {source: _kind(source, published) for source in options.runs}
    for source, kind in kinds.items():
        if kind == "run":
            model_hash(find_run(source, published=published))  # says what is missing
    found = {name: published[name] for name in (*beside, *(one for one, kind in kinds.items() if kind == "published"))}
    models = list(found.values())
    for source, kind in kinds.items():
        if kind == "table":
            path, column = _table(source)
            models.append(read_surprisals(path, material, **({"column": column} if column else {})))
        elif kind == "run":
            models.append(score_run(source, options, material, context=context))
    return models


def source_names(options: SourceOptions, published: Mapping[str, Surprisals], usual: Sequence[str]) -> list[str]:
    """The names of what ``gather_surprisals`` gives, known before anything is read or scored."""
    from treelm.evaluation.human.material import table_name

    names = reference_names(options.references, published, usual)
    for source in options.runs:
        kind = _kind(source, published)
        if kind != "published":
            names.append(table_name(*_table(source)) if kind == "table" else _run_name(source))
        elif source not in names:
            names.append(source)
    return names


def table_files(options: SourceOptions) -> list[Path]:
    """The files among what stands where a run can."""
    return [path for path, _ in map(_table, options.runs) if path.is_file()]


def _run_name(run: str) -> str:
    return Path(run).name or run


def _kind(source: str, published: Mapping[str, Surprisals]) -> Literal["run", "table", "published"]:
    """What a source is: a folder before a file, before a published model, before a model of the package.

    Raises ``InputError`` for the name of a table that is not there.
    """
    if Path(source).is_dir():
        return "run"
    if _table(source)[0].is_file():
        return "table"
    if Path(source.partition(":")[0].removesuffix(".gz")).suffix.lower() in TABLES:
        raise InputError("no such table", where=source, remedy="check the path")
    return "published" if source in published else "run"


def _table(source: str) -> tuple[Path, str]:
    """The file and the column of FILE or FILE:COLUMN."""
    head, colon, column = source.rpartition(":")
    if colon and not Path(source).is_file() and Path(head).is_file():
        return Path(head), column
    return Path(source), ""


def score_run(
    run: str,
    options: SourceOptions,
    material: Material,
    *,
    context: Literal["sentence", "document"] = "sentence",
    set_search: Callable[[LanguageModel], str] | None = None,
    columns: Sequence[str] = (),
) -> Surprisals:
    """Score a material by a run, and say what was unknown, impossible or not converged.

    ``set_search`` sets another search than the options do, and names it; ``columns`` are kept if the system has them.
    """
    from treelm.corpora.running_text import normalise
    from treelm.evaluation.human.material import score_material
    from treelm.inference.processes import model_workers, score
    from treelm.inference.stimulus_advice import listed
    from treelm.inference.surprisal import CONVERGED

    lm = load_adaptive(run, options, options.threshold)
    require_words(run, lm)
    search = in_words(lm) if set_search is None else set_search(lm)
    kept = tuple(name for name in (CONVERGED, *columns) if name in lm.word_columns)
    bar = progress_bar(f"{run}: scoring {material.name}", len(set(material.sentences)))
    elsewhere = model_workers(
        score, lm, run=run, processes=options.processes, cluster=options.cluster, device=options.device
    )
    with elsewhere as compute, bar as advance:
        found = score_material(
            lm,
            material,
            name=_run_name(run),
            punctuation=options.punctuation,
            context=context,
            normalise=str if options.as_written else normalise,
            columns=kept,
            batch_size=options.batch_size,
            compute=compute,
            on_sentence=advance,
        )
    counts = {
        "of several words in one cell": sum(len(word.split()) > 1 for word in material.words),
        "unknown": int(found.is_unknown.sum()),
        "impossible": int((~found.is_there).sum()),
        "not converged": int((found.columns[CONVERGED] == 0).sum()) if CONVERGED in kept else 0,
    }
    written = set(material.words if options.as_written else map(normalise, material.words))
    spelled = {character for word in written for character in lm.vocabulary.spelled(word)}
    if context == "document" and not has(lm, DocumentContext):
        note(f"{run}: {why_not(lm, DocumentContext)}")
    if spelled:
        what = "words with characters of which it has no piece are read byte by byte, as by spelling"
        note(f"{run}: {what}: {listed(spelled)}")
    told = "".join(f", {count} {what}" for what, count in counts.items() if count)
    note(f"{run}: {search}; {len(material)} words{told}")
    return found
