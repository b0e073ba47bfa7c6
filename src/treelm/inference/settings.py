"""Settings of surprisal tables and of silver trees, the same for subcommands and in Python; costs no import."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from treelm.corpora.options import FileFormat
from treelm.errors import InputError, check_choice, check_positive

Context = Literal["sentence", "document"]
"""Context that a model has before a sentence: nothing, or the sentences of the document before it."""
LOG_BASES = {"2": "bits", "e": "nats", "10": "hartleys"}
"""Bases of logarithms, and the unit of each, which ends the names of columns."""
PER_BIT = {"bits": 1.0, "nats": math.log(2), "hartleys": math.log10(2)}
"""How many of a unit are one bit."""


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Where a model computes."""

    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Device that computes. auto: on a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(DeviceSettings):
    """Where the model of a run computes: in this process, or in others."""

    processes: int = 1
    """Processes of this machine that share the work; changes no result."""


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """How the rows of a table become sentences, and which parts of a sentence get a row."""

    needs: ClassVar = {"target_column": "text_column", "target_from": "target_column"}

    text_column: str = ""
    """Of a table with a sentence, or a trial, in each row: the column of the sentences. The output has a row for each
    word; for each region if all sentences have regions (the horse | fell); for each target if all mark a *target*."""
    target_column: str = ""
    """Of such a table: the column of the target, which must occur once in its sentence. Only targets get rows."""
    target_from: Literal["", "0", "1"] = ""
    """Of a target column of word numbers: the number of the first word of a sentence."""
    region_separator: str = "|"
    """Of a table of sentences: the separator of regions; '' for none."""
    sum_by: str = ""
    """Of a table: add up the bits of rows that share the value in this column and follow each other in a sentence, as
    regions of several words; an empty cell is a row by itself."""


@dataclass(frozen=True, kw_only=True)
class TableSettings(RowSettings):
    """What a table has besides surprisals."""

    needs: ClassVar = {**RowSettings.needs, "lag_within": "lag"}

    shape: Literal["auto", "wide", "long"] = "auto"
    """Of several runs. wide, as auto: a row a word, columns NAME_MODEL. long: a row a word and run, named in the column
    model."""
    context: Context = "sentence"
    """document: what came before in the document counts, for systems that read streams and models trained to read
    documents; columns document_id and context say what a system did. Documents of text are divided by empty lines, and
    read by this process alone."""
    columns: tuple[str, ...] = ()
    """Further columns. Of every model: measures of the next word (next_entropy_bits, next_rank and those that are
    registered), next_entropy_reduction_bits, word_probability, word_length, zipf_frequency, unigram_surprisal_bits,
    word_position, document_position; of an RNNG, entropy_bits, entropy_reduction_bits, open_nodes, num_actions,
    num_reduces, search_actions, lexical_bits, syntactic_bits, beam_loss_bits and beam_bound_bits; of Transformer and
    Transformer Grammar, attention_entropy, nae and delta_nae; of PRPN and ON-LSTM, distance; of a SOM, depth and
    attachment_slot; of PaLM, attended_length and attention_entropy_bits; of a PCFG of a treebank with tags, tag_bits
    and word_given_tag_bits."""
    frequencies: str = ""
    """Of zipf_frequency: wordfreq:en (or another language; pip install 'treelm[wordfreq]'), or a table with the columns
    word and count."""
    lag: int = 0
    """Add columns NAME_lag1, NAME_lag2, ...: surprisals and --columns of as many words before, for spillover."""
    lag_within: Context = "sentence"
    """sentence: the first word of a sentence has none before it. document: that of a document."""
    end: bool = False
    """Add a row </s> to every sentence: the surprisal of its end. With it, bits add up to -log2 p(sentence)."""
    log_base: Literal["2", "e", "10"] = "2"
    """Base of logarithms. e: nats instead of bits, in columns NAME_nats. 10: hartleys, in columns NAME_hartleys."""
    omit_first: bool = False
    """Leave surprisal, its parts, probability and rank of the first word or region of a sentence missing (NA), as in
    tools that do not score it."""
    split_sentences: str = ""
    """Language (en, de, ...) of texts whose sentences are to be found: every line, or what --sentence-column says, is
    split, and numbered in the column sentence_number. Needs pip install 'treelm[sentences]'."""
    batch_size: int = 16
    """Sentences computed together; changes no result."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for values that cannot be."""
        if self.lag < 0:
            raise InputError(f"lag = {self.lag}", remedy="give 1 or more words, or remove this option")

    @property
    def follows_documents(self) -> bool:
        """Tell whether something of a word depends on the words of its document before its sentence."""
        lags = self.lag and self.lag_within == "document"
        return bool(self.context == "document" or lags or "document_position" in self.columns)


OnUnparsed = Literal["raise", "skip", "flat"]


@dataclass(frozen=True, kw_only=True)
class AnnotationSettings:
    """Settings that silver trees depend on: work that was begun with others is not continued."""

    format: FileFormat = "auto"
    """Format of the file; of trees, only the words are read. auto: by its name; standard input is text. Text that
    begins like trees is refused."""
    tokenise: bool = False
    """Split text into words as treebanks do; else on whitespace."""
    documents: bool = False
    """Keep documents apart, which empty lines divide in text: an empty line between their trees too."""
    on_error: OnUnparsed = "raise"
    """Treatment of a sentence that cannot be read or parsed. raise: stop there. skip: leave it out. flat: a tree
    (UNPARSED (X word) ...) in its place, or an empty line if even its words cannot be read. skip and flat report every
    one at the end, and exit with code 3."""
    min_confidence: float | None = None
    """Leave out sentences of whose trees the parser is less sure: the mean probability, from 0 to 1, that a
    constituent is right. For parsers that say so (chart); OUTPUT.tsv then has a row for each sentence, with or
    without."""
    max_words: int | None = None
    """Longer sentences count as ones that cannot be parsed."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for values that cannot be."""
        check_choice("on_error", self.on_error, get_args(OnUnparsed))
        check_positive(max_words=self.max_words)
        if self.min_confidence is not None and not 0 <= self.min_confidence <= 1:
            raise InputError(f"min_confidence = {self.min_confidence}", remedy="give a number from 0 to 1")
