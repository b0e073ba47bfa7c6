"""Whole sentences through the beam: log probabilities, statistics and n-best trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from treelm.models.rnng.search.beam import WAITS, Beam, Endings, SymbolFigures
from treelm.models.rnng.search.particles import ParticleFilter
from treelm.models.rnng.search.released import ReleasedRule
from treelm.models.rnng.search.rows import Floats, Ints
from treelm.models.rnng.search.settings import Search
from treelm.models.rnng.search.weights import SearchWeights
from treelm.models.rnng.search.words import WordHead


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """The actions of a complete analysis, one SHIFT a symbol, and its log probability in nats."""

    actions: tuple[int, ...]
    log_prob: float


@dataclass(kw_only=True)
class SentenceResult:
    """What search says of one sentence. Lists have one entry a symbol."""

    log_masses: list[float] = field(default_factory=list)  # M_i, nats
    beam_loss_bits: list[float] = field(default_factory=list)  # by the cut to the word beam
    entropy_bits: list[float] = field(default_factory=list)
    open_nodes: list[float] = field(default_factory=list)
    log_prob: float = -np.inf  # of the sentence, its end included
    derivations: list[Derivation] = field(default_factory=list)  # best first, at most ``word_beam``

    def add(self, figures: SymbolFigures, index: int) -> None:
        """Note the figures of one more symbol."""
        kept, found = float(figures.log_mass[index]), float(figures.found_log_mass[index])
        self.log_masses.append(kept)
        self.beam_loss_bits.append((found - kept) / np.log(2) if np.isfinite(kept) else 0.0)
        self.entropy_bits.append(float(figures.entropy_bits[index]))
        self.open_nodes.append(float(figures.open_nodes[index]))

    @property
    def log_probs(self) -> Floats:
        """log p of every symbol given those before it, and of the end; from an empty beam on, -inf."""
        masses = np.array([0.0, *self.log_masses, self.log_prob])
        alive = np.isfinite(masses)
        out = np.full(len(masses) - 1, -np.inf)
        both = alive[1:] & alive[:-1]
        out[both] = np.diff(np.where(alive, masses, 0.0))[both]
        return out


@torch.inference_mode()
def search_sentences(
    weights: SearchWeights, head: WordHead, settings: Search, sentences: Sequence[Ints]
) -> list[SentenceResult]:
    """Search sentences (arrays of symbols, none empty) side by side."""
    lengths = np.array([len(symbols) for symbols in sentences])
    results = [SentenceResult() for _ in sentences]
    beam = _begin(weights, head, settings, lengths)
    for position in range(int(lengths.max(initial=0)) + 1):
        done = lengths == position
        if done.any():
            _end(beam, beam.endings(done), results)
            beam.drop(done)
        going = lengths > position
        if not going.any():
            break
        symbols = [int(ids[position]) if goes else WAITS for ids, goes in zip(sentences, going, strict=True)]
        figures = beam.read(np.array(symbols))
        for index in np.flatnonzero(going).tolist():
            results[index].add(figures, index)
    return results


def _begin(weights: SearchWeights, head: WordHead, settings: Search, lengths: Ints) -> Beam | ParticleFilter:
    if settings.method == "particles":
        return ParticleFilter(weights, settings, len(lengths), head)
    released = ReleasedRule(weights, lengths) if settings.compatibility == "released" else None
    return Beam(weights, settings, len(lengths), head, released)


def _end(beam: Beam | ParticleFilter, endings: Endings, results: list[SentenceResult]) -> None:
    for index in np.unique(endings.sentence).tolist():
        own = np.flatnonzero(endings.sentence == index)
        results[index].log_prob = float(endings.log_mass[index])
        results[index].derivations = [
            Derivation(actions=tuple(beam.machine.histories.actions(int(history))), log_prob=float(score))
            for history, score in zip(endings.history[own], endings.score[own], strict=True)
        ]
