"""What all metrics of papers have in common: what is measured, of what, and sentences of a treebank."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from treelm.corpora.catalog import SPLITS, Split
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.lines import Format
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Preprocessing, Sentence
from treelm.inference.loading import load
from treelm.models.base import LanguageModel
from treelm.models.capabilities import set_search
from treelm.models.search.options import SearchOptions
from treelm.papers.data import DataRoot
from treelm.training.recipe import Recipe
from treelm.training.run_folder import load_run_recipe

Baselines = dict[str, dict[str, tuple[float, ...]]]
"""Values by baseline and metric: several where there is chance and each draw is known."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured: values of a run by metric, or of data the values of baselines; and notes for readers."""

    values: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    baselines: Baselines = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A run to be measured."""

    run: Path
    root: DataRoot
    data: str
    """Name of the data that it was trained on."""

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that is kept in the run."""
        return load_run_recipe(self.run)

    def model(self, options: SearchOptions) -> LanguageModel:
        """Load the model, to search as the recipe says and the options change it."""
        lm = load(self.run, device="auto")
        set_search(lm, options.changed(self.recipe.search))
        return lm


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A kind of measure with its options: of runs, of data alone, or of both."""

    @property
    def own_data(self) -> str:
        """Name of the data that it needs besides those of the run; nothing if it needs none."""
        return str(getattr(self, "data", ""))

    def of_run(self, subject: Subject) -> Measured:
        """Measure a run."""
        return Measured()

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Measure the baselines; ``own`` names the data that runs beside them are trained on."""
        return Measured()


@dataclass(frozen=True, kw_only=True)
class OnTreebank(Measure):
    """A measure on a split of the run's own data, or of data that it names."""

    data: str = ""
    split: Split | Literal["all"] = "test"
    format: Format | Literal["auto"] = "auto"
    preprocess: Preprocessing | None = None
    max_sentences: int | None = None

    def config(self, own: DataConfig, root: DataRoot) -> DataConfig:
        """Source of the sentences, read as the run's own data unless options say otherwise."""
        if self.data:
            found = root.locate(self.data)
            own = replace(own, **{name: getattr(found, name) for name in ("corpus", *SPLITS)}, format=self.format)
        return own if self.preprocess is None else replace(own, preprocess=self.preprocess)

    def files(self, config: DataConfig) -> list[Path]:
        """The files of the split, or if it is ``all``, those of all splits, each once."""
        splits = [split for split in SPLITS if config.has_split(split)] if self.split == "all" else [self.split]
        return [*dict.fromkeys(locate_split(config, split)[0] for split in splits)]

    def sentences(self, config: DataConfig) -> list[Sentence]:
        """The sentences, in order."""
        found = [sentence for path in self.files(config) for sentence in read_sentences(path, config)]
        return found[: self.max_sentences]

    def notes(self, root: DataRoot, own: str, config: DataConfig) -> tuple[str, ...]:
        """A note if the gold trees are the output of a parser, else nothing.

        Dependency trees are made by hand in all data sets of ``data.toml``.
        """
        entry = root.sets[self.data or own]
        if not entry.is_parsed or any(".conllu" in file.suffixes for file in self.files(config)):
            return ()
        return (f"the gold trees of {entry.name} are the output of a parser, not made by hand",)

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Measure the baselines on the data that it names, else on those named ``own``."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        return Measured(baselines=self.of_treebank(config), notes=self.notes(root, own, config))

    def of_treebank(self, config: DataConfig) -> Baselines:
        """The baselines that follow from the sentences."""
        return {}
