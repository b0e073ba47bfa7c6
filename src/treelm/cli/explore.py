"""``treelm explore``."""

from __future__ import annotations

import secrets
import webbrowser
from dataclasses import dataclass

from treelm.cli.options import ModelOptions, Runs
from treelm.errors import import_extra
from treelm.io.terminal import log

_AT_FIRST = 3  # models that read before any is chosen, in a row of all


@dataclass(frozen=True, kw_only=True)
class Arguments(ModelOptions):
    """A page on this machine: type a sentence, and watch models read it word by word.

    Surprisal of every word, what comes next, trees, the beam of a search as partial trees, and what trees follow from;
    a click on a word goes back to the moment after it. The page is served to browsers of this machine alone, below an
    address that nobody can guess, until Ctrl-C. Needs pip install 'treelm[explore]'.

    Example: treelm explore
    Example: treelm explore rnng-gum-open lstm-gum-open runs/demo
    """

    runs: Runs = ()
    """Folders of trained models, or names of models that come with the package; without any, all of these, the first
    three of them selected."""
    port: int = 0
    """Port of the page; 0: any that is free."""
    open_page: bool = False
    """Open the page in a browser."""
    max_words: int = 60
    """Most words of a sentence; a text may have eight times as many."""
    max_seconds: float = 60.0
    """Most seconds that a model may take for a text."""
    split_sentences: str = "en"
    """Language (en, de, ...) by whose rules the sentences of a text are found; languages but English need pip install
    'treelm[sentences]'. "": each line is a sentence."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    for library in ("starlette", "uvicorn", "blingfire"):
        import_extra(library, "explore")
    from treelm.explorer.sentences import Limits
    from treelm.models.persistence.shipped import PURPOSES, find_run, shipped_names

    limits = Limits(
        max_words=options.max_words, max_seconds=options.max_seconds, split_sentences=options.split_sentences
    )
    installed = shipped_names()
    usual = sorted(installed, key=[*PURPOSES, *installed].index)  # those to take first are first
    runs = {find_run(run): run for run in options.runs or usual}
    import torch

    from treelm.evaluation.comparison.compare import row_names
    from treelm.explorer.reading import Reader
    from treelm.explorer.server import serve

    torch.set_num_threads(1)  # models compute side by side, each in a thread of its own
    names = row_names([find_run(run) for run in options.runs] or list(runs))
    readers = []
    for number, (path, run) in enumerate(runs.items()):
        lm, name = options.load(run), names[path]
        name = name if lm.system in name else f"{name} ({lm.system})"
        readers.append(Reader(name, lm, is_on=bool(options.runs) or number < _AT_FIRST))

    def ready(address: str) -> None:
        for line in (", ".join(reader.name for reader in readers), f"open {address}", "Ctrl-C ends it"):
            log(line)
        if options.open_page:
            webbrowser.open(address)

    serve(readers, limits, port=options.port, token=secrets.token_urlsafe(24), ready=ready)
    return 0
