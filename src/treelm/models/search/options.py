"""The options of a search that commands and measures share: names, types and help.

They stand apart from ``config.py``, which applies them, because its checks import libraries that help does not need.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

SearchMethod = Literal["beam", "particles", "released"]
SearchPrecision = Literal["full", "fp16", "bf16"]


class BeamSizes(NamedTuple):
    """What a beam keeps; see the fields of ``SearchConfig`` with these names."""

    action_beam: int
    word_beam: int
    fast_track: int
    threshold: float  # inf: none, a fixed beam


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Fields of ``SearchConfig`` that are given instead of those of a run's recipe; None: as the recipe says."""

    action_beam: int | None = None
    """Hypotheses kept between actions. Widths alone ask for a fixed beam, with the recipe's other widths or those of
    100/10/1; with --threshold, or without widths and a recipe's own, the beam is adaptive, at most 1000/100/1."""
    word_beam: int | None = None
    """Hypotheses kept between words."""
    fast_track: int | None = None
    """Best SHIFTs that enter the word beam past the action beam."""
    threshold: float | None = None
    """Drop an analysis this many nats below the sum of all: an adaptive beam, which replaces the recipe's. Without
    widths it is at most 1000/100/1; to find more, raise all: --threshold 11 --action-beam 4000 --word-beam 400."""
    search: SearchMethod | None = None
    """beam: word-synchronous beam search. particles: a particle filter. released: the scores of the RNNG's public code.
    Without it (so also the next three) as in the recipe."""
    num_particles: int | None = None
    """Particles of each sentence."""
    search_seed: int | None = None
    """Seed of the particles."""
    search_precision: SearchPrecision | None = None
    """Precision in which the network computes while searching; full: that of its weights."""


OPTIONS = {one.name: one.name.removeprefix("search_") for one in fields(SearchOptions)} | {"search": "method"}
"""Names of options on the command line, and of fields of ``[evaluation]`` in older recipes -> fields of the config."""
