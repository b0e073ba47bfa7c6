"""A generative parser without a network: tables say what comes next, given what is open and how much is in it.

States are Python tuples, and a machine is a list of them. So what the search knows of the RNNG it could not do here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tests.models.rnng.worlds import Tokens
from treelm.corpora.encoding import SentenceBatch
from treelm.models.base import Loss, Losses
from treelm.models.search.analyses import Analyses, AnalysisTable
from treelm.models.search.machine import Machine
from treelm.models.search.model import GenerativeParser
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.sentences import Searchable
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order, finish_action


@dataclass(frozen=True)
class State:
    """Open nonterminals, outermost first, below them what stands outside: (label, children so far)."""

    open: tuple[tuple[int, int], ...]
    above: int = SHIFT  # the last action: a word, a constituent or a label is on top
    labels_since_word: int = 0

    @property
    def num_open(self) -> int:
        return len(self.open) - 1

    def changed(self, by: int) -> tuple[tuple[int, int], ...]:
        """What is open with more or fewer children of the innermost."""
        *outer, (label, count) = self.open
        return (*outer, (label, count + by))


@dataclass(frozen=True)
class Grammar:
    """p(action | innermost label, children so far: 0, 1 or more) and p(token | the same)."""

    order: Order
    vocabulary_size: int = 3
    num_labels: int = 2
    max_open: int = 2
    max_labels: int = 2  # since the last word
    seed: int = 1

    @property
    def finish(self) -> int:
        return finish_action(self.num_labels)

    @property
    def config(self) -> Grammar:
        return self

    @cached_property
    def action_logits(self) -> Floats:
        """(contexts, A)."""
        return np.random.default_rng(self.seed).normal(size=(3 * (self.num_labels + 1), self.finish + 1))

    @cached_property
    def word_logits(self) -> Floats:
        """(contexts, V)."""
        return np.random.default_rng(self.seed + 1).normal(
            size=(3 * (self.num_labels + 1), self.vocabulary_size), scale=2
        )

    def context(self, state: State) -> int:
        label, count = state.open[-1]
        return 3 * label + min(count, 2)

    def initial(self) -> State:
        return State(open=((self.num_labels, 0),))

    def valid(self, state: State) -> list[int]:
        inside, (_, count) = state.num_open > 0, state.open[-1]
        may_open = state.num_open < self.max_open and state.labels_since_word < self.max_labels
        labels = list(range(FIRST_NT, self.finish)) if may_open else []
        if self.order == "top-down":
            return [*([SHIFT] if inside else []), *([REDUCE] if inside and count else []), *labels]
        corner = count > 0 and state.above < FIRST_NT
        ends = not inside and count > 0 and state.above == REDUCE
        shifts = [SHIFT] if inside or count == 0 else []
        return [*shifts, *([REDUCE] if inside else []), *(labels if corner else []), *([self.finish] if ends else [])]

    def action_log_probs(self, state: State) -> dict[int, float]:
        valid = self.valid(state)
        logits = self.action_logits[self.context(state), valid]
        return dict(zip(valid, (logits - np.logaddexp.reduce(logits)).tolist(), strict=True))

    def word_log_probs(self, state: State) -> Floats:
        logits = self.word_logits[self.context(state)]
        log_probs: Floats = logits - np.logaddexp.reduce(logits)
        return log_probs

    def apply(self, state: State, action: int, token: int | None = None) -> State:
        assert action in self.valid(state)
        if action == SHIFT:
            return State(open=state.changed(1), above=action)
        if action == REDUCE:
            closed = replace(state, open=state.open[:-1], above=action)
            return replace(closed, open=closed.changed(1))
        if action == self.finish:
            return replace(state, above=action)
        corner = 0 if self.order == "top-down" else 1
        opened = (*state.changed(-corner), (action - FIRST_NT, corner))
        return State(open=opened, above=action, labels_since_word=state.labels_since_word + 1)


class TableRows(list[State]):
    """Rows are states; the head reads one-hot vectors of contexts."""

    grammar: Grammar

    def outputs(self, rows: Ints) -> Tensor:
        contexts = [self.grammar.context(self[row]) for row in rows]
        return torch.eye(3 * (self.grammar.num_labels + 1), dtype=torch.float64)[contexts]

    def keep(self, tops: Ints) -> Ints:
        kept = np.unique(tops)
        new = np.full(len(self), -1)
        new[kept] = np.arange(len(kept))
        self[:] = [self[row] for row in kept]
        return new

    def copy(self) -> TableRows:
        new = TableRows(self)
        new.grammar = self.grammar
        return new


class TableMachine(Machine):
    rows: TableRows

    def __init__(self, grammar: Grammar) -> None:
        top_down = grammar.order == "top-down"
        super().__init__(grammar.finish + (not top_down), ends_by_closing=top_down)
        self.grammar, self.rows = grammar, TableRows()
        self.rows.grammar = grammar

    def start(self, num_sentences: int) -> Analyses:
        none, zero = np.full(num_sentences, -1), np.zeros(num_sentences)
        return self._pushed(np.arange(num_sentences), zero, zero, none, [self.grammar.initial()] * num_sentences)

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        before = [self.rows[top] for top in analyses.top[sources]]
        states = [self.grammar.apply(*pair) for pair in zip(before, actions.tolist(), strict=True)]
        history = self.histories.append(analyses.history[sources], actions)
        return self._pushed(analyses.sentence[sources], score, analyses.deficit[sources], history, states)

    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        states = [self.grammar.apply(self.rows[top], SHIFT) for top in analyses.top]
        history = self.histories.append(analyses.history, np.full(len(states), SHIFT))
        return self._pushed(analyses.sentence, analyses.score, analyses.deficit, history, states)

    def _pushed(self, sentence: Ints, score: Floats, deficit: Floats, history: Ints, states: list[State]) -> Analyses:
        top = np.arange(len(self.rows), len(self.rows) + len(states))
        self.rows += states
        log_probs = np.full((len(states), self.num_actions), -np.inf)
        for row, state in zip(log_probs, states, strict=True):
            for action, log_prob in self.grammar.action_log_probs(state).items():
                row[action] = log_prob
        return Analyses(
            sentence=sentence,
            score=score,
            deficit=deficit,
            top=top,
            history=history,
            outputs=self.outputs(top),
            log_probs=log_probs,
        )

    def num_open(self, tops: Ints) -> Ints:
        return np.array([self.rows[top].num_open for top in tops], np.int64)


class TableHead:
    """Bounds leave out every other token, and rough ones all but the one that is asked for."""

    device = torch.device("cpu")

    def __init__(self, grammar: Grammar, num_heavy: int) -> None:
        self._logits = grammar.word_logits
        self.vocabulary_size = grammar.vocabulary_size

    def _of(self, outputs: Tensor) -> Floats:
        return self._logits[outputs.argmax(1).numpy()]

    def logits(self, outputs: Tensor, tokens: Ints) -> Floats:
        return self._of(outputs)[np.arange(len(tokens)), tokens]

    def log_normalisers(self, outputs: Tensor) -> Floats:
        return np.logaddexp.reduce(self._of(outputs), 1)

    def log_normaliser_bounds(self, outputs: Tensor, tokens: Ints, logits: Floats, *, rough: bool) -> Floats:
        counted: Bools = np.arange(self.vocabulary_size) == tokens[:, None]
        counted[:, :: self.vocabulary_size if rough else 2] = True
        return np.logaddexp.reduce(np.where(counted, self._of(outputs), -np.inf), 1)

    def log_probs(self, outputs: Tensor) -> Tensor:
        return torch.from_numpy(self._of(outputs)).log_softmax(1)


class Toy(GenerativeParser):
    """The tables as a system like any other."""

    system: ClassVar[str] = "toy"

    def __init__(self, order: Order, **sizes: Any) -> None:
        self._grammar = Grammar(order=order, **sizes)
        labels = [f"X{label}" for label in range(self._grammar.num_labels)]
        super().__init__(vocabulary=Tokens(self._grammar.vocabulary_size), labels=labels)

    @property
    def config(self) -> Grammar:
        return self._grammar

    def searchable(self) -> Searchable:
        return Searchable(machine=partial(TableMachine, self._grammar), head=partial(TableHead, self._grammar))

    def losses(self, batch: SentenceBatch) -> Losses:
        """Of the words alone, all in the first context: nothing is learned here."""
        log_probs = self._grammar.word_log_probs(self._grammar.initial())[batch.tokens]
        total = torch.tensor(-log_probs.sum(), requires_grad=True)
        terms = {"word": Loss(sum=total, count=len(batch.tokens))}
        return Losses(terms=terms, total=total, num_words=len(batch.tokens), num_sentences=len(batch))
