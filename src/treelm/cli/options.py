"""Options that several subcommands have, and how the models and the input that they name are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from treelm.cli.arguments import Positional
from treelm.cli.files import print_json
from treelm.corpora.options import FileFormat, TreebankOptions
from treelm.errors import InputError, choose_from
from treelm.inference.settings import DeviceSettings, WorkerSettings
from treelm.io.files import STDIN
from treelm.io.terminal import log
from treelm.models.capabilities import Searching, set_search
from treelm.models.search.options import BeamSizes, SearchOptions

if TYPE_CHECKING:
    from treelm.corpora.readers import ReadOptions
    from treelm.corpora.sentence import Sentence
    from treelm.inference.batching import Compute
    from treelm.models.base import LanguageModel

RUN_HELP = (
    "Folder of a trained model, the name of one that comes with the package (treelm models), or hf:NAME_OR_FOLDER."
)
RunFolder = Annotated[str, Positional("RUN", help=RUN_HELP)]
InputFile = Annotated[str, Positional("FILE")]
RunsAndFile = Annotated[tuple[str, ...], Positional("RUN ... FILE")]
Runs = Annotated[tuple[str, ...], Positional("RUN")]
Output = Annotated[str, "-o"]


@dataclass(frozen=True, kw_only=True)
class InputOptions(TreebankOptions):
    """Options of reading the input."""

    format: FileFormat = "auto"
    """Format of the file. auto: by its name; standard input is text. Text that begins like trees is refused."""
    tags: Literal["present", "absent"] = "present"
    """Presence of a part-of-speech tag over each word in brackets."""
    on_error: Literal["raise", "skip"] = "raise"
    """raise: stop at the first bad sentence. skip: leave it out, report all at the end, exit with code 3."""

    def read_options(self) -> ReadOptions:
        """The options of reading files: those that this subcommand has, the others by default."""
        from treelm.corpora.readers import ReadOptions

        names = [one.name for one in fields(ReadOptions) if hasattr(self, one.name)]
        return ReadOptions(**{name: getattr(self, name) for name in names})

    def read(self, path: str, skipped: list[InputError] | None, *, empty_lines: bool = False) -> Iterator[Sentence]:
        """The sentences of a file or of standard input, as ``read_sentences`` reads them with these options."""
        from treelm.corpora.readers import read_sentences

        return read_sentences(path, self.read_options(), skipped=skipped, empty_lines=empty_lines)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(SearchOptions, DeviceSettings):
    """Options of loading a run. Systems that score without a search have no widths, and a note says so."""

    def load(self, run: str, *, predicts_words: bool = False) -> LanguageModel:
        """Load the model of a run; it searches as its recipe says, changed by these options.

        Raises ``InputError`` that names the run, with ``predicts_words`` also for a model that gives words no
        probabilities.
        """
        from treelm.inference.loading import load
        from treelm.models.search.config import SearchConfig  # here, as help needs no checks of a config

        lm = load(run, device=self.device)
        self.note_lost_widths(run, type(lm))
        try:
            if self.given_search():
                set_search(lm, self.changed(lm.search if isinstance(lm, Searching) else SearchConfig()))
            if predicts_words:
                lm.require_words()
        except InputError as error:
            raise InputError(error.found, where=error.where or run, remedy=error.remedy) from None
        return lm

    def note_lost_widths(self, run: str, system: type[LanguageModel]) -> None:
        """Print a note if sizes of a beam are given for a run that scores without a search: they change nothing."""
        lost = [f"--{name.replace('_', '-')}" for name in BeamSizes._fields if getattr(self, name) is not None]
        if lost and not issubclass(system, Searching):
            change = "changes" if len(lost) == 1 else "change"
            log(f"{run}: {system.system} scores without a search, so {' and '.join(lost)} {change} nothing")


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(ModelOptions, WorkerSettings):
    """Options of computing with a run, in one process or several."""

    def workers(self, run: str) -> AbstractContextManager[Compute]:
        """Give what computes with the model of a run: this process, or several others."""
        from treelm.inference.batching import model_workers

        return model_workers(run, self.processes)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of tables in the terminal."""

    json: bool = False
    """Write the figures as JSON, unrounded."""
    wide: bool = False
    """One table with all columns, however wide, instead of parts that fit the terminal."""

    def show(self, values: object, *tables: Any) -> None:
        """Print figures, as JSON or as tables."""
        from treelm.figures.tables import print_table

        if self.json:
            print_json(values)
        else:
            print_table(*tables, wide=self.wide)


