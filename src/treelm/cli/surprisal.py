"""``treelm surprisal``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treelm.cli.arguments import note, parse
from treelm.cli.files import check_not_input, open_table, progress_bar, report_skipped, write_metadata
from treelm.cli.options import (
    InputOptions,
    ModelNames,
    ModelOptions,
    OutputFile,
    RunsAndFile,
    WorkerOptions,
    load_adaptive,
    model_names,
    read_input,
    refuse_lost,
    require_words,
    runs_and_file,
    said_impossible,
    workers,
)
from treelm.errors import InputError
from treelm.inference.table_settings import TableSettings
from treelm.io.tables import SEPARATORS, TABLES, check_table_name
from treelm.models.capabilities import DocumentContext, Searching, has, why_not
from treelm.models.search.config import SearchConfig

if TYPE_CHECKING:
    from treelm.corpora.sentence import Sentence
    from treelm.inference.predictors import Unigrams
    from treelm.inference.stimuli import Columns, Stimulus
    from treelm.inference.surprisal_table import Findings, NamedModel
    from treelm.models.base import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Arguments(TableSettings, ModelOptions, WorkerOptions, InputOptions, ModelNames):
    """Surprisal in bits of every word of a file, by one model or several: a table with one row a word.

    Columns: sentence_id, word_id, word, surprisal_bits, is_unk, unk_class, num_pieces, char_start, char_end, of an RNNG
    beam_converged (0 where another beam may say otherwise), what --columns asks for, and those of an input table under
    their own names. Text is one sentence a line, words apart by blanks. NA is missing, but a word may be NA, null or
    None too: docs/surprisal.md says how R and pandas keep such words.

    Example: treelm surprisal runs/demo stimuli.txt --output stimuli.tsv
    Example: treelm surprisal runs/demo words.csv --punctuation summed --output words-bits.csv
    Example: treelm surprisal rnng-gum-open lstm-gum-open words.csv --columns word_length --lag 2 -o words.xlsx
    """

    inputs: RunsAndFile
    """One run or several, as treelm models lists or folders of trained models, and last the file: text, brackets,
    CoNLL-U, words or a table. - is standard input; after a single run it may be left out."""
    output: OutputFile = "-"
    """File to write: a name in .tsv, .txt, .csv, .parquet or .xlsx; - is standard output. A file gets run metadata
    beside it, as FILE.json."""
    layout: Literal["auto", "sentences", "words", "table"] = "auto"
    """sentences: as --format says. words: one a line, an empty line after each sentence, two after each document.
    table: CSV (commas or semicolons), TSV or the first sheet of an .xlsx, with a header and one word a row; other
    columns are passed through, own_NAME if NAME is a measure of ours. auto: a table if the file's name ends in .csv,
    .tsv or .xlsx, else sentences."""
    word_column: str = "word"
    """Of a table: the column of the words."""
    sentence_column: tuple[str, ...] = ("sentence_id",)
    """Of a table: the column, or columns, that say which rows are one sentence, such as item condition."""
    document_column: str = ""
    """Of a table: the column that says which sentences are one document; without it, all are."""
    split_sentences: str = ""
    """Language (en, de, ...) of texts whose sentences are to be found: every line, or what --sentence-column says, is
    split, and numbered in the column sentence_number. Needs pip install 'treelm[sentences]'."""
    punctuation: Literal["as-given", "summed", "left-out", "apart"] = "as-given"
    """Of words such as "dog," and "don't": as-given: read as one word. summed: marks and clitics are read as words of
    their own, as in treebanks, and their bits are the word's. left-out: the same without the bits of marks. apart: they
    get rows of their own."""
    threshold: float | None = None
    """Of an RNNG: nats below all analyses together at which one is dropped. Without it, 10 with beams of at most
    1000/100/1, or none if a width is given: then the beam has that width and those of the recipe."""
    separator: Literal["auto", "tab", "comma"] = "auto"
    """Between cells. auto: a comma if --output ends in .csv, a tab if it ends in .tsv or .txt, or is a stream."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm surprisal", arguments)
    from treelm.inference.loading import model_hash
    from treelm.inference.stimulus_advice import advice, long_sentences, note_long
    from treelm.inference.surprisal_table import SurprisalTable, check_columns

    runs, file = runs_and_file(options.inputs, may_be_stdin=True)
    check_not_input((options.output, f"{options.output}.json"), [file, *filter(None, [options.frequencies])])
    check_table_name(options.output)
    separator = _separator(options)
    models = _models(options, runs)
    hashes = [model_hash(run) for run in runs] if options.output != "-" else []  # what is there later may be another
    check_columns({model.name: model.lm for model in models}, options.columns)
    if not options.lag:
        remedy = "add --lag 1 or more, or leave --lag-columns out"
        refuse_lost(options, ("lag_columns",), "without --lag", remedy=remedy)
    skipped: list[InputError] = []
    long: list[Stimulus] = []
    source, stimuli, number = _read(options, file, skipped)
    with ExitStack() as stack:
        computing = [_computing(stack, options, run, one) for run, one in zip(runs, models, strict=True)]
        table = SurprisalTable(computing, options, source)
        advance = stack.enter_context(progress_bar("scoring", number, shares_terminal=options.output == "-"))
        left_out = skipped if options.on_error == "skip" else None
        frames = table.frames(note_long(stimuli, long), left_out, on_sentence=advance)
        first = list(islice(frames, 1))  # before the header: of input that cannot be read nothing is written
        with open_table(options.output, table.names, separator) as write:
            for frame in chain(first, frames):
                write(frame)
    if long:
        remedy = "" if options.split_sentences else "; if it is a text, give --split-sentences en (or another language)"
        note(long_sentences(long) + remedy)
    for own, new in table.renamed.items():
        note(f"the column {own} of {file} is {new} here, beside ours of that name")
    for model, found in zip(models, table.findings, strict=True):
        whose = f"{model.name}: " if len(models) > 1 else ""
        doubts = (f"{whose}{line}" for line in _doubts(options, model, found))
        for line in (*advice(found.words, model.lm.vocabulary, model.name, "--{}"), *doubts):
            note(line)
    if hashes:
        about = metadata(options, runs, hashes, file, models, table.findings, len(skipped))
        write_metadata(options.output, about)
    return report_skipped({str(error): error for error in skipped}.values())


