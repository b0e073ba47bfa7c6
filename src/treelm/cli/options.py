"""Arguments that several subcommands have, and how the model and the input that they name are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from treelm.cli.arguments import Named, Positional, note
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError, choose_from
from treelm.io.files import STDIN
from treelm.models.capabilities import Searching, set_search
from treelm.models.search.config import ADAPTIVE, WIDTHS, SearchConfig, SearchOptions

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel
    from treelm.models.layers.devices import DeviceName

RUN_HELP = (
    "Folder of a trained model, the name of one that comes with the package (treelm models), or hf:NAME_OR_FOLDER."
)
RunFolder = Annotated[str, Positional("RUN", help=RUN_HELP)]
InputFile = Annotated[str, Positional("FILE")]
RunsAndFile = Annotated[tuple[str, ...], Positional("RUN ... FILE")]
Runs = Annotated[tuple[str, ...], Positional("RUN")]
OutputFile = Annotated[str, Named("--output", ("-o",))]
OutputPath = Annotated[str, Named("--output", ("-o", "--out"))]
FileFormat = Literal["auto", "text", "brackets", "conllu"]
SpanProtocol = Literal["wsj10", "klein", "wsj40", "plain", "no-punctuation", "binarised"]


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options of reading the input."""

    format: FileFormat = "auto"
    """Format of the file. auto: by its name; standard input is text. Text that begins like trees is refused."""
    tags: Literal["present", "absent"] = "present"
    """Presence of a part-of-speech tag over each word in brackets."""
    on_error: Literal["raise", "skip"] = "raise"
    """raise: stop at the first bad sentence. skip: leave it out, report all at the end, exit with code 3."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(SearchOptions):
    """Options of loading a run. Systems that score without a search have no widths, and a note says so."""

    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Device that computes. auto: on a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of computing elsewhere."""

    processes: int = 1
    """Processes of this machine that share the work; changes no result."""
    cluster: str = ""
    """Instead of processes: the workers of a Dask cluster. The address of its scheduler (tcp://HOST:PORT), or its
    scheduler file. Workers read the run under the same path as here (docs/cluster.md)."""


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(ModelOptions, WorkerOptions):
    """Options of scoring sentences."""

    tokenisation: Literal["treebank", "blanks"] = "treebank"
    """treebank: cut off punctuation and clitics (n't, 's), as treebanks do. blanks: cut at blanks only."""
    batch_size: int = 16
    """Sentences computed together; changes no result."""
    json: bool = False
    """Write the metrics as JSON, unrounded."""


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Options of reading files of minimal pairs."""

    good: str = ""
    """Of pairs: column of the grammatical sentences; without it, that of BLiMP or of Marvin & Linzen."""
    bad: str = ""
    """Of pairs: column of the ungrammatical sentences."""
    group_by: tuple[str, ...] = ()
    """Of pairs: columns to group by; without it, those of BLiMP or of Marvin & Linzen."""
    max_pairs_per_group: int | None = None
    """Only the first pairs of every group of the first grouping (BLiMP: of every paradigm)."""


@dataclass(frozen=True, kw_only=True)
class WideTables:
    """Options of tables in the terminal."""

    wide: bool = False
    """One table with all columns, however wide, instead of parts that fit the terminal."""


@dataclass(frozen=True, kw_only=True)
class ModelNames:
    """Options of naming several models."""

    names: tuple[str, ...] = ()
    """Names of the models, one a run; without it, those of their folders."""


def runs_and_file(inputs: Sequence[str], *, may_be_stdin: bool) -> tuple[tuple[str, ...], str]:
    """Return the runs that are named, and last the file; standard input where a single run may stand alone.

    Raises ``InputError`` if the file is missing.
    """
    from treelm.models.persistence.shipped import is_shipped_name

    if len(inputs) == 1:
        if not may_be_stdin:
            raise InputError(f"no file after the run {inputs[0]}", remedy="name the file last")
        return tuple(inputs), STDIN
    *runs, file = inputs
    if is_shipped_name(file) and not Path(file).exists():
        raise InputError(f"no file, but a run: {file}", remedy="name the file last, or - for standard input")
    return tuple(runs), file


def model_names(given: Sequence[str], runs: Sequence[str], *, in_columns: bool = False) -> list[str]:
    """Return the names of the models of runs: those given, else those of the folders.

    Where they are to end the names of columns (``in_columns``), they are written as R and pandas take them.

    Raises ``InputError`` for too many or too few names, and for two models of one name.
    """
    if given and len(given) != len(runs):
        raise InputError(f"{len(given)} names for {len(runs)} runs", remedy="give one name a run")
    folders = [Path(run).name or Path(run).resolve().name for run in runs]
    names = list(given or ([re.sub(r"\W+", "_", folder) for folder in folders] if in_columns else folders))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"two models of the name {twice[0]!r}", remedy="give --names, one a run")
    return names


def reference_names(given: Sequence[str], published: Iterable[str], usual: Sequence[str]) -> list[str]:
    """The published models of a --references that is names, all, or none; without it, the usual ones.

    Raises ``InputError`` for a name that is none of them.
    """
    known = list(published)
    if not given:
        return list(usual)
    if len(given) > 1 and {"all", "none"} & set(given):
        raise InputError("all or none beside names of published models", remedy="give all, none, or names")
    if given in (("all",), ("none",)):
        return known if given == ("all",) else []
    for name in given:
        if name not in known:
            remedy = choose_from(name, known) if known else "none are here"
            raise InputError(f"no published model {name!r}", remedy=remedy)
    return list(dict.fromkeys(given))


def refuse_lost(options: Any, names: Iterable[str], why: str, *, remedy: str) -> None:
    """Raise ``InputError`` for the first of these options that says something else than without it: it has no effect.

    ``names`` are fields of a subcommand's arguments; ``why`` is what follows the flag, such as "without --data".
    """
    usual = {one.name: one.default for one in fields(options)}
    for name in names:
        if getattr(options, name) != usual[name]:
            raise InputError(f"--{name.replace('_', '-')} {why}", remedy=remedy)


def device_here(options: ModelOptions) -> DeviceName:
    """Return where this process computes: with a cluster, --device says where its workers do."""
    return "cpu" if isinstance(options, WorkerOptions) and options.cluster else options.device


def workers(options: Any, run: str) -> dict[str, Any]:
    """Return what ``model_workers`` is told of a subcommand's ``ModelOptions`` and ``WorkerOptions``, and of a run."""
    return {"run": run, **{name: getattr(options, name) for name in ("processes", "cluster", "device")}}


