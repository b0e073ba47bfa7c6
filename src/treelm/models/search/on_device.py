"""The search of ``beam.py`` on a GPU: hundreds of sentences side by side, and one wait for the device a word.

A GPU computes asynchronously, and the program waits whenever it reads a number back, such as how many analyses are
left. So analyses stand in matrices with a row for every sentence (``Slots``) instead of flat arrays: places without an
analysis have a score of -inf, and no operation needs to know how many there are. Only the network, whose rows are
expensive, must know. ``RowCounts`` guesses the number of its rows at every step from the words before; all true counts
are read back at the end of the word, together with its results. If a guess was too small, the word is searched again
with counts that are read at every step.

For example, a word whose search took three steps, with 40, 25 and 3 rows, lets the next word have room for
40 + 10 + 32 = 82, 63 and 35 rows (a quarter and ``_MARGIN`` more). If it needs at most these, the program waits once.

The analyses that are kept, their order and all sums are those of ``beam.py``, whose terms are used here.

Shapes: S sentences, W places, A actions, G groups, K = G * word_beam, N arrivals of all steps. Scores are float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.devices import free_memory, to_device
from treelm.models.search.analyses import Arrivals, Endings
from treelm.models.search.config import SearchConfig
from treelm.models.search.metrics import TokenMetrics, mean_attention, token_metrics
from treelm.models.search.pruning import LEAST, PruningStatistics
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import REDUCE, SHIFT

_MARGIN = 32  # rows that a guess adds, besides a quarter
_BEYOND = 4  # a guess has room for so many steps after the last one that had rows
_STEPS = 16  # actions before a word, to estimate how much memory it takes
_MOST_SENTENCES = 1024


class DeviceMachine(Protocol):
    """A ``Machine`` whose tables are tensors on the device. Row numbers have any shape; no analysis is row 0."""

    num_actions: int
    num_groups: int
    ends_by_closing: bool
    num_closed: Tensor
    """Constituents that each action closes: (A,)."""
    attention: Tensor
    """Normalised attention entropies of the tokens that the last ``shift`` read: (n, H, 2); H may be 0."""

    @property
    def row_bytes(self) -> int:
        """Bytes of memory that a row takes."""

    def __len__(self) -> int:
        """Number of rows."""

    def start(self, num_sentences: int) -> Tensor:
        """The rows of analyses before the first action: (S,)."""

    def apply(self, tops: Tensor, actions: Tensor, row_counts: RowCounts) -> Tensor:
        """The rows after one action each (m,), none of which is SHIFT or ends the sentence; row 0 for action -1."""

    def shift(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """The rows after SHIFT of one token each: (n,)."""

    def log_probs(self, tops: Tensor) -> Tensor:
        """log p of the next action, -inf where it is not valid: (..., A)."""

    def towards_end(self, tops: Tensor) -> Tensor:
        """The log probabilities (..., A) of actions that may lead to the end without SHIFT; -inf for others."""

    def token_log_probs(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """log p(token | SHIFT) of one token each: (n,)."""

    def num_open(self, tops: Tensor) -> Tensor:
        """Open nonterminals of each analysis, of the shape of ``tops``."""

    def groups(self, tops: Tensor) -> Tensor:
        """The group of each analysis, of the shape of ``tops``."""

    def reachable(self, tops: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the rows up to each one are needed for these tops (rows,), and the depth of the deepest top."""

    def keep(self, number: Tensor, count: int, depth: int) -> None:
        """Keep the ``count`` rows that ``reachable`` has counted in ``number``: row i becomes ``number[i] - 1``."""

    def cut(self, length: int) -> None:
        """Remove the rows from ``length`` on."""


@dataclass(frozen=True)
class Places:
    """Analyses in places (S, W); a place with the score -inf is empty."""

    score: Tensor
    top: Tensor  # row in the machine

    def take(self, sentences: Tensor) -> Self:
        """The analyses of some sentences (s,), in this order."""
        return type(self)(*(getattr(self, one.name).index_select(0, sentences) for one in fields(self)))


@dataclass(frozen=True)
class Slots(Places):
    """Analyses of a beam."""

    deficit: Tensor


