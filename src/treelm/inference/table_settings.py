"""Settings of surprisal tables, the same for ``treelm surprisal`` and ``treelm.surprisal_table``; costs no import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from treelm.errors import InputError

Context = Literal["sentence", "document"]
"""Context that a model has before a sentence: nothing, or the sentences of the document before it."""
_CONTEXTS = get_args(Context)


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """What a table has besides surprisals."""

    shape: Literal["auto", "wide", "long"] = "auto"
    """Of several runs. wide, as auto: a row a word, columns NAME_MODEL. long: a row a word and run, named in the column
    model."""
    context: Context = "sentence"
    """document: what came before in the document counts, for systems that read streams and models trained to read
    documents; columns document_id and context say what a system did. Documents of text are divided by empty lines, and
    read by this process alone."""
    columns: tuple[str, ...] = ()
    """Further columns. Of every model: next_entropy_bits, next_entropy_reduction_bits, next_rank, word_length,
    zipf_frequency, unigram_surprisal_bits, word_position, document_position; of an RNNG, entropy_bits,
    entropy_reduction_bits, open_nodes, num_actions, num_reduces, search_actions, lexical_bits, syntactic_bits,
    beam_loss_bits and beam_bound_bits; of PRPN and ON-LSTM, distance; of a SOM, depth and attachment_slot;
    of PaLM, attended_length and attention_entropy_bits; of a Transformer, attention_entropy."""
    frequencies: str = ""
    """Of zipf_frequency: wordfreq:en (or another language; pip install 'treelm[wordfreq]'), or a table with the columns
    word and count."""
    lag: int = 0
    """Add columns NAME_lag1, NAME_lag2, ...: the values of as many words before, for spillover."""
    lag_columns: tuple[str, ...] = ()
    """Columns to lag, of any kind; without it, surprisals and those of --columns."""
    lag_within: Context = "sentence"
    """sentence: the first word of a sentence has none before it. document: that of a document."""
    end: bool = False
    """Add a row </s> to every sentence: the surprisal of its end. With it, bits add up to -log2 p(sentence)."""
    batch_size: int = 16
    """Sentences computed together; changes no result."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for values that cannot be."""
        for name, choices in (("shape", ("auto", "wide", "long")), ("context", _CONTEXTS), ("lag_within", _CONTEXTS)):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} = {getattr(self, name)!r}", remedy=f"choose one of {', '.join(choices)}")
        if self.lag < 0:
            raise InputError(f"lag = {self.lag}", remedy="give 1 or more words, or leave it out")

    @property
    def follows_documents(self) -> bool:
        """Tell whether something of a word depends on the words of its document before its sentence."""
        lags = self.lag and self.lag_within == "document"
        return bool(self.context == "document" or lags or "document_position" in self.columns)
