"""What the verbs that score test material share: the beam, the way text is cut, a progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from treelm.cli.arguments import note
from treelm.cli.files import ModelOptions, WorkerOptions, load_with_beam

if TYPE_CHECKING:
    from treelm.models.base import SyntacticLM


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(ModelOptions, WorkerOptions):
    """How sentences are scored."""

    tokenisation: Literal["treebank", "blanks"] = "treebank"
    """treebank: cut off punctuation and clitics (n't, 's), as treebanks do. blanks: cut at blanks only."""
    batch_size: int = 16
    """Sentences computed together; changes no figure."""
    json: bool = False
    """Write the figures as JSON, unrounded."""


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How files of minimal pairs are read."""

    good: str = ""
    """Of pairs: column of the grammatical sentences; without it, that of BLiMP or of Marvin & Linzen."""
    bad: str = ""
    """Of pairs: column of the ungrammatical sentences."""
    group_by: tuple[str, ...] = ()
    """Of pairs: columns to group by; without it, those of BLiMP or of Marvin & Linzen."""
    max_pairs_per_group: int | None = None
    """Only the first pairs of every group of the first grouping (BLiMP: of every paradigm)."""


def load_for_scoring(run: str, options: ScoringOptions) -> tuple[SyntacticLM, str]:
    """The model of a run with its beam, and both in words."""
    lm, beam = load_with_beam(run, options)
    lm.require_words()
    return lm, in_words(lm, beam)


def in_words(lm: SyntacticLM, beam: dict[str, int]) -> str:
    """Such as "rnng, beam 100/10/1"; of a system that does not search, its name alone."""
    from treelm.models.base import SyntacticLM as Interface

    if type(lm).set_beam is Interface.set_beam:
        return lm.system
    return f"{lm.system}, beam {beam['action_beam']}/{beam['word_beam']}/{beam['fast_track']}"


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on standard error, or a line now and then if it is no terminal; gives what to call after each sentence."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


def _lines(what: str, total: int | None, seconds: float = 30.0) -> Callable[[], None]:
    """A note every so many seconds, so that short work says nothing."""
    done, last = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            note(f"{what}: {done} sentences" if total is None else f"{what}: {done} of {total} sentences")

    return advance
