"""Settings of search: sizes of the beams, and the public code to reproduce, if any."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from treelm.errors import InputError, check_choice

SearchName = Literal["beam", "particles", "released"]
SearchPrecision = Literal["full", "fp16", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of word-synchronous search (Stern et al. 2017) and of the particle filter (Crabbé et al. 2019)."""

    method: Literal["beam", "particles"] = "beam"
    """Beam search gives lower bounds; the particle filter an unbiased estimate of prefix probabilities."""
    action_beam: int = 100
    """k: partial analyses kept after every action."""
    word_beam: int = 10
    """k_w: partial analyses kept after every token."""
    fast_track: int = 1
    """k_s: the best SHIFTs of every step that reach the word beam even from below the action beam."""
    threshold: float = math.inf
    """Nats below all analyses of the sentence that are in play at which one is dropped: so the beam is as wide as the
    doubt, and ``action_beam`` and ``word_beam`` are the most that it may hold. Without it (inf) they are filled."""
    num_particles: int = 1000
    """Particles of each sentence (``method = "particles"``)."""
    seed: int = 0
    """Seed of the particle filter: the same sentence gets the same estimate in any company."""
    batch_size: int = 10
    """Sentences searched side by side; speed and memory only."""
    compatibility: Literal["released"] | None = None
    """``"released"`` reproduces masks, scores and stopping rule of the public code of Noji & Oseki (2021)."""
    precision: SearchPrecision = "full"
    """Type of the network's weights, states and products while searching: that of the weights, or half precision (the
    paper infers in fp16). Sums over analyses stay float64. Scores in half precision are approximations, no bounds."""
    heavy_words: int = 512
    """Words whose logits bound the normaliser of p(word) from below; speed only."""
    share: bool = True
    """Compose equal constituents of different analyses once; speed only."""
    share_prefixes: bool = True
    """Search prefixes that several sentences share once; speed only. Beam search by the model's own rule can."""
    max_rows: int = 1 << 11
    """Stack items after which search drops those out of reach, even within a word; memory only."""
    matmul: Literal["highest", "high", "medium"] = "highest"
    """``torch.set_float32_matmul_precision`` while searching. On a CPU "medium" lets oneDNN do float32 products,
    which keeps a kernel for every shape, so it takes more memory (docs/performance-log.md). Where that would round to
    bfloat16 ("medium") or TF32, products stay those of "highest", and a warning says so."""

    def __post_init__(self) -> None:
        """Check ranges; raises ``InputError`` naming the field."""
        check_choice("search.precision", self.precision, get_args(SearchPrecision))
        for name in ("action_beam", "word_beam", "num_particles", "batch_size", "heavy_words", "max_rows"):
            if getattr(self, name) < 1:
                raise InputError(f"search.{name} is {getattr(self, name)}", remedy="give at least 1")
        if not self.threshold >= 1:
            raise InputError(f"search.threshold is {self.threshold}", remedy="give at least 1 nat, such as 9")
        for name in ("fast_track", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"search.{name} is {getattr(self, name)}", remedy="give 0 or more")
        if self.compatibility == "released" and (self.action_beam < 2 or self.method != "beam"):
            raise InputError(
                "compatibility with the released search needs beam search with action_beam of at least 2",
                remedy="raise action_beam or leave compatibility out",
            )
        if math.isfinite(self.threshold) and (self.compatibility is not None or self.method != "beam"):
            raise InputError("a threshold is of beam search by the model's own rule", remedy="leave threshold out")

    @property
    def gives_bounds(self) -> bool:
        """Tell whether what is found are lower bounds of probabilities: not by sampling, nor with rounded weights."""
        return self.method == "beam" and self.precision == "full"

    @property
    def narrow(self) -> float:
        """The threshold of a narrower search, whose metrics say whether those of this one have converged."""
        return self.threshold - 2

    @property
    def most_crowded(self) -> float:
        """The share of a word's mass that a full beam may lose before nothing after it counts as converged.

        With a threshold, so that the narrower search is contained in this one; without, there is none to compare with.
        """
        return 0.1 if math.isfinite(self.threshold) else 0.02

    @property
    def shares_prefixes(self) -> bool:
        """Tell whether prefixes are searched once: not where a sentence's length or its random draws count."""
        return self.share_prefixes and self.method == "beam" and self.compatibility is None


@dataclass(frozen=True, kw_only=True)
class GivenSearch:
    """Arguments of ``set_beam`` that are given in the place of those of a run's recipe; None: as the recipe says."""

    action_beam: int | None = None
    """Hypotheses kept between actions."""
    word_beam: int | None = None
    """Hypotheses kept between words."""
    fast_track: int | None = None
    """Best SHIFTs that enter the word beam past the action beam."""
    search: SearchName | None = None
    """Way to search."""
    num_particles: int | None = None
    """Particles of each sentence."""
    search_seed: int | None = None
    """Seed of the particles."""
    search_precision: SearchPrecision | None = None
    """Precision in which networks compute while searching."""


BEAM = tuple(field.name for field in fields(GivenSearch))
"""Names of what a recipe or a user says of a search."""


def given_search(options: Any) -> dict[str, Any]:
    """What was given of the search, a legal 0 too, in options that have all ``BEAM``: those of ``set_beam``."""
    return {name: value for name in BEAM if (value := getattr(options, name)) is not None}


def search_in_words(settings: Mapping[str, Any]) -> str:
    """Describe arguments of ``set_beam``: "beam 100/10/1", "1000 particles, fp16"."""
    widths = f"{settings['action_beam']}/{settings['word_beam']}/{settings['fast_track']}"
    search, precision = settings.get("search", "beam"), settings.get("search_precision", "full")
    names = {"beam": f"beam {widths}", "released": f"released beam {widths}"}
    name = names.get(search) or f"{settings.get('num_particles', Search.num_particles)} particles"
    return name if precision == "full" else f"{name}, {precision}"
