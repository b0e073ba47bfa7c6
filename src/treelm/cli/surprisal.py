"""``treelm surprisal``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treelm.cli.arguments import note, parse
from treelm.cli.files import check_not_input, open_output, report_skipped, write_metadata
from treelm.cli.options import (
    InputFile,
    InputOptions,
    ModelOptions,
    RunFolder,
    WorkerOptions,
    load_adaptive,
    read_input,
    workers,
)
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.inference.stimuli import Stimulus

SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ",", "": "\t"}
"""Between the cells of a table, by the ending of its name; streams and devices have none."""


@dataclass(frozen=True, kw_only=True)
class Arguments(ModelOptions, WorkerOptions, InputOptions):
    """Surprisal in bits of every word of a file, as TSV: one row a word, one header line.

    Columns: sentence_id, word_id, word, surprisal_bits, is_unk, unk_class, num_pieces, char_start, char_end, of an RNNG
    beam_converged (0 where another beam may say otherwise), what --columns asks for, and those of an input table. Text
    is one sentence a line, words apart by blanks. A word with a quotation mark is quoted, the mark doubled, as R and
    pandas expect. NA is missing, but a word may be NA, null or None too. To keep such words: in pandas,
    read_csv(f, sep="\\t", converters={"word": str}); in R, d$word[is.na(d$word)] <- "NA" after read.delim(f).
    docs/surprisal.md has more.

    Example: treelm surprisal runs/demo stimuli.txt --output stimuli.tsv
    Example: treelm surprisal runs/demo words.csv --layout table --punctuation summed --output words-bits.csv
    """

    run: RunFolder
    file: InputFile = "-"
    """Text, brackets, CoNLL-U, words or a table; - is standard input."""
    output: str = "-"
    """File to write: a name in .tsv, .txt or .csv; - is standard output. A file gets run metadata beside it, as
    FILE.json."""
    layout: Literal["sentences", "words", "table"] = "sentences"
    """sentences: as --format says. words: one a line, an empty line after each sentence, two after each document.
    table: CSV or TSV with a header and one word a row; other columns are passed through, own_NAME if NAME is ours."""
    word_column: str = "word"
    """Of a table: the column of the words."""
    sentence_column: str = "sentence_id"
    """Of a table: the column that says which rows are one sentence."""
    document_column: str = ""
    """Of a table: the column that says which sentences are one document; without it, all are."""
    punctuation: Literal["as-given", "summed", "left-out", "apart"] = "as-given"
    """Of words such as "dog," and "don't": as-given: read as one word. summed: marks and clitics are read as words of
    their own, as in treebanks, and their bits are the word's. left-out: the same without the bits of marks. apart: they
    get rows of their own."""
    context: Literal["sentence", "document"] = "sentence"
    """document: what came before in the document counts, for systems that read streams; columns document_id and context
    say what a system did. Documents of text are divided by empty lines, and read by this process alone."""
    columns: tuple[str, ...] = ()
    """Further columns: next_entropy_bits of any system; of an RNNG, entropy_bits, open_nodes, beam_loss_bits and
    beam_bound_bits; of PRPN and ON-LSTM, distance; of a SOM, depth and attachment_slot; of PaLM, attended_length and
    attention_entropy_bits."""
    end: bool = False
    """Add a row </s> to every sentence: the surprisal of its end. With it, bits add up to -log2 p(sentence)."""
    threshold: float | None = None
    """Of an RNNG: nats below all analyses together at which one is dropped. Without it, 10 with beams of at most
    1000/100/1, or none if a width is given: then the beam has that width and those of the recipe."""
    separator: Literal["auto", "tab", "comma"] = "auto"
    """Between cells. auto: a comma if --output ends in .csv, a tab if it ends in .tsv or .txt, or is a stream."""
    batch_size: int = 16
    """Sentences computed together; changes no result."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "surprisal", arguments)
    from treelm.inference.processes import computing, score
    from treelm.inference.stimulus_scores import ENTROPY, check_columns, score_stimuli, score_with_entropies
    from treelm.inference.surprisal import COLUMNS, CONVERGED, Totals, apart, table_rows, tsv_row

    check_not_input((options.output, f"{options.output}.json"), [options.file])
    separator = _separator(options)
    lm, beam = load_adaptive(options.run, options, options.threshold)
    lm.require_words()
    check_columns(lm, options.columns)
    skipped: list[InputError] = []
    names, stimuli = _read(options, skipped)
    has_documents = options.context == "document" or bool(options.document_column)
    about = ("document_id", "context") if has_documents else ()
    searches = CONVERGED in lm.word_columns
    extra = tuple(dict.fromkeys((*((CONVERGED,) if searches else ()), *options.columns)))
    kept = apart(names, taken=(*COLUMNS, *extra, *about))
    totals, contexts, num_doubtful = Totals(), set[str](), 0
    job = score_with_entropies if ENTROPY in options.columns else score
    computer = computing(job, lm, **workers(options))
    with open_output(options.output) as out, computer as compute:
        scored = score_stimuli(
            lm,
            stimuli,
            context=options.context,
            entropies=ENTROPY in options.columns,
            batch_size=options.batch_size,
            skipped=skipped if options.on_error == "skip" else None,
            compute=compute,
        )
        first = list(islice(scored, 1))  # before the header: of input that cannot be read nothing is written
        print(tsv_row([*COLUMNS, *extra, *kept, *about], separator), file=out)
        for one in chain(first, scored):
            totals = totals.plus(one.scored)
            num_doubtful += sum(word.columns.get(CONVERGED) == 0 for word in one.scored.surprisal.words)
            contexts.add(one.context)
            for row in table_rows(
                one.scored,
                extra=extra,
                with_end=options.end,
                kept=one.stimulus.kept,
                about=(one.stimulus.document, one.context) if has_documents else (),
            ):
                print(tsv_row(row, separator), file=out)
    if options.context == "document" and "sentence" in contexts:
        note(f"{lm.system} reads whole sentences: each begins from nothing, whatever the document said before")
    if totals.num_impossible_words:
        number = f"{totals.num_impossible_words} of {totals.num_words} words"
        why = "the model, or what its search kept, gives" if searches else "the model gives"
        note(f"{number} have inf bits: {why} them probability 0" + ("; try a wider beam" if searches else ""))
    if num_doubtful:
        note(f"{num_doubtful} of {totals.num_words} words not converged: another beam may differ ({_wider(beam)})")
    found = {"context": ", ".join(sorted(contexts)), "punctuation": options.punctuation, **totals.to_json()}
    write_metadata(options.output, metadata(options, lm.system, beam, found, len(skipped)))
    return report_skipped(skipped)