AnyPlaces = TypeVar("AnyPlaces", bound=Places)


class RowCounts:
    """How many rows a computation needs at each step: guessed and checked at the end, or read back at once."""

    def __init__(self) -> None:
        """Start without anything to guess from: the first computation reads its counts back."""
        self._guesses: list[list[int]] = []
        self._measures = True

    def reserve(self) -> int:
        """A place for counts that come after steps, whose number differs from word to word."""
        self._asked.append(torch.empty(0))
        self._given.append([])
        return len(self._asked) - 1

    def __call__(self, counts: Tensor, most: int, place: int | None = None) -> list[int]:
        """Numbers of rows to compute where ``counts`` (m,) are needed: at least these, unless the guess is wrong.

        A guess is at most ``most``. It is made from the counts in the same place of earlier words: one that was
        reserved or, by default, the next.
        """
        place, found = self.reserve() if place is None else place, self._guesses
        self._asked[place] = counts
        if self._measures:
            given: list[int] = counts.tolist()
        else:
            given = [0] * len(counts)
            if place < len(found):
                guesses = found[place] + given
                # The next word may take a few more steps than any before.
                near = [at < _BEYOND or any(guesses[at - _BEYOND : at + 1]) for at in range(len(counts))]
                with_margin = (
                    guess + guess // 4 + _MARGIN if some else 0 for guess, some in zip(guesses, near, strict=False)
                )
                given = [min(most, room) for room in with_margin]
        self._given[place] = given
        return given

    def settle(self, compute: Callable[[], Sequence[Tensor]], undo: Callable[[], None]) -> list[NDArray[Any]]:
        """Compute tensors and read them back in one copy, as float64 arrays.

        If a guess was too small, ``undo`` is called, and they are computed again with counts that are read back.
        """
        for measures in (False, True) if self._guesses else (True,):
            self._measures = measures
            self._asked, self._given = list[Tensor](), list[list[int]]()
            tensors = compute()
            numbers = _read_back([*self._asked, *tensors])
            counts = [one.astype(np.int64).tolist() for one in numbers[: len(self._asked)]]
            if measures or all(map(_fits, counts, self._given)):
                break
            undo()
        old = [*self._guesses, *[[]] * len(counts)]
        new = [*counts, *[[]] * len(old)]
        self._guesses = [_larger(*pair) for pair in zip(new, old[: max(len(counts), len(self._guesses))], strict=False)]
        while self._guesses and not any(self._guesses[-1]):  # steps that no word has needed are not made again
            self._guesses.pop()
        return numbers[len(counts) :]


def _fits(counts: list[int], given: list[int]) -> bool:
    return all(count <= room for count, room in zip(counts, given, strict=True))


