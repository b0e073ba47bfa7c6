"""The search of ``beam.py`` on a GPU: hundreds of sentences side by side, and one wait for the device a word.

What is flat and counted there is a matrix here, with a row for every sentence (``Slots``): places without an analysis
have a score of -inf, so no operation on them needs to know how many there are. Only the network, whose rows are
expensive, must know: ``Rooms`` guesses the number of its rows at every step from the words before. All counts are read
back at the end of the word, together with the word's results; if a guess was too small, the word is searched again with
counts that are read at every step. Kept analyses, their order and all sums are those of ``beam.py``.

Shapes: S sentences, W places, A actions, G groups, K = G * word_beam, N arrivals of all steps. Scores are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.devices import free_memory, to_device
from treelm.models.search.analyses import Arrivals, Endings, log_sums
from treelm.models.search.config import SearchConfig
from treelm.models.search.metrics import TokenMetrics, token_metrics
from treelm.models.search.pruning import LEAST, PruningStatistics
from treelm.models.search.rows import Bools, Ints
from treelm.trees.transitions import REDUCE, SHIFT

_MARGIN = 32  # rows that a guess adds, besides a quarter
_BEYOND = 4  # entries that a guess holds beyond the last one seen
_STEPS = 16  # actions before a word for which memory is reckoned
_MOST_SENTENCES = 1024


class DeviceMachine(Protocol):
    """A machine (``machine.py``) whose books are tensors; rows are numbers of any shape, 0 where nothing is asked."""

    num_actions: int
    num_groups: int
    ends_by_closing: bool
    row_bytes: int
    """Memory of a row."""

    def __len__(self) -> int:
        """Rows that are held now."""

    def start(self, num_sentences: int) -> Tensor:
        """The rows of analyses before the first action: (S,)."""

    def apply(self, tops: Tensor, actions: Tensor, rooms: Rooms) -> Tensor:
        """The rows after one action each (m,), but SHIFT and those that end; -1 for none, and then row 0."""

    def shift(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """The rows after SHIFT of one token each: (n,)."""

    def log_probs(self, tops: Tensor) -> Tensor:
        """log p of the next action, -inf where it is not valid: (..., A)."""

    def token_log_probs(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """log p(token | SHIFT) of one token each: (n,)."""

    def num_open(self, tops: Tensor) -> Tensor:
        """Open nonterminals."""

    def groups(self, tops: Tensor) -> Tensor:
        """The group of each."""

    def reachable(self, tops: Tensor) -> tuple[Tensor, Tensor]:
        """How many rows these need, up to each (rows,), and the depth of the deepest."""

    def keep(self, number: Tensor, count: int, depth: int) -> None:
        """Keep what is needed, ``count`` rows in all: row i becomes ``number[i] - 1``."""

    def cut(self, length: int) -> None:
        """Forget all rows from this one on."""


class Slots(NamedTuple):
    """Analyses in places (S, W); a score of -inf is none."""

    score: Tensor
    deficit: Tensor
    top: Tensor  # row of the machine

    def take(self, sentences: Tensor) -> Slots:
        """Some sentences, in this order."""
        return Slots(*(part.index_select(0, sentences) for part in self))


class Rooms:
    """How many rows a computation has at each of its steps: guessed, and checked at the end, or read back."""

    def __init__(self) -> None:
        """Nothing to guess from yet."""
        self._guesses: list[list[int]] = []
        self._measures = True

    def __call__(self, counts: Tensor, most: int) -> list[int]:
        """At least as many rows as ``counts`` (m,) says, each at most ``most``, unless the guess is wrong."""
        place, found = len(self._asked), self._guesses
        self._asked.append(counts)
        if self._measures:
            given: list[int] = counts.tolist()
        else:
            given = [0] * len(counts)
            if place < len(found):
                guesses = found[place] + given
                # Words make constituents grow: a few entries beyond what was seen, too.
                near = [at < _BEYOND or any(guesses[at - _BEYOND : at + 1]) for at in range(len(counts))]
                rooms = (
                    guess + guess // 4 + _MARGIN if some else 0 for guess, some in zip(guesses, near, strict=False)
                )
                given = [min(most, room) for room in rooms]
        self._given.append(given)
        return given

    def settle(self, compute: Callable[[], Sequence[Tensor]], undo: Callable[[], None]) -> list[NDArray[Any]]:
        """Compute tensors and read them back, in one copy: float64. With too little room, compute them again."""
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
        return numbers[len(counts) :]


def _fits(counts: list[int], given: list[int]) -> bool:
    return all(count <= room for count, room in zip(counts, given, strict=True))


def _larger(counts: list[int], guesses: list[int]) -> list[int]:
    """The larger of both; what was larger before is slowly forgotten."""
    size = max(len(counts), len(guesses))
    pairs = zip(counts + [0] * size, guesses + [0] * size, strict=False)
    return [max(count, guess - guess // 8) for count, guess in list(pairs)[:size]]


def _read_back(tensors: Sequence[Tensor]) -> list[NDArray[Any]]:
    flat = torch.cat([tensor.reshape(-1).double() for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


def sentences_at_once(machine: DeviceMachine, settings: SearchConfig, device: torch.device) -> int:
    """How many sentences half of the free memory holds, each with a full beam at every step."""
    a_place = _STEPS * machine.row_bytes + 8 * 8 * machine.num_actions
    places = settings.beam.action_beam * machine.num_groups
    return max(settings.batch_size, min(_MOST_SENTENCES, free_memory(device) // 2 // (places * a_place)))


def compact(mask: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The places of what is marked in (m,), as many as there is ``room`` for, and for every place which one it is."""
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


