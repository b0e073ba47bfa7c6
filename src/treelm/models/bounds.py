"""Fields of configs that follow from the training data: lists of labels or tags, and bounds that every tree keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.errors import InputError

_ACTIONS_AT_ONCE = 1 << 20


def parts_of(corpus: PreparedCorpus) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the actions and offsets of a corpus in parts of about a million actions, of one sentence at least."""
    offsets, first = corpus.action_offsets, 0
    while first < len(corpus):
        end = max(int(np.searchsorted(offsets, offsets[first] + _ACTIONS_AT_ONCE, "right")) - 1, first + 1)
        actions = corpus.actions[offsets[first] : offsets[end]].astype(np.int64)
        yield actions, offsets[first : end + 1].astype(np.int64) - offsets[first]
        first = end


class InventoryConfig(ABC):
    """A config with lists of labels or tags that are taken from the training data where none are given."""

    @abstractmethod
    def taken_from(self, corpus: PreparedCorpus) -> Self:
        """The config with the lists that it lacks, taken from a corpus."""


class BoundedConfig(ABC):
    """A config with bounds that can be taken from the training trees (``bounds_margin`` of ``[model]``)."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[str, ...]:
        """The names of the fields that are bounds."""

    @abstractmethod
    def needed_bounds(self, corpus: PreparedCorpus) -> Mapping[str, NDArray[np.int16]]:
        """The least value of each bound with which the model can build each tree of a corpus, by name."""

    def fitted_to(self, corpus: PreparedCorpus, margin: int) -> Self:
        """The config with the bounds that the trees of a corpus need, plus a margin."""
        needed = self.needed_bounds(corpus)
        config: Any = self
        fitted: Self = replace(config, **{name: int(needed[name].max(initial=1)) + margin for name in self.bounds})
        return fitted

    def beyond_bounds(self, corpus: PreparedCorpus) -> NDArray[np.intp]:
        """The numbers of the sentences, with trees or without, whose tree may need more than a bound."""
        needed = self.needed_bounds(corpus).items()
        return np.flatnonzero(np.any([values > getattr(self, name) for name, values in needed], axis=0))

    def check_trees(self, corpus: EncodedCorpus) -> None:
        """Raise ``InputError`` at the first tree that the model cannot build. It is asked before training."""
        corpus.prepared.check_has_trees()
        self.check_bounds(corpus)

    def check_bounds(self, corpus: EncodedCorpus) -> None:
        """Raise ``InputError`` at the first sentence, with a tree or without, that exceeds a bound or has no words."""
        blank = np.flatnonzero(corpus.num_words == 0)
        if len(blank):
            found = "a blank line, and this system reads trees of one word or more"
            raise InputError(found, where=corpus.name(int(blank[0])), remedy="give data.empty_lines = false")
        for name, values in self.needed_bounds(corpus.prepared).items():
            bound, own = getattr(self, name), values[corpus.sentences]
            if (own > bound).any():
                index = int((own > bound).argmax())
                found = f"this tree needs {name} = {own[index]}, the model has {bound}"
                remedy = f"in [model] raise {name} or bounds_margin, whichever is there, or remove this sentence"
                raise InputError(found, where=corpus.name(index), remedy=remedy)