@dataclass(frozen=True, kw_only=True)
class ModelNames:
    """Options of naming several models."""

    names: tuple[str, ...] = ()
    """Names of the models, one a run; without it, those of their folders."""

    def names_of(self, runs: Sequence[str], *, in_columns: bool = False) -> list[str]:
        """The names of the models of some runs: those that are given, else the names of the folders.

        With ``in_columns`` they will end the names of columns, and are written so that R and pandas accept them. Raises
        ``InputError`` for too many or too few names, for two models of one name, and for one that cannot be seen.
        """
        if self.names and len(self.names) != len(runs):
            raise InputError(f"{len(self.names)} names for {len(runs)} runs", remedy="give one name a run")
        for name in self.names:
            if not name.strip() or not name.isprintable():
                raise InputError(f"the name {name!r}", remedy="give names of letters, digits and marks")
        folders = [Path(run).name or Path(run).resolve().name for run in runs]
        names = list(self.names or ([re.sub(r"\W+", "_", name) for name in folders] if in_columns else folders))
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise InputError(f"two models of the name {twice[0]!r}", remedy="give --names, one a run")
        return names


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(WorkerOptions, ModelNames, TableOptions):
    """Options of scoring the sentences of test material by several runs."""

    batch_size: int = 16
    """Sentences computed together; changes no result."""
    tokenisation: Literal["treebank", "whitespace"] = "treebank"
    """treebank: split off punctuation and clitics (n't, 's), as treebanks do. whitespace: split on it alone."""
    items: str = ""
    """File to write: a row for each item and model, with its bits; .tsv or .csv."""

    def load_each(self, runs: Sequence[str]) -> dict[str, tuple[str, LanguageModel]]:
        """Load the models of all runs: by name, each run with its model.

        All are loaded before the first one scores, so that an error in the last run is reported before any work.
        """
        names = self.names_of(runs)
        return {name: (run, self.load(run, predicts_words=True)) for name, run in zip(names, runs, strict=True)}


def runs_and_file(inputs: Sequence[str], *, may_be_stdin: bool) -> tuple[tuple[str, ...], str]:
    """Divide arguments into the runs and the file, which comes last; a single run may stand alone, for standard input.

    Raises ``InputError`` if there is no file.
    """
    from treelm.models.persistence.shipped import is_shipped_name

    *runs, file = inputs
    if not runs and may_be_stdin:
        return tuple(inputs), STDIN
    if not runs or (is_shipped_name(file) and not Path(file).exists()):
        remedy = f"name the file last{', or - for standard input' * may_be_stdin}"
        raise InputError(f"no file, but a run: {file}", remedy=remedy)
    return tuple(runs), file


def reference_names(given: Sequence[str], published: Iterable[str], usual: Sequence[str]) -> list[str]:
    """The published models that --references names: all, none, or the names given; the usual ones if it is not given.

    Raises ``InputError`` for an unknown name.
    """
    known = list(published)
    if given in (("all",), ("none",)) or not given:
        return {"all": known, "none": []}[given[0]] if given else list(usual)
    for name in given:
        if name not in known:
            raise InputError(f"no published model {name!r}", remedy=choose_from(name, known))
    return list(dict.fromkeys(given))


def impossible(lm: LanguageModel, found: str) -> str:
    """A line about what has been found to have probability 0, by the model or because its search kept nothing."""
    if isinstance(lm, Searching):
        return f"{found}: the model, or what its search kept, gives them probability 0; try {lm.search.wider}"
    return f"{found}: the model gives them probability 0"


def described(lm: LanguageModel) -> str:
    """A name such as "rnng, beam 100/10/1"; of a system that does not search, its name alone."""
    return f"{lm.system}, {lm.search}" if isinstance(lm, Searching) else lm.system
