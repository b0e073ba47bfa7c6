"""Batches: what a model computes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceBatch:
    """Whole sentences, flat and without padding.

    Symbols of sentence b are ``tokens[token_offsets[b]:token_offsets[b + 1]]``; its actions, if it has a tree,
    ``actions[action_offsets[b]:action_offsets[b + 1]]``: top-down, one SHIFT a symbol, labels numbered as in the model.
    """

    tokens: NDArray[np.int64]
    token_offsets: NDArray[np.int64]
    num_words: NDArray[np.int64]  # a sentence
    actions: NDArray[np.int64] | None = None
    action_offsets: NDArray[np.int64] | None = None
    names: tuple[str, ...]  # file:line of each sentence, for messages

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.num_words)


class Encoded(Protocol):
    """What batches are cut from: ``EncodedCorpus``, or anything that knows its lengths and makes batches."""

    @property
    def num_tokens(self) -> NDArray[np.int64]:
        """Symbols of every sentence."""

    @property
    def num_actions(self) -> NDArray[np.int64]:
        """Top-down actions of every sentence, over symbols; symbols, if the corpus has no trees."""

    def batch(self, indices: NDArray[np.int64]) -> SentenceBatch:
        """These sentences, in this order."""


class SentenceBatches:
    """Batches of sentences of similar length, epoch by epoch; the order follows from the seed alone.

    Every epoch shuffles the whole corpus, cuts it into groups, sorts each group by the number of actions, cuts it into
    batches by size and budget, and shuffles the batches (the scheme of Noji & Oseki 2021). A sentence beyond the budget
    is a batch by itself.

    Iterating gives the rest of the current epoch and then moves to the next one. ``state`` tells the position after the
    last batch that was handed out, and ``restore`` goes there.
    """

    def __init__(
        self,
        encoded: Encoded,
        *,
        batch_size: int,
        max_actions: int | None = None,
        max_tokens: int | None = None,
        group_size: int = 4096,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Cut at most ``batch_size`` sentences, ``max_actions`` actions and ``max_tokens`` symbols into a batch.

        Of ``world`` processes the one with this ``rank`` gets every ``world``-th batch, all the same number of them.
        """
        limits = {"batch_size": batch_size, "max_actions": max_actions, "max_tokens": max_tokens}
        limits["group_size"] = group_size
        for name, value in limits.items():
            if value is not None and value < 1:
                raise InputError(f"{name} = {value}", remedy="give 1 or more")
        if not 0 <= rank < world:
            raise InputError(f"rank {rank} of {world}", remedy="give a rank from 0 to world - 1")
        self._encoded = encoded
        self._limits = limits
        self._seed, self._shuffle = seed, shuffle
        self._rank, self._world = rank, world
        self._epoch = 0
        self._position = 0
        self._planned: tuple[int, list[NDArray[np.int64]]] | None = None

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._epoch

    @property
    def position(self) -> int:
        """Batches of the current epoch that were handed out."""
        return self._position

    def __len__(self) -> int:
        """Number of batches in the current epoch, for this rank."""
        return len(self._plan())

    def __iter__(self) -> Iterator[SentenceBatch]:
        """The rest of the current epoch."""
        plan = self._plan()
        while self._position < len(plan):
            self._position += 1
            yield self._encoded.batch(plan[self._position - 1])
        self._epoch, self._position = self._epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """The position and all that the order follows from, as JSON values."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "world": self._world,
            "limits": dict(self._limits),
            "data": self._data_fingerprint,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to a position; raises InputError if data or settings are others than those of the saved state."""
        own = self.state()
        for name in ("seed", "shuffle", "world", "limits", "data"):
            if state.get(name) != own[name]:
                raise InputError(
                    f"the data position was saved with other {name} ({state.get(name)!r}, now {own[name]!r})",
                    remedy="resume with the data and settings of the run",
                )
        epoch, position = state.get("epoch"), state.get("position")
        if not (isinstance(epoch, int) and isinstance(position, int) and epoch >= 0 and position >= 0):
            raise InputError(f"data position {epoch!r}, {position!r}", remedy="use an undamaged checkpoint")
        self._epoch, self._position = epoch, position
        if position > len(self):
            raise InputError(f"batch {position} of {len(self)}", remedy="use an undamaged checkpoint")

    @cached_property
    def _data_fingerprint(self) -> str:
        lengths = np.ascontiguousarray(self._encoded.num_actions, dtype="<i8")
        return hashlib.blake2b(lengths.tobytes(), digest_size=8).hexdigest()

    def _plan(self) -> list[NDArray[np.int64]]:
        """Sentences of every batch of the current epoch."""
        if self._planned is None or self._planned[0] != self._epoch:
            self._planned = (self._epoch, self._cut_epoch())
        return self._planned[1]

    def _cut_epoch(self) -> list[NDArray[np.int64]]:
        num_sentences = len(self._encoded.num_actions)
        generator = np.random.default_rng([self._seed, self._epoch])
        order = generator.permutation(num_sentences) if self._shuffle else np.arange(num_sentences)
        order = _sort_groups(order, self._encoded.num_actions, self._limit("group_size"))
        starts = self._starts(order)
        batches = np.split(order, starts[1:]) if num_sentences else []
        if self._shuffle:
            batches = [batches[index] for index in generator.permutation(len(batches))]
        return batches[self._rank : len(batches) - len(batches) % self._world : self._world]

    def _limit(self, name: str) -> int:
        value = self._limits[name]
        assert value is not None
        return value

    def _starts(self, order: NDArray[np.int64]) -> list[int]:
        """Where batches begin in this order: each takes as many sentences as size, budgets and its group allow."""
        place = np.arange(len(order))
        group_size = self._limit("group_size")
        stop = np.minimum(place + self._limit("batch_size"), (place // group_size + 1) * group_size)
        for name, lengths in (("max_actions", self._encoded.num_actions), ("max_tokens", self._encoded.num_tokens)):
            budget = self._limits[name]
            if budget is not None:
                ends = np.concatenate(([0], np.cumsum(lengths[order])))
                stop = np.minimum(stop, np.searchsorted(ends, ends[:-1] + budget, side="right") - 1)
        following = np.minimum(np.maximum(stop, place + 1), len(order)).tolist()
        starts: list[int] = []
        start = 0
        while start < len(order):
            starts.append(start)
            start = following[start]
        return starts


def _sort_groups(order: NDArray[np.int64], lengths: NDArray[np.int64], group_size: int) -> NDArray[np.int64]:
    """Sort each group by length; equally long sentences keep their order. The last group may be smaller."""
    whole = len(order) - len(order) % group_size
    groups = order[:whole].reshape(-1, group_size)
    by_length = np.take_along_axis(groups, np.argsort(lengths[groups], axis=1, kind="stable"), axis=1)
    rest = order[whole:]
    return np.concatenate((by_length.ravel(), rest[np.argsort(lengths[rest], kind="stable")]))
