"""Settings of reading times: the design, and the columns of a table; light to import, for the help of subcommands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design of a regression: which times are predicted by what, over which words."""

    response: str = ""
    """Times to predict: mean_rt or log_rt of natural-stories; a column of ucl; without it, the first."""
    baseline: tuple[str, ...] = ()
    """Predictors without surprisal, which join with their lags; without it, all that the corpus has."""
    lags: int | None = None
    """Words before whose predictors and surprisals join; without it 2, of ucl 1."""
    only: tuple[str, ...] = ()
    """Words to restrict to; of natural-stories inner (neither first nor last of a sentence) and unmarked (no
    punctuation on the word or the two before)."""
    known_only: bool = False
    """Leave out words that a model reads as unknown ones, here or at a lag."""


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """The columns of a table of reading times."""

    word_column: str = "word"
    """Of a table: the column of the words."""
    sentence_column: tuple[str, ...] = ("sentence_id",)
    """Of a table: the column, or columns, that say which rows are one sentence, such as item condition."""
    document_column: str = ""
    """Of a table: the column that says which sentences are one document, or which items belong together: what is left
    out together."""
    fill_down: bool = False
    """Of a table: an empty cell in the columns of sentences and documents is that of the row above."""
    split_sentences: str = ""
    """Of a table: language (en, de, ...) of texts whose sentences are to be found, as in treelm surprisal."""
    encoding: str = ""
    """Of a table: its encoding, such as latin-1; without it UTF-8."""
    on_error: Literal["raise", "skip"] = "raise"
    """Of a table. raise: stop at the first bad sentence. skip: leave it out, report all, exit with code 3."""
    lag_within: Literal["auto", "sentence", "document"] = "auto"
    """Of a table. sentence: the first word of a sentence has none before it. document: that of a document. auto:
    document if there is --document-column, else sentence."""
    response_columns: tuple[str, ...] = ("rt",)
    """Of a table: columns of times."""
    predictor_columns: tuple[str, ...] = ()
    """Of a table: columns that predict them, here and at lags; without it, length and punctuation of the words."""
    control_columns: tuple[str, ...] = ()
    """Of a table: columns that predict them without lags; without it, the place in the document, or in the sentence
    where lags stay within it."""
    surprisal_columns: tuple[str, ...] = ()
    """Of a table: columns of other models' surprisals, in bits, or in nats or hartleys if the name says so."""
    class_column: str = ""
    """Of a table: the column of word classes."""
    frequencies: str = ""
    """Of a table: source of frequencies, wordfreq:en (or another language) or a table with the columns word, count."""

    def names(self) -> list[str]:
        """The columns that the table must have besides those of words, sentences and documents."""
        several = (*self.response_columns, *self.predictor_columns, *self.control_columns, *self.surprisal_columns)
        return [name for name in (self.class_column, *several) if name]
