"""The config of a search: the one record that the API, recipes and the command line share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from treelm.errors import InputError, check_choice

SearchMethod = Literal["beam", "particles", "released"]
SearchPrecision = Literal["full", "fp16", "bf16"]


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """The config of word-synchronous search (Stern et al. 2017) and of the particle filter (Crabbé et al. 2019)."""

    method: SearchMethod = "beam"
    """Beam search gives lower bounds; the particle filter an unbiased estimate of prefix probabilities; ``"released"``
    reproduces masks, scores and stopping rule of the public code of Noji & Oseki (2021)."""
    action_beam: int = 100
    """k: partial analyses kept after every action."""
    word_beam: int = 10
    """k_w: partial analyses kept after every token."""
    fast_track: int = 1
    """k_s: the best SHIFTs of every step that reach the word beam even from below the action beam."""
    threshold: float = math.inf
    """Nats below all analyses of the sentence that are in play at which one is dropped: an adaptive beam, of which
    ``action_beam`` and ``word_beam`` are the largest sizes. Without it (inf) they are filled."""
    num_particles: int = 1000
    """Particles of each sentence (``method = "particles"``)."""
    seed: int = 0
    """Seed of the particle filter: the same sentence gets the same estimate in any batch."""
    precision: SearchPrecision = "full"
    """Type of the network's weights, states and products while searching: that of the weights, or half precision (the
    paper infers in fp16). Sums over analyses stay float64. Scores in half precision are approximations, no bounds."""
    batch_size: int = 10
    """Sentences searched side by side; speed and memory only."""
    heavy_words: int = 512
    """Words whose logits bound the normaliser of p(word) from below; speed only."""
    max_rows: int = 1 << 11
    """Stack items after which search drops those out of reach, even within a word; memory only."""
    matmul: Literal["highest", "high", "medium"] = "highest"
    """``torch.set_float32_matmul_precision`` while searching. On a CPU "medium" lets oneDNN do float32 products,
    which keeps a kernel for every shape, so it takes more memory (docs/performance-log.md). Where that would round to
    bfloat16 ("medium") or TF32, products stay those of "highest", and a warning says so."""

    def __post_init__(self) -> None:
        """Check ranges; raises ``InputError`` naming the field."""
        check_choice("search.method", self.method, get_args(SearchMethod))
        check_choice("search.precision", self.precision, get_args(SearchPrecision))
        for name in ("action_beam", "word_beam", "num_particles", "batch_size", "heavy_words", "max_rows"):
            if getattr(self, name) < 1:
                raise InputError(f"search.{name} is {getattr(self, name)}", remedy="give at least 1")
        if not self.threshold >= 1:
            raise InputError(f"search.threshold is {self.threshold}", remedy="give at least 1 nat, such as 9")
        for name in ("fast_track", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"search.{name} is {getattr(self, name)}", remedy="give 0 or more")
        if self.method == "released" and self.action_beam < 2:
            raise InputError("the released search needs an action_beam of at least 2", remedy="raise it")
        if math.isfinite(self.threshold) and self.method != "beam":
            raise InputError(f"a threshold with search by {self.method!r}", remedy="remove it, or search by 'beam'")

    def __str__(self) -> str:
        """Describe it as in "beam 100/10/1" or "1000 particles, fp16"."""
        widths = f"{self.action_beam}/{self.word_beam}/{self.fast_track}"
        names = {"beam": f"beam {widths}", "released": f"released beam {widths}"}
        name = names.get(self.method, f"{self.num_particles} particles")
        return name if self.precision == "full" else f"{name}, {self.precision}"

    def to_json(self) -> dict[str, Any]:
        """The values that results depend on, by the names of options: widths, and what is not as usual."""
        usual, names = SearchConfig(), {**OPTIONS, "threshold": "threshold"}
        values = {name: (getattr(self, own), getattr(usual, own)) for name, own in names.items()}
        return {name: value for name, (value, default) in values.items() if name in WIDTHS or value != default}

    @property
    def gives_bounds(self) -> bool:
        """Whether what is found are lower bounds of probabilities: not by sampling, nor with rounded weights."""
        return self.method != "particles" and self.precision == "full"

    @property
    def narrow(self) -> float:
        """The threshold of a narrower search, whose metrics say whether those of this one have converged."""
        return self.threshold - 2

    @property
    def most_overflow(self) -> float:
        """The share of a word's mass that a full beam may lose before nothing after it counts as converged.

        With a threshold, so that the narrower search is contained in this one; without, there is none to compare with.
        """
        return 0.1 if math.isfinite(self.threshold) else 0.02


ADAPTIVE = SearchConfig(action_beam=1000, word_beam=100, threshold=10.0)
"""The search for surprisals of single words; docs/models/rnng-search.md has what it costs."""

WIDTHS = ("action_beam", "word_beam", "fast_track")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Fields of ``SearchConfig`` that are given in the place of those of a run's recipe; None: as the recipe says."""

    action_beam: int | None = None
    """Hypotheses kept between actions; without it (so also the next two) as in the run's recipe under [search],
    and in treelm surprisal as --threshold says."""
    word_beam: int | None = None
    """Hypotheses kept between words."""
    fast_track: int | None = None
    """Best SHIFTs that enter the word beam past the action beam."""
    search: SearchMethod | None = None
    """beam: word-synchronous beam search. particles: a particle filter. released: the scores of the RNNG's public code.
    Without it (so also the next three) as in the recipe, and in treelm surprisal a beam."""
    num_particles: int | None = None
    """Particles of each sentence."""
    search_seed: int | None = None
    """Seed of the particles."""
    search_precision: SearchPrecision | None = None
    """Precision in which the network computes while searching; full: that of its weights."""

    def given_search(self) -> dict[str, Any]:
        """The fields of ``SearchConfig`` that are given, a legal 0 too."""
        return {own: value for name, own in OPTIONS.items() if (value := getattr(self, name)) is not None}

    def gives_widths(self) -> bool:
        """Whether a width of the beam is given."""
        return any(getattr(self, name) is not None for name in WIDTHS)

    def changed(self, config: SearchConfig) -> SearchConfig:
        """The config with what is given. Raises ``InputError`` for settings of particles without particles."""
        found = replace(config, **self.given_search())
        for name in ("num_particles", "search_seed"):
            if getattr(self, name) is not None and found.method != "particles":
                remedy = 'add search = "particles" (--search particles), or remove this option'
                raise InputError(f"{name} with search by {found.method!r}", remedy=remedy)
        return found


OPTIONS = {one.name: one.name.removeprefix("search_") for one in fields(SearchOptions)} | {"search": "method"}
"""Names of options of the command line, and of fields of ``[evaluation]`` in older recipes: fields of the config."""


def with_search_section(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a recipe, those of an older one with ``[search]`` in the place of fields of ``[evaluation]``.

    Two switches that changed speed alone are no longer there, and are dropped.
    """
    evaluation, search = recipe.get("evaluation"), recipe.get("search")
    if isinstance(search, Mapping):
        kept = {name: value for name, value in search.items() if name not in ("share", "share_prefixes")}
        return {**recipe, "search": kept}
    if search is not None or not isinstance(evaluation, Mapping):
        return dict(recipe)
    rest = {name: value for name, value in evaluation.items() if name not in OPTIONS}
    search = {OPTIONS[name]: value for name, value in evaluation.items() if name in OPTIONS}
    return {**recipe, "evaluation": rest, "search": search}
