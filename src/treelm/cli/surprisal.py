"""``treelm surprisal``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treelm.cli.arguments import as_typed, refuse
from treelm.cli.files import check_not_input, open_table, report_skipped, skip_list, write_metadata
from treelm.cli.options import InputOptions, ModelNames, Output, RunsAndFile, WorkerOptions, impossible, runs_and_file
from treelm.errors import InputError
from treelm.inference.settings import LOG_BASES, RowSettings, TableSettings
from treelm.io.tables import TABLES, check_table_name
from treelm.io.terminal import log, progress_bar
from treelm.models.capabilities import DocumentContext, Searching, has, why_not

if TYPE_CHECKING:
    from treelm.inference.predictors import Unigrams
    from treelm.inference.sentence_rows import Columns
    from treelm.inference.stimuli import Stimulus
    from treelm.inference.surprisal_table import Findings, NamedModel


@dataclass(frozen=True, kw_only=True)
class Arguments(TableSettings, WorkerOptions, InputOptions, ModelNames):
    """Surprisal in bits of every word of a file, by one model or several: a table with one row a word.

    Columns: sentence_id, word_id, word, surprisal_bits, is_unk, unk_class, num_pieces, char_start, char_end, of an RNNG
    beam_converged (0 where another beam may say otherwise, NA of a fixed beam), what --columns asks for, and those of
    an input table under their own names. Text is one sentence a line, words separated by spaces. NA is missing, but a
    word may be NA, null or None too: docs/surprisal.md says how R and pandas keep such words.

    Example: treelm surprisal runs/demo stimuli.txt --output stimuli.tsv
    Example: treelm surprisal runs/demo words.csv --punctuation summed --output words-bits.csv
    Example: treelm surprisal runs/demo items.csv --text-column sentence --target-column verb
    Example: treelm surprisal rnng-gum-open lstm-gum-open words.csv --columns word_length --lag 2 -o words.csv
    """

    inputs: RunsAndFile
    """One run or several, as treelm models lists or folders of trained models, and last the file: text, brackets,
    CoNLL-U, words or a table. - is standard input; after a single run it may be left out."""
    output: Output = "-"
    """File to write: a name in .tsv, .txt or .csv; - is standard output, as TSV. A file gets run
    metadata beside it, as FILE.json."""
    layout: Literal["auto", "sentences", "words", "table"] = "auto"
    """sentences: as --format says. words: one a line, an empty line after each sentence, two after each document.
    table: CSV (commas or semicolons), TSV or the first sheet of an .xlsx, with a header and one word a row, or with
    --text-column one sentence; other columns are passed through, own_NAME if NAME is a measure of ours. auto: a table
    if the file's name ends in .csv, .tsv or .xlsx, else sentences."""
    word_column: str = "word"
    """Of a table: the column of the words."""
    sentence_column: tuple[str, ...] = ("sentence_id",)
    """Of a table: the column, or columns, that say which rows are one sentence, such as item condition."""
    document_column: str = ""
    """Of a table: the column that says which sentences are one document; without it, all are."""
    fill_down: bool = False
    """Of a table: an empty cell in the columns of sentences and documents is that of the row above, as of merged cells
    of a workbook."""
    punctuation: Literal["as-given", "summed", "left-out", "apart"] = "as-given"
    """Of words such as "dog," and "don't": as-given: read as one word. summed: marks and clitics are read as words of
    their own, as in treebanks, and their bits are the word's. left-out: the same without the bits of marks. apart: they
    get rows of their own."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm import __version__
    from treelm.corpora.readers import no_sentences
    from treelm.inference.loading import model_hash
    from treelm.inference.predictors import UNIGRAM
    from treelm.inference.stimulus_advice import advice, long_sentences
    from treelm.inference.surprisal import context_of
    from treelm.inference.surprisal_table import NamedModel, SurprisalTable
    from treelm.io.files import name_of

    runs, file = runs_and_file(options.inputs, may_be_stdin=True)
    check_not_input((options.output, f"{options.output}.json"), [file, *filter(None, [options.frequencies])])
    check_table_name(options.output)
    names = options.names_of(runs, in_columns=True)
    skipped = skip_list(options)
    models: list[NamedModel] = []
    source, stimuli, number = _read(options, file, skipped)  # before models: a table that cannot be read waits for none
    with ExitStack() as stack:
        for name, run in zip(names, runs, strict=True):
            lm = options.load(run, predicts_words=True)
            compute = stack.enter_context(options.workers(run))
            unigrams = _unigrams(run) if UNIGRAM in options.columns else None
            models.append(NamedModel(name=name, lm=lm, compute=compute, unigrams=unigrams))
        hashes = [model_hash(run) for run in runs] if options.output != "-" else []  # others may be there later
        table = SurprisalTable(models, options, source)
        advance = stack.enter_context(progress_bar("scoring", number, shares_terminal=options.output == "-"))
        frames = table.frames(stimuli, skipped, on_sentence=advance)
        first = list(islice(frames, 1))  # before the header: of input that cannot be read nothing is written
        if not first and not skipped:
            raise no_sentences(name_of(file), [])
        with open_table(options.output, table.names) as write:
            for frame in chain(first, frames):
                write(frame)
    if table.long_sentences:
        remedy = "" if options.split_sentences else "; if it is a text, give --split-sentences en (or another language)"
        log(long_sentences(table.long_sentences) + remedy)
    for own, new in table.renamed.items():
        log(f"the column {own} of {file} is {new} here, beside ours of that name")
    for name, model, found in zip(options.names_of(runs), models, table.findings, strict=True):
        whose = f"{name}: " if len(models) > 1 else ""
        doubts = (f"{whose}{line}" for line in _doubts(options, model, found))
        for line in (*advice(found.words, model.lm.vocabulary, name, "--{}"), *doubts):
            log(line)
    if hashes:
        each = {
            model.name: {
                "run": run,
                "model": model_hash,
                "system": model.lm.system,
                **({"threshold": None, **model.lm.search.to_json()} if isinstance(model.lm, Searching) else {}),
                "context": context_of(model.lm, options.context),
                **found.to_json(),
            }
            for run, model_hash, model, found in zip(runs, hashes, models, table.findings, strict=True)
        }
        metadata = {
            "treelm_version": __version__,
            **(each[names[0]] if len(each) == 1 else {"models": each}),
            "input": file,
            "unit": LOG_BASES[options.log_base],
            "end_of_sentence_rows": options.end,
            "num_skipped_sentences": len(skipped or ()),
            "punctuation": options.punctuation,
            "split_sentences": options.split_sentences or None,
            "frequencies": options.frequencies or None,
        }
        write_metadata(options.output, metadata)
    return report_skipped(skipped)


def _unigrams(run: str) -> Unigrams:
    """Counts of the words that a run was trained on."""
    from treelm.corpora.data_config import prepared_split, with_its_words
    from treelm.inference.predictors import Unigrams
    from treelm.training.run_folder import load_run_recipe

    own = load_run_recipe(run).data
    data = with_its_words(own)
    if data != own:
        log(f"unigram_surprisal_bits: counts of {data.corpus}, which contains the training text of {run}")
    counts = prepared_split(data, "train").form_counts()
    return Unigrams(dict(zip(counts.forms, counts.counts.tolist(), strict=True)))


def _read(
    options: Arguments, file: str, skipped: list[InputError] | None
) -> tuple[Columns, Iterator[Stimulus], int | None]:
    """The names of the source's columns, the stimuli, and their number if it is known."""
    from treelm.inference import stimuli
    from treelm.inference.sentence_rows import Columns
    from treelm.io.files import unpacked_name

    is_named_so = Path(unpacked_name(file)).suffix.lower() in TABLES and options.format == "auto"
    is_table = options.layout == "table" or (options.layout == "auto" and is_named_so)
    if is_table:
        asked = Columns(options.word_column, options.sentence_column, options.document_column, rows=options)
        how: dict[str, Any] = {"fill_down": options.fill_down, "language": options.split_sentences}
        how |= {"encoding": options.encoding, "skipped": skipped}
        table = stimuli.read_table(file, asked, options.punctuation, **how)
        for note in table.notes:
            log(f"{file}: {as_typed(note)}")
        if options.follows_documents:
            stimuli.check_documents(table.stimuli)
        return table.columns, iter(table.stimuli), len(table.stimuli)
    of_tables = ("word_column", "sentence_column", "document_column", "fill_down")
    refuse(options, (*of_tables, *(one.name for one in fields(RowSettings))), "without --layout table")
    if options.layout == "words":
        found = stimuli.read_words(file, options.punctuation, options.encoding)
    else:
        found = stimuli.from_sentences(options.read(file, skipped), options.punctuation)
    if options.split_sentences:
        names = (*Columns().sentence, stimuli.SENTENCE_NUMBER)
        return Columns(sentence=names), stimuli.split(found, options.split_sentences), None
    return Columns(), found, None


def _doubts(options: Arguments, model: NamedModel, found: Findings) -> Iterator[str]:
    """Lines about figures that are not what they seem."""
    lm = model.lm
    if options.context == "document" and not has(lm, DocumentContext):
        yield why_not(lm, DocumentContext)
    if found.num_impossible_words:
        yield impossible(lm, f"{found.num_impossible_words} of {found.num_words} words have inf bits")
    if found.num_unconverged and isinstance(lm, Searching):
        number = f"{found.num_unconverged} of {found.num_words} words"
        yield f"{number} not converged: another beam may differ ({lm.search.wider} takes longer and settles more)"
    if isinstance(lm, Searching) and not lm.search.is_adaptive and lm.search.method != "particles":
        how = f" (an adaptive beam does: {lm.search.wider})" if lm.search.method == "beam" else ""
        yield f"{lm.search}: nothing says which words have converged{how}"