def _read(options: Arguments, skipped: list[InputError]) -> tuple[tuple[str, ...], Iterator[Stimulus]]:
    """The names of a table's own columns, and the stimuli."""
    from treelm.inference.stimuli import Columns, from_sentences, read_table, read_words

    if options.layout == "table":
        columns = Columns(options.word_column, options.sentence_column, options.document_column)
        table = read_table(options.file, columns, options.punctuation)
        return table.names, iter(table.stimuli)
    if options.layout == "words":
        return (), read_words(options.file, options.punctuation)
    sentences = read_input(options.file, options, skipped, empty_lines=options.context == "document")
    return (), from_sentences(sentences, options.punctuation)


def _wider(beam: Mapping[str, Any]) -> str:
    """Advice about words that have not converged."""
    if beam.get("search", "beam") == "released":
        return "give larger widths"
    if beam["threshold"] is None:
        return "leave out the widths for an adaptive beam"
    return f"--threshold {beam['threshold'] + 1:g} takes longer and settles more of them"


def _separator(options: Arguments) -> str:
    """Between cells; raises ``InputError`` for an output that by its name is no table, such as .xlsx or .gz."""
    suffix = Path(options.output).suffix.lower()
    if suffix not in SEPARATORS:
        remedy = "end its name in .tsv, .txt or .csv"
        raise InputError(f"cannot write a table into a file ending in {suffix}", where=options.output, remedy=remedy)
    return {"auto": SEPARATORS[suffix], "comma": ",", "tab": "\t"}[options.separator]


def metadata(
    options: Arguments, system: str, beam: Mapping[str, Any], totals: dict[str, object], num_skipped: int
) -> dict[str, object]:
    """Metadata of the table: how it was made, for its readers."""
    from treelm import __version__

    return {
        "treelm_version": __version__,
        "run": options.run,
        "system": system,
        **beam,
        "input": options.file,
        "unit": "bits",
        "end_of_sentence_rows": options.end,
        "num_skipped_sentences": num_skipped,
        **totals,
    }
