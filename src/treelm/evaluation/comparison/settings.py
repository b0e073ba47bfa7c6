"""What a comparison measures, and how: the same for every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from treelm.corpora.options import FileFormat
from treelm.errors import InputError, check_positive
from treelm.inference.settings import DeviceSettings
from treelm.models.search.options import SearchOptions

if TYPE_CHECKING:
    from treelm.evaluation.human.corpora import ReadingCorpus
    from treelm.evaluation.minimal_pairs import MinimalPair
    from treelm.evaluation.syntaxgym.suites import Suite

ProtocolName = Literal["wsj10", "klein", "wsj40", "plain", "no-punctuation", "binarised"]


@dataclass(frozen=True, kw_only=True)
class Materials:
    """What all runs of a comparison are measured on besides their split."""

    suites: Sequence[Suite]
    pairs: Mapping[str, Sequence[MinimalPair]]  # by file
    corpus: ReadingCorpus | None  # of reading times


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How files of minimal pairs are read."""

    good: str = ""
    """Of pairs: column of the grammatical sentences; without it, that of BLiMP or of Marvin & Linzen."""
    bad: str = ""
    """Of pairs: column of the ungrammatical sentences."""
    group_by: tuple[str, ...] = ()
    """Of pairs: columns to group by; without it, those of BLiMP or of Marvin & Linzen."""
    max_pairs_per_group: int | None = None
    """Only the first pairs of every group of the first grouping (BLiMP: of every paradigm)."""
    encoding: str = ""
    """Encoding of what is read, such as latin-1; without it UTF-8."""

    def read_pairs(self, file: str, skipped: list[InputError] | None = None) -> Iterator[MinimalPair]:
        """Read the pairs of a file, by the columns that were named."""
        from treelm.evaluation.minimal_pairs import read_pairs

        how: dict[str, Any] = {"encoding": self.encoding, "skipped": skipped}
        return read_pairs(Path(file), good=self.good, bad=self.bad, group_by=self.group_by, **how)


@dataclass(frozen=True, kw_only=True)
class Settings(PairOptions, SearchOptions, DeviceSettings):
    """Settings of what is measured; ``treelm compare`` has an option for each."""

    needs: ClassVar = {
        **dict.fromkeys(("good", "bad", "group_by", "max_pairs_per_group"), "pairs"),
        **{"data_format": "data", "reading_data": "reading"},
    }
    excludes: ClassVar = {"split": "data"}

    split: Literal["train", "dev", "test"] = "test"
    """Split of each run's own corpus."""
    data: str = ""
    """A treebank file instead, the same for all."""
    data_format: FileFormat = "auto"
    """Format of the file of --data. auto: by its name."""
    max_sentences: int | None = None
    """Only the first sentences; without it, as in each run's recipe (so also the beam)."""
    protocol: tuple[ProtocolName, ...] = ("plain",)
    """Protocols of unlabelled F1."""
    syntaxgym: tuple[str, ...] = ("none",)
    """Test suites of SyntaxGym: all, none, or names and files."""
    pairs: tuple[str, ...] = ()
    """Files of minimal pairs, such as BLiMP's. --good, --bad and --group-by hold for all of them."""
    reading: Literal["none", "natural-stories", "ucl"] = "none"
    """Corpus of reading times, as in treelm reading."""
    reading_data: str = ""
    """Folder of that corpus."""
    gardenpath: bool = False
    """Garden paths and other effects in bits, as in treelm gardenpath."""
    tokenisation: Literal["treebank", "whitespace"] = "treebank"
    """Cut of suites and pairs into words, as in treelm surprisal."""

    def load(self) -> Materials:
        """Read suites, pairs and the corpus of reading times that are named.

        Raises ``InputError`` for what cannot be read, for a missing library, and for two files of pairs of one name.
        """
        from treelm.evaluation.minimal_pairs import first_of_groups

        suites, corpus = self._load_suites(), self._load_corpus()
        check_positive(max_pairs_per_group=self.max_pairs_per_group)
        names = [Path(file).name for file in self.pairs]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two files of pairs named {name}", remedy="rename one")
        pairs = {file: list(self.read_pairs(file)) for file in self.pairs}
        if (most := self.max_pairs_per_group) is not None:
            pairs = {file: first_of_groups(own, most) for file, own in pairs.items()}
        return Materials(suites=suites, pairs=pairs, corpus=corpus)

    def _load_suites(self) -> list[Suite]:
        from treelm.evaluation.syntaxgym.suites import load_suites

        if len(self.syntaxgym) > 1 and {"all", "none"} & set(self.syntaxgym):
            raise InputError("all or none beside names of suites", remedy="give all, none, or names")
        if self.syntaxgym == ("none",):
            return []
        return load_suites(() if self.syntaxgym == ("all",) else self.syntaxgym)

    def _load_corpus(self) -> ReadingCorpus | None:
        from treelm.evaluation.human import natural_stories, ucl
        from treelm.evaluation.human.regression import require_library

        if self.reading == "none":
            return None
        require_library()
        load = natural_stories.load if self.reading == natural_stories.NAME else ucl.load
        return load(self.reading_data)
