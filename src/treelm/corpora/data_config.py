"""Which data a recipe asks for, and the prepared splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from treelm.corpora.catalog import Split, corpus_entry
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.downloads import Progress
from treelm.corpora.lines import Format
from treelm.corpora.preparing import prepared
from treelm.corpora.readers import DependencyLabels, ReadOptions, Tags
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError, OnError

UnknownLabels = Literal["raise", "drop"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where sentences come from: a corpus by name (or directory), or files by path."""

    corpus: str | None = None
    """A name of the catalogue, such as gum-open, or a directory with train, dev and test files."""
    train: str | None = None
    """Path of the training data, instead of corpus."""
    dev: str | None = None
    """Path of the development data, instead of corpus."""
    test: str | None = None
    """Path of the test data, instead of corpus."""
    format: Format | Literal["auto"] = "auto"
    """What the files hold; by default their names tell. A corpus may offer the same sentences in several formats."""
    tags: Tags = "present"
    """Whether bracket files hold a part-of-speech tag over each word."""
    strip_functions: bool = True
    """Cut function tags off labels: NP-SBJ is read as NP."""
    dependency_labels: DependencyLabels = "plain"
    """Labels of constituents from CoNLL-U: X, or the part of speech of the head and P, such as NOUNP."""
    empty_lines: bool = False
    """Take blank lines of plain text for sentences without words, as WikiText's counts do; else they are left out."""
    preprocess: Preprocessing = "none"
    """``prpn``: words as in experiments on unsupervised parsing: lower case, digits as N, no punctuation or currency
    signs (by their tags). Its vocabulary has min_count = 3."""
    on_error: OnError = "raise"
    """What to do with a sentence that cannot be read: stop, or leave it out and report it."""
    unknown_labels: UnknownLabels = "raise"
    """What to do with a dev or test sentence with a label that training lacks: stop, or leave it out and count it."""
    max_sentences: int | None = None
    """Read at most this many sentences of each split."""

    def __post_init__(self) -> None:
        """Raise InputError for a value that cannot be."""
        paths = {"train": self.train, "dev": self.dev, "test": self.test}
        given = [name for name, path in paths.items() if path is not None]
        if self.corpus is not None and given:
            raise InputError(
                f"data.corpus = {self.corpus!r} beside data.{given[0]}", remedy="give a corpus or files, not both"
            )
        if self.on_error not in get_args(OnError):
            raise InputError(f"data.on_error = {self.on_error!r}", remedy="choose raise or skip")
        if self.max_sentences is not None and self.max_sentences < 1:
            raise InputError(f"data.max_sentences = {self.max_sentences}", remedy="give 1 or more, or leave it out")
        self.read_options(self.format)

    def read_options(self, format: Format | Literal["auto"]) -> ReadOptions:
        """How to read files of this format."""
        return ReadOptions(
            format=format,
            tags=self.tags,
            strip_functions=self.strip_functions,
            dependency_labels=self.dependency_labels,
            empty_lines=self.empty_lines,
            preprocess=self.preprocess,
        )

    def has_split(self, split: Split) -> bool:
        """Whether there are data for a split."""
        return split in corpus_entry(self.corpus).splits if self.corpus is not None else self._path(split) is not None

    def _path(self, split: Split) -> str | None:
        return {"train": self.train, "dev": self.dev, "test": self.test}[split]


def locate_split(
    config: DataConfig, split: Split, *, progress: Progress | None = None, download: bool = True
) -> tuple[Path, Format | Literal["auto"]]:
    """The file of a split and the format to read it in; downloads what is named but not here, if it may."""
    if config.corpus is not None:
        return corpus_entry(config.corpus).locate(split, config.format, progress=progress, download=download)
    path = config._path(split)
    if path is None:
        raise InputError(f"no {split} data", remedy=f"set data.corpus (such as gum-open) or data.{split}")
    return Path(path), config.format


def prepared_split(
    config: DataConfig, split: Split, *, workers: int | None = None, progress: Progress | None = None
) -> PreparedCorpus:
    """The prepared corpus of a split: from the cache, or prepared now."""
    path, format = locate_split(config, split, progress=progress)
    return prepared(
        [path],
        options=config.read_options(format),
        on_error=config.on_error,
        max_sentences=config.max_sentences,
        workers=workers,
    )
