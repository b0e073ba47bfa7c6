"""The config of a search: the one record that the API, recipes and the command line share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from treelm.configs import configuration
from treelm.errors import InputError
from treelm.models.search.options import OPTIONS, BeamSizes, SearchMethod, SearchPrecision

ADAPTIVE = BeamSizes(1000, 100, 1, 10.0)
"""The beam unless a width is asked for; docs/models/rnng-search.md has what it costs."""
FIXED = BeamSizes(100, 10, 1, math.inf)
"""The beam whose other sizes stand beside a width that is asked for."""


@configuration
class SearchConfig:
    """The config of word-synchronous search (Stern et al. 2017) and of the particle filter (Crabbé et al. 2019)."""

    method: SearchMethod = "beam"
    """Beam search gives lower bounds; the particle filter an unbiased estimate of prefix probabilities; ``"released"``
    reproduces masks, scores and stopping rule of the public code of Noji & Oseki (2021)."""
    action_beam: int | None = None
    """k: the most partial analyses kept after every action."""
    word_beam: int | None = None
    """k_w: the most partial analyses kept after every token."""
    fast_track: int | None = None
    """k_s: the best SHIFTs of every step that reach the word beam even from below the action beam."""
    threshold: Annotated[float, Field(allow_inf_nan=True)] | None = None
    """Nats below all analyses of the sentence that are in play at which one is dropped: an adaptive beam, which widens
    where the doubt is large. If neither it nor a width is given the beam is ``ADAPTIVE``, which converges for most
    words; a width without a threshold asks for a fixed beam, always filled, with the other widths of ``FIXED``."""
    num_particles: int = 1000
    """Particles of each sentence (``method = "particles"``)."""
    seed: int = 0
    """Seed of the particle filter: the same sentence gets the same estimate in any batch."""
    precision: SearchPrecision = "full"
    """Type of the network's weights, states and products while searching: that of the weights, or half precision (the
    paper infers in fp16). Sums over analyses stay float64. Scores in half precision are approximations, no bounds."""
    batch_size: int = 10
    """Sentences that are searched side by side; changes speed and memory only. A search that runs on a GPU as
    a whole takes as many as memory holds."""
    heavy_words: int = 512
    """Words whose logits bound the normaliser of p(word) from below; changes speed only."""
    max_rows: int = 1 << 11
    """Stack items after which the search drops unused ones even within a word; changes memory only."""
    matmul: Literal["highest", "high", "medium"] = "highest"
    """``torch.set_float32_matmul_precision`` while searching. On a CPU "medium" lets oneDNN do float32 products,
    which keeps a kernel for every shape, so it takes more memory (docs/research/performance.md). Where that would
    round to bfloat16 ("medium") or TF32, products stay those of "highest", and a warning says so."""

    def __post_init__(self) -> None:
        """Check ranges; raises ``InputError`` naming the field."""
        values = {**vars(self), **self.beam._asdict()}
        for name in ("action_beam", "word_beam", "num_particles", "batch_size", "heavy_words", "max_rows"):
            if values[name] < 1:
                raise InputError(f"search.{name} is {values[name]}", remedy="give at least 1")
        if not self.beam.threshold >= 1:
            raise InputError(f"search.threshold is {self.threshold}", remedy="give at least 1 nat, such as 9")
        for name in ("fast_track", "seed"):
            if values[name] < 0:
                raise InputError(f"search.{name} is {values[name]}", remedy="give 0 or more")
        if self.method == "released" and self.beam.action_beam < 2:
            raise InputError("the released search needs an action_beam of at least 2", remedy="raise it")
        if self.threshold not in (None, math.inf) and self.method != "beam":
            raise InputError(f"a threshold with search by {self.method!r}", remedy="remove it, or search by 'beam'")

    def __str__(self) -> str:
        """Describe it as in "adaptive beam 1000/100/1, threshold 10", "beam 100/10/1" or "1000 particles, fp16"."""
        *sizes, threshold = self.beam
        widths = "/".join(map(str, sizes))
        beam = f"beam {widths}" if not self.is_adaptive else f"adaptive beam {widths}, threshold {threshold:g}"
        names = {"beam": beam, "released": f"released beam {widths}"}
        name = names.get(self.method, f"{self.num_particles} particles")
        return name if self.precision == "full" else f"{name}, {self.precision}"

    def to_json(self) -> dict[str, Any]:
        """The settings on which results depend, by the names of options: the beam, and others unless by default."""
        beam = {name: value for name, value in self.beam._asdict().items() if value != math.inf}
        others = {name: own for name, own in OPTIONS.items() if name not in BeamSizes._fields}
        usual = {name: (getattr(self, own), getattr(SearchConfig, own)) for name, own in others.items()}
        return beam | {name: value for name, (value, default) in usual.items() if value != default}

    @property
    def beam(self) -> BeamSizes:
        """The sizes of the beam, where those that are not given are filled in: all else depends on this property."""
        given = {name: value for name in BeamSizes._fields if (value := getattr(self, name)) is not None}
        is_adaptive = self.method == "beam" and ("threshold" in given or not given)
        return (ADAPTIVE if is_adaptive else FIXED)._replace(**given)

    @property
    def is_adaptive(self) -> bool:
        """Whether the beam is adaptive, so that it reports which words have converged."""
        return math.isfinite(self.beam.threshold)

    @property
    def wider(self) -> str:
        """Options of a wider search. With a larger threshold alone, the beam would be full sooner, and lose more."""
        k, word_beam, _, threshold = self.beam
        widths = f"--action-beam {4 * k} --word-beam {4 * word_beam}"
        beam = f"--threshold {threshold + 1:g} {widths}" if self.is_adaptive else f"--threshold {ADAPTIVE.threshold:g}"
        return {"beam": beam, "released": widths}.get(self.method, f"--num-particles {4 * self.num_particles}")

    @property
    def gives_bounds(self) -> bool:
        """Whether scores are lower bounds of probabilities: not by sampling, nor with rounded weights."""
        return self.method != "particles" and self.precision == "full"


def with_search_section(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a recipe; in older ones, fields of ``[evaluation]`` become those of ``[search]``.

    Two former switches, which changed speed only, are dropped. So are the widths in the record of an older run, which
    has every field, so that it is not known whether they were asked for.
    """
    evaluation, search = recipe.get("evaluation", {}), recipe.get("search", {})
    if not isinstance(evaluation, Mapping) or not isinstance(search, Mapping):
        return dict(recipe)
    is_record = search.get("threshold") == math.inf and "max_rows" in search
    if "search" not in recipe:
        is_record = "stream_rows" in evaluation and any(name in evaluation for name in OPTIONS)
        search = {OPTIONS[name]: value for name, value in evaluation.items() if name in OPTIONS}
        evaluation = {name: value for name, value in evaluation.items() if name not in OPTIONS}
    dropped = ["share", "share_prefixes"]
    if is_record and search.get("method", "beam") == "beam":
        dropped += BeamSizes._fields
    search = {name: value for name, value in search.items() if name not in dropped}
    return {**recipe, "evaluation": evaluation, "search": search}