def _larger(counts: list[int], guesses: list[int]) -> list[int]:
    """The next guesses: the larger of counts and old guesses, which shrink by an eighth a word."""
    size = max(len(counts), len(guesses))
    pairs = zip(counts + [0] * size, guesses + [0] * size, strict=False)
    return [max(count, guess - guess // 8) for count, guess in list(pairs)[:size]]


def _read_back(tensors: Sequence[Tensor]) -> list[NDArray[Any]]:
    flat = torch.cat([tensor.reshape(-1).double() for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


def sentences_at_once(machine: DeviceMachine, settings: SearchConfig, device: torch.device) -> int:
    """How many sentences fit into half of the free memory if each has all analyses that it may have at every step."""
    a_place = _STEPS * machine.row_bytes + 8 * 8 * machine.num_actions
    in_beam = settings.beam.action_beam * machine.num_groups
    places = settings.num_particles if settings.method == "particles" else in_beam
    return max(1, min(_MOST_SENTENCES, free_memory(device) // 2 // (places * a_place)))


def compact(mask: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The places that a mask (m,) marks, filled up to ``room``; and the number of every place among these (m,)."""
    number = mask.cumsum(0)
    index = torch.searchsorted(number, torch.arange(1, room + 1, device=mask.device)).clamp(max=len(mask) - 1)
    return index, (number - 1).clamp(0, max(room - 1, 0))


def _best(values: Tensor, count: int) -> Tensor:
    """Mark the ``count`` highest of each row; see ``analyses.best``."""
    if values.shape[1] <= count:
        return values > -torch.inf
    if count == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    lowest = values.topk(count).values[:, -1:]
    chosen, ties = values > lowest, (values == lowest) & (lowest > -torch.inf)
    return chosen | (ties & (ties.cumsum(1) <= count - chosen.sum(1, keepdim=True)))


def chosen_places(mask: Tensor, count: int) -> Tensor:
    """The places that a mask (rows, width) marks, in their order, filled up with others to ``count`` of each row."""
    width = mask.shape[1]
    if width <= count:
        return torch.arange(width, device=mask.device).expand_as(mask)
    return (mask * torch.arange(width, 0, -1, device=mask.device)).topk(count).indices


def token_log_probs(machine: DeviceMachine, tops: Tensor, tokens: Tensor, wanted: Tensor, room: int) -> Tensor:
    """log p(token | SHIFT) of one token of each sentence (S,) where it is wanted (S, W), -inf elsewhere.

    Wrong if it is wanted in more than ``room`` places.
    """
    index, place = compact(wanted.flatten(), room)
    if room == 0:
        return torch.full_like(tops, -torch.inf, dtype=torch.float64)
    found = machine.token_log_probs(tops.flatten()[index], tokens[:, None].expand_as(tops).reshape(-1)[index])
    return found[place].view_as(tops).where(wanted, -torch.inf)


def traced(places: Tensor, widths: Sequence[int], links: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The actions (S, K, steps), -1 after the last, that led to these places (S, K), counted over all steps of a word.

    ``links`` are, from each step to the next, the places that those of the next one come from, and by which actions.
    Returns also the places in the first step (S, K).
    """
    steps = to_device(np.repeat(np.arange(len(widths)), widths), places.device)[places]
    source = places - to_device(np.cumsum([0, *widths[:-1]]), places.device)[steps]
    actions = [torch.full_like(source, -1)]
    for number, (sources, by) in reversed(list(enumerate(links))):
        later, place = steps > number, source.clamp(max=sources.shape[1] - 1)
        actions.append(by.gather(1, place).where(later, -1))
        source = sources.gather(1, place).where(later, source)
    return torch.stack(actions[::-1], 2), source


class _Step(NamedTuple):
    """What arrived at the goal in one step (S, W), and the actions that lead to the analyses of the next step."""

    scores: Tensor  # with the token's probability; -inf where nothing arrived
    before: Tensor  # without it
    slots: Slots  # the analyses of this step
    source: Tensor  # (S, W of the next step) the places in this step from which those of the next step come
    action: Tensor  # (S, W of the next step) by which action, -1 for none


class _WordSearch:
    """``beam.WordSearch`` over slots; it also counts what ``pruning.PruningStatistics`` counts for one token."""

    def __init__(self, beam: DeviceBeam, slots: Slots, tokens: Tensor | None, row_counts: RowCounts, keep: int) -> None:
        """Search for SHIFT of ``tokens`` (S,) or, without tokens, for the end; see ``beam.WordSearch`` for ``keep``."""
        self._machine, self._sizes, self._row_counts, self._keep = beam.machine, beam.settings.beam, row_counts, keep
        self._tokens, self._num_sentences, self._slots = tokens, len(slots.score), slots
        self._narrow = beam.pruning.narrow
        zero = slots.score.new_zeros(self._num_sentences)
        self._top_scores = slots.score.new_full((self._num_sentences * self._machine.num_groups, keep), -torch.inf)
        self._floor = self._top_scores[:, 0]
        self.before = slots.score.logsumexp(1)
        self._all = torch.where(self.before > -torch.inf, self.before, 0.0)
        self._at_goal = self.not_arrived = self.dropped = self.overflowed = self.num_actions = zero
        self.steps: list[_Step] = []

    def run(self) -> None:
        """Search until no analysis is left, or until none is expected to be."""
        slots, going = self._slots, 1
        while going:
            slots = self._step(slots)
            (going,) = self._row_counts((slots.score > -torch.inf).sum()[None], slots.score.numel())

    def _shares(self, scores: Tensor) -> Tensor:
        total = self._all.view(-1, *[1] * (scores.dim() - 1))
        return (scores - total).exp_()

    def _by_group(self, values: Tensor, groups: Tensor) -> Tensor:
        """(S, W, ...) -> (S * G, W * ...): a row for each group, -inf for analyses of other groups."""
        num_groups = self._machine.num_groups
        if num_groups == 1:
            return values.flatten(1)
        own = groups[:, None] == torch.arange(num_groups, device=groups.device)[:, None]  # (S, G, W)
        own = own.view(*own.shape, *[1] * (values.dim() - 2))
        return values[:, None].where(own, -torch.inf).reshape(len(values) * num_groups, -1)

    def _by_sentence(self, rows: Tensor) -> Tensor:
        """Rows of groups (S * G, W) -> rows of sentences (S, G * W)."""
        return rows.reshape(self._num_sentences, -1)

    def _step(self, slots: Slots) -> Slots:
        machine, sizes = self._machine, self._sizes
        log_probs = machine.towards_end(slots.top) if self._tokens is None else machine.log_probs(slots.top)
        groups = machine.groups(slots.top)
        at_goal = slots.score + log_probs[..., SHIFT if self._tokens is not None else -1]
        others = slots.score[..., None] + log_probs[..., REDUCE : machine.num_actions - (not machine.ends_by_closing)]
        if machine.ends_by_closing:
            others[..., 0].masked_fill_(machine.num_open(slots.top) == 1, -torch.inf)
        # What is in play.
        shares, goal_shares = self._shares(others), self._shares(at_goal)
        self._at_goal = self._at_goal + goal_shares.sum(1)
        share = (shares.sum((1, 2)) + self._at_goal).clamp(min=np.exp(LEAST))
        in_play = self._all + share.log()
        # The k best of the others in each row, among those that could still be kept.
        to_beat = self._floor_of_successors()
        least = torch.maximum(to_beat, (in_play - sizes.threshold).repeat_interleave(machine.num_groups))
        rows = self._by_group(others, groups)
        rows = rows.where(rows > least[:, None], -torch.inf)
        best = _best(rows, sizes.action_beam)
        places = chosen_places(best, sizes.action_beam)
        values = rows.gather(1, places)
        # best: the k best of both. shifted: those of them at the goal, and the k_s best at the goal.
        shifted = self._scores_at_goal(slots, at_goal, groups)
        chosen = _best(torch.cat([values, shifted], 1), sizes.action_beam)
        arrives = chosen[:, values.shape[1] :] | _best(shifted, sizes.fast_track)
        shifted = shifted.where(arrives & (shifted > self._floor[:, None]), -torch.inf)
        inside = chosen[:, : values.shape[1]]
        scores = shifted.view(len(in_play), machine.num_groups, -1).amax(1)
        self._raise_floor(shifted)
        staying = inside & (values > self._floor_of_successors()[:, None])
        values, places, inside, staying = map(self._by_sentence, (values, places, inside, staying))
        # What is pruned: the others outside the k best, those of the k best that do not stay, and what does not arrive.
        outside = shares.flatten(1).masked_fill_(best.view(len(in_play), machine.num_groups, -1).any(1), 0.0)
        of_best, arrived = self._shares(values), scores > -torch.inf
        self.dropped = self.dropped + outside.sum(1) + of_best.masked_fill(staying, 0.0).sum(1)
        self.not_arrived = self.not_arrived + goal_shares.masked_fill_(arrived, 0.0).sum(1)
        self.num_actions = self.num_actions + arrived.sum(1) + staying.sum(1)
        if np.isfinite(self._narrow):
            least = torch.maximum(to_beat.view(len(in_play), -1)[:, 0], in_play - self._narrow)[:, None]
            overflowed = (outside * (others.flatten(1) > least)).sum(1)
            overflowed += (of_best * (~inside & (values > least))).sum(1)
            self.overflowed = self.overflowed + overflowed / share
        values = values.where(staying, -torch.inf)
        width = others.shape[2]
        sources, actions = places // width, torch.where(staying, places % width + 1, -1)
        deficit = torch.maximum(slots.deficit.gather(1, sources), in_play[:, None] - values)
        self.steps.append(_Step(scores, at_goal, slots, sources, actions))
        tops = machine.apply(slots.top.gather(1, sources).flatten(), actions.flatten(), self._row_counts)
        return Slots(values, tops.view_as(values), deficit)

    def _scores_at_goal(self, slots: Slots, at_goal: Tensor, groups: Tensor) -> Tensor:
        """Scores at the goal (S * G, W); -inf for those that are at or below the floor even without the token."""
        tokens = self._tokens
        rows = self._by_group(at_goal, groups)
        if tokens is None:
            return rows
        may = (rows > self._floor[:, None]).view(len(at_goal), self._machine.num_groups, -1).any(1).flatten()
        (room,) = self._row_counts(may.sum()[None], len(may))
        of_tokens = token_log_probs(self._machine, slots.top, tokens, may.view_as(at_goal), room)
        return self._by_group(at_goal + of_tokens, groups)

    def _floor_of_successors(self) -> Tensor:
        """See ``beam.WordSearch``."""
        if self._machine.num_groups == 1:
            return self._floor
        return self._floor.view(self._num_sentences, -1).flip(1).cummin(1).values.flip(1).flatten()

    def _raise_floor(self, scores: Tensor) -> None:
        self._top_scores = torch.cat([self._top_scores, scores], 1).topk(self._keep).values
        self._floor = self._top_scores[:, -1]
        if np.isfinite(self._sizes.threshold):
            self._floor = torch.maximum(self._floor, self._top_scores.logsumexp(1) - self._sizes.threshold)


class _Kept(NamedTuple):
    """The analyses that the word beam keeps (S, K), best first, before the action that reaches the goal."""

    slots: Slots
    before: Tensor
    actions: Tensor  # (S, K, steps - 1) since the word before, -1 after the last
    source: Tensor  # (S, K) their places among the analyses with which the search began
    found: Tensor  # (S,) log of the sum of all that arrived
    others: Tensor  # (S, N) scores of what arrived and is not kept, -inf elsewhere

    @classmethod
    def of(cls, search: _WordSearch, machine: DeviceMachine, word_beam: int, threshold: float) -> _Kept:
        """The best of what arrived in each group, less than ``threshold`` nats below the sum of all."""
        score = torch.cat([step.scores for step in search.steps], 1)
        found = score.logsumexp(1)
        top = torch.cat([step.slots.top for step in search.steps], 1)
        below = found[:, None] - score
        order = score.where(below < threshold, -torch.inf).sort(dim=1, descending=True, stable=True)
        possible, places = order.values, order.indices
        if machine.num_groups > 1:
            of_group = torch.nn.functional.one_hot(machine.groups(top.gather(1, places)), machine.num_groups)
            of_group = of_group * (possible > -torch.inf)[..., None]
            kept = ((of_group.cumsum(1) * of_group).sum(2) <= word_beam) & (possible > -torch.inf)
            index = chosen_places(kept, word_beam * machine.num_groups)
            possible, places = possible.where(kept, -torch.inf).gather(1, index), places.gather(1, index)
        possible, places = possible[:, : word_beam * machine.num_groups], places[:, : word_beam * machine.num_groups]
        deficit = torch.cat([step.slots.deficit for step in search.steps], 1).maximum(below).gather(1, places)
        links = [(step.source, step.action) for step in search.steps[:-1]]
        actions, source = traced(places, [step.scores.shape[1] for step in search.steps], links)
        before = torch.cat([step.before for step in search.steps], 1).gather(1, places)
        is_kept = possible > -torch.inf
        slots = Slots(possible, top.gather(1, places).where(is_kept, 0), deficit)
        others = score.scatter(1, places, score.gather(1, places).masked_fill(is_kept, -torch.inf))
        return cls(slots, before, actions, source, found, others)


class DeviceSearch(ABC, Generic[AnyPlaces]):
    """The analyses that a search on a device keeps between two words, and the actions that led to them."""

    def __init__(self, machine: DeviceMachine, settings: SearchConfig, slots: AnyPlaces) -> None:
        """Begin before the first token with these analyses (S, 1), on a machine of its own."""
        self.machine, self.settings, self._slots = machine, settings, slots
        self.num_sentences, self._device = len(slots.top), slots.top.device
        self._reading, self._ending = RowCounts(), RowCounts()
        # The actions of each word (S, K, steps), and where its analyses came from: places of the word before (S, K).
        self._words: list[tuple[Tensor, Tensor]] = []
        self._origin = torch.zeros_like(slots.top)  # of each place now: that of the last word, over all sentences
        self._ended: NDArray[Any] = np.empty((0, 0))

    @abstractmethod
    def _end(self, slots: AnyPlaces) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ways to end sentences: scores (s, K), actions (s, K, m), places before (s, K), log of all their mass (s,)."""

    def fork(self, sources: Ints) -> None:
        """See ``Beam.fork``."""
        index = to_device(sources, self._device)
        self._slots, self._origin = self._slots.take(index), self._origin.index_select(0, index)
        self.num_sentences = len(sources)

    def _shift(
        self, slots: AnyPlaces, actions: Tensor, source: Tensor, needed: Tensor, present: Bools, tokens: Tensor
    ) -> None:
        """SHIFT the tokens on analyses, those ``present`` (S, K), whose rows have the numbers ``needed`` now."""
        index = to_device(np.flatnonzero(present), self._device)
        rows = slots.top.flatten()[index]
        tops = torch.zeros_like(slots.top).flatten()
        if len(index):
            tops[index] = self.machine.shift(needed[rows] - 1, tokens[index // present.shape[1]])
        self._slots = replace(slots, top=tops.view_as(slots.top))
        actions = torch.cat([actions, torch.where(slots.score > -torch.inf, SHIFT, -1)[..., None]], 2)
        self._words.append((actions.to(torch.int16), self._origin.gather(1, source)))
        self._origin = torch.arange(tops.numel(), device=self._device).view_as(source)

    def _with_attention(self, metrics: TokenMetrics, sentence: Ints, log_mass: Floats) -> TokenMetrics:
        """Metrics with the attention of the analyses that were shifted, of these sentences and log masses (n,)."""
        attention = self.machine.attention
        if not attention.numel():
            return metrics
        read = attention.double().cpu().numpy()
        return replace(metrics, attention=mean_attention(read, sentence, log_mass, self.num_sentences))

    def endings(self, sentences: Bools) -> Endings:
        """See ``Beam.endings``."""
        numbers, length = np.flatnonzero(sentences), len(self.machine)
        index = to_device(numbers, self._device)
        slots, origin = self._slots.take(index), self._origin.index_select(0, index)

        def compute() -> list[Tensor]:
            score, last, source, log_mass = self._end(slots)
            return [score, torch.cat([*self._history(origin.gather(1, source)), last], 2), log_mass]

        score, actions, found = self._ending.settle(compute, lambda: self.machine.cut(length))
        self.machine.cut(length)
        row, place = np.nonzero(score > -np.inf)
        self._ended = actions[row, place].astype(np.int64)
        sentence, scores = numbers[row], score[row, place]
        log_mass = np.full(self.num_sentences, -np.inf)
        log_mass[numbers] = found
        return Endings.of(sentence, scores, np.arange(len(row)), log_mass)

    def actions(self, histories: Ints) -> list[list[int]]:
        """The actions of analyses that ``endings`` returned."""
        return [actions[actions >= 0].tolist() for actions in self._ended[histories]]

    def _history(self, origin: Tensor) -> list[Tensor]:
        """The actions (s, K, steps) of each word so far, of analyses that stand at these places of the last word."""
        found = []
        for actions, before in reversed(self._words):
            found.append(actions.flatten(0, 1)[origin])
            origin = before.flatten()[origin]
        return found[::-1]


class DeviceBeam(DeviceSearch[Slots]):
    """``beam.Beam`` on a device: what search of whole sentences needs of it."""

    def __init__(self, machine: DeviceMachine, settings: SearchConfig, num_sentences: int) -> None:
        """Begin before the first token, on a machine of its own."""
        top = machine.start(num_sentences)[:, None]
        zero = torch.zeros_like(top, dtype=torch.float64)
        super().__init__(machine, settings, Slots(zero, top, zero))
        self.pruning = PruningStatistics(settings, num_sentences)

    def fork(self, sources: Ints) -> None:
        """See ``Beam.fork``."""
        super().fork(sources)
        self.pruning.fork(sources)

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence."""
        machine, threshold, length = self.machine, self.settings.beam.threshold, len(self.machine)
        wanted = to_device(tokens, self._device)
        left = list[Any]()

        def compute() -> list[Tensor]:
            search = _WordSearch(self, self._slots, wanted, self._reading, self.settings.beam.word_beam)
            search.run()
            kept = _Kept.of(search, machine, self.settings.beam.word_beam, threshold)
            needed, depth = machine.reachable(kept.slots.top)
            left[:] = kept, needed
            below = kept.found[:, None] - kept.others
            near = torch.where(below < self.pruning.narrow, (-below).exp(), 0.0).sum(1)
            sums = [search.before, search.not_arrived, search.dropped, search.overflowed, search.num_actions]
            sums += [near, kept.others.logsumexp(1)]
            since = (kept.actions >= 0).sum(2), machine.num_closed[kept.actions].sum(2)
            kept_ones = [kept.slots.score, kept.slots.deficit, kept.before, machine.num_open(kept.slots.top), *since]
            return [needed[-1], depth, torch.stack(sums), torch.stack([one.double() for one in kept_ones])]

        count, depth, sums, kept_ones = self._reading.settle(compute, lambda: machine.cut(length))
        kept, needed = left
        machine.keep(needed, int(count), int(depth))
        self._shift(kept.slots, kept.actions, kept.source, needed, kept_ones[0] > -np.inf, wanted)
        return self._metrics(sums, kept_ones)

    def _metrics(self, sums: NDArray[Any], kept: NDArray[Any]) -> TokenMetrics:
        *of_token, near, cut = sums
        self.pruning.take_over(*of_token)
        sentence, place = np.nonzero(kept[0] > -np.inf)
        score, deficit, before, num_open, *since = kept[:, sentence, place]
        metrics = token_metrics(sentence, score, num_open, (since[0], since[1]), self.num_sentences)
        arrivals = Arrivals(sentence, score, deficit, sentence, sentence, before)
        metrics = self._with_attention(metrics, sentence, score)
        return replace(metrics, **self.pruning.finish(near, arrivals, cut, metrics.log_mass))

    def _end(self, slots: Slots) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        score, last, source = self._close(slots) if self.machine.ends_by_closing else self._finish(slots)
        return score, last, source, score.logsumexp(1)

    def _close(self, slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
        """Close all open nonterminals: scores (s, K), the actions (s, K, m), and the place of each analysis before."""
        machine, score, top, ends, going = self.machine, slots.score, slots.top, list[Tensor](), 1
        while going:
            score = score + machine.log_probs(top)[..., REDUCE]
            is_root = machine.num_open(top) == 1
            ends.append(score.where(is_root, -torch.inf))
            score = score.masked_fill(is_root, -torch.inf)
            actions = torch.where(score > -torch.inf, REDUCE, -1)
            (going,) = self._ending((actions >= 0).sum()[None], actions.numel())
            if going:
                top = machine.apply(top.flatten(), actions.flatten(), self._ending).view_as(top)
        at_ends, numbers = torch.stack(ends, 2), torch.arange(len(ends), device=self._device)
        last = torch.where(numbers <= at_ends.argmax(2, keepdim=True), REDUCE, -1).to(torch.int16)
        return at_ends.amax(2), last, torch.arange(score.shape[1], device=self._device).expand_as(score)

    def _finish(self, slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
        """Search for the best ways to FINISH; returns what ``_close`` returns."""
        word_beam = self.settings.beam.word_beam
        search = _WordSearch(self, slots, None, self._ending, word_beam)
        search.run()
        kept = _Kept.of(search, self.machine, word_beam, np.inf)
        finish = torch.where(kept.slots.score > -torch.inf, self.machine.num_actions - 1, -1)[..., None]
        return kept.slots.score, torch.cat([kept.actions, finish], 2).to(torch.int16), kept.source
