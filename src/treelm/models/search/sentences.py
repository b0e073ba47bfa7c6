"""Search of whole sentences, shared prefixes only once: log probabilities, metrics, n-best trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from treelm.errors import InputError
from treelm.models.search.beam import Beam, Endings, TokenMetrics
from treelm.models.search.config import SearchConfig
from treelm.models.search.goals import WAITS
from treelm.models.search.machine import Machine, WordHead
from treelm.models.search.particles import ParticleFilter
from treelm.models.search.rows import Bools, Floats, Ints, arithmetic

# A step over a batch costs this many prefixes besides its own: one alone takes twice as long as in ten.
_STEP = 1.25


@dataclass(frozen=True, kw_only=True)
class PrefixStep:
    """One step of a batch from a token to the next: m different prefixes come out of those before."""

    parents: Ints | None  # (m,) the prefix that each goes on from; None if they are the same ones in the same order
    tokens: Ints  # (m,) the token that each reads, or WAITS
    going: Bools  # (sentences,) which read a token
    prefix_of: Ints  # (sentences,) the prefix of each that does; beyond its end, any


def steps(sentences: Sequence[Ints], *, share: bool) -> Iterator[PrefixStep]:
    """The steps over all tokens. Without ``share`` every sentence has prefixes of its own, which wait at its end."""
    lengths = np.array([len(tokens) for tokens in sentences])
    table = _table(sentences)
    prefix_of = np.zeros(len(sentences), np.int64) if share else np.arange(len(sentences))
    for position in range(table.shape[1]):
        going = lengths > position
        if not share:
            yield PrefixStep(parents=None, tokens=table[:, position], going=going, prefix_of=prefix_of)
            continue
        pairs = np.stack([prefix_of[going], table[going, position]], 1)
        distinct, places = np.unique(pairs, axis=0, return_inverse=True)
        prefix_of = np.zeros(len(sentences), np.int64)
        prefix_of[going] = places.reshape(-1)
        yield PrefixStep(parents=distinct[:, 0], tokens=distinct[:, 1], going=going, prefix_of=prefix_of)


def _table(sentences: Sequence[Ints]) -> Ints:
    """(sentences, longest) the tokens, and ``WAITS`` after each end."""
    table = np.full((len(sentences), max(map(len, sentences), default=0)), WAITS)
    for row, tokens in zip(table, sentences, strict=True):
        row[: len(tokens)] = tokens
    return table


def grouped(sentences: Sequence[Ints], size: int, *, share: bool) -> list[list[int]]:
    """Groups of sentences (by number) that are quick to search side by side, ``size`` prefixes at a time.

    Such are sentences of similar length, or, with ``share``, neighbours in the dictionary's order, whose beginnings are
    searched once: whichever costs less. With ``share`` a group may have more than ``size`` sentences, as they are
    fewer at their beginnings.
    """
    numbers = range(len(sentences))
    if not share:
        order = sorted(numbers, key=lambda number: len(sentences[number]))
        return [order[start : start + size] for start in range(0, len(order), size)]
    spelled = [tuple(tokens.tolist()) for tokens in sentences]
    by_length = sorted(numbers, key=lambda number: (len(spelled[number]), spelled[number]))
    alphabetic = sorted(numbers, key=lambda number: spelled[number])
    groupings = [_Grouping.of(order, spelled, size) for order in (by_length, alphabetic)]
    return min(groupings, key=lambda grouping: grouping.cost).groups


@dataclass(frozen=True, kw_only=True)
class _Grouping:
    """An order of sentences, cut into groups that need ``size`` prefixes a step in the mean."""

    groups: list[list[int]]
    cost: float

    @classmethod
    def of(cls, order: Sequence[int], spelled: Sequence[tuple[int, ...]], size: int) -> _Grouping:
        groups, cost = list[list[int]](), 0.0
        prefixes, longest = set[tuple[int, ...]](), 0
        for number in order:
            own = {spelled[number][:length] for length in range(1, len(spelled[number]) + 1)}
            together, length = prefixes | own, max(longest, len(own))
            if not groups or len(together) > size * length:
                cost += len(prefixes) + _STEP * longest
                groups.append([])
                together, length = own, len(own)
            groups[-1].append(number)
            prefixes, longest = together, length
        return cls(groups=groups, cost=cost + len(prefixes) + _STEP * longest)


@dataclass(frozen=True, kw_only=True)
class Searchable:
    """A model as the search sees it, with the parameters of one moment."""

    machine: Callable[..., Machine]
    """A new one. Given ``starts`` (n, E), of n sentences that begin from these vectors besides what all begin from:
    only systems that read documents take them."""
    head: Callable[[int], WordHead]
    """A new one, given how many heavy tokens its bounds take (``SearchConfig.heavy_words``)."""
    released: Callable[[WordHead, SearchConfig, Ints], Beam] | None = None
    """The beam of ``method = "released"`` for sentences with these numbers of tokens, if there is one."""


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """The actions of a complete analysis, one SHIFT a token, and its log probability in nats."""

    actions: tuple[int, ...]
    log_prob: float


@dataclass(kw_only=True)
class SentenceResult:
    """The search of one sentence in numbers. Lists have one entry a token."""

    log_masses: list[float] = field(default_factory=list)  # M_i, nats
    narrow_log_masses: list[float] = field(default_factory=list)  # of what a narrower search would have kept
    beam_loss_bits: list[float] = field(default_factory=list)
    beam_bound_bits: list[float] = field(default_factory=list)
    entropy_bits: list[float] = field(default_factory=list)
    open_nodes: list[float] = field(default_factory=list)
    num_actions: list[float] = field(default_factory=list)
    num_reduces: list[float] = field(default_factory=list)
    search_actions: list[float] = field(default_factory=list)
    syntactic_bits: list[float] = field(default_factory=list)
    log_prob: float = -np.inf  # of the sentence, its end included
    derivations: list[Derivation] = field(default_factory=list)  # best first, at most ``word_beam``

    def add(self, metrics: TokenMetrics, index: int) -> None:
        """Note the metrics of one more token."""
        self.log_masses.append(float(metrics.log_mass[index]))
        self.narrow_log_masses.append(float(metrics.narrow_log_mass[index]))
        self.beam_loss_bits.append(float(metrics.loss_bits[index]))
        self.beam_bound_bits.append(float(metrics.bound_bits[index]))
        self.entropy_bits.append(float(metrics.entropy_bits[index]))
        self.open_nodes.append(float(metrics.open_nodes[index]))
        self.num_actions.append(float(metrics.num_actions[index]))
        self.num_reduces.append(float(metrics.num_reduces[index]))
        self.search_actions.append(float(metrics.search_actions[index]))
        self.syntactic_bits.append(float(metrics.syntactic_bits[index]))

    @property
    def gaps(self) -> Floats:
        """Nats by which a narrower search would have found less up to every token; infinite where nothing."""
        return gaps(np.array(self.log_masses), np.array(self.narrow_log_masses))

    @property
    def log_probs(self) -> Floats:
        """log p of every token given those before it, and of the end; from an empty beam on, -inf."""
        masses = np.array([0.0, *self.log_masses, self.log_prob])
        return log_ratio(masses[1:], masses[:-1])


def log_ratio(after: Floats, before: Floats) -> Floats:
    """log p of a token, from the log masses with it and without; -inf once the beam is empty."""
    alive = np.isfinite(after) & np.isfinite(before)
    return np.where(alive, np.where(alive, after, 0.0) - np.where(alive, before, 0.0), -np.inf)


CONVERGED_BITS = 0.1


def converged(gaps: Floats) -> Floats:
    """1 for every word whose log probability a narrower search would give within ``CONVERGED_BITS``, else 0.

    ``gaps`` are those after each word. nan where there is no narrower search.
    """
    before = np.concatenate([np.zeros(1), gaps])[:-1]
    found = np.isfinite(gaps) & np.isfinite(before)
    change = np.abs(np.where(found, gaps, 0.0) - np.where(found, before, 0.0))
    return np.where(np.isnan(gaps), np.nan, found & (change <= CONVERGED_BITS * np.log(2)))


def gaps(log_mass: Floats, narrow_log_mass: Floats) -> Floats:
    """Nats by which a narrower search found less: infinite where either found nothing, nan where there is none."""
    possible = np.isfinite(narrow_log_mass)
    gap = np.where(possible, log_mass, 0.0) - np.where(possible, narrow_log_mass, -np.inf)
    return np.where(np.isnan(narrow_log_mass), np.nan, gap)


def new_machine(model: Searchable, starts: Tensor | None) -> Machine:
    """A machine whose sentences begin from ``starts`` (n, E), if there are any, besides what all begin from."""
    return model.machine() if starts is None else model.machine(starts=starts)


def search_all(
    model: Searchable,
    head: WordHead,
    settings: SearchConfig,
    sentences: Sequence[Ints],
    starts: Tensor | None = None,
) -> list[SentenceResult]:
    """Search any number of sentences (arrays of tokens, none empty), ``settings.batch_size`` at a time.

    With ``starts`` (sentences, E) each begins from a vector of its own, so that no prefix is shared.
    """
    results: dict[int, SentenceResult] = {}
    if starts is not None:
        settings = replace(settings, share_prefixes=False)
    with arithmetic(settings.matmul, head.device):
        for group in grouped(sentences, settings.batch_size, share=settings.shares_prefixes):
            own = None if starts is None else starts[group]
            found = _search_together(model, head, settings, [sentences[index] for index in group], own)
            results.update(zip(group, found, strict=True))
    return [results[index] for index in range(len(sentences))]


@torch.inference_mode()
def _search_together(
    model: Searchable, head: WordHead, settings: SearchConfig, sentences: Sequence[Ints], starts: Tensor | None
) -> list[SentenceResult]:
    """Search sentences side by side, prefixes that several share only once."""
    lengths = np.array([len(tokens) for tokens in sentences])
    results = [SentenceResult() for _ in sentences]
    share = settings.shares_prefixes
    beam = _begin(model, head, settings, np.zeros(min(1, len(lengths)), np.int64) if share else lengths, starts)
    for position, step in enumerate(steps(sentences, share=share), start=1):
        if step.parents is not None and isinstance(beam, Beam):
            beam.fork(step.parents)
        metrics = beam.read(step.tokens)
        for number in np.flatnonzero(step.going).tolist():
            results[number].add(metrics, step.prefix_of[number])
        done = np.flatnonzero(lengths == position)
        if len(done):
            ends = np.zeros(beam.num_sentences, np.bool_)
            ends[step.prefix_of[done]] = True
            endings = beam.endings(ends)
            actions = beam.machine.histories.actions(endings.history)
            for number in done.tolist():
                _end(results[number], endings, actions, step.prefix_of[number])
            if not share:
                beam.drop(ends)
    return results


def _begin(
    model: Searchable, head: WordHead, settings: SearchConfig, lengths: Ints, starts: Tensor | None
) -> Beam | ParticleFilter:
    if model.released is None or settings.method != "released":
        method = ParticleFilter if settings.method == "particles" else Beam
        return method(new_machine(model, starts), head, settings, len(lengths))
    if starts is not None:
        found = "search by 'released', which reads each sentence by itself"
        raise InputError(found, remedy="search by 'beam', or read without context")
    return model.released(head, settings, lengths)


def _end(result: SentenceResult, endings: Endings, actions: list[list[int]], index: int) -> None:
    result.log_prob = float(endings.log_mass[index])
    result.derivations = [
        Derivation(actions=tuple(actions[place]), log_prob=float(endings.score[place]))
        for place in np.flatnonzero(endings.sentence == index).tolist()
    ]
