"""The options of a search that commands and measures share.

They stand apart from ``config.py``, whose checks import libraries that ``treelm --help`` does not need.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.models.search.config import SearchConfig

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

    def given_search(self) -> dict[str, Any]:
        """The options that are given, by the names of fields of ``SearchConfig``."""
        return {own: value for name, own in OPTIONS.items() if (value := getattr(self, name)) is not None}

    def changed(self, config: SearchConfig) -> SearchConfig:
        """The config with the options that are given.

        Raises ``InputError`` for options of the particle filter with another method.
        """
        if self.threshold is not None:
            config = replace(config, action_beam=None, word_beam=None, fast_track=None)
        elif self.search not in (None, "beam"):
            config = replace(config, threshold=None)
        found = replace(config, **self.given_search())
        for name in ("num_particles", "search_seed"):
            if getattr(self, name) is not None and found.method != "particles":
                remedy = 'add search = "particles", or remove this option'
                raise InputError(f"{name} with search by {found.method!r}", remedy=remedy)
        return found


OPTIONS = {one.name: one.name.removeprefix("search_") for one in fields(SearchOptions)} | {"search": "method"}
"""Names of options on the command line, and of fields of ``[evaluation]`` in older recipes -> fields of the config."""
