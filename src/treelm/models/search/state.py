"""Reading token by token: the state of a generative parser between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.layers.devices import to_device
from treelm.models.scores import PartialAnalysis
from treelm.models.search.analyses import log_sums
from treelm.models.search.beam import WAITS, Beam
from treelm.models.search.config import SearchConfig
from treelm.models.search.metrics import converged, gaps, log_ratio
from treelm.models.search.rows import Bools, Floats, arithmetic
from treelm.models.search.sentences import Searchable
from treelm.models.states import TextState
from treelm.trees.transitions import REDUCE
from treelm.trees.tree import Tree

Entry = TypeVar("Entry")
TreeBuilder = Callable[[Sequence[int], Bools, Sequence[str]], Tree]
"""The tree of a derivation's actions, given which tokens end words, and the words."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BeamState(TextState):
    """The beam after some tokens, with its own copy of the parameters, laid out for search."""

    ends_word: Bools  # (V,) tokens that end a word
    beam: Beam  # never changed: every step works on a copy
    log_mass: Floats  # (n,) M_i
    token_log_probs: tuple[tuple[float, ...], ...]  # the same numbers as ``score`` gives
    token_gaps: tuple[tuple[float, ...], ...]  # how much less a narrower search found so far, nats

    @property
    def word_log_probs(self) -> list[Floats]:
        """log p of each word given those before it, one array (n,) for every word read; nan beyond a sentence."""
        rows = [self._of_words(index) for index in range(self.num_sentences)]
        table = np.full((max(map(len, rows), default=0), len(rows)), np.nan)
        for index, row in enumerate(rows):
            table[: len(row), index] = row
        return list(table)

    @property
    def last_word_log_probs(self) -> Floats:
        """log p of the last word of each sentence given those before it: (n,)."""
        return np.array([self._of_words(index)[-1] for index in range(self.num_sentences)])

    @property
    def beam_converged(self) -> list[Floats]:
        """The column of ``score`` of this name, so far: for every sentence, 1 for each word that has converged."""
        return [converged(np.array(gaps)[self.ends(index)]) for index, gaps in enumerate(self.token_gaps)]

    def ends(self, index: int) -> Bools:
        """Which tokens of a sentence end a word."""
        return self.ends_word[np.array(self.tokens[index], np.int64)]

    def _of_words(self, index: int) -> list[float]:
        totals, total = list[float](), 0.0
        for ends, log_prob in zip(self.ends(index).tolist(), self.token_log_probs[index], strict=True):
            total += log_prob
            if ends:
                totals.append(total)
                total = 0.0
        return totals


def start_state(
    model: Searchable, settings: SearchConfig, ends_word: Bools, num_sentences: int, starts: Tensor | None = None
) -> BeamState:
    """The state before the first token. Raises ``InputError`` for settings that need whole sentences.

    Sentences may begin from ``starts`` (n, E), see ``Searchable``.
    """
    if settings.method != "beam":
        found = f"search by {settings.method!r} works on whole sentences only"
        raise InputError(found, remedy="read word by word by beam search, or score whole sentences")
    head = model.head(settings.heavy_words)
    with torch.inference_mode(), arithmetic(settings.matmul, head.device):
        beam = Beam(model.new_machine(starts), head, settings, num_sentences)
    nothing = ((),) * num_sentences
    return BeamState(
        words=nothing,
        tokens=nothing,
        ends_word=ends_word,
        beam=beam,
        log_mass=np.zeros(num_sentences),
        token_log_probs=nothing,
        token_gaps=nothing,
    )


@torch.inference_mode()
def read_tokens(state: BeamState, tokens: Sequence[int | None], vocabulary: Vocabulary) -> BeamState:
    """The state after one more token in each sentence, None for a sentence that waits."""
    state.check_tokens(tokens)
    beam = state.beam.copy()
    read = np.array([WAITS if token is None else token for token in tokens])
    with arithmetic(beam.settings.matmul, beam.head.device):
        metrics = beam.read(read)
    reads, log_mass = read != WAITS, metrics.log_mass
    return state.after(
        tokens,
        vocabulary,
        beam=beam.copy(),  # without the room that reading took: there may be many states
        log_mass=np.where(reads, log_mass, state.log_mass),
        token_log_probs=_appended(state.token_log_probs, log_ratio(log_mass, state.log_mass), reads),
        token_gaps=_appended(state.token_gaps, gaps(log_mass, metrics.narrow_log_mass), reads),
    )