def _models(options: Arguments, runs: Sequence[str]) -> list[NamedModel]:
    """The models by their names."""
    from treelm.inference.predictors import UNIGRAM
    from treelm.inference.surprisal_table import NamedModel

    names, models = model_names(options.names, runs, in_columns=True), []
    for name, run in zip(names, runs, strict=True):
        lm = load_adaptive(run, options, options.threshold)
        require_words(run, lm)
        models.append(NamedModel(name=name, lm=lm, unigrams=_unigrams(run) if UNIGRAM in options.columns else None))
    return models


def _unigrams(run: str) -> Unigrams:
    """Counts of the words that a run was trained on."""
    from treelm.corpora.data_config import prepared_split, with_its_words
    from treelm.inference.predictors import UNIGRAM, Unigrams
    from treelm.training.run_folder import load_run_recipe

    try:
        counts = prepared_split(with_its_words(load_run_recipe(run).data), "train").form_counts()
    except InputError as error:
        remedy = f"leave out {UNIGRAM}, or put its training corpus where its recipe says: {error.remedy}"
        raise InputError(f"no training corpus of {run} ({error.found})", where=error.where, remedy=remedy) from error
    return Unigrams(dict(zip(counts.forms, counts.counts.tolist(), strict=True)))


def _computing(stack: ExitStack, options: Arguments, run: str, model: NamedModel) -> NamedModel:
    """The model with how its scores are computed: here, by other processes, or on a cluster."""
    from treelm.inference.processes import model_workers
    from treelm.inference.surprisal_table import measures_of
    from treelm.models.measures import score_with_measures

    job = partial(score_with_measures, measures=measures_of(options.columns))
    compute = stack.enter_context(model_workers(job, model.lm, **workers(options, run)))
    return replace(model, compute=compute)


