"""Groups of sentences of similar length, which may share a batch, and the order within them."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treelm.configs import Size, configuration
from treelm.errors import InputError


@configuration
class BatchesConfig:
    """Settings for putting sentences of similar length together in batches of whole sentences.

    Length is the number of actions, or of tokens where there are no trees.
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
    """Order of an epoch's sentences, and the group's number at each place; without a generator nothing is drawn."""
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
