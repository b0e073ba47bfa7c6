"""The data that a recipe asks for, its prepared splits, and sentences to show a model on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from treelm.configs import Size, configuration
from treelm.corpora.catalog import SPLITS, Split, corpus_entry, corpus_names
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.data_packages import package_of
from treelm.corpora.lines import Format
from treelm.corpora.preparing import prepared
from treelm.corpora.readers import ReadOptions, read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError, OnError

_NUM_EXAMPLES = 3
_FEWEST_WORDS, _MOST_WORDS = 6, 15  # so many fit a drawing
_LOOKED_AT = 1000


@dataclass(frozen=True, kw_only=True)
class _Sources:
    corpus: str | None = None
    """A name of the catalogue, such as gum-open, or a directory with train, dev and test files."""
    train: str | None = None
    """Path of the training data, instead of corpus."""
    dev: str | None = None
    """Path of the development data, instead of corpus."""
    test: str | None = None
    """Path of the test data, instead of corpus."""


@configuration
class DataConfig(ReadOptions, _Sources):
    """The data of a run: a corpus by name or directory, or files by path, and the options of reading them.

    A corpus may offer the same sentences in several formats, of which ``format`` chooses one.
    """

    on_error: OnError = "raise"
    """Treatment of a sentence that cannot be read: stop, or leave it out and report it."""
    max_sentences: Size | None = None
    """Read at most this many sentences of each split."""

    def __post_init__(self) -> None:
        """Raise InputError for a value that cannot be."""
        given = [split for split in SPLITS if getattr(self, split) is not None]
        if self.corpus is not None and given:
            found = f"data.corpus = {self.corpus!r} beside data.{given[0]}"
            raise InputError(found, remedy="give a corpus or files, not both: data.corpus=none unsets it")

    def has_split(self, split: Split) -> bool:
        """Tell whether there are data for a split."""
        if self.corpus is not None:
            return split in corpus_entry(self.corpus).splits
        return getattr(self, split) is not None


def locate_split(
    config: DataConfig, split: str, format: Format | Literal["auto"] | None = None
) -> tuple[Path, ReadOptions]:
    """The file of a split, and the options to read it with. With a ``format``, ``split`` is the path of a file instead.

    Raises ``InputError`` if there are no data for the split.
    """
    path: str | Path | None = split
    if format is None:
        format = config.format
        if config.corpus is not None:
            path, format = corpus_entry(config.corpus).locate(split, config.format)  # type: ignore[arg-type]
        else:
            path = getattr(config, split)
    if path is None:
        remedy = f'give data = "FILE" to evaluate, or data.corpus = "gum-open" or data.{split} to train'
        raise InputError(f"no {split} data", remedy=remedy)
    return Path(path), replace(config, format=format)


def prepared_split(config: DataConfig, split: Split, *, on_block: Callable[[], None] = lambda: None) -> PreparedCorpus:
    """The prepared corpus of a split, from the cache or prepared now.

    ``on_block`` is called after each thousand sentences that are prepared. Raises ``InputError`` as ``prepared`` does.
    """
    path, options = locate_split(config, split)
    most = config.max_sentences
    return prepared([path], options=options, on_error=config.on_error, max_sentences=most, on_block=on_block)


def with_its_words(config: DataConfig, split: Split = "train") -> DataConfig:
    """The same data or, where a split of its corpus has not been made on this machine, the text that has its sentences.

    This is for what needs words alone, such as counts; these are then counts of that text.
    """
    package = None if config.corpus is None else package_of(config.corpus)
    text = None if package is None else package.made_corpora.get(str(config.corpus))
    if text is None or (config.corpus in corpus_names() and config.has_split(split)):
        return config
    return replace(config, corpus=text)


def example_sentences(data: DataConfig) -> list[Sentence]:
    """The first sentences of dev (or test, or train) that fit a drawing, with their trees.

    If all sentences are longer, the first ones are cut and have no tree. Raises ``InputError`` if there are no data, or
    if they can no longer be read.
    """
    splits: tuple[Split, ...] = ("dev", "test", "train")
    split = next((one for one in splits if data.has_split(one)), None)
    if split is None:
        raise InputError("no data to take examples from", remedy="give sentences")
    path, options = locate_split(data, split)
    read = read_sentences(path, options, skipped=[])
    found = [one for one in islice(read, _LOOKED_AT) if one.words]
    fitting = [one for one in found if _FEWEST_WORDS <= len(one.words) <= _MOST_WORDS][:_NUM_EXAMPLES]
    cut = (replace(one, words=one.words[:_MOST_WORDS], tree=None, tags=None, text=None) for one in found)
    return fitting or list(islice(cut, _NUM_EXAMPLES))
