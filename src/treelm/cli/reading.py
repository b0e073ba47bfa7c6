"""``treelm reading``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.cli.arguments import as_typed, refuse
from treelm.cli.files import check_items, report_skipped, skip_list, write_table
from treelm.cli.surprisal_sources import SourceOptions
from treelm.errors import InputError, nearest
from treelm.evaluation.human.columns import Design, TableColumns
from treelm.inference.settings import Context
from treelm.io.terminal import log

if TYPE_CHECKING:
    from treelm.evaluation.human.corpora import ReadingCorpus


@dataclass(frozen=True, kw_only=True)
class Arguments(Design, TableColumns, SourceOptions):
    """Prediction of reading times: what surprisals add to length, frequency, punctuation and place, in nats a word.

    Held out by story or document, with its interval; by word class; over other models; slopes in ms a bit; whether the
    effect is linear. All models are compared on the words that every one of them has. Needs pip install
    'treelm[reading]'. docs/reading.md has more, and where to get the corpora, which may not be shipped.

    Example: treelm reading runs/demo lstm-gum-open --corpus natural-stories --data naturalstories
    Example: treelm reading gpt2 rnng-gum-open --over gpt2 --corpus natural-stories --data naturalstories
    Example: treelm reading runs/demo --corpus times.csv --sentence-column item --response-columns rt
    """

    corpus: str
    """natural-stories, ucl, or a table with one row a word: CSV, TSV or the first sheet of an .xlsx."""
    data: str = ""
    """Folder of the corpus."""
    context: Context = "sentence"
    """document: what came before in the document counts, for systems that read streams and models trained to read
    documents."""
    over: tuple[str, ...] = ()
    """Models to add every other one to, and the reverse: what one has that the other lacks."""
    export: str = ""
    """Table of the regression to write, for mixed models and others elsewhere: .csv or .tsv."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.configs import to_plain
    from treelm.evaluation.human import ucl
    from treelm.evaluation.human.reading import Regression, check_names
    from treelm.evaluation.human.regression import require_library
    from treelm.figures.human_tables import reading_tables

    require_library()
    check_items(options.export, [options.corpus, *options.table_files()])
    skipped = skip_list(options)
    corpus = _load(options, skipped)
    for line in corpus.notes:
        log(f"{corpus.name}: {as_typed(line)}")
    if len(options.response_columns) > 1 and not options.response:
        first, number = options.response_columns[0], len(options.response_columns)
        what = f"{first} is predicted, the first of {number} columns of times"
        log(f"{corpus.name}: {what}; --response names another")
    sources = options.sources(corpus, corpus.published, corpus.references, options.context)
    check_names([name for name, _ in sources], options.over)
    Regression(corpus, design=options)  # errors of the design are reported before minutes of scoring
    models = [load() for _, load in sources]
    for model in models if options.known_only else ():
        if model.kind == "table" and not model.says_unknown:
            log(f"{model.name}: its table has no column is_unk, so all of its words count as known")
    regression = Regression(corpus, models, options)
    result = regression.measure(options.over)
    if result.baseline_log_likelihood < result.constant_log_likelihood:
        lost = "the baseline predicts held-out times worse than their mean does: gains over it mean little"
        log(f"{corpus.name}: {lost}")
    scores = [ucl.reading_score(corpus, model) for model in models] if corpus.name == ucl.NAME else []
    if options.export:
        write_table(options.export, regression.to_frame())
        log(f"wrote {options.export}")
    values = {**to_plain(result), "babylm": [to_plain(score) for score in scores]}
    options.show(values, *reading_tables(result, scores))
    return report_skipped(skipped)


def _load(options: Arguments, skipped: list[InputError] | None) -> ReadingCorpus:
    """The corpus by its name, or a table; raises ``InputError`` for options of another kind of corpus."""
    from treelm.evaluation.human import natural_stories, reading_tables, ucl

    loaders = {natural_stories.NAME: natural_stories.load, ucl.NAME: ucl.load}
    if options.corpus not in loaders:
        refuse(options, ("data",), "with a table")
        if not Path(options.corpus).is_file():
            near = nearest(options.corpus, loaders)
            remedy = f"{near}name {' or '.join(loaders)}, or give a table"
            raise InputError(f"no corpus {options.corpus!r}", remedy=remedy)
        return reading_tables.load(Path(options.corpus), options, skipped)
    refuse(options, [one.name for one in fields(TableColumns)], f"with {options.corpus}")
    return loaders[options.corpus](options.data)
