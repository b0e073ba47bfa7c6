"""Batches of whole sentences, which models compute on, and the order in which an epoch hands them out."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from treelm.configs import Size, configuration
from treelm.corpora.arrays import fingerprint
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
from treelm.errors import InputError, check_positive

_Cut = TypeVar("_Cut")
_Batch = TypeVar("_Batch")


@configuration
class BatchesConfig:
    """Settings of batches of whole sentences, which put sentences of similar length together.

    The length of a sentence is its number of actions, or of tokens where there are no trees.
    """

    scheme: Literal["sort-in-groups", "sample-in-groups"] = "sort-in-groups"
    """``sort-in-groups``: every epoch draws groups at random and sorts each by length, so that a batch holds neighbours
    in length. ``sample-in-groups``: the whole corpus is sorted by length and cut into groups, the same ones in every
    epoch, and batches are drawn at random within each group (Noji & Oseki 2021). In both, batches come in random
    order."""
    group_size: Size = 4096
    """Sentences in a group, at most."""
    length_difference: Size | None = 20
    """Lengths in a group differ by less (``sample-in-groups``); 20 is what the public code of Noji & Oseki 2021 has."""
    max_length: Size | None = None
    """Tokens of the longest sentences that are trained on; longer ones are left out. Not of dev."""
    first_max_length: Size | None = None
    """The same in the first epoch; every further one has sentences of one token more, until ``max_length`` (Kim, Dyer &
    Rush 2019)."""

    def __post_init__(self) -> None:
        """Check combinations."""
        if self.first_max_length is not None and self.first_max_length > (self.max_length or 0):
            found = f"first_max_length = {self.first_max_length} with max_length = {self.max_length}"
            raise InputError(found, remedy="give a max_length that is not below it")

    def limits(self) -> dict[str, int | None]:
        """The settings that bound a group, by name."""
        limits: dict[str, int | None] = {"group_size": self.group_size}
        if self.max_length is not None:
            limits |= {"max_length": self.max_length, "first_max_length": self.first_max_length}
        return limits if self.scheme == "sort-in-groups" else {**limits, "length_difference": self.length_difference}

    def longest(self, epoch: int) -> int | None:
        """Tokens of the longest sentences of an epoch, counted from 0; None: any."""
        if self.max_length is None or self.first_max_length is None:
            return self.max_length
        return min(self.max_length, self.first_max_length + epoch)


def arrange(
    lengths: NDArray[np.int64], config: BatchesConfig, generator: np.random.Generator | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of an epoch's sentences, and the number of the group at each place.

    Without a generator nothing is drawn at random.
    """
    places = np.arange(len(lengths))
    drawn = places if generator is None else generator.permutation(len(lengths))
    if config.scheme == "sort-in-groups":
        order, groups = drawn, places // config.group_size
        return order[np.lexsort((lengths[order], groups))], groups
    order = np.argsort(lengths, kind="stable")
    stops = np.minimum(places + config.group_size, len(lengths))
    if config.length_difference is not None:
        ascending = lengths[order]
        stops = np.minimum(stops, np.searchsorted(ascending, ascending + config.length_difference))
    groups = np.searchsorted(starts_of_pieces(stops), places, side="right")
    return order[np.lexsort((drawn, groups))], groups


def starts_of_pieces(stops: NDArray[np.int64]) -> list[int]:
    """The begins of pieces, one behind another, where a piece that begins at a place ends at that place's ``stops``."""
    following = stops.tolist()
    starts: list[int] = []
    start = 0
    while start < len(following):
        starts.append(start)
        start = following[start]
    return starts


_DEFAULT = BatchesConfig()