def _chosen_places(mask: Tensor, count: int) -> Tensor:
    """Places of what is marked in each row, at most ``count``, in their order; then others."""
    width = mask.shape[1]
    if width <= count:
        return torch.arange(width, device=mask.device).expand_as(mask)
    return (mask * torch.arange(width, 0, -1, device=mask.device)).topk(count).indices


class _Step(NamedTuple):
    """What arrived at a step (S, W), and by which actions the next step's analyses came."""

    scores: Tensor  # -inf of what did not arrive
    before: Tensor  # without the token's probability
    slots: Slots
    source: Tensor  # (S, W of the next step) places of this step
    action: Tensor  # likewise, -1 for none


class _WordSearch:
    """``beam.WordSearch`` over slots, and ``pruning.PruningStatistics`` of one token."""

    def __init__(self, beam: DeviceBeam, slots: Slots, tokens: Tensor | None, rooms: Rooms, keep: int) -> None:
        """Search for SHIFT of ``tokens`` (S,), or for the end."""
        self._machine, self._sizes, self._rooms, self._keep = beam.machine, beam.settings.beam, rooms, keep
        self._tokens, self._num_sentences, self._slots = tokens, len(slots.score), slots
        self._narrow = beam.pruning.narrow
        zero = slots.score.new_zeros(self._num_sentences)
        self._top_scores = slots.score.new_full((self._num_sentences * self._machine.num_groups, keep), -torch.inf)
        self._floor = self._top_scores[:, 0]
        self.before = slots.score.logsumexp(1)
        self._all = torch.where(self.before > -torch.inf, self.before, 0.0)
        self.at_goal = self.arrived = self.dropped = self.overflowed = self.num_actions = zero
        self.steps: list[_Step] = []

    def run(self) -> None:
        """Search until nothing is left, or nothing is expected to be."""
        slots, going = self._slots, 1
        while going:
            slots = self._step(slots)
            (going,) = self._rooms((slots.score > -torch.inf).sum()[None], slots.score.numel())

    def found(self, narrow: float) -> tuple[Tensor, Tensor]:
        """log of the sum of all that arrived (S,), and its share that a narrower search would keep (S,)."""
        scores = torch.cat([step.scores for step in self.steps], 1)
        found = scores.logsumexp(1)
        below = found[:, None] - scores
        return found, torch.where(below < narrow, (-below).exp(), 0.0).sum(1)

    def _shares(self, scores: Tensor) -> Tensor:
        total = self._all.view(-1, *[1] * (scores.dim() - 1))
        return (scores - total).clamp_(min=LEAST).exp_()

    def _by_group(self, values: Tensor, groups: Tensor) -> Tensor:
        """(S, W, ...) -> (S * G, W * ...): a row for each group, -inf for members of others."""
        num_groups = self._machine.num_groups
        if num_groups == 1:
            return values.flatten(1)
        own = groups[:, None] == torch.arange(num_groups, device=groups.device)[:, None]  # (S, G, W)
        own = own.view(*own.shape, *[1] * (values.dim() - 2))
        return values[:, None].where(own, -torch.inf).reshape(len(values) * num_groups, -1)

    def _by_sentence(self, rows: Tensor) -> Tensor:
        """Rows of groups (S * G, W) side by side: (S, G * W)."""
        return rows.reshape(self._num_sentences, -1)

    def _step(self, slots: Slots) -> Slots:
        machine, sizes = self._machine, self._sizes
        log_probs, groups = machine.log_probs(slots.top), machine.groups(slots.top)
        at_goal = slots.score + log_probs[..., SHIFT if self._tokens is not None else -1]
        others = slots.score[..., None] + log_probs[..., REDUCE : machine.num_actions - (not machine.ends_by_closing)]
        if machine.ends_by_closing:
            others[..., 0].masked_fill_(machine.num_open(slots.top) == 1, -torch.inf)
        # The probability in play.
        shares = self._shares(others)
        in_search = shares.sum((1, 2))
        self.dropped = self.dropped + in_search
        self.at_goal = self.at_goal + self._shares(at_goal).sum(1)
        share = (in_search + self.at_goal).clamp(min=np.exp(LEAST))
        in_play = self._all + share.log()
        # The k best others of each row, of those that could still matter.
        to_beat = self._floor_of_successors()
        least = torch.maximum(to_beat, (in_play - sizes.threshold).repeat_interleave(machine.num_groups))
        rows = self._by_group(others, groups)
        rows = rows.where(rows > least[:, None], -torch.inf)
        places = _chosen_places(_best(rows, sizes.action_beam), sizes.action_beam)
        values = rows.gather(1, places)
        # The k best of the fringe, and the k_s best at the goal.
        shifted = self._scores_at_goal(slots, at_goal, groups)
        chosen = _best(torch.cat([values, shifted], 1), sizes.action_beam)
        arrives = chosen[:, values.shape[1] :] | _best(shifted, sizes.fast_track)
        shifted = shifted.where(arrives & (shifted > self._floor[:, None]), -torch.inf)
        inside = chosen[:, : values.shape[1]]
        if np.isfinite(self._narrow):
            least = torch.maximum(to_beat.view(len(in_play), -1)[:, 0], in_play - self._narrow)
            wanted = (shares * (others > least[:, None, None])).sum((1, 2))
            near = self._by_sentence(values.where(inside, -torch.inf))
            missing = wanted - (self._shares(near) * (near > least[:, None])).sum(1)
            self.overflowed = self.overflowed + missing.clamp(min=0) / share
        scores = shifted.view(len(in_play), machine.num_groups, -1).amax(1)
        self._raise_floor(shifted)
        self.arrived = self.arrived + self._counted(at_goal, scores > -torch.inf)
        values = values.where(inside & (values > self._floor_of_successors()[:, None]), -torch.inf)
        values, places = self._by_sentence(values), self._by_sentence(places)
        self.dropped = self.dropped - self._counted(values, values > -torch.inf)
        width = others.shape[2]
        sources, actions = places // width, torch.where(values > -torch.inf, places % width + 1, -1)
        deficit = torch.maximum(slots.deficit.gather(1, sources), in_play[:, None] - values)
        self.steps.append(_Step(scores, at_goal, slots, sources, actions))
        tops = machine.apply(slots.top.gather(1, sources).flatten(), actions.flatten(), self._rooms)
        return Slots(values, deficit, tops.view_as(values))

    def _counted(self, scores: Tensor, present: Tensor) -> Tensor:
        """The shares of those present, summed; their actions are counted."""
        self.num_actions = self.num_actions + present.sum(1)
        return (self._shares(scores) * present).sum(1)

    def _scores_at_goal(self, slots: Slots, at_goal: Tensor, groups: Tensor) -> Tensor:
        """Scores at the goal: (S * G, W); -inf for what is not above the floor even without the token."""
        tokens = self._tokens
        rows = self._by_group(at_goal, groups)
        if tokens is None:
            return rows
        may = (rows > self._floor[:, None]).view(len(at_goal), self._machine.num_groups, -1).any(1).flatten()
        index, place = compact(may, self._rooms(may.sum()[None], len(may))[0])
        wanted = tokens[:, None].expand_as(at_goal).reshape(-1)
        found = self._machine.token_log_probs(slots.top.flatten()[index], wanted[index])
        with_token = at_goal + found[place].view_as(at_goal) if len(index) else torch.full_like(at_goal, -torch.inf)
        return self._by_group(with_token.where(may.view_as(at_goal), -torch.inf), groups)

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
    """The word beam (S, K), best first, before the goal."""

    slots: Slots
    before: Tensor
    actions: Tensor  # (S, K, steps - 1) since the word before, -1 after the last
    source: Tensor  # place among the analyses that the search began with

    @classmethod
    def of(cls, search: _WordSearch, machine: DeviceMachine, word_beam: int, found: Tensor, threshold: float) -> _Kept:
        """The best of what arrived, each group by itself; only those less than ``threshold`` below all together."""
        score = torch.cat([step.scores for step in search.steps], 1)
        top = torch.cat([step.slots.top for step in search.steps], 1)
        below = found[:, None] - score
        order = score.where(below < threshold, -torch.inf).sort(dim=1, descending=True, stable=True)
        possible, places = order.values, order.indices
        if machine.num_groups > 1:
            of_group = torch.nn.functional.one_hot(machine.groups(top.gather(1, places)), machine.num_groups)
            of_group = of_group * (possible > -torch.inf)[..., None]
            kept = ((of_group.cumsum(1) * of_group).sum(2) <= word_beam) & (possible > -torch.inf)
            index = _chosen_places(kept, word_beam * machine.num_groups)
            possible, places = possible.where(kept, -torch.inf).gather(1, index), places.gather(1, index)
        possible, places = possible[:, : word_beam * machine.num_groups], places[:, : word_beam * machine.num_groups]
        deficit = torch.cat([step.slots.deficit for step in search.steps], 1).maximum(below).gather(1, places)
        widths = [step.scores.shape[1] for step in search.steps]
        steps = to_device(np.repeat(np.arange(len(widths)), widths), score.device)[places]
        source = places - to_device(np.cumsum([0, *widths[:-1]]), score.device)[steps]
        actions = []
        for number, step in reversed(list(enumerate(search.steps[:-1]))):
            later, place = steps > number, source.clamp(max=step.source.shape[1] - 1)
            actions.append(step.action.gather(1, place).where(later, -1))
            source = step.source.gather(1, place).where(later, source)
        actions.append(torch.full_like(source, -1))
        before = torch.cat([step.before for step in search.steps], 1).gather(1, places)
        slots = Slots(possible, deficit, top.gather(1, places).where(possible > -torch.inf, 0))
        return cls(slots, before, torch.stack(actions[::-1], 2), source)


