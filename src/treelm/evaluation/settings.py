"""How a run is evaluated: the settings of ``treelm evaluate`` and ``treelm.evaluate``; costs no import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from treelm.corpora.options import FileFormat, TreebankOptions
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError
from treelm.evaluation.comparison.settings import ProtocolName
from treelm.inference.settings import WorkerSettings
from treelm.models.search.options import SearchOptions

if TYPE_CHECKING:
    from treelm.training.recipe import Recipe

_OF_STREAMS = ("stream_rows", "cache_weight", "cache_theta", "cache_window")
_OF_TREES = ("protocol", "trees", "tree_builder")


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(TreebankOptions, SearchOptions, WorkerSettings):
    """Settings of evaluation, instead of those of the run's recipe."""

    needs: ClassVar = {"format": "data"}
    excludes: ClassVar = {"split": "data", "corpus": "data"}

    split: tuple[Literal["train", "dev", "test"], ...] = ()
    """Splits of the corpus; without it and --data, what the recipe's [evaluation] names."""
    data: tuple[str, ...] = ()
    """Treebank files instead of the run's own corpus."""
    corpus: str = ""
    """A corpus by its name (treelm data list), or its folder, instead of the run's own."""
    tree_builder: Literal["unbiased", "biased", "mbr", "viterbi"] | None = None
    """Way of building trees, from distances (unbiased, biased) or by an induced grammar (mbr, viterbi); without it, as
    in the recipe."""
    hard_gates: bool = False
    """Compare the distances of a PRPN at an infinite temperature: each earlier state is open to attention or is not."""
    preprocess: Preprocessing | None = None
    """Change the words of the data before they are read, as data.preprocess does; without it, as in the recipe."""
    max_sentences: int | None = None
    """Only so many sentences of each split, the first ones."""
    format: FileFormat = "auto"
    """Format of the files of --data. auto: by their names."""
    stream: Literal["no", "beside", "only"] | None = None
    """The perplexity of the whole text in a row, the hidden state kept over sentences, which is what papers on LMs
    report: beside the metrics of sentences and trees, or nothing but that. Without it, as in the recipe; but options of
    trees bring these metrics too."""
    stream_rows: int | None = None
    """Rows in which the stream is read, each from the zero state; without it, as in the recipe (the cache's too), and
    one row for a text that is too short for them."""
    cache_weight: float | None = None
    """Put a continuous cache on the stream: its share, lambda (Grave et al. 2016)."""
    cache_theta: float | None = None
    """Sharpness of the cache's preference for similar states."""
    cache_window: int | None = None
    """Latest states that the cache holds."""
    protocol: tuple[ProtocolName, ...] = ()
    """Protocols of unlabelled F1, each beside trivial trees; without it, those that are usual for the system."""
    on_error: Literal["raise", "skip"] = "raise"
    """skip: leave bad sentences out, report them at the end, exit with code 3."""

    @property
    def of_trees(self) -> str:
        """The first setting that asks for trees, as ``name = value``; "" if none does."""
        return next((_written(self, name) for name in _OF_TREES if getattr(self, name, None)), "")

    def changed_recipe(self, recipe: Recipe) -> Recipe:
        """The recipe of a run with these settings. Raises ``InputError`` for some that have no effect."""
        if self.of_trees and self.stream == "only":
            raise InputError(f'{self.of_trees} with stream = "only"', remedy="remove one of them")
        names = ("max_sentences", "tree_builder", "stream", *_OF_STREAMS)
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.of_trees and recipe.evaluation.stream == "only":
            given.setdefault("stream", "beside")
        if self.split:
            given["splits"] = self.split
        if self.hard_gates:
            given["hard_gates"] = True
        of_data = self.of_treebank() | ({"preprocess": self.preprocess} if self.preprocess else {})
        if self.corpus:
            of_data |= {"corpus": self.corpus, "train": None, "dev": None, "test": None, "format": "auto"}
        evaluation = replace(recipe.evaluation, **given)
        for name in given if evaluation.stream == "no" else ():
            if name in _OF_STREAMS:
                remedy = 'add stream = "beside", or remove this option'
                raise InputError(f'{_written(self, name)} without stream = "beside"', remedy=remedy)
        data, search = replace(recipe.data, **of_data), self.changed(recipe.search)
        return replace(recipe, data=data, search=search, evaluation=evaluation)


def _written(settings: EvaluationSettings, name: str) -> str:
    """A setting with its value, the first of several."""
    value = getattr(settings, name)
    return f"{name} = {value[0] if isinstance(value, tuple) else value}"
