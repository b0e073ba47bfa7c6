"""Reading token by token: the state of a generative parser between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.layers.devices import to_device
from treelm.models.scores import PartialAnalysis
from treelm.models.search.analyses import log_sums
from treelm.models.search.beam import Beam
from treelm.models.search.config import SearchConfig
from treelm.models.search.goals import WAITS
from treelm.models.search.rows import Bools, Floats, Ints, arithmetic
from treelm.models.search.sentences import Searchable, converged, gaps, log_ratio, new_machine
from treelm.models.states import TextState, last_word
from treelm.trees.transitions import REDUCE
from treelm.trees.tree import Tree

Entry = TypeVar("Entry")
TreeBuilder = Callable[[Sequence[int], Bools, Sequence[str]], Tree]
"""The tree of a derivation's actions, given which tokens end words, and the words."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BeamState(TextState):
    """The beam after some tokens, with its own copy of the parameters, laid out for search; words are complete."""

    ends_word: Bools  # (V,) tokens that end a word
    beam: Beam  # never changed: every step works on a copy
    log_mass: Floats  # (n,) M_i
    token_log_probs: tuple[tuple[float, ...], ...]  # the same numbers as ``score`` gives
    token_gaps: tuple[tuple[float, ...], ...]  # how much less a narrower search found so far, nats

    @property
    def word_log_probs(self) -> list[Floats]:
        """log p of each word given those before it, one array (n,) for every word read; nan beyond a sentence."""
        rows = [self._of_words(index) for index in range(self.num_sentences)]
        longest = max(map(len, rows), default=0)
        table = np.full((longest, len(rows)), np.nan)
        for index, row in enumerate(rows):
            table[: len(row), index] = row
        return list(table)

    @property
    def beam_converged(self) -> list[Floats]:
        """The column of ``score`` of this name, so far: for every sentence, 1 for each word that has converged."""
        pairs = zip(self.tokens, self.token_gaps, strict=True)
        return [converged(np.array(gaps)[self.ends_word[np.array(read, np.int64)]]) for read, gaps in pairs]

    @property
    def last_word_log_probs(self) -> Floats:
        """log p of the last word of each sentence given those before it: (n,)."""
        return np.array([self._of_words(index)[-1] for index in range(self.num_sentences)])

    def _of_words(self, index: int) -> list[float]:
        totals, total = list[float](), 0.0
        for token, log_prob in zip(self.tokens[index], self.token_log_probs[index], strict=True):
            total += log_prob
            if self.ends_word[token]:
                totals.append(total)
                total = 0.0
        return totals


def start_state(
    model: Searchable, settings: SearchConfig, ends_word: Bools, num_sentences: int, starts: Tensor | None = None
) -> BeamState:
    """The state before the first token. Raises ``InputError`` for settings that need whole sentences.

    Sentences may begin from ``starts`` (n, E), see ``new_machine``.
    """
    if settings.method != "beam":
        found = f"search by {settings.method!r} works on whole sentences only"
        raise InputError(found, remedy="read word by word by beam search, or score whole sentences")
    nothing: tuple[tuple[int, ...], ...] = ((),) * num_sentences
    no_numbers: tuple[tuple[float, ...], ...] = ((),) * num_sentences
    head = model.head(settings.heavy_words)
    with torch.inference_mode(), arithmetic(settings.matmul, head.device):
        beam = Beam(new_machine(model, starts), head, settings, num_sentences)
    return BeamState(
        ends_word=ends_word,
        beam=beam,
        log_mass=np.zeros(num_sentences),
        tokens=nothing,
        token_log_probs=no_numbers,
        token_gaps=no_numbers,
        words=((),) * num_sentences,
    )


def _arithmetic(beam: Beam) -> AbstractContextManager[None]:
    return arithmetic(beam.settings.matmul, beam.head.device)


def read_tokens(state: BeamState, tokens: Sequence[int | None], vocabulary: Vocabulary) -> BeamState:
    """The state after one more token in each sentence, None for a sentence that waits."""
    state.check_tokens(tokens)
    beam = state.beam.copy()
    read = np.array([WAITS if token is None else token for token in tokens])
    with torch.inference_mode(), _arithmetic(beam):
        metrics = beam.read(read)
    log_mass = metrics.log_mass
    reads = read != WAITS
    log_probs = log_ratio(log_mass, state.log_mass)
    new = replace(
        state,
        beam=beam.copy(),  # without the room that reading took: there may be many states
        log_mass=np.where(reads, log_mass, state.log_mass),
        tokens=_appended(state.tokens, read.tolist(), reads),
        token_log_probs=_appended(state.token_log_probs, log_probs.tolist(), reads),
        token_gaps=_appended(state.token_gaps, gaps(log_mass, metrics.narrow_log_mass).tolist(), reads),
    )
    return replace(new, words=_spelled(new, reads, vocabulary))