class DeviceBeam:
    """``beam.Beam`` on a device: what search of whole sentences needs of it."""

    def __init__(self, machine: DeviceMachine, settings: SearchConfig, num_sentences: int) -> None:
        """Begin before the first token, on a machine of its own."""
        self.machine, self.settings, self.num_sentences = machine, settings, num_sentences
        self.pruning = PruningStatistics(settings, num_sentences)
        self._reading, self._ending = Rooms(), Rooms()
        top = machine.start(num_sentences)[:, None]
        self._device = top.device
        score = torch.zeros_like(top, dtype=torch.float64)
        self._slots = Slots(score, score, top)
        # The actions of each word (S, K, steps), and where its analyses came from: places of the word before (S, K).
        self._words: list[tuple[Tensor, Tensor]] = []
        self._origin = torch.zeros_like(top)  # of each place now: that of the last word, counted over all sentences
        self._ended: NDArray[Any] = np.empty((0, 0))

    def fork(self, sources: Ints) -> None:
        """See ``Beam.fork``."""
        index = to_device(sources, self._device)
        self._slots, self._origin = self._slots.take(index), self._origin.index_select(0, index)
        self.num_sentences = len(sources)
        self.pruning.fork(sources)

    def read(self, tokens: Ints) -> TokenMetrics:
        """Read one token in each sentence."""
        machine, threshold, length = self.machine, self.settings.beam.threshold, len(self.machine)
        wanted = to_device(tokens, self._device)
        left = list[Any]()

        def compute() -> list[Tensor]:
            search = _WordSearch(self, self._slots, wanted, self._reading, self.settings.beam.word_beam)
            search.run()
            found, near = search.found(self.pruning.narrow)
            kept = _Kept.of(search, machine, self.settings.beam.word_beam, found, threshold)
            needed, depth = machine.reachable(kept.slots.top)
            left[:] = kept, needed
            sums = [search.before, search.at_goal, search.arrived, search.dropped]
            sums += [search.overflowed, search.num_actions, near, found]
            since = (kept.actions >= 0).sum(2), (kept.actions == REDUCE).sum(2)
            kept_ones = [kept.slots.score, kept.slots.deficit, kept.before, machine.num_open(kept.slots.top), *since]
            return [needed[-1], depth, torch.stack(sums), torch.stack([one.double() for one in kept_ones])]

        count, depth, sums, kept_ones = self._reading.settle(compute, lambda: machine.cut(length))
        kept, needed = left
        machine.keep(needed, int(count), int(depth))
        self._shift(kept, needed, kept_ones[0], wanted)
        return self._metrics(sums, kept_ones)

    def _metrics(self, sums: NDArray[Any], kept: NDArray[Any]) -> TokenMetrics:
        *of_token, near, found = sums
        self.pruning.take_over(*of_token)
        sentence, place = np.nonzero(kept[0] > -np.inf)
        score, deficit, before, num_open, *since = kept[:, sentence, place]
        metrics = token_metrics(sentence, score, num_open, (since[0], since[1]), self.num_sentences)
        arrivals = Arrivals(sentence, score, deficit, sentence, sentence, before)
        return replace(metrics, **self.pruning.finish(near, arrivals, found, metrics.log_mass))

    def _shift(self, kept: _Kept, needed: Tensor, scores: NDArray[Any], tokens: Tensor) -> None:
        """SHIFT what was kept."""
        index = to_device(np.flatnonzero(scores > -np.inf), self._device)
        rows = kept.slots.top.flatten()[index]
        tops = torch.zeros_like(kept.slots.top).flatten()
        tops[index] = self.machine.shift(needed[rows] - 1, tokens[index // kept.slots.score.shape[1]])
        self._slots = kept.slots._replace(top=tops.view_as(kept.slots.top))
        actions = torch.cat([kept.actions, torch.where(kept.slots.score > -torch.inf, SHIFT, -1)[..., None]], 2)
        self._words.append((actions.to(torch.int16), self._origin.gather(1, kept.source)))
        self._origin = torch.arange(tops.numel(), device=self._device).view_as(kept.source)

    def endings(self, sentences: Bools) -> Endings:
        """See ``Beam.endings``."""
        numbers, length = np.flatnonzero(sentences), len(self.machine)
        index = to_device(numbers, self._device)
        slots, origin = self._slots.take(index), self._origin.index_select(0, index)

        def compute() -> list[Tensor]:
            score, last, source = self._close(slots) if self.machine.ends_by_closing else self._finish(slots)
            return [score, torch.cat([*self._history(origin.gather(1, source)), last], 2)]

        score, actions = self._ending.settle(compute, lambda: self.machine.cut(length))
        self.machine.cut(length)
        row, place = np.nonzero(score > -np.inf)
        self._ended = actions[row, place].astype(np.int64)
        sentence, scores = numbers[row], score[row, place]
        log_mass = log_sums(sentence, scores, self.num_sentences)
        return Endings.of(sentence, scores, np.arange(len(row)), log_mass)

    def actions(self, histories: Ints) -> list[list[int]]:
        """All actions of analyses that ``endings`` gave."""
        return [actions[actions >= 0].tolist() for actions in self._ended[histories]]

    def _history(self, origin: Tensor) -> list[Tensor]:
        """The actions up to now (s, K, steps) of each word, from places of the last one."""
        found = []
        for actions, before in reversed(self._words):
            found.append(actions.flatten(0, 1)[origin])
            origin = before.flatten()[origin]
        return found[::-1]

    def _close(self, slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
        """Close all that is open: scores (s, K), the actions (s, K, m), and each one's place before."""
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
        """Search for the best ways to FINISH; likewise."""
        word_beam = self.settings.beam.word_beam
        search = _WordSearch(self, slots, None, self._ending, word_beam)
        search.run()
        kept = _Kept.of(search, self.machine, word_beam, search.found(np.inf)[0], np.inf)
        finish = torch.where(kept.slots.score > -torch.inf, self.machine.num_actions - 1, -1)[..., None]
        return kept.slots.score, torch.cat([kept.actions, finish], 2).to(torch.int16), kept.source
