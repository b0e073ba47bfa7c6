"""``treelm audit``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from treelm.cli.files import print_json, report_skipped, skip_list
from treelm.cli.options import InputFile, InputOptions, RunFolder
from treelm.errors import check_positive
from treelm.io.terminal import log, progress_bar
from treelm.models.capabilities import Enumerable

MOST_WORDS = 12  # of a sentence: the checks read it many times, and breaches of the contract show early


@dataclass(frozen=True, kw_only=True)
class Arguments(InputOptions):
    """Check that a model keeps the contract of a left-to-right language model.

    Causality: log p of a prefix does not change, bit for bit, when later words do. Normalisation: probabilities sum to
    one. Batch invariance: other sentences of a batch change nothing. Incremental: word by word and all at once agree.
    Of a search that prunes, how much it may have missed is measured.
    Exit code 0 if all checks that apply pass, else 1.

    Example: treelm audit runs/demo
    """

    run: RunFolder
    file: InputFile = ""
    """Sentences to check with; without a file, some of the packaged gum-open."""
    num_sentences: int = 3
    """Number of them, from the start; of each, the first 12 words."""
    seed: int = 1
    """Seed of the cuts and changes."""
    json: bool = False
    """Write the report as JSON."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.corpora.catalog import corpus_entry
    from treelm.evaluation.audit import NUM_CHECKS, audit
    from treelm.inference.loading import load

    check_positive(num_sentences=options.num_sentences)
    lm, skipped = load(options.run), skip_list(options)
    path = options.file or str(corpus_entry("gum-open").locate("dev")[0])
    read = [sentence.words for sentence in islice(options.read(path, skipped), options.num_sentences)]
    num_longer = sum(len(words) > MOST_WORDS for words in read)
    if num_longer and options.file:
        log(f"cut after {MOST_WORDS} words: {num_longer} of {len(read)} sentences")
    sentences = [words[:MOST_WORDS] for words in read]
    mass = lm.probability_mass if isinstance(lm, Enumerable) else None
    with progress_bar(f"auditing {options.run}", NUM_CHECKS, unit="checks") as advance:
        report = audit(lm, sentences, seed=options.seed, enumerate_all=mass, on_check=advance)
    if options.json:
        print_json(report.to_json())
    else:
        print(report.as_text())
    code = report_skipped(skipped)
    return code if report.passed else 1