def _appended(rows: tuple[tuple[Entry, ...], ...], entries: list[Entry], reads: Bools) -> tuple[tuple[Entry, ...], ...]:
    return tuple((*row, entry) if goes else row for row, entry, goes in zip(rows, entries, reads.tolist(), strict=True))


def _spelled(state: BeamState, reads: Bools, vocabulary: Vocabulary) -> tuple[tuple[str, ...], ...]:
    words = []
    for before, tokens, goes in zip(state.words, state.tokens, reads.tolist(), strict=True):
        ends = goes and state.ends_word[tokens[-1]]
        words.append((*before, vocabulary.spell(last_word(tokens, state.ends_word))) if ends else before)
    return tuple(words)


@torch.inference_mode()
def next_log_probs(state: BeamState) -> Tensor:
    """log p of every next token and, last, of the end: float64 (n, V + 1).

    The search does not look at the next token: analyses wait to SHIFT it, each with its distribution, and
    p(w) = sum over them of p(analysis, SHIFT) p(w | analysis) / exp(M). Sums are at most 1; what is missing is the
    probability that the beam lost.
    """
    beam = state.beam.copy()
    with _arithmetic(beam):
        out = beam.next_token_log_mass()
    alive = np.isfinite(state.log_mass)
    out[to_device(~alive, out.device)] = -torch.inf
    shift = to_device(np.where(alive, state.log_mass, 0.0), out.device)
    return out - shift[:, None]


def renormalised(log_probs: Tensor) -> Tensor:
    """Rows of log probabilities (n, V + 1) scaled to sum to 1; a row of -inf stays as it is."""
    total = log_probs.logsumexp(1, keepdim=True)
    return log_probs - total.masked_fill(total == -torch.inf, 0.0)


@torch.inference_mode()
def partial_trees(state: BeamState, build_tree: TreeBuilder) -> list[Tree]:
    """The best analysis of each sentence as a tree over the words read so far.

    Where sentences end by closing, what is open is closed. Else, where the last words may not have a constituent yet,
    the tree is the best way to end here. Raises ``InputError`` before the first word, within a word, and where the beam
    is empty.
    """
    beam = state.beam.copy()
    with _arithmetic(beam):
        actions = _best_closed(beam) if beam.machine.ends_by_closing else _best_endings(beam)
    trees = []
    for index, words in enumerate(state.words):
        _check_after_word(state, index)
        if index not in actions:
            raise InputError(f"the beam of sentence {index + 1} is empty", remedy="raise action_beam or word_beam")
        ends_word = state.ends_word[np.array(state.tokens[index])]
        trees.append(build_tree(actions[index], ends_word, words))
    return trees


def _check_after_word(state: BeamState, index: int) -> None:
    """Raise ``InputError`` if a sentence has no word yet, or stands within one."""
    if not state.tokens[index] or not state.ends_word[state.tokens[index][-1]]:
        found = f"sentence {index + 1} stands within a word" if state.tokens[index] else "no word was read"
        raise InputError(found, remedy="read up to the end of a word")


def partial_analyses(state: BeamState, build_tree: TreeBuilder, most: int) -> list[list[PartialAnalysis]]:
    """The most probable analyses of each sentence as they stand, right after the last word was shifted.

    A constituent that holds the last word is open: nothing can have closed it since. ``build_tree`` closes it.
    """
    analyses, found = state.beam.analyses, [list[PartialAnalysis]() for _ in state.words]
    total = log_sums(analyses.sentence, analyses.score, state.num_sentences)
    for index, words in enumerate(state.words):
        _check_after_word(state, index)
        kept = np.flatnonzero((analyses.sentence == index) & np.isfinite(analyses.score))
        kept = kept[np.argsort(-analyses.score[kept], kind="stable")[:most]]
        ends_word = state.ends_word[np.array(state.tokens[index])]
        for place, actions in zip(kept, state.beam.machine.histories.actions(analyses.history[kept]), strict=True):
            share = float(np.exp(analyses.score[place] - total[index]))
            found[index].append(PartialAnalysis(tree=build_tree(actions, ends_word, words), share=share))
    return found


def _best_closed(beam: Beam) -> dict[int, list[int]]:
    analyses, found = beam.analyses, dict[int, list[int]]()
    num_open = beam.machine.num_open(analyses.top).tolist()
    actions = beam.machine.histories.actions(analyses.history)
    order: Ints = np.lexsort((-analyses.score, analyses.sentence))
    for place in order.tolist():
        found.setdefault(int(analyses.sentence[place]), [*actions[place], *[REDUCE] * num_open[place]])
    return found


def _best_endings(beam: Beam) -> dict[int, list[int]]:
    endings = beam.endings(np.ones(beam.num_sentences, np.bool_))
    sentences, first = np.unique(endings.sentence, return_index=True)
    actions = beam.machine.histories.actions(endings.history[first])
    return dict(zip(sentences.tolist(), actions, strict=True))
