"""``treelm surprisal``."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from treelm.cli.arguments import parse
from treelm.cli.files import (
    BeamOptions,
    InputFile,
    InputOptions,
    RunFolder,
    load_with_beam,
    open_output,
    read_input,
    report_skipped,
    write_metadata,
)
from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Arguments(BeamOptions, InputOptions):
    """Surprisal in bits of every word of a file, as TSV: one row a word, one header line.

    Columns: sentence_id, word_id, word, surprisal_bits, is_unk, unk_class, num_pieces, char_start, char_end, and what
    --columns asks for. Text is one sentence a line, words apart by blanks. A word with a quotation mark is quoted, the
    mark doubled, as R and pandas expect. NA is missing, but a word may be NA, null or None too. To keep such words: in
    pandas, read_csv(f, sep="\\t", converters={"word": str}); in R, d$word[is.na(d$word)] <- "NA" after read.delim(f).

    Example: treelm surprisal runs/demo stimuli.txt --output stimuli.tsv
    """

    run: RunFolder
    """Folder of a trained model."""
    file: InputFile = "-"
    """Text, brackets or CoNLL-U; - is standard input."""
    output: str = "-"
    """Where to write; - is standard output. A file gets run metadata beside it, as FILE.json."""
    columns: tuple[str, ...] = ()
    """Further columns that the system offers (an RNNG: entropy_bits, open_nodes, ...)."""
    end: bool = False
    """Add a row </s> to every sentence: the surprisal of its end. With it, bits add up to -log2 p(sentence)."""
    batch_size: int = 16
    """Sentences computed together; changes no figure."""
    processes: int = 1
    """Processes that share the work; changes no figure."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    return write_table(parse(Arguments, "surprisal", arguments))


def write_table(arguments: Arguments) -> int:
    """Score the file and write the table."""
    from treelm.inference.processes import computing, score
    from treelm.inference.surprisal import COLUMNS, Totals, score_sentences, table_rows, tsv_row

    lm, beam = load_with_beam(arguments.run, arguments)
    skipped: list[InputError] = []
    sentences = read_input(arguments.file, arguments, skipped)
    collect = skipped if arguments.on_error == "skip" else None
    totals = Totals()
    computer = computing(score, lm, run=arguments.run, processes=arguments.processes)
    with open_output(arguments.output) as out, computer as compute:
        print(*COLUMNS, *arguments.columns, sep="\t", file=out)
        for scored in score_sentences(lm, sentences, batch_size=arguments.batch_size, skipped=collect, compute=compute):
            totals = totals.plus(scored)
            for row in table_rows(scored, extra=arguments.columns, with_end=arguments.end):
                print(tsv_row(row), file=out)
    write_metadata(arguments.output, metadata(arguments, lm.system, beam, asdict(totals), len(skipped)))
    return report_skipped(skipped)


def metadata(
    arguments: Arguments, system: str, beam: dict[str, int], totals: dict[str, float], num_skipped: int
) -> dict[str, object]:
    """What a reader of the table should know about how it was made."""
    from treelm import __version__

    return {
        "treelm_version": __version__,
        "run": arguments.run,
        "system": system,
        **beam,
        "input": arguments.file,
        "unit": "bits",
        "end_of_sentence_rows": arguments.end,
        "num_skipped_sentences": num_skipped,
        **totals,
    }
