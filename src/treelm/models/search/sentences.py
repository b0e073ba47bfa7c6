"""Search of whole sentences: log probabilities, metrics, n-best trees. Prefixes that sentences share are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from treelm.errors import InputError
from treelm.models.layers.devices import few_calls
from treelm.models.search.batch_invariant import arithmetic
from treelm.models.search.beam import WAITS, Beam
from treelm.models.search.config import SearchConfig
from treelm.models.search.device_particles import DeviceParticles
from treelm.models.search.machine import Machine, WordHead
from treelm.models.search.metrics import TokenMetrics, gaps, log_ratio
from treelm.models.search.on_device import DeviceBeam, DeviceMachine, sentences_at_once
from treelm.models.search.particles import ParticleFilter
from treelm.models.search.rows import Floats, Ints

WholeSearch = Beam | ParticleFilter | DeviceBeam | DeviceParticles

# What a step costs besides its prefixes, in prefixes: one prefix alone takes twice as long as one of ten.
_STEP = 1.25


@dataclass(frozen=True, kw_only=True)
class Searchable:
    """A model as the search sees it, with the parameters of one moment."""

    machine: Callable[..., Machine]
    """Makes a machine. In systems that read documents it takes ``starts`` (n, E), from which n sentences begin."""
    head: Callable[[int], WordHead]
    """Makes a word head, from the number of tokens by which it bounds normalisers (``SearchConfig.heavy_words``)."""
    on_device: Callable[..., DeviceMachine] | None = None
    """Makes a machine for a search on a GPU, with the arguments of ``machine``; None if there is none."""
    released: Callable[[WordHead, SearchConfig, Ints], Beam] | None = None
    """Makes the beam of ``method = "released"`` for sentences with these numbers of tokens; None if there is none."""

    def new_machine(self, starts: Tensor | None) -> Machine:
        """A new machine, whose sentences begin from ``starts`` (n, E), if they are given."""
        return self.machine() if starts is None else self.machine(starts=starts)


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """The actions of a complete analysis, one SHIFT a token, and its log probability in nats."""

    actions: tuple[int, ...]
    log_prob: float


@dataclass(kw_only=True)
class SentenceResult:
    """What the search of one sentence has found."""

    metrics: dict[str, list[Any]] = field(default_factory=lambda: {one.name: [] for one in fields(TokenMetrics)})
    """The metrics of every token so far, by the names of ``TokenMetrics``."""
    log_prob: float = -np.inf
    """log p(sentence), its end included."""
    derivations: list[Derivation] = field(default_factory=list)
    """Complete analyses, best first, at most ``word_beam``."""

    @property
    def log_masses(self) -> list[float]:
        """M_i of every token, nats: log of the summed probability of the analyses that are kept after it."""
        return self.metrics["log_mass"]

    @property
    def gaps(self) -> Floats:
        """Nats by which a narrower search would have found less up to every token; infinite where it finds nothing."""
        return gaps(np.array(self.log_masses), np.array(self.metrics["narrow_log_mass"]))

    @property
    def log_probs(self) -> Floats:
        """log p of every token given those before it, and of the end; from an empty beam on, -inf."""
        masses = np.array([0.0, *self.log_masses, self.log_prob])
        return log_ratio(masses[1:], masses[:-1])


@dataclass(frozen=True, kw_only=True)
class PrefixStep:
    """One step of a batch: m different prefixes, each an earlier prefix and one more token."""

    parents: Ints | None  # (m,) the earlier prefix of each; None if these are the same in the same order
    tokens: Ints  # (m,) the token that each reads, or WAITS
    prefix_of: Ints  # (sentences,) the prefix of each sentence that reads a token, -1 of others


def steps(sentences: Sequence[Ints], *, share: bool, apart: bool = False) -> Iterator[PrefixStep]:
    """The steps over all tokens of some sentences, with prefixes that sentences share, as "the dog" here:

    >>> the, dog, cat, barks = range(4)
    >>> for step in steps([np.array([the, dog, barks]), np.array([the, dog])], share=True):
    ...     print(step.parents, step.tokens, step.prefix_of)
    [0] [0] [0 0]
    [0] [1] [0 0]
    [0] [3] [ 0 -1]

    Without ``share`` every sentence has its own prefixes, which wait after its end. With ``apart`` the empty prefixes
    of sentences differ, so that no prefix is shared.
    """
    everyone = np.arange(len(sentences))
    table = np.full((len(sentences), max(map(len, sentences), default=0)), WAITS)
    for row, tokens in zip(table, sentences, strict=True):
        row[: len(tokens)] = tokens
    prefix_of = everyone if apart else np.zeros_like(everyone)
    for column in table.T:
        going = column != WAITS
        if not share:
            yield PrefixStep(parents=None, tokens=column, prefix_of=np.where(going, everyone, -1))
            continue
        pairs = np.stack([prefix_of[going], column[going]], 1)
        distinct, places = np.unique(pairs, axis=0, return_inverse=True)
        prefix_of = np.full(len(sentences), -1)
        prefix_of[going] = places.reshape(-1)
        yield PrefixStep(parents=distinct[:, 0], tokens=distinct[:, 1], prefix_of=prefix_of)


def grouped(sentences: Sequence[Ints], size: int, *, share: bool) -> list[list[int]]:
    """Groups of sentences (numbers) to search side by side, about ``size`` prefixes at a time.

    Groups are of similar length or, with ``share``, of neighbours in alphabetical order, whose common beginnings are
    searched once: whichever costs less. With ``share`` a group may have more than ``size`` sentences, since they have
    fewer different prefixes.
    """
    numbers = range(len(sentences))
    if not share:
        order = sorted(numbers, key=lambda number: len(sentences[number]))
        return [order[start : start + size] for start in range(0, len(order), size)]
    spelled = [tuple(tokens.tolist()) for tokens in sentences]
    by_length = sorted(numbers, key=lambda number: (len(spelled[number]), spelled[number]))
    alphabetic = sorted(numbers, key=lambda number: spelled[number])
    cuts = [_cut(order, spelled, size) for order in (by_length, alphabetic)]
    return min(cuts, key=lambda cut: cut[1])[0]


def _cut(order: Sequence[int], spelled: Sequence[tuple[int, ...]], size: int) -> tuple[list[list[int]], float]:
    """Cut an order of sentences into groups of ``size`` prefixes a step on average; returns also what these cost."""
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
    return groups, cost + len(prefixes) + _STEP * longest


def search_all(
    model: Searchable,
    head: WordHead,
    settings: SearchConfig,
    sentences: Sequence[Ints],
    starts: Tensor | None = None,
) -> list[SentenceResult]:
    """Search any number of sentences (arrays of tokens, none empty), ``settings.batch_size`` at a time.

    A search on a device takes as many at a time as memory holds (``sentences_at_once``).

    With ``starts`` (sentences, E) each sentence begins from a vector of its own. Then no prefix is shared; nor is one
    with the released search, which looks at the length of a sentence.
    """
    results = [SentenceResult() for _ in sentences]
    forks, size = settings.method != "released", settings.batch_size
    on_device = model.on_device if forks and few_calls(head.device) else None
    share = forks and starts is None
    with torch.inference_mode(), arithmetic(settings.matmul, head.device):
        if on_device is not None:
            size = sentences_at_once(on_device(), settings, head.device)
        for group in grouped(sentences, size, share=share):
            tokens, begun = [sentences[number] for number in group], None if starts is None else starts[group]
            lengths = np.array([1] if share else [len(one) for one in tokens])
            beam = begin_search(model, head, settings, lengths, begun, in_few_calls=on_device is not None)
            todo = steps(tokens, share=forks, apart=starts is not None)
            _search_together(beam, todo, tokens, [results[number] for number in group])
    return results


def begin_search(
    model: Searchable,
    head: WordHead,
    settings: SearchConfig,
    lengths: Ints,
    starts: Tensor | None = None,
    *,
    in_few_calls: bool,
) -> WholeSearch:
    """The search of sentences with these numbers of tokens, before their first token; on a GPU, all of it there.

    Raises ``InputError`` for the released search with ``starts``.
    """
    if in_few_calls:
        assert model.on_device is not None
        machine = model.on_device() if starts is None else model.on_device(starts=starts)
        on_device = DeviceParticles if settings.method == "particles" else DeviceBeam
        return on_device(machine, settings, len(lengths))
    if settings.method == "released" and model.released is not None:
        if starts is not None:
            found = "search by 'released', which reads each sentence by itself"
            raise InputError(found, remedy="search by 'beam', or read without context")
        return model.released(head, settings, lengths)
    method = ParticleFilter if settings.method == "particles" else Beam
    return method(model.new_machine(starts), head, settings, len(lengths))


def _search_together(
    beam: WholeSearch,
    todo: Iterable[PrefixStep],
    sentences: Sequence[Ints],
    results: Sequence[SentenceResult],
) -> None:
    """Search sentences side by side, step by step, and put what is found into ``results``."""
    lengths = np.array([len(tokens) for tokens in sentences])
    for position, step in enumerate(todo, start=1):
        if step.parents is not None:
            beam.fork(step.parents)
        read = beam.read(step.tokens)
        for number in np.flatnonzero(step.prefix_of >= 0).tolist():
            for name, values in results[number].metrics.items():
                values.append(getattr(read, name)[step.prefix_of[number]].tolist())
        done = np.flatnonzero(lengths == position)
        if len(done):
            ends = np.zeros(beam.num_sentences, np.bool_)
            ends[step.prefix_of[done]] = True
            endings = beam.endings(ends)
            actions = beam.actions(endings.history)
            for number in done.tolist():
                index, result = step.prefix_of[number], results[number]
                result.log_prob = float(endings.log_mass[index])
                result.derivations = [
                    Derivation(actions=tuple(actions[place]), log_prob=float(endings.score[place]))
                    for place in np.flatnonzero(endings.sentence == index).tolist()
                ]
            if step.parents is None and isinstance(beam, Beam):
                beam.drop(ends)