def note_lost_widths(run: str, system: type[LanguageModel], options: ModelOptions) -> None:
    """Print a note if widths are given for a run that scores without a search: they change nothing."""
    lost = [f"--{name.replace('_', '-')}" for name in WIDTHS if getattr(options, name) is not None]
    if lost and not issubclass(system, Searching):
        change = "changes" if len(lost) == 1 else "change"
        note(f"{run}: {system.system} scores without a search, so {' and '.join(lost)} {change} nothing")


def said_impossible(lm: LanguageModel, found: str) -> str:
    """Line about what has been found to have probability 0, by the model or because its search kept nothing."""
    if isinstance(lm, Searching):
        return f"{found}: the model, or what its search kept, gives them probability 0; try a wider beam"
    return f"{found}: the model gives them probability 0"


@contextmanager
def naming_run(run: str) -> Iterator[None]:
    """Give each ``InputError`` that has no place the name of a run."""
    try:
        yield
    except InputError as error:
        raise InputError(error.found, where=error.where or run, remedy=error.remedy) from None


def require_words(run: str, lm: LanguageModel) -> None:
    """Raise ``InputError`` that names the run if its model gives words no probabilities."""
    with naming_run(run):
        lm.require_words()


def load_to_search(run: str, options: ModelOptions) -> LanguageModel:
    """The model of a run, which searches as its recipe says and the options change it."""
    from treelm.inference.loading import run_search

    return _load(run, options, options.changed(run_search(run)))


def load_adaptive(run: str, options: ModelOptions, threshold: float | None) -> LanguageModel:
    """The model of a run with the adaptive beam; with a fixed one if widths are given and no threshold.

    Raises ``InputError`` for a threshold, or settings of a search, that cannot be.
    """
    from treelm.inference.loading import run_search

    if threshold is None and options.search in (None, "beam") and not options.gives_widths():
        threshold = ADAPTIVE.threshold
    usual = run_search(run) if threshold is None else replace(ADAPTIVE, threshold=threshold)
    if options.search is None:  # a beam, of the recipe's widths
        usual = SearchConfig(**{name: getattr(usual, name) for name in (*WIDTHS, "threshold")})
    return _load(run, options, options.changed(usual))


def _load(run: str, options: ModelOptions, search: SearchConfig) -> LanguageModel:
    from treelm.inference.loading import load

    lm = load(run, device=device_here(options))
    note_lost_widths(run, type(lm), options)
    with naming_run(run):
        set_search(lm, search)
    return lm


def in_words(lm: LanguageModel) -> str:
    """Description such as "rnng, beam 100/10/1"; of a system that does not search, its name alone."""
    return f"{lm.system}, {lm.search}" if isinstance(lm, Searching) else lm.system


def read_input(
    path: str, options: InputOptions, skipped: list[InputError], *, empty_lines: bool = False
) -> Iterator[Sentence]:
    """The sentences of a file or of standard input; bad ones go to ``skipped`` if the options say so."""
    is_guess = path == STDIN and options.format == "auto"
    format: Any = "text" if is_guess else options.format
    return read_sentences(
        path,
        format=format,
        tags=options.tags,
        empty_lines=empty_lines,
        is_guess=is_guess,
        on_error=options.on_error,
        skipped=skipped if options.on_error == "skip" else None,
    )