def _read(options: Arguments, file: str, skipped: list[InputError]) -> tuple[Columns, Iterator[Stimulus], int | None]:
    """The names of the source's columns, the stimuli, and their number if it is known."""
    from treelm.inference.stimuli import (
        SENTENCE_NUMBER,
        Columns,
        check_documents,
        from_sentences,
        read_table,
        read_words,
        split,
    )

    found: Iterable[Stimulus]
    names = Columns()
    if _layout(options, file) == "table":
        asked = Columns(options.word_column, options.sentence_column, options.document_column)
        table = read_table(file, asked, options.punctuation)
        names, found = table.columns, table.stimuli
        if table.decimal_commas:
            listed = ", ".join(table.decimal_commas)
            note(f"{file}: decimal commas ({listed}) are passed on as they stand; our numbers have decimal points")
        if options.follows_documents:
            check_documents(table.stimuli)
    elif options.layout == "words":
        found = read_words(file, options.punctuation)
    else:
        sentences = read_input(file, options, skipped, empty_lines=options.context == "document")
        found = from_sentences(_with_words(sentences, file), options.punctuation)
    if options.split_sentences:
        names = names._replace(sentence=(*names.sentence, SENTENCE_NUMBER))
        found = split(found, options.split_sentences, are_documents=not options.document_column)
        found = list(found) if _layout(options, file) == "table" else found
    return names, iter(found), len(found) if isinstance(found, Sized) else None


def _with_words(sentences: Iterable[Sentence], file: str) -> Iterator[Sentence]:
    """The same sentences, of which empty ones divide documents; raises ``InputError`` if no other are there."""
    from treelm.corpora.readers import no_sentences
    from treelm.io.files import name_of

    coming, held = iter(sentences), []
    for sentence in coming:
        held.append(sentence)
        if sentence.words:
            yield from chain(held, coming)
            return
    raise no_sentences(name_of(file), [])


def _layout(options: Arguments, file: str) -> Literal["sentences", "words", "table"]:
    if options.layout != "auto":
        return options.layout
    is_table = Path(file.removesuffix(".gz")).suffix.lower() in TABLES and options.format == "auto"
    return "table" if is_table else "sentences"


def _doubts(options: Arguments, model: NamedModel, found: Findings) -> Iterator[str]:
    """Lines about figures that are not what they seem."""
    lm = model.lm
    if options.context == "document" and not has(lm, DocumentContext):
        yield why_not(lm, DocumentContext)
    if found.num_impossible_words:
        yield said_impossible(lm, f"{found.num_impossible_words} of {found.num_words} words have inf bits")
    if found.num_doubtful and isinstance(lm, Searching):
        number = f"{found.num_doubtful} of {found.num_words} words"
        yield f"{number} not converged: another beam may differ ({_wider(lm.search)})"


def _wider(search: SearchConfig) -> str:
    """Advice about words that have not converged."""
    if search.method == "released":
        return "give larger widths"
    if search.threshold == inf:
        return "leave out the widths for an adaptive beam"
    return f"--threshold {search.threshold + 1:g} takes longer and may settle more of them"


def _separator(options: Arguments) -> str:
    """Between the cells of a text."""
    return {"auto": SEPARATORS.get(Path(options.output).suffix.lower(), ""), "comma": ",", "tab": "\t"}[
        options.separator
    ]


def metadata(
    options: Arguments,
    runs: Sequence[str],
    hashes: Sequence[str],
    file: str,
    models: Sequence[NamedModel],
    findings: Sequence[Findings],
    num_skipped: int,
) -> dict[str, object]:
    """Metadata of the table: how it was made, for its readers. Of several models, each has an entry of its own."""
    from treelm import __version__
    from treelm.inference.surprisal import context_of

    each = [
        {
            "run": run,
            "model": model_hash,
            "system": model.lm.system,
            **_searched(model.lm),
            "context": context_of(model.lm, options.context),
            **found.to_json(),
        }
        for run, model_hash, model, found in zip(runs, hashes, models, findings, strict=True)
    ]
    about = each[0] if len(each) == 1 else {"models": {m.name: one for m, one in zip(models, each, strict=True)}}
    return {
        "treelm_version": __version__,
        **about,
        "input": file,
        "unit": "bits",
        "end_of_sentence_rows": options.end,
        "num_skipped_sentences": num_skipped,
        "punctuation": options.punctuation,
        "split_sentences": options.split_sentences or None,
        "frequencies": options.frequencies or None,
    }


def _searched(lm: LanguageModel) -> dict[str, Any]:
    """How a model searches; of one that does not, widths would say nothing."""
    if not isinstance(lm, Searching):
        return {}
    search = lm.search.to_json()
    return {**search, "threshold": search.get("threshold")}