def _appended(rows: tuple[tuple[float, ...], ...], entries: Floats, reads: Bools) -> tuple[tuple[float, ...], ...]:
    pairs = zip(rows, entries.tolist(), reads.tolist(), strict=True)
    return tuple((*row, entry) if goes else row for row, entry, goes in pairs)


@torch.inference_mode()
def next_log_probs(state: BeamState) -> Tensor:
    """log p of every next token and, last, of the end: float64 (n, V + 1).

    The search does not look at the next token: analyses wait to SHIFT it, each with its distribution, and
    p(w) = sum over them of p(analysis, SHIFT) p(w | analysis) / exp(M). Sums are at most 1; what is missing is the
    probability that the beam lost.
    """
    beam = state.beam.copy()
    with arithmetic(beam.settings.matmul, beam.head.device):
        out = beam.next_token_log_mass()
    alive = np.isfinite(state.log_mass)
    out[to_device(~alive, out.device)] = -torch.inf
    shift = to_device(np.where(alive, state.log_mass, 0.0), out.device)
    return out - shift[:, None]


def partial_trees(state: BeamState, build_tree: TreeBuilder) -> list[Tree]:
    """The best analysis of each sentence as a tree over the words read so far.

    Where sentences end by closing, what is open is closed. Else, where the last words may not have a constituent yet,
    the tree is the best way to end here. Raises ``InputError`` before the first word, within a word, and where the beam
    is empty.
    """
    beam = state.beam.copy()
    if beam.machine.ends_by_closing:
        ranked = beam.analyses.ranked()
        sentence, history, num_open = ranked.sentence, ranked.history, beam.machine.num_open(ranked.top)
    else:
        with torch.inference_mode(), arithmetic(beam.settings.matmul, beam.head.device):
            endings = beam.endings(np.ones(beam.num_sentences, np.bool_))
        sentence, history, num_open = endings.sentence, endings.history, np.zeros_like(endings.history)
    sentences, first = np.unique(sentence, return_index=True)
    actions = beam.machine.histories.actions(history[first])
    closed = [[*one, *[REDUCE] * number] for one, number in zip(actions, num_open[first].tolist(), strict=True)]
    best = dict(zip(sentences.tolist(), closed, strict=True))
    trees = []
    for index, words in enumerate(state.words):
        _check_after_word(state, index)
        if index not in best:
            raise InputError(f"the beam of sentence {index + 1} is empty", remedy="raise action_beam or word_beam")
        trees.append(build_tree(best[index], state.ends(index), words))
    return trees


def partial_analyses(state: BeamState, build_tree: TreeBuilder, most: int) -> list[list[PartialAnalysis]]:
    """The most probable analyses of each sentence as they stand, right after the last word was shifted.

    A constituent that holds the last word is open: nothing can have closed it since. ``build_tree`` closes it.
    """
    analyses, found = state.beam.analyses.ranked(), []
    total = log_sums(analyses.sentence, analyses.score, state.num_sentences)
    for index, words in enumerate(state.words):
        _check_after_word(state, index)
        kept = np.flatnonzero((analyses.sentence == index) & np.isfinite(analyses.score))[:most]
        shares = np.exp(analyses.score[kept] - total[index]).tolist()
        actions = state.beam.machine.histories.actions(analyses.history[kept])
        found.append(
            [
                PartialAnalysis(tree=build_tree(one, state.ends(index), words), share=share)
                for one, share in zip(actions, shares, strict=True)
            ]
        )
    return found


def _check_after_word(state: BeamState, index: int) -> None:
    """Raise ``InputError`` if a sentence has no word yet, or stands within one."""
    if not state.tokens[index] or not state.ends(index)[-1]:
        found = f"sentence {index + 1} stands within a word" if state.tokens[index] else "no word was read"
        raise InputError(found, remedy="read up to the end of a word")