class EpochBatches(abc.ABC, Generic[_Cut, _Batch]):
    """Batches of one epoch after another, at a position that can be saved and restored.

    An iteration gives the rest of the current epoch and then moves to the next one. ``state`` returns the position
    after the batch that was handed out last, and ``restore`` goes back to such a position.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """Begin with the first batch of epoch 0; the cuts follow from ``settings``, of JSON values."""
        self.epoch = 0
        """The current epoch."""
        self.position = 0
        """Batches of the current epoch that were handed out."""
        self._settings = settings
        self._planned: tuple[int, Sequence[_Cut]] | None = None

    @abc.abstractmethod
    def _cut_epoch(self) -> Sequence[_Cut]:
        """The current epoch, cut into batches."""

    @abc.abstractmethod
    def _batch(self, cut: _Cut) -> _Batch:
        """The batch of a cut."""

    def __len__(self) -> int:
        """Number of batches in the current epoch."""
        return len(self._plan())

    def __iter__(self) -> Iterator[_Batch]:
        """The rest of the current epoch."""
        while self.position < len(self):
            self.position += 1
            yield self._batch(self._plan()[self.position - 1])
        self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """The position and all that the order follows from, as JSON values."""
        return {"epoch": self.epoch, "position": self.position, **self._settings}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to a position; raises InputError if data or settings are others than those of the saved state."""
        for name, own in self._settings.items():
            if state.get(name) != own:
                found = f"the data position was saved with other {name} ({state.get(name)!r}, now {own!r})"
                raise InputError(found, remedy="resume with the data and settings of the run")
        epoch, position = state.get("epoch"), state.get("position")
        if not (isinstance(epoch, int) and isinstance(position, int) and epoch >= 0 and position >= 0):
            raise InputError(f"data position {epoch!r}, {position!r}", remedy="use an undamaged checkpoint")
        self.epoch, self.position = epoch, position
        if position > len(self):
            raise InputError(f"batch {position} of {len(self)}", remedy="use an undamaged checkpoint")

    def _plan(self) -> Sequence[_Cut]:
        """The cuts of the current epoch, made once."""
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = (self.epoch, self._cut_epoch())
        return self._planned[1]


class SentenceBatches(EpochBatches[NDArray[np.int64], SentenceBatch]):
    """Batches of sentences of similar length, epoch by epoch; the order follows from the seed alone.

    Every epoch arranges the corpus in groups by the scheme of its ``BatchesConfig``, cuts each group into batches by
    size and number of actions, and shuffles the batches. A sentence of more than ``max_actions`` is a batch by itself.
    """

    def __init__(
        self,
        encoded: EncodedCorpus,
        *,
        batch_size: int,
        max_actions: int | None = None,
        config: BatchesConfig = _DEFAULT,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        """Cut at most ``batch_size`` sentences and ``max_actions`` actions into a batch."""
        check_positive(batch_size=batch_size, max_actions=max_actions)
        limits = {"batch_size": batch_size, "max_actions": max_actions, "max_tokens": None}  # as checkpoints have them
        settings = {
            "seed": seed,
            "shuffle": shuffle,
            "scheme": config.scheme,
            "limits": {**limits, **config.limits()},
            "data": fingerprint(np.asarray(encoded.num_actions, dtype="<i8")),
        }
        super().__init__(settings)
        self._encoded, self._config = encoded, config
        self._batch_size, self._max_actions, self._seed, self._shuffle = batch_size, max_actions, seed, shuffle

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to a position; raises InputError if data or settings are others than those of the saved state."""
        super().restore({"scheme": "sort-in-groups", **state})  # once there was no other

    def _batch(self, cut: NDArray[np.int64]) -> SentenceBatch:
        return self._encoded.batch(cut)

    def _cut_epoch(self) -> list[NDArray[np.int64]]:
        generator = np.random.default_rng([self._seed, self.epoch]) if self._shuffle else None
        longest = self._config.longest(self.epoch)
        own = np.flatnonzero(self._encoded.num_tokens <= (np.inf if longest is None else longest))
        order, groups = arrange(self._encoded.num_actions[own], self._config, generator)
        order = own[order]
        starts = starts_of_pieces(self._stops(order, groups))
        batches = np.split(order, starts[1:]) if starts else []
        return batches if generator is None else [batches[index] for index in generator.permutation(len(batches))]

    def _stops(self, order: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """The stop of a batch that begins at a place: it takes as many sentences as size, actions and group allow."""
        place = np.arange(len(order))
        stops = np.minimum(place + self._batch_size, np.searchsorted(groups, groups, side="right"))
        if self._max_actions is not None:
            ends = np.concatenate(([0], np.cumsum(self._encoded.num_actions[order])))
            stops = np.minimum(stops, np.searchsorted(ends, ends[:-1] + self._max_actions, side="right") - 1)
        return np.maximum(stops, place + 1)
